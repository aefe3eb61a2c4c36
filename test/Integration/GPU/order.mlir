// Blocks in sections of heads, in the emulator: each block of queries of each
// head is written.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=together --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=window --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=apart --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=extents --target=gpu-sim --chip=sm_90a --random --compare=reference --shape=3x6x290x64 --shape=3x2x290x64 | FileCheck %s
// RUN: fovea-run %s --entry=warps --target=gpu-sim --chip=sm_80 --random --compare=reference | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs

// All 18 heads are one section.
func.func @together(%q: tensor<3x6x290x64xbf16>, %k: tensor<3x2x290x64xbf16>) -> tensor<3x6x290x64xbf16> {
  %o = tensor.empty() : tensor<3x6x290x64xbf16>
  %r = attn.dense ins(%q, %k, %k : tensor<3x6x290x64xbf16>, tensor<3x2x290x64xbf16>, tensor<3x2x290x64xbf16>)
      outs(%o : tensor<3x6x290x64xbf16>) {mask = #attn.mask<causal>} -> tensor<3x6x290x64xbf16>
  return %r : tensor<3x6x290x64xbf16>
}

// Five heads for each head of keys are one.
func.func @window(%q: tensor<1x15x270x64xbf16>, %k: tensor<1x3x270x64xbf16>) -> tensor<1x15x270x64xbf16> {
  %o = tensor.empty() : tensor<1x15x270x64xbf16>
  %r = attn.dense ins(%q, %k, %k : tensor<1x15x270x64xbf16>, tensor<1x3x270x64xbf16>, tensor<1x3x270x64xbf16>)
      outs(%o : tensor<1x15x270x64xbf16>) {mask = #attn.mask<causal, window = 100>} -> tensor<1x15x270x64xbf16>
  return %r : tensor<1x15x270x64xbf16>
}

// Keys and values of two heads are 32 MiB, of which few are read: the last
// section has one head.
func.func @apart(%q: tensor<1x3x290x128xbf16>, %k: tensor<1x3x32768x128xbf16>) -> tensor<1x3x290x128xbf16> {
  %n = arith.constant dense<300> : tensor<1xi32>
  %o = tensor.empty() : tensor<1x3x290x128xbf16>
  %r = attn.dense ins(%q, %k, %k : tensor<1x3x290x128xbf16>, tensor<1x3x32768x128xbf16>, tensor<1x3x32768x128xbf16>)
      lengths(%n : tensor<1xi32>) outs(%o : tensor<1x3x290x128xbf16>) {mask = #attn.mask<causal>} -> tensor<1x3x290x128xbf16>
  return %r : tensor<1x3x290x128xbf16>
}

// The host finds out how many heads a section has.
func.func @extents(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16> {
  %r = attn.dense ins(%q, %k, %k : tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>)
      outs(%q : tensor<?x?x?x64xbf16>) {mask = #attn.mask<causal>} -> tensor<?x?x?x64xbf16>
  return %r : tensor<?x?x?x64xbf16>
}

// Other chips: three heads for each head of keys are a section.
func.func @warps(%q: tensor<2x6x290x64xf16>, %k: tensor<2x2x290x64xf16>) -> tensor<2x6x290x64xf16> {
  %o = tensor.empty() : tensor<2x6x290x64xf16>
  %r = attn.dense ins(%q, %k, %k : tensor<2x6x290x64xf16>, tensor<2x2x290x64xf16>, tensor<2x2x290x64xf16>)
      outs(%o : tensor<2x6x290x64xf16>) {mask = #attn.mask<causal>} -> tensor<2x6x290x64xf16>
  return %r : tensor<2x6x290x64xf16>
}
