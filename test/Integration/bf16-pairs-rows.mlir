// Few rows whose pairs of bf16 are multiplied by vdpbf16ps: sets of one to 128
// rows, ends of tiles, masks that cut single entries, lists, terms, several
// parts of the keys, numbers of queries and keys that the call alone knows.

// REQUIRES: avx512_bf16
// RUN: fovea-run %s --entry=one --cpu=native,+fast-bf16-dot --random=1 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=three --cpu=native,+fast-bf16-dot --random=2 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=eight --cpu=native,+fast-bf16-dot --random=3 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=window --cpu=native,+fast-bf16-dot --random=4 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=many --cpu=native,+fast-bf16-dot --random=5 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=terms --cpu=native,+fast-bf16-dot --random=6 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=latent --cpu=native,+fast-bf16-dot --random=7 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=dynamic --shape=2x6x1x32 --shape=2x2x97x32 --cpu=native,+fast-bf16-dot --random=8 \
// RUN:     --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=dynamic --shape=1x8x2x32 --shape=1x2x161x32 --cpu=native,+fast-bf16-dot --random=9 \
// RUN:     --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=dynamic --shape=1x8x9x32 --shape=1x2x31x32 --cpu=native,+fast-bf16-dot --random=10 \
// RUN:     --compare=reference | FileCheck %s
// CHECK: agrees with the reference

func.func @one(%q: tensor<2x3x1x128xbf16>, %k: tensor<2x3x1029x128xbf16>, %v: tensor<2x3x1029x96xbf16>) -> (tensor<2x3x1x96xbf16>, tensor<2x3x1xf32>) {
  %init = tensor.empty() : tensor<2x3x1x96xbf16>
  %l = tensor.empty() : tensor<2x3x1xf32>
  %out:2 = attn.dense ins(%q, %k, %v : tensor<2x3x1x128xbf16>, tensor<2x3x1029x128xbf16>, tensor<2x3x1029x96xbf16>)
      outs(%init, %l : tensor<2x3x1x96xbf16>, tensor<2x3x1xf32>) -> tensor<2x3x1x96xbf16>, tensor<2x3x1xf32>
  return %out#0, %out#1 : tensor<2x3x1x96xbf16>, tensor<2x3x1xf32>
}

func.func @three(%q: tensor<2x6x1x64xbf16>, %k: tensor<2x2x127x64xbf16>, %v: tensor<2x2x127x32xbf16>) -> tensor<2x6x1x32xbf16> {
  %init = tensor.empty() : tensor<2x6x1x32xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<2x6x1x64xbf16>, tensor<2x2x127x64xbf16>, tensor<2x2x127x32xbf16>)
      outs(%init : tensor<2x6x1x32xbf16>) -> tensor<2x6x1x32xbf16>
  return %out : tensor<2x6x1x32xbf16>
}

// Six rows: weights of two more are no one's.
func.func @eight(%q: tensor<2x6x2x160xbf16>, %k: tensor<2x2x2079x160xbf16>, %v: tensor<2x2x2079x96xbf16>) -> (tensor<2x6x2x96xbf16>, tensor<2x6x2xf32>) {
  %init = tensor.empty() : tensor<2x6x2x96xbf16>
  %l = tensor.empty() : tensor<2x6x2xf32>
  %out:2 = attn.dense ins(%q, %k, %v : tensor<2x6x2x160xbf16>, tensor<2x2x2079x160xbf16>, tensor<2x2x2079x96xbf16>)
      outs(%init, %l : tensor<2x6x2x96xbf16>, tensor<2x6x2xf32>) {mask = #attn.mask<causal>} -> tensor<2x6x2x96xbf16>, tensor<2x6x2xf32>
  return %out#0, %out#1 : tensor<2x6x2x96xbf16>, tensor<2x6x2xf32>
}

func.func @window(%q: tensor<1x2x7x64xbf16>, %k: tensor<1x2x300x64xbf16>, %v: tensor<1x2x300x64xbf16>) -> tensor<1x2x7x64xbf16> {
  %init = tensor.empty() : tensor<1x2x7x64xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<1x2x7x64xbf16>, tensor<1x2x300x64xbf16>, tensor<1x2x300x64xbf16>)
      outs(%init : tensor<1x2x7x64xbf16>) {mask = #attn.mask<causal, window = 37>} -> tensor<1x2x7x64xbf16>
  return %out : tensor<1x2x7x64xbf16>
}

// Sets of 100 rows; columns fill one, two and four vectors.
func.func @many(%q: tensor<1x10x20x224xbf16>, %k: tensor<1x2x333x224xbf16>, %v: tensor<1x2x333x224xbf16>) -> tensor<1x10x20x224xbf16> {
  %init = tensor.empty() : tensor<1x10x20x224xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<1x10x20x224xbf16>, tensor<1x2x333x224xbf16>, tensor<1x2x333x224xbf16>)
      outs(%init : tensor<1x10x20x224xbf16>) {mask = #attn.mask<causal>} -> tensor<1x10x20x224xbf16>
  return %out : tensor<1x10x20x224xbf16>
}

func.func @terms(%q: tensor<1x8x1x32xbf16>, %k: tensor<1x1x200x32xbf16>, %v: tensor<1x1x200x32xbf16>, %w: tensor<1x1x200xf32>, %bias: tensor<1x8x1x200xf32>) -> tensor<1x8x1x32xbf16> {
  %init = tensor.empty() : tensor<1x8x1x32xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<1x8x1x32xbf16>, tensor<1x1x200x32xbf16>, tensor<1x1x200x32xbf16>)
      log_weight(%w : tensor<1x1x200xf32>) bias(%bias : tensor<1x8x1x200xf32>)
      outs(%init : tensor<1x8x1x32xbf16>) -> tensor<1x8x1x32xbf16>
  return %out : tensor<1x8x1x32xbf16>
}

// Values are the first columns of keys.
func.func @latent(%q: tensor<1x8x1x96xbf16>, %k: tensor<1x1x700x96xbf16>) -> tensor<1x8x1x64xbf16> {
  %v = tensor.extract_slice %k[0, 0, 0, 0] [1, 1, 700, 64] [1, 1, 1, 1] : tensor<1x1x700x96xbf16> to tensor<1x1x700x64xbf16>
  %init = tensor.empty() : tensor<1x8x1x64xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<1x8x1x96xbf16>, tensor<1x1x700x96xbf16>, tensor<1x1x700x64xbf16>)
      outs(%init : tensor<1x8x1x64xbf16>) -> tensor<1x8x1x64xbf16>
  return %out : tensor<1x8x1x64xbf16>
}

func.func @dynamic(%q: tensor<?x?x?x32xbf16>, %k: tensor<?x?x?x32xbf16>) -> tensor<?x?x?x32xbf16> {
  %out = attn.dense ins(%q, %k, %k : tensor<?x?x?x32xbf16>, tensor<?x?x?x32xbf16>, tensor<?x?x?x32xbf16>)
      outs(%q : tensor<?x?x?x32xbf16>) {mask = #attn.mask<causal>} -> tensor<?x?x?x32xbf16>
  return %out : tensor<?x?x?x32xbf16>
}
