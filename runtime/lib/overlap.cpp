//===- overlap.cpp - Memory that strided arrays share ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two arrays share a byte where the difference of their first addresses is a
// sum of terms z * c: one for each dimension with more than one index, whose
// stride is c and whose z are the indices, negative ones for the array that is
// subtracted. Strides of interest lie in one another, as those of slices of one
// array do. A term then has one or two values that what follows can make up
// for, and trying them all is quick.
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/fovea_rt.h"
#include "status.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace {

struct Array {
  uintptr_t address;
  int64_t rank, elementBytes;
  const int64_t *extents, *strides;
};

struct Term {
  int64_t stride, low, high;
};

/// A sum of terms, which takes every value between its ends where the strides
/// allow it.
class Sum {
public:
  /// Adds `stride` times `scale` times each number from `low` to `high`.
  void add(int64_t stride, int64_t scale, int64_t low, int64_t high);
  /// Whether it can be `value`; also true where that takes long to find out.
  bool reaches(int64_t value);

private:
  static constexpr int maxTerms = 64, maxSteps = 1 << 16;

  bool reaches(int64_t value, int term);

  Term terms[maxTerms];
  /// The ends of what is left of the sum from a term on.
  int64_t lows[maxTerms + 1], highs[maxTerms + 1];
  int numTerms = 0, steps = 0;
  bool isTooLong = false;
};

} // namespace

void Sum::add(int64_t stride, int64_t scale, int64_t low, int64_t high) {
  if (low == high)
    return;
  isTooLong |= __builtin_mul_overflow(stride, scale, &stride);
  if (stride < 0) {
    stride = -stride;
    std::swap(low = -low, high = -high);
  }
  if (stride == 0)
    return;
  auto *end = terms + numTerms;
  auto *same = std::find_if(
      terms, end, [=](const Term &term) { return term.stride == stride; });
  if (same != end) {
    same->low += low;
    same->high += high;
  } else if (numTerms == maxTerms) {
    isTooLong = true;
  } else {
    terms[numTerms++] = {stride, low, high};
  }
}

bool Sum::reaches(int64_t value) {
  if (isTooLong)
    return true;
  std::sort(terms, terms + numTerms, [](const Term &left, const Term &right) {
    return left.stride > right.stride;
  });
  auto addEnd = [](int64_t stride, int64_t multiple, int64_t rest,
                   int64_t &end) {
    return __builtin_mul_overflow(stride, multiple, &end) ||
           __builtin_add_overflow(end, rest, &end) ||
           std::abs(end) > FOVEA_RT_MAX_TENSOR_BYTES;
  };
  lows[numTerms] = highs[numTerms] = 0;
  for (int term = numTerms; term-- > 0;) {
    const auto &[stride, low, high] = terms[term];
    // Nothing that exists reaches so far.
    if (addEnd(stride, low, lows[term + 1], lows[term]) ||
        addEnd(stride, high, highs[term + 1], highs[term]))
      return true;
  }
  return reaches(value, 0);
}

bool Sum::reaches(int64_t value, int term) {
  if (value < lows[term] || value > highs[term])
    return false;
  if (term == numTerms || ++steps > maxSteps)
    return true;
  // The multiples that leave what the other terms can make up for.
  const auto &[stride, low, high] = terms[term];
  auto divideDown = [stride = stride](int64_t number) {
    return number / stride - (number % stride < 0);
  };
  int64_t first = std::max(low, -divideDown(highs[term + 1] - value));
  int64_t last = std::min(high, divideDown(value - lows[term + 1]));
  for (int64_t multiple = first; multiple <= last; ++multiple)
    if (reaches(value - multiple * stride, term + 1))
      return true;
  return false;
}

static Array readDescriptor(const void *descriptor, int64_t rank,
                            int64_t elementBytes) {
  struct {
    const void *base, *data;
    int64_t offset;
  } head;
  std::memcpy(&head, descriptor, sizeof(head));
  const auto *extents = reinterpret_cast<const int64_t *>(
      static_cast<const char *>(descriptor) + sizeof(head));
  return {reinterpret_cast<uintptr_t>(head.data) +
              static_cast<uintptr_t>(head.offset * elementBytes),
          rank, elementBytes, extents, extents + rank};
}

static bool isEmpty(const Array &array) {
  return std::find(array.extents, array.extents + array.rank, 0) !=
         array.extents + array.rank;
}

int32_t fovea_rt_overlap(const void *first, int64_t first_rank,
                         int64_t first_element_bytes, const void *second,
                         int64_t second_rank, int64_t second_element_bytes) {
  Array arrays[] = {readDescriptor(first, first_rank, first_element_bytes),
                    readDescriptor(second, second_rank, second_element_bytes)};
  if (isEmpty(arrays[0]) || isEmpty(arrays[1]))
    return 0;
  Sum sum;
  for (const Array &array : arrays) {
    int64_t sign = &array == arrays ? 1 : -1;
    for (int64_t dim = 0; dim < array.rank; ++dim)
      sum.add(array.strides[dim], sign * array.elementBytes, 0,
              array.extents[dim] - 1);
    sum.add(sign, 1, 0, array.elementBytes - 1);
  }
  return sum.reaches(
      static_cast<int64_t>(arrays[1].address - arrays[0].address));
}

int32_t fovea_rt_shares_elements(const void *descriptor, int64_t rank) {
  Array array = readDescriptor(descriptor, rank, /*elementBytes=*/1);
  if (isEmpty(array))
    return 0;
  // Each dimension steps over all that the ones with smaller strides reach.
  int64_t reach = 0;
  for (int64_t below = 0;;) {
    int64_t next = INT64_MAX, span = 0;
    for (int64_t dim = 0; dim < rank; ++dim) {
      int64_t stride = std::abs(array.strides[dim]);
      if (array.extents[dim] == 1 || stride < below)
        continue;
      bool isNew = stride < next;
      // Two dimensions of one stride meet at once.
      if (!isNew && stride == next)
        return 1;
      if (isNew) {
        next = stride;
        span = stride * (array.extents[dim] - 1);
      }
    }
    if (next == INT64_MAX)
      return 0;
    if (next <= reach)
      return 1;
    reach += span;
    below = next + 1;
  }
}

void fovea_rt_check_separate(const char *message, const void *first,
                             int64_t first_rank, int64_t first_element_bytes,
                             const void *second, int64_t second_rank,
                             int64_t second_element_bytes) {
  if (fovea_rt_overlap(first, first_rank, first_element_bytes, second,
                       second_rank, second_element_bytes))
    fovea::rt::failWith(FOVEA_RT_INVALID_ARGUMENT, message);
}
