//===- ResultScopes.cpp - What becomes of results -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/ResultScopes.h"
#include <utility>

using namespace llvm;
using namespace fovea;

// Aligned for every type.
void *const fovea::kAbstractData = reinterpret_cast<void *>(64);

static thread_local bool describes = false;

DescribeScope::DescribeScope() : outer(std::exchange(describes, true)) {}
DescribeScope::~DescribeScope() { describes = outer; }

bool DescribeScope::isActive() { return describes; }

OwnedTensor DescribeScope::makeAbstract(ElementType type,
                                        ArrayRef<int64_t> shape) {
  return OwnedTensor(nullptr, [](void *) {}, kAbstractData, type, shape);
}

static thread_local FlopScope *counting = nullptr;

FlopScope::FlopScope() : outer(std::exchange(counting, this)) {}
FlopScope::~FlopScope() { counting = outer; }

FlopScope *FlopScope::getActive() { return counting; }

static thread_local DestinationScope *innermost = nullptr;

DestinationScope::DestinationScope(ArrayRef<TensorRef> destinations)
    : rest(destinations), outer(std::exchange(innermost, this)) {}
DestinationScope::~DestinationScope() { innermost = outer; }

std::optional<TensorRef> DestinationScope::take(ElementType type,
                                                ArrayRef<int64_t> shape) {
  if (!innermost || innermost->rest.empty())
    return std::nullopt;
  const TensorRef &next = innermost->rest.front();
  if (next.elementType != type || next.shape != shape)
    return std::nullopt;
  innermost->rest = innermost->rest.drop_front();
  return next;
}
