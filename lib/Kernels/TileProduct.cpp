//===- TileProduct.cpp - Products whose factors are looked up, on a CPU ---===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   per task: a point of the grid, some rows, up to 96 columns
//     for each 64 of the depth
//       look up elements of both factors, a panel of each: rows of the left one
//       and columns of the right one run along vectors
//       add the products of the panels to the sums, a register tile at a time
//     store the sums
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/TileProduct.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// What of the depth is packed at once: panels of it stay in the first-level
/// cache, and sums are loaded and stored once for each.
static constexpr int64_t kPanelDepth = 64;

int64_t fovea::attn::getTileSize(int64_t extent, int64_t most, int64_t unit) {
  int64_t numTiles = std::max<int64_t>(llvm::divideCeil(extent, most), 1);
  return llvm::alignTo(llvm::divideCeil(extent, numTiles), unit);
}

//===----------------------------------------------------------------------===//
// Packed factors
//===----------------------------------------------------------------------===//

/// A register tile of the rows from `row` on and `vectors` vectors of columns.
static void emitRegisterTile(KernelBuilder &b, const OuterProducts &products,
                             Value row, int64_t numRows, Value column,
                             int64_t vectors) {
  auto columnOf = [&](int64_t v) { return b.add(column, v * b.getLanes()); };
  auto step = [&](Value j, ValueRange running) {
    Values next(running), rights;
    for (int64_t v = 0; v < vectors; ++v)
      rights.push_back(b.loadVector(products.right, {j, columnOf(v)}));
    for (int64_t i = 0; i < numRows; ++i) {
      Value factor =
          b.broadcast(b.loadScalar(products.left, {j, b.add(row, i)}));
      for (int64_t v = 0; v < vectors; ++v)
        next[i * vectors + v] = b.fma(factor, rights[v], next[i * vectors + v]);
    }
    return next;
  };
  Values zeros(numRows * vectors, b.splat(0.0));
  Values tile = b.loop(b.index(0), products.depth, 1, zeros, step);
  for (int64_t i = 0; i < numRows; ++i)
    for (int64_t v = 0; v < vectors; ++v) {
      Value at[] = {b.add(row, i), columnOf(v)};
      Value sum =
          b.fadd(b.loadVector(products.before, at), tile[i * vectors + v]);
      b.storeVector(sum, products.sums, at);
    }
}

void fovea::attn::emitOuterProducts(KernelBuilder &b, RegisterFile registers,
                                    const OuterProducts &products) {
  auto addPanel = [&](Value column, int64_t vectors) {
    int64_t rows = registers.getTileRows(vectors);
    b.loop(b.index(0), b.index(llvm::alignTo(products.rows, rows)), rows,
           [&](Value row) {
             emitRegisterTile(b, products, row, rows, column, vectors);
           });
  };
  // Few panels are alike in width and written out. Many would be much code.
  constexpr int64_t kMaxWritten = 16;
  int64_t lanes = b.getLanes(), vectors = registers.getTileVectors();
  int64_t numVectors = products.columns / lanes, whole = 0;
  if (numVectors > kMaxWritten * vectors) {
    whole = llvm::alignDown(numVectors, vectors);
    b.loop(b.index(0), b.index(whole * lanes), vectors * lanes,
           [&](Value column) { addPanel(column, vectors); });
  }
  int64_t rest = numVectors - whole;
  int64_t numPanels = llvm::divideCeil(rest, vectors);
  for (int64_t panel = 0; panel < numPanels; ++panel) {
    int64_t first = rest * panel / numPanels;
    int64_t count = rest * (panel + 1) / numPanels - first;
    addPanel(b.index((whole + first) * lanes), count);
  }
}

//===----------------------------------------------------------------------===//
// Factors that are looked up
//===----------------------------------------------------------------------===//

namespace {
/// The elements `first .. first + count - 1` of a tile along one side.
struct Side {
  Value first, count;
  /// What the tile has at most, in whole vectors.
  int64_t size;

  /// As many as are known, and the most.
  int64_t getLeastCount() const {
    return getConstantIntValue(count).value_or(0);
  }
  int64_t getMostCount() const {
    return getConstantIntValue(count).value_or(size);
  }
};

/// Tiles of one product.
class ThreadTiles {
public:
  ThreadTiles(ThreadTeamBuilder &b, RegisterFile registers,
              const TileProduct &product)
      : b(b), registers(registers), product(product) {}

  void emit();

private:
  using Lookup = function_ref<Value(KernelBuilder &, Value number)>;

  Side getSide(Value tile, Value extent, int64_t step, int64_t unit);
  void pack(const Side &side, bool alongVectors, int64_t breakAt, Value panel,
            Value slot, Lookup element);
  void emitTile(ValueRange point, const Side &rows, const Side &columns);

  ThreadTeamBuilder &b;
  RegisterFile registers;
  const TileProduct &product;
};
} // namespace

/// Number `tile` of tiles of `step` elements, in whole numbers of `unit`.
Side ThreadTiles::getSide(Value tile, Value extent, int64_t step,
                          int64_t unit) {
  std::optional<int64_t> known = getConstantIntValue(extent);
  int64_t most = std::min(known.value_or(step), step);
  int64_t size = llvm::alignTo(most, unit);
  if (known && *known <= step)
    return {b.index(0), extent, size};
  Value first = b.mul(tile, step);
  bool isWhole = known && *known % step == 0;
  return {first, isWhole ? b.index(step) : b.min(b.sub(extent, first), step),
          size};
}

/// Looks up the elements of a side for one depth, and puts zeros behind them.
void ThreadTiles::pack(const Side &side, bool alongVectors, int64_t breakAt,
                       Value panel, Value slot, Lookup element) {
  Value zero = b.index(0);
  int64_t lanes = b.getLanes();
  b.loop(b.index(llvm::alignDown(side.getLeastCount(), lanes)),
         b.index(side.size), lanes,
         [&](Value i) { b.storeVector(b.splat(0.0), panel, {slot, i}); });
  auto packOne = [&](KernelBuilder &k, Value i) {
    k.storeVector(element(k, k.add(side.first, i)), panel, {slot, i});
  };
  if (!alongVectors)
    return b.loop(zero, side.count, 1, [&](Value i) {
      KernelBuilder single(b.getLoc(), b, b.getStateType(), /*lanes=*/1);
      packOne(single, i);
    });
  Value middle = zero;
  if (breakAt)
    middle = b.clamp(b.sub(b.index(breakAt), side.first), zero, side.count);
  b.forColumns(zero, middle, packOne);
  b.forColumns(middle, side.count, packOne);
}

void ThreadTiles::emitTile(ValueRange point, const Side &rows,
                           const Side &columns) {
  Type type = b.getStateType();
  Value left = b.teamBuffer({kPanelDepth, rows.size}, type);
  Value right = b.teamBuffer({kPanelDepth, columns.size}, type);
  Value sums = b.teamBuffer({rows.size, columns.size}, type);
  b.loop(b.index(0), b.index(rows.size), 1, [&](Value row) {
    b.forColumns(columns.size, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.splat(0.0), sums, {row, column});
    });
  });
  auto [begin, end] = product.depth(b, point, rows.first, columns.first);
  b.loop(begin, end, kPanelDepth, [&, end = end](Value firstDepth) {
    Value count = b.min(b.sub(end, firstDepth), kPanelDepth);
    b.loop(b.index(0), count, 1, [&](Value slot) {
      Value depth = b.add(firstDepth, slot);
      pack(rows, product.leftAlongRows, product.leftBreak, left, slot,
           [&](KernelBuilder &k, Value row) {
             return product.left(k, point, row, depth);
           });
      pack(columns, !product.rightAlongDepth, product.rightBreak, right, slot,
           [&](KernelBuilder &k, Value column) {
             return product.right(k, point, depth, column);
           });
    });
    emitOuterProducts(
        b, registers,
        {left, right, count, sums, sums, rows.getMostCount(), columns.size});
  });
  b.loop(b.index(0), rows.count, 1, [&](Value row) {
    b.forColumns(b.index(0), columns.count,
                 [&](KernelBuilder &k, Value column) {
                   product.store(k, point, k.add(rows.first, row),
                                 k.add(columns.first, column),
                                 k.loadVector(sums, {row, column}));
                 });
  });
}

void ThreadTiles::emit() {
  int64_t lanes = b.getLanes();
  int64_t rowUnit = std::max(lanes, RegisterFile::kMaxTileRows);
  std::optional<int64_t> known = getConstantIntValue(product.rows);
  int64_t rowStep =
      known ? getTileSize(*known, product.tileRows, rowUnit) : product.tileRows;
  int64_t columnStep = getTileSize(product.columns, kMaxTileColumns, lanes);
  Values grid(product.grid);
  grid.append({b.ceilDiv(product.rows, rowStep),
               b.index(llvm::divideCeil(product.columns, columnStep))});
  b.forTeams(grid, [&](ValueRange point) {
    size_t dims = product.grid.size();
    Side rows = getSide(point[dims], product.rows, rowStep, rowUnit);
    Side columns =
        getSide(point[dims + 1], b.index(product.columns), columnStep, lanes);
    emitTile(point.take_front(dims), rows, columns);
  });
}

void fovea::attn::emitTileProduct(ThreadTeamBuilder &builder,
                                  RegisterFile registers,
                                  const TileProduct &product) {
  assert(!product.hides && "hidden weights are for GPUs only");
  ThreadTiles(builder, registers, product).emit();
}
