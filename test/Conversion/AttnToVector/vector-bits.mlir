// No width of vectors but a power of two that holds an f64 has lanes.

// RUN: not fovea-opt %s --attn-set-target=vector-bits=96 2>&1 | FileCheck %s
// RUN: not fovea-opt %s --attn-set-target=vector-bits=-64 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// Nor has one that was written by hand.
// RUN: not fovea-opt %s --attn-select-tiles 2>&1 | FileCheck %s --check-prefix=WRITTEN
// RUN: not fovea-opt %s --attn-vectorize-linalg 2>&1 | FileCheck %s --check-prefix=WRITTEN
// RUN: not fovea-opt %s --convert-attn-to-vector 2>&1 | FileCheck %s --check-prefix=WRITTEN

// CHECK: error: expects vector-bits to be a power of two of at least 64, but got 96
// NEGATIVE: error: expects vector-bits to be a power of two of at least 64, but got -64
// WRITTEN: error: expects vector-bits to be a power of two of at least 64, but got 48
module attributes {dlti.target_system_spec = #dlti.target_system_spec<"CPU" = #dlti.target_device_spec<"vector_bits" = 48>>} {
  func.func @nothing() {
    return
  }
}
