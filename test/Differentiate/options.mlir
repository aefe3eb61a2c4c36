// RUN: fovea-opt %s --attn-differentiate="function=f name=df arguments=2,0 primal-results" --canonicalize | FileCheck %s

// Gradients come in the order that was asked for, after the results. Integers have
// no cotangents; an argument that nothing depends on gets zeros.

func.func @before(%x: f32) -> f32 {
  return %x : f32
}

// CHECK-LABEL: func.func @df(
//  CHECK-SAME:     %{{.*}}: tensor<4xf32>, %[[I:.*]]: index {attn.note}, %{{.*}}: tensor<4xf32>, %{{.*}}: tensor<4xf32>, %{{[a-z0-9]*}}: tensor<4xf32>)
//  CHECK-SAME:     -> (tensor<4xf32>, index, tensor<4xf32>, tensor<4xf32>)
//       CHECK:   %[[Y:.*]] = linalg.generic
//       CHECK:   %[[DX:.*]] = linalg.generic
//       CHECK:   %[[ZEROS:.*]] = linalg.fill
//       CHECK:   return %[[Y]], %[[I]], %[[ZEROS]], %[[DX]]
func.func @f(%x: tensor<4xf32>, %i: index {attn.note}, %y: tensor<4xf32>, %z: tensor<4xf32>) -> (tensor<4xf32>, index) {
  %0 = arith.mulf %x, %z : tensor<4xf32>
  return %0, %i : tensor<4xf32>, index
}
