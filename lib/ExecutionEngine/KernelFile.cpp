//===- KernelFile.cpp - Kernels as bytes ----------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelFile.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"
#include <cstring>

using namespace llvm;
using namespace fovea;
using fovea::detail::KernelFileHeader;

static constexpr char kMagic[] = "fovea-k";
static_assert(sizeof(kMagic) == sizeof(KernelFileHeader::magic));

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

namespace {
struct Writer {
  std::string bytes;

  void move(const void *from, size_t size) {
    bytes.append(static_cast<const char *>(from), size);
  }
  template <typename T> bool resize(const T &value) {
    uint64_t size = value.size();
    move(&size, sizeof(size));
    return true;
  }
  template <typename T> bool setPresent(const std::optional<T> &value) {
    bool isPresent = value.has_value();
    move(&isPresent, sizeof(isPresent));
    return isPresent;
  }
};

/// Reads zeros from the first value on that is not there.
struct Reader {
  StringRef rest;
  bool hasFailed = false;

  void move(void *to, size_t size) {
    hasFailed |= size > rest.size();
    if (hasFailed) {
      std::memset(to, 0, size);
      return;
    }
    std::memcpy(to, rest.data(), size);
    rest = rest.drop_front(size);
  }
  template <typename T> bool resize(T &value) {
    uint64_t size;
    move(&size, sizeof(size));
    // Every element takes a byte at least.
    hasFailed |= size > rest.size();
    if (!hasFailed)
      value.resize(size);
    return !hasFailed;
  }
  template <typename T> bool setPresent(std::optional<T> &value) {
    bool isPresent;
    move(&isPresent, sizeof(isPresent));
    if (isPresent)
      value.emplace();
    return isPresent;
  }
};
} // namespace

/// Moves values between memory and bytes, in the direction of the archive.
template <typename Archive, typename... Ts>
static void transfer(Archive &archive, Ts &...values);

template <typename Archive, typename T>
static std::enable_if_t<std::is_arithmetic_v<T> || std::is_enum_v<T>>
transferValue(Archive &archive, T &value) {
  archive.move(&value, sizeof(value));
}

template <typename Archive, typename T>
static auto transferValue(Archive &archive, T &values)
    -> decltype(values.data(), void()) {
  if (!archive.resize(values))
    return;
  if constexpr (std::is_arithmetic_v<typename T::value_type>)
    archive.move(values.data(), values.size() * sizeof(*values.data()));
  else
    for (auto &value : values)
      transfer(archive, value);
}

template <typename Archive, typename T>
static auto transferValue(Archive &archive, T &value)
    -> decltype(value.has_value(), void()) {
  if (archive.setPresent(value))
    transfer(archive, *value);
}

//===----------------------------------------------------------------------===//
// Structures
//===----------------------------------------------------------------------===//

/// True for `T` and `const T`.
template <typename T, typename Expected>
constexpr bool isSame = std::is_same_v<std::remove_const_t<T>, Expected>;

template <typename Archive, typename T>
static std::enable_if_t<isSame<T, VJPOptions>> transferValue(Archive &archive,
                                                             T &options) {
  transfer(archive, options.arguments, options.primalResults);
}

template <typename Archive, typename T>
static std::enable_if_t<isSame<T, CompileOptions>>
transferValue(Archive &archive, T &options) {
  transfer(archive, options.target, options.cpu, options.chip, options.f32,
           options.raise, options.entry, options.optLevel, options.vjps,
           options.sourceName);
}

template <typename Archive, typename T>
static std::enable_if_t<isSame<T, ValueSpec>> transferValue(Archive &archive,
                                                            T &spec) {
  transfer(archive, spec.name, spec.elementType, spec.isScalar, spec.isWritten,
           spec.shape, spec.strides);
}

template <typename Archive, typename T>
static std::enable_if_t<isSame<T, fovea::detail::ShapeConstraint>>
transferValue(Archive &archive, T &constraint) {
  transfer(archive, constraint.kind, constraint.argument, constraint.dim,
           constraint.otherArgument, constraint.otherDim, constraint.constant,
           constraint.isReversed, constraint.op);
}

template <typename Archive, typename T>
static std::enable_if_t<isSame<T, fovea::detail::SeparateArguments>>
transferValue(Archive &archive, T &pair) {
  transfer(archive, pair.written, pair.other, pair.op);
}

template <typename Archive, typename T>
static std::enable_if_t<isSame<T, Kernel::Impl>> transferValue(Archive &archive,
                                                               T &impl) {
  transfer(archive, impl.name, impl.cpu, impl.diagnostics, impl.text,
           impl.signature.arguments, impl.signature.results, impl.constraints,
           impl.separateArguments, impl.resultBytes, impl.resultOffsets);
}

template <typename Archive, typename... Ts>
static void transfer(Archive &archive, Ts &...values) {
  (transferValue(archive, values), ...);
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

std::string fovea::detail::serialize(const CompileOptions &options) {
  Writer writer;
  transfer(writer, options);
  return std::move(writer.bytes);
}

std::string fovea::detail::writeKernelFile(StringRef key,
                                           const Kernel::Impl &impl,
                                           StringRef object) {
  Writer writer;
  transfer(writer, key, impl, object);
  KernelFileHeader header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.checksum = xxh3_64bits(writer.bytes);
  header.bytes = writer.bytes.size();
  writer.bytes.insert(0, reinterpret_cast<const char *>(&header),
                      sizeof(header));
  return std::move(writer.bytes);
}

std::unique_ptr<MemoryBuffer>
fovea::detail::readKernelFile(StringRef file, StringRef key,
                              Kernel::Impl &impl) {
  Reader reader{file};
  KernelFileHeader header;
  reader.move(&header, sizeof(header));
  if (reader.hasFailed || std::memcmp(header.magic, kMagic, sizeof(kMagic)) ||
      header.bytes != reader.rest.size() ||
      header.checksum != xxh3_64bits(reader.rest))
    return nullptr;
  std::string foundKey, object;
  transfer(reader, foundKey);
  // Another key with the same hash, or a file with a name that is not its own.
  if (foundKey != key)
    return nullptr;
  transfer(reader, impl, object);
  if (reader.hasFailed || !reader.rest.empty())
    return nullptr;
  return MemoryBuffer::getMemBufferCopy(object);
}
