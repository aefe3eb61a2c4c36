// Kernels of sm_90a in the emulator: copies by boxes, products of warpgroups.
// Random schedules and copies that end early give the same result.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=full --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=causal --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=window --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=broad --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=blocks --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=near_and_far --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 | FileCheck %s
// RUN: env FOVEA_SIMT=seed=6,eager,chip=sm_90a fovea-run %s --entry=near_and_far --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=coded --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=7 | FileCheck %s
// RUN: fovea-run %s --entry=squared --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=prefix --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=lengths --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=named --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 --schedule=seed=6,eager | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs

// These are the kernels that run.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=TILES
// TILES-COUNT-11: nvvm.reqntid = array<i32: {{256|384}}, 1, 1>

// One tile of keys is whole, one is not; columns fill two boxes.
func.func @full(%q: tensor<1x2x150x128xf16>, %k: tensor<1x1x200x128xf16>, %v: tensor<1x1x200x128xf16>) -> (tensor<1x2x150x128xf16>, tensor<1x2x150xf32>) {
  %o = tensor.empty() : tensor<1x2x150x128xf16>
  %l = tensor.empty() : tensor<1x2x150xf32>
  %r:2 = attn.dense ins(%q, %k, %v : tensor<1x2x150x128xf16>, tensor<1x1x200x128xf16>, tensor<1x1x200x128xf16>)
      outs(%o, %l : tensor<1x2x150x128xf16>, tensor<1x2x150xf32>) -> tensor<1x2x150x128xf16>, tensor<1x2x150xf32>
  return %r#0, %r#1 : tensor<1x2x150x128xf16>, tensor<1x2x150xf32>
}

// Several query blocks of two batch entries; values narrower than a box.
func.func @causal(%q: tensor<2x4x290x64xbf16>, %k: tensor<2x2x290x64xbf16>, %v: tensor<2x2x290x40xbf16>) -> tensor<2x4x290x40xbf16> {
  %o = tensor.empty() : tensor<2x4x290x40xbf16>
  %r = attn.dense ins(%q, %k, %v : tensor<2x4x290x64xbf16>, tensor<2x2x290x64xbf16>, tensor<2x2x290x40xbf16>)
      outs(%o : tensor<2x4x290x40xbf16>) {mask = #attn.mask<causal>} -> tensor<2x4x290x40xbf16>
  return %r : tensor<2x4x290x40xbf16>
}

// More queries than keys: some rows read nothing; one warpgroup of queries.
func.func @window(%q: tensor<1x1x60x24xf16>, %k: tensor<1x1x33x24xf16>, %v: tensor<1x1x33x72xf16>) -> tensor<1x1x60x72xf16> {
  %o = tensor.empty() : tensor<1x1x60x72xf16>
  %r = attn.dense ins(%q, %k, %v : tensor<1x1x60x24xf16>, tensor<1x1x33x24xf16>, tensor<1x1x33x72xf16>)
      outs(%o : tensor<1x1x60x72xf16>) {mask = #attn.mask<causal, window = 12>} -> tensor<1x1x60x72xf16>
  return %r : tensor<1x1x60x72xf16>
}

// The widest heads, in tiles of 48 keys.
func.func @broad(%q: tensor<1x1x130x256xf16>, %k: tensor<1x1x130x256xf16>) -> tensor<1x1x130x256xf16> {
  %o = tensor.empty() : tensor<1x1x130x256xf16>
  %r = attn.dense ins(%q, %k, %k : tensor<1x1x130x256xf16>, tensor<1x1x130x256xf16>, tensor<1x1x130x256xf16>)
      outs(%o : tensor<1x1x130x256xf16>) {mask = #attn.mask<causal>} -> tensor<1x1x130x256xf16>
  return %r : tensor<1x1x130x256xf16>
}

// Ranges that depend on the block of queries.
func.func @blocks(%q: tensor<1x2x384x64xbf16>, %k: tensor<1x2x384x64xbf16>) -> tensor<1x2x384x64xbf16> {
  %o = tensor.empty() : tensor<1x2x384x64xbf16>
  %r = attn.stream query(%q : tensor<1x2x384x64xbf16>)
      source(%k, %k : tensor<1x2x384x64xbf16>, tensor<1x2x384x64xbf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      outs(%o : tensor<1x2x384x64xbf16>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x2x384x64xbf16>
  return %r : tensor<1x2x384x64xbf16>
}

// Boxes near the block; far away listed rows, and a run of others, with log
// weights. Rows are padded to whole products.
func.func @near_and_far(%q: tensor<1x2x300x72xf16>, %k: tensor<1x1x300x72xf16>, %s: tensor<1x1x90x72xf16>, %w: tensor<1x1x90xf32>) -> (tensor<1x2x300x72xf16>, tensor<1x2x300xf32>) {
  %o = tensor.empty() : tensor<1x2x300x72xf16>
  %l = tensor.empty() : tensor<1x2x300xf32>
  %r:2 = attn.stream query(%q : tensor<1x2x300x72xf16>)
      source(%k, %k : tensor<1x1x300x72xf16>, tensor<1x1x300x72xf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<1x1x90x72xf16>, tensor<1x1x90x72xf16>) log_weight(%w : tensor<1x1x90xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b * 10)>, affine_map<(b)[rows, n] -> (30, 34)>, affine_map<(b)[rows, n] -> (b + 40, b + 85)>]
      outs(%o, %l : tensor<1x2x300x72xf16>, tensor<1x2x300xf32>) {block = 128 : i64, scale = 0.11785 : f64} -> tensor<1x2x300x72xf16>, tensor<1x2x300xf32>
  return %r#0, %r#1 : tensor<1x2x300x72xf16>, tensor<1x2x300xf32>
}

// Keys that codes name, with a bias of the block's own columns; a table whose
// values differ by block and are f32.
func.func @coded(%q: tensor<1x4x192x64xbf16>, %k: tensor<1x2x192x64xbf16>, %c: tensor<2x24x64xbf16>, %b: tensor<1x4x192x128xbf16>) -> tensor<1x4x192x64xbf16> {
  %zi = tensor.empty() : tensor<1x2x192xi32>
  %z = attn.quantize ins(%k, %c : tensor<1x2x192x64xbf16>, tensor<2x24x64xbf16>) outs(%zi : tensor<1x2x192xi32>) -> tensor<1x2x192xi32>
  %o = tensor.empty() : tensor<1x4x192x64xbf16>
  %r = attn.vq ins(%q, %z, %k, %c : tensor<1x4x192x64xbf16>, tensor<1x2x192xi32>, tensor<1x2x192x64xbf16>, tensor<2x24x64xbf16>) bias(%b : tensor<1x4x192x128xbf16>)
      outs(%o : tensor<1x4x192x64xbf16>) {block = 64 : i64, scale = 0.125 : f64, causal, reduction = #attn.reduction<serial>} -> tensor<1x4x192x64xbf16>
  return %r : tensor<1x4x192x64xbf16>
}

// Squared scores, divided by the square of the greatest one so far.
func.func @squared(%q: tensor<1x1x200x64xf16>, %k: tensor<1x1x200x64xf16>, %b: tensor<1x1x1x200xf16>) -> tensor<1x1x200x64xf16> {
  %o = tensor.empty() : tensor<1x1x200x64xf16>
  %r = attn.stream query(%q : tensor<1x1x200x64xf16>)
      source(%k, %k : tensor<1x1x200x64xf16>, tensor<1x1x200x64xf16>) bias(%b : tensor<1x1x1x200xf16>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%o : tensor<1x1x200x64xf16>) {scale = 0.125 : f64, weighting = #attn.weighting<squared_relu>} -> tensor<1x1x200x64xf16>
  return %r : tensor<1x1x200x64xf16>
}

// A prefix that ends within a tile, for queries that stand before and behind.
func.func @prefix(%q: tensor<1x2x300x64xbf16>, %k: tensor<1x1x300x64xbf16>) -> tensor<1x2x300x64xbf16> {
  %o = tensor.empty() : tensor<1x2x300x64xbf16>
  %r = attn.dense ins(%q, %k, %k : tensor<1x2x300x64xbf16>, tensor<1x1x300x64xbf16>, tensor<1x1x300x64xbf16>)
      outs(%o : tensor<1x2x300x64xbf16>) {mask = #attn.mask<causal, prefix = 170>} -> tensor<1x2x300x64xbf16>
  return %r : tensor<1x2x300x64xbf16>
}

// Batch entries with keys of their own number: all, some, and none.
func.func @lengths(%q: tensor<3x2x150x64xf16>, %k: tensor<3x1x300x64xf16>) -> tensor<3x2x150x64xf16> {
  %n = arith.constant dense<[300, 129, 0]> : tensor<3xi32>
  %o = tensor.empty() : tensor<3x2x150x64xf16>
  %r = attn.dense ins(%q, %k, %k : tensor<3x2x150x64xf16>, tensor<3x1x300x64xf16>, tensor<3x1x300x64xf16>)
      lengths(%n : tensor<3xi32>)
      outs(%o : tensor<3x2x150x64xf16>) {mask = #attn.mask<causal>} -> tensor<3x2x150x64xf16>
  return %r : tensor<3x2x150x64xf16>
}

// Rows that lists name, beside rows near the block.
func.func @named(%q: tensor<1x2x150x64xf16>, %k: tensor<1x1x200x64xf16>, %v: tensor<1x1x200x40xf16>) -> tensor<1x2x150x40xf16> {
  %chosen = arith.constant dense<[[[[9, 4, -1], [3, 3, -1], [12, 0, 7]]]]> : tensor<1x1x3x3xi32>
  %o = tensor.empty() : tensor<1x2x150x40xf16>
  %r = attn.stream query(%q : tensor<1x2x150x64xf16>)
      source(%k, %v : tensor<1x1x200x64xf16>, tensor<1x1x200x40xf16>) rows(%chosen : tensor<1x1x3x3xi32>) unit = 16
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      source(%k, %v : tensor<1x1x200x64xf16>, tensor<1x1x200x40xf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 64, b * 64 + 64)>]
      outs(%o : tensor<1x2x150x40xf16>) {block = 64 : i64, scale = 2.5e-01 : f64} -> tensor<1x2x150x40xf16>
  return %r : tensor<1x2x150x40xf16>
}
