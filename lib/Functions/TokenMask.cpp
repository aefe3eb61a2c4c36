//===- TokenMask.cpp - Masks of tokens that are present -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenMask.h"
#include "fovea/Functions/ResultScopes.h"
#include <algorithm>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

TokenMask::TokenMask(Checker &check, const TokenOptions &options, int64_t batch,
                     int64_t length, Target target, StringRef name)
    : name(name) {
  check.check(!options.mask || !options.lengths,
              "lengths: found " + name + " as well, needed one of the two");
  if (check.hasFailed())
    return;
  if (options.mask)
    this->check(check, *options.mask, batch, length);
  if (!options.lengths)
    return;
  checkOnHost(check, "lengths", options.lengths->data, target);
  makeOfLengths(check, Argument("lengths", *options.lengths), batch, length);
}

void TokenMask::check(Checker &check, const TensorRef &mask, int64_t batch,
                      int64_t length) {
  argument.emplace(name, mask);
  check.elementType(*argument, {ElementType::I1});
  check.match(name, "shape", argument->shape, {batch, length});
}

void TokenMask::makeOfLengths(Checker &check, const Argument &lengths,
                              int64_t batch, int64_t length) {
  check.elementType(lengths, {ElementType::I32, ElementType::I64});
  check.match("lengths", "shape", lengths.shape, {batch});
  if (check.hasFailed())
    return;
  if (DescribeScope::isActive()) {
    memory = DescribeScope::makeAbstract(ElementType::I1, {batch, length});
    argument.emplace(name, memory.getRef());
    return;
  }
  OwnedTensor copy;
  Expected<TensorRef> values = prepare(lengths, /*takesStrides=*/false, copy,
                                       [] { return std::string("lengths"); });
  Expected<OwnedTensor> mask = allocate(ElementType::I1, {batch, length});
  if (!values || !mask) {
    return check.fail(joinErrors(values.takeError(), mask.takeError()));
  }
  memory = std::move(*mask);
  for (int64_t entry = 0; entry < batch; ++entry) {
    int64_t present = values->elementType == ElementType::I32
                          ? static_cast<const int32_t *>(values->data)[entry]
                          : static_cast<const int64_t *>(values->data)[entry];
    check.check(present >= 0 && present <= length,
                "lengths: found " + Twine(present) + " for batch entry " +
                    Twine(entry) + ", needed 0 to " + Twine(length));
    if (check.hasFailed())
      return;
    std::fill_n(memory.getDataAs<char>() + entry * length, present, 1);
  }
  argument.emplace(name, memory.getRef());
}
