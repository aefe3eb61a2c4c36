//===- WarpgroupBuilder.h - Emission of code for sm_90a ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What sm_90a adds: copies of boxes of tensors that one thread starts (TMA),
// barriers in shared memory that count their bytes, and products of four warps
// that read shared memory and run while the warps go on.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPU_WARPGROUPBUILDER_H
#define FOVEA_KERNELS_GPU_WARPGROUPBUILDER_H

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace fovea::attn {

/// Rows of the products of one warpgroup, and its threads.
constexpr int64_t kWarpgroupRows = 64;
constexpr int64_t kWarpgroupSize = 4 * kWarpSize;
/// Boxes are as wide as the swizzle: 128 bytes, in which chunk `c` of 16 bytes
/// of row `r` lies at `c ^ (r % 8)`.
constexpr int64_t kBoxBytes = 128;

/// Columns of which gradients of rows are summed: a thread has registers for no
/// more beside those of a tile.
constexpr int64_t kMostGradientColumns = 128;
/// The same where keys or values are summed alone, with no terms of scores.
constexpr int64_t kMostColumnsAlone = 256;
/// Whether rows of a memref, `most` wide, pass as boxes of numbers of `type`
/// through kernels that sum gradients.
bool fitsGradientBoxes(mlir::Value memref, mlir::FloatType type,
                       int64_t most = kMostGradientColumns);

/// Registers of a thread of the producer and of the consumers: 65536 for all
/// warpgroups, in multiples of 8.
struct WarpgroupRegisters {
  int64_t producer, consumer;
};
/// With one thread that starts copies, for two consumers and for three.
constexpr WarpgroupRegisters kRegistersAlone = {24, 240};
constexpr WarpgroupRegisters kRegistersOfThree = {24, 160};

/// Bytes of `rows` rows of narrow numbers in boxes.
int64_t getBoxedBytes(int64_t rows, int64_t columns);

/// The map of a tensor for boxes of `rows` rows of its last two axes, at
/// `places` of the axis before, a pointer that copies in kernels take.
mlir::Value createBoxMap(mlir::OpBuilder &host, mlir::Location loc,
                         mlir::Value tensor, int64_t rows, int64_t places = 1);

class WarpgroupBuilder {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;

  explicit WarpgroupBuilder(GPUKernelBuilder &builder) : b(builder) {}

  /// The address of byte `offset` of the kernel's shared memory.
  Value getShared(int64_t offset);
  /// `bytes`, of 32 bits, from an address on.
  Value advance(Value address, Value bytes);
  Value advance(Value address, int64_t bytes) {
    return bytes ? advance(address, b.i32(bytes)) : address;
  }

  // Barriers, 8 bytes each. A phase ends with `count` arrivals and the bytes
  // that some of them announced.
  void initBarrier(Value barrier, int64_t count);
  /// To be called once after all barriers are there, before they are used.
  void publishBarriers();
  void arrive(Value barrier);
  /// Arrives at the barrier that lies there in block `rank` of the cluster.
  void arriveAt(Value barrier, Value rank);
  void arriveExpecting(Value barrier, int64_t bytes);
  /// Arrives when all copies that this thread started by copyAsync have
  /// arrived. What it wrote otherwise, another arrival must order.
  void arriveAfterCopies(Value barrier);
  /// Announces bytes without arriving.
  void expect(Value barrier, int64_t bytes);
  /// Waits for the phase of this parity, 0 first; one before the first is over.
  void wait(Value barrier, Value parity);

  // Turns of warpgroups, one after the other. Each is a barrier of two of them.
  void awaitTurn(Value group);
  void giveTurn(Value group);

  // Blocks of a cluster.
  /// The number of this block.
  Value getRank();
  /// Waits for all threads of all blocks, and orders what they read and write.
  void meetCluster();

  /// Copies the box of a tensor at `position`, innermost axis first: to the
  /// same place of each of `cluster` blocks, and tells the barrier there.
  void copyBox(Value target, Value tensorMap, Value barrier,
               mlir::ValueRange position, int64_t cluster = 1);
  /// Copies rows of narrow numbers, as many as boxes have and `columns` wide,
  /// from `position` on, outermost axis first. Boxes begin `rows` rows after
  /// one another. What the tensor does not have becomes zero.
  void copyBoxes(Value target, Value tensorMap, Value barrier,
                 mlir::ValueRange position, int64_t rows, int64_t columns,
                 int64_t cluster = 1);
  /// Copies `bytes` consecutive bytes of global memory from `at` on. Both are
  /// multiples of 16.
  void copyBytes(Value target, Value memref, mlir::ValueRange at, Value barrier,
                 int64_t bytes);

  /// Starts to store rows, `columns` wide, from `position` on, outermost axis
  /// first. They begin at `source`, each box `boxRows` rows after the one
  /// before. What the tensor does not have is left out.
  void storeBoxes(Value source, Value tensorMap, mlir::ValueRange position,
                  int64_t boxRows, int64_t columns);
  /// Waits until what this thread stores by boxes has been read.
  void awaitStores();

  /// Raises or lowers the registers of the warpgroup's threads.
  void setRegisters(int64_t count, bool raises);

  /// To be called between ordinary writes to shared memory and what reads them
  /// by products or writes there by boxes: by the thread that wrote, before it
  /// tells others, or by those whom it told.
  void publishWrites();

  // Products. Operands in shared memory are rows of boxes.
  /// `bytes` from one box to the next.
  Value getDescriptor(Value address, int64_t boxStride);
  /// The same `bytes`, a multiple of 16, further on.
  Value advanceDescriptor(Value descriptor, int64_t bytes);
  void beginProducts();
  /// `sums + A B^T` with 16 columns of A and B, or `sums + A B` with 16 columns
  /// of A and rows of B if `transpose`: 64 rows, as many columns as half the
  /// sums. `left` is a descriptor, or four registers. Without `adds`, sums
  /// start from zero.
  Values multiply(mlir::FloatType type, mlir::ValueRange sums,
                  mlir::ValueRange left, Value right, bool transpose,
                  bool adds);
  void commitProducts();
  /// Starts, with commitProducts behind it, products of 64 rows of boxes of
  /// `leftRows` rows, `width` columns, and the transposed ones of `rightRows`
  /// rows. Both are the descriptors of the first box.
  Values multiplyRows(mlir::FloatType type, Value left, int64_t leftRows,
                      Value right, int64_t rightRows, int64_t width);
  /// The same, as the last ones of a group.
  Values startScores(mlir::FloatType type, Value left, int64_t leftRows,
                     Value right, int64_t rightRows, int64_t width);
  /// Adds, with commitProducts behind it, packed weights times the `rows` rows
  /// of boxes from an address on.
  Values multiplyWeights(mlir::FloatType type, mlir::ValueRange sums,
                         mlir::ValueRange packed, Value address, int64_t rows);
  /// Rounds numbers that lie as sums do. Those of two tiles of columns are, in
  /// this order, the first operand of a product.
  Values packWeights(mlir::FloatType type, mlir::ValueRange weights);
  /// Waits until at most `pending` groups of products run, and returns `sums`,
  /// which are then there.
  Values waitProducts(int64_t pending, mlir::ValueRange sums);

private:
  /// Calls `body` with where each box is in shared memory and in the tensor.
  void
  forEachBox(Value shared, mlir::ValueRange position, int64_t rows,
             int64_t columns,
             llvm::function_ref<void(Value box, mlir::ValueRange at)> body);

  GPUKernelBuilder &b;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_WARPGROUPBUILDER_H
