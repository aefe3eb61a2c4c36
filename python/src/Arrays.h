//===- Arrays.h - Arrays of Python and of kernels ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_PYTHON_SRC_ARRAYS_H
#define FOVEA_PYTHON_SRC_ARRAYS_H

#include "Exchange.h"

namespace fovea::python {

/// A failure of the compiler or of a running kernel: fovea.FoveaError.
struct FoveaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where the arrays of a call lie: on the host and, for kernels of a GPU, on
/// one device.
struct Placement {
  bool allowsGPU = false;
  /// Results are tensors of the class that the arguments have, gradients are up
  /// to the caller, and who reads the results does so on the framework's
  /// stream.
  bool givesTensors = false;
  /// What that class lends, once there was an argument.
  Exchange exchange;
  /// Whether the first array lies on a GPU.
  std::optional<bool> startsOnGPU;
  /// The device of the arrays so far that lie on one.
  std::optional<int> device;
  /// The CUDA stream that has to see the arrays finished. 1, the default one of
  /// DLPack and CUDA, is "legacy".
  intptr_t stream = 1;
  /// Whether the call is of a cache, which is memory of `device` if that is
  /// set, else of the CPU.
  bool isOfCache = false;
};

/// Memory of a caller from outside of Python, as an object of it.
struct ForeignArray {
  void *data;
  ElementType elementType;
  llvm::SmallVector<int64_t, 4> shape;
  bool isReadOnly;
  /// The GPU whose memory it is.
  std::optional<int> device;
};

/// What errors call the class of an object.
std::string getTypeName(nanobind::handle object);

/// Sets the class of arrays whose values are not known.
void setAbstractArray(nanobind::handle type);
bool isAbstractArray(nanobind::handle object);
/// The result `index` of `call`.
nanobind::object makeAbstractArray(ElementType type,
                                   llvm::ArrayRef<int64_t> shape,
                                   nanobind::handle call, size_t index);

/// An array of Python, described without copying, and kept alive.
class ArrayView {
public:
  ArrayView() = default;
  ArrayView(const ArrayView &) = delete;
  ArrayView &operator=(const ArrayView &) = delete;
  /// Needs the GIL.
  ~ArrayView();

  /// Reads `object`, which exports the buffer protocol or DLPack. `needsWrite`
  /// asks for writable memory, but does not insist. Raises ValueError that
  /// starts with `name`.
  void load(nanobind::handle object, llvm::StringRef name, bool needsWrite,
            Placement &placement);

  ElementType getElementType() const { return elementType; }
  llvm::ArrayRef<int64_t> getShape() const { return shape; }
  bool isOnGPU() const { return onGPU; }

  /// True when a kernel can read the memory as it is: elements in row-major
  /// order, of this machine's byte order, aligned to their size.
  bool isKernelLayout() const;

  /// Whether elements of each row lie one after the other.
  bool hasContiguousRows() const;

  /// Copies the elements into memory of kernel layout. May run without the GIL.
  /// Returns false when there is no memory for it.
  bool copyToKernelLayout();

  /// Makes the layout that of a kernel. Raises what starts with `name` for an
  /// array that cannot be copied, or must not since it is written to.
  void makeContiguous(llvm::StringRef name, bool needsWrite);
  /// The same, but leaves what strides can describe as it is.
  void makeStrided(llvm::StringRef name, bool needsWrite);

  /// What to pass on, once the layout is right.
  TensorRef getRef() const;

private:
  /// Reads through the buffer protocol; false when `object` has none that
  /// describes its elements.
  bool loadBuffer(nanobind::handle object, llvm::StringRef name);
  void loadAbstract(nanobind::handle object, llvm::StringRef name);
  void loadForeign(const ForeignArray &array, llvm::StringRef name,
                   Placement &placement);
  /// Strides of elements in row-major order.
  void setDenseStrides();
  bool loadDLPack(nanobind::handle object, llvm::StringRef name,
                  bool needsWrite, Placement &placement);
  /// Without calls of Python; false where the class of `object` does not lend
  /// that, or has to be asked to wait for its GPU.
  bool loadExchange(nanobind::handle object, llvm::StringRef name,
                    bool needsWrite, Placement &placement);
  void checkPlace(llvm::StringRef name, nanobind::dlpack::device place,
                  Placement &placement);
  /// Takes elements, shape and strides over.
  void describe(llvm::StringRef name,
                const nanobind::dlpack::dltensor &described);

  char *data = nullptr;
  ElementType elementType = ElementType::F32;
  llvm::SmallVector<int64_t, 4> shape, byteStrides;
  /// In elements, where these do not lie one after the other.
  llvm::SmallVector<int64_t, 4> strides;
  bool isReadOnly = false, isSwapped = false, onGPU = false;

  Py_buffer buffer = {};
  bool hasBuffer = false;
  nanobind::ndarray<nanobind::ro> tensor;
  /// Of what was only lent, such as the result of a function of Python.
  nanobind::object owner;
  std::unique_ptr<char, void (*)(void *)> copy{nullptr, [](void *) {}};
};

/// Whether DLPack says that memory of this type belongs to a GPU.
bool isGPU(int deviceType);

nanobind::dlpack::dtype getDLPackType(ElementType type);

/// Adds the classes of what owns the memory of results, and of foreign arrays.
void defineMemory(nanobind::module_ &m);

/// A NumPy array that owns the memory of `tensor`, or an object with DLPack
/// that does where the memory is that of the GPU `device`.
nanobind::object toArray(OwnedTensor tensor, std::optional<int> device);

/// The value of a result without dimensions that is no tensor.
nanobind::object toScalar(const OwnedTensor &tensor);

/// Whether it is a truth value of NumPy, which is no number for Python.
bool isNumPyBool(nanobind::handle object);

/// Writes `object`, a Python number, to the eight bytes at `to` as the kernel
/// reads it. Raises ValueError that starts with `name`.
void storeScalar(nanobind::handle object, llvm::StringRef name,
                 ElementType type, char *to);

/// ml_dtypes.bfloat16 as a NumPy dtype; raises ImportError without ml_dtypes.
nanobind::handle getBFloat16Type();

} // namespace fovea::python

#endif // FOVEA_PYTHON_SRC_ARRAYS_H
