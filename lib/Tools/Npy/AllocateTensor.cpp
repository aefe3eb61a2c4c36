//===- AllocateTensor.cpp - Memory for tensors of the host ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Tools/Npy/AllocateTensor.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MathExtras.h"
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

using namespace llvm;
using namespace fovea;

static constexpr int64_t kHugePageBytes = int64_t(2) << 20;

Expected<OwnedTensor> fovea::allocateTensor(ElementType type,
                                            ArrayRef<int64_t> shape) {
  int64_t bytes = getByteWidth(type);
  for (int64_t extent : shape)
    if (MulOverflow(bytes, extent, bytes))
      return createStringError("a tensor of this shape has more bytes than 64 "
                               "bits can count");
  bool isLarge = bytes >= 2 * kHugePageBytes;
  size_t alignment = isLarge ? kHugePageBytes : 64;
  size_t rounded = alignTo(std::max<int64_t>(bytes, 1), alignment);
  void *memory = std::aligned_alloc(alignment, rounded);
  if (!memory)
    return createStringError("out of memory: needs " + Twine(bytes) + " bytes");
#ifdef MADV_HUGEPAGE
  if (isLarge)
    madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0, rounded);
  return OwnedTensor(memory, std::free, memory, type, shape);
}
