//===- ArrayFile.cpp - Arrays in files ------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ArrayFile.h"
#include "Memory.h"
#include "fovea/Support/OutputFile.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static constexpr StringLiteral kMetadata = "__metadata__", kFormat = "format",
                               kChecksum = "checksum";
static constexpr size_t kSizeBytes = sizeof(uint64_t), kChecksumBytes = 16;

/// What stands in the place of the checksum while that is computed.
static std::string getNoChecksum() {
  return std::string(2 * kChecksumBytes, '0');
}

static StringRef getTypeName(ElementType type) {
  switch (type) {
  case ElementType::F16:
    return "F16";
  case ElementType::BF16:
    return "BF16";
  case ElementType::F32:
    return "F32";
  case ElementType::F64:
    return "F64";
  case ElementType::I1:
    return "BOOL";
  case ElementType::I8:
    return "I8";
  case ElementType::I16:
    return "I16";
  case ElementType::I32:
    return "I32";
  case ElementType::I64:
  case ElementType::Index:
    return "I64";
  }
  llvm_unreachable("unknown element type");
}

static std::optional<ElementType> findType(StringRef name) {
  for (ElementType type :
       {ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64,
        ElementType::I1, ElementType::I8, ElementType::I16, ElementType::I32,
        ElementType::I64})
    if (getTypeName(type) == name)
      return type;
  return std::nullopt;
}

static Error makeFileError(StringRef path, const Twine &found,
                           const Twine &needed) {
  return createStringError(std::make_error_code(std::errc::invalid_argument),
                           "path: found '" + path + "', " + found +
                               ", needed " + needed);
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static uint64_t getNumBytes(const TensorRef &array) {
  uint64_t bytes = getByteWidth(array.elementType);
  for (int64_t extent : array.shape)
    bytes *= extent;
  return bytes;
}

static std::string getHeader(StringRef kind, const FileNumbers &numbers,
                             ArrayRef<NamedArray> arrays, StringRef checksum) {
  json::Object metadata{{kFormat.str(), kind}, {kChecksum.str(), checksum}};
  for (const auto &[name, number] : numbers)
    metadata[name] = std::to_string(number);
  json::Object header{{kMetadata.str(), std::move(metadata)}};
  uint64_t begin = 0;
  for (const auto &[name, array] : arrays) {
    uint64_t end = begin + getNumBytes(array);
    header[name] = json::Object{{"dtype", getTypeName(array.elementType)},
                                {"shape", json::Array(array.shape)},
                                {"data_offsets", json::Array{begin, end}}};
    begin = end;
  }
  std::string text;
  raw_string_ostream(text) << json::Value(std::move(header));
  // Elements begin at a multiple of what any type asks for.
  text.resize(alignTo(text.size(), kSizeBytes), ' ');
  return text;
}

static std::string toChecksum(BLAKE3 &hash) {
  return toHex(hash.final<kChecksumBytes>(), /*LowerCase=*/true);
}

Error functions::writeArrays(StringRef path, StringRef kind,
                             const FileNumbers &numbers,
                             ArrayRef<NamedArray> arrays) {
  auto visit = [&](function_ref<void(StringRef)> take) {
    for (const NamedArray &each : arrays)
      visitElements(each.array, take);
  };
  BLAKE3 hash;
  hash.update(getHeader(kind, numbers, arrays, getNoChecksum()));
  visit([&](StringRef bytes) { hash.update(bytes); });
  std::string header = getHeader(kind, numbers, arrays, toChecksum(hash));
  Error error = writeOutput(path, [&](raw_ostream &os) {
    char size[kSizeBytes];
    support::endian::write64le(size, header.size());
    os << StringRef(size, kSizeBytes) << header;
    visit([&](StringRef bytes) { os << bytes; });
  });
  if (!error)
    return error;
  return makeFileError(path, toString(std::move(error)),
                       "a file that can be written");
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

Error ArrayFile::fail(const Twine &found) const {
  return makeFileError(path, found, "one that save has written");
}

Error ArrayFile::readHeader(StringRef kind, ArrayRef<StringRef> names) {
  StringRef text = file->getBuffer();
  uint64_t size =
      text.size() < kSizeBytes ? 0 : support::endian::read64le(text.data());
  text = text.drop_front(std::min(text.size(), kSizeBytes));
  if (size == 0 || size > text.size())
    return fail("which is truncated");
  std::string header = text.take_front(size).str();
  data = text.drop_front(size);
  Expected<json::Value> parsed = json::parse(header);
  if (!parsed) {
    consumeError(parsed.takeError());
    return fail("which is damaged");
  }
  json::Object *arrays = parsed->getAsObject();
  json::Object *metadata = arrays ? arrays->getObject(kMetadata) : nullptr;
  std::optional<StringRef> checksum =
      metadata ? metadata->getString(kChecksum) : std::nullopt;
  if (!checksum || metadata->getString(kFormat) != kind)
    return fail("which is no file of " + kind);
  std::string found = checksum->str();
  size_t place = header.find(found);
  BLAKE3 hash;
  hash.update(header.replace(place, found.size(), getNoChecksum()));
  hash.update(data);
  if (toChecksum(hash) != found)
    return fail("which is damaged");

  // What follows was written by this project.
  for (StringRef name : names)
    if (!to_integer(metadata->getString(name).value_or(""),
                    numbers[name.str()]))
      return fail("which has no number '" + name + "'");
  for (const auto &[name, value] : *arrays) {
    const json::Object *array = value.getAsObject();
    if (!array || StringRef(name) == kMetadata)
      continue;
    std::optional<ElementType> type =
        findType(array->getString("dtype").value_or(""));
    const json::Array *shape = array->getArray("shape"),
                      *places = array->getArray("data_offsets");
    if (!type || !shape || !places || places->size() != 2)
      return fail("in which '" + name.str() + "' is no array");
    Entry entry{*type, {}, places->front().getAsUINT64().value_or(0)};
    bool isWhole = true;
    uint64_t bytes = getByteWidth(*type);
    for (const json::Value &extent : *shape) {
      entry.shape.push_back(extent.getAsInteger().value_or(-1));
      isWhole &= entry.shape.back() >= 0;
      bytes = SaturatingMultiply<uint64_t>(bytes, entry.shape.back());
    }
    if (!isWhole || entry.begin > data.size() ||
        bytes > data.size() - entry.begin)
      return fail("in which '" + name.str() + "' reaches beyond the end");
    entries.emplace(name.str(), std::move(entry));
  }
  return Error::success();
}

Expected<ArrayFile> ArrayFile::read(StringRef path, StringRef kind,
                                    ArrayRef<StringRef> numbers) {
  // Devices and pipes may have no end.
  sys::fs::file_status status;
  if (!sys::fs::status(path, status) && !sys::fs::is_regular_file(status) &&
      !sys::fs::is_directory(status))
    return makeFileError(path, "a device or a pipe", "a file");
  // Not mapped, because others may truncate it.
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false,
                                      /*IsVolatile=*/true);
  if (!buffer)
    return makeFileError(path, buffer.getError().message(),
                         "a file that can be read");
  ArrayFile file;
  file.path = path.str();
  file.file = std::move(*buffer);
  if (Error error = file.readHeader(kind, numbers))
    return std::move(error);
  return std::move(file);
}

Expected<TensorRef> ArrayFile::find(StringRef name, size_t rank) const {
  auto entry = entries.find(name.str());
  if (entry == entries.end() || entry->second.shape.size() != rank)
    return fail("which has no '" + name + "' of rank " + Twine(rank));
  const auto &[type, shape, begin] = entry->second;
  return TensorRef{const_cast<char *>(data.data() + begin),
                   type,
                   shape,
                   {},
                   /*isReadOnly=*/true};
}

Error ArrayFile::load(StringRef name, const TensorRef &to) const {
  Expected<TensorRef> from = find(name, to.shape.size());
  if (!from)
    return from.takeError();
  if (from->elementType != to.elementType || from->shape != to.shape)
    return makeFileError(
        path,
        "whose '" + name + "' is " + getArrayTypeName(from->elementType) + " " +
            toTuple(from->shape),
        getArrayTypeName(to.elementType) + " " + toTuple(to.shape));
  copyElements(*from, to);
  return Error::success();
}
