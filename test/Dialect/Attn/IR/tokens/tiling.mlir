// RUN: fovea-opt %s --transform-interpreter --canonicalize --cse | FileCheck %s

// Heads of a batch entry share its tokens.
// CHECK-LABEL: func @heads(
// CHECK-SAME: %[[M:[^:]*]]: tensor<3x9xi1>
// CHECK: scf.forall (%[[J:.*]], %{{.*}}) in (3, 4)
// CHECK-DAG: %[[MT:.*]] = tensor.extract_slice %[[M]][%[[J]], 0] [1, 9] [1, 1]
// CHECK: attn.conv ins({{.*}}) mask(%[[MT]] : tensor<1x9xi1>)
// CHECK: scf.forall (%[[K:.*]], %{{.*}}) in (3, 4)
// CHECK-DAG: %[[NT:.*]] = tensor.extract_slice %[[M]][%[[K]], 0] [1, 9] [1, 1]
// CHECK: attn.low_rank ins({{.*}}) query_mask(%[[NT]] : tensor<1x9xi1>) key_mask(%[[NT]] : tensor<1x9xi1>)
func.func @heads(%mask: tensor<3x9xi1>, %q: tensor<3x4x9x6xf32>, %n: tensor<3x4xi32>) -> (tensor<3x4x9x6xf32>, tensor<3x4x9x6xf32>) {
  %1:3 = attn.conv ins(%q, %q, %q : tensor<3x4x9x6xf32>, tensor<3x4x9x6xf32>, tensor<3x4x9x6xf32>) mask(%mask : tensor<3x9xi1>) outs(%q, %n, %n : tensor<3x4x9x6xf32>, tensor<3x4xi32>, tensor<3x4xi32>)
      {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<3x4x9x6xf32>, tensor<3x4xi32>, tensor<3x4xi32>
  %2 = attn.low_rank ins(%q, %q, %q : tensor<3x4x9x6xf32>, tensor<3x4x9x6xf32>, tensor<3x4x9x6xf32>) query_mask(%mask : tensor<3x9xi1>) key_mask(%mask : tensor<3x9xi1>)
      outs(%q : tensor<3x4x9x6xf32>) {mask = #attn.row_mask<causal>} -> tensor<3x4x9x6xf32>
  return %1#0, %2 : tensor<3x4x9x6xf32>, tensor<3x4x9x6xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.conv", "attn.low_rank"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
