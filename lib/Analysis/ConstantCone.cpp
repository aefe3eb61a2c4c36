//===- ConstantCone.cpp - Numbers known when compiling --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/ConstantCone.h"
#include "ConstantArithmetic.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::detail;

/// Points that are computed together.
static constexpr size_t kChunk = 4096;
/// Operations of one program; an operation that is used twice counts once.
static constexpr size_t kMaxProgram = 1024;

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

namespace {
using Points = llvm::DenseMap<Atom, std::vector<int64_t>>;

/// The operations that compute a number from atoms, in order, each once.
class Program {
public:
  static std::optional<Program> get(ConstantCones &cones, AccessTrace &trace,
                                    const Access &access);

  const AtomSet &getAtoms() const { return atoms; }
  Type getElementType() const { return elementType; }
  /// The numbers at all points, of which there are `count`.
  const Column *run(const Points &points, size_t count);

private:
  struct Step {
    std::function<bool(const Points &, ArrayRef<const Column *>, Column &)>
        compute;
    SmallVector<unsigned, 3> operands;
    Column column;
  };
  explicit Program(ConstantCones &cones, AccessTrace &trace)
      : cones(&cones), trace(&trace) {}
  std::optional<unsigned> add(const Access &access);
  std::optional<unsigned> addStep(Step step);
  std::optional<unsigned> addConstant(ConstantElement element);
  std::optional<unsigned> addIndex(ArrayRef<Atom> list);
  /// An element of a tensor, at indices that steps compute.
  std::optional<unsigned> addLoad(Value tensor, ArrayRef<unsigned> indices);

  ConstantCones *cones;
  AccessTrace *trace;
  AtomSet atoms;
  Type elementType;
  std::vector<Step> steps;
  SmallVector<std::pair<Access, unsigned>> found;
};
} // namespace

std::optional<unsigned> Program::addStep(Step step) {
  if (steps.size() == kMaxProgram)
    return std::nullopt;
  steps.push_back(std::move(step));
  return steps.size() - 1;
}

std::optional<unsigned> Program::addConstant(ConstantElement element) {
  return addStep({[=](const Points &, ArrayRef<const Column *>, Column &out) {
                    llvm::fill(out, element);
                    return true;
                  },
                  {},
                  {}});
}

std::optional<unsigned> Program::addIndex(ArrayRef<Atom> list) {
  IndexList digits = trace->resolve(list);
  atoms.insert_range(digits);
  SmallVector<int64_t> extents = llvm::map_to_vector(
      digits, [&](Atom atom) { return trace->getExtent(atom); });
  return addStep(
      {[=](const Points &points, ArrayRef<const Column *>, Column &out) {
         llvm::fill(out, ConstantElement(int64_t(0)));
         for (auto [atom, extent] : llvm::zip_equal(digits, extents))
           for (auto [value, to] :
                llvm::zip_equal(points.find(atom)->second, out))
             to.integer = to.integer * extent + value;
         return true;
       },
       {},
       {}});
}

std::optional<unsigned> Program::addLoad(Value value,
                                         ArrayRef<unsigned> indices) {
  const ConstantTensor *tensor = cones->getTensor(value);
  if (!tensor)
    return std::nullopt;
  return addStep(
      {[=](const Points &, ArrayRef<const Column *> operands, Column &out) {
         for (size_t point : llvm::seq(out.size())) {
           int64_t at = 0;
           for (auto [extent, index] :
                llvm::zip_equal(tensor->shape, operands)) {
             int64_t i = (*index)[point].integer;
             if (i < 0 || i >= extent)
               return false;
             at = at * extent + i;
           }
           out[point] = tensor->elements[at];
         }
         return true;
       },
       llvm::to_vector<3>(indices),
       {}});
}

std::optional<unsigned> Program::add(const Access &start) {
  Access access = trace->open(start);
  for (auto &[other, step] : found)
    if (other.value == access.value && other.indices == access.indices)
      return step;
  Operation *op = access.getDefiningOp();
  if (!op || !isComputedType(getElementTypeOrSelf(access.value)))
    return std::nullopt;
  std::optional<unsigned> step;
  Attribute constant;
  if (matchPattern(access.value, m_Constant(&constant))) {
    if (auto splat = dyn_cast<SplatElementsAttr>(constant))
      constant = splat.getSplatValue<Attribute>();
    if (isa<FloatAttr, IntegerAttr>(constant))
      step = addConstant(getElement(constant));
  }
  SmallVector<unsigned, 3> operands;
  auto addOperands = [&](unsigned first) {
    for (unsigned k : llvm::seq(first, op->getNumOperands())) {
      std::optional<unsigned> operand = add(AccessTrace::getOperand(access, k));
      if (!operand)
        return false;
      operands.push_back(*operand);
    }
    return true;
  };
  if (step) {
    // A number.
  } else if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    step = addIndex(access.indices[index.getDim()]);
  } else if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    if (addOperands(1))
      step = addLoad(extract.getTensor(), operands);
  } else if (AccessTrace::getElementwiseOp(access)) {
    if (ColumnFunction compute = getColumnFunction(op);
        compute && addOperands(0))
      step = addStep({[=](const Points &, ArrayRef<const Column *> operands,
                          Column &out) { return compute(operands, out); },
                      operands,
                      {}});
  } else if (access.isTensor()) {
    // Before its atoms are, that the tensor is constant must be clear.
    if (!cones->getTensor(access.value))
      return std::nullopt;
    for (const IndexList &list : access.indices) {
      std::optional<unsigned> index = addIndex(list);
      if (!index)
        return std::nullopt;
      operands.push_back(*index);
    }
    step = addLoad(access.value, operands);
  }
  if (step)
    found.emplace_back(access, *step);
  return step;
}

std::optional<Program> Program::get(ConstantCones &cones, AccessTrace &trace,
                                    const Access &access) {
  Program program(cones, trace);
  // Later splits of atoms would leave earlier steps behind: the second time,
  // there are none.
  if (!program.add(access))
    return std::nullopt;
  program = Program(cones, trace);
  program.elementType = getElementTypeOrSelf(access.value);
  if (!program.add(access))
    return std::nullopt;
  return program;
}

const Column *Program::run(const Points &points, size_t count) {
  for (Step &step : steps) {
    SmallVector<const Column *, 3> operands;
    for (unsigned operand : step.operands)
      operands.push_back(&steps[operand].column);
    step.column.resize(count);
    if (!step.compute(points, operands, step.column))
      return nullptr;
  }
  return &steps.back().column;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

static int64_t getNumElements(ArrayRef<int64_t> shape, int64_t most) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && count > most / extent))
      return -1;
    count *= extent;
  }
  return count;
}

/// Values of the atoms at the points from `first` on of the grid of all
/// indices.
static Points getPoints(AccessTrace &trace, ArrayRef<IndexList> lists,
                        int64_t first, size_t count) {
  Points points;
  int64_t inner = 1;
  for (const IndexList &list : llvm::reverse(lists)) {
    IndexList atoms = trace.resolve(list);
    for (Atom atom : llvm::reverse(atoms)) {
      int64_t extent = trace.getExtent(atom);
      std::vector<int64_t> &values = points[atom];
      values.resize(count);
      for (auto [k, value] : llvm::enumerate(values))
        value = (first + static_cast<int64_t>(k)) / inner % extent;
      inner *= extent;
    }
  }
  return points;
}

/// How the indices of `number` follow from those in `lists`, as numbers that
/// are the same for another access to its value that is the same.
static std::optional<SmallVector<int64_t>>
describeIndices(const AccessTrace &trace, const Access &number,
                ArrayRef<IndexList> lists) {
  constexpr int64_t kEnd = -1;
  llvm::SmallDenseMap<Atom, int64_t> places;
  SmallVector<int64_t> described;
  for (const IndexList &list : lists) {
    for (Atom atom : trace.resolve(list)) {
      if (!places.try_emplace(atom, places.size()).second)
        return std::nullopt;
      described.push_back(trace.getExtent(atom));
    }
    described.push_back(kEnd);
  }
  for (const IndexList &index : number.indices) {
    for (Atom atom : trace.resolve(index)) {
      auto place = places.find(atom);
      if (place == places.end())
        return std::nullopt;
      described.push_back(place->second);
    }
    described.push_back(kEnd);
  }
  return described;
}

std::optional<ConstantTensor>
ConstantCones::evaluate(AccessTrace &trace, const Access &access,
                        ArrayRef<IndexList> lists) {
  // The layers of a model read one mask.
  Access number = trace.peel(access);
  auto described =
      lists.empty() ? std::nullopt : describeIndices(trace, number, lists);
  if (!described)
    return compute(trace, number, lists);
  auto &known = arrays[number.value];
  for (const auto &[indices, tensor] : known)
    if (indices == *described)
      return tensor;
  // Which adds to no array: of whole tensors, each is kept by itself.
  std::optional<ConstantTensor> tensor = compute(trace, number, lists);
  known.emplace_back(std::move(*described), tensor);
  return tensor;
}

std::optional<ConstantTensor>
ConstantCones::compute(AccessTrace &trace, const Access &access,
                       ArrayRef<IndexList> lists) {
  std::optional<Program> program = Program::get(*this, trace, access);
  if (!program)
    return std::nullopt;
  AtomSet given;
  ConstantTensor tensor{program->getElementType(), {}, {}};
  for (const IndexList &list : lists) {
    if (!trace.isStatic(list))
      return std::nullopt;
    given.insert_range(trace.resolve(list));
    tensor.shape.push_back(trace.getExtent(list));
  }
  int64_t size = getNumElements(tensor.shape, maxElements);
  if (size < 0 ||
      !llvm::all_of(
          program->getAtoms(), [&](Atom atom) { return given.contains(atom); }))
    return std::nullopt;
  tensor.elements.reserve(size);
  for (int64_t first = 0; first < size; first += kChunk) {
    size_t count = std::min<int64_t>(kChunk, size - first);
    const Column *column =
        program->run(getPoints(trace, lists, first, count), count);
    if (!column)
      return std::nullopt;
    llvm::append_range(tensor.elements, *column);
  }
  return tensor;
}

std::optional<double> ConstantCones::evaluateReal(AccessTrace &trace,
                                                  const Access &access) {
  if (!isa<FloatType>(getElementTypeOrSelf(access.value)))
    return std::nullopt;
  std::optional<ConstantTensor> tensor = evaluate(trace, access);
  if (!tensor)
    return std::nullopt;
  return tensor->elements.front().real;
}

std::optional<ConstantTensor> ConstantCones::evaluateAll(Value value) {
  AccessTrace trace;
  Access access = trace.addAccess(value);
  std::optional<ConstantTensor> tensor = compute(trace, access, access.indices);
  if (tensor)
    tensor->shape =
        llvm::to_vector(cast<RankedTensorType>(value.getType()).getShape());
  return tensor;
}

const ConstantTensor *ConstantCones::getTensor(Value value) {
  auto [entry, isNew] = tensors.try_emplace(value, nullptr);
  if (!isNew)
    return entry->second.get();
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !isComputedType(type.getElementType()) ||
      getNumElements(type.getShape(), maxElements) < 0)
    return nullptr;
  std::optional<ConstantTensor> tensor = compute(value);
  if (!tensor)
    return nullptr;
  std::unique_ptr<ConstantTensor> &kept = tensors[value];
  kept = std::make_unique<ConstantTensor>(std::move(*tensor));
  return kept.get();
}

/// Calls `visit` with the positions in two tensors of each element of a slice.
static void visitSlice(ArrayRef<int64_t> shape, ArrayRef<int64_t> offsets,
                       ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides,
                       llvm::function_ref<void(int64_t, int64_t)> visit) {
  int64_t count = getNumElements(sizes, std::numeric_limits<int64_t>::max());
  for (int64_t inner : llvm::seq<int64_t>(count)) {
    int64_t outer = 0;
    int64_t scale = 1;
    int64_t rest = inner;
    for (size_t k = shape.size(); k-- > 0;) {
      outer += scale * (offsets[k] + rest % sizes[k] * strides[k]);
      rest /= sizes[k];
      scale *= shape[k];
    }
    visit(inner, outer);
  }
}

static bool isStatic(OffsetSizeAndStrideOpInterface op) {
  return !llvm::is_contained(op.getStaticOffsets(), ShapedType::kDynamic) &&
         !llvm::is_contained(op.getStaticSizes(), ShapedType::kDynamic) &&
         !llvm::is_contained(op.getStaticStrides(), ShapedType::kDynamic);
}

std::optional<ConstantTensor> ConstantCones::compute(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  ConstantTensor result{
      type.getElementType(), llvm::to_vector(type.getShape()), {}};
  DenseElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant))) {
    for (Attribute number : constant.getValues<Attribute>())
      result.elements.push_back(getElement(number));
    return result;
  }
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  return TypeSwitch<Operation *, std::optional<ConstantTensor>>(op)
      .Case([&](tensor::ExtractSliceOp slice) -> std::optional<ConstantTensor> {
        std::optional<ConstantTensor> source;
        if (!isStatic(slice) || !(source = evaluateAll(slice.getSource())))
          return std::nullopt;
        visitSlice(source->shape, slice.getStaticOffsets(),
                   slice.getStaticSizes(), slice.getStaticStrides(),
                   [&](int64_t, int64_t outer) {
                     result.elements.push_back(source->elements[outer]);
                   });
        return result;
      })
      .Case([&](tensor::InsertSliceOp slice) -> std::optional<ConstantTensor> {
        std::optional<ConstantTensor> source;
        std::optional<ConstantTensor> dest;
        if (!isStatic(slice) || !(source = evaluateAll(slice.getSource())) ||
            !(dest = evaluateAll(slice.getDest())))
          return std::nullopt;
        visitSlice(dest->shape, slice.getStaticOffsets(),
                   slice.getStaticSizes(), slice.getStaticStrides(),
                   [&](int64_t inner, int64_t outer) {
                     dest->elements[outer] = source->elements[inner];
                   });
        return dest;
      })
      .Case([&](tensor::ConcatOp concat) -> std::optional<ConstantTensor> {
        result.elements.resize(getNumElements(result.shape, maxElements));
        SmallVector<int64_t> offsets(result.shape.size(), 0);
        SmallVector<int64_t> ones(result.shape.size(), 1);
        for (Value input : concat.getInputs()) {
          std::optional<ConstantTensor> source = evaluateAll(input);
          if (!source)
            return std::nullopt;
          visitSlice(result.shape, offsets, source->shape, ones,
                     [&](int64_t inner, int64_t outer) {
                       result.elements[outer] = source->elements[inner];
                     });
          offsets[concat.getDim()] += source->shape[concat.getDim()];
        }
        return result;
      })
      .Case([&](linalg::LinalgOp op) {
        return op.getNumReductionLoops() > 0 ? reduce(cast<OpResult>(value))
                                             : evaluateAll(value);
      })
      .Default([&](Operation *) { return evaluateAll(value); });
}

/// Reductions whose order does not matter.
std::optional<ConstantTensor> ConstantCones::reduce(OpResult value) {
  auto op = cast<linalg::LinalgOp>(value.getOwner());
  OpOperand *init = op.getDpsInitOperand(value.getResultNumber());
  Operation *combine = op.getMatchingYieldValue(init)->get().getDefiningOp();
  if (!combine || combine->getBlock() != op.getBlock() ||
      !isa<arith::AddIOp, arith::MulIOp, arith::AndIOp, arith::OrIOp,
           arith::MaxSIOp, arith::MinSIOp, arith::MaxUIOp, arith::MinUIOp,
           arith::MaximumFOp, arith::MinimumFOp>(combine))
    return std::nullopt;
  BlockArgument sum = op.getMatchingBlockArgument(init);
  unsigned other = combine->getOperand(0) == sum ? 1 : 0;
  if (combine->getOperand(1 - other) != sum ||
      combine->getOperand(other) == sum)
    return std::nullopt;
  AccessTrace trace;
  Access result = trace.addAccess(value);
  auto loops = trace.getLoops(op, value.getResultNumber(), result.indices);
  std::optional<ConstantTensor> total = evaluateAll(init->get());
  if (!loops || !total)
    return std::nullopt;
  // Reduced loops inside, those of the result outside.
  IndexLists grid = result.indices;
  int64_t inner = 1;
  SmallVector<unsigned> reduced;
  op.getReductionDims(reduced);
  for (unsigned loop : reduced) {
    grid.push_back((*loops)[loop]);
    inner *= trace.getExtent((*loops)[loop]);
  }
  std::optional<ConstantTensor> terms =
      compute(trace, {combine->getOperand(other), *loops}, grid);
  ColumnFunction function = getColumnFunction(combine);
  if (!terms || !function)
    return std::nullopt;
  Column term(total->elements.size());
  Column next(term.size());
  for (int64_t k : llvm::seq(inner)) {
    for (auto [row, element] : llvm::enumerate(term))
      element = terms->elements[row * inner + k];
    if (!function({&total->elements, &term}, next))
      return std::nullopt;
    std::swap(total->elements, next);
  }
  return total;
}
