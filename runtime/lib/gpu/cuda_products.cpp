//===- cuda_products.cpp - Products of matrices by cuBLASLt ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuBLASLt's matrices have adjacent elements in columns. One whose rows are
// adjacent is the transpose of such a matrix, and
//
//   result = left right    is    result^T = right^T left^T
//
//===----------------------------------------------------------------------===//

#include "cuda_products.h"
#include "cuda_driver.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <type_traits>

using namespace fovea::rt::cuda;

namespace {
/// Numbers of library_types.h, cublas_api.h and cublasLt.h.
enum {
  TypeF32 = 0,
  TypeF16 = 2,
  TypeBF16 = 14,
  ComputeF32 = 68,
  ComputeTF32 = 77,
  AllocFailed = 3,
  NotSupported = 15
};
enum DescriptionAttribute {
  TransposeA = 3,
  TransposeB = 4,
  Epilogue = 7,
  BiasPointer = 8
};
enum LayoutAttribute { BatchCount = 5, BatchStride = 6 };
enum PreferenceAttribute {
  MaxWorkspace = 1,
  ReductionSchemes = 3,
  AlignmentA = 5,
  AlignmentB = 6,
  AlignmentC = 7,
  AlignmentD = 8
};
enum : int32_t { EpilogueDefault = 1, EpilogueBias = 4 };
/// CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: parts of sums are in f32.
constexpr uint32_t kReduceInF32 = 2;
/// What NVIDIA recommends for Hopper.
constexpr uint64_t kMaxWorkBytes = uint64_t(32) << 20;

/// cublasLtMatmulHeuristicResult_t.
struct Suggestion {
  ProductAlgorithm algorithm;
  size_t workBytes;
  int state;
  float waves;
  int reserved[4];
};
} // namespace

/// X(member, symbol, parameters)
#define FOVEA_CUBLASLT(X)                                                      \
  X(create, cublasLtCreate, (void **))                                         \
  X(createDescription, cublasLtMatmulDescCreate, (void **, int, int))          \
  X(destroyDescription, cublasLtMatmulDescDestroy, (void *))                   \
  X(setDescription, cublasLtMatmulDescSetAttribute,                            \
    (void *, int, const void *, size_t))                                       \
  X(createLayout, cublasLtMatrixLayoutCreate,                                  \
    (void **, int, uint64_t, uint64_t, int64_t))                               \
  X(destroyLayout, cublasLtMatrixLayoutDestroy, (void *))                      \
  X(setLayout, cublasLtMatrixLayoutSetAttribute,                               \
    (void *, int, const void *, size_t))                                       \
  X(createPreference, cublasLtMatmulPreferenceCreate, (void **))               \
  X(destroyPreference, cublasLtMatmulPreferenceDestroy, (void *))              \
  X(setPreference, cublasLtMatmulPreferenceSetAttribute,                       \
    (void *, int, const void *, size_t))                                       \
  X(suggest, cublasLtMatmulAlgoGetHeuristic,                                   \
    (void *, void *, void *, void *, void *, void *, void *, int,              \
     Suggestion *, int *))                                                     \
  X(multiply, cublasLtMatmul,                                                  \
    (void *, void *, const void *, const void *, void *, const void *, void *, \
     const void *, const void *, void *, void *, void *,                       \
     const ProductAlgorithm *, void *, size_t, Stream))

struct fovea::rt::cuda::ProductApi {
#define FOVEA_MEMBER(member, symbol, params) int(*member) params;
  FOVEA_CUBLASLT(FOVEA_MEMBER)
#undef FOVEA_MEMBER
};

//===----------------------------------------------------------------------===//
// The library
//===----------------------------------------------------------------------===//

static const char *getName(int result) {
  switch (result) {
  case 1:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case AllocFailed:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case 7:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case 8:
    return "CUBLAS_STATUS_ARCH_MISMATCH";
  case 11:
    return "CUBLAS_STATUS_MAPPING_ERROR";
  case 13:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case 14:
    return "CUBLAS_STATUS_INTERNAL_ERROR";
  case NotSupported:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  default:
    return "an unknown error";
  }
}

static void *openLibrary(const char **name) {
  *name = getenv("FOVEA_LIBCUBLASLT");
  if (*name && **name)
    return dlopen(*name, RTLD_NOW | RTLD_LOCAL);
  for (const char *each : {"libcublasLt.so.13", "libcublasLt.so.12",
                           "libcublasLt.so.11", "libcublasLt.so"}) {
    *name = each;
    if (void *library = dlopen(each, RTLD_NOW | RTLD_LOCAL))
      return library;
  }
  return nullptr;
}

/// The library, found by its name at the first need; null with a sentence in
/// `text` without one. A failure is tried again the next time.
static const ProductApi *getProductApi(char *text) {
  static std::mutex lock;
  static ProductApi api;
  static bool ready = false;
  std::lock_guard<std::mutex> guard(lock);
  if (ready)
    return &api;
  const char *name;
  // Never closed: handles outlive our use.
  void *library = openLibrary(&name);
  if (!library) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "products of matrices on a GPU need cuBLASLt, which is not on "
             "this machine, unless they are compiled with "
             "FOVEA_GPU_PRODUCTS=loops: %s",
             dlerror());
    return nullptr;
  }
  auto bind = [&](auto &member, const char *symbol) {
    using Function = std::remove_reference_t<decltype(member)>;
    member = reinterpret_cast<Function>(dlsym(library, symbol));
    if (!member)
      snprintf(text, FOVEA_RT_GPU_TEXT, "%s is no cuBLASLt: it has no %s", name,
               symbol);
    return member != nullptr;
  };
#define FOVEA_BIND(member, symbol, params) &&bind(api.member, #symbol)
  ready = true FOVEA_CUBLASLT(FOVEA_BIND);
#undef FOVEA_BIND
  if (ready)
    return &api;
  dlclose(library);
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// A matrix as the library sees it: columns of adjacent elements.
namespace {
struct ColumnMatrix {
  void *data;
  int64_t rows, columns, pitch, batchStride;
  bool isTransposed;
};
} // namespace

/// The matrix of `rows` rows and `columns` columns, or its transpose.
static ColumnMatrix toColumns(const fovea_rt_gpu_matrix &matrix, int64_t rows,
                              int64_t columns) {
  auto isAdjacent = [](int64_t extent, int64_t stride) {
    return extent == 1 || stride == 1;
  };
  bool inRows = isAdjacent(columns, matrix.column_stride) &&
                (rows == 1 || matrix.row_stride >= columns);
  if (!inRows)
    return {matrix.data,
            rows,
            columns,
            std::max(matrix.column_stride, rows),
            matrix.batch_stride,
            false};
  return {matrix.data,
          columns,
          rows,
          rows == 1 ? columns : matrix.row_stride,
          matrix.batch_stride,
          true};
}

static int getType(int32_t type) {
  return type == FOVEA_RT_GPU_F32   ? TypeF32
         : type == FOVEA_RT_GPU_F16 ? TypeF16
                                    : TypeBF16;
}

/// The largest power of two, up to 256 bytes, at which all columns begin.
static uint32_t getAlignment(const ColumnMatrix &matrix, int64_t batch,
                             int64_t bytes) {
  uint64_t bits = reinterpret_cast<uint64_t>(matrix.data) | 256 |
                  (matrix.columns > 1 ? uint64_t(matrix.pitch) * bytes : 0) |
                  (batch > 1 ? uint64_t(matrix.batchStride) * bytes : 0);
  return static_cast<uint32_t>(bits & -bits);
}

/// A product in the library's words, and the objects that describe it.
struct Products::Call {
  Call(const ProductApi &api, const fovea_rt_gpu_product &product);
  ~Call();
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  /// Describes the product; the library's result.
  int describe();
  int prefer(void *preference) const;

  const ProductApi &api;
  const fovea_rt_gpu_product &product;
  /// result = a b, all of them as the library sees them.
  ColumnMatrix a, b, result;
  Key key;
  void *description = nullptr;
  void *layouts[3] = {};
};

Products::Call::Call(const ProductApi &api, const fovea_rt_gpu_product &product)
    : api(api), product(product),
      a(toColumns(product.right, product.depth, product.columns)),
      b(toColumns(product.left, product.rows, product.depth)),
      result(toColumns(product.result, product.rows, product.columns)) {
  // result^T = right^T left^T, where a transpose is what rows look like.
  bool isPlain = !result.isTransposed;
  if (isPlain)
    std::swap(a, b);
  else
    for (ColumnMatrix *factor : {&a, &b})
      factor->isTransposed = !factor->isTransposed;
  result.isTransposed = false;
  int64_t *number = key.numbers;
  auto add = [&](int64_t value) { *number++ = value; };
  for (int64_t value : {int64_t(product.factor_type),
                        int64_t(product.result_type), int64_t(product.flags),
                        product.batch, int64_t(product.bias != nullptr)})
    add(value);
  int64_t factorBytes = product.factor_type == FOVEA_RT_GPU_F32 ? 4 : 2;
  int64_t resultBytes = product.result_type == FOVEA_RT_GPU_F32 ? 4 : 2;
  for (const ColumnMatrix *matrix : {&a, &b, &result}) {
    add(matrix->rows * 2 + matrix->isTransposed);
    add(matrix->columns);
    add(matrix->pitch);
    add(product.batch > 1 ? matrix->batchStride : 0);
    add(getAlignment(*matrix, product.batch,
                     matrix == &result ? resultBytes : factorBytes));
  }
  std::fill(number, std::end(key.numbers), 0);
}

Products::Call::~Call() {
  if (description)
    api.destroyDescription(description);
  for (void *layout : layouts)
    if (layout)
      api.destroyLayout(layout);
}

int Products::Call::describe() {
  bool isTF32 = product.factor_type == FOVEA_RT_GPU_F32 &&
                (product.flags & FOVEA_RT_GPU_TF32);
  if (int failed = api.createDescription(
          &description, isTF32 ? ComputeTF32 : ComputeF32, TypeF32))
    return failed;
  auto set = [&](int attribute, auto value) {
    return api.setDescription(description, attribute, &value, sizeof(value));
  };
  int failed = set(TransposeA, int32_t(a.isTransposed));
  if (!failed)
    failed = set(TransposeB, int32_t(b.isTransposed));
  if (!failed)
    failed =
        set(Epilogue, int32_t(product.bias ? EpilogueBias : EpilogueDefault));
  if (!failed && product.bias)
    failed = set(BiasPointer, product.bias);
  const ColumnMatrix *matrices[] = {&a, &b, &result};
  for (int i = 0; !failed && i < 3; ++i) {
    const ColumnMatrix &matrix = *matrices[i];
    failed = api.createLayout(
        &layouts[i], getType(i < 2 ? product.factor_type : product.result_type),
        uint64_t(matrix.rows), uint64_t(matrix.columns), matrix.pitch);
    if (failed || product.batch == 1)
      continue;
    auto count = static_cast<int32_t>(product.batch);
    failed = api.setLayout(layouts[i], BatchCount, &count, sizeof(count));
    if (!failed)
      failed = api.setLayout(layouts[i], BatchStride, &matrix.batchStride,
                             sizeof(matrix.batchStride));
  }
  return failed;
}

int Products::Call::prefer(void *preference) const {
  auto set = [&](int attribute, auto value) {
    return api.setPreference(preference, attribute, &value, sizeof(value));
  };
  constexpr int alignmentOfA = 9, numbersOfMatrix = 5;
  int failed = set(MaxWorkspace, kMaxWorkBytes);
  // Parts of sums are never rounded to a narrow result.
  if (!failed)
    failed = set(ReductionSchemes, kReduceInF32);
  const int attributes[] = {AlignmentA, AlignmentB, AlignmentC};
  for (int i = 0; !failed && i < 3; ++i)
    failed = set(attributes[i],
                 uint32_t(key.numbers[alignmentOfA + numbersOfMatrix * i]));
  if (!failed)
    failed = set(AlignmentD,
                 uint32_t(key.numbers[alignmentOfA + numbersOfMatrix * 2]));
  return failed;
}

bool Products::Key::operator==(const Key &other) const {
  return std::equal(std::begin(numbers), std::end(numbers), other.numbers);
}

static fovea_rt_status report(const char *what,
                              const fovea_rt_gpu_product &product, int result,
                              char *text) {
  snprintf(text, FOVEA_RT_GPU_TEXT,
           "cuBLASLt cannot %s %" PRId64 " products of %" PRId64 " x %" PRId64
           " by %" PRId64 " x %" PRId64 " numbers: %s",
           what, product.batch, product.rows, product.depth, product.depth,
           product.columns, getName(result));
  return result == AllocFailed ? FOVEA_RT_OUT_OF_MEMORY : FOVEA_RT_DEVICE;
}

fovea_rt_status Products::choose(const ProductApi &api, const Call &call,
                                 bool mayChoose, Choice &found, char *text) {
  std::lock_guard<std::mutex> guard(lock);
  for (const Choice &choice : choices)
    if (choice.isSet && choice.key == call.key) {
      found = choice;
      return FOVEA_RT_OK;
    }
  const fovea_rt_gpu_product &product = call.product;
  if (!mayChoose) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "%" PRId64 " products of %" PRId64 " x %" PRId64 " by %" PRId64
             " x %" PRId64 " numbers have no algorithm yet, which a CUDA "
             "graph that is being captured cannot choose: call the function "
             "once before, with arrays of the same shapes",
             product.batch, product.rows, product.depth, product.depth,
             product.columns);
    return FOVEA_RT_INVALID_ARGUMENT;
  }
  if (!handle)
    if (int failed = api.create(&handle))
      return report("start for", product, failed, text);
  void *preference = nullptr;
  Suggestion suggestion = {};
  int count = 0;
  int failed = api.createPreference(&preference);
  if (!failed)
    failed = call.prefer(preference);
  if (!failed)
    failed = api.suggest(handle, call.description, call.layouts[0],
                         call.layouts[1], call.layouts[2], call.layouts[2],
                         preference, 1, &suggestion, &count);
  if (preference)
    api.destroyPreference(preference);
  if (!failed && (count < 1 || suggestion.state))
    failed = count < 1 ? int(NotSupported) : suggestion.state;
  if (failed)
    return report("plan", product, failed, text);
  found.isSet = true;
  found.key = call.key;
  found.algorithm = suggestion.algorithm;
  found.workBytes = suggestion.workBytes;
  choices[next] = found;
  next = (next + 1) % static_cast<int>(std::size(choices));
  return FOVEA_RT_OK;
}

fovea_rt_status Products::run(void *device, const fovea_rt_gpu_product &product,
                              Stream stream, bool mayChoose, char *text) {
  const ProductApi *api = getProductApi(text);
  if (!api)
    return FOVEA_RT_UNAVAILABLE;
  Call call(*api, product);
  if (int failed = call.describe())
    return report("describe", product, failed, text);
  Choice choice;
  if (fovea_rt_status status = choose(*api, call, mayChoose, choice, text))
    return status;
  void *area = nullptr;
  if (choice.workBytes)
    if (fovea_rt_status status =
            cudaDriver.allocate(device, static_cast<int64_t>(choice.workBytes),
                                stream, &area, text))
      return status;
  float one = 1, old = product.flags & FOVEA_RT_GPU_ADD ? 1 : 0;
  int result = api->multiply(handle, call.description, &one, call.a.data,
                             call.layouts[0], call.b.data, call.layouts[1],
                             &old, call.result.data, call.layouts[2],
                             call.result.data, call.layouts[2],
                             &choice.algorithm, area, choice.workBytes, stream);
  fovea_rt_status status = FOVEA_RT_OK;
  if (area)
    status = cudaDriver.release(device, area, stream, text);
  return result ? report("run", product, result, text) : status;
}
