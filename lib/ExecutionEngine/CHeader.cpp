//===- CHeader.cpp - C headers of compiled functions ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CHeader.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace fovea;

//===----------------------------------------------------------------------===//
// Declarations
//===----------------------------------------------------------------------===//

/// Whether C and C++ take `name` for something of our own.
static bool isCName(StringRef name) {
  static const StringSet<> keywords = {
      "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor",
      "bool", "break", "case", "catch", "char", "class", "compl", "concept",
      "const", "const_cast", "constexpr", "continue", "decltype", "default",
      "delete", "do", "double", "else", "enum", "explicit", "export", "extern",
      "false", "float", "for", "friend", "goto", "if", "inline", "int", "long",
      "main", "mutable", "namespace", "new", "noexcept", "not", "not_eq",
      "nullptr", "operator", "or", "or_eq", "private", "protected", "public",
      "register", "requires", "restrict", "return", "short", "signed", "sizeof",
      "static", "struct", "switch", "template", "this", "throw", "true", "try",
      "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual",
      "void", "volatile", "while", "xor", "xor_eq", "dynamic_cast",
      "static_cast", "wchar_t", "reinterpret_cast", "thread_local",
      "static_assert",
      // Of some versions and compilers, or macros.
      "char8_t", "char16_t", "char32_t", "co_await", "co_return", "co_yield",
      "consteval", "constinit", "typeof", "linux", "unix", "NULL",
      // What the header says.
      "UINT64_C", "size_t", "int8_t", "int16_t", "int32_t", "int64_t",
      "uint8_t", "uint16_t", "uint32_t", "uint64_t"};
  // Of the runtime, and of C itself.
  bool isTaken =
      name.starts_with("fovea_rt_") || (name.size() > 1 && name[0] == '_' &&
                                        (name[1] == '_' || isUpper(name[1])));
  return !name.empty() && !isDigit(name.front()) && !isTaken &&
         !keywords.contains(name) &&
         all_of(name, [](char c) { return isAlnum(c) || c == '_'; });
}

namespace {
/// Writes the header of one function.
class HeaderWriter {
public:
  HeaderWriter(const Kernel::Impl &impl, raw_ostream &os)
      : impl(impl), signature(impl.signature), os(os) {
    chooseNames();
  }

  void write(StringRef packedName, StringRef target,
             const Workspace &workspace);

private:
  void chooseNames();
  std::string getName(size_t index) { return names[index]; }
  std::string getExtent(size_t index, size_t dim) {
    int64_t extent = signature.arguments[index].shape[dim];
    if (extent != kDynamicExtent)
      return std::to_string(extent);
    return getName(index) + "_extent" + std::to_string(dim);
  }
  void writeResults();
  void writeParameters();
  void writeBody(StringRef packedName);

  const Kernel::Impl &impl;
  const Signature &signature;
  raw_ostream &os;
  /// Of the arguments.
  std::vector<std::string> names;
};
} // namespace

/// Arguments are called as in the source, if C takes that and the function has
/// nothing else of the name.
void HeaderWriter::chooseNames() {
  StringSet<> taken = {"results", "arguments", impl.name,
                       impl.name + "_results"};
  for (auto [index, spec] : enumerate(signature.arguments)) {
    StringRef given = spec.name;
    given.consume_front("%");
    std::string name =
        isCName(given) ? given.str() : "arg" + std::to_string(index);
    // What is made of one must not be another.
    auto makes = [](StringRef from, StringRef other) {
      return other.consume_front(from) &&
             (other.empty() || other == "_tensor" ||
              other.starts_with("_extent") || other == "_strides");
    };
    auto clashes = [&] {
      return any_of(taken.keys(), [&](StringRef other) {
        return makes(name, other) || makes(other, name);
      });
    };
    while (clashes())
      name += '0';
    taken.insert(name);
    names.push_back(std::move(name));
  }
}

void HeaderWriter::writeResults() {
  if (signature.results.empty())
    return;
  os << "typedef struct {\n";
  for (auto [index, spec] : enumerate(signature.results)) {
    StringRef type = getElementInfo(spec.elementType).cType;
    os << "  /* " << spec.getTypeString() << " */\n";
    if (spec.isScalar) {
      os << "  " << type << " result" << index << ";\n";
      continue;
    }
    os << "  struct {\n    void *base;\n    " << type
       << " *data;\n    int64_t offset;\n";
    if (size_t rank = spec.shape.size())
      os << "    int64_t extents[" << rank << "], strides[" << rank << "];\n";
    os << "  } result" << index << ";\n";
  }
  os << "} " << impl.name << "_results;\n\n";
}

void HeaderWriter::writeParameters() {
  ListSeparator separator(",");
  for (auto [index, spec] : enumerate(signature.arguments)) {
    os << separator << "\n    ";
    if (!spec.isScalar && !spec.isWritten)
      os << "const ";
    os << getElementInfo(spec.elementType).cType << (spec.isScalar ? " " : " *")
       << getName(index) << " /* " << spec.getTypeString() << " */";
    for (auto [dim, extent] : enumerate(spec.shape))
      if (extent == kDynamicExtent)
        os << separator << "\n    int64_t " << getExtent(index, dim);
    if (!spec.strides.empty())
      os << separator << "\n    const int64_t " << getName(index) << "_strides["
         << spec.strides.size() << "]";
  }
  if (!signature.results.empty())
    os << separator << "\n    " << impl.name << "_results *results";
  if (signature.arguments.empty() && signature.results.empty())
    os << "void";
}

void HeaderWriter::writeBody(StringRef packedName) {
  for (auto [index, spec] : enumerate(signature.arguments)) {
    if (spec.isScalar)
      continue;
    std::string name = getName(index);
    size_t rank = spec.shape.size();
    os << "  struct {\n    const void *base, *data;\n    int64_t offset;\n";
    if (rank)
      os << "    int64_t extents[" << rank << "], strides[" << rank << "];\n";
    os << "  } " << name << "_tensor = {" << name << ", " << name << ", 0";
    if (rank) {
      os << ", {";
      ListSeparator extents;
      for (size_t dim = 0; dim < rank; ++dim)
        os << extents << getExtent(index, dim);
      os << "}, {";
      ListSeparator strides;
      for (size_t dim = 0; dim < rank; ++dim) {
        if (!spec.strides.empty()) {
          os << strides << name << "_strides[" << dim << "]";
          continue;
        }
        // The products are checked later, and may be of any extents here.
        os << strides << "(int64_t)(UINT64_C(1)";
        for (size_t inner = dim + 1; inner < rank; ++inner)
          os << " * " << getExtent(index, inner);
        os << ")";
      }
      os << "}";
    }
    os << "};\n";
  }
  os << "  void *arguments[] = {";
  ListSeparator separator;
  if (!signature.results.empty())
    os << separator << "results";
  for (auto [index, spec] : enumerate(signature.arguments))
    os << separator << "(void *)&" << getName(index)
       << (spec.isScalar ? "" : "_tensor");
  if (signature.arguments.empty() && signature.results.empty())
    os << "0";
  os << "};\n  return fovea_rt_invoke(" << packedName << ", arguments);\n";
}

void HeaderWriter::write(StringRef packedName, StringRef target,
                         const Workspace &workspace) {
  std::string guard = StringRef(impl.name).upper();
  os << "/* @" << impl.name << signature.getString() << "\n * for " << target
     << ", compiled by fovea-compile. Link with the object and with "
        "libfovea_rt."
        "\n */\n"
     << "#ifndef FOVEA_COMPILED_" << guard << "_H\n#define FOVEA_COMPILED_"
     << guard << "_H\n\n#include \"fovea_rt/fovea_rt.h\"\n\n"
     << "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
     << "/* Scratch memory of each thread that takes part, and all other "
        "memory "
        "that a\n   call allocates, results included; -1 if it depends on "
        "extents. In bytes."
     << (target.starts_with("GPU") ? "\n   Copies of arguments that lie in "
                                     "host memory come on top. */\n"
                                   : " */\n")
     << "#define " << guard << "_SCRATCH_BYTES_PER_THREAD "
     << workspace.scratchBytes << "\n#define " << guard << "_ALLOCATED_BYTES "
     << workspace.allocatedBytes.value_or(-1) << "\n\n"
     << "/* Takes the address of the results and of each argument: a tensor as "
        "{base,\n   data, offset, extents, strides}, or a scalar. */\n"
     << "void " << packedName << "(void **arguments);\n\n";
  writeResults();
  os << "/* Runs the function. Tensors are contiguous, the last index varying "
        "fastest;\n   16-bit floats are their bits. Returns FOVEA_RT_OK, or a "
        "code with its text in\n   fovea_rt_last_error."
     << (any_of(signature.arguments,
                [](const ValueSpec &spec) { return !spec.strides.empty(); })
             ? " Those with strides,\n   which count elements, lie anywhere."
             : "")
     << (impl.separateArguments.empty()
             ? ""
             : " An argument that gets a gradient\n   overlaps no other one.")
     << " */\n"
     << "static inline fovea_rt_status " << impl.name << "(";
  writeParameters();
  os << ") {\n";
  writeBody(packedName);
  os << "}\n\n";
  if (any_of(signature.results, [](auto &spec) { return !spec.isScalar; })) {
    os << "/* Frees the tensors of the results. */\nstatic inline void "
       << impl.name << "_release(" << impl.name << "_results *results) {\n";
    for (auto [index, spec] : enumerate(signature.results))
      if (!spec.isScalar)
        os << "  fovea_rt_free(results->result" << index << ".base);\n";
    os << "}\n\n";
  }
  os << "#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n\n#endif\n";
}

Expected<std::string> fovea::detail::writeCHeader(const Kernel::Impl &impl,
                                                  StringRef packedName,
                                                  StringRef target,
                                                  const Workspace &workspace) {
  if (!isCName(impl.name))
    return createStringError(
        "the entry function '@" + impl.name +
        "' has a name that C does not allow; name it otherwise");
  std::string text;
  raw_string_ostream os(text);
  HeaderWriter(impl, os).write(packedName, target, workspace);
  return text;
}
