// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --emit-bytecode | fovea-opt | FileCheck %s

// Sources with terms by distance.

// CHECK-DAG: #[[$ORIGIN:.*]] = affine_map<()[s0, s1] -> (-16)>

// CHECK-LABEL: func @relative(
// CHECK: source({{.*}}) relative(%{{.*}}, %{{.*}} : tensor<1x32x8xf32>, tensor<4x8xf32>) distance_bias(%{{.*}} : tensor<4x32xf32>) ranges [{{.*}}] mask <causal>
// CHECK: source({{.*}}) codes({{.*}}) distance_bias(%{{.*}} : tensor<4x32xf32>) origin #[[$ORIGIN]] ranges
func.func @relative(%q: tensor<2x4x16x8xf32>, %k: tensor<2x2x16x8xf32>, %c: tensor<2x2x5x8xf32>, %z: tensor<2x2x16xi32>,
    %r: tensor<1x32x8xf32>, %u: tensor<4x8xf32>, %t: tensor<4x32xf32>) -> tensor<2x4x16x8xf32> {
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>)
      source(%k, %k : tensor<2x2x16x8xf32>, tensor<2x2x16x8xf32>) relative(%r, %u : tensor<1x32x8xf32>, tensor<4x8xf32>)
          distance_bias(%t : tensor<4x32xf32>) ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
      source(%c, %k : tensor<2x2x5x8xf32>, tensor<2x2x16x8xf32>) codes(%z : tensor<2x2x16xi32>)
          distance_bias(%t : tensor<4x32xf32>) origin affine_map<()[rows, n] -> (-16)>
          ranges [affine_map<(b)[rows, n] -> (b * 16, rows)>]
      outs(%q : tensor<2x4x16x8xf32>) {block = 16 : i64, scale = 0.5} -> tensor<2x4x16x8xf32>
  return %0 : tensor<2x4x16x8xf32>
}

// CHECK-LABEL: func @attribute()
// CHECK-SAME: #attn.source<ranges = [(d0)[s0, s1] -> (0, s0)], mask = <causal>, log_weight = false, bias = false relative = true origin = ()[s0, s1] -> (s1 - s0 + 1)>
func.func @attribute() attributes {a.source = #attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <causal>,
    log_weight = false, bias = false relative = true origin = ()[rows, n] -> (n - rows + 1)>} {
  return
}

