//===- Kernel.h - Compiled functions ----------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kernel is one function compiled to machine code. It takes tensors in the
// host's memory and returns tensors that own theirs.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_KERNEL_H
#define FOVEA_EXECUTIONENGINE_KERNEL_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

namespace fovea {

/// Types of tensor elements and scalars. `Index` is a 64-bit integer.
enum class ElementType { F16, BF16, F32, F64, I1, I8, I16, I32, I64, Index };

/// Bytes of one element in memory; an `I1` takes a whole byte.
unsigned getByteWidth(ElementType type);

/// The name in IR, such as "bf16".
llvm::StringRef getName(ElementType type);

/// An extent that differs from call to call.
constexpr int64_t kDynamicExtent = std::numeric_limits<int64_t>::min();

/// What a kernel expects of an argument or promises of a result.
struct ValueSpec {
  /// The name in the source, such as "%q"; empty for results.
  std::string name;
  ElementType elementType = ElementType::F32;
  bool isScalar = false;
  /// True for an argument whose memory the kernel may write to.
  bool isWritten = false;
  /// Extents, `kDynamicExtent` for those known only at run time.
  llvm::SmallVector<int64_t, 4> shape;
  /// Empty for a tensor that is contiguous in row-major order; otherwise in
  /// elements, `kDynamicExtent` for those known only at run time. The last one
  /// is 1.
  llvm::SmallVector<int64_t, 4> strides;

  /// The type as IR writes it, such as "tensor<1x?x64xf32>" or, with strides,
  /// "memref<1x?x64xf32, strided<[?, ?, 1]>>".
  std::string getTypeString() const;
};

struct Signature {
  llvm::SmallVector<ValueSpec, 4> arguments;
  llvm::SmallVector<ValueSpec, 2> results;

  /// The type as IR writes it.
  std::string getString() const;
};

/// A tensor in the caller's memory, or, with rank 0, a scalar.
struct TensorRef {
  void *data = nullptr;
  ElementType elementType = ElementType::F32;
  llvm::ArrayRef<int64_t> shape = {};
  /// In elements; empty when the tensor is contiguous in row-major order.
  llvm::ArrayRef<int64_t> strides = {};
  /// True when `data` must not be written to.
  bool isReadOnly = false;
};

/// Whether two tensors share a byte. Where finding out would take too long,
/// which arrays that lie in one another at odd strides may need, they do.
bool overlap(const TensorRef &left, const TensorRef &right);
/// Whether two elements of a tensor may lie at one address.
bool sharesElements(const TensorRef &tensor);

/// The strides of a tensor, in elements, also of a contiguous one.
llvm::SmallVector<int64_t, 4> getStrides(const TensorRef &tensor);

/// A tensor that owns its memory, where it is contiguous, or a view.
class OwnedTensor {
public:
  using Deleter = void (*)(void *);

  OwnedTensor() = default;
  /// Takes over `base`, to be released by `deleter`; `data` lies inside it.
  OwnedTensor(void *base, Deleter deleter, void *data, ElementType elementType,
              llvm::ArrayRef<int64_t> shape,
              llvm::ArrayRef<int64_t> strides = {})
      : base(base, deleter), elements(data), elementType(elementType),
        shape(shape), strides(strides) {}

  void *getData() const { return elements; }
  template <typename T> T *getDataAs() const {
    return static_cast<T *>(elements);
  }
  ElementType getElementType() const { return elementType; }
  llvm::ArrayRef<int64_t> getShape() const { return shape; }
  /// In elements; empty unless this is a view of what has gaps or another
  /// order.
  llvm::ArrayRef<int64_t> getStrides() const { return strides; }
  int64_t getNumElements() const;
  int64_t getNumBytes() const {
    return getNumElements() * getByteWidth(elementType);
  }
  /// A view, valid as long as this object.
  TensorRef getRef() const {
    return {elements, elementType, shape, strides, false};
  }

  /// Gives up the memory: the caller calls the deleter on `base` when done.
  struct Released {
    void *base;
    Deleter deleter;
  };
  Released release();

private:
  std::unique_ptr<void, Deleter> base{nullptr, [](void *) {}};
  void *elements = nullptr;
  ElementType elementType = ElementType::F32;
  llvm::SmallVector<int64_t, 4> shape, strides;
};

/// A zeroed tensor; fails when memory is short. Large ones lie in huge pages
/// where there are any, like those of kernels and of NumPy.
llvm::Expected<OwnedTensor> allocateTensor(ElementType type,
                                           llvm::ArrayRef<int64_t> shape);

/// Seconds spent in the steps of a compilation.
struct CompileTimes {
  double parse = 0, passes = 0, translate = 0, optimize = 0, codegen = 0,
         link = 0;
  double getTotal() const {
    return parse + passes + translate + optimize + codegen + link;
  }
};

enum class Target;

/// A handle to a compiled function; copies share the code. All functions may be
/// called from several threads at once.
class Kernel {
public:
  Kernel() = default;
  explicit operator bool() const { return impl != nullptr; }

  /// Name of the entry function, without '@'.
  llvm::StringRef getName() const;
  const Signature &getSignature() const;
  Target getTarget() const;
  /// The CPU that the code was generated for, as LLVM names it.
  llvm::StringRef getCPU() const;
  const CompileTimes &getCompileTimes() const;
  /// Warnings and remarks of the compilation, empty if there were none.
  llvm::StringRef getDiagnostics() const;

  /// "argument 1 (%k) of @main", as errors name it.
  std::string describeArgument(size_t index) const;

  /// Checks `inputs` against the signature without running anything.
  llvm::Error checkInputs(llvm::ArrayRef<TensorRef> inputs) const;

  /// Runs the kernel. `results` is replaced on success and untouched on
  /// failure. Number, types, ranks, extents, strides, alignment and
  /// writability of the inputs are checked first, and that a gradient gets
  /// memory of its own; the error names the argument, what was found and what
  /// is needed.
  llvm::Error invoke(llvm::ArrayRef<TensorRef> inputs,
                     llvm::SmallVectorImpl<OwnedTensor> &results) const;

  /// Used by the compiler.
  struct Impl;
  explicit Kernel(std::shared_ptr<const Impl> impl) : impl(std::move(impl)) {}
  const Impl &getImpl() const { return *impl; }

private:
  std::shared_ptr<const Impl> impl;
};

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_KERNEL_H
