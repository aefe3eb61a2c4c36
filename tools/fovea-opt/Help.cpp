//===- Help.cpp - What fovea-opt --help shows -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Help.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

/// Options of MLIR that --help shows.
static constexpr StringLiteral usefulOptions[] = {
    "allow-unregistered-dialect",
    "dump-pass-pipeline",
    "emit-bytecode",
    "list-passes",
    "mlir-disable-threading",
    "mlir-elide-elementsattrs-if-larger",
    "mlir-pass-pipeline-crash-reproducer",
    "mlir-print-debuginfo",
    "mlir-print-ir-after",
    "mlir-print-ir-after-all",
    "mlir-print-ir-after-change",
    "mlir-print-ir-after-failure",
    "mlir-print-ir-tree-dir",
    "mlir-timing",
    "pass-pipeline",
    "remark-policy",
    "remarks-filter",
    "run-reproducer",
    "split-input-file",
    "verify-each",
    "verify-roundtrip",
};

static bool isFoveas(StringRef passArgument) {
  return passArgument.starts_with("attn-") ||
         passArgument.starts_with("convert-attn-") ||
         passArgument.starts_with("fovea-");
}

namespace {
/// An entry of the help alone: Fovea's pipelines with their options, and its
/// passes. MLIR lists all passes that there are in one entry.
class PassList : public cl::Option {
public:
  PassList(cl::OptionCategory &category, ArrayRef<StringRef> names)
      : Option(cl::Optional, cl::NotHidden) {
    for (StringRef name : names) {
      if (const auto *pipeline = mlir::PassPipelineInfo::lookup(name))
        pipelines.push_back(pipeline);
      else if (const auto *pass = mlir::PassInfo::lookup(name))
        passes.push_back(pass);
    }
    for (auto *entries : {&pipelines, &passes})
      llvm::sort(*entries, [](const auto *lhs, const auto *rhs) {
        return lhs->getPassArgument() < rhs->getPassArgument();
      });
    addCategory(category);
    addArgument();
    // Only what has a name is listed; nobody types this one.
    cl::AddLiteralOption(*this, "pipelines and passes of Fovea");
  }

  void printOptionValue(size_t, bool) const override {}
  void setDefault() override {}

  size_t getOptionWidth() const override {
    size_t width = 0;
    for (const mlir::PassRegistryEntry *pipeline : pipelines)
      width = std::max(width, pipeline->getOptionWidth() + 4);
    for (const mlir::PassRegistryEntry *pass : passes)
      width = std::max(width, pass->getPassArgument().size() + 9);
    return width;
  }

  void printOptionInfo(size_t width) const override {
    outs() << "  Pipelines, and their options:\n";
    for (const mlir::PassRegistryEntry *pipeline : pipelines)
      pipeline->printHelpStr(/*indent=*/4, width);
    outs() << "  Passes (--help-hidden and docs/Passes.md have their options, "
              "and upstream's passes):\n";
    for (const mlir::PassRegistryEntry *pass : passes)
      outs() << "    --" << left_justify(pass->getPassArgument(), width - 9)
             << " -   " << pass->getPassDescription() << '\n';
  }

private:
  bool handleOccurrence(unsigned, StringRef name, StringRef) override {
    return error("is no option", name);
  }
  cl::ValueExpected getValueExpectedFlagDefault() const override {
    return cl::ValueDisallowed;
  }

  SmallVector<const mlir::PassRegistryEntry *> pipelines, passes;
};
} // namespace

/// Whether the option is --help or one like it, or of those above.
static bool isShown(StringRef name, const cl::Option &option) {
  return is_contained(usefulOptions, name) ||
         any_of(option.Categories, [](const cl::OptionCategory *category) {
           return category->getName() == "Generic Options";
         });
}

void fovea::opt::arrangeHelp() {
  SmallVector<StringRef> names;
  for (auto &[name, option] : cl::getRegisteredOptions()) {
    // Passes are values of an option without a name.
    if (!option->hasArgStr() && isFoveas(name))
      names.push_back(name);
    if (!isShown(name, *option) &&
        option->getOptionHiddenFlag() == cl::NotHidden)
      option->setHiddenFlag(cl::Hidden);
  }
  // Categories are in alphabetical order.
  static cl::OptionCategory category("Fovea's pipelines and passes");
  static PassList list(category, names);
}
