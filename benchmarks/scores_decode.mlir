// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One query behind 65536 keys that reads the last 256: by a window, and by a
// function that says so.
//
//   FOVEA_NUM_THREADS=1 build/bin/fovea-run benchmarks/scores_decode.mlir --entry=window --random --bench

!q = tensor<1x8x1x128xf32>
!k = tensor<1x1x65536x128xf32>
func.func @window(%q: !q, %k: !k, %v: !k, %o: !q) -> !q {
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) outs(%o : !q) {mask = #attn.mask<causal, window = 256>} -> !q
  return %r : !q
}
func.func @region(%q: !q, %k: !k, %v: !k, %o: !q) -> !q {
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 256 : index
      %causal = arith.cmpi sge, %i, %j : index
      %d = arith.subi %i, %j : index
      %near = arith.cmpi slt, %d, %c : index
      %admits = arith.andi %causal, %near : i1
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    } outs(%o : !q) -> !q
  return %r : !q
}
