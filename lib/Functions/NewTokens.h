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
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

namespace fovea::functions {

/// The memory of keys or values, tokens before heads or behind them, with heads
/// first.
inline StridedView toHeadsFirst(const OwnedTensor &memory, bool tokensFirst) {
  StridedView view(memory.getRef());
  return tokensFirst ? view.swap(1, 2) : view;
}

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
            const TensorRef &ownKeys, const TensorRef &ownValues)
      : arrays{checkArray(check, "k", "[B,G,N,D]", k, ownKeys),
               checkArray(check, "v", "[B,G,N,E]", v, ownValues)} {
    check.match("v", "length", arrays[1].shape[2], getLength());
  }

  int64_t getLength() const { return arrays[0].shape[2]; }

  /// Fails unless they can be read. What is to be checked comes before.
  llvm::Error makeReadable() {
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

  /// Keys, side 0, or values.
  StridedView getRows(size_t side, int64_t first, int64_t count) const {
    return StridedView(arrays[side].getRef()).slice(2, first, count);
  }

private:
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

  Argument arrays[2];
  OwnedTensor copies[2];
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_NEWTOKENS_H
