// RUN: fovea-opt %s --convert-attn-to-vector --split-input-file --verify-diagnostics

func.func @tensors(%b: tensor<1x2x3x9xf32>, %m: tensor<1x2x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x2x9x5xf32>, %c: tensor<1x2xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects operands to be memrefs, but got tensors}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x2x3x9xf32>, tensor<1x2x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x2x9x5xf32>, tensor<1x2xi32>) -> tensor<1x2x9x5xf32>, tensor<1x2xi32>
  return
}

// -----

func.func @strided(%b: memref<1x2x3x9xf32>, %m: memref<1x2x3xi32>, %v: memref<1x2x9x5xf32, strided<[90, 45, 5, 2]>>, %o: memref<1x2x9x5xf32>, %c: memref<1x2xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects unit stride along the width, but got 'memref<1x2x9x5xf32, strided<[90, 45, 5, 2]>>'}}
  attn.conv_apply ins(%b, %m, %v : memref<1x2x3x9xf32>, memref<1x2x3xi32>, memref<1x2x9x5xf32, strided<[90, 45, 5, 2]>>)
      outs(%o, %c : memref<1x2x9x5xf32>, memref<1x2xi32>)
  return
}

// -----

func.func @tensors(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects operands to be memrefs, but got tensors}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @recover(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x9xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects operands to be memrefs, but got tensors}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x9xf32>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>
  return
}

// -----

func.func @strided(%b: memref<2x4x3x9xf32>, %m: memref<2x4x3xi32>, %v: memref<2x2x9x5xf32, strided<[90, 45, 5, 2]>>, %o: memref<2x4x9x5xf32>, %d: memref<2x4x9x5xf32>, %ib: memref<2x4x3x9xf32>, %iv: memref<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects unit stride along the width, but got 'memref<2x2x9x5xf32, strided<[90, 45, 5, 2]>>'}}
  attn.conv_apply_backward ins(%b, %m, %v : memref<2x4x3x9xf32>, memref<2x4x3xi32>, memref<2x2x9x5xf32, strided<[90, 45, 5, 2]>>) forward(%o : memref<2x4x9x5xf32>) gradient(%d : memref<2x4x9x5xf32>) outs(%ib, %iv : memref<2x4x3x9xf32>, memref<2x2x9x5xf32>)
  return
}

// -----

func.func @tensors(%q: tensor<1x1x9x6xf32>, %b: tensor<1x1x2x9xf32>, %m: tensor<1x1x2xi32>, %n: tensor<1x1xi32>) -> tensor<1x1x2x9xf32> {
  // expected-error @below {{'attn.conv_recover' op expects operands to be memrefs, but got tensors}}
  %0:3 = attn.conv_recover ins(%q, %q : tensor<1x1x9x6xf32>, tensor<1x1x9x6xf32>) outs(%b, %m, %n : tensor<1x1x2x9xf32>, tensor<1x1x2xi32>, tensor<1x1xi32>)
      {window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<1x1x2x9xf32>, tensor<1x1x2xi32>, tensor<1x1xi32>
  return %0#0 : tensor<1x1x2x9xf32>
}
