// Results of a right kernel have the same bits in any order of threads and copies; a sum by atomic additions, in the order in which
// threads come, does not.

// RUN: fovea-run %s --entry=right --target=gpu-sim --chip=sm_90a --random --schedule=seed=3 --schedule=seed=4,eager | FileCheck %s
// CHECK: schedule 'seed=3' gives the same bits
// CHECK: schedule 'seed=4,eager' gives the same bits
// RUN: not fovea-run %s --entry=sum --target=gpu-sim --random --schedule=eager --schedule=seed=3 2>&1 | FileCheck %s --check-prefix=SUM
// SUM-DAG: schedule 'eager' gives the same bits
// SUM-DAG: error: result 0 depends on the order of threads and copies: schedule 'seed=3' gives other bits
// RUN: not fovea-run %s --entry=sum --target=gpu-sim --random --schedule=seed=3 --json | FileCheck %s --check-prefix=JSON
// JSON: {"agrees":false,"schedule":"seed=3"}

// RUN: not fovea-run %s --entry=sum --random --schedule=seed=3 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: error: --schedule is for the emulator: expected --target=gpu-sim, but got cpu
// RUN: not fovea-run %s --entry=sum --target=gpu-sim --random --schedule=seed=x 2>&1 | FileCheck %s --check-prefix=SEED
// SEED: error: --schedule: option 'seed' of the emulator is a number of 32 bits, but got 'seed=x'
// RUN: not fovea-run %s --entry=sum --target=gpu-sim --random --schedule=races=2 2>&1 | FileCheck %s --check-prefix=FLAG
// FLAG: error: --schedule: option 'races' of the emulator is 0 or 1, but got 'races=2'
// RUN: not env FOVEA_SIMT=races=0,sed=3 fovea-run %s --entry=sum --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=ENV
// ENV: failed: FOVEA_SIMT: the emulator has no option 'sed=3'; expected seed, eager, races, banks, clocks, transforms, products or chip

!n = tensor<1x2x100x64xbf16>

func.func @right(%q: !n, %k: !n, %v: !n, %o: !n) -> !n {
  %r = attn.dense ins(%q, %k, %v : !n, !n, !n) outs(%o : !n) -> !n
  return %r : !n
}

func.func @sum(%x: tensor<256xf32>, %z: tensor<1xf32>) -> tensor<1xf32> {
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  %c256 = arith.constant 256 : index
  %xs = bufferization.to_buffer %x : tensor<256xf32> to memref<256xf32>
  %y = bufferization.alloc_tensor() copy(%z) : tensor<1xf32>
  %ys = bufferization.to_buffer %y : tensor<1xf32> to memref<1xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) {
    %v = memref.load %xs[%tx] : memref<256xf32>
    %old = memref.atomic_rmw addf %v, %ys[%c0] : (f32, memref<1xf32>) -> f32
    gpu.terminator
  }
  %r = bufferization.to_tensor %ys restrict : memref<1xf32> to tensor<1xf32>
  return %r : tensor<1xf32>
}
