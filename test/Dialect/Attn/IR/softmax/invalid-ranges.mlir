// RUN: fovea-opt %s -split-input-file -verify-diagnostics

func.func @divides_by_symbol(%q: memref<1x1x8x4xf64>) {
  // expected-error @below {{expected ranges that multiply and divide by constants only, divisors positive, but got affine_map<(d0)[s0, s1] -> (0, d0 mod s0)>}}
  attn.stream query(%q : memref<1x1x8x4xf64>)
      source(%q, %q : memref<1x1x8x4xf64>, memref<1x1x8x4xf64>)
          ranges [affine_map<(b)[rows, n] -> (0, b mod rows)>]
      outs(%q : memref<1x1x8x4xf64>) {block = 4 : i64, scale = 1.0 : f64}
  return
}

// -----

func.func @multiplies_by_symbol(%q: memref<1x1x8x4xf64>) {
  // expected-error @below {{expected ranges that multiply and divide by constants only}}
  attn.stream query(%q : memref<1x1x8x4xf64>)
      source(%q, %q : memref<1x1x8x4xf64>, memref<1x1x8x4xf64>)
          ranges [affine_map<(b)[rows, n] -> (0, b * n)>]
      outs(%q : memref<1x1x8x4xf64>) {block = 4 : i64, scale = 1.0 : f64}
  return
}

// -----

func.func @divides_by_negative(%q: memref<1x1x8x4xf64>) {
  // expected-error @below {{expected ranges that multiply and divide by constants only}}
  attn.stream query(%q : memref<1x1x8x4xf64>)
      source(%q, %q : memref<1x1x8x4xf64>, memref<1x1x8x4xf64>)
          ranges [affine_map<(b)[rows, n] -> (0, b floordiv -2)>]
      outs(%q : memref<1x1x8x4xf64>) {block = 4 : i64, scale = 1.0 : f64}
  return
}

// -----

func.func @divides_by_zero(%q: memref<1x1x8x4xf64>) {
  // expected-error @below {{expected ranges that multiply and divide by constants only}}
  attn.stream query(%q : memref<1x1x8x4xf64>)
      source(%q, %q : memref<1x1x8x4xf64>, memref<1x1x8x4xf64>)
          ranges [affine_map<(b)[rows, n] -> (b ceildiv 0, 4)>]
      outs(%q : memref<1x1x8x4xf64>) {block = 4 : i64, scale = 1.0 : f64}
  return
}
