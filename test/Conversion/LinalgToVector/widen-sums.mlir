// RUN: fovea-opt %s --attn-widen-sums --split-input-file | FileCheck %s

// Sums of rows, from a number.

// CHECK-LABEL: func @reduce
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<900x40xbf16>
func.func @reduce(%x: tensor<900x40xbf16>) -> tensor<40xbf16> {
  %zero = arith.constant 0.0 : bf16
  %empty = tensor.empty() : tensor<40xbf16>
  // CHECK:       %[[WIDE:.*]] = arith.extf %{{.*}} : bf16 to f32
  // CHECK:       %[[START:.*]] = linalg.fill ins(%[[WIDE]] : f32)
  // CHECK:       %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<900x40xbf16>) outs(%[[START]] : tensor<40xf32>)
  // CHECK-NEXT:  ^bb0(%[[A:.*]]: bf16, %[[B:.*]]: f32):
  // CHECK-NEXT:    %[[AW:.*]] = arith.extf %[[A]] : bf16 to f32
  // CHECK-NEXT:    %[[C:.*]] = arith.addf %[[AW]], %[[B]] : f32
  // CHECK-NEXT:    linalg.yield %[[C]] : f32
  // CHECK:       %[[ROUNDED:.*]] = arith.truncf %[[SUM]] : tensor<40xf32> to tensor<40xbf16>
  // CHECK:       return %[[ROUNDED]]
  %start = linalg.fill ins(%zero : bf16) outs(%empty : tensor<40xbf16>) -> tensor<40xbf16>
  %sum = linalg.reduce ins(%x : tensor<900x40xbf16>) outs(%start : tensor<40xbf16>) dimensions = [0]
    (%a: bf16, %b: bf16) {
      %c = arith.addf %a, %b : bf16
      linalg.yield %c : bf16
    }
  return %sum : tensor<40xbf16>
}

// -----

// Inner products of pairs of rows are not rounded, and neither is a sum that
// starts from a tensor.

// CHECK-LABEL: func @inner_products
// CHECK-SAME:    %[[START:[a-z0-9]+]]: tensor<4xf16>)
func.func @inner_products(%x: tensor<4x?xf16>, %y: tensor<4x?xf16>, %start: tensor<4xf16>) -> tensor<4xf16> {
  // CHECK:       %[[WIDE:.*]] = arith.extf %[[START]] : tensor<4xf16> to tensor<4xf32>
  // CHECK:       linalg.generic {{.*}} outs(%[[WIDE]] : tensor<4xf32>)
  // CHECK-NOT:     arith.mulf {{.*}} : f16
  // CHECK:         %[[P:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
  // CHECK:         arith.addf %{{.*}}, %[[P]] : f32
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x, %y : tensor<4x?xf16>, tensor<4x?xf16>) outs(%start : tensor<4xf16>) {
  ^bb0(%a: f16, %b: f16, %c: f16):
    %p = arith.mulf %a, %b : f16
    %s = arith.addf %c, %p : f16
    linalg.yield %s : f16
  } -> tensor<4xf16>
  return %r : tensor<4xf16>
}

// -----

// Of several results, those that are sums or products.

// CHECK-LABEL: func @several
// CHECK:         outs(%{{.*}}, %{{.*}} : tensor<f32>, tensor<bf16>)
// CHECK-NEXT:  ^bb0(%[[A:.*]]: bf16, %{{.*}}: f32, %[[M:.*]]: bf16):
// CHECK:         arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK:         arith.maximumf %[[A]], %[[M]] : bf16
func.func @several(%x: tensor<?xbf16>, %p: tensor<bf16>, %m: tensor<bf16>) -> (tensor<bf16>, tensor<bf16>) {
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>, affine_map<(i) -> ()>],
                         iterator_types = ["reduction"]}
      ins(%x : tensor<?xbf16>) outs(%p, %m : tensor<bf16>, tensor<bf16>) {
  ^bb0(%a: bf16, %b: bf16, %c: bf16):
    %0 = arith.mulf %a, %b : bf16
    %1 = arith.maximumf %a, %c : bf16
    linalg.yield %0, %1 : bf16, bf16
  } -> (tensor<bf16>, tensor<bf16>)
  return %r#0, %r#1 : tensor<bf16>, tensor<bf16>
}

// -----

// CHECK-LABEL: func @pooling
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<1x2x8xf32>)
func.func @pooling(%x: tensor<1x2x80xf16>, %o: tensor<1x2x8xf16>) -> tensor<1x2x8xf16> {
  %window = tensor.empty() : tensor<10xf16>
  %r = linalg.pooling_ncw_sum {strides = dense<10> : tensor<1xi64>}
      ins(%x, %window : tensor<1x2x80xf16>, tensor<10xf16>) outs(%o : tensor<1x2x8xf16>) -> tensor<1x2x8xf16>
  return %r : tensor<1x2x8xf16>
}

// -----

// Windows that JAX reduces: the second operand says how many elements they have.

// CHECK-LABEL: func @windows
// CHECK:         linalg.generic {{.*}} outs(%{{.*}} : tensor<4x2xf32>)
func.func @windows(%x: tensor<4x700xf16>, %o: tensor<4x2xf16>) -> tensor<4x2xf16> {
  %window = tensor.empty() : tensor<350xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j * 350 + k)>, affine_map<(i, j, k) -> (k)>,
                                        affine_map<(i, j, k) -> (i, j)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %window : tensor<4x700xf16>, tensor<350xf32>) outs(%o : tensor<4x2xf16>) {
  ^bb0(%a: f16, %b: f32, %c: f16):
    %s = arith.addf %c, %a : f16
    linalg.yield %s : f16
  } -> tensor<4x2xf16>
  return %r : tensor<4x2xf16>
}

// -----

// These stay: kernels of products, wide numbers, what is no sum, buffers.

// CHECK-LABEL: func @others
// CHECK-NOT:     arith.extf
// CHECK:         return
func.func @others(%x: tensor<4x8xbf16>, %y: tensor<8x3xbf16>, %o: tensor<4x3xbf16>, %v: tensor<8xbf16>, %w: tensor<4xbf16>,
                  %f: tensor<4x8xf32>, %s: tensor<4xf32>, %b: memref<4x8xbf16>, %c: memref<4xbf16>)
    -> (tensor<4x3xbf16>, tensor<4xbf16>, tensor<4xf32>, tensor<4xbf16>) {
  %0 = linalg.matmul ins(%x, %y : tensor<4x8xbf16>, tensor<8x3xbf16>) outs(%o : tensor<4x3xbf16>) -> tensor<4x3xbf16>
  %1 = linalg.matvec ins(%x, %v : tensor<4x8xbf16>, tensor<8xbf16>) outs(%w : tensor<4xbf16>) -> tensor<4xbf16>
  %2 = linalg.reduce ins(%f : tensor<4x8xf32>) outs(%s : tensor<4xf32>) dimensions = [1]
    (%a: f32, %e: f32) {
      %d = arith.addf %a, %e : f32
      linalg.yield %d : f32
    }
  %3 = linalg.reduce ins(%x : tensor<4x8xbf16>) outs(%w : tensor<4xbf16>) dimensions = [1]
    (%a: bf16, %e: bf16) {
      %d = arith.maximumf %a, %e : bf16
      linalg.yield %d : bf16
    }
  linalg.reduce ins(%b : memref<4x8xbf16>) outs(%c : memref<4xbf16>) dimensions = [1]
    (%a: bf16, %e: bf16) {
      %d = arith.addf %a, %e : bf16
      linalg.yield %d : bf16
    }
  return %0, %1, %2, %3 : tensor<4x3xbf16>, tensor<4xbf16>, tensor<4xf32>, tensor<4xbf16>
}
