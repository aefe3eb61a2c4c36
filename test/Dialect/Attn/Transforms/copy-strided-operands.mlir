// RUN: fovea-opt %s --attn-copy-strided-operands | FileCheck %s
// RUN: fovea-run %s --entry=column --random --compare=reference
// RUN: fovea-run %s --entry=columns --random --compare=reference
// RUN: fovea-run %s --entry=column --random --compare=reference --target=gpu-sim
// RUN: fovea-run %s --entry=columns --random --compare=reference --target=gpu-sim

!q = tensor<1x2x16x8xf32>

// A column of one tensor, which two operations read.
// CHECK-LABEL: func @column
// CHECK: %[[W:.*]] = tensor.collapse_shape
// CHECK: %[[C:.*]] = bufferization.alloc_tensor() copy(%[[W]]) : tensor<1x2x16xf32>
// CHECK: attn.dense {{.*}} log_weight(%[[C]] :
// CHECK-NOT: alloc_tensor
// CHECK: attn.dense {{.*}} log_weight(%[[C]] :
func.func @column(%q: !q, %x: !q) -> !q {
  %init = tensor.empty() : !q
  %slice = tensor.extract_slice %x[0, 0, 0, 3] [1, 2, 16, 1] [1, 1, 1, 1] : !q to tensor<1x2x16x1xf32>
  %w = tensor.collapse_shape %slice [[0], [1], [2, 3]] : tensor<1x2x16x1xf32> into tensor<1x2x16xf32>
  %0 = attn.dense ins(%q, %q, %q : !q, !q, !q) log_weight(%w : tensor<1x2x16xf32>) outs(%init : !q) {scale = 1.0 : f64} -> !q
  %1 = attn.dense ins(%0, %q, %q : !q, !q, !q) log_weight(%w : tensor<1x2x16xf32>) outs(%init : !q) {scale = 1.0 : f64} -> !q
  return %1 : !q
}

// Every second column; parts of rows stay views.
// CHECK-LABEL: func @columns
// CHECK-DAG: %[[K:.*]] = tensor.extract_slice {{.*}} [1, 1, 1, 2] :
// CHECK-DAG: %[[V:.*]] = tensor.extract_slice {{.*}} [1, 1, 1, 1] :
// CHECK: %[[C:.*]] = bufferization.alloc_tensor() copy(%[[K]])
// CHECK: attn.dense ins(%{{.*}}, %[[C]], %[[V]] :
func.func @columns(%q: !q, %x: tensor<1x2x16x16xf32>) -> !q {
  %init = tensor.empty() : !q
  %k = tensor.extract_slice %x[0, 0, 0, 0] [1, 2, 16, 8] [1, 1, 1, 2] : tensor<1x2x16x16xf32> to !q
  %v = tensor.extract_slice %x[0, 0, 0, 8] [1, 2, 16, 8] [1, 1, 1, 1] : tensor<1x2x16x16xf32> to !q
  %0 = attn.dense ins(%q, %k, %v : !q, !q, !q) outs(%init : !q) {scale = 1.0 : f64} -> !q
  return %0 : !q
}
