//===- Codes.cpp - Codes of codewords -------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Codes.h"
#include "fovea/Functions/ResultScopes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

Codes::Codes(Checker &check, StringRef name, const TensorRef &given,
             Target target)
    : array(given) {
  if (check.hasFailed() || given.elementType != ElementType::I64)
    return;
  if (DescribeScope::isActive()) {
    memory = DescribeScope::makeAbstract(ElementType::I32, given.shape);
    array = memory.getRef();
    return;
  }
  if (!isNarrowedByKernel(given, target))
    narrow(check, name, target);
}

/// Where codes lie among codewords, operations check.
void Codes::narrow(Checker &check, StringRef name, Target target) {
  Argument wide(name, array);
  OwnedTensor copy;
  Expected<TensorRef> from = prepareOnHost(wide, target, copy);
  Expected<OwnedTensor> to = allocate(ElementType::I32, wide.shape);
  if (!from || !to)
    return check.fail(joinErrors(from.takeError(), to.takeError()));
  memory = std::move(*to);
  size_t count = memory.getNumBytes() / sizeof(int32_t);
  ArrayRef codes(static_cast<const int64_t *>(from->data), count);
  MutableArrayRef narrowed(memory.getDataAs<int32_t>(), count);
  for (auto [code, narrow] : zip_equal(codes, narrowed)) {
    if (!isInt<32>(code))
      return check.check(false, name + ": found " + Twine(code) +
                                    ", needed codes of 32 bits");
    narrow = int32_t(code);
  }
  array = memory.getRef();
}
