//===- ExtentRules.cpp - Extents that go together -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/ExtentRules.h"
#include "ExtentRuleBuilder.h"
#include "VisitAttnOp.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace fovea;

namespace {
/// The rules of each operation.
class Rules : ExtentRuleBuilder {
public:
  using ExtentRuleBuilder::ExtentRuleBuilder;

  void add(attn::DenseOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()};
    addAttention(query, key, {"value", op.getValue()});
    addDestinations(query, op.getOutput(), op.getLse());
    addTerms(query, key, {"log_weight", op.getLogWeight()},
             {"bias", op.getBias()});
  }

  void add(attn::StreamOp op) {
    Named query = {"query", op.getQuery()};
    Named firstValues = {"values of source 0", op.getValues().front()};
    for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
      auto name = [&, index = index](StringRef what) {
        return llvm::formatv("{0} of source {1}", what, index).str();
      };
      Named keys = {name("keys"), source.keys};
      Named values = {name("values"), source.values};
      Named rows = keys;
      if (source.codes) {
        rows = {name("codes"), source.codes};
        addEqual(rows, 0, query, 0);
        addEqual(rows, 1, values, 1);
      }
      addBroadcast(keys, 0, query, 0);
      addEqual(values, 0, query, 0);
      addMultiple(query, 1, values, 1);
      addBroadcast(keys, 1, values, 1);
      addEqual(values, source.hasValueBlocks() ? 3 : 2, rows, 2);
      addEqual(values, 1, firstValues, 1);
      if (source.logWeight) {
        Named weight = {name("log_weight"), source.logWeight};
        addBroadcast(weight, 0, query, 0);
        addBroadcast(weight, 1, values, 1);
        addBroadcast(weight, source.hasLogWeightBlocks() ? 3 : 2, rows, 2);
      }
      if (source.bias) {
        Named bias = {name("bias"), source.bias};
        for (unsigned dim = 0; dim < 3; ++dim)
          addBroadcast(bias, dim, query, dim);
        if (!source.attr.getHasLocalBias())
          addBroadcast(bias, 3, rows, 2);
      }
    }
    addDestinations(query, op.getOutput(), op.getLse());
  }

  void add(attn::SummarizeOp op) {
    Named input = {"input", op.getInput()}, output = {"output", op.getOutput()},
          weights = {"weights", op.getWeights()};
    addSummaries(output, input, op.getInterval(), op.getRank());
    addMultiple(input, 1, weights, 0);
    if (op.getBias())
      addEqual({"bias", op.getBias()}, 0, weights, 0);
  }

  void add(attn::FastMultipoleOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()};
    addAttention(query, key, {"value", op.getValue()});
    addEqual(key, 2, query, 2);
    addDestinations(query, op.getOutput(), op.getLse());
    addWeights(key, "key", op.getKeyWeights(), op.getKeyBiases());
    addWeights(key, "value", op.getValueWeights(), op.getValueBiases());
  }

  void add(attn::FastMultipoleLinearOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()};
    addAttention(query, key, {"value", op.getValue()});
    addEqual(key, 2, query, 2);
    addDestinations(query, op.getOutput(), /*lse=*/Value());
    addWeights(query, "query", op.getQueryWeights(), op.getQueryBiases());
    addWeights(key, "key", op.getKeyWeights(), op.getKeyBiases());
    addWeights(key, "value", op.getValueWeights(), op.getValueBiases());
  }

  void add(attn::StreamBackwardOp op) {
    Named query = {"query", op.getQuery()};
    Named firstKeys = {"keys of source 0", op.getKeys().front()};
    for (auto [index, source] : llvm::enumerate(op.getSourceList())) {
      auto name = [&, index = index](StringRef what) {
        return llvm::formatv("{0} of source {1}", what, index).str();
      };
      const attn::StreamSource &forward = source.forward;
      Named keys = {name("keys"), forward.keys};
      addAttention(query, keys, {name("values"), forward.values});
      addEqual(keys, 1, firstKeys, 1);
      addTerms(query, keys, {name("log_weight"), forward.logWeight},
               {name("bias"), forward.bias});
      addLike({name("d_keys"), source.keys}, keys);
      addLike({name("d_values"), source.values},
              {name("values"), forward.values});
      addLike({name("d_log_weight"), source.logWeight},
              {name("log_weight"), forward.logWeight});
      addLike({name("d_bias"), source.bias}, {name("bias"), forward.bias});
    }
    addGradients(query, op.getOutput(), op.getLse(), op.getDOutput(),
                 op.getDLse(), op.getDQuery());
  }

  void add(attn::DenseBackwardOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()},
          value = {"value", op.getValue()}, bias = {"bias", op.getBias()},
          logWeight = {"log_weight", op.getLogWeight()};
    addAttention(query, key, value);
    addTerms(query, key, logWeight, bias);
    addGradients(query, op.getOutput(), op.getLse(), op.getDOutput(),
                 op.getDLse(), op.getDQuery());
    addLike({"d_key", op.getDKey()}, key);
    addLike({"d_value", op.getDValue()}, value);
    addLike({"d_log_weight", op.getDLogWeight()}, logWeight);
    addLike({"d_bias", op.getDBias()}, bias);
  }

  void add(attn::SummarizeBackwardOp op) {
    Named input = {"input", op.getInput()},
          output = {"d_output", op.getDOutput()},
          weights = {"weights", op.getWeights()};
    addSummaries(output, input, op.getInterval(), op.getRank());
    addMultiple(input, 1, weights, 0);
    addLike({"d_input", op.getDInput()}, input);
  }

  void add(attn::FastMultipoleBackwardOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()};
    addMultipole(op);
    addGradients(query, op.getOutput(), op.getLse(), op.getDOutput(),
                 op.getDLse(), op.getDQuery());
    addWeights(key, "key", op.getKeyWeights(), op.getKeyBiases());
    addWeights(key, "value", op.getValueWeights(), op.getValueBiases());
  }

  void add(attn::FastMultipoleLinearBackwardOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()};
    addMultipole(op);
    addGradients(query, /*output=*/Value(), /*lse=*/Value(), op.getDOutput(),
                 /*dLse=*/Value(), op.getDQuery());
    addWeights(query, "query", op.getQueryWeights(), op.getQueryBiases());
    addWeights(key, "key", op.getKeyWeights(), op.getKeyBiases());
    addWeights(key, "value", op.getValueWeights(), op.getValueBiases());
  }

  void add(attn::QuantizeOp op) {
    Named key = {"key", op.getKey()};
    addBroadcast({"codebook", op.getCodebook()}, 0, key, 1);
    addShape({"codes", op.getCodes()}, key, {0, 1, 2});
    if (op.getQuantized())
      addShape({"quantized", op.getQuantized()}, key, {0, 1, 2});
  }

  void add(attn::CodebookAccumulateOp op) {
    addTokensAndState({"codes", op.getCodes()}, {"values", op.getValues()},
                      {"mean", op.getMean()}, {"count", op.getCount()});
  }

  void add(attn::CodebookScanOp op) {
    Named initial = {"initial_mean", op.getInitialMean()};
    Named mean = {"mean", op.getMean()};
    addTokensAndState({"codes", op.getCodes()}, {"values", op.getValues()},
                      initial, {"initial_count", op.getInitialCount()});
    addEqual(mean, 0, initial, 0);
    addEqual(mean, 1, initial, 1);
    addEqual(mean, 3, initial, 2);
    addShape({"count", op.getCount()}, mean, {0, 1, 2, 3});
  }

  void add(attn::VQOp op) {
    addQuantized(op, op.getLse());
    addState(op, "state", op.getState());
    addState(op, "next_state", op.getNextState());
  }

  void add(attn::VQDecodeOp op) {
    addQuantized(op, /*lse=*/Value());
    addState(op, "state", op.getState());
  }

  void add(attn::VQBackwardOp op) {
    Named query = {"query", op.getQuery()}, value = {"value", op.getValue()};
    addQuantizedInputs(op);
    if (op.getOutput())
      addDestinations(query, op.getOutput(), op.getLse());
    addShape({"d_output", op.getDOutput()}, query, {0, 1, 2});
    if (op.getDLse())
      addShape({"d_lse", op.getDLse()}, query, {0, 1, 2});
    addShape({"d_query", op.getDQuery()}, query, {0, 1, 2});
    addShape({"d_key", op.getDKey()}, value, {0, 1, 2});
    addShape({"d_value", op.getDValue()}, value, {0, 1, 2});
    if (op.getDBias())
      addShape({"d_bias", op.getDBias()}, {"bias", op.getBias()}, {0, 1, 2});
    addState(op, "state", op.getState());
    addStateGradient(op, "d_next_state", op.getDNextState());
    addStateGradient(op, "d_state", op.getDState());
  }

  void add(attn::LogCountOp op) {
    unsigned rank = cast<ShapedType>(op.getCount().getType()).getRank();
    addShape({"log_weight", op.getLogWeight()}, {"count", op.getCount()},
             llvm::to_vector(llvm::seq(rank)));
  }

  void add(attn::CodebookUpdateOp op) {
    Named key = {"key", op.getKey()}, codebook = {"codebook", op.getCodebook()};
    addBroadcast(codebook, 0, key, 1);
    addShape({"codes", op.getCodes()}, key, {0, 1, 2});
    addShape({"sums", op.getSums()}, codebook, {0, 1});
    addShape({"counts", op.getCounts()}, codebook, {0, 1});
  }

  void add(attn::ConvApplyOp op) {
    addBases(op);
    addLike({"recomputed", op.getRecomputed()}, {"basis", op.getBasis()});
  }

  void add(attn::ConvApplyBackwardOp op) {
    addBases(op);
    addLike({"d_output", op.getDOutput()}, {"output", op.getOutput()});
    addLike({"d_basis", op.getDBasis()}, {"basis", op.getBasis()});
    addLike({"d_value", op.getDValue()}, {"value", op.getValue()});
  }

  void add(attn::ConvRecoverOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()},
          basis = {"basis", op.getBasis()};
    addShape(key, query, {0, 2});
    addMultiple(query, 1, key, 1);
    addShape(basis, query, {0, 1});
    addEqual(basis, 3, query, 2);
    addShape({"sizes", op.getSizes()}, basis, {0, 1, 2});
    addLike({"found", op.getFound()}, query);
  }

  void add(attn::ConvRecoverBackwardOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()},
          dBasis = {"d_basis", op.getDBasis()};
    addShape(key, query, {0, 2});
    addMultiple(query, 1, key, 1);
    addShape(dBasis, query, {0, 1});
    addEqual(dBasis, 3, query, 2);
    addShape({"sizes", op.getSizes()}, dBasis, {0, 1, 2});
    addLike({"d_query", op.getDQuery()}, query);
    addLike({"d_key", op.getDKey()}, key);
  }

  void add(attn::ConvBackwardOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()},
          value = {"value", op.getValue()};
    addAttention(query, key, value);
    addEqual(key, 2, query, 2);
    addGradients(query, op.getOutput(), /*lse=*/Value(), op.getDOutput(),
                 /*dLse=*/Value(), op.getDQuery());
    addLike({"d_key", op.getDKey()}, key);
    addLike({"d_value", op.getDValue()}, value);
  }

  void add(attn::ConvOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()};
    addAttention(query, key, {"value", op.getValue()});
    addEqual(key, 2, query, 2);
    addDestinations(query, op.getOutput(), /*lse=*/Value());
    addLike({"found", op.getFound()}, query);
    addLike({"recomputed", op.getRecomputed()}, query);
  }

  void add(attn::RopeOp op) {
    addTurned(op.getPositions(), {"input", op.getInput()},
              {"output", op.getOutput()});
  }

  void add(attn::RopeBackwardOp op) {
    addTurned(op.getPositions(), {"d_output", op.getDOutput()},
              {"d_input", op.getDInput()});
  }

  void add(attn::PolynomialFeaturesOp op) {
    addShape({"output", op.getOutput()}, {"input", op.getInput()}, {0, 1, 2});
  }

  void add(attn::PolynomialFeaturesBackwardOp op) {
    addShape({"d_output", op.getDOutput()}, {"input", op.getInput()},
             {0, 1, 2});
    addShape({"d_input", op.getDInput()}, {"input", op.getInput()}, {0, 1, 2});
  }

  void add(attn::LowRankOp op) { addLowRank(op); }

  void add(attn::LowRankBackwardOp op) {
    addLowRank(op);
    Named u1 = {"u1", op.getU1()}, u2 = {"u2", op.getU2()};
    addShape({"d_output", op.getDOutput()}, u1, {0, 1, 2});
    addShape({"d_u1", op.getDU1()}, u1, {0, 1, 2});
    addShape({"d_u2", op.getDU2()}, u2, {0, 1, 2});
    addShape({"d_value", op.getDValue()}, u2, {0, 1, 2});
  }

  template <typename OpTy> void addLowRank(OpTy op) {
    Named u1 = {"u1", op.getU1()}, u2 = {"u2", op.getU2()};
    addEqual(u2, 0, u1, 0);
    addMultiple(u1, 1, u2, 1);
    addShape({"value", op.getValue()}, u2, {0, 1, 2});
    addShape({"output", op.getOutput()}, u1, {0, 1, 2});
    attn::RowMask mask = op.getMask();
    for (auto [name, part] : llvm::zip_equal(
             attn::LowRankOp::getPartNames(mask), op.getMaskParts())) {
      addBroadcast({name.str(), part}, 0, u1, 0);
      addBroadcast({name.str(), part}, 1, u1, 1);
    }
    bool isByColumn = mask == attn::RowMask::DistinctColumns;
    OperandRange parts = op.getMaskParts();
    if (!parts.empty())
      addEqual({attn::LowRankOp::getPartNames(mask)[0].str(), parts[0]}, 2,
               isByColumn ? u2 : u1, 2);
    if (mask == attn::RowMask::RowInterval)
      addEqual({"last", parts[1]}, 2, u1, 2);
    if (isByColumn || mask == attn::RowMask::DistinctRows)
      addEqual({attn::LowRankOp::getPartNames(mask)[1].str(), parts[1]}, 3,
               isByColumn ? u1 : u2, 2);
  }

  void add(attn::TreeBuildOp op) {
    Named input = {"input", op.getInput()};
    addEqual({"tree", op.getTree()}, 0, input, 0);
    if (op.getMask())
      addEqual({"mask", op.getMask()}, 0, input, 0);
    if (op.getCounts())
      addEqual({"counts", op.getCounts()}, 0, input, 0);
  }

  void add(attn::TreeFetchOp op) {
    Named rows = {"rows", op.getRows()};
    addNodes({"tree", op.getTree()}, rows, op.getLevel(), op.getIndex(),
             op.getCounts());
    if (op.getLogWeight())
      addNodeShape({"log_weight", op.getLogWeight()}, rows);
  }

  void add(attn::TreeUpdateOp op) {
    addNodes({"tree", op.getTree()}, {"rows", op.getRows()}, op.getLevel(),
             op.getIndex(), op.getCounts());
  }

  void add(attn::TreeMaterializeOp op) {
    addEqual({"output", op.getOutput()}, 0, {"tree", op.getTree()}, 0);
  }

  void add(attn::TreeSplitOp op) {
    Named newLevel = {"new_level", op.getNewLevel()};
    for (auto [name, operand] :
         {std::pair<StringRef, Value>{"new_index", op.getNewIndex()},
          {"children", op.getChildren()},
          {"scores", op.getScores()},
          {"candidates", op.getCandidates()},
          {"level", op.getLevel()},
          {"index", op.getIndex()},
          {"counts", op.getCounts()}})
      if (operand)
        addEqual({name.str(), operand}, 0, newLevel, 0);
    if (op.getScores() && op.getCandidates())
      addEqual({"scores", op.getScores()}, 1,
               {"candidates", op.getCandidates()}, 1);
  }

  void add(attn::TreeScoreOp op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()},
          output = {"output", op.getOutput()};
    addEqual(key, 0, query, 0);
    addEqual(output, 0, query, 0);
    addEqual(output, 1, key, 2);
    if (op.getLogWeight())
      addNodeShape({"log_weight", op.getLogWeight()}, output);
  }

private:
  template <typename OpTy> void addBases(OpTy op) {
    Named basis = {"basis", op.getBasis()}, value = {"value", op.getValue()},
          output = {"output", op.getOutput()};
    addShape({"sizes", op.getSizes()}, basis, {0, 1, 2});
    addEqual(value, 0, basis, 0);
    addMultiple(basis, 1, value, 1);
    addEqual(value, 2, basis, 3);
    addShape(output, basis, {0, 1});
    addEqual(output, 2, value, 2);
  }

  void addTurned(Value positions, const Named &input, const Named &output) {
    for (unsigned dim = 0; dim < 3; ++dim)
      addBroadcast({"positions", positions}, dim, input, dim);
    addShape(output, input, {0, 1, 2});
  }

  template <typename OpTy> void addMultipole(OpTy op) {
    Named query = {"query", op.getQuery()}, key = {"key", op.getKey()},
          value = {"value", op.getValue()};
    addAttention(query, key, value);
    addEqual(key, 2, query, 2);
    addLike({"d_key", op.getDKey()}, key);
    addLike({"d_value", op.getDValue()}, value);
  }

  void addNodes(const Named &tree, const Named &rows, Value level, Value index,
                Value counts) {
    addEqual(rows, 0, tree, 0);
    addNodeShape({"level", level}, rows);
    addNodeShape({"index", index}, rows);
    if (counts)
      addEqual({"counts", counts}, 0, tree, 0);
  }

  void addTokensAndState(const Named &codes, const Named &values,
                         const Named &mean, const Named &count) {
    addShape(codes, values, {0, 1, 2});
    addShape(mean, values, {0, 1});
    addShape(count, mean, {0, 1, 2});
  }

  template <typename OpTy> void addQuantizedInputs(OpTy op) {
    Named query = {"query", op.getQuery()}, value = {"value", op.getValue()};
    addShape(value, query, {0, 2});
    addMultiple(query, 1, value, 1);
    addShape({"codes", op.getCodes()}, value, {0, 1, 2});
    addBroadcast({"codebook", op.getCodebook()}, 0, value, 1);
    if (op.getBias())
      for (unsigned dim = 0; dim < 3; ++dim)
        addBroadcast({"bias", op.getBias()}, dim, query, dim);
  }

  template <typename OpTy> void addQuantized(OpTy op, Value lse) {
    addQuantizedInputs(op);
    addDestinations({"query", op.getQuery()}, op.getOutput(), lse);
  }

  /// Batch and heads of the parts of a state.
  template <typename OpTy>
  void addState(OpTy op, StringRef name, ValueRange state) {
    addStateParts(op, name, {"mean", "count", "kept codes", "kept values"},
                  state);
  }

  void addStateGradient(attn::VQBackwardOp op, StringRef name,
                        ValueRange gradients) {
    addStateParts(op, name, {"mean", "kept keys", "kept values"}, gradients);
  }

  template <typename OpTy>
  void addStateParts(OpTy op, StringRef name, ArrayRef<StringRef> parts,
                     ValueRange operands) {
    for (auto [part, operand] : llvm::zip(parts, operands))
      addShape({llvm::formatv("{0} of {1}", part, name).str(), operand},
               {"value", op.getValue()}, {0, 1});
  }
};
} // namespace

void fovea::forEachExtentRule(Operation *op,
                              function_ref<void(const ExtentRule &)> visit) {
  Rules rules(visit);
  visitAttnOp(op, [&](auto attention) -> decltype(rules.add(attention)) {
    rules.add(attention);
  });
}
