// RUN: fovea-opt %s --attn-check-codes --canonicalize | FileCheck %s

// Intervals, groups, changes and their ends are checked before the operation.

// CHECK-LABEL: func.func @masks(
// CHECK-SAME: %[[I:[a-z0-9]+]]: tensor<1x1x9xi32>, %[[J:[a-z0-9]+]]: tensor<1x1x7xi32>, %[[C:[a-z0-9]+]]: tensor<1x4x20xi32>
// CHECK: attn.low_rank {{.*}} {mask = #attn.row_mask<causal>}
// CHECK-NEXT: attn.check_intervals %[[I]], %[[I]] below %c7 {name = "attn.low_rank: interval"}
// CHECK-NEXT: attn.low_rank
// CHECK-NEXT: attn.check_codes %[[I]] below %c3 {name = "attn.low_rank: group"}
// CHECK-NEXT: attn.low_rank
// CHECK-NEXT: attn.check_codes %[[J]] below %c3 {name = "attn.low_rank: group"}
// CHECK-NEXT: attn.low_rank
// CHECK-NEXT: attn.check_codes %[[I]] below %c21 {name = "attn.low_rank: ends"}
// CHECK-NEXT: attn.check_codes %[[C]] below %c7 {name = "attn.low_rank: columns"}
// CHECK-NEXT: %[[FIRST:.*]] = tensor.extract_slice %[[I]][0, 0, 0] [1, 1, 8] [1, 1, 1]
// CHECK-NEXT: %[[LAST:.*]] = tensor.extract_slice %[[I]][0, 0, 1] [1, 1, 8] [1, 1, 1]
// CHECK-NEXT: attn.check_intervals %[[FIRST]], %[[LAST]] below %c21 {name = "attn.low_rank: ends"}
// CHECK-NEXT: attn.low_rank
func.func @masks(%i: tensor<1x1x9xi32>, %j: tensor<1x1x7xi32>, %c: tensor<1x4x20xi32>, %r: tensor<1x4x3x7xi1>, %s: tensor<1x1x3x9xi1>,
                 %u1: tensor<1x4x9x5xf32>, %u2: tensor<1x2x7x5xf32>, %v: tensor<1x2x7x8xf32>, %o: tensor<1x4x9x8xf32>)
    -> (tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>) {
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<1x4x9x8xf32>
  %1 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i, %i : tensor<1x1x9xi32>, tensor<1x1x9xi32>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<1x4x9x8xf32>
  %2 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i, %r : tensor<1x1x9xi32>, tensor<1x4x3x7xi1>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<distinct_rows>} -> tensor<1x4x9x8xf32>
  %3 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%j, %s : tensor<1x1x7xi32>, tensor<1x1x3x9xi1>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<distinct_columns>} -> tensor<1x4x9x8xf32>
  %4 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i, %c : tensor<1x1x9xi32>, tensor<1x4x20xi32>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<row_change>} -> tensor<1x4x9x8xf32>
  return %0, %1, %2, %3, %4 : tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>
}

// Buffers, and extents known at run time only.
// CHECK-LABEL: func.func @buffers(
// CHECK: %[[K:.*]] = memref.dim %{{.*}}, %c2 : memref<1x1x?xi32>
// CHECK: attn.check_codes
// CHECK: memref.subview %{{.*}}[0, 0, 0] [1, 1, %{{.*}}] [1, 1, 1]
// CHECK: memref.subview %{{.*}}[0, 0, 1] [1, 1, %{{.*}}] [1, 1, 1]
// CHECK: attn.check_intervals
func.func @buffers(%u: memref<1x1x?x5xf32>, %e: memref<1x1x?xi32>, %c: memref<1x1x?xi32>) {
  attn.low_rank ins(%u, %u, %u : memref<1x1x?x5xf32>, memref<1x1x?x5xf32>, memref<1x1x?x5xf32>)
      mask(%e, %c : memref<1x1x?xi32>, memref<1x1x?xi32>) outs(%u : memref<1x1x?x5xf32>) {mask = #attn.row_mask<row_change>}
  return
}

// What a gradient uses as indices, likewise.

// CHECK-LABEL: func.func @backward(
// CHECK: attn.check_intervals %[[I:.*]], %[[I]] below %c7 {name = "attn.low_rank_backward: interval"}
// CHECK-NEXT: attn.low_rank_backward
func.func @backward(%u1: memref<1x1x9x5xf32>, %u2: memref<1x1x7x5xf32>, %i: memref<1x1x9xi32>, %a: memref<1x1x9x5xf32>, %b: memref<1x1x7x5xf32>, %c: memref<1x1x7x5xf32>) {
  attn.low_rank_backward ins(%u1, %u2, %u2 : memref<1x1x9x5xf32>, memref<1x1x7x5xf32>, memref<1x1x7x5xf32>) mask(%i, %i : memref<1x1x9xi32>, memref<1x1x9xi32>)
      forward(%u1 : memref<1x1x9x5xf32>) gradient(%u1 : memref<1x1x9x5xf32>)
      outs(%a, %b, %c : memref<1x1x9x5xf32>, memref<1x1x7x5xf32>, memref<1x1x7x5xf32>) {mask = #attn.row_mask<row_interval>}
  return
}
