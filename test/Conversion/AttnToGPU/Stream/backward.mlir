// RUN: fovea-opt %s --convert-attn-to-gpu --cse --split-input-file --verify-diagnostics | FileCheck %s
// Sums of outputs times their gradients; queries, in 2 tiles for each of 2 heads;
// rows, in 2 tiles; the gradient of the log weight; what is rounded.
// CHECK-LABEL: func.func @gradient
// CHECK: memref.alloc() {{.*}} : memref<1x2x70xf32>
// Rows of 32 bytes are read by two lanes each, 16 bytes at once.
// CHECK: gpu.launch
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<1x2x70x16xbf16>, vector<8xbf16>
// CHECK: nvvm.shfl.sync bfly
// CHECK-NOT: nvvm.shfl.sync
// CHECK: memref.alloc() {{.*}} : memref<1x2x70x16xf32>
// CHECK-COUNT-3: gpu.launch
// CHECK-NOT: gpu.launch
// CHECK: scf.parallel
// CHECK: arith.truncf {{.*}} : f32 to bf16
// CHECK: memref.dealloc
func.func @gradient(%q: memref<1x2x70x16xbf16>, %k: memref<1x1x70x16xbf16>, %w: memref<1x1x70xf32>, %l: memref<1x2x70xf32>,
                    %dq: memref<1x2x70x16xbf16>, %dk: memref<1x1x70x16xf32>, %dv: memref<1x1x70x16xf32>, %dw: memref<1x1x70xf32>) {
  attn.stream_backward query(%q : memref<1x2x70x16xbf16>)
      source(%k, %k : memref<1x1x70x16xbf16>, memref<1x1x70x16xbf16>) log_weight(%w : memref<1x1x70xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      forward(%q, %l : memref<1x2x70x16xbf16>, memref<1x2x70xf32>) gradient(%q : memref<1x2x70x16xbf16>)
      outs(%dq, %dk, %dv : memref<1x2x70x16xbf16>, memref<1x1x70x16xf32>, memref<1x1x70x16xf32>)
      d_log_weights(%dw : memref<1x1x70xf32>) {scale = 2.5e-01 : f64}
  return
}

// -----

// A counting sort says which lists name rows of each of 3 tiles: lists are counted, counts summed up, and lists put in order.
// Queries go through their lists; rows, and the log weight, through the lists that name them.
// CHECK-LABEL: func.func @lists
// CHECK: %[[COUNTS:.*]] = memref.alloc() {{.*}} : memref<1x1x1x3xi32>
// CHECK: %[[ENDS:.*]] = memref.alloc() {{.*}} : memref<1x1x4xi64>
// CHECK: %[[SORTED:.*]] = memref.alloc() {{.*}} : memref<1x1x9xi32>
// CHECK: gpu.launch
// CHECK: memref.store {{.*}}, %[[COUNTS]][
// CHECK: scf.parallel
// CHECK: gpu.launch
// CHECK: memref.store {{.*}}, %[[ENDS]][
// CHECK: gpu.launch
// CHECK: memref.store {{.*}}, %[[SORTED]][
// CHECK: gpu.launch
// CHECK-NOT: %[[SORTED]]
// CHECK: gpu.launch
// CHECK: memref.load %[[SORTED]][
// CHECK: gpu.launch
// CHECK: memref.load %[[SORTED]][
// CHECK: memref.dealloc %[[SORTED]]
func.func @lists(%q: memref<1x2x70x16xf32>, %k: memref<1x1x150x16xf32>, %w: memref<1x1x150xf32>, %l: memref<1x2x70xf32>,
                 %r: memref<1x1x3x4xi32>, %dq: memref<1x2x70x16xf32>, %dk: memref<1x1x150x16xf32>, %dv: memref<1x1x150x16xf32>, %dw: memref<1x1x150xf32>) {
  attn.stream_backward query(%q : memref<1x2x70x16xf32>)
      source(%k, %k : memref<1x1x150x16xf32>, memref<1x1x150x16xf32>) log_weight(%w : memref<1x1x150xf32>)
          rows(%r : memref<1x1x3x4xi32>) unit = 16 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%q, %l : memref<1x2x70x16xf32>, memref<1x2x70xf32>) gradient(%q : memref<1x2x70x16xf32>)
      outs(%dq, %dk, %dv : memref<1x2x70x16xf32>, memref<1x1x150x16xf32>, memref<1x1x150x16xf32>)
      d_log_weights(%dw : memref<1x1x150xf32>) {block = 32 : i64, scale = 2.5e-01 : f64}
  return
}
