// Clusters of two blocks, for heads that share keys, in the emulator: each
// copies half of every tile to both. Random schedules and copies that end early
// give the same result.

// REQUIRES: long-tests
// RUN: env FOVEA_GPU_CLUSTER=2 fovea-run %s --entry=causal --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: env FOVEA_GPU_CLUSTER=2 fovea-run %s --entry=four --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 | FileCheck %s
// RUN: env FOVEA_GPU_CLUSTER=2 fovea-run %s --entry=window --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4,eager | FileCheck %s
// RUN: env FOVEA_GPU_CLUSTER=2 fovea-run %s --entry=written --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: env FOVEA_GPU_CLUSTER=2 fovea-run %s --entry=blocks --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=6 | FileCheck %s
// RUN: env FOVEA_GPU_CLUSTER=2 fovea-run %s --entry=lengths --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: env FOVEA_GPU_CLUSTER=2 fovea-run %s --entry=single --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: env FOVEA_GPU_CLUSTER=2 fovea-run %s --entry=fused --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs

// These are the kernels that run. Tiles that are written down give the same.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false cluster=2" | FileCheck %s --check-prefix=CLUSTERS
// CLUSTERS-COUNT-8: nvvm.cluster_dim = array<i32: 2, 1, 1>
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=WRITTEN
// WRITTEN-COUNT-1: nvvm.cluster_dim = array<i32: 2, 1, 1>
// WRITTEN-NOT: nvvm.cluster_dim

// RUN: not env FOVEA_GPU_CLUSTER=3 fovea-run %s --entry=causal --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=NUMBER
// NUMBER: error: FOVEA_GPU_CLUSTER must be 1 or 2, but got '3'

// Two heads for each of keys, several tiles of queries, the last one ragged, two
// batch entries; values narrower than a box.
func.func @causal(%q: tensor<2x4x290x64xbf16>, %k: tensor<2x2x290x64xbf16>, %v: tensor<2x2x290x40xbf16>) -> tensor<2x4x290x40xbf16> {
  %o = tensor.empty() : tensor<2x4x290x40xbf16>
  %r = attn.dense ins(%q, %k, %v : tensor<2x4x290x64xbf16>, tensor<2x2x290x64xbf16>, tensor<2x2x290x40xbf16>)
      outs(%o : tensor<2x4x290x40xbf16>) {mask = #attn.mask<causal>} -> tensor<2x4x290x40xbf16>
  return %r : tensor<2x4x290x40xbf16>
}

// Four heads for one; columns fill two boxes, the last tile has a few rows of
// the first half and none of the second.
func.func @four(%q: tensor<1x4x150x128xf16>, %k: tensor<1x1x300x128xf16>, %v: tensor<1x1x300x128xf16>) -> (tensor<1x4x150x128xf16>, tensor<1x4x150xf32>) {
  %o = tensor.empty() : tensor<1x4x150x128xf16>
  %l = tensor.empty() : tensor<1x4x150xf32>
  %r:2 = attn.dense ins(%q, %k, %v : tensor<1x4x150x128xf16>, tensor<1x1x300x128xf16>, tensor<1x1x300x128xf16>)
      outs(%o, %l : tensor<1x4x150x128xf16>, tensor<1x4x150xf32>) -> tensor<1x4x150x128xf16>, tensor<1x4x150xf32>
  return %r#0, %r#1 : tensor<1x4x150x128xf16>, tensor<1x4x150xf32>
}

// More queries than keys: some rows read nothing, and blocks have no tile.
func.func @window(%q: tensor<1x2x333x24xf16>, %k: tensor<1x1x61x24xf16>, %v: tensor<1x1x61x72xf16>) -> tensor<1x2x333x72xf16> {
  %o = tensor.empty() : tensor<1x2x333x72xf16>
  %r = attn.dense ins(%q, %k, %v : tensor<1x2x333x24xf16>, tensor<1x1x61x24xf16>, tensor<1x1x61x72xf16>)
      outs(%o : tensor<1x2x333x72xf16>) {mask = #attn.mask<causal, window = 12>} -> tensor<1x2x333x72xf16>
  return %r : tensor<1x2x333x72xf16>
}

// Tiles of 80 keys that are written down; the last columns of a box are none.
func.func @written(%q: tensor<1x2x130x104xf16>, %k: tensor<1x1x130x104xf16>) -> tensor<1x2x130x104xf16> {
  %o = tensor.empty() : tensor<1x2x130x104xf16>
  %r = attn.stream query(%q : tensor<1x2x130x104xf16>) source(%k, %k : tensor<1x1x130x104xf16>, tensor<1x1x130x104xf16>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%o : tensor<1x2x130x104xf16>)
      {scale = 0.098 : f64, tiles = #attn.tiles<query = 128, key = 80, lanes = 64, vectors = 2, keys = 8, columns = 8, cluster = 2>} -> tensor<1x2x130x104xf16>
  return %r : tensor<1x2x130x104xf16>
}

// Ranges of two sources that depend on the block of queries.
func.func @blocks(%q: tensor<2x2x384x64xbf16>, %k: tensor<2x1x384x64xbf16>, %s: tensor<2x1x300x64xbf16>) -> tensor<2x2x384x64xbf16> {
  %o = tensor.empty() : tensor<2x2x384x64xbf16>
  %r = attn.stream query(%q : tensor<2x2x384x64xbf16>)
      source(%k, %k : tensor<2x1x384x64xbf16>, tensor<2x1x384x64xbf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<2x1x300x64xbf16>, tensor<2x1x300x64xbf16>)
          ranges [affine_map<(b)[rows, n] -> (0, b * 150)>]
      outs(%o : tensor<2x2x384x64xbf16>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<2x2x384x64xbf16>
  return %r : tensor<2x2x384x64xbf16>
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

// One warpgroup of queries, and keys in many tiles: no loop but that over heads.
func.func @single(%q: tensor<1x4x60x64xf16>, %k: tensor<1x2x700x64xf16>) -> tensor<1x4x60x64xf16> {
  %o = tensor.empty() : tensor<1x4x60x64xf16>
  %r = attn.dense ins(%q, %k, %k : tensor<1x4x60x64xf16>, tensor<1x2x700x64xf16>, tensor<1x2x700x64xf16>)
      outs(%o : tensor<1x4x60x64xf16>) {mask = #attn.mask<causal>} -> tensor<1x4x60x64xf16>
  return %r : tensor<1x4x60x64xf16>
}

// Heads of one tensor, queries not the first of them.
func.func @fused(%x: tensor<1x8x150x64xf16>) -> tensor<1x4x150x64xf16> {
  %q = tensor.extract_slice %x[0, 2, 0, 0] [1, 4, 150, 64] [1, 1, 1, 1] : tensor<1x8x150x64xf16> to tensor<1x4x150x64xf16>
  %k = tensor.extract_slice %x[0, 6, 0, 0] [1, 2, 150, 64] [1, 1, 1, 1] : tensor<1x8x150x64xf16> to tensor<1x2x150x64xf16>
  %v = tensor.extract_slice %x[0, 0, 0, 0] [1, 2, 150, 64] [1, 1, 1, 1] : tensor<1x8x150x64xf16> to tensor<1x2x150x64xf16>
  %o = tensor.empty() : tensor<1x4x150x64xf16>
  %r = attn.dense ins(%q, %k, %v : tensor<1x4x150x64xf16>, tensor<1x2x150x64xf16>, tensor<1x2x150x64xf16>)
      outs(%o : tensor<1x4x150x64xf16>) {mask = #attn.mask<causal>} -> tensor<1x4x150x64xf16>
  return %r : tensor<1x4x150x64xf16>
}
