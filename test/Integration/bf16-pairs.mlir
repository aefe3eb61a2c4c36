// Products of bf16 pairs: odd numbers of keys, ragged widths, every mask, bias
// and log weights, gathered rows. Where the CPU has them, fast or not.

// REQUIRES: avx512_bf16
// RUN: fovea-run %s --entry=causal --cpu=native,+fast-bf16-dot --random=1 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=window --cpu=native,+fast-bf16-dot --random=2 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=terms --cpu=native,+fast-bf16-dot --random=3 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=gathered --cpu=native,+fast-bf16-dot --random=4 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=mixed --cpu=native,+fast-bf16-dot --random=5 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=unrounded --cpu=native,+fast-bf16-dot --random=6 --compare=reference | FileCheck %s
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=native,+fast-bf16-dot | FileCheck %s --check-prefix=LLVM
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=native,-fast-bf16-dot | FileCheck %s --check-prefix=NONE

// CHECK: agrees with the reference
// LLVM: dpbf16ps.512
// NONE-NOT: dpbf16ps

func.func @causal(%q: tensor<1x4x130x24xbf16>, %k: tensor<1x2x201x24xbf16>, %v: tensor<1x2x201x41xbf16>) -> tensor<1x4x130x41xbf16> {
  %init = tensor.empty() : tensor<1x4x130x41xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<1x4x130x24xbf16>, tensor<1x2x201x24xbf16>, tensor<1x2x201x41xbf16>)
      outs(%init : tensor<1x4x130x41xbf16>) {mask = #attn.mask<causal>} -> tensor<1x4x130x41xbf16>
  return %out : tensor<1x4x130x41xbf16>
}

func.func @window(%q: tensor<2x1x97x64xbf16>, %k: tensor<2x1x65x64xbf16>, %v: tensor<2x1x65x64xbf16>) -> (tensor<2x1x97x64xbf16>, tensor<2x1x97xf32>) {
  %init = tensor.empty() : tensor<2x1x97x64xbf16>
  %l = tensor.empty() : tensor<2x1x97xf32>
  %out:2 = attn.dense ins(%q, %k, %v : tensor<2x1x97x64xbf16>, tensor<2x1x65x64xbf16>, tensor<2x1x65x64xbf16>)
      outs(%init, %l : tensor<2x1x97x64xbf16>, tensor<2x1x97xf32>) {mask = #attn.mask<causal, window = 31>} -> tensor<2x1x97x64xbf16>, tensor<2x1x97xf32>
  return %out#0, %out#1 : tensor<2x1x97x64xbf16>, tensor<2x1x97xf32>
}

func.func @terms(%q: tensor<1x2x70x16xbf16>, %k: tensor<1x1x2131x16xbf16>, %v: tensor<1x1x2131x16xbf16>, %w: tensor<1x1x2131xf32>, %b: tensor<1x2x70x2131xf32>) -> tensor<1x2x70x16xbf16> {
  %init = tensor.empty() : tensor<1x2x70x16xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<1x2x70x16xbf16>, tensor<1x1x2131x16xbf16>, tensor<1x1x2131x16xbf16>)
      log_weight(%w : tensor<1x1x2131xf32>) bias(%b : tensor<1x2x70x2131xf32>)
      outs(%init : tensor<1x2x70x16xbf16>) -> tensor<1x2x70x16xbf16>
  return %out : tensor<1x2x70x16xbf16>
}

func.func @gathered(%q: tensor<1x1x96x16xbf16>, %k: tensor<1x1x96x16xbf16>, %v: tensor<1x1x96x16xbf16>, %ks: tensor<1x1x13x16xbf16>, %vs: tensor<1x1x13x16xbf16>) -> tensor<1x1x96x16xbf16> {
  %init = tensor.empty() : tensor<1x1x96x16xbf16>
  %out = attn.stream query(%q : tensor<1x1x96x16xbf16>)
      source(%k, %v : tensor<1x1x96x16xbf16>, tensor<1x1x96x16xbf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 33 - 33, b * 33 + 33)>] mask <causal>
      source(%ks, %vs : tensor<1x1x13x16xbf16>, tensor<1x1x13x16xbf16>)
          ranges [affine_map<(b)[rows, n] -> (0, b * 2 + 1)>, affine_map<(b)[rows, n] -> (b * 3 + 3, b * 3 + 6)>]
      outs(%init : tensor<1x1x96x16xbf16>) {block = 33 : i64, scale = 0.25 : f64} -> tensor<1x1x96x16xbf16>
  return %out : tensor<1x1x96x16xbf16>
}

// Pairs where both sides are bf16, converted rows and f32 in place elsewhere.
func.func @mixed(%q: tensor<1x2x96x16xbf16>, %k: tensor<1x1x96x16xbf16>, %v: tensor<1x1x96x24xbf16>, %ks: tensor<1x1x13x16xf32>, %vs: tensor<1x1x13x24xf32>,
    %kt: tensor<1x1x301x16xf16>, %vt: tensor<1x1x301x24xbf16>) -> (tensor<1x2x96x24xbf16>, tensor<1x2x96xf32>) {
  %init = tensor.empty() : tensor<1x2x96x24xbf16>
  %l = tensor.empty() : tensor<1x2x96xf32>
  %out:2 = attn.stream query(%q : tensor<1x2x96x16xbf16>)
      source(%ks, %vs : tensor<1x1x13x16xf32>, tensor<1x1x13x24xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b * 2 + 1)>, affine_map<(b)[rows, n] -> (b * 3 + 3, b * 3 + 6)>]
      source(%k, %v : tensor<1x1x96x16xbf16>, tensor<1x1x96x24xbf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 33 - 33, b * 33 + 33)>] mask <causal>
      source(%kt, %vt : tensor<1x1x301x16xf16>, tensor<1x1x301x24xbf16>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 201)>]
      outs(%init, %l : tensor<1x2x96x24xbf16>, tensor<1x2x96xf32>) {block = 33 : i64, scale = 0.25 : f64} -> tensor<1x2x96x24xbf16>, tensor<1x2x96xf32>
  return %out#0, %out#1 : tensor<1x2x96x24xbf16>, tensor<1x2x96xf32>
}

// Pairs would round weights to bf16: an output of f32 has none.
func.func @unrounded(%q: tensor<1x2x96x16xbf16>, %k: tensor<1x1x96x16xbf16>, %v: tensor<1x1x96x24xbf16>, %ks: tensor<1x1x13x16xf32>, %vs: tensor<1x1x13x24xf32>,
    %kt: tensor<1x1x301x16xf16>, %vt: tensor<1x1x301x24xbf16>) -> (tensor<1x2x96x24xf32>, tensor<1x2x96xf32>) {
  %init = tensor.empty() : tensor<1x2x96x24xf32>
  %l = tensor.empty() : tensor<1x2x96xf32>
  %out:2 = attn.stream query(%q : tensor<1x2x96x16xbf16>)
      source(%ks, %vs : tensor<1x1x13x16xf32>, tensor<1x1x13x24xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b * 2 + 1)>, affine_map<(b)[rows, n] -> (b * 3 + 3, b * 3 + 6)>]
      source(%k, %v : tensor<1x1x96x16xbf16>, tensor<1x1x96x24xbf16>)
          ranges [affine_map<(b)[rows, n] -> (b * 33 - 33, b * 33 + 33)>] mask <causal>
      source(%kt, %vt : tensor<1x1x301x16xf16>, tensor<1x1x301x24xbf16>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 201)>]
      outs(%init, %l : tensor<1x2x96x24xf32>, tensor<1x2x96xf32>) {block = 33 : i64, scale = 0.25 : f64} -> tensor<1x2x96x24xf32>, tensor<1x2x96xf32>
  return %out#0, %out#1 : tensor<1x2x96x24xf32>, tensor<1x2x96xf32>
}
