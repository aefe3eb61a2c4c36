// Biases and functions of scores in kernels of sm_90a, in the emulator.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=soft_cap --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 | FileCheck %s
// RUN: fovea-run %s --entry=alibi --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=temperature --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=table --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=whole --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=odd --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=padding --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=own_columns --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=weighted --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=distances --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs

// These are the kernels that run.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=TILES
// TILES-COUNT-10: nvvm.reqntid = array<i32: {{256|384}}, 1, 1>

#full = affine_map<(b)[rows, n] -> (0, rows)>

// More keys than queries, an odd number of both; heads that share keys.
func.func @soft_cap(%q: tensor<2x4x131x64xbf16>, %k: tensor<2x2x203x64xbf16>, %v: tensor<2x2x203x72xbf16>) -> tensor<2x4x131x72xbf16> {
  %o = tensor.empty() : tensor<2x4x131x72xbf16>
  %r = attn.dense ins(%q, %k, %v : tensor<2x4x131x64xbf16>, tensor<2x2x203x64xbf16>, tensor<2x2x203x72xbf16>) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 2.0e+00 : f32
      %p = arith.divf %s, %c : f32
      %t = math.tanh %p : f32
      %y = arith.mulf %t, %c : f32
      attn.yield %y : f32
    } outs(%o : tensor<2x4x131x72xbf16>) {mask = #attn.mask<causal>} -> tensor<2x4x131x72xbf16>
  return %r : tensor<2x4x131x72xbf16>
}

func.func @alibi(%q: tensor<2x4x131x128xf16>, %k: tensor<2x2x131x128xf16>, %slopes: tensor<4xf32>) -> tensor<2x4x131x128xf16> {
  %o = tensor.empty() : tensor<2x4x131x128xf16>
  %r = attn.dense ins(%q, %k, %k : tensor<2x4x131x128xf16>, tensor<2x2x131x128xf16>, tensor<2x2x131x128xf16>) score(%slopes : tensor<4xf32>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %m: tensor<4xf32>):
      %slope = tensor.extract %m[%h] : tensor<4xf32>
      %d = arith.subi %j, %i : index
      %e = arith.index_cast %d : index to i32
      %g = arith.sitofp %e : i32 to f32
      %p = arith.mulf %g, %slope : f32
      %y = arith.addf %s, %p : f32
      attn.yield %y : f32
    } outs(%o : tensor<2x4x131x128xf16>) {mask = #attn.mask<causal, window = 90>} -> tensor<2x4x131x128xf16>
  return %r : tensor<2x4x131x128xf16>
}

// Every fifth entry is removed, all are divided by a number of the head.
func.func @temperature(%q: tensor<2x4x70x64xf16>, %k: tensor<2x2x131x64xf16>, %t: tensor<4xf32>) -> tensor<2x4x70x64xf16> {
  %o = tensor.empty() : tensor<2x4x70x64xf16>
  %r = attn.dense ins(%q, %k, %k : tensor<2x4x70x64xf16>, tensor<2x2x131x64xf16>, tensor<2x2x131x64xf16>) score(%t : tensor<4xf32>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %m: tensor<4xf32>):
      %number = tensor.extract %m[%h] : tensor<4xf32>
      %one = arith.constant 1.0 : f32
      %size = math.absf %number : f32
      %divisor = arith.addf %size, %one : f32
      %y = arith.divf %s, %divisor : f32
      %sum = arith.addi %i, %j : index
      %five = arith.constant 5 : index
      %zero = arith.constant 0 : index
      %rest = arith.remsi %sum, %five : index
      %none = arith.constant 0xFF800000 : f32
      %c = arith.cmpi eq, %rest, %zero : index
      %z = arith.select %c, %none, %y : f32
      attn.yield %z : f32
    } outs(%o : tensor<2x4x70x64xf16>) -> tensor<2x4x70x64xf16>
  return %r : tensor<2x4x70x64xf16>
}

func.func @table(%q: tensor<2x4x131x64xbf16>, %k: tensor<2x2x131x64xbf16>, %t: tensor<4x131xf32>) -> tensor<2x4x131x64xbf16> {
  %o = tensor.empty() : tensor<2x4x131x64xbf16>
  %r = attn.dense ins(%q, %k, %k : tensor<2x4x131x64xbf16>, tensor<2x2x131x64xbf16>, tensor<2x2x131x64xbf16>) score(%t : tensor<4x131xf32>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %m: tensor<4x131xf32>):
      %d = arith.subi %i, %j : index
      %x = tensor.extract %m[%h, %d] : tensor<4x131xf32>
      %y = arith.addf %s, %x : f32
      attn.yield %y : f32
    } outs(%o : tensor<2x4x131x64xbf16>) {mask = #attn.mask<causal>} -> tensor<2x4x131x64xbf16>
  return %r : tensor<2x4x131x64xbf16>
}

// Whole tiles of aligned pairs, and a last one that is not.
func.func @whole(%q: tensor<2x4x131x64xbf16>, %k: tensor<2x2x232x64xbf16>, %b: tensor<2x4x131x232xbf16>) -> tensor<2x4x131x64xbf16> {
  %o = tensor.empty() : tensor<2x4x131x64xbf16>
  %r = attn.dense ins(%q, %k, %k : tensor<2x4x131x64xbf16>, tensor<2x2x232x64xbf16>, tensor<2x2x232x64xbf16>)
      bias(%b : tensor<2x4x131x232xbf16>) outs(%o : tensor<2x4x131x64xbf16>) {mask = #attn.mask<causal>} -> tensor<2x4x131x64xbf16>
  return %r : tensor<2x4x131x64xbf16>
}

// Rows of an odd number of f32.
func.func @odd(%q: tensor<2x4x131x128xbf16>, %k: tensor<2x2x237x128xbf16>, %b: tensor<1x4x131x237xf32>) -> tensor<2x4x131x128xbf16> {
  %o = tensor.empty() : tensor<2x4x131x128xbf16>
  %r = attn.dense ins(%q, %k, %k : tensor<2x4x131x128xbf16>, tensor<2x2x237x128xbf16>, tensor<2x2x237x128xbf16>)
      bias(%b : tensor<1x4x131x237xf32>) outs(%o : tensor<2x4x131x128xbf16>) -> tensor<2x4x131x128xbf16>
  return %r : tensor<2x4x131x128xbf16>
}

// One row for all queries, read from odd columns on.
func.func @padding(%q: tensor<2x4x258x64xbf16>, %k: tensor<2x2x258x64xbf16>, %b: tensor<2x1x1x258xf32>) -> tensor<2x4x258x64xbf16> {
  %o = tensor.empty() : tensor<2x4x258x64xbf16>
  %r = attn.stream query(%q : tensor<2x4x258x64xbf16>)
      source(%k, %k : tensor<2x2x258x64xbf16>, tensor<2x2x258x64xbf16>) bias(%b : tensor<2x1x1x258xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 101, b * 128 + 128)>] mask <causal>
      outs(%o : tensor<2x4x258x64xbf16>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<2x4x258x64xbf16>
  return %r : tensor<2x4x258x64xbf16>
}

// Columns counted from where a block's range begins.
func.func @own_columns(%q: tensor<2x4x258x64xbf16>, %k: tensor<2x2x258x64xbf16>, %b: tensor<2x4x258x256xbf16>) -> tensor<2x4x258x64xbf16> {
  %o = tensor.empty() : tensor<2x4x258x64xbf16>
  %r = attn.stream query(%q : tensor<2x4x258x64xbf16>)
      source(%k, %k : tensor<2x2x258x64xbf16>, tensor<2x2x258x64xbf16>) local_bias(%b : tensor<2x4x258x256xbf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      outs(%o : tensor<2x4x258x64xbf16>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<2x4x258x64xbf16>
  return %r : tensor<2x4x258x64xbf16>
}

// Log weights are in base 2, and so is what is added to them.
func.func @weighted(%q: tensor<2x4x131x64xbf16>, %k: tensor<2x2x131x64xbf16>, %w: tensor<2x2x131xf32>, %b: tensor<2x4x131x131xf32>) -> tensor<2x4x131x64xbf16> {
  %o = tensor.empty() : tensor<2x4x131x64xbf16>
  %r = attn.dense ins(%q, %k, %k : tensor<2x4x131x64xbf16>, tensor<2x2x131x64xbf16>, tensor<2x2x131x64xbf16>)
      log_weight(%w : tensor<2x2x131xf32>) bias(%b : tensor<2x4x131x131xf32>)
      outs(%o : tensor<2x4x131x64xbf16>) {mask = #attn.mask<causal>} -> tensor<2x4x131x64xbf16>
  return %r : tensor<2x4x131x64xbf16>
}

// By distance, beside a bias.
func.func @distances(%q: tensor<2x4x203x64xbf16>, %k: tensor<2x2x203x64xbf16>, %t: tensor<4x203xf32>, %b: tensor<1x4x203x203xbf16>) -> tensor<2x4x203x64xbf16> {
  %o = tensor.empty() : tensor<2x4x203x64xbf16>
  %r = attn.stream query(%q : tensor<2x4x203x64xbf16>)
      source(%k, %k : tensor<2x2x203x64xbf16>, tensor<2x2x203x64xbf16>) bias(%b : tensor<1x4x203x203xbf16>) distance_bias(%t : tensor<4x203xf32>)
          ranges [#full] mask <causal>
      outs(%o : tensor<2x4x203x64xbf16>) {scale = 0.125 : f64} -> tensor<2x4x203x64xbf16>
  return %r : tensor<2x4x203x64xbf16>
}
