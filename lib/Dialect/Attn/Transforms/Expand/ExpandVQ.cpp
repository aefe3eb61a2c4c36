//===- ExpandVQ.cpp - Expand attention over quantized keys ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A query of block n reads
//
//   local   the tokens of blocks n - memory to n, through their codes
//   cache   the codebook, with mean values and log counts of older tokens
//
// Where neither a bias, terms by distance nor a state tell these blocks from
// older ones, all but
// block n go to the cache as well: the local source is block n alone. Any block
// gives the same result then. Where queries are computed block by block, blocks
// become small: fewer tokens are read one by one.
//
// Blocks count from the start of the sequence. A window that begins `first`
// tokens into a block numbers its own blocks from 0, and its query i is row
// first + i of first + N, so that ranges and masks of attn.stream fit; `first`
// is then n - rows in the range of a source of N rows. What the state keeps is
// more sources: `begun`, the `first` tokens of block 0 that came before, and
// the `memory` blocks before block 0 of the window. The state keeps memory + 1
// blocks in a ring, so these lie behind block 0 and before it: `older` and then
// `newer`, either of which may be empty.
//
//===----------------------------------------------------------------------===//

#include "VQBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/TypeUtilities.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::detail;

/// Tokens of a block whose length is free: two tiles of queries. Shorter ones
/// would save 1/20 of the products, but the codewords and means of a head would
/// come from the cache for every tile, and threads meet after every block.
static constexpr int64_t kFreeBlock = 128;

//===----------------------------------------------------------------------===//
// VQOp
//===----------------------------------------------------------------------===//

namespace {
/// The decoder form of one attn.vq.
class DecoderForm {
public:
  /// `narrow`: means that only products of narrow numbers read are rounded, no
  /// state among them.
  DecoderForm(OpBuilder &builder, VQOp op, bool narrow)
      : op(op), b(builder, op.getLoc(), op.getCodebook()),
        window{op.getCodes(), op.getValue()}, block(op.getBlock()),
        memory(op.getMemory()), numTokens(b.extent(op.getValue(), 2)) {
    Type type = getElementTypeOrSelf(op.getValue());
    bool isRounded = narrow && op.getNextState().empty() &&
                     getElementTypeOrSelf(op.getCodebook()) == type;
    entryType = isRounded ? type : getStateType(type);
  }

  /// The results of the operation.
  SmallVector<Value> expand(Reduction reduction) {
    bool hasState = !op.getState().empty() || !op.getNextState().empty();
    readState();
    readWindow = b.read(window, op.getPadded());
    isFree = !hasState && !op.hasLocalTerms();
    lag = isFree ? 1 : memory + 1;
    numRows = b.apply(b.s[0] + b.s[1], {first, numTokens});
    setBlock(op.getBlock());
    std::optional<int64_t> known = getConstantIntValue(numBlocks);
    if (!hasState && known && *known <= lag) {
      // No token is ever older than the local ones.
      Summary none;
      return buildStream(op.getQuery(), op.getBias(), op.getOutput(),
                         op.getLse(), none, first)
          ->getResults();
    }
    if (reduction != Reduction::InputScan)
      return expandAtOnce(reduction);
    if (isFree)
      setBlock(std::min(block, kFreeBlock));
    return expandInOrder();
  }

private:
  void setBlock(int64_t length) {
    block = length;
    numBlocks = b.apply(b.s[0].ceilDiv(block), {numRows});
  }

  void readState() {
    first = position = b.constant(0);
    if (op.getState().empty()) {
      initial = b.emptySummary(op.getValue());
      return;
    }
    OperandRange state = op.getState();
    initial = {state[0], state[1]};
    kept = {state[2], state[3]};
    position = b.loadPosition(state[4]);
    first = b.apply(b.s[0] % block, {position});
    Ring ring = b.readRing(kept, position, block, memory);
    begun = b.slice(kept, ring.start, first);
    readBegun = b.read(begun, op.getPadded());
    readOlder = b.read(ring.older, op.getPadded());
    if (ring.newer)
      readNewer = b.read(*ring.newer, op.getPadded());
  }

  /// The stream of the queries from row `firstRow` on.
  StreamOp buildStream(Value query, Value bias, Value output, Value lse,
                       const Summary &cache, OpFoldResult firstRow) {
    MLIRContext *context = op.getContext();
    RangeExprs exprs(context);
    AffineExpr start = exprs.block * block;
    MaskAttr causal = getCausalMask(context, true);
    bool hasBias = bias != nullptr;
    StreamSources sources;
    // Tokens that a state keeps begin `origin` rows behind those of block 0 of
    // the window, the window's own where masks say.
    auto addLocal = [&](const ReadTokens &tokens, AffineExpr begin,
                        AffineExpr end, MaskAttr mask, AffineExpr origin = {}) {
      AffineMap position;
      if (origin && op.hasDistances())
        position = AffineMap::get(/*dimCount=*/0, /*symbolCount=*/2, origin);
      sources.add({b.table, tokens.values, tokens.logWeights, bias,
                   tokens.codes, SourceAttr(), /*lengths=*/Value(),
                   op.getRelativeKeys(), op.getRelativeBias(),
                   op.getDistanceBias()},
                  exprs.range(begin, end), mask, hasBias, position);
    };
    AffineExpr tokenStart = start;
    AffineExpr reach = b.constantExpr((lag - 1) * block);
    if (!op.getState().empty()) {
      if (memory > 0)
        addLocal(readOlder, start, exprs.rows, MaskAttr(), -reach);
      if (memory > 1)
        addLocal(readNewer, start - reach + exprs.rows, exprs.rows, MaskAttr(),
                 -exprs.rows);
      addLocal(readBegun, start - reach, exprs.rows, MaskAttr(), exprs.zero);
      tokenStart = start + exprs.rows - exprs.queries;
    }
    addLocal(readWindow, tokenStart - reach, tokenStart + block, causal);
    if (cache.mean) {
      // Nothing is older than the first blocks of a sequence.
      int64_t rows = cast<RankedTensorType>(b.table.getType()).getDimSize(2);
      b.addCache(
          sources, cache,
          op.getState().empty()
              ? exprs.range(exprs.zero, exprs.block * rows - (lag - 1) * rows)
              : exprs.allRows());
    }
    bool isWhole =
        getConstantIntValue(firstRow) == 0 && query == Value(op.getQuery());
    return sources.build(b.builder, b.loc, query, output, lse, block,
                         op.getScale().convertToDouble(), op.getWeighting(),
                         isWhole ? Value() : b.value(firstRow),
                         isWhole ? Value() : b.value(numRows));
  }

  /// Rows `[begin, begin + size)` of the window that lie in its block `index`.
  std::pair<OpFoldResult, OpFoldResult> rowsOfBlock(OpFoldResult index) {
    if (isWholeBlocks())
      return {b.apply(b.s[0] * block, {index}), b.constant(block)};
    OpFoldResult begin =
        b.max({b.s[0] * block - b.s[1], b.constantExpr(0)}, {index, first});
    OpFoldResult end = b.min({b.s[0] * block + block - b.s[1], b.s[2]},
                             {index, first, numTokens});
    return {begin, b.apply(b.s[1] - b.s[0], {begin, end})};
  }

  /// Whether every block of the window is known to be complete.
  bool isWholeBlocks() {
    std::optional<int64_t> rows = getConstantIntValue(numTokens);
    return getConstantIntValue(first) == 0 && rows && *rows % block == 0;
  }

  /// Takes block `index` of the window, and what of it came before.
  Summary takeBlock(OpFoldResult index, Summary summary) {
    if (!op.getState().empty())
      summary = b.when(
          b.equal(index, b.constant(0)), summary,
          [&](const Summary &before) { return b.accumulate(begun, before); });
    auto [begin, size] = rowsOfBlock(index);
    return b.accumulate(b.slice(window, begin, size), summary);
  }

  /// Takes block `index - memory` of the window, which lies before it.
  Summary takeKept(OpFoldResult index, Summary summary) {
    if (op.getState().empty())
      return summary;
    OpFoldResult later = b.apply(b.s[0] + b.s[1] * block, {position, index});
    return b.accumulate(b.getOldest(kept, later, block, memory), summary);
  }

  /// What the cache of the block after block `index` has more than that of
  /// block `index`: the block `lag - 1` before it.
  Summary advance(OpFoldResult index, const Summary &summary) {
    if (lag == 1)
      return takeBlock(index, summary);
    Value isKept =
        arith::CmpIOp::create(b.builder, b.loc, arith::CmpIPredicate::slt,
                              b.value(index), b.value(b.constant(memory)));
    return b.when(
        isKept, summary,
        [&](const Summary &before) { return takeKept(index, before); },
        [&](const Summary &before) {
          return takeBlock(b.apply(b.s[0] - memory, {index}), before);
        });
  }

  /// Inserts the caches of blocks 1 to `memory` of the window, and returns the
  /// last one.
  Summary insertKept(Summary &entries) {
    auto loop = scf::ForOp::create(
        b.builder, b.loc, b.value(b.constant(0)), b.value(b.constant(memory)),
        b.value(b.constant(1)),
        ValueRange{initial.mean, initial.count, entries.mean, entries.count});
    OpBuilder::InsertionGuard guard(b.builder);
    b.builder.setInsertionPointToStart(loop.getBody());
    ValueRange carried = loop.getRegionIterArgs();
    OpFoldResult index = loop.getInductionVar();
    Summary last = takeKept(index, {carried[0], carried[1]});
    Summary all = b.insertEntry(last, {carried[2], carried[3]},
                                b.apply(b.s[0] + 1, {index}));
    scf::YieldOp::create(
        b.builder, b.loc,
        ValueRange{last.mean, last.count, all.mean, all.count});
    entries = {loop.getResult(2), loop.getResult(3)};
    return {loop.getResult(0), loop.getResult(1)};
  }

  /// One block of queries after the other.
  SmallVector<Value> expandInOrder() {
    OpBuilder &builder = b.builder;
    SmallVector<Value> carried = {op.getOutput()};
    if (op.getLse())
      carried.push_back(op.getLse());
    carried.append({initial.mean, initial.count});
    auto loop =
        scf::ForOp::create(builder, b.loc, b.value(b.constant(0)),
                           b.value(numBlocks), b.value(b.constant(1)), carried);
    {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(loop.getBody());
      OpFoldResult index = loop.getInductionVar();
      SmallVector<Value> state(loop.getRegionIterArgs());
      Summary summary = {state.end()[-2], state.end()[-1]};
      auto [begin, size] = rowsOfBlock(index);
      Value query = b.slice(op.getQuery(), 2, begin, size), bias, lse;
      if (Value all = op.getBias())
        bias = cast<RankedTensorType>(all.getType()).getDimSize(2) == 1
                   ? all
                   : b.slice(all, 2, begin, size);
      Value output = b.slice(state[0], 2, begin, size);
      if (op.getLse())
        lse = b.slice(state[1], 2, begin, size);
      StreamOp stream = buildStream(query, bias, output, lse, summary,
                                    b.apply(b.s[0] + b.s[1], {first, begin}));
      for (auto [number, part] : llvm::enumerate(stream->getResults()))
        state[number] = b.insert(part, state[number], 2, begin);
      // The next block has one block more in its cache. The state after the
      // last block has it only if that block is complete.
      Summary next;
      if (op.getNextState().empty() || isWholeBlocks()) {
        next = advance(index, summary);
      } else {
        OpFoldResult end = b.apply(b.s[0] * block + block, {index});
        Value isComplete =
            arith::CmpIOp::create(builder, b.loc, arith::CmpIPredicate::sle,
                                  b.value(end), b.value(numRows));
        next = b.when(isComplete, summary, [&](const Summary &before) {
          return advance(index, before);
        });
      }
      state.end()[-2] = next.mean;
      state.end()[-1] = next.count;
      scf::YieldOp::create(builder, b.loc, state);
    }
    SmallVector<Value> results(loop.getResults().drop_back(2));
    appendState({loop.getResults().end()[-2], loop.getResults().end()[-1]},
                results);
    return results;
  }

  /// Caches of all blocks, then all queries.
  SmallVector<Value> expandAtOnce(Reduction reduction) {
    Summary entries;
    auto scan = [&](const Tokens &tokens, const Summary &start,
                    const Summary &init) -> Summary {
      auto op = CodebookScanOp::create(
          b.builder, b.loc,
          TypeRange{init.mean.getType(), init.count.getType()}, tokens.codes,
          tokens.values, start.mean, start.count, init.mean, init.count, block,
          reduction);
      return {op->getResult(0), op->getResult(1)};
    };
    auto allocate = [&](OpFoldResult count) -> Summary {
      SmallVector<OpFoldResult> sizes = {
          b.extent(op.getValue(), 0), b.extent(op.getValue(), 1), count,
          b.extent(b.table, 2), b.extent(op.getValue(), 3)};
      Value mean = b.empty(sizes, entryType);
      sizes.pop_back();
      return {mean, b.empty(sizes, b.builder.getI32Type())};
    };
    if (isFree) {
      // The scan's entries are the caches.
      entries = scan(window, initial, allocate(numBlocks));
    } else {
      // Entry t is the cache of block t. The first are the state, and the state
      // with the blocks before the window, one by one; the scan starts with
      // what the window's first block completes. One entry more is the next
      // state.
      //
      // There is one for the most blocks that such a window has, wherever it
      // begins: so the host need not know the position.
      OpFoldResult most =
          op.getState().empty()
              ? numBlocks
              : b.apply((b.s[0] + (block - 1)).ceilDiv(block), {numTokens});
      OpFoldResult count = b.max({b.s[0] + 1, b.constantExpr(lag + 1)}, {most});
      entries = b.insertEntry(initial, allocate(count), b.constant(0));
      Summary last = insertKept(entries);
      last = takeBlock(b.constant(0), last);
      OpFoldResult offset = b.min({block - b.s[0], b.s[1]}, {first, numTokens});
      OpFoldResult left = b.apply(b.s[0] - b.s[1], {numTokens, offset});
      // A slice of nothing has to begin inside.
      if (getConstantIntValue(left) == 0)
        offset = b.constant(0);
      Tokens rest = b.slice(window, offset, left);
      OpFoldResult size = b.apply(b.s[0] - lag, {count}),
                   begin = b.constant(lag);
      Summary scanned = scan(rest, last,
                             {b.slice(entries.mean, 2, begin, size),
                              b.slice(entries.count, 2, begin, size)});
      entries = {b.insert(scanned.mean, entries.mean, 2, begin),
                 b.insert(scanned.count, entries.count, 2, begin)};
    }
    SmallVector<Value> results(buildStream(op.getQuery(), op.getBias(),
                                           op.getOutput(), op.getLse(), entries,
                                           first)
                                   ->getResults());
    if (!op.getNextState().empty())
      appendState(
          b.extractEntry(entries, b.apply(b.s[0].floorDiv(block), {numRows})),
          results);
    return results;
  }

  void appendState(const Summary &summary, SmallVectorImpl<Value> &results) {
    if (op.getNextState().empty())
      return;
    Tokens before = kept;
    if (!before.codes)
      before = {b.fillZero(op.getNextState()[2]),
                b.fillZero(op.getNextState()[3])};
    Tokens after = b.keep(window, before, position, (memory + 1) * block);
    OpFoldResult end = b.apply(b.s[0] + b.s[1], {position, numTokens});
    SmallVector<Value> parts = {summary.mean, summary.count, after.codes,
                                after.values, b.storePosition(end)};
    for (auto [part, init] : llvm::zip_equal(parts, op.getNextState())) {
      if (part.getType() != init.getType())
        part = tensor::CastOp::create(b.builder, b.loc, init.getType(), part);
      results.push_back(part);
    }
  }

  VQOp op;
  VQBuilder b;
  Tokens window, kept, begun;
  ReadTokens readWindow, readOlder, readNewer, readBegun;
  int64_t block, memory, lag;
  /// Whether any block gives the same result.
  bool isFree;
  /// Of means of the caches of all blocks.
  Type entryType;
  OpFoldResult numTokens, position, first, numRows, numBlocks;
  Summary initial;
};
} // namespace

template <typename OpTy> static bool hasStaticHeads(OpTy op) {
  auto heads = [](Value operand) {
    return cast<RankedTensorType>(operand.getType()).getDimSize(1);
  };
  return !ShapedType::isDynamic(heads(op.getQuery())) &&
         !ShapedType::isDynamic(heads(op.getCodes())) &&
         heads(op.getCodes()) != 0;
}

/// Rows of absent queries are no rows of a soft-max.
static void fillAbsentQueries(VQBuilder &b, Value codes, bool hasLse,
                              SmallVectorImpl<Value> &results) {
  results[0] = b.fillAbsent(results[0], codes, 0.0);
  if (hasLse)
    results[1] = b.fillAbsent(results[1], codes,
                              -std::numeric_limits<double>::infinity());
}

/// Queries as wide as the codebook, whose codewords are not rounded.
template <typename OpTy>
static void widenQuery(PatternRewriter &rewriter, OpTy op) {
  auto type = cast<RankedTensorType>(op.getQuery().getType());
  Type wide = getElementTypeOrSelf(op.getCodebook());
  if (type.getElementType() == wide)
    return;
  Value query = arith::ExtFOp::create(rewriter, op.getLoc(), type.clone(wide),
                                      op.getQuery());
  rewriter.modifyOpInPlace(op, [&] { op.getQueryMutable().assign(query); });
}

namespace {
struct ExpandVQ : OpRewritePattern<VQOp> {
  ExpandVQ(MLIRContext *context, Reduction reduction, Reduction automatic,
           bool narrow)
      : OpRewritePattern(context), reduction(reduction), automatic(automatic),
        narrow(narrow) {}

  LogicalResult matchAndRewrite(VQOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    if (op.getPadded() && !hasStaticHeads(op))
      return op.emitOpError("expects static numbers of heads with padded");
    widenQuery(rewriter, op);
    SmallVector<Value> results = op.getCausal() ? expandDecoder(op, rewriter)
                                                : expandEncoder(op, rewriter);
    if (op.getPadded()) {
      VQBuilder b(rewriter, op.getLoc(), op.getCodebook());
      fillAbsentQueries(b, op.getCodes(), op.getLse() != nullptr, results);
    }
    rewriter.replaceOp(op, results);
    return success();
  }

private:
  SmallVector<Value> expandDecoder(VQOp op, PatternRewriter &rewriter) const {
    Reduction chosen =
        reduction == Reduction::Auto ? op.getReduction() : reduction;
    if (chosen == Reduction::Auto)
      chosen = automatic;
    return DecoderForm(rewriter, op, narrow).expand(chosen);
  }

  /// One source: the codewords, with means and counts of all tokens.
  static SmallVector<Value> expandEncoder(VQOp op, PatternRewriter &rewriter) {
    VQBuilder b(rewriter, op.getLoc(), op.getCodebook());
    StreamSources sources;
    b.addCache(sources,
               b.accumulate({op.getCodes(), op.getValue()},
                            b.emptySummary(op.getValue())),
               RangeExprs(op.getContext()).allRows());
    return SmallVector<Value>(
        sources
            .build(rewriter, op.getLoc(), op.getQuery(), op.getOutput(),
                   op.getLse(), /*block=*/0, op.getScale().convertToDouble(),
                   op.getWeighting())
            ->getResults());
  }

  Reduction reduction, automatic;
  bool narrow;
};

//===----------------------------------------------------------------------===//
// VQDecodeOp
//===----------------------------------------------------------------------===//

/// The token is put into the state first; the present block and those before it
/// are then rows of what the state keeps.
struct ExpandVQDecode : OpRewritePattern<VQDecodeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(VQDecodeOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.hasPureTensorSemantics())
      return rewriter.notifyMatchFailure(op, "not on tensors");
    if (op.getPadded() && !hasStaticHeads(op))
      return op.emitOpError("expects static numbers of heads with padded");
    widenQuery(rewriter, op);
    Location loc = op.getLoc();
    VQBuilder b(rewriter, loc, op.getCodebook());
    int64_t block = op.getBlock(), memory = op.getMemory();
    OperandRange state = op.getState();
    OpFoldResult position = b.loadPosition(state[4]);
    OpFoldResult row = b.apply(b.s[0] % block, {position});
    OpFoldResult size = b.constant(block);
    Tokens kept = b.keep({op.getCodes(), op.getValue()}, {state[2], state[3]},
                         position, (memory + 1) * block);
    Ring ring = b.readRing(kept, position, block, memory);

    RangeExprs exprs(getContext());
    StreamSources sources;
    // Older tokens begin `origin` rows behind the present block, where that is
    // not known by itself.
    auto addTokens = [&](const Tokens &tokens, OpFoldResult firstColumn,
                         MaskAttr mask, AffineExpr origin = {}) {
      ReadTokens read = b.read(tokens, op.getPadded());
      Value bias;
      if (op.getBias())
        bias = b.slice(op.getBias(), 3, firstColumn, b.extent(read.codes, 2));
      AffineMap position;
      if (origin && op.hasDistances())
        position = AffineMap::get(/*dimCount=*/0, /*symbolCount=*/2, origin);
      sources.add({b.table, read.values, read.logWeights, bias, read.codes,
                   SourceAttr(), /*lengths=*/Value(), op.getRelativeKeys(),
                   op.getRelativeBias(), op.getDistanceBias()},
                  exprs.allRows(), mask, bias != nullptr, position);
    };
    // Row `row` of a block: later rows hold tokens that are older than all.
    addTokens(b.slice(kept, ring.start, size), b.constant(memory * block),
              getCausalMask(getContext(), true));
    if (memory > 0)
      addTokens(ring.older, b.constant(0), MaskAttr(),
                b.constantExpr(-memory * block));
    if (ring.newer)
      addTokens(*ring.newer, b.apply(memory * block - b.s[0], {ring.start}),
                MaskAttr(), -exprs.rows);
    Summary summary = {state[0], state[1]};
    b.addCache(sources, summary, exprs.allRows());
    StreamOp stream = sources.build(
        rewriter, loc, op.getQuery(), op.getOutput(), /*lse=*/Value(),
        /*block=*/0, op.getScale().convertToDouble(), op.getWeighting(),
        b.value(row), b.value(size));

    // The last token of a block sends the oldest block to the cache.
    Value isLast = b.equal(row, b.constant(block - 1));
    Summary after = b.when(isLast, summary, [&](const Summary &before) {
      return b.accumulate(b.getOldest(kept, position, block, memory), before);
    });
    OpFoldResult next = b.apply(b.s[0] + 1, {position});
    SmallVector<Value> results = {stream->getResult(0), after.mean,
                                  after.count,          kept.codes,
                                  kept.values,          b.storePosition(next)};
    if (op.getPadded())
      fillAbsentQueries(b, op.getCodes(), /*hasLse=*/false, results);
    rewriter.replaceOp(op, results);
    return success();
  }
};
} // namespace

void fovea::attn::detail::populateExpandVQPatterns(RewritePatternSet &patterns,
                                                   Reduction reduction,
                                                   Reduction automatic,
                                                   bool narrowSummaries) {
  patterns.add<ExpandVQ>(patterns.getContext(), reduction, automatic,
                         narrowSummaries);
  patterns.add<ExpandVQDecode>(patterns.getContext());
}
