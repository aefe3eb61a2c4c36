// Products of bf16 by AMX: tiles that are not full along queries, keys, columns
// of keys and of values; copies that blocks of queries share and that they do
// not; every mask, bias and log weights, listed rows, other types beside bf16.

// REQUIRES: amx_bf16
// RUN: fovea-run %s --entry=whole --random=1 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=few --random=2 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=wide --random=3 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=shared --random=4 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=sharedWindow --random=5 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=dynamic --shape=1x2x333x48 --random=6 --compare=reference | FileCheck %s
// RUN: fovea-run %S/bf16-pairs.mlir --entry=causal --random=1 --compare=reference | FileCheck %s
// RUN: fovea-run %S/bf16-pairs.mlir --entry=window --random=2 --compare=reference | FileCheck %s
// RUN: fovea-run %S/bf16-pairs.mlir --entry=terms --random=3 --compare=reference | FileCheck %s
// RUN: fovea-run %S/bf16-pairs.mlir --entry=gathered --random=4 --compare=reference | FileCheck %s
// RUN: fovea-run %S/bf16-pairs.mlir --entry=mixed --random=5 --compare=reference | FileCheck %s
// RUN: fovea-run %S/bf16-pairs.mlir --entry=unrounded --random=6 --compare=reference | FileCheck %s
// CHECK: agrees with the reference

// Tiles of scores and outputs are full; the last keys are not.
func.func @whole(%q: tensor<1x4x128x64xbf16>, %k: tensor<1x2x300x64xbf16>, %v: tensor<1x2x300x64xbf16>) -> (tensor<1x4x128x64xbf16>, tensor<1x4x128xf32>) {
  %init = tensor.empty() : tensor<1x4x128x64xbf16>
  %l = tensor.empty() : tensor<1x4x128xf32>
  %out:2 = attn.dense ins(%q, %k, %v : tensor<1x4x128x64xbf16>, tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>)
      outs(%init, %l : tensor<1x4x128x64xbf16>, tensor<1x4x128xf32>) -> tensor<1x4x128x64xbf16>, tensor<1x4x128xf32>
  return %out#0, %out#1 : tensor<1x4x128x64xbf16>, tensor<1x4x128xf32>
}

// Three queries of one vector, one key, odd widths.
func.func @few(%q: tensor<2x1x3x7xbf16>, %k: tensor<2x1x1x7xbf16>, %v: tensor<2x1x1x3xbf16>) -> tensor<2x1x3x3xbf16> {
  %init = tensor.empty() : tensor<2x1x3x3xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<2x1x3x7xbf16>, tensor<2x1x1x7xbf16>, tensor<2x1x1x3xbf16>)
      outs(%init : tensor<2x1x3x3xbf16>) -> tensor<2x1x3x3xbf16>
  return %out : tensor<2x1x3x3xbf16>
}

// Three vectors of queries; many steps along the columns.
func.func @wide(%q: tensor<1x1x45x330xbf16>, %k: tensor<1x1x77x330xbf16>, %v: tensor<1x1x77x207xbf16>) -> tensor<1x1x45x207xbf16> {
  %init = tensor.empty() : tensor<1x1x45x207xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<1x1x45x330xbf16>, tensor<1x1x77x330xbf16>, tensor<1x1x77x207xbf16>)
      outs(%init : tensor<1x1x45x207xbf16>) -> tensor<1x1x45x207xbf16>
  return %out : tensor<1x1x45x207xbf16>
}

// Blocks of queries share copies; the first query's own position is odd.
func.func @shared(%q: tensor<1x2x1400x40xbf16>, %k: tensor<1x2x1433x40xbf16>, %v: tensor<1x2x1433x24xbf16>) -> tensor<1x2x1400x24xbf16> {
  %init = tensor.empty() : tensor<1x2x1400x24xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<1x2x1400x40xbf16>, tensor<1x2x1433x40xbf16>, tensor<1x2x1433x24xbf16>)
      outs(%init : tensor<1x2x1400x24xbf16>) {mask = #attn.mask<causal>} -> tensor<1x2x1400x24xbf16>
  return %out : tensor<1x2x1400x24xbf16>
}

// And the first that is read does not lie behind the last one copied.
func.func @sharedWindow(%q: tensor<1x2x2100x32xbf16>, %k: tensor<1x1x2077x32xbf16>, %v: tensor<1x1x2077x32xbf16>) -> (tensor<1x2x2100x32xbf16>, tensor<1x2x2100xf32>) {
  %init = tensor.empty() : tensor<1x2x2100x32xbf16>
  %l = tensor.empty() : tensor<1x2x2100xf32>
  %out:2 = attn.dense ins(%q, %k, %v : tensor<1x2x2100x32xbf16>, tensor<1x1x2077x32xbf16>, tensor<1x1x2077x32xbf16>)
      outs(%init, %l : tensor<1x2x2100x32xbf16>, tensor<1x2x2100xf32>) {mask = #attn.mask<window = 200>} -> tensor<1x2x2100x32xbf16>, tensor<1x2x2100xf32>
  return %out#0, %out#1 : tensor<1x2x2100x32xbf16>, tensor<1x2x2100xf32>
}

// Extents that only the call knows.
func.func @dynamic(%q: tensor<?x?x?x48xbf16>) -> tensor<?x?x?x48xbf16> {
  %out = attn.dense ins(%q, %q, %q : tensor<?x?x?x48xbf16>, tensor<?x?x?x48xbf16>, tensor<?x?x?x48xbf16>)
      outs(%q : tensor<?x?x?x48xbf16>) {mask = #attn.mask<causal>} -> tensor<?x?x?x48xbf16>
  return %out : tensor<?x?x?x48xbf16>
}
