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

// Blocks on their own, then a tree of merges: five entries take three levels.
// CHECK-LABEL: func.func @scan
// CHECK: gpu.launch
// CHECK: nvvm.vote.sync ballot
// CHECK: scf.for {{.*}} = %c0 to %c3 step %c1
// CHECK: gpu.launch
// CHECK: scf.for {{.*}} = %c0 to %c3 step %c1
// CHECK: gpu.launch
// CHECK-NOT: gpu.launch
// CHECK: return
func.func @scan(%z: memref<1x2x64xi32>, %v: memref<1x2x64x8xf32>, %m: memref<1x2x4x8xf32>, %n: memref<1x2x4xi32>, %ms: memref<1x2x5x4x8xf32>, %ns: memref<1x2x5x4xi32>) {
  attn.codebook_scan ins(%z, %v, %m, %n : memref<1x2x64xi32>, memref<1x2x64x8xf32>, memref<1x2x4x8xf32>, memref<1x2x4xi32>)
      outs(%ms, %ns : memref<1x2x5x4x8xf32>, memref<1x2x5x4xi32>) {block = 16 : i64, reduction = #attn.reduction<associative>}
  return
}

// The levels of a tree over entries that only run time knows.
// CHECK-LABEL: func.func @entries(
// CHECK: gpu.launch
// CHECK: %[[ZEROS:.*]] = math.ctlz
// CHECK: %[[INDEX:.*]] = arith.index_cast %[[ZEROS]]
// CHECK: %[[LEVELS:.*]] = arith.subi %c64, %[[INDEX]] : index
// CHECK: scf.for {{.*}} = %c0 to %[[LEVELS]] step %c1
// CHECK: gpu.launch
// CHECK: scf.for {{.*}} = %c0 to %[[LEVELS]] step %c1
// CHECK: gpu.launch
func.func @entries(%z: memref<1x2x64xi32>, %v: memref<1x2x64x8xf32>, %m: memref<1x2x4x8xf32>, %n: memref<1x2x4xi32>, %ms: memref<1x2x?x4x8xf32>, %ns: memref<1x2x?x4xi32>) {
  attn.codebook_scan ins(%z, %v, %m, %n : memref<1x2x64xi32>, memref<1x2x64x8xf32>, memref<1x2x4x8xf32>, memref<1x2x4xi32>)
      outs(%ms, %ns : memref<1x2x?x4x8xf32>, memref<1x2x?x4xi32>) {block = 16 : i64, reduction = #attn.reduction<associative>}
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
