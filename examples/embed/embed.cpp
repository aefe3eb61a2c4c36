//===- embed.cpp - Fovea inside another program ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles causal attention for any number of tokens, once, and runs it on
// sequences of two lengths.
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/KernelCache.h"
#include "llvm/Support/raw_ostream.h"
#include <vector>

static constexpr const char *kModule = R"(
func.func @attend(%q: tensor<1x2x?x8xf32>, %k: tensor<1x2x?x8xf32>,
                  %v: tensor<1x2x?x8xf32>) -> tensor<1x2x?x8xf32> {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %q, %c2 : tensor<1x2x?x8xf32>
  %init = tensor.empty(%n) : tensor<1x2x?x8xf32>
  %out = attn.dense
      ins(%q, %k, %v : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>,
                       tensor<1x2x?x8xf32>)
      outs(%init : tensor<1x2x?x8xf32>) {mask = #attn.mask<causal>}
      -> tensor<1x2x?x8xf32>
  return %out : tensor<1x2x?x8xf32>
}
)";

/// All queries and keys are zero, so that every token takes the mean of the
/// values up to its own, and value `i` is `i` everywhere.
static llvm::Error run(const fovea::Kernel &kernel, int64_t numTokens) {
  const int64_t shape[] = {1, 2, numTokens, 8};
  std::vector<float> zeros(2 * numTokens * 8), values(zeros.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i / 8 % numTokens;
  fovea::TensorRef q{zeros.data(), fovea::ElementType::F32, shape, {}, true};
  fovea::TensorRef v{values.data(), fovea::ElementType::F32, shape, {}, true};

  llvm::SmallVector<fovea::OwnedTensor> results;
  if (llvm::Error error = kernel.invoke({q, q, v}, results))
    return error;
  const float *out = results[0].getDataAs<float>();
  llvm::outs() << numTokens << " tokens: the last one is "
               << int(out[(numTokens - 1) * 8]) << '\n';
  return llvm::Error::success();
}

static llvm::Error runAll() {
  // The second call finds the kernel that the first one compiled.
  fovea::KernelCache cache;
  for (int64_t numTokens : {5, 101}) {
    llvm::Expected<fovea::Kernel> kernel = cache.getOrCompile(kModule);
    if (!kernel)
      return kernel.takeError();
    if (llvm::Error error = run(*kernel, numTokens))
      return error;
  }
  llvm::outs() << cache.getStatistics().misses << " compilation\n";
  return llvm::Error::success();
}

int main() {
  if (llvm::Error error = runAll()) {
    llvm::errs() << "embed: error: " << toString(std::move(error)) << '\n';
    return 1;
  }
  return 0;
}
