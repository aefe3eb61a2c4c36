//===- TokenFile.h - Keys and values in files -------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_TOKENFILE_H
#define FOVEA_LIB_FUNCTIONS_TOKENFILE_H

#include "ArrayFile.h"
#include "NewTokens.h"

namespace fovea::functions {

/// How many columns of keys are values; 0 where these have an array.
inline int64_t getValuesInKeys(const TokenMemory &memory) {
  return memory.valuesAreKeys ? memory.valueWidth : 0;
}

/// The columns of values of a file with the number "values_in_keys".
inline llvm::Expected<int64_t> findValueWidth(const ArrayFile &file) {
  if (int64_t width = file.getNumber("values_in_keys"))
    return width;
  llvm::Expected<TensorRef> values = file.find("values", 4);
  if (!values)
    return values.takeError();
  return values->shape[3];
}

/// Makes `side` a view of a copy that the host can read, if it is not.
llvm::Error moveToHost(StridedView &side, OwnedTensor &copy, Target target);

/// Reads arrays, wherever their memory is.
llvm::Error loadArrays(const ArrayFile &file, llvm::ArrayRef<NamedArray> arrays,
                       Target target);

/// The sides of memory, which live on, before other arrays.
inline llvm::SmallVector<NamedArray, 4>
nameArrays(llvm::ArrayRef<StridedView> sides,
           llvm::ArrayRef<NamedArray> others) {
  static constexpr const char *names[] = {"keys", "values"};
  llvm::SmallVector<NamedArray, 4> arrays;
  for (size_t side = 0; side < sides.size(); ++side)
    arrays.push_back({names[side], sides[side]});
  llvm::append_range(arrays, others);
  return arrays;
}

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_TOKENFILE_H
