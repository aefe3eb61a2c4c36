// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s

#tree = #attn.tree<ratio = 3, levels = 2>

// CHECK-LABEL: func @masked(
// CHECK: attn.tree_build ins(%{{.*}} : tensor<?x18x4xbf16>) mask(%{{.*}} : tensor<?x18xi1>) outs(%{{.*}}, %{{.*}} : tensor<?x26x4xbf16>, tensor<?x26xi32>) {shape = #attn.tree<ratio = 3, levels = 2>} -> tensor<?x26x4xbf16>, tensor<?x26xi32>
// CHECK: attn.tree_fetch ins(%{{.*}} : tensor<?x26x4xbf16>) nodes(%{{.*}}, %{{.*}} : tensor<?x?xi32>, tensor<?x?xi32>) counts(%{{.*}} : tensor<?x26xi32>) outs(%{{.*}}, %{{.*}} : tensor<?x?x4xbf16>, tensor<?x?xf32>)
// CHECK: attn.tree_update ins(%{{.*}} : tensor<?x?x4xbf16>) nodes(%{{.*}}, %{{.*}} : tensor<?x?xi32>, tensor<?x?xi32>) counts(%{{.*}} : tensor<?x26xi32>) outs(%{{.*}} : tensor<?x26x4xbf16>)
func.func @masked(%c: tensor<?x18x4xbf16>, %mask: tensor<?x18xi1>, %t: tensor<?x26x4xbf16>, %n: tensor<?x26xi32>,
    %level: tensor<?x?xi32>, %index: tensor<?x?xi32>, %r: tensor<?x?x4xbf16>, %w: tensor<?x?xf32>) -> tensor<?x26x4xbf16> {
  %tree, %counts = attn.tree_build ins(%c : tensor<?x18x4xbf16>) mask(%mask : tensor<?x18xi1>)
      outs(%t, %n : tensor<?x26x4xbf16>, tensor<?x26xi32>) {shape = #tree} -> tensor<?x26x4xbf16>, tensor<?x26xi32>
  %rows, %weight = attn.tree_fetch ins(%tree : tensor<?x26x4xbf16>) nodes(%level, %index : tensor<?x?xi32>, tensor<?x?xi32>)
      counts(%counts : tensor<?x26xi32>) outs(%r, %w : tensor<?x?x4xbf16>, tensor<?x?xf32>) {shape = #tree} -> tensor<?x?x4xbf16>, tensor<?x?xf32>
  %new = attn.tree_update ins(%rows : tensor<?x?x4xbf16>) nodes(%level, %index : tensor<?x?xi32>, tensor<?x?xi32>)
      counts(%counts : tensor<?x26xi32>) outs(%tree : tensor<?x26x4xbf16>) {shape = #tree} -> tensor<?x26x4xbf16>
  return %new : tensor<?x26x4xbf16>
}

// CHECK-LABEL: func @select_with_weights(
// CHECK: attn.tree_select ins(%{{.*}} : tensor<2x26x4xf64>) counts(%{{.*}} : tensor<2x26xi32>)
// CHECK-SAME: {budgets = array<i64: 2, 1>, shape = #attn.tree<ratio = 3, levels = 2>}
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<2x?x4xf64>, %[[W:.*]]: tensor<2x?xf64>):
// CHECK-NEXT: attn.yield %[[W]] : tensor<2x?xf64>
func.func @select_with_weights(%t: tensor<2x26x4xf64>, %n: tensor<2x26xi32>, %l: tensor<2x8xi32>, %i: tensor<2x8xi32>) -> tensor<2x8xi32> {
  %level, %index = attn.tree_select ins(%t : tensor<2x26x4xf64>) counts(%n : tensor<2x26xi32>)
      outs(%l, %i : tensor<2x8xi32>, tensor<2x8xi32>) {shape = #tree, budgets = array<i64: 2, 1>} -> tensor<2x8xi32>, tensor<2x8xi32> score {
  ^bb0(%rows: tensor<2x?x4xf64>, %weight: tensor<2x?xf64>):
    attn.yield %weight : tensor<2x?xf64>
  }
  return %level : tensor<2x8xi32>
}

// CHECK-LABEL: func @straight_through(
// CHECK: attn.tree_select ins(%{{.*}} : tensor<2x26x4xf16>) outs(%{{.*}}, %{{.*}} : tensor<2x8xi32>, tensor<2x8xi32>) straight_through(%{{.*}} : tensor<2x8xf32>)
// CHECK-SAME: -> tensor<2x8xi32>, tensor<2x8xi32>, tensor<2x8xf32> score
func.func @straight_through(%t: tensor<2x26x4xf16>, %s: tensor<2x?xf32>, %l: tensor<2x8xi32>, %i: tensor<2x8xi32>, %f: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %level, %index, %factor = attn.tree_select ins(%t : tensor<2x26x4xf16>)
      outs(%l, %i : tensor<2x8xi32>, tensor<2x8xi32>) straight_through(%f : tensor<2x8xf32>)
      {shape = #tree, budgets = array<i64: 2, 1>} -> tensor<2x8xi32>, tensor<2x8xi32>, tensor<2x8xf32> score {
  ^bb0(%rows: tensor<2x?x4xf16>):
    attn.yield %s : tensor<2x?xf32>
  }
  return %factor : tensor<2x8xf32>
}

// CHECK-LABEL: func @split_all(
// CHECK: attn.tree_split frontier(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x3xi32>, tensor<1x4xi32>, tensor<1x4xi32>) counts(%{{.*}} : tensor<1x26xi32>) outs
func.func @split_all(%c: tensor<1x3xi32>, %l: tensor<1x4xi32>, %n: tensor<1x26xi32>, %o: tensor<1x10xi32>, %ci: tensor<1x9xi32>) -> tensor<1x9xi32> {
  %0, %1, %2 = attn.tree_split frontier(%c, %l, %l : tensor<1x3xi32>, tensor<1x4xi32>, tensor<1x4xi32>) counts(%n : tensor<1x26xi32>)
      outs(%o, %o, %ci : tensor<1x10xi32>, tensor<1x10xi32>, tensor<1x9xi32>) {shape = #tree, at = 1 : i64, split = 3 : i64}
      -> tensor<1x10xi32>, tensor<1x10xi32>, tensor<1x9xi32>
  return %2 : tensor<1x9xi32>
}

// CHECK-LABEL: func @on_buffers(
// CHECK: attn.tree_update ins(%{{.*}} : memref<1x2x4xf16>) nodes(%{{.*}}, %{{.*}} : memref<1x2xi32>, memref<1x2xi32>) outs(%{{.*}} : memref<1x26x4xf16>) {shape = #attn.tree<ratio = 3, levels = 2>}{{$}}
// CHECK: attn.tree_score ins(%{{.*}}, %{{.*}} : memref<1x4x5x8xf32>, memref<1x2x6x8xf32>) log_weight(%{{.*}} : memref<1x6xf32>) outs(%{{.*}} : memref<1x6xf32>) {scale = 5.000000e-01 : f64}{{$}}
func.func @on_buffers(%r: memref<1x2x4xf16>, %l: memref<1x2xi32>, %t: memref<1x26x4xf16>,
    %q: memref<1x4x5x8xf32>, %k: memref<1x2x6x8xf32>, %w: memref<1x6xf32>, %o: memref<1x6xf32>) {
  attn.tree_update ins(%r : memref<1x2x4xf16>) nodes(%l, %l : memref<1x2xi32>, memref<1x2xi32>) outs(%t : memref<1x26x4xf16>) {shape = #tree}
  attn.tree_score ins(%q, %k : memref<1x4x5x8xf32>, memref<1x2x6x8xf32>) log_weight(%w : memref<1x6xf32>) outs(%o : memref<1x6xf32>) {scale = 5.0e-01 : f64}
  return
}
