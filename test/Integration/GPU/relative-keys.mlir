// Relative keys in kernels of sm_90a, in the emulator: products of tensor cores, shifted by the distance.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=causal --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=window --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=short --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=segments --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5,eager | FileCheck %s
// RUN: fovea-run %s --entry=sources --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=2 | FileCheck %s
// RUN: fovea-run %s --entry=before --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=weighted --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=shifted --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs

// These are the kernels that run; all but the last one multiply relative keys by tensor cores, as the kernel ahead of it says, which
// multiplies biases.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=TILES
// TILES-COUNT-8: nvvm.reqntid = array<i32: {{256|384}}, 1, 1>
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=KERNELS
// KERNELS: func @window_kernel
// KERNELS: func @window_kernel_
// KERNELS: func @sources_kernel(
// KERNELS: func @sources_kernel_
// KERNELS: func @sources_kernel_
// KERNELS: func @shifted_kernel(
// KERNELS-NOT: func @shifted_kernel_

#full = affine_map<(b)[rows, n] -> (0, rows)>
#near = affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>
#own = affine_map<(b)[rows, n] -> (b * 128, b * 128 + 128)>
#far = affine_map<(b)[rows, n] -> (b * 128 - 384, b * 128 - 250)>

// An odd number of queries, heads that share keys, a term of all heads.
func.func @causal(%q: tensor<2x4x331x64xbf16>, %k: tensor<2x2x331x64xbf16>, %v: tensor<2x2x331x72xbf16>, %r: tensor<1x331x64xbf16>, %u: tensor<4x64xbf16>) -> tensor<2x4x331x72xbf16> {
  %o = tensor.empty() : tensor<2x4x331x72xbf16>
  %y = attn.stream query(%q : tensor<2x4x331x64xbf16>) source(%k, %v : tensor<2x2x331x64xbf16>, tensor<2x2x331x72xbf16>) relative(%r, %u : tensor<1x331x64xbf16>, tensor<4x64xbf16>)
      ranges [#full] mask <causal> outs(%o : tensor<2x4x331x72xbf16>) {scale = 1.25e-01 : f64} -> tensor<2x4x331x72xbf16>
  return %y : tensor<2x4x331x72xbf16>
}

// Fewer distances than rows.
func.func @window(%q: tensor<1x2x331x128xf16>, %k: tensor<1x2x331x128xf16>, %r: tensor<2x90x128xf16>, %u: tensor<2x128xf16>) -> tensor<1x2x331x128xf16> {
  %o = tensor.empty() : tensor<1x2x331x128xf16>
  %y = attn.stream query(%q : tensor<1x2x331x128xf16>) source(%k, %k : tensor<1x2x331x128xf16>, tensor<1x2x331x128xf16>) relative(%r, %u : tensor<2x90x128xf16>, tensor<2x128xf16>)
      ranges [#full] mask <causal, window = 90> outs(%o : tensor<1x2x331x128xf16>) {scale = 8.838835e-02 : f64} -> tensor<1x2x331x128xf16>
  return %y : tensor<1x2x331x128xf16>
}

// One consumer, and one distance for most.
func.func @short(%q: tensor<2x2x61x24xbf16>, %k: tensor<2x1x61x24xbf16>, %r: tensor<2x3x24xbf16>, %u: tensor<1x24xbf16>) -> tensor<2x2x61x24xbf16> {
  %o = tensor.empty() : tensor<2x2x61x24xbf16>
  %y = attn.stream query(%q : tensor<2x2x61x24xbf16>) source(%k, %k : tensor<2x1x61x24xbf16>, tensor<2x1x61x24xbf16>) relative(%r, %u : tensor<2x3x24xbf16>, tensor<1x24xbf16>)
      ranges [#full] mask <causal, window = 3> outs(%o : tensor<2x2x61x24xbf16>) {scale = 2.5e-01 : f64} -> tensor<2x2x61x24xbf16>
  return %y : tensor<2x2x61x24xbf16>
}

// Two segments of one source: the second does not continue the first.
func.func @segments(%q: tensor<1x2x450x64xbf16>, %k: tensor<1x1x450x64xbf16>, %r: tensor<2x450x64xbf16>, %u: tensor<2x64xbf16>) -> tensor<1x2x450x64xbf16> {
  %o = tensor.empty() : tensor<1x2x450x64xbf16>
  %y = attn.stream query(%q : tensor<1x2x450x64xbf16>) source(%k, %k : tensor<1x1x450x64xbf16>, tensor<1x1x450x64xbf16>) relative(%r, %u : tensor<2x450x64xbf16>, tensor<2x64xbf16>)
      ranges [#far, #near] mask <causal> outs(%o : tensor<1x2x450x64xbf16>) {block = 128 : i64, scale = 1.25e-01 : f64} -> tensor<1x2x450x64xbf16>
  return %y : tensor<1x2x450x64xbf16>
}

// Between two of other sources, one with keys of its own distances.
func.func @sources(%q: tensor<1x4x300x128xbf16>, %k: tensor<1x2x300x128xbf16>, %c: tensor<1x2x40x128xbf16>, %r: tensor<4x300x128xbf16>, %u: tensor<4x128xbf16>, %s: tensor<1x300x128xbf16>) -> tensor<1x4x300x128xbf16> {
  %o = tensor.empty() : tensor<1x4x300x128xbf16>
  %y = attn.stream query(%q : tensor<1x4x300x128xbf16>)
      source(%k, %k : tensor<1x2x300x128xbf16>, tensor<1x2x300x128xbf16>) relative(%r, %u : tensor<4x300x128xbf16>, tensor<4x128xbf16>) ranges [#near] mask <causal>
      source(%c, %c : tensor<1x2x40x128xbf16>, tensor<1x2x40x128xbf16>) ranges [#full]
      source(%k, %k : tensor<1x2x300x128xbf16>, tensor<1x2x300x128xbf16>) relative(%s, %u : tensor<1x300x128xbf16>, tensor<4x128xbf16>) ranges [#own] mask <causal>
      outs(%o : tensor<1x4x300x128xbf16>) {block = 128 : i64, scale = 8.838835e-02 : f64} -> tensor<1x4x300x128xbf16>
  return %y : tensor<1x4x300x128xbf16>
}

// Rows that lie before all queries, with a bias by distance.
func.func @before(%q: tensor<1x2x128x64xbf16>, %k: tensor<1x2x128x64xbf16>, %r: tensor<1x260x64xbf16>, %u: tensor<1x64xbf16>, %t: tensor<2x260xf32>) -> tensor<1x2x128x64xbf16> {
  %o = tensor.empty() : tensor<1x2x128x64xbf16>
  %y = attn.stream query(%q : tensor<1x2x128x64xbf16>) source(%k, %k : tensor<1x2x128x64xbf16>, tensor<1x2x128x64xbf16>)
      relative(%r, %u : tensor<1x260x64xbf16>, tensor<1x64xbf16>) distance_bias(%t : tensor<2x260xf32>) origin affine_map<()[rows, n] -> (-128)>
      ranges [#full] outs(%o : tensor<1x2x128x64xbf16>) {scale = 1.25e-01 : f64} -> tensor<1x2x128x64xbf16>
  return %y : tensor<1x2x128x64xbf16>
}

// With log weights: all threads of the producer copy.
func.func @weighted(%q: tensor<1x2x200x128xbf16>, %k: tensor<1x2x200x128xbf16>, %w: tensor<1x2x200xf32>, %r: tensor<2x200x128xbf16>, %u: tensor<2x128xbf16>) -> tensor<1x2x200x128xbf16> {
  %o = tensor.empty() : tensor<1x2x200x128xbf16>
  %y = attn.stream query(%q : tensor<1x2x200x128xbf16>) source(%k, %k : tensor<1x2x200x128xbf16>, tensor<1x2x200x128xbf16>) log_weight(%w : tensor<1x2x200xf32>)
      relative(%r, %u : tensor<2x200x128xbf16>, tensor<2x128xbf16>)
      ranges [#full] mask <causal> outs(%o : tensor<1x2x200x128xbf16>) {scale = 8.838835e-02 : f64} -> tensor<1x2x200x128xbf16>
  return %y : tensor<1x2x200x128xbf16>
}

// Relative keys that do not lie 16 bytes apart: no boxes.
func.func @shifted(%q: tensor<1x2x200x64xbf16>, %k: tensor<1x2x200x64xbf16>, %wide: tensor<2x200x68xbf16>, %u: tensor<2x64xbf16>) -> tensor<1x2x200x64xbf16> {
  %r = tensor.extract_slice %wide[0, 0, 4] [2, 200, 64] [1, 1, 1] : tensor<2x200x68xbf16> to tensor<2x200x64xbf16>
  %o = tensor.empty() : tensor<1x2x200x64xbf16>
  %y = attn.stream query(%q : tensor<1x2x200x64xbf16>) source(%k, %k : tensor<1x2x200x64xbf16>, tensor<1x2x200x64xbf16>)
      relative(%r, %u : tensor<2x200x64xbf16>, tensor<2x64xbf16>)
      ranges [#full] mask <causal> outs(%o : tensor<1x2x200x64xbf16>) {scale = 1.25e-01 : f64} -> tensor<1x2x200x64xbf16>
  return %y : tensor<1x2x200x64xbf16>
}
