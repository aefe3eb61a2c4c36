//===- Attention.h - An attention found in linalg -*- C++ -*- ===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LINALGTOATTN_ATTENTION_H
#define FOVEA_LIB_CONVERSION_LINALGTOATTN_ATTENTION_H

#include "fovea/Analysis/AccessTrace.h"
#include "fovea/Analysis/ConstantCone.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Support/FullyMasked.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <string>

namespace fovea::attn::detail {

class AccessWriter;

/// How far a match has got.
struct Progress {
  /// The quotient of a soft-max, once there is one.
  mlir::Operation *softmax = nullptr;
  /// Where the match ended, and why: of several attempts the longest.
  mlir::Operation *op = nullptr;
  std::string reason;
  unsigned depth = 0;

  /// Always none, which the caller returns.
  std::nullopt_t end(unsigned depth, mlir::Operation *op,
                     const llvm::Twine &reason);
};

/// What is worked with while matching one product.
struct MatchContext {
  AccessTrace &trace;
  ConstantCones &cones;
  Progress &progress;
  /// What of attention the target can compute.
  bool isForGPU;
};

/// A sum over products of two numbers, one of each input, onto zeros or onto
/// `init`.
struct Product {
  mlir::linalg::LinalgOp op;
  Access factors[2];
  Access init;
  /// The atoms of the reduced loops.
  AtomSet reduced;
};

/// The product that computes an element of a tensor; none if nothing of the
/// kind.
std::optional<Product> matchProduct(AccessTrace &trace, const Access &result);
/// Whether `op` is one for some element.
bool isProduct(mlir::linalg::LinalgOp op);

/// A number with all conversions between types of floating point left out.
Access stripCasts(AccessTrace &trace, Access access);

/// A number as a constant, neither zero nor infinite, times another.
struct ScaledNumber {
  double factor;
  Access number;
};
/// The operands of the operation that computes the number, if it is one.
std::optional<ScaledNumber> matchScaled(const MatchContext &context,
                                        const Access &number);

/// Whether the number depends on any of the atoms.
bool dependsOn(AccessTrace &trace, const Access &access, const AtomSet &set);

/// exp(scores) over the sum of it along `axis`.
struct Softmax {
  Access scores;
  AtomSet axis;
  /// The operation that divides, which stands for the whole.
  mlir::Operation *quotient;
  /// What the scores are multiplied by: ln 2 before exp2.
  double factor = 1;
  /// Whether a row of nothing but -inf is zeros.
  bool isGuarded = false;
  /// A score beside those of the axis, whose weight no product reads.
  std::optional<Access> sink = std::nullopt;
};

/// The soft-max that ends in the number. None if there is none; the
/// progress tells if a quotient of exponentials is not quite one.
std::optional<Softmax> matchSoftmax(const MatchContext &context,
                                    const Access &weights);

/// What is added to the scores, or hides them.
struct ScoreTerm {
  /// Floating point to add, or a truth value.
  Access number;
  mlir::Operation *op;
  /// What a number to add is multiplied by.
  double factor = 1;
  /// What replaces a score whose truth value is not `admits`, or is added to
  /// it; a number to add has none.
  std::optional<double> hidden;
  bool admits = true;
  bool replaces = false;
};

/// A step of a function of scores: the score, a number, or an operation on what
/// earlier steps give.
struct FunctionStep {
  enum class Kind { Score, Constant, Number, Operation };
  Kind kind;
  /// Of a constant, or what the score is multiplied by.
  double constant = 1;
  /// A number that is not known when compiling.
  Access number;
  mlir::Operation *op = nullptr;
  llvm::SmallVector<unsigned> operands;
};

/// What becomes of a scaled product of query and key before terms and masks:
/// `factor` times the last of the steps. No steps: nothing.
struct ScoreFunction {
  llvm::SmallVector<FunctionStep> steps;
  double factor = 1;

  explicit operator bool() const { return !steps.empty(); }
};

/// Integers of each query and each key: one is a key of the other where they
/// compare so, as documents of packed sequences are the same.
struct EntryCondition {
  Access query, key;
  mlir::arith::CmpIPredicate predicate;
};

/// How many keys each batch entry has: a number, and one more if `isLast`,
/// where the number is that of the last key.
struct KeyLengths {
  Access number;
  bool isLast;
};

/// The operands and properties of an attention, as accesses. Lists of atoms are
/// the dimensions of attn.dense, the most significant first.
struct Attention {
  mlir::linalg::LinalgOp op;
  Softmax softmax;
  Access query, key, value;
  /// The dimensions of the product's result.
  IndexLists result;
  /// Heads of keys, then those that share them.
  IndexList batch, keyHeads, sharedHeads;
  IndexList rows, columns, depth, width;
  double scale = 1;
  ScoreFunction function;
  llvm::SmallVector<ScoreTerm> terms;
  MaskAttr mask;
  std::optional<KeyLengths> lengths;
  llvm::SmallVector<EntryCondition> conditions;

  /// Whether there is something that only a region of scores says.
  bool hasRegion() const { return function || !conditions.empty(); }
  IndexList heads() const {
    IndexList all = keyHeads;
    llvm::append_range(all, sharedHeads);
    return all;
  }
};

/// Whether a score of the type is so low that its key has no weight: -1e9 and
/// below, or the lowest number of a type without these, also after scaling.
bool isHidden(double number, double scale, mlir::FloatType type);

/// The scores of `attention.softmax`, down to the product of queries and keys:
/// sets the scale and the terms, and returns the product.
std::optional<Product> matchScores(const MatchContext &context,
                                   Attention &attention);

/// The number as a function of a product of queries and keys: sets the function
/// of the attention and its scale, and returns the product.
std::optional<Product> matchScoreFunction(const MatchContext &context,
                                          Attention &attention,
                                          const Access &number, unsigned depth);

/// Whether the function may make a score minus infinity.
bool mayHideScores(const ScoreFunction &function);

/// What a function of scores and conditions read from tensors, in the order of
/// their numbers, with elements of `type` and extents of 1 along which none
/// varies.
llvm::SmallVector<mlir::Value> writeCaptures(mlir::OpBuilder &builder,
                                             AccessWriter &writer,
                                             const Attention &attention,
                                             mlir::FloatType type);

/// Writes the function and the conditions to the empty region of an operation
/// with these captures. A query of row `i` stands at position `i + offset`.
void writeScoreRegion(const Attention &attention, mlir::Region &region,
                      mlir::FloatType type, mlir::ValueRange captures,
                      int64_t offset);

/// Evaluates what of the terms is known when compiling to the mask of the
/// attention, and leaves the others. False if rows without keys are not what
/// is asked for, or a term cannot be an operand.
bool matchMasks(const MatchContext &context, Attention &attention,
                FullyMasked fullyMasked);

/// The attention that ends in the product, if there is one.
std::optional<Attention> matchAttention(const MatchContext &context,
                                        mlir::linalg::LinalgOp op,
                                        FullyMasked fullyMasked);

/// Writes the attention before its product, and returns what replaces it.
mlir::Value writeAttention(mlir::OpBuilder &builder, AccessTrace &trace,
                           const Attention &attention);

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_CONVERSION_LINALGTOATTN_ATTENTION_H
