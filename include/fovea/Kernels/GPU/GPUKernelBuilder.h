//===- GPUKernelBuilder.h - Emission of GPU kernels -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a kernel for NVIDIA GPUs consists of beside index arithmetic and loops:
// threads, shared memory, asynchronous copies, fragments of matrices.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPU_GPUKERNELBUILDER_H
#define FOVEA_KERNELS_GPU_GPUKERNELBUILDER_H

#include "fovea/Kernels/RowBuilder.h"
#include "fovea/Support/F32Math.h"

namespace fovea::attn {

constexpr int64_t kWarpSize = 32;
/// Query rows of the fragments of one warp.
constexpr int64_t kWarpRows = 16;
/// Bytes that one thread copies, and that one row of an 8 x 8 matrix has.
constexpr int64_t kChunkBytes = 16;

inline mlir::MemRefType getMemRefType(mlir::Value memref) {
  return mlir::cast<mlir::MemRefType>(memref.getType());
}
/// The last extent of a memref.
inline int64_t getWidth(mlir::Value memref) {
  return getMemRefType(memref).getShape().back();
}

/// Rows of a matrix in shared memory. Rows are padded so that 16-byte chunks
/// can be permuted within 128 bytes: chunk `c` of row `r` lies at `c ^ f(r)`,
/// and eight rows read at the same chunk hit different banks.
struct SharedMatrix {
  mlir::Value memref;
  int64_t chunks = 0;        // 16-byte chunks of a row, padded
  int64_t chunkElements = 0; // elements of a chunk

  /// Padded chunks of a row of `bytes` bytes.
  static int64_t getChunks(int64_t bytes);
};

/// Emits the code of one thread. Floating-point numbers are scalars of f32.
class GPUKernelBuilder : public RowBuilder {
public:
  using Value = mlir::Value;

  GPUKernelBuilder(mlir::Location loc, mlir::OpBuilder &builder,
                   int64_t numThreads);

  int64_t getNumThreads() const { return numThreads; }
  /// Reads the thread number; to be called at the start of each kernel.
  void begin();
  // Numbers of the thread, its lane and its warp, as integers of 32 bits.
  Value thread() const { return threadId; }
  Value lane() const { return laneId; }
  Value warp() const { return warpId; }
  /// Runs `body` as code of the `count` threads from `first` on, which then
  /// number from 0 and have barriers of their own, of two groups at most. Both
  /// are multiples of a warp.
  void inGroup(int64_t first, int64_t count, llvm::function_ref<void()> body);
  /// The same number of 32 bits; what follows from the result is worked out
  /// where it is used and takes no registers of loops around.
  Value recompute(Value number);
  /// Runs `body`, code that is rarely run, which finds out anew where its
  /// thread is: what it works out from that takes no registers of other code.
  void rarely(llvm::function_ref<void()> body);
  void barrier() { emitBarrier(Value()); }
  /// Waits for the warp's lanes and orders what they read and write.
  void warpBarrier();
  /// A bit for each lane of the warp, set where `condition` holds.
  Value ballot(Value condition);
  /// A bit for each lane of the warp that has the same number of 32 bits.
  Value matchAny(Value number);
  /// Whether `condition` holds for any thread that waits at this barrier.
  Value anyThread(Value condition);

  // Integers of 32 bits: threads count rows and columns with them, which takes
  // half the registers.
  Value i32(int64_t value);
  Value toI32(Value index);
  Value i1(bool value);
  /// Numbers that are not negative as indices.
  Value toIndex(Value value);
  Values toIndices(mlir::ValueRange values);
  Value bitXor(Value a, Value b);
  Value bitXor(Value a, int64_t b) { return b ? bitXor(a, like(a, b)) : a; }
  Value bitAnd(Value a, int64_t b);

  // Floating-point numbers that are fast on the GPU. SoftmaxAlgebra emits math
  // operations, which --attn-lower-gpu-math turns into the same instructions.
  Value exp2(Value x);
  Value maxNum(Value a, Value b);
  Value shuffleXor(Value value, int64_t mask);
  /// What another lane of the warp has.
  Value shuffleFrom(Value value, Value lane);

  // Shared memory.
  /// A matrix of `rows` rows at byte `offset` of the kernel's shared memory.
  SharedMatrix sharedMatrix(int64_t offset, int64_t rows, int64_t columns,
                            mlir::FloatType type);
  Value sharedBuffer(int64_t offset, llvm::ArrayRef<int64_t> shape,
                     mlir::Type type);
  /// What the chunk numbers of `row` are XORed with.
  Value swizzle(const SharedMatrix &matrix, Value row);

  /// Four 8 x 8 matrices of 16-bit elements, or 8 x 4 of 32-bit ones; thread
  /// `l` gives the address of row `l % 8` of matrix `l / 8`.
  Values loadMatrices(const SharedMatrix &matrix, Value row, Value column,
                      bool transpose);

  /// A sum of products on the tensor cores, 16 rows by 8 columns. What is below
  /// the precision of one tf32 product has a sum of its own, so that it rounds
  /// against numbers of its size.
  struct Sum {
    Values high, low;
  };
  Sum makeSum();
  /// Adds `a b` to `sum`: `a` has 16 rows, `b` 8 columns, and each 32 bytes of
  /// depth.
  void multiply(mlir::FloatType type, F32Math math, mlir::ValueRange a,
                mlir::ValueRange b, Sum &sum);
  /// The first operand of a product: 16 rows of a matrix from `row` on, and
  /// piece `step` of the depth.
  Values loadLeft(const SharedMatrix &matrix, Value row, int64_t step);
  /// Adds the products of `left` and that piece of `numRows` rows, a multiple
  /// of 16, of another matrix: a sum for every 8 rows.
  void multiplyRows(mlir::FloatType type, F32Math math, mlir::ValueRange left,
                    const SharedMatrix &matrix, Value row, int64_t numRows,
                    int64_t step, llvm::MutableArrayRef<Sum> sums);
  /// The four numbers of a thread.
  Values getTotal(const Sum &sum);

  /// Starts a copy of `bytes` bytes (4, 8 or 16) from global to shared memory,
  /// of zeros unless `valid`.
  void copyAsync(Value source, mlir::ValueRange at, Value shared,
                 mlir::ValueRange sharedAt, int64_t elements, int64_t bytes,
                 Value valid);
  void commitCopies();
  /// Waits until at most `pending` of the thread's groups of copies run.
  void waitCopies(int64_t pending);

private:
  Value emitBarrier(Value predicate);
  Values multiplyOnce(mlir::FloatType type, mlir::ValueRange a,
                      mlir::ValueRange b, mlir::ValueRange c);
  /// The product of 16 x 8 and 8 x 8 numbers of f32 in the same fragments, from
  /// which lanes take each other's numbers.
  Values multiplyByLanes(mlir::ValueRange a, mlir::ValueRange b,
                         mlir::ValueRange c);
  /// The nearest tf32 number of an f32 number, as an f32 number.
  Value roundToTF32(Value x);
  /// The same of what the nearest one leaves, where NaN may become anything: it
  /// takes half as many instructions on chips that have none for this.
  Value roundRest(Value x);

  void setThread(Value id);

  int64_t numThreads, firstThread = 0;
  bool isGroup = false;
  Value threadId, laneId, warpId, sharedMemory;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_GPUKERNELBUILDER_H
