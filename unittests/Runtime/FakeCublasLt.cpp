//===- FakeCublasLt.cpp - A cuBLASLt that runs on the CPU -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Device memory of the fake CUDA driver is memory of the host, in which sums
// are computed as they are defined. What cuBLASLt would refuse, or compute
// wrongly, is an error.
//
//===----------------------------------------------------------------------===//

#include "FakeCublasLt.h"
#include "fovea_rt/half_float.h"

#include <cstdint>
#include <map>

#define EXPORT extern "C" __attribute__((visibility("default")))

static FakeCublasLt fake;
EXPORT FakeCublasLt *fakeCublasLt() { return &fake; }

namespace {
enum { InvalidValue = 7, NotSupported = 15 };
enum { F32 = 0, F16 = 2, BF16 = 14 };
constexpr size_t kWorkBytes = 512;

/// Attributes of any object, as numbers.
struct Object {
  std::map<int, int64_t> attributes;
  int type = 0;
  int64_t rows = 0, columns = 0, pitch = 0;

  int64_t get(int attribute, int64_t otherwise) const {
    auto it = attributes.find(attribute);
    return it == attributes.end() ? otherwise : it->second;
  }
};

struct Algorithm {
  const char *text;
  /// Of the layouts and the description that it was chosen for.
  uint64_t hash;
  uint32_t alignments[3];
};
static_assert(sizeof(Algorithm) <= 64);

struct Suggestion {
  Algorithm algorithm;
  char pad[64 - sizeof(Algorithm)];
  size_t workBytes;
  int state;
  float waves;
  int reserved[4];
};
} // namespace

static int create(void **object, const Object &value) {
  *object = new Object(value);
  ++fake.numAlive;
  return 0;
}
static int destroy(void *object) {
  delete static_cast<Object *>(object);
  --fake.numAlive;
  return 0;
}
static int set(void *object, int attribute, const void *value, size_t bytes) {
  if (bytes != 4 && bytes != 8)
    return InvalidValue;
  int64_t number = 0;
  memcpy(&number, value, bytes);
  static_cast<Object *>(object)->attributes[attribute] = number;
  return 0;
}

EXPORT int cublasLtCreate(void **handle) {
  ++fake.numHandles;
  *handle = &fake;
  return 0;
}
EXPORT int cublasLtMatmulDescCreate(void **description, int computeType,
                                    int scaleType) {
  Object object;
  object.type = computeType;
  return scaleType == F32 ? create(description, object) : NotSupported;
}
EXPORT int cublasLtMatmulDescDestroy(void *object) { return destroy(object); }
EXPORT int cublasLtMatmulDescSetAttribute(void *object, int attribute,
                                          const void *value, size_t bytes) {
  return set(object, attribute, value, bytes);
}
EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows,
                                      uint64_t columns, int64_t pitch) {
  Object object;
  object.type = type;
  object.rows = static_cast<int64_t>(rows);
  object.columns = static_cast<int64_t>(columns);
  object.pitch = pitch;
  if (!rows || !columns || pitch < object.rows)
    return InvalidValue;
  return create(layout, object);
}
EXPORT int cublasLtMatrixLayoutDestroy(void *object) { return destroy(object); }
EXPORT int cublasLtMatrixLayoutSetAttribute(void *object, int attribute,
                                            const void *value, size_t bytes) {
  return set(object, attribute, value, bytes);
}
EXPORT int cublasLtMatmulPreferenceCreate(void **preference) {
  return create(preference, Object());
}
EXPORT int cublasLtMatmulPreferenceDestroy(void *object) {
  return destroy(object);
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *object, int attribute,
                                                const void *value,
                                                size_t bytes) {
  return set(object, attribute, value, bytes);
}

/// A number that tells descriptions apart, but for the address of a bias.
static uint64_t hash(std::initializer_list<const void *> objects) {
  uint64_t value = 1469598103934665603u;
  auto add = [&](int64_t number) {
    value = (value ^ static_cast<uint64_t>(number)) * 1099511628211u;
  };
  for (const void *each : objects) {
    auto &object = *static_cast<const Object *>(each);
    for (int64_t number :
         {int64_t(object.type), object.rows, object.columns, object.pitch})
      add(number);
    for (auto [attribute, number] : object.attributes)
      if (attribute != 8)
        add(attribute), add(number);
  }
  return value;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *, void *description, void *a,
                                          void *b, void *c, void *d,
                                          void *preference, int requested,
                                          Suggestion *suggestions, int *count) {
  ++fake.numChoices;
  *count = 0;
  if (fake.choiceResult)
    return fake.choiceResult;
  auto &wishes = *static_cast<Object *>(preference);
  if (requested < 1 || wishes.get(1, 0) < int64_t(kWorkBytes) ||
      wishes.get(3, 7) != 2)
    return InvalidValue;
  if (fake.knowsNothing)
    return 0;
  *count = 1;
  suggestions[0] = {};
  Algorithm &algorithm = suggestions[0].algorithm;
  algorithm.text = "fake";
  algorithm.hash = hash({description, a, b, c, d});
  for (int i = 0; i < 3; ++i)
    algorithm.alignments[i] = static_cast<uint32_t>(wishes.get(5 + i, 256));
  suggestions[0].workBytes = kWorkBytes;
  return 0;
}

namespace {
/// Numbers of a layout at an address.
struct Matrix {
  const Object &layout;
  char *data;
  bool isTransposed;

  int bytes() const { return layout.type == F32 ? 4 : 2; }
  int64_t rows() const { return isTransposed ? layout.columns : layout.rows; }
  int64_t columns() const {
    return isTransposed ? layout.rows : layout.columns;
  }
  char *at(int64_t batch, int64_t row, int64_t column) const {
    if (isTransposed)
      std::swap(row, column);
    return data +
           (batch * layout.get(6, 0) + column * layout.pitch + row) * bytes();
  }
  float load(int64_t batch, int64_t row, int64_t column) const {
    return read(at(batch, row, column));
  }
  float read(const char *from) const {
    if (layout.type == F32) {
      float value;
      memcpy(&value, from, sizeof(value));
      return value;
    }
    uint16_t bits;
    memcpy(&bits, from, sizeof(bits));
    return layout.type == F16 ? fovea::extendF16(bits)
                              : fovea::extendBF16(bits);
  }
  void store(float value, int64_t batch, int64_t row, int64_t column) const {
    char *to = at(batch, row, column);
    if (layout.type == F32) {
      memcpy(to, &value, sizeof(value));
      return;
    }
    uint16_t bits = layout.type == F16 ? fovea::truncateToF16(value)
                                       : fovea::truncateToBF16(value);
    memcpy(to, &bits, sizeof(bits));
  }
  bool isAligned(uint32_t alignment) const {
    auto isMultiple = [&](int64_t number) { return number % alignment == 0; };
    return isMultiple(reinterpret_cast<intptr_t>(data)) &&
           (layout.columns == 1 || isMultiple(layout.pitch * bytes())) &&
           (layout.get(5, 1) == 1 || isMultiple(layout.get(6, 0) * bytes()));
  }
};
} // namespace

EXPORT int cublasLtMatmul(void *, void *description, const float *alpha,
                          void *a, void *layoutA, void *b, void *layoutB,
                          const float *beta, void *c, void *, void *d,
                          void *layoutD, const Algorithm *algorithm, void *area,
                          size_t workBytes, void *stream) {
  ++fake.numProducts;
  if (fake.productResult)
    return fake.productResult;
  auto &calls = *static_cast<Object *>(description);
  auto asMatrix = [](void *layout, void *data, bool isTransposed) {
    return Matrix{*static_cast<Object *>(layout), static_cast<char *>(data),
                  isTransposed};
  };
  Matrix left = asMatrix(layoutA, a, calls.get(3, 0)),
         right = asMatrix(layoutB, b, calls.get(4, 0)),
         result = asMatrix(layoutD, d, false);
  const Matrix *matrices[] = {&left, &right, &result};
  for (int i = 0; i < 3; ++i)
    if (!matrices[i]->isAligned(algorithm->alignments[i]))
      return InvalidValue;
  if (algorithm->hash !=
          hash({description, layoutA, layoutB, layoutD, layoutD}) ||
      !area || workBytes < kWorkBytes || c != d)
    return InvalidValue;
  bool fits = left.columns() == right.rows() && left.rows() == result.rows() &&
              right.columns() == result.columns();
  bool isKnown =
      left.layout.type == right.layout.type &&
      (result.layout.type == F32 || result.layout.type == left.layout.type);
  if (!fits || !isKnown)
    return NotSupported;
  fake.lastStream = stream;
  fake.lastComputeType = calls.type;
  fake.lastBatch = static_cast<int>(result.layout.get(5, 1));
  auto *bias = reinterpret_cast<const char *>(calls.get(8, 0));
  if ((calls.get(7, 1) == 4) != (bias != nullptr))
    return InvalidValue;
  for (int64_t batch = 0; batch < fake.lastBatch; ++batch)
    for (int64_t i = 0; i < result.rows(); ++i)
      for (int64_t j = 0; j < result.columns(); ++j) {
        float sum = 0;
        for (int64_t k = 0; k < left.columns(); ++k)
          sum += left.load(batch, i, k) * right.load(batch, k, j);
        sum *= *alpha;
        if (*beta != 0)
          sum += *beta * result.load(batch, i, j);
        if (bias)
          sum += result.read(bias + i * result.bytes());
        result.store(sum, batch, i, j);
      }
  return 0;
}
