//===- Npy.cpp - NumPy's array files --------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A file is the magic "\x93NUMPY", a version of two bytes, the length of the
// header (two bytes in version 1, four afterwards), the header, which is a
// Python dictionary in text, and the elements.
//
//===----------------------------------------------------------------------===//

#include "fovea/Tools/Npy/Npy.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Support/OutputFile.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>

using namespace llvm;
using namespace fovea;

static constexpr StringLiteral kMagic = "\x93NUMPY";

namespace {
/// What the header says.
struct Header {
  std::string descr;
  bool isFortranOrder = false;
  SmallVector<int64_t, 4> shape;
};

/// Parses the dictionary, whose keys may come in any order.
class HeaderParser {
public:
  explicit HeaderParser(StringRef text) : rest(text) {}

  /// Returns what is wrong, or an empty string.
  std::string parse(Header &header) {
    bool hasDescr = false, hasOrder = false, hasShape = false;
    if (!consume("{"))
      return "expected '{'";
    while (!consume("}")) {
      std::string key;
      if (!parseString(key) || !consume(":"))
        return "expected a key and ':'";
      if (key == "descr") {
        if (!parseString(header.descr))
          return "expected 'descr' to be a string; structured types are not "
                 "supported";
        hasDescr = true;
      } else if (key == "fortran_order") {
        if (consume("True"))
          header.isFortranOrder = true;
        else if (!consume("False"))
          return "expected 'fortran_order' to be True or False";
        hasOrder = true;
      } else if (key == "shape") {
        if (!parseShape(header.shape))
          return "expected 'shape' to be a tuple of extents";
        hasShape = true;
      } else {
        return "unknown key '" + key + "'";
      }
      if (!consume(",") && !rest.ltrim().starts_with("}"))
        return "expected ',' or '}'";
    }
    if (!hasDescr || !hasOrder || !hasShape)
      return "expected the keys 'descr', 'fortran_order' and 'shape'";
    return "";
  }

private:
  bool consume(StringRef token) {
    rest = rest.ltrim();
    return rest.consume_front(token);
  }

  bool parseString(std::string &text) {
    rest = rest.ltrim();
    if (!rest.starts_with("'") && !rest.starts_with("\""))
      return false;
    size_t end = rest.find(rest.front(), 1);
    if (end == StringRef::npos)
      return false;
    text = rest.slice(1, end).str();
    rest = rest.drop_front(end + 1);
    return true;
  }

  bool parseShape(SmallVectorImpl<int64_t> &shape) {
    if (!consume("("))
      return false;
    while (!consume(")")) {
      int64_t extent;
      rest = rest.ltrim();
      if (rest.consumeInteger(10, extent) || extent < 0)
        return false;
      // Python 2 wrote long integers so.
      rest.consume_front("L");
      shape.push_back(extent);
      if (!consume(",") && !rest.ltrim().starts_with(")"))
        return false;
    }
    return true;
  }

  StringRef rest;
};
} // namespace

static Error makeError(StringRef path, const Twine &what) {
  return createStringError("'" + path + "': " + what);
}

static Expected<ElementType> convertDescr(StringRef path, StringRef descr,
                                          std::optional<ElementType> expected) {
  if (descr.starts_with(">"))
    return makeError(path, "expected little-endian elements, but got '" +
                               descr + "'");
  // "=" is the writer's own order, which for the files we read is little.
  StringRef kind =
      descr.drop_while([](char c) { return c == '<' || c == '|' || c == '='; });
  if (kind == "V2" || (kind == "u2" && expected == ElementType::BF16))
    return ElementType::BF16;
  if (kind == "i8" && expected == ElementType::Index)
    return ElementType::Index;
  for (ElementType type :
       {ElementType::F16, ElementType::F32, ElementType::F64, ElementType::I1,
        ElementType::I8, ElementType::I16, ElementType::I32, ElementType::I64})
    if (kind == getElementInfo(type).npyDescr.drop_front())
      return type;
  return makeError(path, "unsupported element type '" + descr +
                             "'; expected f2, f4, f8, b1, i1, i2, i4, i8, or "
                             "V2 for bf16");
}

Expected<OwnedTensor> fovea::readNpy(StringRef path,
                                     std::optional<ElementType> expected) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> file = MemoryBuffer::getFile(
      path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return makeError(path, file.getError().message());
  StringRef content = (*file)->getBuffer();
  if (!content.starts_with(kMagic))
    return makeError(path, "expected a .npy file, but it does not start with "
                           "the magic '\\x93NUMPY'");
  if (content.size() < 10)
    return makeError(path, "truncated: the header is incomplete");
  unsigned major = uint8_t(content[6]), minor = uint8_t(content[7]);
  if (major < 1 || major > 3)
    return makeError(path,
                     "expected version 1, 2 or 3 of the format, but got " +
                         Twine(major) + "." + Twine(minor));
  size_t lengthBytes = major == 1 ? 2 : 4;
  if (content.size() < 8 + lengthBytes)
    return makeError(path, "truncated: the header is incomplete");
  uint64_t length = major == 1 ? support::endian::read16le(content.data() + 8)
                               : support::endian::read32le(content.data() + 8);
  size_t start = 8 + lengthBytes;
  if (content.size() - start < length)
    return makeError(path, "truncated: the header needs " + Twine(length) +
                               " bytes, but only " +
                               Twine(content.size() - start) + " follow");

  Header header;
  if (std::string problem =
          HeaderParser(content.substr(start, length)).parse(header);
      !problem.empty())
    return makeError(path, "malformed header: " + problem);
  Expected<ElementType> type = convertDescr(path, header.descr, expected);
  if (!type)
    return type.takeError();
  bool isVector = llvm::count_if(header.shape, [](int64_t extent) {
                    return extent != 1;
                  }) < 2;
  if (header.isFortranOrder && !isVector)
    return makeError(path, "expected C order, but got Fortran order; save "
                           "numpy.ascontiguousarray of it");

  int64_t bytes = getByteWidth(*type);
  for (int64_t extent : header.shape)
    if (MulOverflow(bytes, extent, bytes))
      return makeError(path, "the shape has more bytes than 64 bits can count");
  StringRef data = content.drop_front(start + length);
  if (int64_t(data.size()) != bytes)
    return makeError(
        path,
        (int64_t(data.size()) < bytes ? "truncated: " : "trailing bytes: ") +
            Twine("the shape needs ") + Twine(bytes) +
            " bytes of elements, but got " + Twine(data.size()));
  Expected<OwnedTensor> tensor = allocateTensor(*type, header.shape);
  if (!tensor)
    return makeError(path, toString(tensor.takeError()));
  std::memcpy(tensor->getData(), data.data(), bytes);
  return tensor;
}

Error fovea::writeNpy(StringRef path, const TensorRef &tensor) {
  std::string header;
  raw_string_ostream text(header);
  text << "{'descr': '" << getElementInfo(tensor.elementType).npyDescr
       << "', 'fortran_order': False, 'shape': (";
  interleaveComma(tensor.shape, text);
  if (tensor.shape.size() == 1)
    text << ',';
  text << "), }";
  // Elements start at a multiple of 64 bytes; the header ends in a newline.
  size_t length = header.size() + 1;
  bool isLong = 10 + alignTo(length, 64) > 0xffff;
  size_t prefix = isLong ? 12 : 10;
  size_t padded = alignTo(prefix + length, 64) - prefix;
  header.append(padded - length, ' ');
  header += '\n';

  int64_t bytes = getByteWidth(tensor.elementType);
  for (int64_t extent : tensor.shape)
    bytes *= extent;
  Error error = writeOutput(path, [&](raw_ostream &os) {
    os << kMagic << (isLong ? '\2' : '\1') << '\0';
    char size[4];
    support::endian::write32le(size, padded);
    os.write(size, isLong ? 4 : 2);
    os << header;
    os.write(static_cast<const char *>(tensor.data), bytes);
  });
  if (error)
    return makeError(path, "cannot write: " +
                               errorToErrorCode(std::move(error)).message());
  return Error::success();
}
