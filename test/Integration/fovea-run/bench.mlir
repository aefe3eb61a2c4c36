// RUN: fovea-run %s --random --bench=0.05 --threads=1 | FileCheck %s
// CHECK: @main on '{{.+}}', 1 thread, {{[0-9]+}} runs
// CHECK-NEXT: time {{.+}} ms median
// CHECK-NEXT: work      0.000262144 GFLOP, {{.+}} GFLOP/s, {{.+}} % of the f32 peak
// CHECK-NEXT: data      0.024576 MB in and out
// CHECK-NEXT: memory    {{.+}} MB for results and intermediates
// CHECK-NEXT: compile {{.+}} ms: parse
//
// RUN: fovea-run %s --random=5 --bench=0.05 --threads=2 --json --compare=reference | %python -m json.tool | FileCheck %s --check-prefix=JSON
// JSON-DAG: "median_seconds"
// JSON-DAG: "fraction_of_peak"
// JSON-DAG: "useful_gflop": 0.000262144
// JSON-DAG: "threads": 2
// JSON-DAG: "agrees": true
// JSON-DAG: "entry": "main"
//
// The emulator counts, and gives no times.
//
// RUN: fovea-run %s --random --bench=0.01 --target=gpu-sim | FileCheck %s --check-prefix=EMULATED --implicit-check-not="/s"
// EMULATED: @main in the emulator, one run: its time says nothing of a GPU's
// EMULATED-NEXT: work      0.000262144 GFLOP in 384 mma.sync and 0 wgmma
// EMULATED-NEXT: data      0.024576 MB in and out, 0.02048 MB copied asynchronously
// EMULATED-NEXT: launches  1 kernels, 2 blocks, 128 threads, 8 barriers
// EMULATED-NEXT: shared    10 KB of a block at most, 1.00 passes over its banks for each ideal one of ldmatrix
// EMULATED-NEXT: compile {{.+}} ms: parse
//
// RUN: fovea-run %s --random --bench=0.01 --target=gpu-sim --json | %python -m json.tool | FileCheck %s --check-prefix=COUNTS --implicit-check-not=median
// COUNTS-DAG: "clock": "none"
// COUNTS-DAG: "llvm.nvvm.mma.m16n8k8.row.col.tf32": 384
//
// A device, by a driver on which everything takes 1.5 ms: a copy of a quarter of
// its 64 MB; products of tf32 that four warps do at once, 128 columns wide and 8
// deep, 8 in each of 64 iterations, in two blocks of two such groups on each of 16
// multiprocessors.
//
// RUN: env FOVEA_LIBCUDA=%fake_cuda FAKE_CUDA_KERNELS= fovea-run %s --random --bench=0.01 --target=gpu | FileCheck %s --check-prefix=DEVICE
// DEVICE: @main on Fake 0, {{[0-9]+}} runs
// DEVICE-NEXT: on device 1.5 ms median, 1.5 .. 1.5 ms
// DEVICE-NEXT: work      0.000262144 GFLOP, 0.00017476 TFLOP/s, 0.0 % of tf32 products (2.8633 TFLOP/s)
// DEVICE-NEXT: data      0.024576 MB in and out, 0.01638 GB/s, 0.1 % of a copy ({{22[.][0-9]+}} GB/s)
// DEVICE-NEXT: compile {{.+}} ms: parse
//
// RUN: env FOVEA_LIBCUDA=%fake_cuda FAKE_CUDA_KERNELS= fovea-run %s --random --bench=0.01 --target=gpu --json | %python -m json.tool | FileCheck %s --check-prefix=RATES
// RATES-DAG: "chip": "sm_90a"
// RATES-DAG: "clock": "device"
// RATES-DAG: "device": "Fake 0"
// RATES-DAG: "peak_gflops": 2863.31
// RATES-DAG: "peak_type": "tf32"
// RATES-DAG: "fraction_of_peak": 6.10
// RATES-DAG: "fraction_of_copy": 0.000733
//
// Where the peaks cannot be measured, the text says why.
//
// RUN: env FOVEA_LIBCUDA=%fake_cuda FAKE_CUDA_KERNELS=main fovea-run %s --random --bench=0.01 --target=gpu | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: work      {{.+}} TFLOP/s; the device's peak is not known: {{.*}}'fovea_peak_products'
// UNKNOWN-NEXT: data      {{.+}} GB/s; the device's peak is not known: {{.*}}'fovea_peak_copy'
//
func.func @main(%q: tensor<1x2x32x16xf32>, %k: tensor<1x2x64x16xf32>,
                %v: tensor<1x2x64x16xf32>) -> tensor<1x2x32x16xf32> {
  %init = tensor.empty() : tensor<1x2x32x16xf32>
  %out = attn.dense
      ins(%q, %k, %v : tensor<1x2x32x16xf32>, tensor<1x2x64x16xf32>,
                       tensor<1x2x64x16xf32>)
      outs(%init : tensor<1x2x32x16xf32>) -> tensor<1x2x32x16xf32>
  return %out : tensor<1x2x32x16xf32>
}
