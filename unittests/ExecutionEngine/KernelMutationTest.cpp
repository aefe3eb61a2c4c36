//===- KernelMutationTest.cpp - Mistakes in the compiler's kernels --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention as the compiler makes it, with one instruction less: whatever
// orders, copies or turns something must be missed by the emulator. Some values
// that not every query reads are NaN, so that what takes them out is run.
// FOVEA_EVERY=n removes one of n instructions of a name.
//
//===----------------------------------------------------------------------===//

#include "TestUtils.h"
#include "fovea/Emulator/GPUDriver.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include <cmath>
#include <cstdlib>
#include <limits>

using namespace llvm;
using namespace fovea;
using namespace fovea::test;

namespace {

/// A function with the numbers that its arguments have.
struct Example {
  int64_t queries, rows, heads;
  bool areGradients;
  const char *text;
};

/// Several tiles of keys, of which masks cut two, and two of queries, the last
/// ones ragged.
constexpr Example kDense = {130, 530, 1, false, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x530x64xf16>
func.func @dense(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) outs(%init : !q)
      {mask = #attn.mask<causal>} -> !q
  return %r : !q
})"};

/// Boxes of rows near a block, listed rows with log weights far away.
constexpr Example kLists = {130, 450, 1, false, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x450x64xf16>
func.func @lists(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %w = arith.constant dense<0.5> : tensor<1x1x450xf32>
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b * 128, b * 128 + 300)>]
      source(%v, %k : !k, !k) log_weight(%w : tensor<1x1x450xf32>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 30)>,
                  affine_map<(b)[rows, n] -> (100, 132)>,
                  affine_map<(b)[rows, n] -> (b + 300, b + 320)>]
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Boxes where listed rows were.
constexpr Example kListsFirst = {130, 450, 1, false, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x450x64xf16>
func.func @lists(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b, b + 30)>,
                  affine_map<(b)[rows, n] -> (100, 132)>,
                  affine_map<(b)[rows, n] -> (b + 40, b + 70)>,
                  affine_map<(b)[rows, n] -> (b + 150, b + 180)>,
                  affine_map<(b)[rows, n] -> (b + 200, b + 230)>,
                  affine_map<(b)[rows, n] -> (b + 250, b + 278)>,
                  affine_map<(b)[rows, n] -> (b + 300, b + 320)>]
      source(%v, %k : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (0, 320)>]
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// A function that removes some entries of the first 64 queries alone: one
/// warpgroup tells another.
constexpr Example kRemoving = {130, 530, 1, false, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x530x64xf16>
func.func @removing(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %none = arith.constant 0xFF800000 : f32
      %end = arith.constant 464 : index
      %period = arith.constant 64 : index
      %which = arith.constant 44 : index
      %rest = arith.remsi %j, %period : index
      %isFirst = arith.cmpi slt, %i, %end : index
      %isKey = arith.cmpi eq, %rest, %which : index
      %isRemoved = arith.andi %isFirst, %isKey : i1
      %y = arith.select %isRemoved, %none, %s : f32
      attn.yield %y : f32
    } outs(%init : !q) -> !q
  return %r : !q
})"};

/// Listed rows alone, so that the first tile is one: a table of two tiles.
constexpr Example kListsAlone = {130, 450, 1, false, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x450x64xf16>
func.func @lists(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b, b + 30)>,
                  affine_map<(b)[rows, n] -> (100, 132)>,
                  affine_map<(b)[rows, n] -> (b + 40, b + 70)>,
                  affine_map<(b)[rows, n] -> (b + 150, b + 180)>,
                  affine_map<(b)[rows, n] -> (b + 200, b + 230)>,
                  affine_map<(b)[rows, n] -> (b + 250, b + 278)>,
                  affine_map<(b)[rows, n] -> (b + 300, b + 320)>]
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Rows that lists name, alone: two tiles, the last one with an entry that
/// names nothing.
constexpr Example kNamed = {130, 450, 1, false, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x450x64xf16>
!l = tensor<1x1x3x6xi32>
func.func @named(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %chosen = arith.constant dense<[[[[0, 3, 7, 1, -1, 9],
      [12, 13, 2, 2, 5, 8], [6, 4, 11, 10, -1, 1]]]]> : !l
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k) rows(%chosen : !l) unit = 32
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>] mask <causal>
      outs(%init : !q) {block = 64 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// So many listed rows that the places of their numbers are taken again.
constexpr Example kManyNamed = {130, 450, 1, false, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x450x64xf16>
!l = tensor<1x1x1x24xi32>
func.func @named(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %chosen = arith.constant dense<[[[[0, 3, 7, 1, -1, 9, 12, 13, 2, 2, 5, 8,
      6, 4, 11, 10, -1, 1, 13, 0, 8, 3, 12, 5]]]]> : !l
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k) rows(%chosen : !l) unit = 32
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>]
      outs(%init : !q) {scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// One query whose tiles are read in two parts, a key of the last one having no
/// weight.
constexpr Example kSingle = {1, 450, 34, false, R"(
!q = tensor<1x34x1x64xf16>
!k = tensor<1x1x450x64xf16>
!w = tensor<1x1x450xf32>
func.func @single(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %all = arith.constant dense<0.5> : !w
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0 : index
  %last = arith.constant 440 : index
  %w = tensor.insert %none into %all[%zero, %zero, %last] : !w
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) log_weight(%w : !w)
      outs(%init : !q) -> !q
  return %r : !q
})"};

/// One query whose tiles are read in nine parts.
constexpr Example kParts = {1, 2200, 18, false, R"(
!q = tensor<1x18x1x64xf16>
!k = tensor<1x1x2200x64xf16>
func.func @parts(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) outs(%init : !q) -> !q
  return %r : !q
})"};

/// Gradients of two tiles of queries and of rows, the last ones ragged.
constexpr Example kGradients = {130, 200, 1, true, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x200x64xf16>
!l = tensor<1x1x130xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k)
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {mask = #attn.mask<causal>}
      -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Two tiles of each, as few as show what one leaves for the next.
constexpr Example kSmallGradients = {66, 70, 1, true, R"(
!q = tensor<1x1x66x64xf16>
!k = tensor<1x1x70x64xf16>
!l = tensor<1x1x66xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k)
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {mask = #attn.mask<causal>}
      -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// So many tiles that the places of some are taken again.
constexpr Example kManyGradients = {130, 330, 2, true, R"(
!q = tensor<1x2x130x64xf16>
!k = tensor<1x1x330x64xf16>
!l = tensor<1x2x130xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k)
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {mask = #attn.mask<causal>}
      -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// So few rows that three blocks share the queries of each.
constexpr Example kSharedGradients = {450, 70, 1, true, R"(
!q = tensor<1x1x450x64xf16>
!k = tensor<1x1x70x64xf16>
!l = tensor<1x1x450xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k)
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Gradients of a few rows each in far places, gathered in slots: three
/// stretches for queries, one for rows, whose queries take places again.
constexpr Example kGatheredGradients = {384, 600, 1, true, R"(
!q = tensor<1x1x384x64xf16>
!k = tensor<1x1x600x64xf16>
!l = tensor<1x1x384xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (0, 8)>,
                  affine_map<(b)[rows, n] -> (130, 138)>,
                  affine_map<(b)[rows, n] -> (b * 8 + 260, b * 8 + 268)>,
                  affine_map<(b)[rows, n] -> (400, 408)>,
                  affine_map<(b)[rows, n] -> (b + 520, b + 528)>]
      forward(%o, %l : !q, !l) gradient(%d : !q) outs(%iq, %ik, %ik : !q, !k, !k)
      {block = 128 : i64, scale = 0.125 : f64} -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Gradients of rows that lists name: two tiles of each, an entry that names
/// nothing.
constexpr Example kListGradients = {130, 200, 1, true, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x200x64xf16>
!l = tensor<1x1x130xf32>
!n = tensor<1x1x3x4xi32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %chosen = arith.constant dense<[[[[0, 3, 5, -1], [2, 2, 4, 1],
      [5, 1, 0, 3]]]]> : !n
  %r:3 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k) rows(%chosen : !n) unit = 32
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>] mask <causal>
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {block = 64 : i64, scale = 0.125 : f64}
      -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Entries that name whole tiles of rows, some of them twice: so many that the
/// places of tiles are taken again.
constexpr Example kNamedTiles = {200, 330, 2, true, R"(
!q = tensor<1x2x200x64xf16>
!k = tensor<1x1x330x64xf16>
!l = tensor<1x2x200xf32>
!n = tensor<1x1x2x7xi32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %chosen = arith.constant dense<[[[[0, 3, 5, 1, -1, 2, 2],
      [5, 4, 1, 0, 3, 2, -1]]]]> : !n
  %r:3 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k) rows(%chosen : !n) unit = 64
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>] mask <causal>
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {block = 128 : i64, scale = 0.125 : f64}
      -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Gradients of what a function of scores reads: a number of each distance.
constexpr Example kCaptures = {130, 200, 1, true, R"(
!q = tensor<1x1x130x64xf16>
!k = tensor<1x1x200x64xf16>
!l = tensor<1x1x130xf32>
!t = tensor<40xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k, !t) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %it = tensor.empty() : !t
  %t = arith.constant dense<0.25> : !t
  %r:4 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: !t):
        %last = arith.constant 39 : index
        %zero = arith.constant 0 : index
        %distance = arith.subi %i, %j : index
        %above = arith.maxsi %distance, %zero : index
        %at = arith.minsi %above, %last : index
        %e = tensor.extract %x[%at] : !t
        %sum = arith.addf %s, %e : f32
        attn.yield %sum : f32
      } ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      captures(%t : !t) forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) d_captures(%it : !t)
      {scale = 0.125 : f64} -> !q, !k, !k, !t
  return %r#0, %r#1, %r#2, %r#3 : !q, !k, !k, !t
})"};

/// One query whose keys codes name.
constexpr Example kCoded = {1, 450, 34, false, R"(
!q = tensor<1x34x1x64xf16>
!k = tensor<1x1x450x64xf16>
!z = tensor<1x1x450xi32>
func.func @coded(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %empty = tensor.empty() : !z
  %codes = linalg.generic {
      indexing_maps = [affine_map<(b, g, i) -> (b, g, i)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%empty : !z) {
  ^bb0(%old: i32):
    %i = linalg.index 2 : index
    %factor = arith.constant 7 : index
    %count = arith.constant 450 : index
    %far = arith.muli %i, %factor : index
    %row = arith.remui %far, %count : index
    %code = arith.index_cast %row : index to i32
    linalg.yield %code : i32
  } -> !z
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k) codes(%codes : !z)
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>]
      outs(%init : !q) {scale = 0.125 : f64} -> !q
  return %r : !q
})"};

struct Halves {
  Halves(int64_t rows, double phase, int64_t heads = 1)
      : shape{1, heads, rows, 64}, bits(heads * rows * 64) {
    for (size_t i = 0; i < bits.size(); ++i)
      setElement(bits.data(), ElementType::F16, i,
                 std::sin(12.9898 * i + phase));
  }
  /// Makes two numbers of a row NaN, in an even column and in an odd one.
  void spoil(int64_t row) {
    for (int64_t column : {row % 32, row % 32 + 31})
      setElement(bits.data(), ElementType::F16, row * 64 + column,
                 std::numeric_limits<double>::quiet_NaN());
  }
  operator TensorRef() {
    return {bits.data(), ElementType::F16, shape, {}, true};
  }

  std::vector<int64_t> shape;
  std::vector<uint16_t> bits;
};

} // namespace

/// What an instruction is called: its intrinsic, its assembly, or "xor".
static std::string getName(const Instruction &instruction) {
  if (instruction.getOpcode() == Instruction::Xor)
    return "xor";
  auto *call = dyn_cast<CallBase>(&instruction);
  if (!call)
    return "";
  if (auto *code = dyn_cast<InlineAsm>(call->getCalledOperand()))
    return code->getAsmString().str();
  const Function *callee = call->getCalledFunction();
  return callee ? callee->getName().str() : "";
}

/// The instructions whose name contains `part`, of kernels whose name ends with
/// `kernel`.
static SmallVector<Instruction *> findSites(Module &module, StringRef part,
                                            StringRef kernel) {
  SmallVector<Instruction *> sites;
  for (Function &function : module)
    if (function.getName().ends_with(kernel))
      for (Instruction &instruction : instructions(function))
        if (StringRef(getName(instruction)).contains(part))
          sites.push_back(&instruction);
  return sites;
}

/// One of how many instructions to remove.
static size_t getEvery() {
  const char *text = std::getenv("FOVEA_EVERY");
  size_t every = 1;
  if (text && (StringRef(text).getAsInteger(10, every) || every == 0))
    report_fatal_error("FOVEA_EVERY must be a positive number");
  return every;
}

/// Removes an instruction; the last operand of its type, or 0, stands for it.
static void remove(Instruction &instruction) {
  Type *type = instruction.getType();
  if (!type->isVoidTy()) {
    Value *instead = Constant::getNullValue(type);
    for (Value *operand : instruction.operands())
      if (operand->getType() == type && !isa<Constant>(operand))
        instead = operand;
    instruction.replaceAllUsesWith(instead);
  }
  instruction.eraseFromParent();
}

namespace {
class KernelMutation : public testing::TestWithParam<const char *> {
protected:
  void TearDown() override {
    simt::setModuleEditor(nullptr);
    simt::setEmulatorOptions(options);
  }

  Kernel compile() {
    CompileOptions options;
    options.target = Target::GPUEmulator;
    options.chip = GetParam();
    return compileOrDie(example.text, options);
  }

  /// The text of an error, or the output.
  std::string run(const Kernel &kernel, std::vector<uint16_t> &output) {
    int64_t heads = example.heads, queries = example.queries;
    Halves q(queries, 0, heads), k(example.rows, 1), v(example.rows, 2),
        out(queries, 3, heads), d(queries, 4, heads);
    for (int64_t row : spoiledValues)
      v.spoil(row);
    for (int64_t row : spoiledKeys)
      k.spoil(row);
    for (int64_t row : spoiledQueries)
      q.spoil(row);
    for (int64_t row : spoiledGradients)
      d.spoil(row);
    std::vector<float> lse(heads * queries, 4.0f);
    std::vector<int64_t> lseShape = {1, heads, queries};
    SmallVector<TensorRef> arguments = {q, k, v};
    if (example.areGradients)
      arguments.append(
          {out, {lse.data(), ElementType::F32, lseShape, {}, true}, d});
    SmallVector<OwnedTensor> results;
    if (Error error = kernel.invoke(arguments, results))
      return toString(std::move(error));
    output.clear();
    for (const OwnedTensor &result : results) {
      const auto *bits = static_cast<const uint16_t *>(result.getData());
      output.insert(output.end(), bits, bits + result.getNumBytes() / 2);
    }
    return "";
  }

  /// Whether the kernel still gives what it should, under a few schedules,
  /// without the instruction number `site` of those with `part` in their names.
  bool survives(StringRef part, size_t site) {
    simt::setModuleEditor([&](Module &module) {
      remove(*findSites(module, part, kernelName)[site]);
    });
    // Edited when it is first run.
    Kernel kernel = compile();
    for (auto [seed, eager] : {std::pair(0u, false),
                               {8u, false},
                               {21u, false},
                               {0u, true},
                               {8u, true}}) {
      simt::Options schedule = options;
      schedule.seed = seed;
      schedule.eager = eager;
      simt::setEmulatorOptions(schedule);
      std::vector<uint16_t> output;
      // Bit by bit: the order of sums does not depend on schedules.
      if (!run(kernel, output).empty() || output != expected)
        return false;
    }
    return true;
  }

  /// Expects as many instructions with `part` in their names as there are to be
  /// missed, but for those in `spare`.
  void expectMissed(StringRef part, ArrayRef<size_t> spare = {}) {
    std::vector<std::string> kernels;
    simt::setModuleEditor([&](Module &module) {
      for (Instruction *site : findSites(module, part, kernelName))
        kernels.push_back(site->getFunction()->getName().str());
    });
    EXPECT_EQ(run(compile(), expected), "");
    EXPECT_GT(kernels.size(), spare.size()) << part.str();
    // At least one that must be missed, however few are looked at.
    size_t first = 0;
    while (is_contained(spare, first))
      ++first;
    size_t every = getEvery();
    for (size_t site = first % every; site < kernels.size(); site += every)
      EXPECT_EQ(survives(part, site), is_contained(spare, site))
          << part.str() << ' ' << site << " of " << kernels[site];
  }

  Example example = kDense;
  /// Of the kernels that are looked at: how their names end.
  std::string kernelName;
  /// In the tiles before the last one and in the last one.
  std::vector<int64_t> spoiledValues = {420, 500}, spoiledKeys, spoiledQueries,
                       spoiledGradients;
  simt::Options options = simt::getEmulatorOptions();
  std::vector<uint16_t> expected;
};

class SM80 : public KernelMutation {};
class SM90a : public KernelMutation {};

TEST_P(SM80, EveryInstructionIsMissed) {
  expectMissed("barrier.cta");
  expectMissed("cp.async.commit");
  // The last one is behind all reads.
  expectMissed("cp.async.wait", {2});
  // Swizzles; the first one is none.
  expectMissed("xor", {0});
}

TEST_P(SM90a, EveryInstructionIsMissed) {
  // Turns are for speed.
  expectMissed("barrier.cta", {2});
  expectMissed("mbarrier.init.shared");
  // What takes NaN out of the last tile, which is cut, has waited for it.
  expectMissed("mbarrier.try_wait", {5});
  expectMissed("mbarrier.arrive");
  // Copies, and what stores results.
  expectMissed("cp.async.bulk");
  expectMissed("fence.proxy", {0});
  expectMissed("wgmma.commit");
  // Nothing writes registers between two of them; ptxas wants both.
  expectMissed("wgmma.fence", {2});
  expectMissed("wgmma.wait");
}

TEST_P(SM90a, EveryVoteIsMissed) {
  example = kRemoving;
  // In the first tile, a later one, and the last one.
  spoiledValues = {44, 236, 492};
  expectMissed("mbarrier.init.shared");
  expectMissed("mbarrier.arrive");
  // What takes NaN out of the last tile has waited for it.
  expectMissed("mbarrier.try_wait", {8});
  expectMissed("vote");
}

TEST_P(SM90a, EveryInstructionOfListsIsMissed) {
  example = kLists;
  // Behind the rows near the first block, and one of the listed ones.
  spoiledValues = {330};
  spoiledKeys = {310};
  expectMissed("mbarrier.expect");
  expectMissed("cp.async.mbarrier.arrive");
  // That mbarriers are there another fence says, too. Only the last tile is not
  // a box; kListsFirst has others. That of results, the sixth here and below,
  // is missed in EveryInstructionIsMissed: the emulator takes what a warp
  // writes behind a fence for fenced until the warp meets others.
  expectMissed("fence.proxy", {0, 1, 3, 5, 6, 7, 8});
  expectMissed("wgmma.fence", {2});
}

TEST_P(SM90a, EveryFenceOfListsFirstIsMissed) {
  example = kListsFirst;
  spoiledValues = {};
  // The last tile is a box; the first one is none, and values have boxes after
  // a fence for keys.
  expectMissed("fence.proxy", {0, 4, 5, 7, 8});
}

TEST_P(SM90a, EveryInstructionOfListsAloneIsMissed) {
  example = kListsAlone;
  spoiledValues = {};
  expectMissed("cp.async.mbarrier.arrive");
  expectMissed("fence.proxy", {0, 5});
}

TEST_P(SM80, EveryInstructionOfNamedRowsIsMissed) {
  example = kNamed;
  spoiledValues = {440, 445};
  spoiledKeys = {442};
  expectMissed("barrier.cta");
  expectMissed("cp.async.wait", {2});
  expectMissed("vote.ballot");
}

TEST_P(SM90a, EveryInstructionOfNamedRowsIsMissed) {
  example = kNamed;
  spoiledValues = {440, 445};
  spoiledKeys = {442};
  expectMissed("cp.async.mbarrier.arrive");
  expectMissed("fence.proxy", {0, 5});
  expectMissed("vote.ballot");
}

TEST_P(SM90a, EveryBarrierOfNamedRowsIsMissed) {
  example = kManyNamed;
  spoiledValues = {};
  // Turns are for speed, and no NaN is taken out: those of the producer are
  // left.
  expectMissed("barrier.cta", {2, 3, 4, 5, 7, 8, 9});
}

TEST_P(SM80, EveryInstructionOfSingleQueriesIsMissed) {
  example = kSingle;
  spoiledValues = {440};
  expectMissed("barrier.cta");
  // The last one is behind all reads, and keys of first tiles have weights.
  expectMissed("cp.async.wait", {2});
  expectMissed("vote.ballot", {0});
}

TEST_P(SM80, EveryInstructionOfPartsIsMissed) {
  example = kParts;
  spoiledValues = {};
  // What adds up the parts, eight and then one.
  kernelName = "_kernel_0";
  expectMissed("ex2");
}

TEST_P(SM80, EveryInstructionOfCodedKeysIsMissed) {
  example = kCoded;
  spoiledValues = {};
  kernelName = "_kernel_0";
  // No key is hidden, so no NaN is taken out.
  expectMissed("barrier.cta", {2, 3, 4});
  // The last one is behind all reads.
  expectMissed("cp.async.wait", {2});
}

TEST_P(SM80, EveryInstructionOfGradientsIsMissed) {
  example = kSmallGradients;
  // Keys that the first queries do not read, and queries that do not read the
  // last keys.
  spoiledValues = {};
  spoiledKeys = {69};
  kernelName = "_kernel_0";
  expectMissed("barrier.cta");
  spoiledQueries = spoiledGradients = {2};
  kernelName = "_kernel_1";
  expectMissed("barrier.cta");
}

// Products and their barriers are those of all gradients on this chip; each of
// the following looks at what is its own.

TEST_P(SM80, EveryInstructionOfListGradientsIsMissed) {
  example = kListGradients;
  spoiledValues = {};
  // One that does not read all listed rows.
  spoiledQueries = spoiledGradients = {2};
  // Where the lists of each tile begin, and what has rows.
  kernelName = "_kernel_4";
  expectMissed("barrier.cta");
  kernelName = "_kernel_7";
  expectMissed("barrier.cta.red");
}

TEST_P(SM80, EveryInstructionOfListQueriesIsMissed) {
  example = kListGradients;
  spoiledValues = {};
  // Not all queries read it.
  spoiledKeys = {100};
  kernelName = "_kernel_6";
  expectMissed("barrier.cta");
}

TEST_P(SM80, EveryInstructionOfCaptureGradientsIsMissed) {
  example = kCaptures;
  spoiledValues = {};
  // What adds up the entries of an element. The last one is behind all reads.
  kernelName = "_kernel_4";
  expectMissed("barrier.cta", {7});
}

TEST_P(SM90a, EveryInstructionOfGradientsIsMissed) {
  example = kGradients;
  // Keys that the first queries do not read, and queries that do not read the
  // last keys.
  spoiledValues = {};
  spoiledKeys = {190};
  spoiledGradients = {70};
  expectMissed("barrier.cta");
  expectMissed("cp.async.bulk");
  // That mbarriers are there another fence says, too.
  expectMissed("fence.proxy", {0, 2});
  expectMissed("wgmma.commit");
  expectMissed("wgmma.fence");
  expectMissed("wgmma.wait");
}

TEST_P(SM90a, EveryBarrierOfGradientsIsMissed) {
  example = kManyGradients;
  spoiledValues = {};
  expectMissed("mbarrier.init.shared");
  // The tiles of the first head find all places free.
  expectMissed("mbarrier.try_wait", {5});
  expectMissed("mbarrier.arrive");
}

TEST_P(SM90a, EveryInstructionOfListGradientsIsMissed) {
  example = kNamedTiles;
  spoiledValues = {};
  // Not all queries of a tile read them.
  spoiledKeys = {325};
  spoiledGradients = {70};
  // Where the lists of each tile begin, and what has queries or rows.
  kernelName = "_kernel_4";
  expectMissed("barrier.cta");
  for (const char *kernel : {"_kernel_7", "_kernel_8"}) {
    kernelName = kernel;
    expectMissed("barrier.cta");
    expectMissed("mbarrier.init.shared");
    expectMissed("mbarrier.try_wait");
    expectMissed("mbarrier.arrive");
    expectMissed("cp.async.bulk");
    // That mbarriers are there another fence says, too.
    expectMissed("fence.proxy", {0});
  }
}

/// Which part of the queries a block has, and what adds the parts up. No place
/// of a tile is taken again: see EveryBarrierOfGradientsIsMissed.
TEST_P(SM90a, EveryNumberOfSharedGradientsIsMissed) {
  example = kSharedGradients;
  spoiledValues = {};
  expectMissed("ctaid");
}

TEST_P(SM90a, EveryInstructionOfGatheredGradientsIsMissed) {
  example = kGatheredGradients;
  spoiledValues = {};
  // Those of one block of queries, and queries that do not read some of them.
  spoiledKeys = {283};
  spoiledGradients = {70};
  // What has queries: one tile, so that no place is taken again.
  kernelName = "_kernel_8";
  expectMissed("cp.async.bulk");
  // What has rows.
  kernelName = "_kernel_9";
  expectMissed("barrier.cta");
  expectMissed("cp.async.bulk");
  expectMissed("mbarrier.try_wait");
  expectMissed("mbarrier.arrive");
}

INSTANTIATE_TEST_SUITE_P(Chips, SM80, testing::Values("sm_80"));
INSTANTIATE_TEST_SUITE_P(Chips, SM90a, testing::Values("sm_90a"));

} // namespace
