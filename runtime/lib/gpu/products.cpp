//===- products.cpp - Axes of products of matrices ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "products.h"
#include "../status.h"
#include "device.h"
#include "queue.h"

#include <algorithm>
#include <cinttypes>

using namespace fovea::rt;

static constexpr int kBatch = FOVEA_RT_GPU_AXIS_BATCH,
                     kRows = FOVEA_RT_GPU_AXIS_ROWS,
                     kColumns = FOVEA_RT_GPU_AXIS_COLUMNS,
                     kDepth = FOVEA_RT_GPU_AXIS_DEPTH;

bool ProductAxis::isIn(int array) const {
  switch (array) {
  case Left:
    return kind != kColumns;
  case Right:
    return kind != kRows;
  case Result:
    return kind != kDepth;
  default:
    return kind == kColumns;
  }
}

/// Whether rows and columns of an array are those of a matrix: one of them has
/// adjacent elements, and the other one does not overlap.
static bool isMatrix(const ProductAxis &first, const ProductAxis &second,
                     int array) {
  for (auto [adjacent, other] :
       {std::pair(&first, &second), std::pair(&second, &first)})
    if ((adjacent->extent == 1 || adjacent->strides[array] == 1) &&
        (other->extent == 1 || other->strides[array] >= adjacent->extent))
      return true;
  return false;
}

ProductPlan::ProductPlan(const int64_t *numbers, int rank,
                         const int64_t *elementBytes) {
  std::copy_n(elementBytes, NumArrays, bytes);
  for (int i = 0; i < rank; ++i, numbers += FOVEA_RT_GPU_AXIS_NUMBERS) {
    ProductAxis axis = {numbers[0], numbers[1], {}};
    for (int array = 0; array < NumArrays; ++array)
      axis.strides[array] = axis.isIn(array) ? numbers[2 + array] : 0;
    if (axis.extent <= 0)
      (axis.kind == kDepth ? noDepth : empty) = true;
    else if (axis.extent > 1)
      axes[numAxes++] = axis;
  }
  if (noDepth)
    readZeros();
  merge();
}

/// Sums of nothing are products of zeros.
void ProductPlan::readZeros() {
  numAxes = static_cast<int>(std::remove_if(axes, axes + numAxes,
                                            [](const ProductAxis &axis) {
                                              return axis.kind == kDepth;
                                            }) -
                             axes);
  for (int i = 0; i < numAxes; ++i) {
    axes[i].strides[Left] = axes[i].kind == kRows;
    axes[i].strides[Right] = axes[i].kind == kColumns;
  }
}

int64_t ProductPlan::countZeros() const {
  int64_t count = noDepth;
  for (int i = 0; i < numAxes; ++i)
    count += noDepth ? axes[i].extent : 0;
  return count;
}

/// Joins axes of one kind of which one goes on in all arrays where the other
/// one ends.
void ProductPlan::merge() {
  auto joins = [](const ProductAxis &outer, const ProductAxis &inner) {
    for (int array = 0; array < NumArrays; ++array)
      if (outer.isIn(array) &&
          outer.strides[array] != inner.strides[array] * inner.extent)
        return false;
    return outer.kind == inner.kind;
  };
  for (int i = 0; i < numAxes; ++i)
    for (int j = 0; j < numAxes; ++j) {
      if (i == j || !joins(axes[i], axes[j]))
        continue;
      axes[j].extent *= axes[i].extent;
      std::copy(axes + i + 1, axes + numAxes, axes + i);
      --numAxes;
      // From the start: what is longer may join others.
      i = -1;
      break;
    }
}

void ProductPlan::addOuter(const ProductAxis &axis) {
  if (axis.extent > 1)
    outer[numOuter++] = axis;
}

/// Tries matrices whose rows or columns, or both, are single ones: then those
/// of the arrays are outer axes.
bool ProductPlan::tryMatrices(bool outerRows, bool outerColumns, bool bias) {
  numOuter = 0;
  int chosen[kNumKinds] = {-1, -1, -1, -1};
  // Along axes of adjacent elements, else along the longest ones.
  auto isAdjacent = [](const ProductAxis &axis) {
    for (int array = 0; array < Bias; ++array)
      if (axis.isIn(array) && axis.strides[array] == 1)
        return true;
    return false;
  };
  for (int i = 0; i < numAxes; ++i) {
    int kind = static_cast<int>(axes[i].kind);
    if (kind == kBatch || (kind == kRows && outerRows) ||
        (kind == kColumns && outerColumns))
      continue;
    int &best = chosen[kind];
    auto rank = [&](const ProductAxis &axis) {
      return std::pair(isAdjacent(axis), axis.extent);
    };
    if (best < 0 || rank(axes[i]) > rank(axes[best]))
      best = i;
  }
  for (int kind = 0; kind < kNumKinds; ++kind)
    inner[kind] = chosen[kind] < 0 ? ProductAxis{kind, 1, {0, 0, 0, 0}}
                                   : axes[chosen[kind]];
  const ProductAxis &rows = inner[kRows], &columns = inner[kColumns],
                    &depth = inner[kDepth];
  if (!isMatrix(rows, depth, Left) || !isMatrix(depth, columns, Right) ||
      !isMatrix(rows, columns, Result))
    return false;
  if (bias && columns.extent > 1 &&
      (columns.strides[Bias] != 1 || columns.strides[Result] != 1))
    return false;
  for (int i = 0; i < numAxes; ++i)
    if (std::find(chosen, chosen + kNumKinds, i) == chosen + kNumKinds)
      addOuter(axes[i]);
  // The longest of the others becomes the batch, where the same bias serves
  // all of it.
  int batch = -1;
  for (int i = 0; i < numOuter; ++i) {
    const ProductAxis &axis = outer[i];
    bool fits = axis.kind != kDepth && (!bias || axis.strides[Bias] == 0);
    for (int64_t stride : axis.strides)
      fits &= stride >= 0;
    if (fits && (batch < 0 || axis.extent > outer[batch].extent))
      batch = i;
  }
  if (batch >= 0) {
    inner[kBatch] = outer[batch];
    std::copy(outer + batch + 1, outer + numOuter, outer + batch);
    --numOuter;
  }
  return true;
}

bool ProductPlan::choose(bool bias) {
  return tryMatrices(false, false, bias) || tryMatrices(true, false, bias) ||
         tryMatrices(false, true, bias) || tryMatrices(true, true, bias);
}

bool ProductPlan::hasOuterDepth() const {
  return std::any_of(outer, outer + numOuter, [](const ProductAxis &axis) {
    return axis.kind == kDepth;
  });
}

int64_t ProductPlan::countPlaces() const {
  int64_t count = 1;
  for (int i = 0; i < numOuter; ++i)
    count *= outer[i].extent;
  return count;
}

fovea_rt_gpu_product ProductPlan::get(int64_t place, void *const *data,
                                      bool *isFirst) const {
  char *at[NumArrays];
  for (int array = 0; array < NumArrays; ++array)
    at[array] = static_cast<char *>(data[array]);
  *isFirst = true;
  for (int i = 0; i < numOuter; ++i) {
    int64_t index = place % outer[i].extent;
    place /= outer[i].extent;
    *isFirst &= outer[i].kind != kDepth || index == 0;
    for (int array = 0; array < NumArrays; ++array)
      if (at[array])
        at[array] += index * outer[i].strides[array] * bytes[array];
  }
  auto matrix = [&](int array, int rows, int columns) {
    return fovea_rt_gpu_matrix{at[array], inner[kBatch].strides[array],
                               inner[rows].strides[array],
                               inner[columns].strides[array]};
  };
  fovea_rt_gpu_product product = {};
  product.batch = inner[kBatch].extent;
  product.rows = inner[kRows].extent;
  product.columns = inner[kColumns].extent;
  product.depth = inner[kDepth].extent;
  product.left = matrix(Left, kRows, kDepth);
  product.right = matrix(Right, kDepth, kColumns);
  product.result = matrix(Result, kRows, kColumns);
  product.bias = at[Bias];
  return product;
}

//===----------------------------------------------------------------------===//
// Generated code
//===----------------------------------------------------------------------===//

static int64_t getBytes(int32_t type) {
  return type == FOVEA_RT_GPU_F32 ? sizeof(float) : sizeof(uint16_t);
}

static void checkTypes(int32_t factors, int32_t results) {
  bool isKnown = factors == FOVEA_RT_GPU_F16 || factors == FOVEA_RT_GPU_BF16 ||
                 factors == FOVEA_RT_GPU_F32;
  if (!isKnown || (results != factors && results != FOVEA_RT_GPU_F32))
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "products of matrices on a GPU have factors of f16, bf16 or f32 and "
         "results of the same type or f32, but got types %d and %d",
         factors, results);
}

/// Fails for arrays that no matrices lie in.
static void choose(ProductPlan &plan, bool isNarrow, bool bias) {
  if (!plan.choose(bias))
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "products of matrices on a GPU need arrays with an axis of adjacent "
         "elements in which no rows overlap");
  if (plan.hasOuterDepth() && (isNarrow || bias))
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "products of matrices on a GPU sum along one axis, but the axes of "
         "the depth do not follow each other in both factors");
}

void fovea_rt_gpu_multiply(int32_t factorType, int32_t resultType,
                           int32_t flags, const void *left, const void *right,
                           void *result, const void *bias, int32_t rank,
                           const int64_t *axes) {
  QueueInfo queue = getQueueInfo("products of matrices");
  checkTypes(factorType, resultType);
  if (rank < 0 || rank > FOVEA_RT_GPU_MOST_AXES)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "products of matrices have at most %d axes, but got %d",
         FOVEA_RT_GPU_MOST_AXES, rank);
  int64_t factorBytes = getBytes(factorType), bytes = getBytes(resultType);
  const int64_t elementBytes[] = {factorBytes, factorBytes, bytes, bytes};
  ProductPlan plan(axes, rank, elementBytes);
  if (plan.isEmpty())
    return;
  choose(plan, resultType != FOVEA_RT_GPU_F32, bias != nullptr);
  void *data[] = {const_cast<void *>(left), const_cast<void *>(right), result,
                  const_cast<void *>(bias)};
  int64_t numZeros = plan.countZeros();
  if (numZeros) {
    void *zeros =
        fovea_rt_gpu_alloc(queue.queue, numZeros * int64_t(sizeof(float)));
    fovea_rt_gpu_fill(queue.queue, zeros, numZeros, sizeof(float), 0);
    data[Left] = data[Right] = zeros;
  }
  for (int64_t place = 0, count = plan.countPlaces(); place < count; ++place) {
    bool isFirst;
    fovea_rt_gpu_product product = plan.get(place, data, &isFirst);
    product.factor_type = factorType;
    product.result_type = resultType;
    product.flags = flags | (isFirst ? 0 : FOVEA_RT_GPU_ADD);
    char text[FOVEA_RT_GPU_TEXT] = "";
    if (fovea_rt_status status = queue.device->driver->multiply(
            queue.device->handle, &product, queue.stream, text))
      failWith(status, text);
  }
  if (numZeros)
    fovea_rt_gpu_free(queue.queue, data[Left]);
}
