// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s

// A team, which is a warp, for each of 16 codes of each of 2 heads. 32 codes are
// looked at in one vote, and those of eight votes are loaded together; lanes
// say which votes have found some. A column is one lane's.
// CHECK-LABEL: func.func @accumulate
// CHECK: gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c32, {{.*}}) threads({{.*}}) in (%{{[a-z0-9]+}} = %c32,
// CHECK: scf.for {{.*}} to %c300 step %c256
// CHECK-COUNT-8: memref.load {{.*}} : memref<1x2x300xi32>
// CHECK-COUNT-9: nvvm.vote.sync ballot
// CHECK: scf.while
// CHECK: %[[VOTE:.*]] = "llvm.intr.cttz"
// CHECK: nvvm.shfl.sync idx {{.*}}, %[[VOTE]],
// CHECK: scf.while
// CHECK: llvm.intr.cttz
// All lanes have read the count before one of them stores the next.
// CHECK: memref.load {{.*}} : memref<1x2x16xi32>
// CHECK: nvvm.bar.warp.sync
// CHECK: scf.if
// CHECK: memref.store {{.*}} : memref<1x2x16xi32>
// CHECK: nvvm.bar.warp.sync
// CHECK: scf.if
// CHECK: scf.for {{.*}} to %c64 step %c32
// CHECK: memref.load {{.*}} : memref<1x2x300x64xbf16>
// CHECK: memref.store {{.*}} : memref<1x2x16x64xf32>
// CHECK: } else {
// CHECK: scf.for {{.*}} to %c64 step %c32
// CHECK: math.fma
// CHECK: memref.store {{.*}} : memref<1x2x16x64xf32>
func.func @accumulate(%z: memref<1x2x300xi32>, %v: memref<1x2x300x64xbf16>, %m: memref<1x2x16x64xf32>, %n: memref<1x2x16xi32>) {
  attn.codebook_accumulate ins(%z, %v : memref<1x2x300xi32>, memref<1x2x300x64xbf16>) outs(%m, %n : memref<1x2x16x64xf32>, memref<1x2x16xi32>)
  return
}

// So many tokens that they are sorted: five chunks of each of 2 heads are
// counted, then added up by a warp for each code and for each head, and gone
// through again. What lanes have stored for tokens before is there before it is
// read, and what they store is not before others have read. Then a team for each
// code and 64 of 96 columns goes through 16 rows at once; counts are last.
// CHECK-LABEL: func.func @sorted
// CHECK: gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c10, {{.*}}) threads({{.*}}) in (%{{[a-z0-9]+}} = %c32,
// CHECK: nvvm.match.sync any %{{.*}}, %{{.*}} : i32 -> i32
// CHECK: nvvm.bar.warp.sync
// CHECK: memref.load {{.*}} : memref<16xi32, #gpu.address_space<workgroup>>
// CHECK: nvvm.bar.warp.sync
// CHECK: memref.store {{.*}} : memref<16xi32, #gpu.address_space<workgroup>>
// CHECK: gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c32,
// CHECK-COUNT-6: nvvm.shfl.sync idx
// CHECK: gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c2,
// CHECK-COUNT-6: nvvm.shfl.sync idx
// CHECK: gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c10,
// CHECK: nvvm.match.sync any
// CHECK: memref.store {{.*}} : memref<1x2x5000xi32>
// CHECK: gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c64,
// CHECK: scf.for {{.*}} step %c16
// CHECK: memref.load {{.*}} : memref<1x2x5000xi32>
// CHECK-COUNT-32: memref.load {{.*}} : memref<1x2x5000x96xbf16>
// CHECK-COUNT-32: math.fma
// CHECK: memref.store {{.*}} : memref<1x2x16x96xf32>
// CHECK: scf.parallel
// CHECK: memref.store {{.*}} : memref<1x2x16xi32>
func.func @sorted(%z: memref<1x2x5000xi32>, %v: memref<1x2x5000x96xbf16>, %m: memref<1x2x16x96xf32>, %n: memref<1x2x16xi32>) {
  attn.codebook_accumulate ins(%z, %v : memref<1x2x5000xi32>, memref<1x2x5000x96xbf16>) outs(%m, %n : memref<1x2x16x96xf32>, memref<1x2x16xi32>)
  return
}

// A slice may have a length that only the device knows: tokens are looked for.
// CHECK-LABEL: func.func @slice
// CHECK-NOT: nvvm.match
// CHECK: nvvm.vote.sync ballot
// CHECK-NOT: nvvm.match
// CHECK: return
func.func @slice(%z: memref<1x2x5000xi32>, %v: memref<1x2x5000x96xbf16>, %m: memref<1x2x16x96xf32>, %n: memref<1x2x16xi32>, %size: index) {
  %zs = memref.subview %z[0, 0, 0] [1, 2, %size] [1, 1, 1] : memref<1x2x5000xi32> to memref<1x2x?xi32, strided<[10000, 5000, 1]>>
  %vs = memref.subview %v[0, 0, 0, 0] [1, 2, %size, 96] [1, 1, 1, 1] : memref<1x2x5000x96xbf16> to memref<1x2x?x96xbf16, strided<[960000, 480000, 96, 1]>>
  attn.codebook_accumulate ins(%zs, %vs : memref<1x2x?xi32, strided<[10000, 5000, 1]>>, memref<1x2x?x96xbf16, strided<[960000, 480000, 96, 1]>>) outs(%m, %n : memref<1x2x16x96xf32>, memref<1x2x16xi32>)
  return
}

// Keys of any number are sorted. Sums are in registers over the heads of a set.
// CHECK-LABEL: func.func @update
// CHECK: nvvm.match.sync any
// CHECK: nvvm.match.sync any
// CHECK: gpu.launch
// CHECK: scf.for {{.*}} iter_args
// CHECK: scf.for {{.*}} iter_args
// CHECK: scf.for {{.*}} step %c16 iter_args
// CHECK-COUNT-16: arith.addf
func.func @update(%k: memref<2x3x?x32xf32>, %z: memref<2x3x?xi32>, %c: memref<1x5x32xf32>, %s: memref<1x5x32xf32>, %n: memref<1x5xf32>) {
  attn.codebook_update ins(%k, %z : memref<2x3x?x32xf32>, memref<2x3x?xi32>) outs(%c, %s, %n : memref<1x5x32xf32>, memref<1x5x32xf32>, memref<1x5xf32>)
  return
}

// Blocks on their own: a team copies the initial state, or sorts the tokens of a
// block in shared memory and goes through 16 rows at once. It stores a mean
// where the tokens of its code end. Then a team for each code merges the
// entries, eight at once, and one adds up their counts.
// CHECK-LABEL: func.func @scan(
// CHECK: gpu.launch
// CHECK-NOT: nvvm.vote.sync
// CHECK: scf.if
// CHECK-COUNT-16: memref.load {{.*}} : memref<1x2x4x8xf32>
// CHECK: } else {
// CHECK-COUNT-8: memref.load {{.*}} : memref<1x2x64xi32>
// CHECK: memref.store {{.*}} : memref<16xi32, #gpu.address_space<workgroup>>
// CHECK: nvvm.match.sync any
// CHECK-COUNT-6: nvvm.shfl.sync idx
// CHECK: nvvm.match.sync any
// CHECK: scf.for {{.*}} step %c16 iter_args
// CHECK: arith.divf
// CHECK-COUNT-16: memref.load {{.*}} : memref<1x2x64x8xf32>
// CHECK-COUNT-16: math.fma
// CHECK: gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c8,
// CHECK: scf.for {{.*}} = %c1 to %{{.*}} step %c8
// CHECK-COUNT-8: math.fma
// CHECK: memref.store {{.*}} : memref<1x2x?x4x8xf32>
// CHECK: gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c8,
// CHECK-COUNT-5: nvvm.shfl.sync idx
// CHECK: memref.store {{.*}} : memref<1x2x?x4xi32>
// CHECK-NOT: gpu.launch
// CHECK: return
func.func @scan(%z: memref<1x2x64xi32>, %v: memref<1x2x64x8xf32>, %m: memref<1x2x4x8xf32>, %n: memref<1x2x4xi32>, %ms: memref<1x2x?x4x8xf32>, %ns: memref<1x2x?x4xi32>) {
  attn.codebook_scan ins(%z, %v, %m, %n : memref<1x2x64xi32>, memref<1x2x64x8xf32>, memref<1x2x4x8xf32>, memref<1x2x4xi32>)
      outs(%ms, %ns : memref<1x2x?x4x8xf32>, memref<1x2x?x4xi32>) {block = 16 : i64, reduction = #attn.reduction<associative>}
  return
}

// Blocks of so many tokens do not fit the shared memory of a team, which looks
// for the tokens of its codes.
// CHECK-LABEL: func.func @scan_of_long_blocks
// CHECK: gpu.launch
// CHECK-NOT: nvvm.match
// CHECK: nvvm.vote.sync ballot
// CHECK-NOT: nvvm.match
// CHECK: return
func.func @scan_of_long_blocks(%z: memref<1x2x4096xi32>, %v: memref<1x2x4096x8xf32>, %m: memref<1x2x4x8xf32>, %n: memref<1x2x4xi32>, %ms: memref<1x2x3x4x8xf32>, %ns: memref<1x2x3x4xi32>) {
  attn.codebook_scan ins(%z, %v, %m, %n : memref<1x2x4096xi32>, memref<1x2x4096x8xf32>, memref<1x2x4x8xf32>, memref<1x2x4xi32>)
      outs(%ms, %ns : memref<1x2x3x4x8xf32>, memref<1x2x3x4xi32>) {block = 2048 : i64, reduction = #attn.reduction<associative>}
  return
}

// Summaries go on from each other in f32, of which a buffer is left; what nobody
// goes on from is stored narrow, entry 0 among it.
// CHECK-LABEL: func.func @rounded_scan
// CHECK: %[[S:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<1x2x?x4x8xf32>
// CHECK: gpu.launch
// CHECK: memref.store {{.*}} : memref<1x2x?x4x8xf32>
// CHECK: gpu.launch
// CHECK-NOT: memref.store {{.*}} : memref<1x2x?x4x8xf32>
// CHECK: memref.load %[[S]]
// CHECK: arith.truncf
// CHECK: memref.store {{.*}} : memref<1x2x?x4x8xbf16>
// CHECK: scf.for {{.*}} = %c1 to %{{.*}} step %c8
// CHECK: memref.load %[[S]]
// CHECK-COUNT-8: math.fma
// CHECK: arith.truncf
// CHECK: memref.store {{.*}} : memref<1x2x?x4x8xbf16>
// CHECK: gpu.launch
// CHECK: memref.store {{.*}} : memref<1x2x?x4xi32>
// CHECK-NOT: gpu.launch
// CHECK: memref.dealloc %[[S]]
func.func @rounded_scan(%z: memref<1x2x64xi32>, %v: memref<1x2x64x8xbf16>, %m: memref<1x2x4x8xf32>, %n: memref<1x2x4xi32>, %ms: memref<1x2x?x4x8xbf16>, %ns: memref<1x2x?x4xi32>) {
  attn.codebook_scan ins(%z, %v, %m, %n : memref<1x2x64xi32>, memref<1x2x64x8xbf16>, memref<1x2x4x8xf32>, memref<1x2x4xi32>)
      outs(%ms, %ns : memref<1x2x?x4x8xbf16>, memref<1x2x?x4xi32>) {block = 16 : i64}
  return
}

// A count alone is a row of one, and a team's.
// CHECK-LABEL: func.func @log_count_of_one(
// CHECK: gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c1,
// CHECK: memref.store {{.*}} : memref<1xf32>
func.func @log_count_of_one(%n: memref<i32>, %w: memref<f32>) {
  attn.log_count ins(%n : memref<i32>) outs(%w : memref<f32>)
  return
}

// CHECK-LABEL: func.func @log_count(
// CHECK: gpu.launch
// CHECK: arith.sitofp
func.func @log_count(%n: memref<1x2x4xi32>, %w: memref<1x2x4xf32>) {
  attn.log_count ins(%n : memref<1x2x4xi32>) outs(%w : memref<1x2x4xf32>)
  return
}

// -----

func.func @f64(%n: memref<4xi32>, %w: memref<4xf64>) {
  // expected-error@+1 {{'attn.log_count' op has data of type 'f64', but GPU kernels take f16, bf16 and f32}}
  attn.log_count ins(%n : memref<4xi32>) outs(%w : memref<4xf64>)
  return
}
