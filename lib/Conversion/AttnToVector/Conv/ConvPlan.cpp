//===- ConvPlan.cpp - Sizes of the loops of attn.conv_apply ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvPlan.h"
#include "fovea/Conversion/AttnToVector/FFT/FFTKernel.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace fovea::attn;

/// Vectors of a register tile: as many as there are, up to 4, or what divides
/// them best.
static int64_t chooseVectors(int64_t numVectors) {
  int64_t best = 1;
  for (int64_t vectors : {1, 2, 3, 4})
    if (llvm::alignTo(numVectors, vectors) <= llvm::alignTo(numVectors, best) ||
        (best == 1 && vectors > 1 && numVectors > 4))
      best = vectors;
  return best;
}

/// Time of one number of the output, in nanoseconds on a Zen 4 scaled to 180
/// GFLOP/s, as benchmarks/fit_conv.py fits it. Only ratios matter.
static double timeToeplitz(double tokens) { return tokens / 160; }

/// Columns of the longest piece. Segments of one length that is a little more
/// than a block would be two pieces each; blocks that are as much shorter leave
/// room for one in a transform.
static int64_t choosePiece(int64_t tokens, int64_t bases, int64_t block) {
  if (ShapedType::isDynamic(tokens) || ShapedType::isDynamic(bases))
    return block;
  int64_t segment = llvm::divideCeil(tokens, std::max<int64_t>(bases, 1));
  bool fits = block < segment && segment <= block + block / 16;
  return fits ? segment : block;
}

/// With transforms of `2 * block` rows and pieces of up to `piece` columns.
/// Where pieces lie side by side, `windows` are transformed together, otherwise
/// this is 0.
static double timePartitioned(double tokens, double bases, double width,
                              double block, double piece, double windows) {
  double logarithm = std::log2(2 * block), rows = 2 * block - piece;
  double blocks = std::max(std::ceil(tokens / rows), 1.0);
  // In GFLOP/s: blocks of up to 64 tokens, 128, and so on. Slower as they
  // outgrow the caches, which few columns do later.
  static constexpr double kRates[2][10] = {
      {127, 112, 112, 108, 97, 86, 68, 57, 57, 50},
      {100, 100, 102, 100, 101, 102, 98, 80, 68, 57}};
  double size = std::clamp(std::log2(block) - 6, 0.0, 9.0);
  double rate = kRates[windows > 0][size_t(size)];
  // One for each piece and each block, and as much as a column of one for each
  // window, of which a segment has half as many as there are blocks, and one of
  // zeros. Segments that begin anywhere have half a piece more for each of a
  // few, one for each of many; others are as long as each other.
  double density = std::max(bases, 1.0) / blocks;
  double anywhere = density / -std::expm1(-density);
  double rest = std::floor(tokens / std::max(bases, 1.0)) - piece;
  double alike = density * (1 + std::max(std::ceil(rest / rows), 0.0));
  double pieces = 0.6 * anywhere + 0.4 * alike;
  windows = std::max(bases * (0.5 * blocks + 1), windows);
  double transforms =
      10 * logarithm / rate * (0.5 * pieces + 0.5 + windows / (width * blocks));
  return transforms + 4 * blocks * pieces / 94;
}

/// The tokens of a block that are fastest, and whether that is faster than
/// without transforms.
static std::pair<int64_t, bool> chooseBlock(int64_t tokens, int64_t bases,
                                            int64_t width, bool hasLongPieces,
                                            int64_t windows) {
  // What is not known is taken to be long, and bases to be few.
  if (ShapedType::isDynamic(bases))
    bases = 8;
  if (ShapedType::isDynamic(tokens))
    return {512, true};
  int64_t best = 32;
  auto time = [&](int64_t block) {
    int64_t piece = hasLongPieces ? choosePiece(tokens, bases, block) : block;
    return timePartitioned(tokens, bases, width, block, piece, windows);
  };
  for (int64_t block = 64; block < 2 * tokens && block <= (1 << 16); block *= 2)
    if (time(block) < time(best))
      best = block;
  return {best, time(best) < timeToeplitz(tokens)};
}

template <typename OpTy>
ConvPlan fovea::attn::planConv(OpTy op, const CPUFacts &cpu, int64_t tokens) {
  auto value = cast<MemRefType>(op.getValue().getType());
  auto basis = cast<MemRefType>(op.getBasis().getType());
  int64_t width = value.getDimSize(3);
  ConvPlan plan;
  plan.separateAdds = cpu.separateAdds;
  // Zen 4 has a second cache of 1 MB, and in the third what it has lost.
  if (cpu.splitVectors)
    plan.mostCached = 1 << 22;
  plan.lanes = cpu.vectorBits / getStateType(value.getElementType()).getWidth();
  plan.algorithm = op.getAlgorithm();
  constexpr bool isForward = std::is_same_v<OpTy, ConvApplyOp>;
  int64_t bases = basis.isDynamicDim(2) ? 8 : basis.getDimSize(2);
  // Where half vectors get as much done, two pieces of so few columns lie side
  // by side, and if there are few windows, fewer are transformed together.
  int64_t half = plan.lanes / 2;
  bool isNarrow =
      isForward && cpu.splitVectors && width > half && width <= plan.lanes;
  int64_t windowLanes = isNarrow && 2 * bases <= width ? half : plan.lanes;
  auto [block, isFaster] =
      chooseBlock(tokens, basis.getDimSize(2), width,
                  /*hasLongPieces=*/isForward,
                  /*windows=*/isNarrow ? 2 * windowLanes : 0);
  if (plan.algorithm == ConvAlgorithm::Auto)
    plan.algorithm =
        isFaster ? ConvAlgorithm::Partitioned : ConvAlgorithm::Toeplitz;
  plan.columnLanes = plan.lanes;
  plan.block = plan.piece = 0;
  plan.accumulators = cpu.numRegisters >= 32 ? 16 : 8;
  if (plan.algorithm == ConvAlgorithm::Toeplitz) {
    plan.vectors = chooseVectors(llvm::divideCeil(width, plan.lanes));
    plan.rows = plan.accumulators / plan.vectors;
    plan.front = llvm::alignTo(plan.rows, plan.lanes);
    plan.lagMultiple = plan.lanes;
    plan.columnMultiple = plan.getColumns();
    return plan;
  }
  if (plan.algorithm == ConvAlgorithm::Single)
    block = llvm::PowerOf2Ceil(std::max<int64_t>(tokens, 8));
  plan.block = op.getBlock().value_or(block);
  bool isOneBlock = !ShapedType::isDynamic(tokens) && tokens <= plan.block;
  if (isOneBlock && basis.getDimSize(2) == 1)
    plan.algorithm = ConvAlgorithm::Single;
  // The columns of a complex row; fewer where the width does not fill it. Two
  // blocks may share rows of half as many columns.
  bool sharesRows = isForward && plan.algorithm == ConvAlgorithm::Partitioned;
  plan.vectors = 2;
  if (isNarrow && sharesRows) {
    plan.abreast = 2;
    plan.columnLanes = half;
    plan.columnMultiple = 2 * half;
    plan.lanes = windowLanes;
  } else {
    bool isBetter = isForward ? width <= plan.lanes && 2 * bases <= width
                              : (width - 1) % plan.getColumns() < plan.lanes;
    if (cpu.splitVectors && isBetter)
      plan.lanes /= 2;
    while (width <= (sharesRows ? plan.lanes / 2 : plan.lanes) &&
           plan.lanes > 4)
      plan.lanes /= 2;
    plan.columnLanes = plan.lanes;
    plan.columnMultiple = sharesRows ? plan.lanes : plan.getColumns();
  }
  // The gradient stores vectors of lags, which must not cross half windows.
  if (!isForward)
    plan.block = std::max(plan.block, plan.lanes);
  // Windows of the first lags of a segment begin up to a transform before.
  plan.front = 2 * plan.block;
  plan.lagMultiple = std::max(plan.block, plan.lanes);
  plan.radices = chooseRadices(2 * plan.block, cpu.numRegisters);
  plan.piece = plan.block;
  if (isForward && !op.getBlock() &&
      plan.algorithm == ConvAlgorithm::Partitioned) {
    plan.piece = choosePiece(tokens, basis.getDimSize(2), plan.block);
    plan.block = 2 * plan.block - plan.piece;
  }
  plan.outputs = 4;
  plan.productGroups = cpu.numRegisters >= 32 ? 2 : 1;
  return plan;
}

template ConvPlan fovea::attn::planConv(ConvApplyOp, const CPUFacts &, int64_t);
template ConvPlan fovea::attn::planConv(ConvApplyBackwardOp, const CPUFacts &,
                                        int64_t);
