//===- ConvValues.h - Values of sums of convolutions ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVVALUES_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVVALUES_H

#include "ConvBuilder.h"

namespace fovea::attn::conv {

/// The values as products read them, [B, G, N, paddedWidth]: widened, with
/// whole vectors of columns, and zeros for those that are no finite numbers. A
/// NaN in a product of a tile, or in a transform, would be in rows that do not
/// read it. Values stay where they are if they can, unless one of them is no
/// finite number.
class ConvValues {
public:
  /// `findsSpoilt` says that the products of a head find out, as they read
  /// values in place, that one of them is no finite number.
  ConvValues(ConvBuilder &b, bool findsSpoilt);

  /// Loads a vector of columns.
  Value load(Value token, Value column) const {
    return b.loadVector(memref, {b.batch, b.group, token, column});
  }
  /// The columns of a token that the operation has, unpadded, whatever they
  /// hold.
  Value loadOriginal(Value token, Value column) const {
    return b.loadColumns(b.value, {b.batch, b.group, token}, column);
  }
  /// About the first token that may have a value that is no finite number, or
  /// N.
  Value firstSpoiltToken() { return b.loadIndex(spoilt, spoiltAt()); }

  /// Whether products find out, so that they have to ask for it: they call
  /// `emitProduct`, and once more if it has read a value that is no finite
  /// number. `findSpoilt` gives a token before all of these, or N.
  bool areFoundByProducts() const { return findsSpoilt && !isPacked; }
  void emitUntilClean(function_ref<void()> emitProduct,
                      function_ref<Value()> findSpoilt);

  /// What products read.
  Value memref;

private:
  Value allocateLike(Value tokens);
  void cleanAll(Value marks, Value target);
  Value cleanRow(Value batch, Value group, Value row, Value target);
  void findSpoilt(Value marks);
  Value findSpoiltToken(Value first);
  Value findFirstOfAll();
  llvm::SmallVector<Value> spoiltAt() const {
    return {b.batch, areFoundByProducts() ? b.head : b.group};
  }

  ConvBuilder &b;
  bool findsSpoilt, isPacked;
  /// Room for copies of values that do not stay in place; first spoilt tokens
  /// [B, G], or [B, H] where products find them.
  Value copies, spoilt;
};

} // namespace fovea::attn::conv

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_CONV_CONVVALUES_H
