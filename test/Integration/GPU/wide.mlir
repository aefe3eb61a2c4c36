// Values wider than a block sums at once, and the widest heads. Every number of
// random schedules of the emulator gives the same result.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=wide --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=wide_f32 --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=3 fovea-run %s --entry=broad --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=8,eager fovea-run %s --entry=broad --target=gpu-sim --random --compare=reference | FileCheck %s
// Products of f32 without tensor cores, of both operands of a product.
// RUN: fovea-run %s --entry=wide_f32 --target=gpu-sim --f32=exact --random --compare=reference | FileCheck %s
// Latent attention: keys of 576 columns, of which 512 are values.
// RUN: fovea-run %s --entry=latent --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=latent --target=gpu-sim --chip=sm_80 --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=5 fovea-run %s --entry=latent_f32 --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=latent_f32 --target=gpu-sim --f32=exact --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=latent_decode --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=odd --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=most --target=gpu-sim --random --compare=reference | FileCheck %s
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

func.func @latent(%q: tensor<1x4x40x576xbf16>, %k: tensor<1x1x70x576xbf16>) -> tensor<1x4x40x512xbf16> {
  %v = tensor.extract_slice %k[0, 0, 0, 0] [1, 1, 70, 512] [1, 1, 1, 1] : tensor<1x1x70x576xbf16> to tensor<1x1x70x512xbf16>
  %o = tensor.empty() : tensor<1x4x40x512xbf16>
  %r = attn.dense ins(%q, %k, %v : tensor<1x4x40x576xbf16>, tensor<1x1x70x576xbf16>, tensor<1x1x70x512xbf16>)
      outs(%o : tensor<1x4x40x512xbf16>) {mask = #attn.mask<causal>} -> tensor<1x4x40x512xbf16>
  return %r : tensor<1x4x40x512xbf16>
}

func.func @latent_f32(%q: tensor<1x2x20x576xf32>, %k: tensor<1x1x40x576xf32>) -> tensor<1x2x20x512xf32> {
  %v = tensor.extract_slice %k[0, 0, 0, 0] [1, 1, 40, 512] [1, 1, 1, 1] : tensor<1x1x40x576xf32> to tensor<1x1x40x512xf32>
  %o = tensor.empty() : tensor<1x2x20x512xf32>
  %r = attn.dense ins(%q, %k, %v : tensor<1x2x20x576xf32>, tensor<1x1x40x576xf32>, tensor<1x1x40x512xf32>)
      outs(%o : tensor<1x2x20x512xf32>) {mask = #attn.mask<causal>} -> tensor<1x2x20x512xf32>
  return %r : tensor<1x2x20x512xf32>
}

func.func @latent_decode(%q: tensor<2x4x1x576xf16>, %k: tensor<2x1x70x576xf16>) -> tensor<2x4x1x512xf16> {
  %v = tensor.extract_slice %k[0, 0, 0, 0] [2, 1, 70, 512] [1, 1, 1, 1] : tensor<2x1x70x576xf16> to tensor<2x1x70x512xf16>
  %o = tensor.empty() : tensor<2x4x1x512xf16>
  %r = attn.dense ins(%q, %k, %v : tensor<2x4x1x576xf16>, tensor<2x1x70x576xf16>, tensor<2x1x70x512xf16>)
      outs(%o : tensor<2x4x1x512xf16>) {mask = #attn.mask<causal>} -> tensor<2x4x1x512xf16>
  return %r : tensor<2x4x1x512xf16>
}

func.func @odd(%q: tensor<1x2x19x331xf16>, %k: tensor<1x2x33x331xf16>) -> tensor<1x2x19x300xf16> {
  %v = tensor.extract_slice %k[0, 0, 0, 0] [1, 2, 33, 300] [1, 1, 1, 1] : tensor<1x2x33x331xf16> to tensor<1x2x33x300xf16>
  %o = tensor.empty() : tensor<1x2x19x300xf16>
  %r = attn.dense ins(%q, %k, %v : tensor<1x2x19x331xf16>, tensor<1x2x33x331xf16>, tensor<1x2x33x300xf16>)
      outs(%o : tensor<1x2x19x300xf16>) -> tensor<1x2x19x300xf16>
  return %r : tensor<1x2x19x300xf16>
}

func.func @most(%q: tensor<1x1x17x1024xbf16>, %k: tensor<1x1x19x1024xbf16>) -> tensor<1x1x17x64xbf16> {
  %v = tensor.extract_slice %k[0, 0, 0, 0] [1, 1, 19, 64] [1, 1, 1, 1] : tensor<1x1x19x1024xbf16> to tensor<1x1x19x64xbf16>
  %o = tensor.empty() : tensor<1x1x17x64xbf16>
  %r = attn.dense ins(%q, %k, %v : tensor<1x1x17x1024xbf16>, tensor<1x1x19x1024xbf16>, tensor<1x1x19x64xbf16>)
      outs(%o : tensor<1x1x17x64xbf16>) {mask = #attn.mask<causal>} -> tensor<1x1x17x64xbf16>
  return %r : tensor<1x1x17x64xbf16>
}
