// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --canonicalize --cse | FileCheck %s --check-prefix=EFFECTS
// RUN: fovea-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %s --check-prefix=BUFFERS

#form = #attn.spectrum<lanes = 4, radices = [2, 8]>

// Without effects on tensors; what is updated is updated in place.
// CHECK-LABEL: func @tensors(
// CHECK: attn.fft_forward ins(%{{.*}} : tensor<?x9x5xbf16>) outs(%{{.*}} : tensor<?x16x8xf32>) {form = #attn.spectrum<lanes = 4, radices = [2, 8]>} -> tensor<?x16x8xf32>
// CHECK: attn.fft_inverse ins(%{{.*}} : tensor<?x16x8xf32>) outs(%{{.*}} : tensor<?x9x5xbf16>) {first = 7 : i64, form = #attn.spectrum<lanes = 4, radices = [2, 8]>} -> tensor<?x9x5xbf16>
// EFFECTS-LABEL: func @tensors(
// EFFECTS-NOT: attn.fft_inverse
// EFFECTS: attn.fft_forward
// EFFECTS-NOT: attn.fft_forward
// EFFECTS: attn.fft_accumulate
// BUFFERS-LABEL: func @tensors(
// BUFFERS-SAME: %[[S:[^:]*]]: memref<?x16x8xf32>
// BUFFERS-NOT: memref.copy
// BUFFERS: attn.fft_accumulate ins({{.*}}) outs(%[[S]] : memref<?x16x8xf32>)
func.func @tensors(%s: tensor<?x16x8xf32>, %k: tensor<1x16x8xf32>, %x: tensor<?x9x5xbf16>, %o: tensor<?x9x5xbf16>, %i: tensor<?x16x8xf32>) -> (tensor<?x16x8xf32>, tensor<?x16x8xf32>) {
  %a = attn.fft_forward ins(%x : tensor<?x9x5xbf16>) outs(%i : tensor<?x16x8xf32>) {form = #form} -> tensor<?x16x8xf32>
  %b = attn.fft_forward ins(%x : tensor<?x9x5xbf16>) outs(%i : tensor<?x16x8xf32>) {form = #form} -> tensor<?x16x8xf32>
  %y = attn.fft_inverse ins(%a : tensor<?x16x8xf32>) outs(%o : tensor<?x9x5xbf16>) {form = #form, first = 7 : i64} -> tensor<?x9x5xbf16>
  %c = attn.fft_accumulate ins(%b, %k : tensor<?x16x8xf32>, tensor<1x16x8xf32>) outs(%s : tensor<?x16x8xf32>) {form = #form} -> tensor<?x16x8xf32>
  return %c, %a : tensor<?x16x8xf32>, tensor<?x16x8xf32>
}
