// RUN: fovea-opt %s --convert-attn-to-gpu=ops=attn.vq_backward --canonicalize --split-input-file | FileCheck %s

// The tokens that the state keeps come before those of the window; the scan of
// means begins with that of the state. Gradients of keys and of values go to the
// window and to the state.
// CHECK-LABEL: func.func @state
// CHECK-SAME: %[[MEAN:[^ ]*]]: memref<1x1x5x8xf32>, %[[COUNT:[^ ]*]]: memref<1x1x5xi32>, %[[CODES:[^ ]*]]: memref<1x1x8xi32>, %[[VALUES:[^ ]*]]: memref<1x1x8x8xf32>, %[[P:[^ ]*]]: memref<i64>
// CHECK-SAME: %[[DM:[^ ]*]]: memref<1x1x5x8xf32>, %[[DK:[^ ]*]]: memref<1x1x8x8xf32>, %[[DV:[^ ]*]]: memref<1x1x8x8xf32>
// CHECK: memref.load %[[P]][] : memref<i64>
// CHECK: gpu.launch
// CHECK: memref.load %[[CODES]]
// CHECK: memref.load %[[VALUES]]
// CHECK: attn.codebook_scan
// CHECK-SAME: %[[MEAN]], %[[COUNT]] : memref<1x1x?xi32>
// CHECK-COUNT-5: gpu.launch
// CHECK: memref.store {{.*}}, %[[DK]]
// CHECK: gpu.launch
// CHECK: memref.load %[[COUNT]]
// CHECK: memref.store {{.*}}, %[[DM]]
// CHECK: gpu.launch
// CHECK: gpu.launch
// CHECK: memref.store {{.*}}, %[[DV]]
// CHECK-NOT: attn.vq_backward
func.func @state(%q: memref<1x1x7x8xf32>, %z: memref<1x1x7xi32>, %c: memref<1x5x8xf32>, %m: memref<1x1x5x8xf32>, %n: memref<1x1x5xi32>, %kz: memref<1x1x8xi32>, %kv: memref<1x1x8x8xf32>, %p: memref<i64>,
                 %dq: memref<1x1x7x8xf32>, %dk: memref<1x1x7x8xf32>, %dv: memref<1x1x7x8xf32>, %dm: memref<1x1x5x8xf32>, %dkk: memref<1x1x8x8xf32>, %dkv: memref<1x1x8x8xf32>) {
  attn.vq_backward ins(%q, %z, %q, %c : memref<1x1x7x8xf32>, memref<1x1x7xi32>, memref<1x1x7x8xf32>, memref<1x5x8xf32>)
      state(%m, %n, %kz, %kv, %p : memref<1x1x5x8xf32>, memref<1x1x5xi32>, memref<1x1x8xi32>, memref<1x1x8x8xf32>, memref<i64>)
      gradient(%q : memref<1x1x7x8xf32>) outs(%dq, %dk, %dv : memref<1x1x7x8xf32>, memref<1x1x7x8xf32>, memref<1x1x7x8xf32>)
      d_state(%dm, %dkk, %dkv : memref<1x1x5x8xf32>, memref<1x1x8x8xf32>, memref<1x1x8x8xf32>)
      {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>}
  return
}

// -----

// Gradients for a next state alone: the one of its means is where sums of later
// blocks begin, and those of kept tokens are added to the window's.
// CHECK-LABEL: func.func @next_state
// CHECK-SAME: %[[NM:[^ ]*]]: memref<1x1x5x8xf32>, %[[NK:[^ ]*]]: memref<1x1x8x8xf32>, %[[NV:[^ ]*]]: memref<1x1x8x8xf32>, %{{[^ ]*}}: memref<1x1x7x8xf32>, %[[DK:[^ ]*]]: memref<1x1x7x8xf32>, %[[DV:[^ ]*]]: memref<1x1x7x8xf32>
// CHECK: attn.codebook_scan
// CHECK: memref.load %[[NK]]
// CHECK: memref.store {{.*}}, %[[DK]]
// CHECK: memref.load %[[NM]]
// CHECK: memref.load %[[NV]]
// CHECK: memref.store {{.*}}, %[[DV]]
func.func @next_state(%q: memref<1x1x7x8xf32>, %z: memref<1x1x7xi32>, %c: memref<1x5x8xf32>, %m: memref<1x1x5x8xf32>, %kk: memref<1x1x8x8xf32>, %kv: memref<1x1x8x8xf32>,
                      %dq: memref<1x1x7x8xf32>, %dk: memref<1x1x7x8xf32>, %dv: memref<1x1x7x8xf32>) {
  attn.vq_backward ins(%q, %z, %q, %c : memref<1x1x7x8xf32>, memref<1x1x7xi32>, memref<1x1x7x8xf32>, memref<1x5x8xf32>)
      gradient(%q : memref<1x1x7x8xf32>) d_next_state(%m, %kk, %kv : memref<1x1x5x8xf32>, memref<1x1x8x8xf32>, memref<1x1x8x8xf32>)
      outs(%dq, %dk, %dv : memref<1x1x7x8xf32>, memref<1x1x7x8xf32>, memref<1x1x7x8xf32>)
      {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>}
  return
}
