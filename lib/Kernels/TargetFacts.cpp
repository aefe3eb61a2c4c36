//===- TargetFacts.cpp - What kernels ask of their target -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/DLTI/DLTI.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

static constexpr StringLiteral kCPU = "CPU", kGPU = "GPU";

/// Reads facts of a device that has an entry for them.
namespace {
class FactReader {
public:
  FactReader(Operation *op, StringRef device) : op(op), device(device) {}

  void operator()(StringRef name, int64_t &value) {
    if (auto found = lookUp<IntegerAttr>(name))
      value = found.getInt();
  }
  void operator()(StringRef name, bool &value) {
    if (auto found = lookUp<BoolAttr>(name))
      value = found.getValue();
  }

private:
  template <typename AttrTy> AttrTy lookUp(StringRef name) {
    FailureOr<Attribute> found = dlti::query(op, {device, name});
    return succeeded(found) ? dyn_cast<AttrTy>(*found) : AttrTy();
  }

  Operation *op;
  StringRef device;
};

/// Collects facts as the entries of a device.
class FactWriter {
public:
  FactWriter(MLIRContext *context) : builder(context) {}

  void operator()(StringRef name, int64_t value) {
    add(name, builder.getI64IntegerAttr(value));
  }
  void operator()(StringRef name, bool value) {
    add(name, builder.getBoolAttr(value));
  }
  /// Makes the device the only one of `module`.
  void setIn(ModuleOp module, StringRef device) {
    Attribute spec = TargetDeviceSpecAttr::get(module.getContext(), entries);
    DataLayoutEntryInterface entry =
        DataLayoutEntryAttr::get(builder.getStringAttr(device), spec);
    module->setAttr(DLTIDialect::kTargetSystemDescAttrName,
                    TargetSystemSpecAttr::get(module.getContext(), entry));
  }

private:
  void add(StringRef name, Attribute value) {
    entries.push_back(
        DataLayoutEntryAttr::get(builder.getStringAttr(name), value));
  }

  Builder builder;
  SmallVector<DataLayoutEntryInterface> entries;
};
} // namespace

template <typename FactsTy, typename VisitorTy>
static void visitCPU(FactsTy &facts, VisitorTy &visit) {
  visit("vector_bits", facts.vectorBits);
  visit("num_registers", facts.numRegisters);
  visit("separate_adds", facts.separateAdds);
  visit("split_vectors", facts.splitVectors);
  visit("bf16_pairs", facts.bf16Pairs);
  visit("amx", facts.amx);
}

template <typename FactsTy, typename VisitorTy>
static void visitGPU(FactsTy &facts, VisitorTy &visit) {
  visit("shared_bytes", facts.sharedBytes);
  visit("warpgroups", facts.warpgroups);
}

FailureOr<CPUFacts> CPUFacts::of(Operation *op) {
  CPUFacts facts;
  FactReader reader(op, kCPU);
  visitCPU(facts, reader);
  if (facts.vectorBits < 64 || !llvm::isPowerOf2_64(facts.vectorBits))
    return op->emitError("expects vector-bits to be a power of two of at least "
                         "64, but got ")
           << facts.vectorBits;
  return facts;
}

void CPUFacts::setIn(ModuleOp module) const {
  FactWriter writer(module.getContext());
  visitCPU(*this, writer);
  writer.setIn(module, kCPU);
}

GPUFacts GPUFacts::of(Operation *op) {
  GPUFacts facts;
  FactReader reader(op, kGPU);
  visitGPU(facts, reader);
  return facts;
}

void GPUFacts::setIn(ModuleOp module) const {
  FactWriter writer(module.getContext());
  visitGPU(*this, writer);
  writer.setIn(module, kGPU);
}

bool fovea::attn::isForGPU(Operation *op) {
  return succeeded(dlti::query(op, {kGPU}));
}
