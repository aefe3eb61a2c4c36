//===- Call.h - One operation on arrays -------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_CALL_H
#define FOVEA_LIB_FUNCTIONS_CALL_H

#include "Memory.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Dialect/Attn/IR/Contract.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SmallString.h"
#include <functional>
#include <utility>
#include <variant>

namespace mlir {
class OpBuilder;
class RankedTensorType;
class Value;
class ValueRange;
} // namespace mlir

namespace fovea::functions {

/// The type of elements in IR.
mlir::Type convertType(mlir::MLIRContext *context, ElementType type);

/// Integers of 64 bits as the 32 that an operation takes. What does not fit
/// stays out of all bounds, which checks tell; without bounds, kernels fail
/// with `failure`.
mlir::Value narrowIntegers(mlir::OpBuilder &builder, mlir::Value wide,
                           llvm::StringRef failure = "");

/// Whether kernels of `op` for `target` leave lengths open.
bool leavesLengthsOpen(llvm::StringRef op, Target target);

/// #attn.mask, #attn.tree and #attn.source.
struct MaskValue {
  bool causal;
  int64_t window, prefix, stride = 1;
};
struct TreeValue {
  int64_t ratio, levels;
};
struct SourceValue {
  /// As text.
  llvm::ArrayRef<std::string> ranges;
  MaskValue mask;
  bool hasLogWeight, hasBias, hasLengths;
  /// Whether ranges may depend on a block.
  bool hasBlocks;
  /// Of lists of rows.
  int64_t unit = 0;
  bool hasListedPositions = false;
  /// Whether there is a score region of its own.
  bool hasScore = false;
};
/// A unit attribute.
struct Present {};
/// The value of an attribute.
using AttributeValue =
    std::variant<int64_t, double, bool, Present, MaskValue, TreeValue,
                 attn::Weighting, attn::Reduction, attn::ConvAlgorithm,
                 attn::RowMask, attn::RopeStyle, llvm::SmallVector<double>,
                 llvm::SmallVector<SourceValue, 0>>;

/// What an operation declares of a value, where that is known, and which
/// element of its list that is.
struct Declared {
  const attn::OperandSpec *spec = nullptr;
  unsigned index = 0;
};
/// An argument of a list whose elements have declarations of their own.
struct Element {
  Argument argument;
  Declared declared;
};

/// A function of places, as the body of a region. That of a score has it among
/// its arguments; others tell which entries there are.
struct RegionPart {
  /// What errors call it.
  std::string name;
  llvm::StringRef body;
  unsigned numCaptures;
  bool isScore;
  /// Of which source; of all without one.
  std::optional<unsigned> source;
};

/// A function that is one operation of the dialect, and its arguments. What is
/// added makes a key, and shapes complete it; IR is built only for a key
/// without a kernel. A kernel may leave lengths open (see Shapes.h).
class Call {
public:
  /// `op` is the operation without its "attn.". Results go to `memory`.
  Call(llvm::StringRef op, Target target, const ResultMemory &memory = {})
      : Call(op, attn::findContract(("attn." + op).str()), target, memory) {}
  /// A function with a body, which declares its arguments and results as
  /// operations do.
  Call(const attn::Contract &contract, Target target,
       const ResultMemory &memory)
      : Call(contract.getOperation(), &contract, target, memory) {}

  // Operands, in the order in which the operation declares them.

  /// Leaves out the operands before the one that is declared as `name`.
  void leaveOutBefore(llvm::StringRef name);
  /// One operand, of as many values as it has.
  void operand(llvm::ArrayRef<Argument> arguments);
  void operand(llvm::ArrayRef<Element> elements);
  void operandIf(const std::optional<Argument> &argument);
  /// An operand for each argument.
  void operands(std::initializer_list<Argument> arguments);
  /// Adds `argument`, which is not an operand but what the operation `reader`
  /// declares as `name`, and returns its number.
  unsigned addArgument(const Argument &argument, llvm::StringRef reader,
                       llvm::StringRef name);
  void operand(unsigned argument);
  /// An operand that the operation `producer` makes of arguments; `segments`
  /// tells which of its operands there are, its destinations behind the others.
  void computed(llvm::StringRef producer, llvm::ArrayRef<unsigned> inputs,
                ElementType type, llvm::ArrayRef<int64_t> shape,
                llvm::ArrayRef<int32_t> segments);

  /// The score regions of the operation, one for the parts of each source and
  /// one for those of all, behind them. The captures, those of one part after
  /// the other, are the operand that was added last.
  void scoreRegions(llvm::ArrayRef<RegionPart> parts);
  void attribute(llvm::StringLiteral name, AttributeValue value);
  /// A unit attribute, unless it is not set.
  void flag(llvm::StringLiteral name, bool isSet);

  // Destinations, in the order in which the operation declares them.

  /// A result, in the memory for the result that the function returns as number
  /// `place`, by default as the next one.
  void result(Checker &check, llvm::StringRef name, ElementType type,
              llvm::ArrayRef<int64_t> shape,
              std::optional<unsigned> place = {}) {
    resultIf(true, check, name, type, shape, place);
  }
  /// One destination that is left out, or a result where it is not.
  void resultIf(bool isWanted, Checker &check, llvm::StringRef name,
                ElementType type, llvm::ArrayRef<int64_t> shape,
                std::optional<unsigned> place = {});
  /// One destination of as many results, called `prefix` and their names.
  void results(Checker &check, llvm::StringRef prefix,
               llvm::ArrayRef<Argument> like);
  void results(Checker &check, llvm::StringRef prefix,
               llvm::ArrayRef<Element> like);
  /// One destination of values that the operation updates: where they lie, or,
  /// unless `inPlace`, in results.
  void update(Checker &check, llvm::ArrayRef<Argument> arguments,
              bool inPlace = true);

  /// Compiles a kernel for the lengths of this call alone.
  void fixLengths() { hasFixedLengths = true; }
  /// Compiles one for the lengths of this call but for those with one of these
  /// letters, which it leaves open. Without any, nothing changes.
  void openLengths(llvm::StringLiteral symbols) { onlyOpen = symbols; }

  /// Runs the operation. The results are those of `result`, in order.
  llvm::Expected<llvm::SmallVector<OwnedTensor>> run();
  /// What stands for running when there is nothing to compute: every element of
  /// a result is `values[i]`, or 0.
  llvm::Expected<llvm::SmallVector<OwnedTensor>>
  fill(llvm::ArrayRef<double> values = {}) const;
  /// The same unless a check has failed.
  llvm::Expected<llvm::SmallVector<OwnedTensor>>
  runChecked(Checker &check, bool isEmpty = false,
             llvm::ArrayRef<double> values = {});
  /// The same. The `count` results are the first members of a `Result`.
  template <typename Result, size_t count>
  llvm::Expected<Result> runFor(Checker &check, bool isEmpty = false) {
    llvm::Expected<llvm::SmallVector<OwnedTensor>> results =
        runChecked(check, isEmpty);
    if (!results)
      return results.takeError();
    return toMembers<Result>(*results, std::make_index_sequence<count>());
  }
  /// The gradients of the arguments with the numbers `wanted`, which go to
  /// `memory`, from that of the first result; nothing if a check has failed.
  llvm::Expected<llvm::SmallVector<OwnedTensor>>
  runGradient(Checker &check, const ResultMemory &memory,
              llvm::ArrayRef<int64_t> wanted, const Argument &gradient) const;

  /// What computes results of arguments and destinations, instead of one
  /// operation.
  using Body = std::function<llvm::SmallVector<mlir::Value>(
      mlir::OpBuilder &, mlir::ValueRange arguments, mlir::ValueRange inits)>;
  void setBody(Body function) { body = std::move(function); }

private:
  Call(llvm::StringRef op, const attn::Contract *contract, Target target,
       const ResultMemory &memory);

  template <typename Result, size_t... indices>
  static Result toMembers(llvm::MutableArrayRef<OwnedTensor> results,
                          std::index_sequence<indices...>) {
    return Result{std::move(results[indices])...};
  }

  /// A destination; `buffer` is the memory that it must lie in, if any.
  struct Destination {
    std::string name;
    ElementType elementType;
    Shape shape;
    std::optional<Argument> buffer = {};
    /// What the buffer holds matters.
    bool isUpdated = false;
    /// The argument that it starts from, if it is a result that does.
    std::optional<unsigned> from = {};
    Declared declared = {};
    /// What the buffer lies in, where it is not the caller's.
    OwnedTensor memory = {};
  };
  /// A value of operands that is no argument.
  struct Computed {
    std::string producer;
    llvm::SmallVector<unsigned, 2> inputs;
    ElementType elementType;
    Shape shape;
    llvm::SmallVector<int32_t, 5> segments;
    /// What the operation that reads it declares of it.
    Declared declared;
  };
  struct Attribute {
    llvm::StringLiteral name;
    AttributeValue value;
  };

  /// Whether the kernel takes the strides of `argument`, of any number, from
  /// the caller. Others are contiguous, or copied.
  static bool takesStrides(const Argument &argument);
  /// Gives results the memory that a DestinationScope has for them, and memory
  /// to those whose extents a kernel, for any lengths if `isOpen`, cannot tell.
  llvm::Error place(bool isOpen);
  /// The results of a call in a DescribeScope.
  llvm::Expected<llvm::SmallVector<OwnedTensor>> describe() const;
  /// What the operation declares of value `index` of operand or destination
  /// `group`.
  Declared getDeclared(unsigned group, unsigned index = 0) const;
  Declared getNextDestination(unsigned index = 0) const {
    return getDeclared(segments.size() + initSegments.size(), index);
  }
  void addDestination(Declared declared, Checker &check, llvm::StringRef name,
                      ElementType type, llvm::ArrayRef<int64_t> shape,
                      std::optional<unsigned> place);
  unsigned addArgument(const Argument &argument, Declared declared);
  /// Whether the kernel leaves lengths open.
  bool leavesAnyOpen() const;
  /// Whether a kernel, for any lengths if `isOpen`, leaves an extent open.
  bool leavesOpen(bool isOpen, Declared declared, llvm::ArrayRef<int64_t> shape,
                  size_t dim) const;
  /// A dimension of an argument, by its number.
  struct Dimension {
    unsigned argument, dim;
  };
  /// The first for which `holds` that has the letter of `extent` and does not
  /// broadcast; `index` tells the element of a list.
  std::optional<Dimension>
  findLength(const attn::ExtentSpec &extent, unsigned index,
             llvm::function_ref<bool(Dimension)> holds) const;
  /// The type of an array, whose lengths are open if `isOpen`.
  mlir::RankedTensorType getType(mlir::MLIRContext *context, bool isOpen,
                                 Declared declared, ElementType elementType,
                                 llvm::ArrayRef<int64_t> shape) const;
  /// A tensor of that type, whose open extents are those of `arguments`.
  mlir::Value makeEmpty(mlir::OpBuilder &builder, mlir::RankedTensorType type,
                        Declared declared, mlir::ValueRange arguments) const;
  /// Fails where shapes are not what the operation declares.
  llvm::Error checkShapes() const;
  /// Fails where kernels for the target lack the type of the data: says why
  /// there is none.
  llvm::Error checkTypes() const;
  /// Fails where the results in `written` lie in what is read, arguments and
  /// `more`, or in one another.
  llvm::Error checkOverlaps(llvm::ArrayRef<Destination> written,
                            llvm::ArrayRef<Argument> more = {}) const;
  /// A kernel for any lengths if `isOpen`.
  llvm::Expected<Kernel> getKernel(const CompileOptions &options,
                                   bool isOpen) const;
  /// The function, in a module; for any lengths if `isOpen`.
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
  buildFunction(mlir::MLIRContext &context, bool isOpen) const;
  /// The work that the function asks for.
  llvm::Expected<double> countFlops() const;
  /// Compiles the function for a key that has no kernel yet.
  llvm::Expected<Kernel> compileFunction(const CompileOptions &options,
                                         bool isOpen) const;
  /// What computes the results; `regions` are those of the operation.
  llvm::SmallVector<mlir::Value>
  buildBody(mlir::OpBuilder &builder, bool isOpen, mlir::ValueRange arguments,
            mlir::ValueRange inits, llvm::ArrayRef<mlir::NamedAttribute> named,
            llvm::MutableArrayRef<std::unique_ptr<mlir::Region>> regions) const;
  /// Parses the parts of score regions and joins those of one in a region.
  llvm::Expected<llvm::SmallVector<std::unique_ptr<mlir::Region>>>
  buildScoreRegions(mlir::MLIRContext *context) const;
  /// Appends the operations of a part for `score`, and returns what takes its
  /// place. `captures` are the arguments of the region that it reads.
  llvm::Expected<mlir::Value> appendRegionPart(mlir::OpBuilder &builder,
                                               const RegionPart &part,
                                               mlir::Value score,
                                               mlir::ValueRange places,
                                               mlir::ValueRange captures) const;
  /// Runs `kernel` on the arguments, those in `more` and the destinations.
  llvm::Error invoke(const Kernel &kernel, llvm::ArrayRef<Argument> more,
                     llvm::SmallVectorImpl<OwnedTensor> &returned) const;
  /// The results in `written`: their memory, views of that of the caller, where
  /// what the kernel has `returned` is copied to unless it wrote there, or that
  /// itself.
  static llvm::SmallVector<OwnedTensor>
  collect(llvm::MutableArrayRef<Destination> written, bool isInPlace,
          llvm::MutableArrayRef<OwnedTensor> returned);

  void addToKey(const void *data, size_t size);
  void addMaskToKey(const MaskValue &mask);
  void addSourceToKey(const SourceValue &source);
  template <typename T> void addToKey(const T &value) {
    static_assert(std::is_floating_point_v<T> ||
                      std::has_unique_object_representations_v<T>,
                  "padding is no part of a value");
    addToKey(&value, sizeof(value));
  }
  /// Types and shapes, those lengths left out that a kernel leaves open if
  /// `isOpen`: which those are depends on all arguments.
  void addShapes(llvm::SmallVectorImpl<char> &key, bool isOpen) const;

  std::string op;
  const attn::Contract *contract;
  Target target;
  ResultMemory memory;
  unsigned numResults = 0;
  bool hasFixedLengths = false;
  /// The letters of the only lengths that are left open, or none.
  llvm::StringRef onlyOpen;
  Body body;
  /// The score regions, and the first of what they capture among the values of
  /// operands.
  llvm::SmallVector<RegionPart, 0> scoreParts;
  unsigned firstCapture = 0;
  llvm::SmallString<512> key;
  llvm::SmallVector<Argument, 6> arguments;
  llvm::SmallVector<Declared, 6> declarations;
  /// Of all operands, by the number of the argument, or ~number if computed.
  llvm::SmallVector<int, 8> values;
  llvm::SmallVector<Computed, 0> computedValues;
  /// How many values each operand and each destination has.
  llvm::SmallVector<int32_t, 16> segments, initSegments;
  llvm::SmallVector<Attribute, 4> attributes;
  llvm::SmallVector<Destination, 2> destinations;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_CALL_H
