//===- ExtentRuleBuilder.h - What rules of extents consist of ---*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_ANALYSIS_EXTENTRULEBUILDER_H
#define FOVEA_LIB_ANALYSIS_EXTENTRULEBUILDER_H

#include "fovea/Analysis/ExtentRules.h"

namespace fovea {

/// Tells a visitor rules that several operations have.
class ExtentRuleBuilder {
public:
  explicit ExtentRuleBuilder(llvm::function_ref<void(const ExtentRule &)> visit)
      : visit(visit) {}

protected:
  /// An operand with its name.
  struct Named {
    std::string name;
    mlir::Value operand;
  };

  void addNodeShape(const Named &a, const Named &b);
  /// All extents of both are the same, where both are there.
  void addLike(const Named &a, const Named &b);
  void addSummaries(const Named &output, const Named &input, int64_t interval,
                    int64_t rank);
  /// What every gradient of attention has beside its sources; `output`, `lse`
  /// and `dLse` may be null.
  void addGradients(const Named &query, mlir::Value output, mlir::Value lse,
                    mlir::Value dOutput, mlir::Value dLse, mlir::Value dQuery);
  void addEqual(const Named &a, unsigned dimA, const Named &b, unsigned dimB);
  void addMultiple(const Named &a, unsigned dimA, const Named &b,
                   unsigned dimB);
  /// Only extents of 1 in the type broadcast.
  void addBroadcast(const Named &a, unsigned dimA, const Named &b,
                    unsigned dimB);
  /// Extents `dims` of both are the same.
  void addShape(const Named &a, const Named &b, llvm::ArrayRef<unsigned> dims);
  void addAttention(const Named &query, const Named &key, const Named &value);
  void addDestinations(const Named &query, mlir::Value output, mlir::Value lse);
  void addTerms(const Named &query, const Named &key, const Named &logWeight,
                const Named &bias);
  void addWeights(const Named &summarized, llvm::StringRef what,
                  mlir::ValueRange weights, mlir::ValueRange biases);

private:
  llvm::function_ref<void(const ExtentRule &)> visit;
};

} // namespace fovea

#endif // FOVEA_LIB_ANALYSIS_EXTENTRULEBUILDER_H
