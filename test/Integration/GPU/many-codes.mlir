// So many codes that a warp has three of them: its votes find tokens of each, in their order. The last warp of a head has one code.

// RUN: fovea-run %s --entry=accumulate --random --target=gpu-sim --compare=reference --schedule=seed=2 | FileCheck %s
// RUN: fovea-run %s --entry=many_tokens --random --target=gpu-sim --compare=reference --schedule=seed=2 | FileCheck %s
// RUN: fovea-run %s --entry=sorted --random --target=gpu-sim --compare=reference --schedule=seed=2 --schedule=seed=3,eager | FileCheck %s
// CHECK-COUNT-2: agrees with the reference
// CHECK-NOT: differs

!z = tensor<2x16x70xi32>
!v = tensor<2x16x70x5xf32>
!m = tensor<2x16x1000x5xf32>
!n = tensor<2x16x1000xi32>
func.func @accumulate(%v: !v) -> (!m, !n) {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i32
  %e = tensor.empty() : !z
  // Neighbours in one warp, codes that return, the last one, and none.
  %z = linalg.generic {indexing_maps = [affine_map<(b, h, i) -> (b, h, i)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%e : !z) {
  ^bb0(%old: i32):
    %h = linalg.index 1 : index
    %i = linalg.index 2 : index
    %c8 = arith.constant 8 : index
    %c125 = arith.constant 125 : index
    %c7 = arith.constant 7 : index
    %group = arith.remui %i, %c8 : index
    %far = arith.muli %group, %c125 : index
    %near = arith.divui %i, %c7 : index
    %sum = arith.addi %far, %near : index
    %shifted = arith.addi %sum, %h : index
    %c999 = arith.constant 999 : index
    %code = arith.minui %shifted, %c999 : index
    %found = arith.index_cast %code : index to i32
    %last = arith.cmpi eq, %i, %c7 : index
    %absent = arith.constant -1 : i32
    %r = arith.select %last, %absent, %found : i32
    linalg.yield %r : i32
  } -> !z
  %em = tensor.empty() : !m
  %m = linalg.fill ins(%zero : f32) outs(%em : !m) -> !m
  %en = tensor.empty() : !n
  %n = linalg.fill ins(%none : i32) outs(%en : !n) -> !n
  %r:2 = attn.codebook_accumulate ins(%z, %v : !z, !v) outs(%m, %n : !m, !n) -> !m, !n
  return %r#0, %r#1 : !m, !n
}

// So many tokens that a warp has the codes of eight votes at once, and then those of three: votes that find one, several or none.
!zt = tensor<1x2x600xi32>
!vt = tensor<1x2x600x5xf32>
!mt = tensor<1x2x5x5xf32>
!nt = tensor<1x2x5xi32>
func.func @many_tokens(%v: !vt) -> (!mt, !nt) {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i32
  %e = tensor.empty() : !zt
  // Code 0 is that of most, 1 of the last one, 2 of one in the second vote and the eighth, 3 of 40 in a row, 4 of none.
  %z = linalg.generic {indexing_maps = [affine_map<(b, h, i) -> (b, h, i)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%e : !zt) {
  ^bb0(%old: i32):
    %i = linalg.index 2 : index
    %c599 = arith.constant 599 : index
    %c63 = arith.constant 63 : index
    %c224 = arith.constant 224 : index
    %c280 = arith.constant 280 : index
    %c320 = arith.constant 320 : index
    %code0 = arith.constant 0 : i32
    %code1 = arith.constant 1 : i32
    %code2 = arith.constant 2 : i32
    %code3 = arith.constant 3 : i32
    %last = arith.cmpi eq, %i, %c599 : index
    %second = arith.cmpi eq, %i, %c63 : index
    %eighth = arith.cmpi eq, %i, %c224 : index
    %from = arith.cmpi uge, %i, %c280 : index
    %to = arith.cmpi ult, %i, %c320 : index
    %row = arith.andi %from, %to : i1
    %single = arith.ori %second, %eighth : i1
    %a = arith.select %last, %code1, %code0 : i32
    %b = arith.select %single, %code2, %a : i32
    %r = arith.select %row, %code3, %b : i32
    linalg.yield %r : i32
  } -> !zt
  %em = tensor.empty() : !mt
  %m = linalg.fill ins(%zero : f32) outs(%em : !mt) -> !mt
  %en = tensor.empty() : !nt
  %n = linalg.fill ins(%none : i32) outs(%en : !nt) -> !nt
  %r:2 = attn.codebook_accumulate ins(%z, %v : !zt, !vt) outs(%m, %n : !mt, !nt) -> !mt, !nt
  return %r#0, %r#1 : !mt, !nt
}

// So many tokens that they are sorted: five chunks, the last of which is not full. Code 0 has most of the first head's, the others few,
// as 3, of tokens in a row that go from one chunk to the next, or one, as 4, the last token; code 5 has none. Every seventh token has
// no code. Columns of two lanes are in part beyond the width.
// Of values that go on from means and counts, one code has no count yet, and its mean is NaN.
!zs = tensor<2x2x4500xi32>
!vs = tensor<2x2x4500x37xf16>
!ms = tensor<2x2x6x37xf32>
!ns = tensor<2x2x6xi32>
!cs = tensor<2x6x37xf32>
!ss = tensor<2x6xf32>
!ct = tensor<1x6x37xf16>
!st = tensor<1x6x37xf32>
!tt = tensor<1x6xf32>
func.func @sorted(%v: !vs, %m0: !ms, %words: !cs, %sums: !cs, %counts: !ss, %word: !ct, %sum: !st, %count: !tt) -> (!ms, !ns, !cs, !cs, !ss, !ct, !st, !tt) {
  %e = tensor.empty() : !zs
  %z = linalg.generic {indexing_maps = [affine_map<(b, h, i) -> (b, h, i)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%e : !zs) {
  ^bb0(%old: i32):
    %b = linalg.index 0 : index
    %h = linalg.index 1 : index
    %i = linalg.index 2 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c7 = arith.constant 7 : index
    %c1000 = arith.constant 1000 : index
    %c1100 = arith.constant 1100 : index
    %c4499 = arith.constant 4499 : index
    %code0 = arith.constant 0 : i32
    %code3 = arith.constant 3 : i32
    %code4 = arith.constant 4 : i32
    %absent = arith.constant -1 : i32
    %cut = arith.divui %i, %c7 : index
    %third = arith.remui %cut, %c3 : index
    %second = arith.cmpi eq, %h, %c1 : index
    %spread = arith.select %second, %third, %c0 : index
    %any = arith.index_cast %spread : index to i32
    %from = arith.cmpi uge, %i, %c1000 : index
    %to = arith.cmpi ult, %i, %c1100 : index
    %row = arith.andi %from, %to : i1
    %a = arith.select %row, %code3, %any : i32
    %last = arith.cmpi eq, %i, %c4499 : index
    %c = arith.select %last, %code4, %a : i32
    %shifted = arith.addi %i, %b : index
    %rest = arith.remui %shifted, %c7 : index
    %none = arith.cmpi eq, %rest, %c1 : index
    %r = arith.select %none, %absent, %c : i32
    linalg.yield %r : i32
  } -> !zs
  %nan = arith.constant 0x7FC00000 : f32
  %m = linalg.map ins(%m0 : !ms) outs(%m0 : !ms) (%x: f32, %old: f32) {
    %s = linalg.index 2 : index
    %c2 = arith.constant 2 : index
    %isNew = arith.cmpi eq, %s, %c2 : index
    %start = arith.select %isNew, %nan, %x : f32
    linalg.yield %start : f32
  }
  %en = tensor.empty() : !ns
  %n = linalg.map outs(%en : !ns) (%old: i32) {
    %s = linalg.index 2 : index
    %c2 = arith.constant 2 : index
    %distance = arith.subi %s, %c2 : index
    %square = arith.muli %distance, %distance : index
    %number = arith.index_cast %square : index to i32
    linalg.yield %number : i32
  }
  %r:2 = attn.codebook_accumulate ins(%z, %v : !zs, !vs) outs(%m, %n : !ms, !ns) -> !ms, !ns
  // A set of codewords for each head, and one for both.
  %u:3 = attn.codebook_update ins(%v, %z : !vs, !zs) outs(%words, %sums, %counts : !cs, !cs, !ss) {rate = 0.5 : f64, min_count = 1.0 : f64} -> !cs, !cs, !ss
  %w:3 = attn.codebook_update ins(%v, %z : !vs, !zs) outs(%word, %sum, %count : !ct, !st, !tt) {rate = 0.5 : f64, min_count = 1.0 : f64} -> !ct, !st, !tt
  return %r#0, %r#1, %u#0, %u#1, %u#2, %w#0, %w#1, %w#2 : !ms, !ns, !cs, !cs, !ss, !ct, !st, !tt
}
