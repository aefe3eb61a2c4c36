// RUN: fovea-opt %s --split-input-file --verify-diagnostics

func.func @few(%q: tensor<1x2x8x8xf32>, %z: tensor<1x2x8xi32>, %c: tensor<2x5x8xf32>, %r: tensor<1x31x8xf32>, %u: tensor<2x8xf32>) {
  // expected-error @below {{'attn.vq' op expects relative to have a row for each of the 32 distances of tokens read one by one, but got 31}}
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x2x8x8xf32>, tensor<1x2x8xi32>, tensor<1x2x8x8xf32>, tensor<2x5x8xf32>) relative(%r, %u : tensor<1x31x8xf32>, tensor<2x8xf32>) outs(%q : tensor<1x2x8x8xf32>) {block = 16 : i64, causal} -> tensor<1x2x8x8xf32>
  return
}

// -----

func.func @memory(%q: tensor<1x2x8x8xf32>, %z: tensor<1x2x8xi32>, %c: tensor<2x5x8xf32>, %t: tensor<1x47xf32>) {
  // expected-error @below {{'attn.vq' op expects distance_bias to have a row for each of the 48 distances of tokens read one by one, but got 47}}
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x2x8x8xf32>, tensor<1x2x8xi32>, tensor<1x2x8x8xf32>, tensor<2x5x8xf32>) distance_bias(%t : tensor<1x47xf32>) outs(%q : tensor<1x2x8x8xf32>) {block = 16 : i64, memory = 2 : i64, causal} -> tensor<1x2x8x8xf32>
  return
}

// -----

func.func @encoder(%q: tensor<1x2x8x8xf32>, %z: tensor<1x2x8xi32>, %c: tensor<2x5x8xf32>, %t: tensor<1x32xf32>) {
  // expected-error @below {{'attn.vq' op expects no distance_bias without causal: no query has a present block then}}
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x2x8x8xf32>, tensor<1x2x8xi32>, tensor<1x2x8x8xf32>, tensor<2x5x8xf32>) distance_bias(%t : tensor<1x32xf32>) outs(%q : tensor<1x2x8x8xf32>) {block = 16 : i64} -> tensor<1x2x8x8xf32>
  return
}

// -----

func.func @width(%q: tensor<1x2x8x8xf32>, %z: tensor<1x2x8xi32>, %c: tensor<2x5x8xf32>, %r: tensor<1x32x8xf32>, %u: tensor<2x4xf32>) {
  // expected-error @below {{'attn.vq' op expects extent 1 of relative_bias to be 8 (extent 3 of query), but got 4}}
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x2x8x8xf32>, tensor<1x2x8xi32>, tensor<1x2x8x8xf32>, tensor<2x5x8xf32>) relative(%r, %u : tensor<1x32x8xf32>, tensor<2x4xf32>) outs(%q : tensor<1x2x8x8xf32>) {block = 16 : i64, causal} -> tensor<1x2x8x8xf32>
  return
}
