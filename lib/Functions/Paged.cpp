//===- Paged.cpp - Attention to keys in pages -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A list of rows names runs of `page` rows of keys [1,G,M,D]. Pages
// [P,G,page,D] are such keys: rows of a head go on through the pages of other
// heads, which its list leaves out, and every page begins at a multiple of
// `page` rows. So keys of different heads share memory, in which each reads its
// own.
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Paged.h"
#include "PageLists.h"
#include "RenameArguments.h"
#include "TokenMask.h"
#include "fovea/Functions/ResultScopes.h"
#include "fovea/Functions/Stream.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Pages as rows
//===----------------------------------------------------------------------===//

namespace {
/// Pages [P,G,page,D] as rows [1,G,M,D].
struct PageRows {
  PageRows(Checker &check, const Argument &pages);

  TensorRef getRef() const {
    return {data, elementType, shape, strides, /*isReadOnly=*/true};
  }

  void *data;
  ElementType elementType;
  Shape shape, strides;
  /// Page x begins at row x `distance` of that many times `page`.
  int64_t distance = 1;
};
} // namespace

PageRows::PageRows(Checker &check, const Argument &pages)
    : data(pages.data), elementType(pages.elementType) {
  check.notEmpty(pages);
  if (check.hasFailed())
    return;
  int64_t numPages = pages.shape[0], page = pages.shape[2];
  check.check(pages.hasContiguousRows(),
              pages.name + ": found rows with gaps between their columns, "
                           "needed contiguous ones");
  Shape given = getStrides(pages.getRef());
  // A single row, or a page alone, may have any.
  int64_t row = page != 1 ? given[2] : numPages > 1 ? given[0] : pages.shape[3];
  int64_t run = row * page;
  int64_t step = numPages > 1 ? given[0] : run;
  check.check(run > 0 && step >= 0 && step % run == 0,
              pages.name + ": found pages that begin " + Twine(step) +
                  " elements apart, needed a multiple of the " + Twine(run) +
                  " of a page's rows");
  if (check.hasFailed())
    return;
  distance = step / run;
  int64_t rows = numPages == 0 ? 0 : (numPages - 1) * distance * page + page;
  check.check(rows <= std::numeric_limits<int32_t>::max(),
              pages.name + ": found " + Twine(rows) +
                  " rows, needed at most 2147483647");
  shape = {1, pages.shape[1], rows, pages.shape[3]};
  strides = {0, given[1], row, 1};
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

/// Leaves out what comes after the first `pages` of each sequence.
static void narrow(Argument &table, int64_t pages) {
  int64_t width = table.shape[1];
  if (pages >= width)
    return;
  if (table.strides.empty())
    table.strides = {width, 1};
  table.shape[1] = pages;
}

Expected<AttentionResult>
fovea::paged(const TensorRef &q, const TensorRef &keyPages,
             const TensorRef &valuePages, const TensorRef &blockTable,
             const TensorRef &lengths, const PagedOptions &options) {
  Checker check;
  Argument query = check.tensor("q", q, 4, "[B,H,N,D]"),
           k = check.tensor("k_pages", keyPages, 4, "[P,G,page,D]"),
           v = check.tensor("v_pages", valuePages, 4, "[P,G,page,E]"),
           table("block_table", blockTable);
  check.elementType(table, {ElementType::I32, ElementType::I64});
  check.check(table.shape.size() == 2, "block_table: found shape " +
                                           toTuple(table.shape) +
                                           ", needed [B,R]");
  if (check.hasFailed())
    return check.takeError();
  check.match("v_pages", "pages", v.shape[0], k.shape[0]);
  check.match("v_pages", "heads", v.shape[1], k.shape[1]);
  check.match("v_pages", "tokens of a page", v.shape[2], k.shape[2]);
  check.check(k.shape[2] > 0, "k_pages: found pages of 0 tokens, needed some");
  check.match("block_table", "batch", table.shape[0], query.shape[0]);
  int64_t page = k.shape[2];
  std::optional<BoundedLengthsScope> bounded;
  if (options.maxLength) {
    int64_t pages =
        divideCeil(check.integer("max_length", *options.maxLength, 0), page);
    if (check.hasFailed())
      return check.takeError();
    bounded.emplace();
    narrow(table, pages);
  }
  bool isKernels = PageLists::areMadeByKernel(table, options.target);
  SequenceLengths counts(check, "lengths", lengths, query.shape[0],
                         table.shape[1] * page, options.target,
                         /*isRead=*/!isKernels);
  PageRows keyRows(check, k), valueRows(check, v);
  check.check(valueRows.distance == keyRows.distance,
              "v_pages: found pages that begin " + Twine(valueRows.distance) +
                  " times their rows apart, needed " + Twine(keyRows.distance) +
                  " as in k_pages");
  if (check.hasFailed())
    return check.takeError();
  PageLists lists(check, table, *counts.get(),
                  {k.shape[0], page, keyRows.distance}, options.target);
  if (check.hasFailed())
    return check.takeError();

  Source source{keyRows.getRef(), valueRows.getRef(), options.causal,
                options.window};
  source.lengths = counts.get()->getRef();
  source.rows = lists.getRef();
  source.unit = page;
  source.hasListedPositions = true;
  StreamOptions call;
  call.scale = options.scale;
  call.sink = options.sink;
  call.queryLengths = options.queryLengths;
  call.returnLse = options.returnLse;
  call.target = options.target;
  call.out = options.out;
  Expected<AttentionResult> result = stream(q, source, call);
  if (!result)
    return renameArguments(result.takeError(),
                           {{"sources[0].k", "k_pages"},
                            {"sources[0].v", "v_pages"},
                            {"sources[0].window", "window"},
                            {"sources[0].lengths", "lengths"}});
  return result;
}
