// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s

// CHECK-LABEL: func @tensors(
// CHECK: attn.conv_apply ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x1x9x5xbf16>) outs(%{{.*}}, %{{.*}} : tensor<2x4x9x5xbf16>, tensor<2x4xi32>) -> tensor<2x4x9x5xbf16>, tensor<2x4xi32>
func.func @tensors(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x1x9x5xbf16>, %o: tensor<2x4x9x5xbf16>, %c: tensor<2x4xi32>) -> (tensor<2x4x9x5xbf16>, tensor<2x4xi32>) {
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x1x9x5xbf16>)
      outs(%o, %c : tensor<2x4x9x5xbf16>, tensor<2x4xi32>) {algorithm = #attn.conv_algorithm<auto>} -> tensor<2x4x9x5xbf16>, tensor<2x4xi32>
  return %r#0, %r#1 : tensor<2x4x9x5xbf16>, tensor<2x4xi32>
}

// CHECK-LABEL: func @dynamic(
// CHECK: {algorithm = #attn.conv_algorithm<toeplitz>}
func.func @dynamic(%b: tensor<?x?x?x?xf64>, %m: tensor<?x?x?xi32>, %v: tensor<?x?x?x7xf64>, %o: tensor<?x?x?x7xf64>, %c: tensor<?x?xi32>) -> tensor<?x?x?x7xf64> {
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<?x?x?x?xf64>, tensor<?x?x?xi32>, tensor<?x?x?x7xf64>)
      outs(%o, %c : tensor<?x?x?x7xf64>, tensor<?x?xi32>) {algorithm = #attn.conv_algorithm<toeplitz>} -> tensor<?x?x?x7xf64>, tensor<?x?xi32>
  return %r#0 : tensor<?x?x?x7xf64>
}

// CHECK-LABEL: func @memrefs(
// CHECK: attn.conv_apply ins({{.*}}) outs({{.*}} : memref<1x1x9x5xf16>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<single>}{{$}}
func.func @memrefs(%b: memref<1x1x1x9xf16>, %m: memref<1x1x1xi32>, %v: memref<1x1x9x5xf16>, %o: memref<1x1x9x5xf16>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x1x9xf16>, memref<1x1x1xi32>, memref<1x1x9x5xf16>)
      outs(%o, %c : memref<1x1x9x5xf16>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<single>}
  return
}

// CHECK-LABEL: func @recover(
// CHECK: attn.conv_recover ins(%{{.*}}, %{{.*}} : memref<?x?x9x6xbf16>, memref<?x2x9x6xbf16>) outs(%{{.*}}, %{{.*}}, %{{.*}} : memref<?x?x3x9xf32>, memref<?x?x3xi32>, memref<?x?xi32>) {delta = 1.000000e+00 : f64, epsilon = 0.000000e+00 : f64, scale = 2.000000e+00 : f64, window = 9 : i64}{{$}}
func.func @recover(%q: memref<?x?x9x6xbf16>, %k: memref<?x2x9x6xbf16>, %b: memref<?x?x3x9xf32>, %m: memref<?x?x3xi32>, %n: memref<?x?xi32>) {
  attn.conv_recover ins(%q, %k : memref<?x?x9x6xbf16>, memref<?x2x9x6xbf16>)
      outs(%b, %m, %n : memref<?x?x3x9xf32>, memref<?x?x3xi32>, memref<?x?xi32>) {window = 9 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64, scale = 2.0 : f64}
  return
}

// CHECK-LABEL: func @conv(
// CHECK: attn.conv ins({{.*}}) outs({{.*}}) {algorithm = #attn.conv_algorithm<toeplitz>, delta = 0.000000e+00 : f64, epsilon = 0.000000e+00 : f64, group = 4 : i64, num_basis = 2 : i64, window = 1 : i64} -> tensor<1x2x9x5xf32>, tensor<1x2xi32>, tensor<1x2xi32>
func.func @conv(%q: tensor<1x2x9x6xf32>, %v: tensor<1x2x9x5xf32>, %n: tensor<1x2xi32>) -> tensor<1x2x9x5xf32> {
  %0:3 = attn.conv ins(%q, %q, %v : tensor<1x2x9x6xf32>, tensor<1x2x9x6xf32>, tensor<1x2x9x5xf32>)
      outs(%v, %n, %n : tensor<1x2x9x5xf32>, tensor<1x2xi32>, tensor<1x2xi32>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, group = 4 : i64, algorithm = #attn.conv_algorithm<toeplitz>}
      -> tensor<1x2x9x5xf32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %0#0 : tensor<1x2x9x5xf32>
}

// CHECK-LABEL: func @apply(
// CHECK: attn.conv_apply_backward ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%{{.*}} : tensor<2x4x9x5xf32>) gradient(%{{.*}} : tensor<2x4x9x5xf32>) outs(%{{.*}}, %{{.*}} : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
func.func @apply(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
  return
}

// CHECK-LABEL: func @apply_memrefs(
// CHECK: attn.conv_apply_backward ins(%{{.*}}, %{{.*}}, %{{.*}} : memref<2x4x3x9xf32>, memref<2x4x3xi32>, memref<2x2x9x5xbf16>) forward(%{{.*}} : memref<2x4x9x5xbf16>) gradient(%{{.*}} : memref<2x4x9x5xbf16>) outs(%{{.*}}, %{{.*}} : memref<2x4x3x9xf32>, memref<2x2x9x5xf32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 8 : i64}
func.func @apply_memrefs(%b: memref<2x4x3x9xf32>, %m: memref<2x4x3xi32>, %v: memref<2x2x9x5xbf16>, %o: memref<2x4x9x5xbf16>, %d: memref<2x4x9x5xbf16>, %ib: memref<2x4x3x9xf32>, %iv: memref<2x2x9x5xf32>) {
  attn.conv_apply_backward ins(%b, %m, %v : memref<2x4x3x9xf32>, memref<2x4x3xi32>, memref<2x2x9x5xbf16>) forward(%o : memref<2x4x9x5xbf16>) gradient(%d : memref<2x4x9x5xbf16>) outs(%ib, %iv : memref<2x4x3x9xf32>, memref<2x2x9x5xf32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 8 : i64}
  return
}

// CHECK-LABEL: func @apply_dynamic(
// CHECK: attn.conv_apply_backward ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x?x?x?xf64>, tensor<?x?x?xi32>, tensor<?x?x?x5xf64>) forward(%{{.*}} : tensor<?x?x?x5xf64>) gradient(%{{.*}} : tensor<?x?x?x5xf64>) outs(%{{.*}}, %{{.*}} : tensor<?x?x?x?xf64>, tensor<?x?x?x5xf64>) -> tensor<?x?x?x?xf64>, tensor<?x?x?x5xf64>
func.func @apply_dynamic(%b: tensor<?x?x?x?xf64>, %m: tensor<?x?x?xi32>, %v: tensor<?x?x?x5xf64>, %o: tensor<?x?x?x5xf64>, %d: tensor<?x?x?x5xf64>, %ib: tensor<?x?x?x?xf64>, %iv: tensor<?x?x?x5xf64>) {
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<?x?x?x?xf64>, tensor<?x?x?xi32>, tensor<?x?x?x5xf64>) forward(%o : tensor<?x?x?x5xf64>) gradient(%d : tensor<?x?x?x5xf64>) outs(%ib, %iv : tensor<?x?x?x?xf64>, tensor<?x?x?x5xf64>) -> tensor<?x?x?x?xf64>, tensor<?x?x?x5xf64>
  return
}

// CHECK-LABEL: func @recover_backward(
// CHECK: attn.conv_recover_backward ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x3xi32>) gradient(%{{.*}} : tensor<2x4x3x9xf32>) outs(%{{.*}}, %{{.*}} : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) {scale = 2.000000e+00 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>
func.func @recover_backward(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x9xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>) {
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x9xf32>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) {scale = 2.000000e+00 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>
  return
}

// CHECK-LABEL: func @recover_memrefs(
// CHECK: attn.conv_recover_backward ins(%{{.*}}, %{{.*}}, %{{.*}} : memref<2x4x9x6xbf16>, memref<2x2x9x6xbf16>, memref<2x4x3xi32>) gradient(%{{.*}} : memref<2x4x3x9xf32>) outs(%{{.*}}, %{{.*}} : memref<2x4x9x6xf32>, memref<2x2x9x6xf32>)
func.func @recover_memrefs(%q: memref<2x4x9x6xbf16>, %k: memref<2x2x9x6xbf16>, %m: memref<2x4x3xi32>, %d: memref<2x4x3x9xf32>, %iq: memref<2x4x9x6xf32>, %ik: memref<2x2x9x6xf32>) {
  attn.conv_recover_backward ins(%q, %k, %m : memref<2x4x9x6xbf16>, memref<2x2x9x6xbf16>, memref<2x4x3xi32>) gradient(%d : memref<2x4x3x9xf32>) outs(%iq, %ik : memref<2x4x9x6xf32>, memref<2x2x9x6xf32>)
  return
}

// CHECK-LABEL: func @rope(
// CHECK: attn.rope_backward ins(%{{.*}} : tensor<1x1x9xi32>) gradient(%{{.*}} : tensor<2x4x9x6xf32>) outs(%{{.*}} : tensor<2x4x9x6xf32>) {base = 1.000000e+02 : f64} -> tensor<2x4x9x6xf32>
func.func @rope(%p: tensor<1x1x9xi32>, %d: tensor<2x4x9x6xf32>, %i: tensor<2x4x9x6xf32>) {
  %r = attn.rope_backward ins(%p : tensor<1x1x9xi32>) gradient(%d : tensor<2x4x9x6xf32>) outs(%i : tensor<2x4x9x6xf32>) {base = 1.000000e+02 : f64} -> tensor<2x4x9x6xf32>
  return
}

// CHECK-LABEL: func @rope_memrefs(
// CHECK: attn.rope_backward ins(%{{.*}} : memref<1x1x9xi32>) gradient(%{{.*}} : memref<2x4x9x6xf32>) outs(%{{.*}} : memref<2x4x9x6xf32>)
func.func @rope_memrefs(%p: memref<1x1x9xi32>, %d: memref<2x4x9x6xf32>, %i: memref<2x4x9x6xf32>) {
  attn.rope_backward ins(%p : memref<1x1x9xi32>) gradient(%d : memref<2x4x9x6xf32>) outs(%i : memref<2x4x9x6xf32>)
  return
}

// CHECK-LABEL: func @conv_backward(
// CHECK: attn.conv_backward ins({{.*}}) forward({{.*}}) gradient({{.*}}) outs({{.*}}) {algorithm = #attn.conv_algorithm<toeplitz>, delta = 0.000000e+00 : f64, epsilon = 0.000000e+00 : f64, group = 4 : i64, num_basis = 2 : i64, window = 1 : i64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>
func.func @conv_backward(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>, %iv: tensor<2x2x9x5xf32>) {
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, group = 4 : i64, algorithm = #attn.conv_algorithm<toeplitz>} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>
  return
}

// CHECK-LABEL: func @recover_lengths(
// CHECK: attn.conv_recover ins({{.*}}) lengths(%{{.*}} : tensor<2xi32>) outs(
func.func @recover_lengths(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %l: tensor<2xi32>, %b: tensor<2x4x3x9xf32>, %s: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) -> tensor<2x4x3x9xf32> {
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) lengths(%l : tensor<2xi32>) outs(%b, %s, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>)
      {window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return %0#0 : tensor<2x4x3x9xf32>
}
