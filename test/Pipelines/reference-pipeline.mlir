// RUN: fovea-opt %s -attn-reference-pipeline | FileCheck %s
// RUN: fovea-opt %s -attn-reference-pipeline -canonicalize -cse | FileCheck %s --check-prefix=MEMORY

// Everything becomes the LLVM dialect.

// CHECK-NOT: unrealized_conversion_cast
// CHECK-NOT: memref.
// CHECK-NOT: attn.
// CHECK-DAG: llvm.func @_mlir_memref_to_llvm_aligned_alloc(i64, i64) -> !llvm.ptr
// CHECK-DAG: llvm.func @_mlir_memref_to_llvm_free(!llvm.ptr)
// CHECK-DAG: llvm.func @dense(
//     CHECK: llvm.func @_mlir_ciface_dense(
// CHECK-NOT: unrealized_conversion_cast
// CHECK-NOT: memref.
// CHECK-NOT: attn.

// The result is aligned memory of the runtime; the working row is freed.

//     MEMORY: llvm.func @dense(
//     MEMORY:   %[[RESULT:.*]] = llvm.call @_mlir_memref_to_llvm_aligned_alloc
//     MEMORY:   %[[ROW:.*]] = llvm.call @_mlir_memref_to_llvm_{{.*}}alloc
//     MEMORY:   llvm.intr.exp
// MEMORY-NOT:   free(%[[RESULT]])
//     MEMORY:   llvm.call @_mlir_memref_to_llvm_free(%[[ROW]])
// MEMORY-NOT:   llvm.call @_mlir_memref_to_llvm_free
//     MEMORY:   llvm.return
func.func @dense(%q: tensor<1x2x5x4xbf16>) -> tensor<1x2x5x4xbf16> {
  %init = tensor.empty() : tensor<1x2x5x4xbf16>
  %out = attn.dense ins(%q, %q, %q : tensor<1x2x5x4xbf16>, tensor<1x2x5x4xbf16>, tensor<1x2x5x4xbf16>)
      outs(%init : tensor<1x2x5x4xbf16>) {mask = #attn.mask<causal>} -> tensor<1x2x5x4xbf16>
  return %out : tensor<1x2x5x4xbf16>
}
