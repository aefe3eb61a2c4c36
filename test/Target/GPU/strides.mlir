// Arguments whose rows lie anywhere are copied as those of contiguous ones are:
// 16 bytes at a time, or by boxes of tensor maps that hold their strides.

// RUN: fovea-compile %s --entry=forward --target=nvvm --emit=ptx --chip=sm_80 -o %t.sm_80
// RUN: FileCheck %s --input-file=%t.sm_80 --check-prefix=SM80
// RUN: grep -c 'cp.async.cg.shared.global' %t.sm_80 | FileCheck %s --check-prefix=COPIES
// RUN: not grep -E '\.extern \.func|\.local|ld\.global\.b16|st\.global\.b16' %t.sm_80
// As many as of contiguous arrays: see dense.mlir.
// COPIES: {{^}}12{{$}}
// SM80: mma.sync.aligned.m16n8k16
// SM80: st.global.b32

// RUN: fovea-compile %s --entry=forward --target=nvvm --emit=ptx --chip=sm_90a -o %t.sm_90a
// RUN: FileCheck %s --input-file=%t.sm_90a --check-prefix=SM90
// RUN: not grep -E '\.extern \.func|\.local|mma\.sync|cp\.async\.c[ag]|ldmatrix|st\.global\.b16' %t.sm_90a
// RUN: fovea-compile %s --entry=backward --target=nvvm --emit=ptx --chip=sm_90a -o %t.backward
// RUN: FileCheck %s --input-file=%t.backward --check-prefix=SM90
// RUN: not grep -E '\.extern \.func|\.local|mma\.sync|cp\.async\.c[ag]|ldmatrix' %t.backward
// SM90: cp.async.bulk.tensor.4d.shared::cluster.global
// SM90: wgmma.mma_async.sync.aligned

// Maps are made of q, k, v and of what is written, and nothing is copied.
// RUN: fovea-opt %s --attn-nvvm-pipeline=chip=sm_90a -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir --check-prefix=HOST
// HOST-LABEL: llvm.func @forward(
//  HOST-DAG: %[[READ_BOXES:.*]] = llvm.mlir.constant(5 : i32)
//  HOST-DAG: %[[WRITE_BOXES:.*]] = llvm.mlir.constant(7 : i32)
//  HOST-NOT: fovea_rt_gpu_alloc
//  HOST-NOT: fovea_rt_gpu_copy
//  HOST-COUNT-2: llvm.call @fovea_rt_gpu_map_rows({{.*}}, %[[READ_BOXES]])
//      HOST: llvm.call @fovea_rt_gpu_map_rows({{.*}}, %[[WRITE_BOXES]])
//  HOST-COUNT-4: llvm.call @fovea_rt_gpu_encode_tensor_map(
//  HOST-NOT: fovea_rt_gpu_alloc
//  HOST-NOT: fovea_rt_gpu_copy
//      HOST: llvm.call @fovea_rt_gpu_launch(
//  HOST-NOT: fovea_rt_gpu_alloc
//  HOST-NOT: fovea_rt_gpu_copy
//      HOST: llvm.call @fovea_rt_gpu_end(
// Sums of narrow gradients are rounded where they are made: two kernels of
// sums, two of deltas and statistics.
// HOST-LABEL: llvm.func @backward(
//  HOST-NOT: fovea_rt_gpu_copy
// HOST-COUNT-4: llvm.call @fovea_rt_gpu_launch(
//  HOST-NOT: fovea_rt_gpu_launch
//  HOST-NOT: fovea_rt_gpu_copy
//      HOST: llvm.call @fovea_rt_gpu_end(
// So are boxes of heads of one query, of a view in which both are exchanged.
// HOST-LABEL: llvm.func @heads(
//  HOST-DAG: %[[BOXES:.*]] = llvm.mlir.constant(5 : i32)
//  HOST-NOT: fovea_rt_gpu_copy
//  HOST-COUNT-2: llvm.call @fovea_rt_gpu_map_rows({{.*}}, %[[BOXES]])
//      HOST: llvm.call @fovea_rt_gpu_encode_tensor_map(

#rows = strided<[?, ?, ?, 1]>
!q = tensor<1x8x?x64xf16>
!k = tensor<1x2x?x64xf16>
!queries = memref<1x8x?x64xf16, strided<[?, ?, ?, 1]>>
!keys = memref<1x2x?x64xf16, strided<[?, ?, ?, 1]>>

func.func @forward(%q: !q {bufferization.buffer_layout = #rows}, %k: !k {bufferization.buffer_layout = #rows}, %out: !queries) {
  %init = bufferization.to_tensor %out restrict writable : !queries to !q
  %r = attn.dense ins(%q, %k, %k : !q, !k, !k) outs(%init : !q) {mask = #attn.mask<causal>} -> !q
  bufferization.materialize_in_destination %r in restrict writable %out : (!q, !queries) -> ()
  return
}

func.func @backward(%d: !q {bufferization.buffer_layout = #rows}, %q: !q {bufferization.buffer_layout = #rows},
                    %k: !k {bufferization.buffer_layout = #rows}, %v: !k {bufferization.buffer_layout = #rows},
                    %out: !q {bufferization.buffer_layout = #rows}, %lse: tensor<1x8x?xf32>,
                    %d_q: !queries, %d_k: !keys, %d_v: !keys) {
  %q0 = bufferization.to_tensor %d_q restrict writable : !queries to !q
  %k0 = bufferization.to_tensor %d_k restrict writable : !keys to !k
  %v0 = bufferization.to_tensor %d_v restrict writable : !keys to !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k) forward(%out, %lse : !q, tensor<1x8x?xf32>) gradient(%d : !q)
      outs(%q0, %k0, %v0 : !q, !k, !k) {mask = #attn.mask<causal>} -> !q, !k, !k
  bufferization.materialize_in_destination %r#0 in restrict writable %d_q : (!q, !queries) -> ()
  bufferization.materialize_in_destination %r#1 in restrict writable %d_k : (!k, !keys) -> ()
  bufferization.materialize_in_destination %r#2 in restrict writable %d_v : (!k, !keys) -> ()
  return
}

!heads = tensor<1x64x?x64xf16>
!one = tensor<1x1x?x64xf16>
!lists = tensor<1x1x?x256xi32>

func.func @heads(%q: !heads {bufferization.buffer_layout = #rows}, %d: !heads {bufferization.buffer_layout = #rows}, %k: !one,
                 %lists: !lists, %out: !heads, %lse: tensor<1x64x?xf32>, %d_q: !heads, %d_k: !one, %d_v: !one) -> (!heads, !one, !one) {
  %r:3 = attn.stream_backward query(%q : !heads)
      source(%k, %k : !one, !one) rows(%lists : !lists) unit = 1 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%out, %lse : !heads, tensor<1x64x?xf32>) gradient(%d : !heads) outs(%d_q, %d_k, %d_v : !heads, !one, !one)
      {block = 1 : i64, scale = 0.125 : f64} -> !heads, !one, !one
  return %r#0, %r#1, %r#2 : !heads, !one, !one
}
