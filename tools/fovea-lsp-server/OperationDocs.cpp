//===- OperationDocs.cpp - Documentation of operations --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OperationDocs.h"
#include "llvm/ADT/StringMap.h"

using namespace llvm;

/// The page that mlir-tblgen makes of all operations.
static constexpr char page[] = {
#include "AttnOps.md.inc"
};

/// A section begins with "### `attn.dense` (::fovea::attn::DenseOp)"; tables of
/// traits, attributes and operands end what a reader wants first.
static StringMap<StringRef> split(StringRef text) {
  StringMap<StringRef> sections;
  constexpr StringLiteral heading = "\n### `";
  text = text.drop_front(std::min(text.find(heading), text.size()));
  while (text.consume_front(heading)) {
    size_t size = std::min(text.find(heading), text.size());
    auto [name, section] = text.take_front(size).split('`');
    section = section.drop_front(std::min(section.find('\n'), section.size()));
    for (StringRef end :
         {"\nTraits: ", "\nInterfaces: ", "\nEffects: ", "\n#### "})
      section = section.take_front(section.find(end));
    sections[name] = section.trim();
    text = text.drop_front(size);
  }
  return sections;
}

StringRef fovea::lsp::getOperationDocs(StringRef name) {
  static const StringMap<StringRef> sections =
      split(StringRef(page, sizeof(page)));
  return sections.lookup(name);
}
