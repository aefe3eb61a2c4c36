// Gradients of rows that lists name one by one, by kernels of sm_90a in the emulator.

// REQUIRES: long-tests
// Minutes of emulated kernels, which sanitizers do not see; they see such host code in backward.mlir and gradients-vq-state.mlir.
// UNSUPPORTED: asan
// RUN: fovea-run %s --entry=few --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=8,eager | FileCheck %s --check-prefixes=CHECK,MORE
// RUN: fovea-run %s --entry=single --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=5,eager | FileCheck %s
// RUN: fovea-run %s --entry=odd --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=lengths --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4,eager | FileCheck %s
// RUN: fovea-run %s --entry=pages --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=6 | FileCheck %s
// RUN: fovea-run %s --entry=passes --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=2,eager | FileCheck %s
// CHECK-COUNT-3: agrees with the reference
// MORE: agrees with the reference
// CHECK-NOT: differs

// Each has a kernel of warpgroups for queries and one for rows.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=KERNELS
// KERNELS-COUNT-12: nvvm.reqntid = array<i32: {{256|384}}, 1, 1>
// KERNELS-NOT: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>

// Entries of 8 rows, some named twice or later than a query reads, some not there; a list is empty. Two ranges. Rows have log weights,
// some of which are minus infinity.
!q = tensor<2x4x150x64xbf16>
!k = tensor<2x2x201x64xbf16>
!v = tensor<2x2x201x40xbf16>
!o = tensor<2x4x150x40xbf16>
!w = tensor<2x2x201xf32>
!l = tensor<2x4x150xf32>
!n = tensor<1x2x3x20xi32>
func.func @few(%q: !q, %k: !k, %v: !v, %w: !w, %o: !o, %l: !l, %d: !o) -> (!q, !k, !v, !w) {
  %lists = arith.constant dense<[[[[-1, 24, -1, -1, 15, 25, 15, -1, 13, 24, -1, 23, 18, 10, -1, -1, 12, 13, 16, 14], [17, 7, 24, 9, 13, 17, 3, -1, 9, -1, 23, 16, 13, 21, -1, 15, 16, 1, 23, 13], [11, 22, 23, 14, 3, 16, 11, 0, 9, 19, 12, 5, 0, 17, 17, 16, 18, 8, 19, 0]], [[23, 4, 17, 1, 11, 6, 13, 11, 0, 19, 10, 0, 20, -1, 2, 25, 8, -1, 2, -1], [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1], [5, 16, 17, 20, 16, 16, 12, 25, 20, 23, 6, 9, -1, -1, 9, 13, 4, -1, 1, 6]]]]> : !n
  %none = arith.constant dense<0xFF800000> : tensor<2x1x70xf32>
  %some = tensor.insert_slice %none into %w[0, 1, 30] [2, 1, 70] [1, 1, 1] : tensor<2x1x70xf32> into !w
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %iv = tensor.empty() : !v
  %iw = tensor.empty() : !w
  %r:4 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !v) log_weight(%some : !w) rows(%lists : !n) unit = 8
          ranges [affine_map<(b)[rows, n] -> (0, b * 50 + 20)>, affine_map<(b)[rows, n] -> (b * 50 + 30, rows - 9)>] mask <causal>
      forward(%o, %l : !o, !l) gradient(%d : !o) outs(%iq, %ik, %iv : !q, !k, !v) d_log_weights(%iw : !w)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !q, !k, !v, !w
  return %r#0, %r#1, %r#2, %r#3 : !q, !k, !v, !w
}

// Single rows for two warpgroups, whose places are taken again; batch entries have lists of their own, and no mask cuts.
!sq = tensor<2x2x140x128xf16>
!sk = tensor<2x1x330x128xf16>
!sl = tensor<2x2x140xf32>
!sn = tensor<2x1x2x300xi32>
func.func @single(%q: !sq, %k: !sk, %v: !sk, %o: !sq, %l: !sl, %d: !sq) -> (!sq, !sk, !sk) {
  %lists = arith.constant dense<[[[[291, 318, 193, 50, 221, 252, 199, 255, -1, 205, 9, 167, 288, 173, 136, 194, 176, 273, 272, 20, -1, 275, 170, 130, 174, 120, 309, 250, 282, 164, -1, -1, 75, 174, 300, 193, -1, 289, -1, 151, 58, 141, 23, 6, 7, -1, 20, 300, 59, 123, 52, 193, 277, 150, 244, 106, 20, -1, 151, 163, 160, 32, 307, 57, 316, 277, 240, 132, 106, 126, 143, -1, 46, 329, 116, 157, -1, 296, 155, 51, 296, 47, 10, 205, -1, 36, 11, 148, 183, 78, 167, -1, 88, 76, 163, 263, 308, 105, 16, 319, 283, 105, 221, 24, 126, 32, 228, 281, 224, 232, -1, 87, 12, 213, 9, -1, 70, 70, 141, 205, 45, 3, 162, 224, 327, 122, 245, 211, 312, 140, 112, -1, -1, 188, 104, 153, 190, 237, 63, 263, 90, 218, 291, 26, 201, 178, 84, 20, 46, 321, 42, 71, 315, 41, 123, 195, 221, 166, 318, 108, 307, 60, 142, 286, -1, 224, 15, 310, 133, 145, 102, 299, 228, 86, 251, 62, 292, 104, 55, 12, 6, 69, -1, 159, 182, 165, -1, 230, 276, 292, 193, 285, -1, 306, 261, 236, 264, 156, 230, 271, 269, -1, 218, 172, 299, 34, 126, 148, 208, 79, 203, 91, 309, -1, 210, 278, 236, 248, 261, -1, 302, 181, -1, 84, 82, 205, 141, 106, 121, 137, -1, 267, 239, 25, 284, 312, 200, 88, 132, 168, 132, 125, 15, 318, 221, 127, 97, -1, 296, 75, 134, 83, 70, 225, 205, 105, 156, -1, 164, 51, 23, -1, 110, 253, 313, 140, 88, -1, 253, 86, 120, 236, 199, 132, 303, 109, 23, -1, -1, 196, 147, 204, 77, 15, -1, 277, -1, 66, -1, 155, 18, 268, 21, 60, 97, -1, 142, 98, 199, 137], [328, 125, -1, 302, 219, 286, 31, 280, 102, 274, 35, 312, 37, 49, 104, 22, -1, -1, 240, 50, 20, 16, 65, 228, -1, 46, 166, -1, -1, 133, 66, 194, 155, -1, 257, 169, 260, 299, 66, 229, 286, 297, 274, -1, 149, 102, 266, 209, 294, -1, 273, 152, 139, 266, 269, 162, 166, 293, -1, 245, 186, 194, 40, 28, 268, 128, 293, 185, 329, 157, 174, 85, -1, 113, 57, 210, 317, -1, -1, 136, 104, 323, 328, -1, -1, 329, 261, 11, 249, 145, 102, 120, 187, 96, 37, 131, 4, 194, 249, -1, 261, 299, 180, 234, -1, 328, -1, 154, 161, 278, 282, 210, 265, 322, 231, 259, 71, 83, 4, 289, -1, 144, 9, 46, 196, 139, 190, 246, 198, 59, 74, 9, 133, 65, 147, 211, 263, 215, 221, 248, 251, 205, 46, -1, 76, 13, 79, 50, 95, 45, 26, 273, 24, 52, 214, 60, 142, 24, 329, -1, 229, 260, 201, 245, 197, 103, 131, 274, 252, 278, 319, 248, 177, 136, -1, 153, 51, 140, 126, 66, 208, 306, 29, 311, 211, 245, 136, 255, 240, 90, 92, 297, 273, 258, 69, 109, 252, 60, 71, 115, -1, 25, 59, 102, 157, 2, 156, 112, -1, 320, 174, 265, 62, 71, 73, 21, 47, 52, 127, 25, 40, 204, 326, 48, 140, -1, 57, 328, 64, 138, 295, 270, 214, 201, 112, 281, 307, 89, 222, 10, 138, 134, 206, 191, -1, 185, 259, 15, 228, 79, -1, 110, 171, 149, 195, 207, 307, 151, 327, 4, 4, 329, 287, 51, 221, 216, 189, 310, 50, 19, 0, 56, 271, 182, 290, 182, 125, 318, 287, 81, 20, 160, 177, 320, 28, 212, 150, 174, 121, 265, 174, 262, 329, 174, 62, 11, 107, 89, 116, -1]]], [[[168, 236, 189, 99, 204, 292, 136, 76, -1, 13, 93, 193, 147, 78, 54, 9, 324, 116, 200, 278, 216, 91, 122, -1, 285, 89, 11, 218, 20, 97, 313, 274, -1, 238, 329, -1, -1, -1, 23, 122, 10, 159, 212, 68, 162, 325, 256, 283, 202, 102, 142, 77, 143, 318, -1, 73, 129, 142, 6, 66, 115, 296, 101, 122, 283, 100, -1, 78, 29, -1, 213, 302, 275, 123, 71, 203, 91, 73, 274, 263, 106, 11, 318, 314, 227, 29, -1, 81, 322, 57, 324, 106, 203, 108, 196, 264, 296, 1, 103, 288, 246, 118, 326, 283, 210, 215, 252, -1, 66, 8, 22, 201, 275, 172, 48, -1, 216, 96, 304, 260, 184, 184, 300, 33, 26, 312, 75, 146, 298, 289, 204, 293, 201, 180, 25, 244, -1, 162, 305, 142, -1, 184, 266, 294, 18, 7, 170, 188, 17, 298, -1, 42, 228, 278, -1, 166, 74, 75, 206, 260, 184, 133, 19, 322, 135, 203, 293, 42, -1, 136, 64, 328, 107, -1, 24, 154, 104, 38, 173, 264, 226, 19, -1, 83, 20, 322, 217, 101, 300, 300, 136, 28, 233, 314, 112, 325, -1, 16, 282, -1, 43, 88, -1, 107, 124, 190, 37, 92, 319, 297, 242, 249, -1, 320, 317, 221, 298, 37, 99, 253, 311, 281, 244, 294, 230, 84, 268, 202, 132, 7, 23, 234, 118, 107, 171, 320, 223, -1, 4, 277, 156, 166, 301, 25, 41, 33, 150, 311, 13, 93, 258, 328, 150, 269, 37, 208, 311, -1, 114, 202, 318, 153, 184, -1, 157, 87, 15, 223, 262, 309, 149, 141, 159, 327, 256, 310, 135, 118, -1, 263, 66, 24, 34, 31, 10, -1, -1, 170, 313, -1, 102, 297, 128, 93, 30, 284, 18, 208, 288, 327], [-1, 115, 50, -1, 74, -1, 118, -1, 176, -1, -1, 116, 61, -1, -1, 44, 112, 129, 127, 128, 166, 232, 315, 197, -1, 250, 91, 58, 223, 272, 171, 189, 186, 202, 261, -1, 86, 64, 76, 321, 82, -1, 120, 161, 242, 219, 180, 55, 161, -1, 273, -1, -1, 182, 187, 181, 257, 191, 61, 192, -1, 314, 107, -1, 155, 206, 25, 148, 3, 69, 259, 72, 38, 261, 276, 277, 224, 243, 182, 37, 117, 68, 10, 185, 184, -1, 108, -1, 100, 84, 9, 245, 26, 255, 69, 261, 290, 159, 293, -1, 36, 165, -1, 167, 134, 129, 249, 6, 324, 59, 313, 182, 289, 144, 88, 180, -1, 290, 98, 230, 246, 124, -1, 40, 19, 241, 167, 87, 254, 197, 287, 230, 301, 188, 224, 279, 45, 182, 68, 23, 290, 88, 244, -1, 312, -1, 260, 204, 63, 70, 168, 316, 119, 218, 261, 86, 259, 303, 105, 79, 174, 194, 262, 316, 230, 226, 105, -1, 49, 70, 93, 267, 18, 302, 199, 178, 88, 139, 14, 33, 281, 163, 52, 239, 209, 259, -1, 218, 314, 244, 163, 70, 115, 110, 79, 52, 232, 191, 143, 198, 228, 155, 198, 148, 250, 78, 275, 163, 253, 286, 174, 163, 236, 201, 111, 274, 304, 26, 317, 168, 15, 185, 209, 147, 160, 196, 89, -1, 179, 315, 113, 313, 104, 150, -1, -1, 208, 57, 91, 73, 166, 326, 267, 106, 84, 82, 75, 299, 220, 170, 162, 10, 89, 254, 17, 45, 240, 73, 70, 178, 196, 270, 100, 105, 2, 155, -1, 96, -1, 56, 169, 295, 247, 73, 178, 196, 188, 105, 74, 10, 201, 315, 48, -1, 269, -1, 142, 120, 191, 175, 24, 66, 267, 30, 125, 63, 76, 187, 147, -1]]]]> : !sn
  %iq = tensor.empty() : !sq
  %ik = tensor.empty() : !sk
  %r:3 = attn.stream_backward query(%q : !sq)
      source(%k, %v : !sk, !sk) rows(%lists : !sn) unit = 1 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !sq, !sl) gradient(%d : !sq) outs(%iq, %ik, %ik : !sq, !sk, !sk)
      {block = 128 : i64, scale = 3.125e-02 : f64} -> !sq, !sk, !sk
  return %r#0, %r#1, %r#2 : !sq, !sk, !sk
}

// Entries of 48 rows that are f32, of columns that fill no box; every head has lists of its own, and an odd number of rows is left.
!oq = tensor<1x4x150x24xbf16>
!ok = tensor<1x2x215x24xf32>
!ov = tensor<1x2x215x72xf32>
!oo = tensor<1x4x150x72xbf16>
!ol = tensor<1x4x150xf32>
!on = tensor<1x4x3x3xi32>
func.func @odd(%q: !oq, %k: !ok, %v: !ov, %o: !oo, %l: !ol, %d: !oo) -> (!oq, tensor<1x2x215x24xbf16>, tensor<1x2x215x72xbf16>) {
  %lists = arith.constant dense<[[[[3, -1, 4], [3, 4, -1], [3, 4, 1]], [[4, 2, 0], [4, 2, -1], [1, -1, 0]], [[-1, 1, -1], [0, 4, 0], [0, 4, 1]], [[2, 3, 0], [1, 3, 4], [2, 3, 3]]]]> : !on
  %iq = tensor.empty() : !oq
  %ik = tensor.empty() : !ok
  %iv = tensor.empty() : !ov
  %r:3 = attn.stream_backward query(%q : !oq)
      source(%k, %v : !ok, !ov) rows(%lists : !on) unit = 48 ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 90>
      forward(%o, %l : !oo, !ol) gradient(%d : !oo) outs(%iq, %ik, %iv : !oq, !ok, !ov)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !oq, !ok, !ov
  %dk = arith.truncf %r#1 : !ok to tensor<1x2x215x24xbf16>
  %dv = arith.truncf %r#2 : !ov to tensor<1x2x215x72xbf16>
  return %r#0, %dk, %dv : !oq, tensor<1x2x215x24xbf16>, tensor<1x2x215x72xbf16>
}

// Batch entries with lists, keys and queries of their own number: all, some, none.
!gq = tensor<3x2x150x32xf16>
!gk = tensor<3x1x201x32xf16>
!gl = tensor<3x2x150xf32>
!gn = tensor<3x2x3x4xi32>
func.func @lengths(%q: !gq, %k: !gk, %o: !gq, %l: !gl, %d: !gq) -> (!gq, !gk, !gk) {
  %lists = arith.constant dense<[[[[4, 3, 1, 0], [3, 0, 2, 2], [4, 1, -1, 3]], [[3, 4, 4, 5], [4, 2, 0, 2], [-1, 4, 4, 0]]], [[[4, 5, 3, -1], [2, 5, -1, -1], [6, -1, 2, 1]], [[-1, -1, 0, 5], [3, 1, 6, 6], [0, 0, 2, 3]]], [[[6, -1, 5, -1], [6, 6, 2, 1], [6, 6, 2, -1]], [[6, 2, -1, 5], [0, 5, 6, 3], [6, 2, 1, 5]]]]> : !gn
  %keys = arith.constant dense<[201, 130, 0]> : tensor<3xi32>
  %queries = arith.constant dense<[150, 64, 90]> : tensor<3xi32>
  %iq = tensor.empty() : !gq
  %ik = tensor.empty() : !gk
  %r:3 = attn.stream_backward query(%q : !gq)
      source(%k, %k : !gk, !gk) lengths(%keys : tensor<3xi32>) rows(%lists : !gn) unit = 32
          ranges [affine_map<(b)[rows, n] -> (b * 20, rows)>] mask <causal>
      query_lengths(%queries : tensor<3xi32>) forward(%o, %l : !gq, !gl) gradient(%d : !gq) outs(%iq, %ik, %ik : !gq, !gk, !gk)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !gq, !gk, !gk
  return %r#0, %r#1, %r#2 : !gq, !gk, !gk
}

// Rows that stand where they are listed: pages of 16.
!pq = tensor<3x2x100x64xf16>
!pk = tensor<3x1x390x64xf16>
!pl = tensor<3x2x100xf32>
!pn = tensor<3x1x1x12xi32>
func.func @pages(%q: !pq, %k: !pk, %o: !pq, %l: !pl, %d: !pq) -> (!pq, !pk, !pk) {
  %lists = arith.constant dense<[[[[21, 12, 0, 15, 9, 13, 10, 7, 3, 11, 19, 19]]], [[[17, 0, 4, 1, 19, 3, 8, 13, 3, 4, 17, 21]]], [[[0, 23, 11, 3, 2, 12, 18, 17, 15, 7, 12, 13]]]]> : !pn
  %keys = arith.constant dense<[192, 133, 0]> : tensor<3xi32>
  %iq = tensor.empty() : !pq
  %ik = tensor.empty() : !pk
  %r:3 = attn.stream_backward query(%q : !pq)
      source(%k, %k : !pk, !pk) lengths(%keys : tensor<3xi32>) rows(%lists : !pn) unit = 16 positions = listed
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      forward(%o, %l : !pq, !pl) gradient(%d : !pq) outs(%iq, %ik, %ik : !pq, !pk, !pk)
      {scale = 3.125e-02 : f64} -> !pq, !pk, !pk
  return %r#0, %r#1, %r#2 : !pq, !pk, !pk
}

// Lists of so many entries that their parts of gradients do not have room at once: five lists, and two. Entries between the first and
// the last ones name nothing, others name rows again, and nobody rows 60 to 69.
!mq = tensor<2x8x400x16xbf16>
!mk = tensor<2x4x130x16xbf16>
!ml = tensor<2x8x400xf32>
!mn = tensor<1x1x7x900xi32>
func.func @passes(%q: !mq, %k: !mk, %v: !mk, %o: !mq, %l: !ml, %d: !mq) -> (!mq, !mk, !mk) {
  %lists = tensor.generate {
  ^bb0(%i: index, %j: index, %block: index, %entry: index):
    %c11 = arith.constant 11 : index
    %c37 = arith.constant 37 : index
    %c61 = arith.constant 61 : index
    %c60 = arith.constant 60 : index
    %c70 = arith.constant 70 : index
    %c80 = arith.constant 80 : index
    %c850 = arith.constant 850 : index
    %one = arith.constant 1 : index
    %none = arith.constant -1 : index
    %a = arith.muli %block, %c37 : index
    %b = arith.muli %entry, %c11 : index
    %c = arith.addi %a, %b : index
    %r = arith.remui %c, %c61 : index
    %low = arith.subi %r, %one : index
    %x = arith.remui %r, %c60 : index
    %high = arith.addi %x, %c70 : index
    %isFirst = arith.cmpi ult, %entry, %c80 : index
    %isLast = arith.cmpi uge, %entry, %c850 : index
    %y = arith.select %isLast, %high, %none : index
    %z = arith.select %isFirst, %low, %y : index
    %n = arith.index_cast %z : index to i32
    tensor.yield %n : i32
  } : !mn
  %iq = tensor.empty() : !mq
  %ik = tensor.empty() : !mk
  %r:3 = attn.stream_backward query(%q : !mq)
      source(%k, %v : !mk, !mk) rows(%lists : !mn) unit = 1 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !mq, !ml) gradient(%d : !mq) outs(%iq, %ik, %ik : !mq, !mk, !mk)
      {block = 64 : i64, scale = 6.25e-02 : f64} -> !mq, !mk, !mk
  return %r#0, %r#1, %r#2 : !mq, !mk, !mk
}
