//===- XLAInterface.h - Calls from XLA --------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The binary interface through which XLA calls functions of others, its typed
// FFI of version 0.1 and newer, as far as it is needed here. It is stable, so
// that no header of XLA is needed to build the package and one build serves all
// versions of JAX.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_PYTHON_SRC_XLAINTERFACE_H
#define FOVEA_PYTHON_SRC_XLAINTERFACE_H

#include <cstddef>
#include <cstdint>

namespace fovea::python::xla {

constexpr int kMajorVersion = 0, kMinorVersion = 1;

/// What all structures begin with: their size, by which older and newer ones
/// are told apart, and a list of extensions.
struct Extension;
struct Header {
  size_t size;
  Extension *extensions;
};
struct Extension {
  size_t size;
  int32_t kind;
  Extension *next;
};

enum class DataType : int32_t {
  Pred = 1,
  S8 = 2,
  S16 = 3,
  S32 = 4,
  S64 = 5,
  U8 = 6,
  U16 = 7,
  U32 = 8,
  U64 = 9,
  F16 = 10,
  F32 = 11,
  F64 = 12,
  BF16 = 16
};

struct Buffer {
  Header header;
  DataType type;
  void *data;
  int64_t rank;
  int64_t *extents;
};

/// An attribute that is text, and the name of any.
struct Text {
  const char *data;
  size_t size;
};
/// An attribute that is a list of numbers.
struct Numbers {
  DataType type;
  size_t size;
  void *data;
};
enum class AttributeKind : int32_t {
  Numbers = 1,
  Map = 2,
  Number = 3,
  Text = 4
};

/// Arguments or results.
struct Buffers {
  Header header;
  int64_t count;
  int32_t *kinds; // 1, a buffer, for all
  void **values;
};
struct Attributes {
  Header header;
  int64_t count;
  AttributeKind *kinds;
  Text **names;
  void **values;
};

struct Error;
enum class ErrorCode : int32_t {
  Cancelled = 1,
  InvalidArgument = 3,
  ResourceExhausted = 8,
  FailedPrecondition = 9,
  Internal = 13
};
struct ErrorArguments {
  Header header;
  const char *message;
  ErrorCode code;
};

struct Context;
struct StreamArguments {
  Header header;
  Context *context;
  void *stream; // the answer
};

struct Version {
  Header header;
  int32_t major, minor;
};

/// The functions that XLA lends.
struct Interface {
  Header header;
  Version version;
  const void *internal;
  Error *(*createError)(ErrorArguments *);
  void *getMessage, *destroyError, *registerHandler;
  Error *(*getStream)(StreamArguments *);
  // More follow, which are not needed.
};

enum class Stage : int32_t { Instantiate, Prepare, Initialize, Execute };

struct Frame {
  Header header;
  const Interface *interface;
  Context *context;
  Stage stage;
  Buffers arguments, results;
  Attributes attributes;
};

/// By this extension of a frame XLA asks what a handler is.
constexpr int32_t kMetadata = 1;
struct Metadata {
  size_t size;
  Version version;
  uint32_t traits;
  int64_t stateType; // since version 0.2
};
struct MetadataExtension {
  Extension base;
  Metadata *metadata;
};

using Handler = Error *(Frame *);

} // namespace fovea::python::xla

#endif // FOVEA_PYTHON_SRC_XLAINTERFACE_H
