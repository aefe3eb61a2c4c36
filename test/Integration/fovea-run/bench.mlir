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
// RUN: fovea-run %s --random --bench=0.01 --target=gpu-sim | FileCheck %s --check-prefix=DEVICE
// DEVICE: @main on the device, {{[0-9]+}} runs
// DEVICE-NEXT: on device {{.+}} ms median
// DEVICE-NEXT: work      0.000262144 GFLOP, {{.+}} GFLOP/s{{$}}
// DEVICE-NEXT: data      0.024576 MB in and out
// DEVICE-NEXT: compile {{.+}} ms: parse

func.func @main(%q: tensor<1x2x32x16xf32>, %k: tensor<1x2x64x16xf32>,
                %v: tensor<1x2x64x16xf32>) -> tensor<1x2x32x16xf32> {
  %init = tensor.empty() : tensor<1x2x32x16xf32>
  %out = attn.dense
      ins(%q, %k, %v : tensor<1x2x32x16xf32>, tensor<1x2x64x16xf32>,
                       tensor<1x2x64x16xf32>)
      outs(%init : tensor<1x2x32x16xf32>) -> tensor<1x2x32x16xf32>
  return %out : tensor<1x2x32x16xf32>
}
