// Clocks of the emulator: warpgroups that multiply in turns, and wait for copies and for the tensor cores.

// RUN: fovea-run %s --target=gpu-sim --chip=sm_90a --random --clocks | FileCheck %s
// CHECK: kernel {{.*}} by clocks: modelled, not measured
// CHECK-NEXT: blocks 2, 1 of a multiprocessor
// CHECK-NEXT: loads L2, middle, HBM, all
// CHECK-NEXT: longest {{[0-9]+}}, {{[0-9]+}}, {{[0-9]+}}, {{[0-9]+}} cycles of a block
// CHECK-NEXT: median
// A tile of 128 keys and 128 queries asks for 2048 cycles of the tensor cores.
// CHECK-NEXT: tile 20{{[0-9][0-9]}}, 20{{[0-9][0-9]}}, 20{{[0-9][0-9]}}, {{[0-9]+}} cycles, half of the rounds; the longest block has 8
// CHECK-NEXT: beside {{[0-9]+}}
// CHECK-NEXT: busy issue {{[0-9]+}} %, {{.*}}exponentials {{.*}}tensor cores {{[5-9][0-9]}} %, copies
// CHECK-NEXT: waits cycles of a warp in a block, share of its time
// CHECK-DAG: threads 256-383 at mbarrier.try_wait, operation {{[0-9]+}}, for threads 128-255
// CHECK-DAG: threads 0-127 at mbarrier.try_wait, operation {{[0-9]+}}, for copies
// CHECK: estimate H100, H200: {{.*}} ms, {{.*}} to {{.*}}, at 1.6 GHz, without the launch
// CHECK-NEXT: B200: none, as it has no products of warpgroups; compile for --chip=sm_100

// RUN: fovea-run %s --target=gpu-sim --chip=sm_100 --random --clocks | FileCheck %s --check-prefix=WARPS
// WARPS: busy {{.*}}mma.sync {{[5-9][0-9]}} %
// WARPS: estimate H100, H200: {{.*}} ms, {{.*}} to {{.*}}, at 1.6 GHz, without the launch
// WARPS-NEXT: B200: {{.*}} ms, {{.*}} to {{.*}}, at 1.85 GHz, without the launch

// RUN: fovea-run %s --target=gpu-sim --chip=sm_90a --random --clocks --json | FileCheck %s --check-prefix=JSON
// JSON: "clocks":[{"beside_cycles":[{{.*}}],"blocks":2,"busy":{"copies":
// JSON-SAME: "estimates":[{"device":"H100, H200","gigahertz":1.6{{.*}},"milliseconds":[{{.*}}]},{"device":"B200","gigahertz":1.85{{.*}},"milliseconds":null}]
// JSON-SAME: "tiles":8,"waits":[{"cycles":

// A program that has no --clocks.
// RUN: env FOVEA_SIMT=clocks fovea-run %s --target=gpu-sim --chip=sm_90a --random --json 2>&1 | FileCheck %s --check-prefix=STDERR
// STDERR: by clocks: modelled, not measured

// RUN: not fovea-run %s --random --clocks 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: error: --clocks are those of the emulator: expected --target=gpu-sim, but got cpu

!q = tensor<1x1x256x128xbf16>
!k = tensor<1x1x1024x128xbf16>

func.func @f(%q: !q, %k: !k, %v: !k, %o: !q) -> !q {
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) outs(%o : !q) -> !q
  return %r : !q
}
