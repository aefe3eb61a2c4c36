//===- AttentionOfModels.cpp - Attention operations of ONNX and PyTorch ---===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operands are tensors, or values of a type of torch-mlir that are made of
// tensors. Heads are a dimension, or a part of the last one.
//
//===----------------------------------------------------------------------===//

#include "AttentionParts.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace fovea;
using namespace fovea::attn::detail;

/// Of data types as ONNX numbers them.
static constexpr int64_t kONNXDouble = 11;
/// The operand of ONNX that may be of any type.
static constexpr unsigned kMask = 3;

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

/// The tensor that the value is, or is made of.
static Value getTensor(Value value) {
  if (isa<RankedTensorType>(value.getType()))
    return value;
  Operation *op = value.getDefiningOp();
  if (op && op->getNumOperands() == 1 &&
      isa<RankedTensorType>(op->getOperand(0).getType()) &&
      (op->getName().getStringRef() == "torch_c.from_builtin_tensor" ||
       isa<UnrealizedConversionCastOp>(op)))
    return op->getOperand(0);
  return Value();
}

/// Whether an operand that may be left out is.
static bool isNone(Value value) {
  auto opaque = dyn_cast<OpaqueType>(value.getType());
  return isa<NoneType>(value.getType()) ||
         (opaque && opaque.getDialectNamespace() == "torch" &&
          opaque.getTypeData() == "none");
}

/// The number that a scalar is, of arith or of torch-mlir.
static Attribute getConstant(Value value) {
  Attribute found;
  Operation *op = value.getDefiningOp();
  if (op && op->getName().getStringRef().starts_with("torch.constant."))
    return op->getAttr("value");
  if (matchPattern(value, m_Constant(&found)))
    return found;
  return Attribute();
}

static std::optional<double> getReal(Attribute number) {
  if (auto real = dyn_cast_or_null<FloatAttr>(number))
    return real.getValueAsDouble();
  if (auto integer = dyn_cast_or_null<IntegerAttr>(number))
    return integer.getValue().getSExtValue();
  return std::nullopt;
}

static std::optional<bool> getBool(Value value) {
  if (auto number = dyn_cast_or_null<IntegerAttr>(getConstant(value)))
    return !number.getValue().isZero();
  return std::nullopt;
}

static int64_t getRank(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getRank();
}

static int64_t getSize(Value tensor, unsigned dim) {
  return cast<RankedTensorType>(tensor.getType()).getDimSize(dim);
}

/// Writes dimension `dim` as several, of these extents.
static Value expand(ImplicitLocOpBuilder &b, Value tensor, unsigned dim,
                    ArrayRef<int64_t> extents) {
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.erase(shape.begin() + dim);
  shape.insert(shape.begin() + dim, extents.begin(), extents.end());
  SmallVector<ReassociationIndices> groups;
  int64_t next = 0;
  for (int64_t source : llvm::seq(type.getRank())) {
    int64_t count = source == dim ? extents.size() : 1;
    groups.emplace_back(llvm::to_vector(llvm::seq(next, next + count)));
    next += count;
  }
  return tensor::ExpandShapeOp::create(b, type.clone(shape), tensor, groups);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

namespace {
/// Numbers of loops: those of `batch` dimensions, of which the last may be
/// heads of keys, and then these.
struct LoopNumbers {
  explicit LoopNumbers(unsigned batch) : batch(batch) {}
  unsigned heads() const { return batch - 1; }
  unsigned rows() const { return batch; }
  unsigned depth() const { return batch + 1; }
  unsigned keys() const { return batch + 2; }
  unsigned width() const { return batch + 3; }
  /// Heads that share those of keys.
  unsigned group() const { return batch + 4; }
  SmallVector<unsigned> with(ArrayRef<unsigned> last) const {
    SmallVector<unsigned> loops = llvm::to_vector(llvm::seq(batch));
    llvm::append_range(loops, last);
    return loops;
  }

  unsigned batch;
};
} // namespace

/// Writes heads, dimension `dim`, as those of keys and those that share them.
static LoopOperand splitHeads(ImplicitLocOpBuilder &b, LoopOperand operand,
                              unsigned dim, int64_t sharing,
                              const LoopNumbers &loops) {
  if (sharing == 1)
    return operand;
  int64_t heads = getSize(operand.value, dim);
  operand.value = expand(b, operand.value, dim, {heads / sharing, sharing});
  operand.loops.insert(operand.loops.begin() + dim + 1, loops.group());
  return operand;
}

/// A mask whose dimensions are the last of scores, or are 1 and repeated.
static Reason readMask(AttentionParts &parts, Value operand, int64_t heads,
                       int64_t sharing, const LoopNumbers &loops) {
  Value mask = getTensor(operand);
  if (!mask)
    return "the mask is no tensor";
  SmallVector<unsigned> scores = loops.with({loops.rows(), loops.keys()});
  if (getRank(mask) > int64_t(scores.size()))
    return "the mask has more dimensions than the scores";
  parts.mask = LoopOperand{
      mask, SmallVector<unsigned>(ArrayRef(scores).take_back(getRank(mask)))};
  std::optional<unsigned> headDim;
  for (auto [dim, loop] : llvm::enumerate(parts.mask->loops)) {
    if (getSize(mask, dim) == 1)
      loop = AttentionParts::kRepeated;
    else if (loop == loops.heads() && sharing != 1)
      headDim = dim;
  }
  if (headDim && getSize(mask, *headDim) != heads)
    return "the mask has other heads than the queries";
  if (headDim)
    parts.mask = splitHeads(parts.b, *parts.mask, *headDim, sharing, loops);
  return std::nullopt;
}

/// Of queries that share the heads of keys; or why they do not.
static Reason getSharing(int64_t heads, int64_t keyHeads, int64_t valueHeads,
                         int64_t &sharing) {
  if (ShapedType::isDynamic(heads) || ShapedType::isDynamic(keyHeads))
    return "the number of heads is not known";
  if (keyHeads != valueHeads)
    return "keys and values have other heads";
  if (keyHeads <= 0 || heads <= 0 || heads % keyHeads != 0)
    return "the heads of queries are no multiple of those of keys";
  sharing = heads / keyHeads;
  return std::nullopt;
}

/// The scale where none is given.
static Reason readWidth(AttentionParts &parts, int64_t width) {
  if (ShapedType::isDynamic(width) || width == 0)
    return "the width of heads, of which the scale is made, is not known";
  parts.factor = 1 / std::sqrt(double(width));
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// PyTorch
//===----------------------------------------------------------------------===//

/// Tensors of the same rank, by the first three operands.
static Reason getQueriesKeysValues(Operation *op,
                                   SmallVectorImpl<Value> &tensors) {
  for (Value operand : op->getOperands().take_front(3)) {
    tensors.push_back(getTensor(operand));
    if (!tensors.back())
      return "queries, keys or values are no tensor";
    if (getRank(tensors.back()) < 2 ||
        getRank(tensors.back()) != getRank(tensors.front()))
      return "queries, keys and values have other ranks";
  }
  return std::nullopt;
}

Reason AttentionParts::readTorch() {
  unsigned count = op->getNumOperands();
  // Older modules have no grouped heads.
  if ((count != 7 && count != 8) || op->getNumResults() != 1)
    return "needed queries, keys, values, a mask, a probability of dropout, "
           "whether it is causal, a scale, and whether heads are grouped";
  std::optional<bool> isCausal = getBool(op->getOperand(5));
  std::optional<bool> isGrouped =
      count == 8 ? getBool(op->getOperand(7)) : std::optional(false);
  if (getReal(getConstant(op->getOperand(4))) != 0.0)
    return "dropout_p is no constant 0";
  if (!isCausal)
    return "is_causal is no constant";
  if (!isGrouped)
    return "enable_gqa is no constant";
  SmallVector<Value, 3> tensors;
  if (Reason reason = getQueriesKeysValues(op, tensors))
    return reason;
  unsigned rank = getRank(tensors.front());
  int64_t heads = rank > 2 ? getSize(tensors[0], rank - 3) : 1;
  int64_t sharing = 1;
  if (*isGrouped && rank > 2)
    if (Reason reason = getSharing(heads, getSize(tensors[1], rank - 3),
                                   getSize(tensors[2], rank - 3), sharing))
      return reason;
  if (std::optional<double> given = getReal(getConstant(op->getOperand(6))))
    factor = *given;
  else if (!isNone(op->getOperand(6)))
    return "scale is no constant";
  else if (Reason reason = readWidth(*this, getSize(tensors[0], rank - 1)))
    return reason;

  LoopNumbers loops(rank - 2);
  query = splitHeads(b, {tensors[0], loops.with({loops.rows(), loops.depth()})},
                     rank - 3, sharing, loops);
  key = {tensors[1], loops.with({loops.keys(), loops.depth()})};
  value = {tensors[2], loops.with({loops.keys(), loops.width()})};
  if (!isNone(op->getOperand(3)))
    if (Reason reason =
            readMask(*this, op->getOperand(3), heads, sharing, loops))
      return reason;
  rows = loops.rows();
  firstPosition = b.getIndexAttr(0);
  if (*isCausal)
    right = 0;
  isGuarded = mask.has_value();
  isStrict = true;
  SmallVector<unsigned> order = query.loops;
  order.back() = loops.width();
  setResult(order, rank - 3, order.size() + 1 - rank);
  return checkResults();
}

//===----------------------------------------------------------------------===//
// ONNX
//===----------------------------------------------------------------------===//

namespace {
/// Attributes of an operation of ONNX, as onnx-mlir or torch-mlir write them.
class ONNXAttributes {
public:
  explicit ONNXAttributes(Operation *op) {
    for (NamedAttribute attribute : op->getAttrDictionary()) {
      StringRef name = attribute.getName();
      name.consume_front("torch.onnx.");
      found[name] = attribute.getValue();
    }
  }

  /// The first that is not among what is known.
  Reason check() const {
    static const llvm::StringSet<> known = {"is_causal",
                                            "kv_num_heads",
                                            "left_window_size",
                                            "name",
                                            "onnx_node_name",
                                            "operandSegmentSizes",
                                            "q_num_heads",
                                            "qk_matmul_output_mode",
                                            "resultSegmentSizes",
                                            "right_window_size",
                                            "scale",
                                            "softcap",
                                            "softmax_precision"};
    for (const auto &entry : found) {
      bool isRight = known.contains(entry.getKey());
      if (isRight &&
          (entry.getKey().ends_with("heads") ||
           entry.getKey().ends_with("_size") || entry.getKey() == "is_causal" ||
           entry.getKey() == "softmax_precision"))
        isRight = isa<IntegerAttr>(entry.second);
      else if (entry.getKey() == "scale" || entry.getKey() == "softcap")
        isRight = isa<FloatAttr>(entry.second);
      if (!isRight)
        return llvm::formatv("its attribute '{0}' is not known", entry.getKey())
            .str();
    }
    return std::nullopt;
  }

  bool has(StringRef name) const { return found.contains(name); }
  double get(StringRef name, double otherwise) const {
    return getReal(found.lookup(name)).value_or(otherwise);
  }

private:
  llvm::StringMap<Attribute> found;
};

} // namespace

/// Keys or values as [B,G,M,D], with those of before in front.
static Value getKeys(ImplicitLocOpBuilder &b, Value tensor, int64_t heads,
                     Value past) {
  if (getRank(tensor) == 3) {
    int64_t width = getSize(tensor, 2) / heads;
    tensor = expand(b, tensor, 2, {heads, width});
    SmallVector<OpFoldResult> sizes =
        tensor::getMixedSizes(b, b.getLoc(), tensor);
    std::swap(sizes[1], sizes[2]);
    Value empty =
        tensor::EmptyOp::create(b, sizes, getElementTypeOrSelf(tensor));
    tensor = linalg::TransposeOp::create(b, tensor, empty,
                                         ArrayRef<int64_t>{0, 2, 1, 3})
                 ->getResult(0);
  }
  if (!past)
    return tensor;
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<int64_t> shape(type.getShape());
  int64_t before = getSize(past, 2);
  shape[2] = ShapedType::isDynamic(before) || ShapedType::isDynamic(shape[2])
                 ? ShapedType::kDynamic
                 : before + shape[2];
  return tensor::ConcatOp::create(b, type.clone(shape), /*dim=*/2,
                                  ValueRange{past, tensor});
}

/// What positions the operation's masks are about.
static Reason readBounds(AttentionParts &parts, const ONNXAttributes &given,
                         Value past, Value lengths) {
  int64_t left = given.get("left_window_size", -1);
  int64_t right = given.get("right_window_size", -1);
  if (left >= 0)
    parts.left = left;
  if (right >= 0)
    parts.right = right;
  if (given.get("is_causal", 0) != 0)
    parts.right = 0;
  parts.firstPosition =
      past ? tensor::getMixedSize(parts.b, parts.b.getLoc(), past, 2)
           : OpFoldResult(parts.b.getIndexAttr(0));
  if (lengths) {
    auto type = dyn_cast<RankedTensorType>(lengths.getType());
    if (!type || type.getRank() != 1 ||
        !type.getElementType().isSignlessInteger())
      return "the lengths are no tensor of an integer for each batch entry";
    parts.lengths = LoopOperand{lengths, {0}};
  }
  return std::nullopt;
}

namespace {
/// The operands of an attention of ONNX, those that are left out null.
struct ONNXInputs {
  Value q, k, v, pastKey, pastValue, lengths;
  int64_t rank, heads, keyHeads, sharing = 1;

  Reason readTensors(Operation *op);
  Reason readHeads(const ONNXAttributes &given);
  Reason checkPast() const;
  /// Of a query.
  int64_t getWidth() const {
    return rank == 4 ? getSize(q, 3) : getSize(q, 2) / heads;
  }
};
} // namespace

Reason ONNXInputs::readTensors(Operation *op) {
  if (op->getNumOperands() < 3 || op->getNumOperands() > 7 ||
      op->getNumResults() < 1 || op->getNumResults() > 4)
    return "needed Q, K, V, and four other operands at most";
  Value *tensors[] = {&q, &k, &v, nullptr, &pastKey, &pastValue, &lengths};
  for (auto [number, operand] : llvm::enumerate(op->getOperands())) {
    if (number == kMask || isNone(operand))
      continue;
    *tensors[number] = getTensor(operand);
    if (!*tensors[number])
      return llvm::formatv("operand {0} is no tensor", number).str();
  }
  if (!q || !k || !v)
    return "needed Q, K and V";
  rank = getRank(q);
  if ((rank != 3 && rank != 4) || getRank(k) != rank || getRank(v) != rank)
    return "needed Q, K and V of three or four dimensions each";
  return std::nullopt;
}

Reason ONNXInputs::readHeads(const ONNXAttributes &given) {
  heads = rank == 4 ? getSize(q, 1) : given.get("q_num_heads", 0);
  keyHeads = rank == 4 ? getSize(k, 1) : given.get("kv_num_heads", 0);
  int64_t valueHeads = rank == 4 ? getSize(v, 1) : keyHeads;
  if (Reason reason = getSharing(heads, keyHeads, valueHeads, sharing))
    return reason;
  if (rank == 4)
    return std::nullopt;
  for (auto [tensor, parts] :
       {std::pair(q, heads), std::pair(k, keyHeads), std::pair(v, keyHeads)})
    if (ShapedType::isDynamic(getSize(tensor, 2)) ||
        getSize(tensor, 2) % parts != 0)
      return "the last dimension is no known multiple of the heads";
  return std::nullopt;
}

Reason ONNXInputs::checkPast() const {
  if (!pastKey != !pastValue)
    return "it has either keys or values of before, needed both";
  if (pastKey && lengths)
    return "it has both keys of before and lengths";
  if (!pastKey)
    return std::nullopt;
  for (auto [past, now] : {std::pair(pastKey, k), std::pair(pastValue, v)}) {
    int64_t width = getSize(now, rank - 1);
    if (getRank(past) != 4 || getSize(past, 0) != getSize(now, 0) ||
        getSize(past, 1) != keyHeads ||
        getSize(past, 3) != (rank == 4 ? width : width / keyHeads) ||
        getElementTypeOrSelf(past) != getElementTypeOrSelf(now))
      return "keys or values of before have another shape or type than those "
             "of now";
  }
  return std::nullopt;
}

Reason AttentionParts::readONNX() {
  ONNXAttributes given(op);
  ONNXInputs inputs;
  if (Reason reason = given.check())
    return reason;
  if (Reason reason = inputs.readTensors(op))
    return reason;
  if (Reason reason = inputs.readHeads(given))
    return reason;
  if (Reason reason = inputs.checkPast())
    return reason;
  if (op->getNumResults() == 4 && !op->getResult(3).use_empty())
    return "its fourth result, the scores, is used";
  if (given.get("softmax_precision", 1) == kONNXDouble &&
      !getElementTypeOrSelf(inputs.q).isF64())
    return "softmax_precision is that of f64, needed that of the operands";
  if (given.has("scale"))
    factor = given.get("scale", 1);
  else if (Reason reason = readWidth(*this, inputs.getWidth()))
    return reason;
  softCap = given.get("softcap", 0);
  if (Reason reason = readBounds(*this, given, inputs.pastKey, inputs.lengths))
    return reason;

  LoopNumbers loops(2);
  auto [q, sharing] = std::pair(inputs.q, inputs.sharing);
  unsigned headDim = inputs.rank == 4 ? 1 : 2;
  query = {q, {0, loops.heads(), loops.rows(), loops.depth()}};
  if (inputs.rank == 3)
    query = {expand(b, q, 2, {inputs.heads, inputs.getWidth()}),
             {0, loops.rows(), loops.heads(), loops.depth()}};
  query = splitHeads(b, query, headDim, sharing, loops);
  key = {getKeys(b, inputs.k, inputs.keyHeads, inputs.pastKey),
         {0, loops.heads(), loops.keys(), loops.depth()}};
  value = {getKeys(b, inputs.v, inputs.keyHeads, inputs.pastValue),
           {0, loops.heads(), loops.keys(), loops.width()}};
  if (op->getNumOperands() > kMask && !isNone(op->getOperand(kMask)))
    if (Reason reason = readMask(*this, op->getOperand(kMask), inputs.heads,
                                 sharing, loops))
      return reason;
  rows = loops.rows();
  isGuarded = mask || lengths || left;
  isStrict = true;
  // As the queries are.
  SmallVector<unsigned> order = query.loops;
  order.back() = loops.width();
  setResult(order, headDim, order.size() + 1 - inputs.rank);
  if (op->getNumResults() > 1)
    others.push_back({1, key.value});
  if (op->getNumResults() > 2)
    others.push_back({2, value.value});
  return checkResults();
}
