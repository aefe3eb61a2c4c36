// RUN: not fovea-opt %s --attn-cpu-pipeline -o /dev/null 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-nvvm-pipeline -o /dev/null 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-reference-pipeline -o /dev/null 2>&1 | FileCheck %s

// The bases that are searched for are a value of the expansion only. Their size in
// bytes is 0 modulo 2^64.

// CHECK: error: {{.*}} has a result of type 'tensor<1x2x4611686018427387904x16xf32>', but no process can address 2^47 bytes
func.func @conv(%q: tensor<1x2x16x8xf32>, %v: tensor<1x2x16x4xf32>, %o: tensor<1x2x16x4xf32>, %n: tensor<1x2xi32>) -> tensor<1x2x16x4xf32> {
  %r:3 = attn.conv ins(%q, %q, %v : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x4xf32>)
      outs(%o, %n, %n : tensor<1x2x16x4xf32>, tensor<1x2xi32>, tensor<1x2xi32>)
      {num_basis = 4611686018427387904 : i64, window = 2 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, scale = 1.0 : f64}
      -> tensor<1x2x16x4xf32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %r#0 : tensor<1x2x16x4xf32>
}
