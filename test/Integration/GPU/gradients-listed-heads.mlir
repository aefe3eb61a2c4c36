// Gradients of rows whose lists are for less than 64 queries of many heads, by kernels of sm_90a in the emulator: heads fill the tiles.

// REQUIRES: long-tests
// Minutes of emulated kernels, which sanitizers do not see; they see such host code in backward.mlir and gradients-vq-state.mlir.
// UNSUPPORTED: asan
// RUN: fovea-run %s --entry=single --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s --check-prefixes=CHECK,MORE
// RUN: fovea-run %s --entry=shared --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5,eager | FileCheck %s
// RUN: fovea-run %s --entry=blocks --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4 | FileCheck %s
// RUN: fovea-run %s --entry=third --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=pages --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=6 | FileCheck %s
// RUN: fovea-run %s --entry=tiles --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=2,eager | FileCheck %s
// RUN: fovea-run %s --entry=pair --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=7 | FileCheck %s
// RUN: fovea-run %s --entry=passes --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=9,eager | FileCheck %s
// CHECK-COUNT-3: agrees with the reference
// MORE: agrees with the reference
// CHECK-NOT: differs

// Each has a kernel of warpgroups for queries and one for rows, but what boxes do not divide.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=KERNELS
// KERNELS-COUNT-16: nvvm.reqntid = array<i32: {{256|384}}, 1, 1>
// KERNELS-NOT: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>


// A list for each query of 128 heads, which are two tiles: some rows are named twice, later than a query reads, or not there; a list
// is empty. Rows have log weights, some of which are minus infinity. Two ranges.
!singleq = tensor<2x128x5x64xbf16>
!singlek = tensor<2x1x210x64xbf16>
!singlev = tensor<2x1x210x40xbf16>
!singleo = tensor<2x128x5x40xbf16>
!singlel = tensor<2x128x5xf32>
!singlen = tensor<2x1x5x150xi32>
!singlew = tensor<2x1x210xf32>
func.func @single(%q: !singleq, %k: !singlek, %v: !singlev, %w: !singlew, %o: !singleo, %l: !singlel, %d: !singleo) -> (!singleq, !singlek, !singlev, !singlew) {
  %lists = arith.constant dense<[[[[74, 21, -1, 97, 33, 68, 56, 6, 181, 5, 187, 197, -1, 150, 44, 188, 194, 146, 80, 208, 183, 202, 164, 204, 82, 133, 29, -1, 145, 146, 151, 94, 138, 199, 55, 27, 30, 126, 139, 190, 98, 8, -1, 5, 57, 56, 14, 113, 88, -1, 125, 19, 140, 117, 55, -1, 166, 139, 61, 107, 3, 87, 106, 157, 105, -1, 163, 139, 104, 142, 13, 27, -1, 143, 110, 169, -1, 138, 143, 204, 183, 86, 201, 191, 52, 7, 115, 20, 70, 176, 184, 134, 67, 22, 15, 127, 4, 154, 174, 89, 70, 87, 10, 209, 193, 65, 176, -1, 67, 37, 28, 30, 197, 9, 28, 144, 10, 20, 92, 159, 23, 130, 173, 20, 178, 43, -1, 190, 4, 174, 187, 181, 203, 11, 151, 7, 23, 54, 109, 193, 136, 111, 136, 190, 189, 168, 163, 97, 79, 10], [89, 194, 41, 104, 10, 109, 41, 106, 80, -1, 209, 94, 4, 159, 208, 112, 169, 16, 0, 97, 188, -1, 189, 171, 184, 154, 192, 131, 192, 17, 175, 164, 30, 192, 53, 50, 200, 68, 110, 139, 138, 189, -1, 145, 143, 176, 35, 28, 79, 28, 149, -1, -1, 184, 161, -1, 139, 162, 50, 168, 18, 33, 55, 188, 36, 0, 98, 145, 107, 162, -1, 3, 149, 142, 106, -1, 116, 171, 8, 53, 203, 40, 149, 28, 109, 50, 133, 165, 204, 16, 153, -1, 206, 192, 130, 16, 128, 85, 25, 37, 108, 40, 203, 9, 24, 188, 17, 163, -1, -1, 41, 67, 52, 199, 76, -1, 122, 26, 170, 164, 44, 166, 6, -1, 84, 27, 171, 160, 85, 162, 179, 76, 70, 152, 159, 161, 102, 45, 103, 186, 2, 201, 20, 122, 13, 170, 20, 29, -1, 93], [62, 208, 177, 51, 175, 137, 37, 82, 187, 94, 150, 190, -1, 80, 188, 15, 47, 111, 32, 25, 93, 146, 207, 187, 52, 195, 153, 72, 9, 200, 163, 117, 163, 32, 186, 200, 112, 139, 168, 180, -1, 147, 78, 150, 0, 65, 123, 156, 107, 29, 99, 104, 188, 46, 208, 61, -1, 131, 21, 105, 10, 54, -1, -1, 9, 6, 179, 123, 196, -1, 69, -1, 1, -1, 21, 35, 177, 135, 124, 207, 11, 43, -1, 159, 0, 61, 148, 84, 133, 170, 129, 209, 93, -1, 179, 163, 159, 75, 57, 166, 14, -1, 161, 176, 56, 131, 51, 28, 114, 13, 19, 24, 57, -1, 45, 98, -1, 132, 42, 39, 199, 209, 189, 122, 186, 11, 137, 146, 91, 7, 142, 123, 205, 139, 115, 115, -1, 164, 142, 86, -1, 81, 174, 49, -1, 117, 159, 23, 9, 12], [95, -1, -1, -1, 28, 81, 29, 84, 63, 38, 192, 80, 209, 151, 110, 68, 154, 172, 102, 100, 104, 45, 121, 176, 153, 22, -1, 47, -1, 123, 99, 171, 207, 197, 179, 53, 38, 81, 33, 191, 176, 4, 105, 19, 181, 192, 41, 5, 20, 5, 151, 92, 146, 71, 127, 106, 188, -1, 118, 19, -1, 36, 90, 11, 185, 174, 4, 131, 159, 53, 90, 158, 87, 56, 95, 2, 96, -1, 205, 41, -1, 134, 173, 167, 33, 102, 75, 112, 86, 13, 137, 96, 53, 59, 26, 66, 195, 25, -1, 125, 93, 155, 89, 9, 194, 100, 177, -1, 158, 11, 137, 80, 200, 182, 22, -1, 11, 91, 4, 0, 59, 200, 13, 16, 60, 149, 171, 67, 178, 11, -1, 26, 84, 78, 19, 115, -1, 100, 184, 63, 104, 205, -1, 18, 61, 71, 194, -1, 135, 59], [55, 209, -1, 59, 43, -1, 185, 30, 42, -1, 209, 105, 94, 147, 149, 124, 78, 101, -1, -1, 91, 162, 184, 139, 115, 69, 132, 152, 41, 192, 43, 123, 42, 89, 128, 162, 185, 137, 140, 10, 191, -1, 115, 40, 112, -1, 45, 12, 29, 27, 189, -1, 39, 199, 147, 73, 163, 186, 16, 29, 53, 41, 139, 150, 75, -1, -1, 156, 163, 122, 206, 29, 188, 97, 158, 73, 84, 183, 131, 199, 21, 52, 39, 151, 136, 148, 19, 187, 37, 174, -1, 0, 98, 3, 37, 2, 45, 109, 159, 62, 15, -1, 40, 111, 101, 77, 158, 208, 1, 196, 153, 183, 121, 81, 207, 168, 8, 182, 21, -1, 32, 175, 116, 37, 198, 29, 17, 27, -1, 173, 8, -1, 84, 206, 208, 203, 147, 165, 201, 77, 8, 199, 132, 139, 6, 54, 149, 120, 125, 37]]], [[[98, 85, 83, 75, 182, 74, 103, 107, 65, -1, -1, 14, 6, -1, 120, 94, 118, 30, 66, 1, 139, 137, 62, 60, -1, -1, 114, -1, 121, 135, 102, 18, 17, 10, 151, 40, 154, 69, 147, 157, 160, 25, 55, 185, 197, 0, 44, 50, -1, 102, 128, 76, 138, 59, 205, 127, 88, 49, 186, 84, 107, -1, 115, 178, 128, 0, 184, 148, 114, 182, 115, 125, 114, 82, 122, -1, 22, 181, 102, 19, 123, 206, 151, -1, 87, 133, 39, 84, 7, 23, 24, -1, 76, 178, 116, -1, 132, 49, 122, 39, 16, -1, 84, 117, 186, 196, 31, 132, 189, 201, -1, 184, 101, 203, 49, 209, 193, 195, 110, 79, 2, -1, 171, 138, 141, -1, 66, 173, 8, 6, 77, 78, -1, 207, 46, 126, 84, 98, 1, 36, 156, 88, 119, 150, 131, 36, 116, 73, 28, 131], [131, 117, 191, 163, 195, 146, 38, 148, 106, 19, -1, 24, 18, 3, 32, -1, 29, 88, 172, 128, 172, 105, 8, 148, 132, 86, 158, 45, 58, 129, 80, 87, 85, 130, 13, 116, 146, 206, 106, 20, 169, 22, -1, 191, 28, 92, 99, 132, 33, 16, 191, 64, -1, 200, -1, 78, 133, 35, -1, 112, 19, 72, 153, 153, 4, 39, 139, -1, 90, 142, 32, 47, 36, 174, 58, -1, 86, 115, 122, 81, 38, 73, 110, 134, 141, 66, 136, 2, 121, 130, 97, 94, 2, 179, 164, 52, 148, 158, 87, 43, 11, 39, 61, 105, 94, -1, 25, 175, 106, 148, 112, 97, 52, 156, 162, 52, 143, 43, -1, 91, 18, 157, 18, 130, 123, 76, 4, 174, 124, 110, 8, 4, 123, 6, 166, 128, 106, 87, 207, 177, 83, 83, 39, -1, 54, 0, -1, 187, -1, 192], [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1], [178, 58, 90, 185, 164, 104, -1, 0, 85, 46, 187, 29, 20, 146, 45, 88, 157, 14, 109, 194, 16, -1, 71, 207, 17, 155, 43, 99, 83, 113, -1, 15, 146, 31, 82, 136, 109, 57, 135, 63, 172, 205, 135, 149, 104, 95, -1, 51, 143, 83, 92, 75, 206, 116, 112, 52, 171, 34, 15, 148, 147, 41, 176, 33, 77, 91, 138, 153, 84, 65, 97, -1, 43, 101, 47, 12, 186, 178, 199, 87, 209, 59, 90, 67, 2, 150, 13, 181, 6, 127, 66, -1, 26, 95, 171, 72, 179, 162, 41, 50, 86, -1, 42, 129, 35, 146, 132, 57, 192, 113, 200, 165, -1, -1, 167, 66, 196, 173, 155, -1, 117, -1, 109, 80, 131, 62, 12, 0, 140, 169, 73, 37, 109, -1, 149, 77, 205, 86, 172, 169, 167, 21, 6, -1, 172, -1, -1, 139, 115, 18], [43, 201, 177, 78, 117, 46, 196, 176, -1, -1, -1, 37, 83, 132, 29, 82, 78, 180, 126, 161, 95, 20, 189, 23, 167, 50, 103, 141, 13, 171, 75, 112, 53, 112, 159, 89, -1, 96, 115, 52, 55, 57, 29, 116, 95, 62, 85, 118, -1, 111, 81, 30, 180, 34, 98, 18, 25, 169, 36, 80, 52, -1, 203, 26, 24, 133, 64, 7, 7, 158, 14, 186, 13, 151, 152, 106, 159, 194, 110, 129, 161, 129, 12, -1, 140, 77, -1, 114, 123, -1, 170, 68, 74, 31, 132, 20, 178, 115, 5, 207, 138, 191, 204, 15, 167, -1, 147, 15, 167, -1, 38, 30, 173, 172, 100, 60, 14, 8, 101, 145, -1, 108, -1, -1, 188, 184, 101, 24, 20, 191, 191, -1, 29, 200, 125, 42, 8, 50, 174, 22, 89, 61, 195, 19, -1, 82, 144, 43, 35, 13]]]]> : !singlen
  %none = arith.constant dense<0xFF800000> : tensor<2x1x40xf32>
  %some = tensor.insert_slice %none into %w[0, 0, 30] [2, 1, 40] [1, 1, 1] : tensor<2x1x40xf32> into !singlew
  %iw = tensor.empty() : !singlew
  %iq = tensor.empty() : !singleq
  %ik = tensor.empty() : !singlek
  %iv = tensor.empty() : !singlev
  %r:4 = attn.stream_backward query(%q : !singleq)
      source(%k, %v : !singlek, !singlev) log_weight(%some : !singlew) rows(%lists : !singlen) unit = 1
          ranges [affine_map<(b)[rows, n] -> (0, b + 140)>, affine_map<(b)[rows, n] -> (b + 150, rows - 9)>] mask <causal>
      forward(%o, %l : !singleo, !singlel) gradient(%d : !singleo) outs(%iq, %ik, %iv : !singleq, !singlek, !singlev) d_log_weights(%iw : !singlew)
      {block = 1 : i64, scale = 3.125e-02 : f64} -> !singleq, !singlek, !singlev, !singlew
  return %r#0, %r#1, %r#2, %r#3 : !singleq, !singlek, !singlev, !singlew
}

// One tile of heads for each query, two key heads whose heads read the same lists; no mask cuts.
!sharedq = tensor<2x128x3x128xf16>
!sharedk = tensor<2x2x140x128xf16>
!sharedv = tensor<2x2x140x128xf16>
!sharedo = tensor<2x128x3x128xf16>
!sharedl = tensor<2x128x3xf32>
!sharedn = tensor<1x1x3x200xi32>
func.func @shared(%q: !sharedq, %k: !sharedk, %v: !sharedv, %o: !sharedo, %l: !sharedl, %d: !sharedo) -> (!sharedq, !sharedk, !sharedv) {
  %lists = arith.constant dense<[[[[-1, 44, 43, -1, -1, 45, 119, 28, 103, 126, -1, 69, 9, 111, 13, 24, 57, 53, -1, 1, 15, 32, 130, 32, 52, 13, 8, 121, -1, 55, 79, 123, 91, 110, 49, 115, 106, 96, 56, 122, 22, 46, 78, 5, 54, 84, 97, 26, 62, 77, 131, -1, 7, 38, 126, 78, 42, 101, 14, 126, 110, 92, 81, 138, 98, 88, 54, 115, 134, 107, 83, 70, 37, 7, 116, 7, 60, 24, 94, 74, 52, -1, 81, 58, 86, 118, -1, 126, 64, 28, 39, 129, 138, -1, 68, 79, 80, 108, 118, 38, 120, 13, 129, 49, 120, 21, 123, 137, 74, 130, 103, 106, 95, 30, 75, 106, -1, 125, 63, 51, -1, 104, 76, 28, 4, 105, 77, 42, 135, 80, 14, 60, 126, 127, 16, 93, 132, 116, 12, 51, 33, 78, 26, 57, 15, 2, 90, 53, 107, 110, 32, 76, 116, -1, 8, 50, 18, 28, 60, 4, 61, 53, 111, 75, 51, 129, 41, 35, 97, 51, 126, -1, -1, 77, -1, 31, 102, 18, 21, 54, 9, 80, 18, 69, 131, 17, 91, 115, 32, 57, 69, 88, 17, 53, 137, 56, 130, 86, 110, 16], [40, 104, 1, 117, 81, 119, 10, 10, -1, 125, 39, 34, -1, 129, -1, 112, 88, -1, 7, 75, 21, 130, 136, 0, 42, 74, 91, 54, 111, 33, 40, 127, 53, -1, 95, 131, 22, 127, 97, 1, 50, 134, 22, 16, 88, 95, 13, 15, 36, 110, 79, 49, 104, -1, 137, 21, 51, 107, 28, -1, -1, 21, 59, 65, 110, 56, 103, -1, 111, 16, 85, 12, 104, 21, -1, 2, -1, 58, 13, 73, 138, 139, 21, 11, 53, 23, 87, 57, 127, 83, 120, 75, 116, -1, 117, 105, 126, 12, 14, 25, 85, 4, -1, 65, 30, 51, 136, 18, -1, 17, 121, 118, 2, -1, 87, 132, -1, 39, 78, 3, 91, 87, 97, -1, 81, 24, 119, -1, 68, 117, -1, 112, 76, 136, -1, 123, 99, -1, 10, 99, 68, 63, 41, 82, 75, 29, 94, 14, 91, 0, 27, 105, -1, 79, 92, 138, 107, 128, 138, 117, 120, 71, 47, 17, 54, 67, 22, 41, 42, 82, 95, 83, -1, 74, 49, 38, 37, 33, 60, 87, 56, -1, 43, 96, 126, 105, -1, 112, 11, 124, 97, 58, 110, 66, 135, 68, 24, 108, 96, 83], [17, 129, 96, 55, 136, -1, 139, 35, 14, 81, -1, 3, 28, 18, 139, 55, 58, 97, 71, -1, 131, -1, 37, 65, 127, 11, 125, -1, 46, 63, 105, 100, 55, 47, 52, 72, 66, 51, 7, 34, 24, 70, 77, 35, 40, 104, 53, 98, 61, 103, 55, 107, 11, 58, 43, 2, 73, -1, 24, -1, -1, 24, 70, -1, 8, 23, 25, -1, 105, 39, 88, 56, 25, -1, -1, 72, -1, 116, 74, 95, 62, 42, 33, 86, 133, 6, 92, 122, -1, 138, 60, 70, 135, -1, 27, 119, 118, 46, 86, 47, 127, 16, 83, 24, 24, 18, 87, 122, 3, 138, 9, 77, 45, 122, 13, 49, -1, 4, 69, 81, 99, 13, 42, 133, 30, 104, 73, 52, 11, 10, 108, 20, 105, 114, 5, 20, 64, 94, 106, 20, 108, 41, 97, 106, 117, -1, 30, 102, 115, 109, 90, 66, 105, -1, 55, 0, -1, 124, 85, -1, -1, 16, -1, 29, 53, 128, 76, 17, 130, 42, 113, -1, 44, 25, 115, 3, 68, 59, 10, 118, 87, -1, 109, 58, 45, 45, -1, 20, 19, 124, 98, 99, 65, 139, 106, 102, 32, 100, -1, 33]]]]> : !sharedn
  %iq = tensor.empty() : !sharedq
  %ik = tensor.empty() : !sharedk
  %iv = tensor.empty() : !sharedv
  %r:3 = attn.stream_backward query(%q : !sharedq)
      source(%k, %v : !sharedk, !sharedv) rows(%lists : !sharedn) unit = 1
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !sharedo, !sharedl) gradient(%d : !sharedo) outs(%iq, %ik, %iv : !sharedq, !sharedk, !sharedv)
      {block = 1 : i64, scale = 3.125e-02 : f64} -> !sharedq, !sharedk, !sharedv
  return %r#0, %r#1, %r#2 : !sharedq, !sharedk, !sharedv
}

// Eight queries of eight heads are a tile, key heads have lists of their own, entries name four rows. Batch entries have keys and
// queries of their own number; the last block has three.
!blocksq = tensor<3x16x19x32xbf16>
!blocksk = tensor<3x2x101x32xbf16>
!blocksv = tensor<3x2x101x24xbf16>
!blockso = tensor<3x16x19x24xbf16>
!blocksl = tensor<3x16x19xf32>
!blocksn = tensor<3x2x3x20xi32>
func.func @blocks(%q: !blocksq, %k: !blocksk, %v: !blocksv, %o: !blockso, %l: !blocksl, %d: !blockso) -> (!blocksq, !blocksk, !blocksv) {
  %lists = arith.constant dense<[[[[-1, 2, 23, 11, 15, -1, 11, 21, 11, 15, 19, 9, 20, 8, 15, -1, 13, -1, 16, 19], [15, 15, -1, 19, 20, 2, 14, 12, 18, 4, 18, 21, 2, 25, 22, 23, 19, 19, 24, 12], [16, 0, 4, 4, 19, 22, 6, 13, 8, 20, 24, 15, 23, 11, 2, 11, 5, 10, 7, 13]], [[12, 5, 18, -1, 2, 17, 14, 6, 19, 24, 9, 1, 8, 22, 16, -1, 12, 9, 20, 17], [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1], [3, 16, 16, 22, 25, 25, 5, 20, 22, -1, 25, 25, 12, -1, 21, 5, 25, -1, 3, 14]]], [[[12, 2, 8, 24, 24, 10, 5, 23, 25, 3, -1, -1, 20, -1, 3, 21, 7, 14, 1, 8], [9, 3, 0, 16, 15, 13, 8, 17, 2, -1, 0, -1, 2, 13, -1, 1, 10, 23, 16, 17], [12, 22, -1, 14, 3, 14, 25, 11, 15, 7, 22, 0, 23, 17, 25, 4, 18, 8, 15, 17]], [[10, 4, 7, 18, -1, 23, 13, 2, 1, 3, 17, 3, 10, 15, 16, 5, 25, 0, 14, 5], [5, 19, 5, 1, 21, 4, 1, 25, -1, -1, 10, 17, 11, 11, 11, 9, -1, 4, 1, 18], [13, 6, 20, 24, 22, 19, 14, 12, -1, 23, 19, 12, 24, 24, -1, 5, -1, 12, 21, 13]]], [[[-1, -1, 12, 18, 0, 13, 24, 10, 21, 20, 7, 25, 4, 3, 12, 6, -1, 23, -1, 14], [13, 3, 20, 21, 1, 18, 8, 6, 22, 24, 22, 18, 21, 4, 24, 6, 7, 20, 8, 25], [25, -1, 24, 4, 13, 5, 22, 6, 10, 17, 24, 7, 23, 18, 19, 12, 19, 7, 10, 7]], [[4, 1, 6, 3, -1, 5, 24, 14, 2, 19, 18, 14, 22, 6, 8, 4, 17, 21, 17, 9], [6, -1, 4, 9, -1, 11, 12, -1, 21, 4, 7, 2, -1, 12, 17, 9, 2, -1, 9, 8], [23, 2, 9, 11, 14, 7, 5, 20, 10, -1, 5, 5, -1, 6, 23, 25, -1, 17, 11, 10]]]]> : !blocksn
  %keys = arith.constant dense<[101, 66, 0]> : tensor<3xi32>
  %queries = arith.constant dense<[19, 11, 18]> : tensor<3xi32>
  %iq = tensor.empty() : !blocksq
  %ik = tensor.empty() : !blocksk
  %iv = tensor.empty() : !blocksv
  %r:3 = attn.stream_backward query(%q : !blocksq)
      source(%k, %v : !blocksk, !blocksv) lengths(%keys : tensor<3xi32>) rows(%lists : !blocksn) unit = 4
          ranges [affine_map<(b)[rows, n] -> (b * 5, rows)>] mask <causal, window = 70>
      query_lengths(%queries : tensor<3xi32>) forward(%o, %l : !blockso, !blocksl) gradient(%d : !blockso) outs(%iq, %ik, %iv : !blocksq, !blocksk, !blocksv)
      {block = 8 : i64, scale = 3.125e-02 : f64} -> !blocksq, !blocksk, !blocksv
  return %r#0, %r#1, %r#2 : !blocksq, !blocksk, !blocksv
}

// Three tiles of heads for each query.
!thirdq = tensor<1x192x2x16xf16>
!thirdk = tensor<1x1x90x16xf16>
!thirdv = tensor<1x1x90x16xf16>
!thirdo = tensor<1x192x2x16xf16>
!thirdl = tensor<1x192x2xf32>
!thirdn = tensor<1x1x2x70xi32>
func.func @third(%q: !thirdq, %k: !thirdk, %v: !thirdv, %o: !thirdo, %l: !thirdl, %d: !thirdo) -> (!thirdq, !thirdk, !thirdv) {
  %lists = arith.constant dense<[[[[21, 59, 30, 47, 35, 53, 49, 46, 4, -1, 3, 48, 31, 87, 81, 58, 28, -1, 51, 11, 11, 79, 12, 14, 53, 13, 33, 76, 59, 36, 74, 6, 56, 49, 30, 50, 60, -1, 62, 3, 49, 30, 75, 89, 6, 74, 35, -1, 8, 48, 84, 84, 89, 73, 37, 80, 82, 30, 61, 54, 89, 54, 64, 88, 54, -1, -1, 41, 19, 50], [40, 18, 54, 1, 40, 43, 34, 67, 53, 41, 60, 84, 45, 21, 70, 85, 89, 41, 87, 43, 70, -1, 86, 75, 69, 32, 69, 84, 33, 82, -1, 42, 29, 8, 85, 73, 10, 15, 71, 19, 5, 73, 79, 33, 29, 89, 23, 72, 30, 66, 88, 68, 41, 36, 16, -1, -1, 46, 83, 28, 20, 46, 39, 2, 37, 89, 31, 82, 23, 45]]]]> : !thirdn
  %iq = tensor.empty() : !thirdq
  %ik = tensor.empty() : !thirdk
  %iv = tensor.empty() : !thirdv
  %r:3 = attn.stream_backward query(%q : !thirdq)
      source(%k, %v : !thirdk, !thirdv) rows(%lists : !thirdn) unit = 1
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !thirdo, !thirdl) gradient(%d : !thirdo) outs(%iq, %ik, %iv : !thirdq, !thirdk, !thirdv)
      {block = 1 : i64, scale = 3.125e-02 : f64} -> !thirdq, !thirdk, !thirdv
  return %r#0, %r#1, %r#2 : !thirdq, !thirdk, !thirdv
}

// Rows that stand where they are listed: pages of 16 for four queries of 32 heads, two tiles.
!pagesq = tensor<2x32x18x64xf16>
!pagesk = tensor<2x1x390x64xf16>
!pagesv = tensor<2x1x390x64xf16>
!pageso = tensor<2x32x18x64xf16>
!pagesl = tensor<2x32x18xf32>
!pagesn = tensor<2x1x5x9xi32>
func.func @pages(%q: !pagesq, %k: !pagesk, %v: !pagesv, %o: !pageso, %l: !pagesl, %d: !pageso) -> (!pagesq, !pagesk, !pagesv) {
  %lists = arith.constant dense<[[[[15, 2, 10, 15, 18, 16, 24, 11, 23], [6, 23, 18, 12, 9, 13, 8, 16, 10], [18, 3, 16, 13, 1, 16, 6, 24, 10], [19, 17, 12, 0, 23, 5, 17, 20, 5], [20, 2, 17, 2, 12, 6, 18, 6, 2]]], [[[12, 6, 16, 5, 24, 19, 23, 22, 21], [16, 7, 24, 9, 9, 19, 16, 11, 4], [20, 4, 5, 12, 15, 21, 2, 4, 5], [19, 6, 11, 8, 6, 14, 2, 20, 16], [4, 5, 22, 23, 14, 13, 2, 20, 19]]]]> : !pagesn
  %keys = arith.constant dense<[144, 77]> : tensor<2xi32>
  %iq = tensor.empty() : !pagesq
  %ik = tensor.empty() : !pagesk
  %iv = tensor.empty() : !pagesv
  %r:3 = attn.stream_backward query(%q : !pagesq)
      source(%k, %v : !pagesk, !pagesv) lengths(%keys : tensor<2xi32>) rows(%lists : !pagesn) unit = 16 positions = listed
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      forward(%o, %l : !pageso, !pagesl) gradient(%d : !pageso) outs(%iq, %ik, %iv : !pagesq, !pagesk, !pagesv)
      {block = 4 : i64, scale = 3.125e-02 : f64} -> !pagesq, !pagesk, !pagesv
  return %r#0, %r#1, %r#2 : !pagesq, !pagesk, !pagesv
}

// Entries that name whole tiles, two of 64 rows at once, for two queries of 64 heads.
!tilesq = tensor<2x128x5x32xbf16>
!tilesk = tensor<2x2x330x32xbf16>
!tilesv = tensor<2x2x330x32xbf16>
!tileso = tensor<2x128x5x32xbf16>
!tilesl = tensor<2x128x5xf32>
!tilesn = tensor<2x2x3x3xi32>
func.func @tiles(%q: !tilesq, %k: !tilesk, %v: !tilesv, %o: !tileso, %l: !tilesl, %d: !tileso) -> (!tilesq, !tilesk, !tilesv) {
  %lists = arith.constant dense<[[[[1, 0, -1], [0, 1, 2], [2, 1, 2]], [[2, 2, 2], [2, 2, 0], [1, 0, 0]]], [[[2, 0, 0], [0, 0, 2], [-1, 2, -1]], [[0, 1, 0], [0, 2, -1], [0, 0, 2]]]]> : !tilesn
  %iq = tensor.empty() : !tilesq
  %ik = tensor.empty() : !tilesk
  %iv = tensor.empty() : !tilesv
  %r:3 = attn.stream_backward query(%q : !tilesq)
      source(%k, %v : !tilesk, !tilesv) rows(%lists : !tilesn) unit = 128
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 200>
      forward(%o, %l : !tileso, !tilesl) gradient(%d : !tileso) outs(%iq, %ik, %iv : !tilesq, !tilesk, !tilesv)
      {block = 2 : i64, scale = 3.125e-02 : f64} -> !tilesq, !tilesk, !tilesv
  return %r#0, %r#1, %r#2 : !tilesq, !tilesk, !tilesv
}

// The same for one query, of 64 rows.
!pairq = tensor<1x64x3x64xf16>
!pairk = tensor<1x1x250x64xf16>
!pairv = tensor<1x1x250x64xf16>
!pairo = tensor<1x64x3x64xf16>
!pairl = tensor<1x64x3xf32>
!pairn = tensor<1x1x3x5xi32>
func.func @pair(%q: !pairq, %k: !pairk, %v: !pairv, %o: !pairo, %l: !pairl, %d: !pairo) -> (!pairq, !pairk, !pairv) {
  %lists = arith.constant dense<[[[[2, 2, 3, -1, 1], [3, 2, -1, 2, 2], [1, -1, -1, 0, -1]]]]> : !pairn
  %iq = tensor.empty() : !pairq
  %ik = tensor.empty() : !pairk
  %iv = tensor.empty() : !pairv
  %r:3 = attn.stream_backward query(%q : !pairq)
      source(%k, %v : !pairk, !pairv) rows(%lists : !pairn) unit = 64
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !pairo, !pairl) gradient(%d : !pairo) outs(%iq, %ik, %iv : !pairq, !pairk, !pairv)
      {block = 1 : i64, scale = 3.125e-02 : f64} -> !pairq, !pairk, !pairv
  return %r#0, %r#1, %r#2 : !pairq, !pairk, !pairv
}

// So many lists that their parts of gradients do not have room at once.
!passesq = tensor<1x64x1030x8xbf16>
!passesk = tensor<1x1x70x8xbf16>
!passesv = tensor<1x1x70x8xbf16>
!passeso = tensor<1x64x1030x8xbf16>
!passesl = tensor<1x64x1030xf32>
!passesn = tensor<1x1x1030x70xi32>
func.func @passes(%q: !passesq, %k: !passesk, %v: !passesv, %o: !passeso, %l: !passesl, %d: !passeso) -> (!passesq, !passesk, !passesv) {
  %lists = tensor.generate {
  ^bb0(%i: index, %j: index, %block: index, %entry: index):
    %c11 = arith.constant 11 : index
    %c37 = arith.constant 37 : index
    %c61 = arith.constant 61 : index
    %one = arith.constant 1 : index
    %a = arith.muli %block, %c37 : index
    %b = arith.muli %entry, %c11 : index
    %c = arith.addi %a, %b : index
    %r = arith.remui %c, %c61 : index
    %low = arith.subi %r, %one : index
    %n = arith.index_cast %low : index to i32
    tensor.yield %n : i32
  } : !passesn
  %iq = tensor.empty() : !passesq
  %ik = tensor.empty() : !passesk
  %iv = tensor.empty() : !passesv
  %r:3 = attn.stream_backward query(%q : !passesq)
      source(%k, %v : !passesk, !passesv) rows(%lists : !passesn) unit = 1
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !passeso, !passesl) gradient(%d : !passeso) outs(%iq, %ik, %iv : !passesq, !passesk, !passesv)
      {block = 1 : i64, scale = 3.125e-02 : f64} -> !passesq, !passesk, !passesv
  return %r#0, %r#1, %r#2 : !passesq, !passesk, !passesv
}

// Three queries of eight heads fill no tile, nor do 96 heads: kernels of other chips.
!xq = tensor<1x8x6x32xf16>
!xk = tensor<1x1x50x32xf16>
func.func @few(%q: !xq, %k: !xk, %n: tensor<1x1x2x9xi32>, %o: !xq, %l: tensor<1x8x6xf32>, %d: !xq) -> (!xq, !xk, !xk) {
  %r:3 = attn.stream_backward query(%q : !xq)
      source(%k, %k : !xk, !xk) rows(%n : tensor<1x1x2x9xi32>) unit = 1 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !xq, tensor<1x8x6xf32>) gradient(%d : !xq) outs(%q, %k, %k : !xq, !xk, !xk)
      {block = 3 : i64, scale = 3.125e-02 : f64} -> !xq, !xk, !xk
  return %r#0, %r#1, %r#2 : !xq, !xk, !xk
}
!yq = tensor<1x96x2x32xf16>
func.func @many(%q: !yq, %k: !xk, %n: tensor<1x1x1x9xi32>, %o: !yq, %l: tensor<1x96x2xf32>, %d: !yq) -> (!yq, !xk, !xk) {
  %r:3 = attn.stream_backward query(%q : !yq)
      source(%k, %k : !xk, !xk) rows(%n : tensor<1x1x1x9xi32>) unit = 1 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !yq, tensor<1x96x2xf32>) gradient(%d : !yq) outs(%q, %k, %k : !yq, !xk, !xk)
      {block = 2 : i64, scale = 3.125e-02 : f64} -> !yq, !xk, !xk
  return %r#0, %r#1, %r#2 : !yq, !xk, !xk
}
