// What the emulator counts: matrices are read from shared memory without a bank
// conflict, and an sm_90a multiplies by warpgroups.

// RUN: fovea-run %s --entry=d64 --target=gpu-sim --random --bench | FileCheck %s --check-prefixes=CHECK,WARPS
// RUN: fovea-run %s --entry=d128 --target=gpu-sim --random --bench | FileCheck %s --check-prefixes=CHECK,WARPS
// RUN: fovea-run %s --entry=d40 --target=gpu-sim --random --bench | FileCheck %s --check-prefixes=CHECK,WARPS
// RUN: fovea-run %s --entry=d128 --target=gpu-sim --chip=sm_90a --random --bench | FileCheck %s --check-prefixes=CHECK,GROUPS
// CHECK: in the emulator, one run
// WARPS: work {{.*}} GFLOP in {{[1-9][0-9]*}} mma.sync and 0 wgmma
// GROUPS: work {{.*}} GFLOP in 0 mma.sync and {{[1-9][0-9]*}} wgmma
// WARPS: shared {{.*}}, 1.00 passes over its banks for each ideal one of ldmatrix

!n64 = tensor<1x2x200x64xf16>
!n128 = tensor<1x2x200x128xbf16>
!n40 = tensor<1x2x200x40xf32>

func.func @d64(%q: !n64, %k: !n64, %v: !n64, %o: !n64) -> !n64 {
  %r = attn.dense ins(%q, %k, %v : !n64, !n64, !n64) outs(%o : !n64) {mask = #attn.mask<causal>} -> !n64
  return %r : !n64
}
func.func @d128(%q: !n128, %k: !n128, %v: !n128, %o: !n128) -> !n128 {
  %r = attn.dense ins(%q, %k, %v : !n128, !n128, !n128) outs(%o : !n128) {mask = #attn.mask<causal>} -> !n128
  return %r : !n128
}
func.func @d40(%q: !n40, %k: !n40, %v: !n40, %o: !n40) -> !n40 {
  %r = attn.dense ins(%q, %k, %v : !n40, !n40, !n40) outs(%o : !n40) {mask = #attn.mask<causal>} -> !n40
  return %r : !n40
}
