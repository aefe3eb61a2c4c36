//===- Contract.h - What an operation asks of its operands ------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ODS declares element types and extents beside each operand (see Attn_Arg in
// AttnBase.td); TableGen joins these declarations to one text for each
// operation. A contract is that text, parsed. The verifier compares the
// static extents, `--attn-check-shapes` and the execution engine those known at
// run time, and the functions of C++ and Python those of arrays, before there
// is any IR.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_CONTRACT_H
#define FOVEA_DIALECT_ATTN_IR_CONTRACT_H

#include "mlir/IR/Operation.h"
#include <optional>
#include <string>
#include <vector>

namespace fovea::attn {

/// How the element type of an operand relates to `T`, that of the first operand
/// which is declared to hold `T`.
enum class ElementRule {
  Any,
  /// `T`.
  Data,
  /// `sum`: f64 where `T` is, f32 otherwise.
  Sum,
  /// `T|sum`.
  DataOrSum,
  /// `~T`: any type whose sums are kept in that of the sums of `T`.
  SameSum,
  /// `i32` and `i64`: these, where the type constraint says less.
  I32,
  I64,
};

/// One extent of an operand, as declared.
struct ExtentSpec {
  /// The letters of all extents that are equal. Empty for a number, and for an
  /// extent that may be anything. Lower-case letters belong to one element of
  /// the lists that have them.
  std::string symbol;
  /// A number: `factor`, and the attribute `addend` more if it has a name,
  /// times `attribute` if that has one.
  std::optional<int64_t> factor;
  std::string addend, attribute;
  /// `~`: an extent of 1 in the type broadcasts.
  bool mayBroadcast = false;
  /// `!`: known from the type, and at least 1.
  bool isStatic = false;
  /// `?`: may be missing, and those behind it.
  bool isOptional = false;

  /// Whether the symbol belongs to an element of a list.
  bool isLocal() const;
  /// Whether it counts sequences or tokens, which differ from call to call.
  bool isLength() const;
  std::string getText() const;
};

/// One operand, or one group of operands, as declared.
struct OperandSpec {
  std::string name;
  bool isOptional = false, isList = false;
  ElementRule elements = ElementRule::Any;
  bool hasExtents = false;
  llvm::SmallVector<ExtentSpec, 4> extents;
  /// The operand that it has the shape of, extents of 1 included; empty if
  /// none.
  std::string like;
  /// Whether it is the gradient of that operand: of its element type, or that
  /// of sums. A list has an entry for each of the other, unless it may be
  /// empty.
  bool isGradient = false, mayBeEmpty = false;
  /// Operands of a group that are not alike.
  std::vector<OperandSpec> parts;

  /// The extents of an operand of that rank, or of the next rank that there is.
  llvm::ArrayRef<ExtentSpec> getExtents(size_t rank) const;
};

/// A relation between extents.
struct ConditionSpec {
  enum Kind {
    /// `H % G == 0`.
    Multiple,
    /// `W in {1, H}`.
    Broadcast,
    /// `K == ceil(N / I) * P`.
    Summaries,
    /// `D % 2 == 0`.
    MultipleOfNumber,
  } kind = Multiple;
  ExtentSpec first, second, interval, rank;
  int64_t number = 0;
};

/// What one operation declares.
class Contract {
public:
  /// Parses the declarations of operands, a line each, and conditions. Both are
  /// written in this repository: a mistake ends the process.
  Contract(llvm::StringRef operation, llvm::StringRef operands,
           llvm::StringRef conditions = "");

  llvm::StringRef getOperation() const { return operation; }
  llvm::ArrayRef<OperandSpec> getOperands() const { return operands; }
  llvm::ArrayRef<ConditionSpec> getConditions() const { return conditions; }
  /// The operand called `name`, or null.
  const OperandSpec *find(llvm::StringRef name) const;

private:
  std::string operation;
  llvm::SmallVector<OperandSpec, 0> operands;
  llvm::SmallVector<ConditionSpec, 2> conditions;
};

/// What the operation of that full name declares, or null.
const Contract *findContract(llvm::StringRef operation);

/// Something with a shape that is checked against a declaration: an operand, or
/// an array that a function was given.
struct ShapedOperand {
  const OperandSpec *spec;
  /// In messages.
  std::string name;
  llvm::ArrayRef<int64_t> shape;
  /// Which element of a list it is.
  unsigned index = 0;
  /// The operand itself, where there is IR.
  mlir::Value value;

  llvm::ArrayRef<ExtentSpec> getExtents() const {
    return spec->getExtents(shape.size());
  }
};

/// An extent of such an operand.
struct OperandExtent {
  const ShapedOperand *operand = nullptr;
  unsigned dim = 0;

  int64_t get() const { return operand->shape[dim]; }
};

/// "extent 0 of query".
std::string describe(OperandExtent extent);

/// An extent that is not what its declaration asks for.
struct Mismatch {
  enum Kind {
    /// The number of extents, `needed`.
    Rank,
    /// An extent that the type does not tell, or tells to be 0.
    Dynamic,
    Zero,
    /// The extent `needed`, which `origin` explains.
    Extent,
    /// A multiple of `other`, or of `needed`.
    Multiple,
    MultipleOfNumber,
    /// The shape of `other`.
    Shape,
    /// The operand `origin`, without which it has no meaning.
    Missing,
    /// More summaries than numbers can count.
    Overflow,
  } kind;
  OperandExtent found, other = {};
  int64_t needed = 0;
  bool mayBroadcast = false;
  std::string origin = {};

  /// "expects extent 0 of key to be 2 (extent 0 of query), but got 3".
  std::string describe() const;
  /// "k: found batch 3, needed 2": in words for arrays.
  std::string describeArgument() const;
};

/// The operands of one call, by which contracts are checked.
class ContractOperands {
public:
  /// `getAttribute` returns integers among the attributes of the call.
  ContractOperands(
      const Contract &contract,
      llvm::function_ref<std::optional<int64_t>(llvm::StringRef)> getAttribute)
      : contract(contract), getAttribute(getAttribute) {}

  /// Adds an operand. Sources and other lists that the declaration leaves open
  /// bring declarations of their own.
  void add(const OperandSpec &spec, llvm::Twine name,
           llvm::ArrayRef<int64_t> shape, unsigned index = 0,
           mlir::Value value = {});
  void add(const OperandSpec &spec, llvm::Twine name, mlir::Value value,
           unsigned index = 0);

  llvm::ArrayRef<ShapedOperand> getOperands() const { return operands; }
  const Contract &getContract() const { return contract; }
  /// Operand `index` of those called `name`, or null.
  const ShapedOperand *find(llvm::StringRef name, unsigned index = 0) const;

  /// Two extents of a condition; `interval` and `rank` where it counts
  /// summaries.
  struct Relation {
    ConditionSpec::Kind kind;
    OperandExtent first, second;
    int64_t number = 0, interval = 0, rank = 0;
  };
  /// Calls `visit` for each pair of extents that have to be equal. The second
  /// is the one that the symbol was first met with.
  void forEachEqual(
      llvm::function_ref<void(OperandExtent, OperandExtent)> visit) const;
  /// Calls `visit` for each condition whose operands are there.
  void forEachRelation(llvm::function_ref<void(const Relation &)> visit) const;
  /// The first mismatch of extents that are known, if any.
  std::optional<Mismatch> findMismatch() const;

private:
  /// The extent that stands for a symbol: the first that does not broadcast.
  std::optional<OperandExtent> findExtent(const ExtentSpec &spec,
                                          unsigned index) const;
  std::optional<Mismatch> findWrongExtent(const ShapedOperand &operand) const;
  std::optional<Mismatch> findWrongLikeness(const ShapedOperand &operand) const;
  int64_t getNumber(const ExtentSpec &spec) const;

  const Contract &contract;
  llvm::function_ref<std::optional<int64_t>(llvm::StringRef)> getAttribute;
  llvm::SmallVector<ShapedOperand, 12> operands;
};

/// A rule about extents that are known at run time.
struct ExtentRule {
  enum Kind {
    /// `first` equals `second`.
    Equal,
    /// `first` is a multiple of `second`.
    Multiple,
    /// `first` is the number of summaries of `second` rows:
    /// `ceil(second / interval) * rank`.
    Summaries
  } kind;
  struct Extent {
    std::string name;
    mlir::Value operand;
    unsigned dim;
  } first, second;
  int64_t interval = 0, rank = 0;

  /// "extent 2 of value must be extent 2 of key".
  std::string describe() const;
};

/// Calls `visit` for every rule of `op`, which may be of any dialect, about an
/// extent that its type leaves open.
void forEachExtentRule(mlir::Operation *op,
                       llvm::function_ref<void(const ExtentRule &)> visit);

namespace detail {
/// Checks numbers of operands, element types, static extents, and destination
/// style.
mlir::LogicalResult verifyContract(mlir::Operation *op);
} // namespace detail

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_CONTRACT_H
