// No width of vectors but a power of two that holds an f64 has lanes.

// RUN: not fovea-opt %s --attn-vectorize-linalg=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-codebook=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-quantize=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-vq-backward=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-summarize=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-summarize-backward=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-tree=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-conv=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-conv-backward=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-conv-recover=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-low-rank=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-vectorize-linalg=vector-bits=-64 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// CHECK: error: expects vector-bits to be a power of two of at least 64, but got 96
// NEGATIVE: error: expects vector-bits to be a power of two of at least 64, but got -64
func.func @nothing() {
  return
}
