//===- ConvolutionToProduct.cpp - Convolutions to products of matrices ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   patches[batch][image][taps] = input     (or [batch][taps][image])
//   output[batch][image][channel] += patches . filter
//
// "Taps" are all reductions, in the order that the filter has them, so that the
// filter needs no copy: input channels and positions within the filter. "Image"
// is one row of all positions of the output. Upstream's conversions know a few
// named operations with dilations of 1; this reads the indexing maps, and
// copies by an operation that vectorises.
//
//===----------------------------------------------------------------------===//

#include "LinalgKernels.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
class Convolution {
public:
  /// The parts of a convolution of all channels; none when `op` is something
  /// else.
  static std::optional<Convolution> match(linalg::LinalgOp op);
  /// The product, before `op`.
  Value emit(OpBuilder &builder);

private:
  using Loops = SmallVector<unsigned>;
  using Groups = SmallVector<Loops>;

  explicit Convolution(linalg::LinalgOp op)
      : op(op), input(op.getDpsInputOperand(0)),
        filter(op.getDpsInputOperand(1)), output(op.getDpsInitOperand(0)) {}

  Loops getLoops(OpOperand *operand);
  std::optional<Groups> group(OpOperand *operand, const Loops &loops);
  bool hasPatchesInRows();
  bool isCopyOfInput();
  OpFoldResult getExtent(OpBuilder &builder, unsigned loop);
  static SmallVector<ReassociationIndices> getDimensions(const Groups &groups);
  Value collapse(OpBuilder &builder, Value value, const Groups &groups);
  Value copyPatches(OpBuilder &builder);
  AffineMap getMap(const Groups &groups);

  linalg::LinalgOp op;
  OpOperand *input, *filter, *output;
  linalg::ConvolutionDimensions dims;
  /// In the order of the output, and in that of the filter.
  Loops image, taps;
  /// Dimensions of the product's operands, as loops of the convolution.
  Groups patchGroups, filterGroups, outputGroups;
};
} // namespace

/// The loops along the dimensions of an operand, none for those along which
/// several run.
Convolution::Loops Convolution::getLoops(OpOperand *operand) {
  Loops loops;
  for (AffineExpr expr : op.getMatchingIndexingMap(operand).getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      loops.push_back(dim.getPosition());
  return loops;
}

/// The dimensions of an operand, of which `loops` must be one run.
std::optional<Convolution::Groups> Convolution::group(OpOperand *operand,
                                                      const Loops &loops) {
  Groups groups;
  unsigned numRuns = 0;
  bool isInRun = false;
  for (unsigned loop : getLoops(operand)) {
    bool wasInRun = std::exchange(isInRun, llvm::is_contained(loops, loop));
    if (isInRun && wasInRun) {
      groups.back().push_back(loop);
      continue;
    }
    groups.push_back({loop});
    numRuns += isInRun;
  }
  return numRuns == 1 ? std::optional(groups) : std::nullopt;
}

std::optional<Convolution> Convolution::match(linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || !linalg::isaConvolutionOpInterface(op) ||
      !isSumOfProducts(op))
    return std::nullopt;
  FailureOr<linalg::ConvolutionDimensions> dims =
      linalg::inferConvolutionDims(op);
  // Channels of their own have a row of the filter each, and no product.
  if (failed(dims) || !dims->depth.empty() || dims->outputChannel.size() != 1)
    return std::nullopt;
  Convolution conv(op);
  conv.dims = *dims;
  auto isImage = [&](unsigned loop) {
    return llvm::is_contained(dims->outputImage, loop);
  };
  SmallVector<unsigned> reductions;
  op.getReductionDims(reductions);
  auto isTap = [&](unsigned loop) {
    return llvm::is_contained(reductions, loop);
  };
  llvm::copy_if(conv.getLoops(conv.output), std::back_inserter(conv.image),
                isImage);
  llvm::copy_if(conv.getLoops(conv.filter), std::back_inserter(conv.taps),
                isTap);
  if (conv.taps.size() != reductions.size())
    return std::nullopt;
  std::optional<Groups> output = conv.group(conv.output, conv.image);
  std::optional<Groups> filter = conv.group(conv.filter, conv.taps);
  if (!output || !filter)
    return std::nullopt;
  conv.outputGroups = *output;
  conv.filterGroups = *filter;
  for (unsigned loop : dims->batch)
    conv.patchGroups.push_back({loop});
  conv.patchGroups.push_back(conv.image);
  conv.patchGroups.push_back(conv.taps);
  if (!conv.hasPatchesInRows())
    std::swap(conv.patchGroups.back(),
              conv.patchGroups[conv.patchGroups.size() - 2]);
  return conv;
}

/// Whether what lies together in the input are the taps of a patch, rather than
/// one tap of neighbouring patches: channels, or pixels of patches that do not
/// overlap.
bool Convolution::hasPatchesInRows() {
  AffineExpr last = op.getMatchingIndexingMap(input).getResults().back();
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  for (auto [loop, tap, stride] :
       llvm::zip_equal(dims.outputImage, dims.filterLoop, dims.strides))
    if (last.isFunctionOfDim(loop))
      return !ShapedType::isDynamic(extents[tap]) && extents[tap] > 1 &&
             stride >= extents[tap];
  return true;
}

/// Whether the patches are the input itself, as for a filter of one pixel.
bool Convolution::isCopyOfInput() {
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  if (llvm::any_of(dims.strides, [](int64_t stride) { return stride != 1; }) ||
      llvm::any_of(dims.filterLoop,
                   [&](unsigned loop) { return extents[loop] != 1; }))
    return false;
  Loops patches, pixels;
  for (const Loops &group : patchGroups)
    for (unsigned loop : group)
      if (!llvm::is_contained(dims.filterLoop, loop))
        patches.push_back(loop);
  for (auto [expr, extent] : llvm::zip_equal(
           op.getMatchingIndexingMap(input).getResults(), op.getShape(input)))
    for (unsigned loop : patches)
      if (expr.isFunctionOfDim(loop)) {
        // The input may have pixels that no filter meets.
        if (llvm::is_contained(image, loop) &&
            (ShapedType::isDynamic(extent) || extent != extents[loop]))
          return false;
        pixels.push_back(loop);
      }
  return patches == pixels;
}

OpFoldResult Convolution::getExtent(OpBuilder &builder, unsigned loop) {
  for (OpOperand *operand : {output, filter})
    for (auto [dim, other] : llvm::enumerate(getLoops(operand)))
      if (other == loop)
        return tensor::getMixedSize(builder, op.getLoc(), operand->get(), dim);
  llvm_unreachable("every loop runs along the output or the filter");
}

/// The dimensions of each group where each loop has a dimension.
SmallVector<ReassociationIndices>
Convolution::getDimensions(const Groups &groups) {
  SmallVector<ReassociationIndices> dimensions;
  int64_t next = 0;
  for (const Loops &group : groups) {
    dimensions.emplace_back();
    for (size_t i = 0; i < group.size(); ++i)
      dimensions.back().push_back(next++);
  }
  return dimensions;
}

/// `value`, which has a dimension for each loop, with one for each group.
Value Convolution::collapse(OpBuilder &builder, Value value,
                            const Groups &groups) {
  return builder.createOrFold<tensor::CollapseShapeOp>(op.getLoc(), value,
                                                       getDimensions(groups));
}

Value Convolution::copyPatches(OpBuilder &builder) {
  Location loc = op.getLoc();
  if (isCopyOfInput()) {
    Groups groups = patchGroups;
    for (Loops &group : groups)
      llvm::erase_if(group, [&](unsigned loop) {
        return llvm::is_contained(dims.filterLoop, loop);
      });
    return collapse(builder, input->get(), groups);
  }
  SmallVector<OpFoldResult> extents;
  SmallVector<AffineExpr> positions(op.getNumLoops(),
                                    builder.getAffineConstantExpr(0));
  for (const Loops &group : patchGroups)
    for (unsigned loop : group) {
      positions[loop] = builder.getAffineDimExpr(extents.size());
      extents.push_back(getExtent(builder, loop));
    }
  unsigned rank = extents.size();
  Value empty = tensor::EmptyOp::create(
      builder, loc, extents, getElementTypeOrSelf(input->get().getType()));
  AffineMap source = op.getMatchingIndexingMap(input).replaceDimsAndSymbols(
      positions, {}, rank, 0);
  auto copy = linalg::GenericOp::create(
      builder, loc, empty.getType(), input->get(), empty,
      ArrayRef{source, builder.getMultiDimIdentityMap(rank)},
      SmallVector(rank, utils::IteratorType::parallel),
      [](OpBuilder &inner, Location loc, ValueRange arguments) {
        linalg::YieldOp::create(inner, loc, arguments.front());
      });
  return collapse(builder, copy.getResult(0), patchGroups);
}

/// The groups of an operand as loops of the product, which are: the batch, the
/// image, the output's channels and the taps.
AffineMap Convolution::getMap(const Groups &groups) {
  Loops first(dims.batch.begin(), dims.batch.end());
  llvm::append_values(first, image.front(), dims.outputChannel.front(),
                      taps.front());
  SmallVector<AffineExpr> exprs;
  for (const Loops &group : groups)
    exprs.push_back(getAffineDimExpr(
        llvm::find(first, group.front()) - first.begin(), op.getContext()));
  return AffineMap::get(first.size(), 0, exprs, op.getContext());
}

Value Convolution::emit(OpBuilder &builder) {
  Location loc = op.getLoc();
  Value patches = copyPatches(builder);
  Value weights = collapse(builder, filter->get(), filterGroups);
  Value init = collapse(builder, output->get(), outputGroups);
  SmallVector<utils::IteratorType> types(dims.batch.size() + 2,
                                         utils::IteratorType::parallel);
  types.push_back(utils::IteratorType::reduction);
  auto product = linalg::GenericOp::create(
      builder, loc, init.getType(), ValueRange{patches, weights}, init,
      ArrayRef{getMap(patchGroups), getMap(filterGroups), getMap(outputGroups)},
      types);
  IRMapping mapping;
  op->getRegion(0).cloneInto(&product.getRegion(), mapping);
  return builder.createOrFold<tensor::ExpandShapeOp>(
      loc, output->get().getType(), product.getResult(0),
      getDimensions(outputGroups),
      tensor::getMixedSizes(builder, loc, output->get()));
}

Value fovea::attn::emitConvolutionAsProduct(OpBuilder &builder,
                                            linalg::LinalgOp op) {
  std::optional<Convolution> convolution = Convolution::match(op);
  return convolution ? convolution->emit(builder) : Value();
}
