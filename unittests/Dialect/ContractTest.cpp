//===- ContractTest.cpp - What operations declare of their operands -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "gtest/gtest.h"
#include <memory>
#include <vector>

using namespace fovea::attn;
using llvm::StringRef;
using mlir::ShapedType;

static std::optional<int64_t> getAttribute(StringRef name) {
  if (name == "memory")
    return 1;
  return name == "block" ? std::optional<int64_t>(4) : std::nullopt;
}

namespace {

/// Arrays, by name, that are checked against a contract.
class Arrays {
public:
  explicit Arrays(const Contract &contract)
      : contract(contract), operands(contract, getAttribute) {}

  Arrays &add(StringRef name, std::vector<int64_t> shape, unsigned index = 0) {
    shapes.push_back(std::make_unique<std::vector<int64_t>>(std::move(shape)));
    operands.add(*contract.find(name), name, *shapes.back(), index);
    return *this;
  }

  std::string check() const {
    std::optional<Mismatch> mismatch = operands.findMismatch();
    return mismatch ? mismatch->describe() : "";
  }

private:
  const Contract &contract;
  ContractOperands operands;
  std::vector<std::unique_ptr<std::vector<int64_t>>> shapes;
};

TEST(Contract, EveryOperationOfTheDialectHasOne) {
  mlir::MLIRContext context;
  context.loadDialect<AttnDialect>();
  unsigned count = 0;
  for (mlir::RegisteredOperationName name : context.getRegisteredOperations()) {
    auto *contract = name.getInterface<ContractOpInterface>();
    if (!contract)
      continue;
    ++count;
    // Letters that only broadcast would be compared with nothing.
    auto operands = contract->getContract().getOperands();
    for (const OperandSpec &operand : operands)
      for (const ExtentSpec &extent : operand.extents)
        EXPECT_TRUE(extent.symbol.empty() ||
                    llvm::any_of(operands,
                                 [&](const OperandSpec &other) {
                                   return llvm::any_of(
                                       other.extents,
                                       [&](const ExtentSpec &own) {
                                         return own.symbol == extent.symbol &&
                                                !own.mayBroadcast;
                                       });
                                 }))
            << name.getStringRef().str() << ": " << operand.name;
    EXPECT_EQ(contract->getContract().getOperation(), name.getStringRef());
    EXPECT_FALSE(contract->getContract().getOperands().empty());
  }
  EXPECT_GE(count, 30u);
}

TEST(Contract, ComparesShapesWithoutIR) {
  auto dense = [] { return Arrays(DenseOp::getContract()); };
  EXPECT_EQ(dense()
                .add("query", {2, 4, 7, 8})
                .add("key", {2, 2, 9, 8})
                .add("value", {2, 2, 9, 5})
                .add("bias", {1, 1, 7, 9})
                .check(),
            "");
  EXPECT_EQ(dense().add("query", {2, 4, 7, 8}).add("key", {3, 2, 9, 8}).check(),
            "expects extent 0 of key to be 2 (extent 0 of query), but got 3");
  EXPECT_EQ(dense().add("query", {2, 4, 7, 8}).add("key", {2, 3, 9, 8}).check(),
            "expects extent 1 of query to be a multiple of extent 1 of key, "
            "but got 4 and 3");
  EXPECT_EQ(
      dense().add("query", {2, 4, 7, 8}).add("bias", {2, 2, 7, 9}).check(),
      "expects extent 1 of bias to be 4 or 1 (extent 1 of query), but "
      "got 2");
  EXPECT_EQ(dense().add("query", {2, 4, 7}).check(),
            "expects query to have rank 4, but got 3");
  EXPECT_EQ(dense().add("query", {2, 4, 7, 0}).check(),
            "expects extent 3 of query to be at least 1, but got 0");
  EXPECT_EQ(dense().add("query", {2, 4, 7, ShapedType::kDynamic}).check(),
            "expects extent 3 of query to be static, but got a dynamic extent");
}

/// A dynamic extent between two that are known hides neither from the other.
TEST(Contract, ComparesWithTheFirstExtentThatIsKnown) {
  EXPECT_EQ(Arrays(DenseOp::getContract())
                .add("query", {ShapedType::kDynamic, 4, 7, 8})
                .add("key", {2, 2, 9, 8})
                .add("value", {3, 2, 9, 5})
                .check(),
            "expects extent 0 of value to be 2 (extent 0 of key), but got 3");
}

TEST(Contract, NumbersComeFromAttributes) {
  EXPECT_EQ(
      Arrays(VQOp::getContract()).add("bias", {1, 1, 1, 9}).check(),
      "expects extent 3 of bias to be 8 ((memory + 1) * block), but got 9");
}

TEST(Contract, ElementsOfListsHaveLettersOfTheirOwn) {
  auto withWeights = [](std::vector<int64_t> first,
                        std::vector<int64_t> second) {
    Arrays all(FastMultipoleOp::getContract());
    all.add("query", {1, 4, 64, 8}).add("key", {1, 2, 64, 8});
    all.add("key_weights", std::move(first), 0);
    all.add("key_weights", std::move(second), 1);
    return all.check();
  };
  EXPECT_EQ(withWeights({1, 2, 8, 8}, {2, 2, 16, 8}), "");
  EXPECT_EQ(withWeights({1, 2, 8, 8}, {2, 4, 16, 8}),
            "expects extent 1 of key_weights to be 2 (extent 1 of "
            "key_weights), but got 4");
}

TEST(Contract, CountsSummaries) {
  auto check = [](int64_t count) {
    return Arrays(SummarizeOp::getContract())
        .add("input", {1, 2, 10, 3})
        .add("weights", {1, 2, 4, 3})
        .add("output", {1, 2, count, 3})
        .check();
  };
  EXPECT_EQ(check(6), "");
  EXPECT_EQ(check(5), "expects extent 2 of output to be 6 (the summaries of "
                      "extent 2 of input), but got 5");
}

/// What a parser accepts too easily would be checked by nobody.
TEST(ContractDeathTest, MalformedDeclarationsEndTheProcess) {
  for (const char *spec : {"a: T[B, H", "a: X[B]", "a: [B%]", "a: [2 + b]"})
    EXPECT_DEATH(Contract("attn.test", spec), "malformed declaration");
  EXPECT_DEATH(Contract("attn.test", "a: [B]", "B == floor(B / 2) * B"),
               "malformed declaration");
  EXPECT_DEATH(Contract("attn.test", "a: [B]", "H % B == 0"), "no extent 'H'");
  EXPECT_DEATH(Contract("attn.test", "a: [B~]", "B % 2 == 0"), "no extent 'B'");
  EXPECT_DEATH(Contract("attn.test", "d_a: gradient of a"), "no operand 'a'");
}

} // namespace
