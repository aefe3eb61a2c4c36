//===- NewTokens.h - What is added to a cache -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_NEWTOKENS_H
#define FOVEA_LIB_FUNCTIONS_NEWTOKENS_H

#include "Memory.h"
#include "StridedView.h"
#include "TokenMask.h"
#include "fovea/Functions/TokenMemory.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <array>

namespace fovea::functions {

/// Checks sizes and takes the memory.
llvm::Error allocateTokens(Checker &check, const llvm::Twine &found,
                           std::array<int64_t, 3> extents, int64_t width,
                           ElementType type, TokenMemory &memory);

/// Memory for keys [count,heads,rows,width], and for values. `options` are
/// those of a cache, and `found` is what takes so much memory.
template <typename Options>
llvm::Expected<TokenMemory>
makeTokenMemory(Checker &check, const llvm::Twine &found, int64_t count,
                int64_t heads, int64_t rows, int64_t width,
                const Options &options) {
  TokenMemory memory;
  memory.target = options.target;
  memory.hasTokensFirst = options.tokensFirst;
  memory.valuesAreKeys = options.valuesAreKeys;
  memory.valueWidth = options.valueWidth.value_or(width);
  if (llvm::Error error = allocateTokens(check, found, {count, heads, rows},
                                         width, options.elementType, memory))
    return std::move(error);
  return std::move(memory);
}

/// The sides of memory that are kept: keys, and values where they are not
/// columns of keys. As they lie, and with heads first.
llvm::SmallVector<StridedView, 2> getSides(const TokenMemory &memory);
llvm::SmallVector<StridedView, 2> getHeadsFirst(const TokenMemory &memory);
/// Keys and values with heads first.
std::pair<StridedView, StridedView> getKeysAndValues(const TokenMemory &memory);

/// That of a cache for `target`, of the GPU that the calling thread has chosen.
CachePlace choosePlace(Checker &check, Target target);
/// Fails where work on memory of a GPU cannot be done: on another one, and in a
/// graph, which would have the tokens of today whenever it is launched.
void checkDevice(Checker &check, const CachePlace &cache);
/// Fails unless an array lies where kernels read it with that memory.
void checkPlace(Checker &check, const CachePlace &cache, const Argument &array);
/// The queries [B,H,N,D] of a cache whose keys are [`batch`,G,M,D].
Argument checkQueries(Checker &check, const TensorRef &q,
                      llvm::StringRef layout, const CachePlace &cache,
                      ElementType type, int64_t batch, int64_t heads,
                      int64_t width);
/// The target of a call whose options ask for `given`.
Target findTarget(Checker &check, const CachePlace &cache, Target given);
/// Waits for what streams of other calls do with memory of a GPU.
llvm::Error waitForTokens(const CachePlace &cache);
/// Zeroed memory there; `found` is what takes it.
llvm::Expected<OwnedTensor> allocateFor(const CachePlace &cache,
                                        const llvm::Twine &found,
                                        ElementType type,
                                        llvm::ArrayRef<int64_t> shape);

/// How many of `length` tokens each batch entry gets: `given` [B] of them, or
/// all.
inline llvm::SmallVector<int64_t, 4>
countNewTokens(Checker &check, const std::optional<TensorRef> &given,
               int64_t batch, int64_t length) {
  SequenceLengths counts(check, "lengths", given, batch, length, Target::CPU);
  llvm::SmallVector<int64_t, 4> added(batch, length);
  if (given && !check.hasFailed())
    std::copy_n(static_cast<const int32_t *>(counts.get()->data), batch,
                added.begin());
  return added;
}

/// Checks that no batch entry would keep more tokens than the `lengths` it has.
inline void checkTruncation(Checker &check, llvm::StringRef name,
                            llvm::ArrayRef<int64_t> kept,
                            llvm::ArrayRef<int64_t> lengths) {
  for (auto [entry, count, length] : llvm::enumerate(kept, lengths))
    check.check(count >= 0 && count <= length,
                name + ": found " + llvm::Twine(count) + " for batch entry " +
                    llvm::Twine(entry) + ", needed 0 to " +
                    llvm::Twine(length));
}

/// Keys [B,G,N,D] and values [B,G,N,E] of new tokens.
class NewTokens {
public:
  /// Checks that they fit to the memory of a cache, [B,G,M,D] and [B,G,M,E].
  NewTokens(Checker &check, const TensorRef &k, const TensorRef &v,
            const CachePlace &cache, const TensorRef &ownKeys,
            const TensorRef &ownValues) {
    arrays.push_back(checkArray(check, "k", "[B,G,N,D]", k, ownKeys));
    addValues(check, v, ownValues);
    checkMemory(check, cache);
  }
  /// The same, for batch entries whose heads and widths are those of `memory`.
  NewTokens(Checker &check, const TensorRef &k,
            const std::optional<TensorRef> &v, const TokenMemory &memory,
            int64_t batch);

  int64_t getLength() const { return arrays[0].shape[2]; }

  /// Fails unless they can be read. What is to be checked comes before.
  llvm::Error makeReadable() {
    if (isOnGPU)
      return llvm::Error::success();
    copies.resize(arrays.size());
    for (auto [array, copy] : llvm::zip_equal(arrays, copies)) {
      llvm::Expected<TensorRef> readable =
          prepare(array, /*takesStrides=*/true, copy,
                  [&name = array.name] { return name; });
      if (!readable)
        return readable.takeError();
      array = Argument(array.name, *readable);
    }
    return llvm::Error::success();
  }

  bool haveContiguousRows() const {
    return llvm::all_of(arrays, [](const Argument &array) {
      return array.hasContiguousRows();
    });
  }
  /// Keys, and values if there are any.
  llvm::SmallVector<StridedView, 2> getSides() const {
    llvm::SmallVector<StridedView, 2> sides;
    for (const Argument &array : arrays)
      sides.emplace_back(array.getRef());
    return sides;
  }
  /// Keys, side 0, or values.
  StridedView getRows(size_t side, int64_t first, int64_t count) const {
    return StridedView(arrays[side].getRef()).slice(2, first, count);
  }

private:
  void checkMemory(Checker &check, const CachePlace &cache) {
    isOnGPU = cache.target == Target::GPU;
    for (const Argument &array : arrays)
      checkPlace(check, cache, array);
  }
  void addValues(Checker &check, const TensorRef &v, const TensorRef &own) {
    arrays.push_back(checkArray(check, "v", "[B,G,N,E]", v, own));
    check.match("v", "length", arrays[1].shape[2], getLength());
  }
  static Argument checkArray(Checker &check, llvm::StringRef name,
                             llvm::StringRef layout, const TensorRef &array,
                             const TensorRef &own) {
    Argument argument = check.tensor(name, array, 4, layout);
    check.elementType(argument, {own.elementType});
    check.match(name, "batch", argument.shape[0], own.shape[0]);
    check.match(name, "heads", argument.shape[1], own.shape[1]);
    check.match(name, "head width", argument.shape[3], own.shape[3]);
    return argument;
  }

  /// Then any strides can be read.
  bool isOnGPU = false;
  llvm::SmallVector<Argument, 2> arrays;
  llvm::SmallVector<OwnedTensor, 2> copies;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_NEWTOKENS_H
