// RUN: fovea-opt %s --split-input-file --verify-diagnostics

func.func @f(%m: tensor<2x9xi8>, %t: tensor<2x9xi32>, %c: tensor<2xi32>) {
  // expected-error @below {{'attn.list_tokens' op operand #0 must be rank-2 tensor or memref of i1, but got 'tensor<2x9xi8>'}}
  %l:3 = attn.list_tokens ins(%m : tensor<2x9xi8>) outs(%t, %t, %c : tensor<2x9xi32>, tensor<2x9xi32>, tensor<2xi32>) -> tensor<2x9xi32>, tensor<2x9xi32>, tensor<2xi32>
  return
}

// -----

func.func @f(%m: tensor<2x9xi1>, %t: tensor<2x9xi32>, %c: tensor<2x1xi32>) {
  // expected-error @below {{'attn.list_tokens' op operand #3 must be rank-1 tensor or memref of i32, but got 'tensor<2x1xi32>'}}
  %l:3 = attn.list_tokens ins(%m : tensor<2x9xi1>) outs(%t, %t, %c : tensor<2x9xi32>, tensor<2x9xi32>, tensor<2x1xi32>) -> tensor<2x9xi32>, tensor<2x9xi32>, tensor<2x1xi32>
  return
}

// -----

func.func @f(%m: tensor<2x9xi1>, %t: tensor<2x8xi32>, %p: tensor<2x9xi32>, %c: tensor<2xi32>) {
  // expected-error @below {{expects extent 1 of tokens to be 9 (extent 1 of mask), but got 8}}
  %l:3 = attn.list_tokens ins(%m : tensor<2x9xi1>) outs(%t, %p, %c : tensor<2x8xi32>, tensor<2x9xi32>, tensor<2xi32>) -> tensor<2x8xi32>, tensor<2x9xi32>, tensor<2xi32>
  return
}

// -----

func.func @f(%m: tensor<2x9xi1>, %t: tensor<2x9xi32>, %c: tensor<3xi32>) {
  // expected-error @below {{expects extent 0 of counts to be 2 (extent 0 of mask), but got 3}}
  %l:3 = attn.list_tokens ins(%m : tensor<2x9xi1>) outs(%t, %t, %c : tensor<2x9xi32>, tensor<2x9xi32>, tensor<3xi32>) -> tensor<2x9xi32>, tensor<2x9xi32>, tensor<3xi32>
  return
}

// -----

func.func @f(%x: tensor<2x3x4x7xf32>, %r: tensor<1x9xi32>, %o: tensor<2x3x9x7xf32>) {
  // expected-error @below {{expects extent 0 of rows to be 2 (extent 0 of input), but got 1}}
  %0 = attn.take_rows ins(%x, %r : tensor<2x3x4x7xf32>, tensor<1x9xi32>) outs(%o : tensor<2x3x9x7xf32>) -> tensor<2x3x9x7xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x4x7xf32>, %r: tensor<2x9xi32>, %o: tensor<2x3x4x7xf32>) {
  // expected-error @below {{expects extent 2 of output to be 9 (extent 1 of rows), but got 4}}
  %0 = attn.take_rows ins(%x, %r : tensor<2x3x4x7xf32>, tensor<2x9xi32>) outs(%o : tensor<2x3x4x7xf32>) -> tensor<2x3x4x7xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x4x7xf32>, %r: tensor<2x9xi32>, %o: tensor<2x3x9x7xf64>) {
  // expected-error @below {{output}}
  %0 = attn.take_rows ins(%x, %r : tensor<2x3x4x7xf32>, tensor<2x9xi32>) outs(%o : tensor<2x3x9x7xf64>) -> tensor<2x3x9x7xf64>
  return
}
