//===- LinalgContraction.cpp - Register-tiled products --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (outer dimensions, chunks of rows, panels of columns)     one task
//     sums[rows][columns] = output, or the constant that it was filled with
//     for each block of the reduction
//       pack panel[block][columns] of the right operand
//       for each register tile of rows
//         sums += left . panel, from zero
//     output = sums
//
// "Columns" is the last dimension of the output, along which vectors run; the
// right operand is the one that has it. The panel is contiguous, so that rows
// a power of two apart do not compete for a few sets of the caches, and so that
// it does not matter how the right operand is laid out.
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows of one task, and steps of the reduction whose packed panel (64 columns
/// of f32: 64 KB) is read again for every register tile.
static constexpr int64_t kTaskRows = 120, kBlock = 256;
/// More rows than this in a register tile would outrun the loads of the panel.
static constexpr int64_t kMaxTileRows = 8;

/// Follows `value` through an extension to a block argument.
static BlockArgument getExtendedArgument(Value value) {
  if (auto extension = value.getDefiningOp<arith::ExtFOp>())
    value = extension.getIn();
  return dyn_cast<BlockArgument>(value);
}

bool fovea::attn::isSumOfProducts(linalg::LinalgOp op) {
  Block *body = op.getBlock();
  auto yield = cast<linalg::YieldOp>(body->getTerminator());
  if (yield.getNumOperands() != 1 || body->getNumArguments() != 3)
    return false;
  auto sum = yield.getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return false;
  Value product;
  for (auto [old, added] : {std::pair(sum.getLhs(), sum.getRhs()),
                            std::pair(sum.getRhs(), sum.getLhs())})
    if (old == body->getArgument(2))
      product = added;
  auto mul = product ? product.getDefiningOp<arith::MulFOp>() : nullptr;
  if (!mul)
    return false;
  BlockArgument lhs = getExtendedArgument(mul.getLhs());
  BlockArgument rhs = getExtendedArgument(mul.getRhs());
  return lhs && rhs && lhs != rhs && lhs.getArgNumber() < 2 &&
         rhs.getArgNumber() < 2;
}

/// The operation that fills the output of `op` with a constant, when `op` is
/// all that meets it.
static linalg::FillOp findFill(linalg::LinalgOp op) {
  Value output = op.getDpsInitOperand(0)->get();
  linalg::FillOp fill;
  if (!output.getDefiningOp<memref::AllocOp>() ||
      llvm::is_contained(op.getDpsInputs(), output))
    return fill;
  for (Operation *user : output.getUsers()) {
    Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user);
    if (!inBlock)
      return {};
    if (user == op || op->isBeforeInBlock(inBlock))
      continue;
    auto found = dyn_cast<linalg::FillOp>(user);
    if (fill || !found || inBlock != user ||
        !matchPattern(found.value(), m_Constant()))
      return {};
    fill = found;
  }
  return fill;
}

namespace {
class ContractionKernel {
public:
  using Values = KernelBuilder::Values;

  /// An operand, and the loop that runs along each of its dimensions.
  struct Operand {
    Value memref;
    SmallVector<unsigned> loops;

    bool has(unsigned loop) const { return llvm::is_contained(loops, loop); }
    /// Whether neighbours along `loop` are neighbours in memory.
    bool isContiguousAlong(unsigned loop) const {
      return !loops.empty() && loops.back() == loop &&
             cast<MemRefType>(memref.getType()).isLastDimUnitStride();
    }
  };

  /// The parts of a contraction; none when `op` is something else.
  static std::optional<ContractionKernel> match(linalg::LinalgOp op,
                                                RegisterFile registers);
  void emit();

private:
  ContractionKernel(linalg::LinalgOp op, OpBuilder &builder, FloatType state,
                    int64_t lanes)
      : op(op), b(op.getLoc(), builder, state, lanes), lanes(lanes) {}

  void emitTask();
  void emitBlock(Value low, Value count);
  void packPanel(Value low, Value count);
  void emitTile(Value firstRow, int64_t numRows, Value low, Value count);
  void copySums(bool load);
  Values indices(const Operand &operand) {
    Values result;
    for (unsigned loop : operand.loops)
      result.push_back(position[loop]);
    return result;
  }
  void setRow(Value row) {
    if (rowLoop)
      position[*rowLoop] = b.add(firstRow, row);
  }
  void setColumn(Value column) {
    position[columnLoop] = b.add(firstColumn, column);
  }
  Value extentOf(unsigned loop);
  bool isMultiple(unsigned loop, int64_t factor) {
    std::optional<int64_t> known = getConstantIntValue(extentOf(loop));
    return known && *known % factor == 0;
  }
  /// Calls `vector` for all columns of the panel when it is full, otherwise
  /// `scalar` for those that exist.
  void forEachColumn(function_ref<void(Value)> vector,
                     function_ref<void(Value)> scalar);

  linalg::LinalgOp op;
  KernelBuilder b;
  int64_t lanes, vectors, tileRows, taskRows;
  Operand left, right, output;
  unsigned columnLoop, depthLoop;
  std::optional<unsigned> rowLoop;
  SmallVector<unsigned> outerLoops, outerDepthLoops;
  /// What has filled the output, where nothing else reads that.
  linalg::FillOp fill;

  // The present task: where each loop is, and its rows and columns.
  SmallVector<Value> position;
  Value firstRow, numRows, firstColumn, numColumns, panel, sums, leftRows;
};
} // namespace

std::optional<ContractionKernel>
ContractionKernel::match(linalg::LinalgOp op, RegisterFile registers) {
  if (!op.hasPureBufferSemantics() || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || !isSumOfProducts(op))
    return std::nullopt;
  SmallVector<Operand> operands;
  bool isDouble = false;
  for (OpOperand &operand : op->getOpOperands()) {
    auto type = dyn_cast<MemRefType>(operand.get().getType());
    AffineMap map = op.getMatchingIndexingMap(&operand);
    if (!type || !isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(
                     type.getElementType()))
      return std::nullopt;
    if (!map.isProjectedPermutation())
      return std::nullopt;
    isDouble |= type.getElementType().isF64();
    Operand &parts = operands.emplace_back();
    parts.memref = operand.get();
    for (AffineExpr expr : map.getResults())
      parts.loops.push_back(cast<AffineDimExpr>(expr).getPosition());
  }
  if (operands[2].loops.empty() || op.getNumReductionLoops() == 0)
    return std::nullopt;
  unsigned columnLoop = operands[2].loops.back();
  if (operands[0].has(columnLoop))
    std::swap(operands[0], operands[1]);
  if (!operands[1].has(columnLoop) || operands[0].has(columnLoop) ||
      !operands[2].isContiguousAlong(columnLoop))
    return std::nullopt;

  OpBuilder builder(op);
  MLIRContext *context = op.getContext();
  FloatType state = isDouble ? FloatType(Float64Type::get(context))
                             : Float32Type::get(context);
  int64_t lanes = registers.vectorBits / state.getWidth();
  ContractionKernel kernel(op, builder, state, lanes);
  std::tie(kernel.left, kernel.right, kernel.output) =
      std::tuple(operands[0], operands[1], operands[2]);
  kernel.columnLoop = columnLoop;
  kernel.fill = findFill(op);
  for (unsigned loop : kernel.output.loops) {
    if (loop == columnLoop)
      continue;
    kernel.outerLoops.push_back(loop);
    if (kernel.left.has(loop) && !kernel.right.has(loop))
      kernel.rowLoop = loop;
  }
  if (kernel.rowLoop)
    llvm::erase(kernel.outerLoops, *kernel.rowLoop);
  SmallVector<unsigned> reductions;
  op.getReductionDims(reductions);
  // The innermost reduction runs along the left operand's last dimension.
  kernel.depthLoop = reductions.back();
  for (unsigned loop : kernel.left.loops)
    if (llvm::is_contained(reductions, loop))
      kernel.depthLoop = loop;
  for (unsigned loop : reductions)
    if (loop != kernel.depthLoop)
      kernel.outerDepthLoops.push_back(loop);

  // 24 sums of 32 registers leave room for a row of the panel and a factor.
  int64_t accumulators = registers.count >= 32 ? 24 : 12;
  int64_t maxVectors = registers.count >= 32 ? 4 : 2;
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  kernel.vectors = maxVectors;
  if (!ShapedType::isDynamic(extents[columnLoop]))
    kernel.vectors = std::clamp<int64_t>(
        llvm::divideCeil(extents[columnLoop], lanes), 1, maxVectors);
  kernel.tileRows = std::min(kMaxTileRows, accumulators / kernel.vectors);
  kernel.taskRows = kTaskRows / kernel.tileRows * kernel.tileRows;
  if (!kernel.rowLoop) {
    kernel.tileRows = kernel.taskRows = 1;
  } else if (int64_t rows = extents[*kernel.rowLoop];
             !ShapedType::isDynamic(rows) && rows > 0) {
    // Chunks of equal length.
    int64_t chunks = llvm::divideCeil(rows, kernel.taskRows);
    kernel.taskRows =
        llvm::alignTo(llvm::divideCeil(rows, chunks), kernel.tileRows);
  }
  return kernel;
}

Value ContractionKernel::extentOf(unsigned loop) {
  for (const Operand *operand : {&output, &left, &right})
    for (auto [dim, other] : llvm::enumerate(operand->loops))
      if (other == loop)
        return b.extent(operand->memref, dim);
  llvm_unreachable("every loop runs along some operand");
}

void ContractionKernel::emit() {
  int64_t columns = vectors * lanes;
  SmallVector<OpFoldResult> bounds;
  for (unsigned loop : outerLoops)
    bounds.push_back(getAsOpFoldResult(extentOf(loop)));
  Value rows = rowLoop ? extentOf(*rowLoop) : b.index(1);
  bounds.push_back(getAsOpFoldResult(b.ceilDiv(rows, taskRows)));
  bounds.push_back(getAsOpFoldResult(b.ceilDiv(extentOf(columnLoop), columns)));
  scf::ForallOp::create(
      b, bounds, /*outputs=*/ValueRange(), /*mapping=*/std::nullopt,
      [&](OpBuilder &, Location, ValueRange ivs) {
        position.assign(op.getNumLoops(), Value());
        for (auto [loop, iv] : llvm::zip(outerLoops, ivs))
          position[loop] = iv;
        firstRow = b.mul(ivs[outerLoops.size()], taskRows);
        numRows = rowLoop && isMultiple(*rowLoop, taskRows)
                      ? b.index(taskRows)
                      : b.min(b.sub(rows, firstRow), taskRows);
        firstColumn = b.mul(ivs.back(), columns);
        numColumns =
            isMultiple(columnLoop, columns)
                ? b.index(columns)
                : b.min(b.sub(extentOf(columnLoop), firstColumn), columns);
        emitTask();
        scf::InParallelOp::create(b);
      });
  if (fill)
    fill.erase();
}

void ContractionKernel::emitTask() {
  int64_t columns = vectors * lanes;
  Type state = b.getStateType();
  panel = b.scratch({kBlock, columns}, state);
  sums = b.scratch({taskRows, columns}, state);
  // Narrow factors are converted once, not in every product.
  bool converts = getElementTypeOrSelf(left.memref) != state;
  leftRows = converts ? b.scratch({taskRows, kBlock}, state) : Value();
  copySums(/*load=*/true);
  std::function<void(ArrayRef<unsigned>)> reduce =
      [&](ArrayRef<unsigned> loops) {
        if (!loops.empty())
          return b.loop(b.index(0), extentOf(loops.front()), 1, [&](Value iv) {
            position[loops.front()] = iv;
            reduce(loops.drop_front());
          });
        Value depth = extentOf(depthLoop);
        b.loop(b.index(0), depth, kBlock, [&](Value low) {
          emitBlock(low, isMultiple(depthLoop, kBlock)
                             ? b.index(kBlock)
                             : b.min(b.sub(depth, low), kBlock));
        });
      };
  reduce(outerDepthLoops);
  copySums(/*load=*/false);
  b.freeScratch();
}

void ContractionKernel::forEachColumn(function_ref<void(Value)> vector,
                                      function_ref<void(Value)> scalar) {
  b.ifThenElse(
      b.equal(numColumns, b.index(vectors * lanes)),
      [&] {
        for (int64_t v = 0; v < vectors; ++v)
          vector(b.index(v * lanes));
      },
      [&] { b.loop(b.index(0), numColumns, 1, scalar); });
}

/// Copies the output's rows to the sums, or back.
void ContractionKernel::copySums(bool load) {
  Value zero = b.splat(0.0);
  if (load && fill) {
    FloatAttr constant;
    matchPattern(fill.value(), m_Constant(&constant));
    Value start = b.splat(constant.getValueAsDouble());
    return b.loop(b.index(0), numRows, 1, [&](Value row) {
      for (int64_t v = 0; v < vectors; ++v)
        b.storeVector(start, sums, {row, b.index(v * lanes)});
    });
  }
  b.loop(b.index(0), numRows, 1, [&](Value row) {
    setRow(row);
    // Columns that do not exist compute too, and must not be subnormal.
    if (load && !isMultiple(columnLoop, vectors * lanes))
      for (int64_t v = 0; v < vectors; ++v)
        b.storeVector(zero, sums, {row, b.index(v * lanes)});
    auto copy = [&](bool isVector) {
      return [&, isVector](Value column) {
        setColumn(column);
        Values inside = {row, column}, outside = indices(output);
        Value from = load ? output.memref : sums;
        Value to = load ? sums : output.memref;
        const Values &source = load ? outside : inside;
        const Values &target = load ? inside : outside;
        if (isVector)
          b.storeVector(b.loadVector(from, source), to, target);
        else
          b.storeScalar(b.loadScalar(from, source), to, target);
      };
    };
    forEachColumn(copy(true), copy(false));
  });
}

/// Packs rows `low...` of the right operand.
void ContractionKernel::packPanel(Value low, Value count) {
  auto packScalars = [&](Value depth, Value from, Value to) {
    position[depthLoop] = b.add(low, depth);
    b.loop(from, to, 1, [&](Value column) {
      setColumn(column);
      b.storeScalar(b.loadScalar(right.memref, indices(right)), panel,
                    {depth, column});
    });
  };
  Value zero = b.splat(0.0);
  if (!isMultiple(columnLoop, vectors * lanes))
    b.loop(b.index(0), count, 1, [&](Value depth) {
      for (int64_t v = 0; v < vectors; ++v)
        b.storeVector(zero, panel, {depth, b.index(v * lanes)});
    });
  if (right.isContiguousAlong(columnLoop)) {
    b.loop(b.index(0), count, 1, [&](Value depth) {
      position[depthLoop] = b.add(low, depth);
      forEachColumn(
          [&](Value column) {
            setColumn(column);
            b.storeVector(b.loadVector(right.memref, indices(right)), panel,
                          {depth, column});
          },
          [&](Value column) {
            setColumn(column);
            b.storeScalar(b.loadScalar(right.memref, indices(right)), panel,
                          {depth, column});
          });
    });
    return;
  }
  if (!right.isContiguousAlong(depthLoop))
    return b.loop(b.index(0), count, 1, [&](Value depth) {
      packScalars(depth, b.index(0), numColumns);
    });
  // Whole squares are transposed in registers.
  Value wholeDepth = b.roundDown(count, lanes);
  Value wholeColumns = b.roundDown(numColumns, lanes);
  b.loop(b.index(0), wholeDepth, lanes, [&](Value depth) {
    position[depthLoop] = b.add(low, depth);
    b.loop(b.index(0), wholeColumns, lanes, [&](Value column) {
      Values tile;
      for (int64_t i = 0; i < lanes; ++i) {
        setColumn(b.add(column, i));
        tile.push_back(b.loadVector(right.memref, indices(right)));
      }
      for (auto [i, vector] : llvm::enumerate(b.transpose(tile)))
        b.storeVector(vector, panel, {b.add(depth, i), column});
    });
  });
  b.loop(wholeDepth, count, 1,
         [&](Value depth) { packScalars(depth, b.index(0), wholeColumns); });
  b.loop(b.index(0), count, 1,
         [&](Value depth) { packScalars(depth, wholeColumns, numColumns); });
}

void ContractionKernel::emitBlock(Value low, Value count) {
  packPanel(low, count);
  if (leftRows)
    b.loop(b.index(0), numRows, 1, [&](Value row) {
      setRow(row);
      Value whole = left.isContiguousAlong(depthLoop)
                        ? b.roundDown(count, lanes)
                        : b.index(0);
      b.loop(b.index(0), whole, lanes, [&](Value depth) {
        position[depthLoop] = b.add(low, depth);
        b.storeVector(b.loadVector(left.memref, indices(left)), leftRows,
                      {row, depth});
      });
      b.loop(whole, count, 1, [&](Value depth) {
        position[depthLoop] = b.add(low, depth);
        b.storeScalar(b.loadScalar(left.memref, indices(left)), leftRows,
                      {row, depth});
      });
    });
  Value whole = b.roundDown(numRows, tileRows);
  b.loop(b.index(0), whole, tileRows,
         [&](Value row) { emitTile(row, tileRows, low, count); });
  b.loop(whole, numRows, 1, [&](Value row) { emitTile(row, 1, low, count); });
}

/// Adds the products of `tileRows` rows and a block of the panel to the sums.
/// Sums of a block start from zero: many short sums lose less than a long one.
void ContractionKernel::emitTile(Value tileRow, int64_t tileRows, Value low,
                                 Value count) {
  Values tile(tileRows * vectors, b.splat(0.0));
  auto step = [&](Value depth, ValueRange running, int64_t unroll) {
    Values next(running);
    for (int64_t u = 0; u < unroll; ++u) {
      Value at = b.add(depth, u);
      Values columns;
      for (int64_t v = 0; v < vectors; ++v)
        columns.push_back(b.loadVector(panel, {at, b.index(v * lanes)}));
      position[depthLoop] = b.add(low, at);
      for (int64_t i = 0; i < tileRows; ++i) {
        Value row = b.add(tileRow, i);
        setRow(row);
        Value factor = leftRows ? b.loadScalar(leftRows, {row, at})
                                : b.loadScalar(left.memref, indices(left));
        factor = b.broadcast(factor);
        for (int64_t v = 0; v < vectors; ++v)
          next[i * vectors + v] =
              b.fma(factor, columns[v], next[i * vectors + v]);
      }
    }
    return next;
  };
  constexpr int64_t kUnroll = 2;
  Value whole = b.roundDown(count, kUnroll);
  tile = b.loop(b.index(0), whole, kUnroll, tile,
                [&](Value depth, ValueRange running) {
                  return step(depth, running, kUnroll);
                });
  tile = b.loop(whole, count, 1, tile, [&](Value depth, ValueRange running) {
    return step(depth, running, 1);
  });
  for (int64_t i = 0; i < tileRows; ++i)
    for (int64_t v = 0; v < vectors; ++v) {
      Values at = {b.add(tileRow, i), b.index(v * lanes)};
      Value old = b.loadVector(sums, at);
      b.storeVector(b.fadd(old, tile[i * vectors + v]), sums, at);
    }
}

bool fovea::attn::emitLinalgContraction(linalg::LinalgOp op,
                                        RegisterFile registers) {
  std::optional<ContractionKernel> kernel =
      ContractionKernel::match(op, registers);
  if (!kernel)
    return false;
  kernel->emit();
  return true;
}
