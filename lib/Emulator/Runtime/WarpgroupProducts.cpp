//===- WarpgroupProducts.cpp - wgmma --------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"
#include "Numbers.h"

#include <cstring>

using namespace fovea::simt;

//===----------------------------------------------------------------------===//
// Matrices in shared memory
//===----------------------------------------------------------------------===//

namespace {

/// A matrix that a descriptor describes, of elements of 2 or 4 bytes.
struct SharedMatrix {
  uint32_t start, leading, stride;
  /// log2 of the swizzle in units of 16 bytes; 0: none.
  unsigned swizzle;
  unsigned elementBytes;
  /// The rows of the matrix, not the summed axis, are contiguous.
  bool transposed;

  SharedMatrix(uint64_t descriptor, unsigned elementBytes, bool transposed)
      : start((descriptor & 0x3fff) << 4),
        leading((descriptor >> 16 & 0x3fff) << 4),
        stride((descriptor >> 32 & 0x3fff) << 4),
        // 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes.
        swizzle((4 - (descriptor >> 62)) & 3), elementBytes(elementBytes),
        transposed(transposed) {}

  /// Offset in shared memory of the element at `row` of the outer axis and
  /// `k` of the summed one.
  uint32_t getOffset(uint32_t row, uint32_t k) const {
    uint32_t chunk = 16 / elementBytes;
    // Elements of one swizzled line.
    uint32_t line = chunk << swizzle;
    uint32_t inner = transposed ? row : k, outer = transposed ? k : row;
    uint32_t offset = start;
    if (swizzle == 0) {
      // Matrices of 8 lines of 16 bytes; along the contiguous axis they are
      // `leading` apart, across it `stride`; transposed the other way round.
      uint32_t along = transposed ? stride : leading;
      uint32_t across = transposed ? leading : stride;
      offset += outer / 8 * across + inner / chunk * along + outer % 8 * 16 +
                inner % chunk * elementBytes;
      return offset;
    }
    offset += outer / 8 * stride + outer % 8 * (16u << swizzle) +
              inner % line * elementBytes;
    if (transposed)
      offset += inner / line * leading;
    uint32_t mask = (1u << swizzle) - 1;
    return offset ^ ((offset >> 7 & mask) << 4);
  }

  /// Calls `body(row, k)` for where each piece of 16 bytes begins that lies in
  /// one piece: those of rows from `first` on, and of the first `depth` of the
  /// summed axis.
  template <typename Body>
  void forEachChunk(unsigned first, unsigned count, unsigned depth,
                    Body body) const {
    unsigned chunk = 16 / elementBytes;
    unsigned rowStep = transposed ? chunk : 1, kStep = transposed ? 1 : chunk;
    for (unsigned row = first; row < first + count; row += rowStep)
      for (unsigned k = 0; k < depth; k += kStep)
        body(row, k);
  }
};

} // namespace

/// Where the 16 bytes lie that begin with an element.
static uint32_t getChunk(const Block &block, const SharedMatrix &matrix,
                         unsigned row, unsigned k, const Op &op) {
  uint32_t offset = matrix.getOffset(row, k);
  if (offset + 16 > block.sharedBytes)
    fail(&op, "the descriptor reaches shared +%u of %u bytes", offset,
         block.sharedBytes);
  return offset;
}

/// Calls `body(row, i, value)` for the first `rows` rows and `k` columns.
template <typename Body>
static void readMatrix(Block &block, const SharedMatrix &matrix, unsigned rows,
                       unsigned k, int element, const Op &op, Body body) {
  matrix.forEachChunk(0, rows, k, [&](unsigned row, unsigned i) {
    const char *data = block.shared + getChunk(block, matrix, row, i, op);
    unsigned bytes = matrix.elementBytes;
    for (unsigned e = 0; e < 16 / bytes; ++e, data += bytes) {
      uint32_t bits = 0;
      memcpy(&bits, data, bytes);
      body(matrix.transposed ? row + e : row, matrix.transposed ? i : i + e,
           element == TF32 ? tf32ToFloat(bits)
                           : halfToFloat(element == BF16, bits));
    }
  });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Registers of a thread with its part of the accumulators.
static unsigned getNumRegisters(const Op &op) {
  return op.param[3] ? op.param[0] / 4 : op.param[0] / 2;
}

/// Notes that `warp` reads the matrices; what it races with is reported.
static void noteReads(Warp &warp, const Product &product) {
  const Op &op = *product.op;
  unsigned n = op.param[0], k = op.param[1];
  unsigned bytes = op.param[2] == TF32 ? 4 : 2;
  auto note = [&](const SharedMatrix &matrix, unsigned first, unsigned count) {
    matrix.forEachChunk(first, count, k, [&](unsigned row, unsigned i) {
      warp.block->races.access(warp, getChunk(*warp.block, matrix, row, i, op),
                               16, Access::AsyncRead, op);
    });
  };
  if (!op.param[4])
    note(SharedMatrix(product.descriptorA, bytes, product.transposeA),
         warp.id % 4 * 16, 16);
  note(SharedMatrix(product.descriptorB, bytes, product.transposeB), 0, n);
}

/// The accumulator register `bits` holds, if it may be read by a product that
/// runs after the ones issued before it.
static uint32_t resolve(Thread &thread, uint32_t bits, const Op &op) {
  if (!Accumulators::isTag(bits))
    return bits;
  Accumulators::Entry *entry = thread.accumulators.find(bits);
  if (!entry)
    fail(&op,
         "the emulator has lost an accumulator that was written %u "
         "registers ago",
         Accumulators::kEntries);
  return entry->value;
}

/// Computes a product whose predecessors are done.
static void compute(Product &product) {
  if (product.done)
    return;
  product.done = true;
  const Op &op = *product.op;
  Warpgroup &group = *product.group;
  Block &block = *group.block;
  unsigned n = op.param[0], k = op.param[1];
  int element = op.param[2];
  unsigned bytes = element == TF32 ? 4 : 2;
  static thread_local float left[64][16], right[16][256], sum[64][256];
  if (op.param[4]) {
    for (unsigned i = 0; i < 128; ++i) {
      unsigned g = i / 32 * 16 + i % 32 / 4, q = i % 4;
      for (unsigned r = 0; r < 4; ++r) {
        uint32_t bits = product.left[i * 4 + r];
        if (element == TF32) {
          left[g + r % 2 * 8][q + r / 2 * 4] = tf32ToFloat(bits);
          continue;
        }
        for (unsigned half = 0; half < 2; ++half)
          left[g + r % 2 * 8][q * 2 + half + r / 2 * 8] =
              halfToFloat(element == BF16, bits, half);
      }
    }
  } else {
    SharedMatrix matrix(product.descriptorA, bytes, product.transposeA);
    readMatrix(
        block, matrix, 64, k, element, op,
        [&](unsigned row, unsigned i, float value) { left[row][i] = value; });
  }
  SharedMatrix matrix(product.descriptorB, bytes, product.transposeB);
  float scale = product.scaleA * product.scaleB;
  readMatrix(block, matrix, n, k, element, op,
             [&](unsigned column, unsigned i, float value) {
               right[i][column] = scale * value;
             });

  unsigned registers = getNumRegisters(op);
  unsigned perRegister = op.param[3] ? 2 : 1;
  // Element e of thread t: 64 rows in four warps, as the results of mma.sync.
  auto at = [&](unsigned t, unsigned e) -> float & {
    return sum[t / 32 * 16 + t % 32 / 4 + e / 2 % 2 * 8]
              [e / 4 * 8 + t % 4 * 2 + e % 2];
  };
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned r = 0; r < registers; ++r) {
      uint32_t bits = 0;
      if (product.accumulate)
        bits = resolve(group.getThread(t),
                       product.accumulators[t * registers + r], op);
      if (perRegister == 1)
        at(t, r) = toFloat(bits);
      else
        for (unsigned half = 0; half < 2; ++half)
          at(t, 2 * r + half) = halfToFloat(/*isBF16=*/false, bits, half);
    }
  for (unsigned row = 0; row < 64; ++row)
    for (unsigned i = 0; i < k; ++i)
      for (unsigned column = 0; column < n; ++column)
        sum[row][column] += left[row][i] * right[i][column];
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned r = 0; r < registers; ++r) {
      Accumulators::Entry *entry = group.getThread(t).accumulators.find(
          product.results[t * registers + r]);
      if (!entry)
        fail(&op, "the emulator has lost an accumulator");
      entry->value = perRegister == 1
                         ? toBits(at(t, r))
                         : toHalfBits(false, at(t, 2 * r)) |
                               toHalfBits(false, at(t, 2 * r + 1)) << 16;
    }
}

/// Fails if an accumulator has been read since the last fence.
static void checkRead(Thread &thread, uint32_t bits, const Op &op) {
  if (!Accumulators::isTag(bits))
    return;
  Accumulators::Entry *entry = thread.accumulators.find(bits);
  if (entry && entry->read > thread.warp->products.fences)
    fail(&op, "an accumulator of it is read after the last wgmma.fence");
}

FOVEA_SIMT_GROUP(fovea::simt::issueProduct) {
  unsigned registers = getNumRegisters(op);
  auto owner = std::make_shared<Product>();
  // Failures abandon this frame, so that the warps own the product at once.
  for (unsigned w = 0; w < 4; ++w)
    group.getThread(w * 32).warp->products.open.push_back(owner);
  Product &product = *owner;
  owner.reset();
  product.op = &op;
  product.group = &group;
  noteProduct(group, op, op.param[0], /*fromShared=*/!op.param[4]);
  const Slot *rest = in[0] + registers;
  if (op.param[4]) {
    product.left.resize(128 * 4);
    rest += 4;
  } else {
    product.descriptorA = *rest++;
  }
  product.descriptorB = *rest++;
  product.accumulate = *rest++ & 1;
  product.scaleA = int32_t(*rest++);
  product.scaleB = int32_t(*rest++);
  bool halves = op.param[2] != TF32;
  if (halves && !op.param[4])
    product.transposeA = *rest++ & 1;
  if (halves)
    product.transposeB = *rest++ & 1;

  product.accumulators.resize(128 * registers);
  product.results.resize(128 * registers);
  bool chained = product.accumulate && !op.param[4];
  for (unsigned t = 0; t < 128; ++t) {
    Thread &thread = group.getThread(t);
    for (unsigned i = 0; i < registers + (op.param[4] ? 4 : 1); ++i) {
      bool isLeft = i >= registers;
      uint32_t bits = in[t][i];
      if (!isLeft) {
        product.accumulators[t * registers + i] = bits;
        chained &= Accumulators::isTag(bits);
        checkRead(thread, bits, op);
      } else if (op.param[4]) {
        product.left[t * 4 + i - registers] = readAccumulator(thread, bits, op);
      } else if (in[t][i] != in[0][i] || in[t][i + 1] != in[0][i + 1]) {
        fail(&op, "threads of the warpgroup give different descriptors");
      }
    }
  }
  for (unsigned w = 0; w < 4; ++w) {
    Warp &warp = *group.getThread(w * 32).warp;
    // A chain of products on the same accumulators needs no fence.
    if (!warp.products.fenced && !chained)
      fail(&op, "no wgmma.fence between other uses of its registers and it");
    noteReads(warp, product);
    ++warp.products.issued;
  }
  for (unsigned t = 0; t < 128; ++t) {
    Thread &thread = group.getThread(t);
    for (unsigned r = 0; r < registers; ++r)
      out[t][r] = product.results[t * registers + r] =
          thread.accumulators.add(thread.warp->products.issued);
  }
  if (group.block->options->eager)
    compute(product);
}

uint32_t fovea::simt::readAccumulator(Thread &thread, uint32_t bits,
                                      const Op &op) {
  if (!Accumulators::isTag(bits))
    return bits;
  uint32_t value = resolve(thread, bits, op);
  if (thread.accumulators.find(bits)->product > thread.warp->products.waitedFor)
    fail(&op, "a result of wgmma is used before wgmma.wait_group");
  return value;
}

FOVEA_SIMT_WARP(fovea::simt::productFence) {
  warp.products.fenced = true;
  ++warp.products.fences;
}

FOVEA_SIMT_WARP(fovea::simt::productCommit) {
  note(warp, mask, op, EventKind::CommitProducts);
  warp.products.groups.push_back(std::move(warp.products.open));
  warp.products.open.clear();
}

FOVEA_SIMT_WARP(fovea::simt::productWait) {
  WarpProducts &products = warp.products;
  Slot left = in[__builtin_ctz(mask)][0];
  note(warp, mask, op, EventKind::WaitForProducts, left);
  while (products.groups.size() > left) {
    for (const std::shared_ptr<Product> &product : products.groups.front()) {
      compute(*product);
      // Until here it may have read shared memory.
      noteReads(warp, *product);
      ++products.waitedFor;
    }
    products.groups.pop_front();
  }
  products.fenced = false;
}

uint32_t fovea_simt_accumulator(uint32_t bits, const Op *op) {
  if (!Accumulators::isTag(bits))
    return bits;
  Thread &thread = *currentBlock->current;
  uint32_t value = readAccumulator(thread, bits, *op);
  thread.accumulators.find(bits)->read = thread.warp->products.fences + 1;
  return value;
}

uint32_t fovea_simt_written(void) {
  return currentBlock->current->warp->products.fences + 1;
}

void fovea_simt_check_written(uint32_t stamp, const Op *op) {
  const WarpProducts &products = currentBlock->current->warp->products;
  if (products.fenced && stamp > products.fences)
    fail(op, "a register of it is written after the last wgmma.fence");
}
