//===- Mismatch.cpp - Messages about extents ------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Messages of the verifier, of checks at run time, and of functions of arrays,
// which say the same in the words of each.
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/Contract.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace fovea;
using namespace fovea::attn;
using llvm::formatv;
using llvm::StringRef;

std::string attn::describe(OperandExtent extent) {
  return formatv("extent {0} of {1}", extent.dim, extent.operand->name);
}

static std::string toText(int64_t extent) {
  return mlir::ShapedType::isDynamic(extent) ? "?" : std::to_string(extent);
}

std::string Mismatch::describe() const {
  std::string extent = attn::describe(found);
  const std::string &name = found.operand->name;
  switch (kind) {
  case Rank:
    return formatv("expects {0} to have rank {1}{2}, but got {3}", name, needed,
                   other.operand ? " as " + other.operand->name + " has" : "",
                   found.operand->shape.size());
  case Dynamic:
    return formatv("expects {0} to be static, but got a dynamic extent",
                   extent);
  case Zero:
    return formatv("expects {0} to be at least 1, but got 0", extent);
  case Extent:
    return formatv("expects {0} to be {1}{2}{3}, but got {4}", extent, needed,
                   mayBroadcast && needed != 1 ? " or 1" : "",
                   origin.empty() ? "" : " (" + origin + ")", found.get());
  case Multiple:
    return formatv("expects {0} to be a multiple of {1}, but got {2} and {3}",
                   extent, attn::describe(other), found.get(), needed);
  case MultipleOfNumber:
    return formatv("expects {0} to be a multiple of {1}, but got {2}", extent,
                   needed, found.get());
  case Shape:
    return formatv("expects {0} to have the shape of {1}: extent {2} to be "
                   "{3}, but got {4}",
                   name, other.operand->name, found.dim, toText(needed),
                   toText(found.get()));
  case Missing:
    return formatv("expects {0} beside {1}", origin, name);
  case Overflow:
    return "expects a number of summaries below 2^63, but got " + origin;
  }
  llvm_unreachable("unknown kind of mismatch");
}

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

/// What an extent of an array is called: by its letter.
static StringRef getWord(OperandExtent extent) {
  const OperandSpec &spec = *extent.operand->spec;
  if (extent.dim >= spec.extents.size())
    return "";
  return llvm::StringSwitch<StringRef>(spec.extents[extent.dim].symbol)
      .Case("B", "batch")
      .Cases({"G", "H"}, "head count")
      .Cases({"N", "M"}, "length")
      .Case("D", "head width")
      .Default("");
}

/// "batch 3", "extent 3 in dimension 1".
static std::string describeValue(OperandExtent extent) {
  StringRef word = getWord(extent);
  if (!word.empty())
    return formatv("{0} {1}", word, extent.get());
  return formatv("extent {0} in dimension {1}", extent.get(), extent.dim);
}

/// "[1,2,3]".
static std::string describeShape(const ShapedOperand &operand) {
  return "[" +
         llvm::join(llvm::map_range(
                        operand.shape,
                        [](int64_t extent) { return std::to_string(extent); }),
                    ",") +
         "]";
}

std::string Mismatch::describeArgument() const {
  const std::string &name = found.operand->name;
  switch (kind) {
  case Rank:
    return formatv("{0}: found rank {1}, needed rank {2}", name,
                   found.operand->shape.size(), needed);
  case Dynamic:
  case Zero:
    return formatv("{0}: found {1}, needed at least 1", name,
                   describeValue(found));
  case Extent:
    return formatv("{0}: found {1}, needed {2}{3}", name, describeValue(found),
                   needed, mayBroadcast && needed != 1 ? " or 1" : "");
  case Multiple:
    if (getWord(other) == "head count")
      return formatv("{0}: found {1} heads, needed a divisor of the {2} heads "
                     "of {3}",
                     other.operand->name, needed, found.get(), name);
    return formatv("{0}: found {1}, needed a multiple of {2}", name,
                   describeValue(found), needed);
  case MultipleOfNumber:
    return formatv("{0}: found {1}, needed a multiple of {2}", name,
                   describeValue(found), needed);
  case Shape:
    return formatv("{0}: found shape {1}, needed {2}", name,
                   describeShape(*found.operand),
                   describeShape(*other.operand));
  case Missing:
    return formatv("{0}: found none, needed it beside {1}", origin, name);
  case Overflow:
    return formatv("{0}: found {1}, needed summaries below 2^63", name, origin);
  }
  llvm_unreachable("unknown kind of mismatch");
}

//===----------------------------------------------------------------------===//
// Checks at run time
//===----------------------------------------------------------------------===//

std::string ExtentRule::describe() const {
  StringRef relation = kind == Equal      ? "must be"
                       : kind == Multiple ? "must be a multiple of"
                                          : "must count the summaries of";
  return formatv("extent {0} of {1} {2} extent {3} of {4}", first.dim,
                 first.name, relation, second.dim, second.name);
}
