//===- VQState.cpp - Copies of the state of vq ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ArrayFile.h"
#include "Memory.h"
#include "fovea/Functions/VQ.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static constexpr StringLiteral kKind = "fovea.VQState";

namespace {
struct Part {
  StringLiteral name;
  OwnedTensor VQState::*member;
  size_t rank;
};
} // namespace

static constexpr Part kParts[] = {{"mean", &VQState::mean, 4},
                                  {"count", &VQState::count, 3},
                                  {"codes", &VQState::codes, 3},
                                  {"values", &VQState::values, 4},
                                  {"position", &VQState::position, 0}};

/// Fails where a part cannot be copied.
static Error copyTo(VQState &state, const Part &part, const TensorRef &from) {
  Expected<OwnedTensor> copy = copyArray(from);
  if (!copy)
    return copy.takeError();
  state.*part.member = std::move(*copy);
  return Error::success();
}

Expected<VQState> VQState::fork() const {
  VQState state;
  if (isEmpty())
    return std::move(state);
  for (const Part &part : kParts)
    if (Error error = copyTo(state, part, (this->*part.member).getRef()))
      return std::move(error);
  return std::move(state);
}

Error VQState::save(StringRef path) const {
  if (isEmpty())
    return createStringError(std::make_error_code(std::errc::invalid_argument),
                             "state: found none, needed that after a token");
  SmallVector<NamedArray, 5> arrays;
  for (const Part &part : kParts)
    arrays.push_back({part.name.str(), (this->*part.member).getRef()});
  return writeArrays(path, kKind, {}, arrays);
}

Expected<VQState> VQState::load(StringRef path) {
  Expected<ArrayFile> file = ArrayFile::read(path, kKind, {});
  if (!file)
    return file.takeError();
  VQState state;
  for (const Part &part : kParts) {
    Expected<TensorRef> stored = file->find(part.name, part.rank);
    if (!stored)
      return stored.takeError();
    if (Error error = copyTo(state, part, *stored))
      return std::move(error);
  }
  return std::move(state);
}

int64_t VQState::getNumBytes() const {
  int64_t bytes = 0;
  for (const Part &part : kParts)
    bytes += (this->*part.member).getNumBytes();
  return bytes;
}
