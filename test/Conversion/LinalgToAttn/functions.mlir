// Functions of scores become score regions.

// RUN: fovea-opt %s --attn-raise --canonicalize | FileCheck %s
// RUN: fovea-opt %s --attn-raise=fully-masked=refuse --canonicalize | FileCheck %s --check-prefix=REFUSE
// RUN: fovea-run %s --entry=soft_cap --random --compare=reference
// RUN: fovea-run %s --entry=of_rows --random --compare=reference
// RUN: fovea-run %s --entry=soft_cap --target=gpu-sim --random --compare=reference
// RUN: fovea-run %s --entry=of_rows --target=gpu-sim --random --compare=reference

// What comes before the function is the scale.
// CHECK-LABEL: func.func @soft_cap(
// CHECK:         attn.dense {{.*}} score {
// CHECK-NEXT:    ^bb0(%[[S:.+]]: f32, %{{.+}}: index, %{{.+}}: index, %{{.+}}: index, %{{.+}}: index):
// CHECK-NEXT:      %[[C:.+]] = arith.constant 5.000000e+01 : f32
// CHECK-NEXT:      %[[T:.+]] = math.tanh %[[S]] : f32
// CHECK-NEXT:      %[[R:.+]] = arith.mulf %[[T]], %[[C]] : f32
// CHECK-NEXT:      attn.yield %[[R]] : f32
// CHECK-NEXT:    } outs({{.*}} {scale = 5.000000e-03 : f64}
// REFUSE-LABEL: func.func @soft_cap(
// REFUSE:         attn.dense
func.func @soft_cap(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %quarter = arith.constant dense<2.5e-01> : tensor<4x6xf32>
  %cap = arith.constant dense<50.0> : tensor<4x6xf32>
  %scores = tensor.empty() : tensor<4x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %a = arith.mulf %s, %quarter : tensor<4x6xf32>
  %b = arith.divf %a, %cap : tensor<4x6xf32>
  %c = math.tanh %b : tensor<4x6xf32>
  %x = arith.mulf %c, %cap : tensor<4x6xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<4x6xf32>) outs(%scores : tensor<4x6xf32>) -> tensor<4x6xf32>
  %result = tensor.empty() : tensor<4x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x6xf32>, tensor<6x8xf32>) outs(%none : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// The last query stands at the last key; a bias stays one. A function may give
// minus infinity to all keys of a row.
// CHECK-LABEL: func.func @of_rows(
// CHECK-SAME:    %[[Q:.+]]: tensor<4x8xf32>, %[[K:.+]]: tensor<6x8xf32>, %[[V:.+]]: tensor<6x8xf32>, %[[LOW:.+]]: tensor<4xf32>, %[[B:.+]]: tensor<4x6xf32>)
// CHECK-DAG:     %[[LOWS:.+]] = tensor.expand_shape %[[LOW]] {{.*}} tensor<4xf32> into tensor<1x1x4x1xf32>
// CHECK:         attn.dense {{.*}} bias({{.*}}) score(%[[LOWS]] : tensor<1x1x4x1xf32>) {
// CHECK-NEXT:    ^bb0(%[[S:.+]]: f32, %{{.+}}: index, %{{.+}}: index, %[[I:.+]]: index, %{{.+}}: index, %[[CAPTURED:.+]]: tensor<1x1x4x1xf32>):
// CHECK-DAG:       %[[ZERO:.+]] = arith.constant 0 : index
// CHECK-DAG:       %[[OFFSET:.+]] = arith.constant 2 : index
// CHECK:           %[[ROW:.+]] = arith.subi %[[I]], %[[OFFSET]] : index
// CHECK:           %[[E:.+]] = tensor.extract %[[CAPTURED]][%[[ZERO]], %[[ZERO]], %[[ROW]], %[[ZERO]]]
// CHECK:           arith.maximumf %[[S]], %[[E]] : f32
// REFUSE-LABEL: func.func @of_rows(
// REFUSE-NOT:     attn.dense
func.func @of_rows(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x8xf32>, %low: tensor<4xf32>,
                   %bias: tensor<4x6xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %scores = tensor.empty() : tensor<4x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<4x8xf32>, tensor<6x8xf32>) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %lows = linalg.broadcast ins(%low : tensor<4xf32>) outs(%scores : tensor<4x6xf32>) dimensions = [1]
  %a = arith.maximumf %s, %lows : tensor<4x6xf32>
  %x = arith.addf %a, %bias : tensor<4x6xf32>
  %p = linalg.softmax dimension(1) ins(%x : tensor<4x6xf32>) outs(%scores : tensor<4x6xf32>) -> tensor<4x6xf32>
  %result = tensor.empty() : tensor<4x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x6xf32>, tensor<6x8xf32>) outs(%none : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}
