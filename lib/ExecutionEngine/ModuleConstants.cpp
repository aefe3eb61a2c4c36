//===- ModuleConstants.cpp - Constants beside a module --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModuleConstants.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace fovea;

/// A longer header is none.
static constexpr uint64_t kMostHeaderBytes = 100'000'000;
/// The parser calls itself for each level; headers have three.
static constexpr unsigned kMostLevels = 8;

std::string fovea::findConstants(StringRef modulePath) {
  SmallString<128> path(modulePath);
  llvm::sys::path::replace_extension(path, "safetensors");
  bool isThere = path != modulePath && llvm::sys::fs::exists(path);
  return isThere ? path.str().str() : std::string();
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
struct Constant {
  std::string name;
  RankedTensorType type;
  ArrayRef<char> data;
};

/// A file of constants, in the order of their data.
struct ConstantFile {
  std::shared_ptr<llvm::MemoryBuffer> buffer;
  std::vector<Constant> constants;
  std::vector<std::string> otherNames;
};

class FileReader {
public:
  FileReader(MLIRContext *context, StringRef path)
      : context(context), path(path) {}

  llvm::Expected<ConstantFile> read();

private:
  llvm::Error refuse(const Twine &what) {
    return llvm::createStringError(path + ": " + what);
  }
  llvm::Expected<llvm::json::Object> readHeader(StringRef bytes,
                                                StringRef &data);
  llvm::Error readNames(const llvm::json::Object &header, ConstantFile &file);
  std::optional<Constant>
  readConstant(StringRef name, const llvm::json::Object &entry, StringRef data);
  Type getElementType(StringRef name);

  MLIRContext *context;
  StringRef path;
};
} // namespace

Type FileReader::getElementType(StringRef name) {
  Builder b(context);
  return llvm::StringSwitch<Type>(name)
      .Case("BOOL", b.getI1Type())
      .Case("BF16", b.getBF16Type())
      .Case("F16", b.getF16Type())
      .Case("F32", b.getF32Type())
      .Case("F64", b.getF64Type())
      .Cases({"I8", "U8"}, b.getI8Type())
      .Case("I16", b.getIntegerType(16))
      .Case("I32", b.getI32Type())
      .Case("I64", b.getI64Type())
      .Default(Type());
}

static bool isTooDeep(StringRef json) {
  unsigned levels = 0;
  bool isText = false;
  for (size_t at = 0; at < json.size(); ++at) {
    char c = json[at];
    if (c == '"')
      isText = !isText;
    else if (isText && c == '\\')
      ++at;
    else if (!isText && (c == '{' || c == '[') && ++levels > kMostLevels)
      return true;
    else if (!isText && (c == '}' || c == ']') && levels > 0)
      --levels;
  }
  return false;
}

/// Empty if it is no object.
llvm::Expected<llvm::json::Object> FileReader::readHeader(StringRef bytes,
                                                          StringRef &data) {
  uint64_t length =
      bytes.size() < 8 ? 0 : llvm::support::endian::read64le(bytes.data());
  if (bytes.size() < 8 || length > std::min(bytes.size() - 8, kMostHeaderBytes))
    return refuse("found " + Twine(bytes.size()) +
                  " bytes, needed 8 and a header of " + Twine(length));
  StringRef text = bytes.substr(8, length);
  data = bytes.substr(8 + length);
  if (isTooDeep(text))
    return refuse("found a header of more than " + Twine(kMostLevels) +
                  " levels, needed a list of constants");
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(text);
  if (value && value->getAsObject())
    return std::move(*value->getAsObject());
  llvm::consumeError(value.takeError());
  return llvm::json::Object();
}

llvm::Error FileReader::readNames(const llvm::json::Object &header,
                                  ConstantFile &file) {
  const llvm::json::Object *metadata = header.getObject("__metadata__");
  std::optional<StringRef> text;
  if (metadata)
    text = metadata->getString("fovea.arguments");
  if (text && !isTooDeep(*text)) {
    llvm::Expected<llvm::json::Value> list = llvm::json::parse(*text);
    llvm::json::Path::Root root;
    if (list && llvm::json::fromJSON(*list, file.otherNames, root))
      return llvm::Error::success();
    llvm::consumeError(list.takeError());
  }
  return refuse(
      "found no list of constants that fovea.import_torch has written");
}

/// None if its entry does not agree with itself or the data.
std::optional<Constant>
FileReader::readConstant(StringRef name, const llvm::json::Object &entry,
                         StringRef data) {
  Type elementType =
      getElementType(entry.getString("dtype").value_or(StringRef()));
  const llvm::json::Array *shape = entry.getArray("shape");
  const llvm::json::Array *place = entry.getArray("data_offsets");
  if (!elementType || !shape || !place || place->size() != 2)
    return std::nullopt;
  int64_t bytes = std::max(elementType.getIntOrFloatBitWidth() / 8, 1u);
  SmallVector<int64_t> extents;
  for (const llvm::json::Value &each : *shape) {
    std::optional<int64_t> extent = each.getAsInteger();
    if (!extent || *extent < 0 || llvm::MulOverflow(bytes, *extent, bytes))
      return std::nullopt;
    extents.push_back(*extent);
  }
  std::optional<int64_t> first = (*place)[0].getAsInteger();
  std::optional<int64_t> last = (*place)[1].getAsInteger();
  if (!first || !last || *first < 0 || *last < *first ||
      *last > int64_t(data.size()) || *last - *first != bytes)
    return std::nullopt;
  return Constant{name.str(), RankedTensorType::get(extents, elementType),
                  ArrayRef(data.data() + *first, bytes)};
}

llvm::Expected<ConstantFile> FileReader::read() {
  // No null character is needed at the end, so that large files are mapped.
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer =
      llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                  /*RequiresNullTerminator=*/false);
  if (!buffer)
    return refuse(buffer.getError().message());
  ConstantFile file;
  file.buffer = std::move(*buffer);
  StringRef data;
  llvm::Expected<llvm::json::Object> header =
      readHeader(file.buffer->getBuffer(), data);
  if (!header)
    return header.takeError();
  if (llvm::Error error = readNames(*header, file))
    return std::move(error);
  for (const auto &[name, entry] : *header) {
    StringRef key = name;
    if (key == "__metadata__")
      continue;
    std::optional<Constant> constant;
    if (const llvm::json::Object *object = entry.getAsObject())
      constant = readConstant(key, *object, data);
    if (!constant)
      return refuse(
          key + ": found " + llvm::formatv("{0}", entry).str().substr(0, 200) +
          ", needed type, shape and place in " + Twine(data.size()) + " bytes");
    file.constants.push_back(std::move(*constant));
  }
  llvm::sort(file.constants, [](const Constant &a, const Constant &b) {
    return std::make_pair(a.data.begin(), a.data.end()) <
           std::make_pair(b.data.begin(), b.data.end());
  });
  return std::move(file);
}

//===----------------------------------------------------------------------===//
// Binding
//===----------------------------------------------------------------------===//

/// Passes look into integers, such as positions and masks, and leave weights
/// alone.
static ElementsAttr makeAttribute(const Constant &constant,
                                  std::shared_ptr<llvm::MemoryBuffer> owner) {
  Type type = constant.type.getElementType();
  if (type.isInteger(1))
    return DenseElementsAttr::get(
        constant.type, llvm::map_to_vector(constant.data, [](char element) {
          return element != 0;
        }));
  if (isa<IntegerType>(type))
    return DenseElementsAttr::getFromRawBuffer(constant.type, constant.data);
  AsmResourceBlob blob(
      constant.data, /*dataAlignment=*/1,
      [owner = std::move(owner)](void *, size_t, size_t) {},
      /*dataIsMutable=*/false);
  return DenseResourceElementsAttr::get(constant.type, constant.name,
                                        std::move(blob));
}

llvm::Error fovea::detail::bindConstants(func::FuncOp entry, StringRef path,
                                         SmallVectorImpl<std::string> &names) {
  llvm::Expected<ConstantFile> file =
      FileReader(entry.getContext(), path).read();
  if (!file)
    return file.takeError();
  size_t count = file->constants.size();
  if (count + file->otherNames.size() != entry.getNumArguments())
    return llvm::createStringError(
        path + ": found " + Twine(count) + " constants and " +
        Twine(file->otherNames.size()) + " names of other arguments, but @" +
        entry.getSymName() + " has " + Twine(entry.getNumArguments()) +
        " arguments");
  OpBuilder builder = OpBuilder::atBlockBegin(&entry.front());
  for (auto [index, constant] : llvm::enumerate(file->constants)) {
    Value argument = entry.getArgument(index);
    if (argument.getType() != constant.type) {
      std::string needed;
      llvm::raw_string_ostream(needed) << argument.getType();
      std::string found;
      llvm::raw_string_ostream(found) << constant.type;
      return llvm::createStringError(path + ": " + constant.name + ": found " +
                                     found + ", needed " + needed);
    }
    argument.replaceAllUsesWith(arith::ConstantOp::create(
        builder, argument.getLoc(), makeAttribute(constant, file->buffer)));
  }
  llvm::BitVector bound(entry.getNumArguments());
  bound.set(0, count);
  if (failed(entry.eraseArguments(bound)))
    return llvm::createStringError("cannot bind the constants of " + path);
  names.assign(file->otherNames.begin(), file->otherNames.end());
  return llvm::Error::success();
}
