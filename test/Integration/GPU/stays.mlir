// Blocks of threads that stay for several blocks of queries. The emulator has
// two multiprocessors.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=one --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=9,eager | FileCheck %s
// RUN: fovea-run %s --entry=prime --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4 --schedule=seed=10,eager | FileCheck %s
// RUN: fovea-run %s --entry=less --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 --schedule=seed=11,eager | FileCheck %s
// RUN: fovea-run %s --entry=tile --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=6 --schedule=seed=12,eager | FileCheck %s
// RUN: fovea-run %s --entry=more --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=7 --schedule=seed=13,eager | FileCheck %s
// RUN: fovea-run %s --entry=several --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=8 --schedule=seed=14,eager | FileCheck %s
// RUN: fovea-run %s --entry=boxes --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=empty --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 --schedule=seed=6,eager | FileCheck %s
// RUN: fovea-run %s --entry=weights --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 --schedule=seed=7,eager | FileCheck %s
// RUN: fovea-run %s --entry=unread --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=6 --schedule=seed=8,eager | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs

// Eight of ten have several blocks of queries: blocks of threads are as many
// as multiprocessors, at most.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=BLOCKS
// BLOCKS-COUNT-8: llvm.call @fovea_rt_gpu_multiprocessors

// One query, and no row far away for it.
func.func @one(%q: tensor<1x1x1x64xf16>, %k: tensor<1x1x1x64xf16>, %s: tensor<1x1x40x64xf16>) -> (tensor<1x1x1x64xf16>, tensor<1x1x1xf32>) {
  %o = tensor.empty() : tensor<1x1x1x64xf16>
  %l = tensor.empty() : tensor<1x1x1xf32>
  %r:2 = attn.stream query(%q : tensor<1x1x1x64xf16>)
      source(%k, %k : tensor<1x1x1x64xf16>, tensor<1x1x1x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<1x1x40x64xf16>, tensor<1x1x40x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 4)>, affine_map<(b)[rows, n] -> (20, b * 30 + 20)>]
      outs(%o, %l : tensor<1x1x1x64xf16>, tensor<1x1x1xf32>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x1x1x64xf16>, tensor<1x1x1xf32>
  return %r#0, %r#1 : tensor<1x1x1x64xf16>, tensor<1x1x1xf32>
}

// One block of queries, and no loop.
func.func @prime(%q: tensor<1x1x97x64xf16>, %k: tensor<1x1x97x64xf16>, %s: tensor<1x1x40x64xf16>) -> (tensor<1x1x97x64xf16>, tensor<1x1x97xf32>) {
  %o = tensor.empty() : tensor<1x1x97x64xf16>
  %l = tensor.empty() : tensor<1x1x97xf32>
  %r:2 = attn.stream query(%q : tensor<1x1x97x64xf16>)
      source(%k, %k : tensor<1x1x97x64xf16>, tensor<1x1x97x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<1x1x40x64xf16>, tensor<1x1x40x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 4)>, affine_map<(b)[rows, n] -> (20, b * 30 + 20)>]
      outs(%o, %l : tensor<1x1x97x64xf16>, tensor<1x1x97xf32>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x1x97x64xf16>, tensor<1x1x97xf32>
  return %r#0, %r#1 : tensor<1x1x97x64xf16>, tensor<1x1x97xf32>
}

// A query less than a block has.
func.func @less(%q: tensor<1x3x127x64xf16>, %k: tensor<1x1x127x64xf16>, %s: tensor<1x1x90x64xf16>) -> (tensor<1x3x127x64xf16>, tensor<1x3x127xf32>) {
  %o = tensor.empty() : tensor<1x3x127x64xf16>
  %l = tensor.empty() : tensor<1x3x127xf32>
  %r:2 = attn.stream query(%q : tensor<1x3x127x64xf16>)
      source(%k, %k : tensor<1x1x127x64xf16>, tensor<1x1x127x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<1x1x90x64xf16>, tensor<1x1x90x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 4)>, affine_map<(b)[rows, n] -> (20, b * 30 + 20)>]
      outs(%o, %l : tensor<1x3x127x64xf16>, tensor<1x3x127xf32>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x3x127x64xf16>, tensor<1x3x127xf32>
  return %r#0, %r#1 : tensor<1x3x127x64xf16>, tensor<1x3x127xf32>
}

// As many; heads of keys of their own.
func.func @tile(%q: tensor<1x2x128x64xf16>, %k: tensor<1x2x128x64xf16>, %s: tensor<1x2x90x64xf16>) -> (tensor<1x2x128x64xf16>, tensor<1x2x128xf32>) {
  %o = tensor.empty() : tensor<1x2x128x64xf16>
  %l = tensor.empty() : tensor<1x2x128xf32>
  %r:2 = attn.stream query(%q : tensor<1x2x128x64xf16>)
      source(%k, %k : tensor<1x2x128x64xf16>, tensor<1x2x128x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<1x2x90x64xf16>, tensor<1x2x90x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 4)>, affine_map<(b)[rows, n] -> (20, b * 30 + 20)>]
      outs(%o, %l : tensor<1x2x128x64xf16>, tensor<1x2x128xf32>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x2x128x64xf16>, tensor<1x2x128xf32>
  return %r#0, %r#1 : tensor<1x2x128x64xf16>, tensor<1x2x128xf32>
}

// One more: a warp has one of its rows, and the others none.
func.func @more(%q: tensor<1x2x129x64xf16>, %k: tensor<1x1x129x64xf16>, %s: tensor<1x1x90x64xf16>) -> (tensor<1x2x129x64xf16>, tensor<1x2x129xf32>) {
  %o = tensor.empty() : tensor<1x2x129x64xf16>
  %l = tensor.empty() : tensor<1x2x129xf32>
  %r:2 = attn.stream query(%q : tensor<1x2x129x64xf16>)
      source(%k, %k : tensor<1x1x129x64xf16>, tensor<1x1x129x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<1x1x90x64xf16>, tensor<1x1x90x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 4)>, affine_map<(b)[rows, n] -> (20, b * 30 + 20)>]
      outs(%o, %l : tensor<1x2x129x64xf16>, tensor<1x2x129xf32>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x2x129x64xf16>, tensor<1x2x129xf32>
  return %r#0, %r#1 : tensor<1x2x129x64xf16>, tensor<1x2x129xf32>
}

// Several blocks of queries for each head, two batch entries.
func.func @several(%q: tensor<2x4x384x64xf16>, %k: tensor<2x2x384x64xf16>, %s: tensor<2x2x90x64xf16>) -> (tensor<2x4x384x64xf16>, tensor<2x4x384xf32>) {
  %o = tensor.empty() : tensor<2x4x384x64xf16>
  %l = tensor.empty() : tensor<2x4x384xf32>
  %r:2 = attn.stream query(%q : tensor<2x4x384x64xf16>)
      source(%k, %k : tensor<2x2x384x64xf16>, tensor<2x2x384x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<2x2x90x64xf16>, tensor<2x2x90x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 4)>, affine_map<(b)[rows, n] -> (20, b * 30 + 20)>]
      outs(%o, %l : tensor<2x4x384x64xf16>, tensor<2x4x384xf32>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<2x4x384x64xf16>, tensor<2x4x384xf32>
  return %r#0, %r#1 : tensor<2x4x384x64xf16>, tensor<2x4x384xf32>
}

// Boxes alone, which one thread copies; three tiles of keys for a block, and
// then one.
func.func @boxes(%q: tensor<1x3x300x64xbf16>, %k: tensor<1x1x300x64xbf16>, %v: tensor<1x1x300x40xbf16>) -> tensor<1x3x300x40xbf16> {
  %o = tensor.empty() : tensor<1x3x300x40xbf16>
  %r = attn.stream query(%q : tensor<1x3x300x64xbf16>)
      source(%k, %v : tensor<1x1x300x64xbf16>, tensor<1x1x300x40xbf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 128, rows)>]
      source(%k, %v : tensor<1x1x300x64xbf16>, tensor<1x1x300x40xbf16>)
          ranges [affine_map<(b)[rows, n] -> (0, b * 128)>]
      outs(%o : tensor<1x3x300x40xbf16>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x3x300x40xbf16>
  return %r : tensor<1x3x300x40xbf16>
}

// Blocks of queries that read nothing, between others that do.
func.func @empty(%q: tensor<1x2x640x64xf16>, %k: tensor<1x1x640x64xf16>) -> (tensor<1x2x640x64xf16>, tensor<1x2x640xf32>) {
  %o = tensor.empty() : tensor<1x2x640x64xf16>
  %l = tensor.empty() : tensor<1x2x640xf32>
  %r:2 = attn.stream query(%q : tensor<1x2x640x64xf16>)
      source(%k, %k : tensor<1x1x640x64xf16>, tensor<1x1x640x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (0, (b mod 2) * 140)>]
      source(%k, %k : tensor<1x1x640x64xf16>, tensor<1x1x640x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (0, (b mod 2) * 270)>]
      outs(%o, %l : tensor<1x2x640x64xf16>, tensor<1x2x640xf32>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x2x640x64xf16>, tensor<1x2x640xf32>
  return %r#0, %r#1 : tensor<1x2x640x64xf16>, tensor<1x2x640xf32>
}

// Log weights, and codes that name keys.
func.func @weights(%q: tensor<1x4x320x64xbf16>, %k: tensor<1x2x320x64xbf16>, %c: tensor<2x24x64xbf16>) -> tensor<1x4x320x64xbf16> {
  %zi = tensor.empty() : tensor<1x2x320xi32>
  %z = attn.quantize ins(%k, %c : tensor<1x2x320x64xbf16>, tensor<2x24x64xbf16>) outs(%zi : tensor<1x2x320xi32>) -> tensor<1x2x320xi32>
  %o = tensor.empty() : tensor<1x4x320x64xbf16>
  %r = attn.vq ins(%q, %z, %k, %c : tensor<1x4x320x64xbf16>, tensor<1x2x320xi32>, tensor<1x2x320x64xbf16>, tensor<2x24x64xbf16>)
      outs(%o : tensor<1x4x320x64xbf16>) {block = 128 : i64, scale = 0.125 : f64, causal, reduction = #attn.reduction<serial>} -> tensor<1x4x320x64xbf16>
  return %r : tensor<1x4x320x64xbf16>
}

// A source that no block reads: all tiles are the other's, whose rows depend on
// the block.
func.func @unread(%q: tensor<1x3x300x64xf16>, %k: tensor<1x1x300x64xf16>, %s: tensor<1x1x30x64xf16>) -> (tensor<1x3x300x64xf16>, tensor<1x3x300xf32>) {
  %o = tensor.empty() : tensor<1x3x300x64xf16>
  %l = tensor.empty() : tensor<1x3x300xf32>
  %r:2 = attn.stream query(%q : tensor<1x3x300x64xf16>)
      source(%k, %k : tensor<1x1x300x64xf16>, tensor<1x1x300x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 11>
      source(%s, %s : tensor<1x1x30x64xf16>, tensor<1x1x30x64xf16>)
          ranges [affine_map<(b)[rows, n] -> (0, b - 2)>]
      outs(%o, %l : tensor<1x3x300x64xf16>, tensor<1x3x300xf32>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x3x300x64xf16>, tensor<1x3x300xf32>
  return %r#0, %r#1 : tensor<1x3x300x64xf16>, tensor<1x3x300xf32>
}
