// Tiles that a score region removes are not visited: there are as many products
// as with a mask that is built in, or with documents of their own. Quotients do
// not become such masks before.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=causal --target=gpu-sim --random --bench > %t
// RUN: fovea-run %s --entry=causal_region --target=gpu-sim --random --bench >> %t
// RUN: FileCheck %s --check-prefix=SAME < %t
// RUN: fovea-run %s --entry=window --target=gpu-sim --random --bench > %t
// RUN: fovea-run %s --entry=window_region --target=gpu-sim --random --bench >> %t
// RUN: FileCheck %s --check-prefix=SAME < %t
// SAME: work {{.*}} GFLOP in [[PRODUCTS:[1-9][0-9]*]] mma.sync
// SAME: work {{.*}} GFLOP in [[PRODUCTS]] mma.sync

// What is computed on numbers removes as much and skips nothing.
// RUN: fovea-run %s --entry=numbers --target=gpu-sim --random --bench > %t
// RUN: fovea-run %s --entry=causal_region --target=gpu-sim --random --bench >> %t
// RUN: not FileCheck %s --check-prefix=SAME < %t

// RUN: fovea-run %s --entry=causal_region --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=window_region --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=causal_region --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=window_region --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=nothing --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=nothing --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs

// So it is with tiles of warpgroups.
// RUN: fovea-run %s --entry=numbers --target=gpu-sim --chip=sm_90a --random --bench > %t
// RUN: fovea-run %s --entry=window_region --target=gpu-sim --chip=sm_90a --random --bench >> %t
// RUN: FileCheck %s --check-prefix=GROUPS < %t
// GROUPS: work {{.*}} GFLOP in 0 mma.sync and [[ALL:[1-9][0-9]*]] wgmma
// GROUPS: work {{.*}} GFLOP in 0 mma.sync and
// GROUPS-NOT: {{ }}[[ALL]] wgmma

// The compiler says so.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_80 host=false" --remarks-filter='attn.*' --remark-policy=all --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARKS
// REMARKS-DAG: [Passed] ScoreTilesSkipped | Category:attn.stream | Bounded=1, Conditions=1
// REMARKS-DAG: [Missed] ScoreTilesSkipped | Category:attn.stream | Bounded=0, Conditions=1

!t = tensor<1x1x600x64xf16>

func.func @causal(%q: !t, %k: !t, %v: !t, %o: !t) -> !t {
  %r = attn.dense ins(%q, %k, %v : !t, !t, !t) outs(%o : !t) {mask = #attn.mask<causal>} -> !t
  return %r : !t
}
func.func @causal_region(%q: !t, %k: !t, %v: !t, %o: !t) -> !t {
  %r = attn.dense ins(%q, %k, %v : !t, !t, !t)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c0 = arith.constant 0 : index
      %c1024 = arith.constant 1024 : index
      %distance = arith.subi %i, %j : index
      %quotient = arith.floordivsi %distance, %c1024 : index
      %admits = arith.cmpi sge, %quotient, %c0 : index
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    } outs(%o : !t) -> !t
  return %r : !t
}
func.func @numbers(%q: !t, %k: !t, %v: !t, %o: !t) -> !t {
  %r = attn.dense ins(%q, %k, %v : !t, !t, !t)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %query = arith.index_cast %i : index to i32
      %key = arith.index_cast %j : index to i32
      %x = arith.sitofp %query : i32 to f32
      %y = arith.sitofp %key : i32 to f32
      %admits = arith.cmpf oge, %x, %y : f32
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    } outs(%o : !t) -> !t
  return %r : !t
}
func.func @window(%q: !t, %k: !t, %v: !t, %o: !t) -> !t {
  %r = attn.dense ins(%q, %k, %v : !t, !t, !t) outs(%o : !t) {mask = #attn.mask<causal, window = 65>} -> !t
  return %r : !t
}
func.func @window_region(%q: !t, %k: !t, %v: !t, %o: !t) -> !t {
  %r = attn.dense ins(%q, %k, %v : !t, !t, !t)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c65 = arith.constant 65 : index
      %c0 = arith.constant 0 : index
      %distance = arith.subi %i, %j : index
      %quotient = arith.floordivsi %distance, %c65 : index
      %admits = arith.cmpi eq, %quotient, %c0 : index
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    } outs(%o : !t) -> !t
  return %r : !t
}
func.func @nothing(%q: !t, %k: !t, %v: !t, %o: !t) -> !t {
  %r = attn.dense ins(%q, %k, %v : !t, !t, !t)
    score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c0 = arith.constant 0 : index
      %admits = arith.cmpi slt, %j, %c0 : index
      %removed = arith.constant 0xFF800000 : f32
      %t = arith.select %admits, %s, %removed : f32
      attn.yield %t : f32
    } outs(%o : !t) -> !t
  return %r : !t
}
