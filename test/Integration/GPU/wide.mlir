// Values wider than a block sums at once, and the widest heads. Every number of
// random schedules of the emulator gives the same result.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=wide --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=wide_f32 --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=3 fovea-run %s --entry=broad --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=8,eager fovea-run %s --entry=broad --target=gpu-sim --random --compare=reference | FileCheck %s
// Products of f32 without tensor cores, of both operands of a product.
// RUN: fovea-run %s --entry=wide_f32 --target=gpu-sim --f32=exact --random --compare=reference | FileCheck %s
// CHECK: agrees with the reference

func.func @wide(%q: tensor<1x1x40x32xf16>, %k: tensor<1x1x50x32xf16>, %v: tensor<1x1x50x700xf16>) -> tensor<1x1x40x700xf16> {
  %o = tensor.empty() : tensor<1x1x40x700xf16>
  %r = attn.dense ins(%q, %k, %v : tensor<1x1x40x32xf16>, tensor<1x1x50x32xf16>, tensor<1x1x50x700xf16>)
      outs(%o : tensor<1x1x40x700xf16>) -> tensor<1x1x40x700xf16>
  return %r : tensor<1x1x40x700xf16>
}

func.func @wide_f32(%q: tensor<1x1x20x8xf32>, %k: tensor<1x1x50x8xf32>, %v: tensor<1x1x50x513xf32>) -> tensor<1x1x20x513xf32> {
  %o = tensor.empty() : tensor<1x1x20x513xf32>
  %r = attn.dense ins(%q, %k, %v : tensor<1x1x20x8xf32>, tensor<1x1x50x8xf32>, tensor<1x1x50x513xf32>)
      outs(%o : tensor<1x1x20x513xf32>) -> tensor<1x1x20x513xf32>
  return %r : tensor<1x1x20x513xf32>
}

func.func @broad(%q: tensor<1x2x70x256xbf16>, %k: tensor<1x1x70x256xbf16>, %v: tensor<1x1x70x256xbf16>) -> tensor<1x2x70x256xbf16> {
  %o = tensor.empty() : tensor<1x2x70x256xbf16>
  %r = attn.dense ins(%q, %k, %v : tensor<1x2x70x256xbf16>, tensor<1x1x70x256xbf16>, tensor<1x1x70x256xbf16>)
      outs(%o : tensor<1x2x70x256xbf16>) {mask = #attn.mask<causal>} -> tensor<1x2x70x256xbf16>
  return %r : tensor<1x2x70x256xbf16>
}
