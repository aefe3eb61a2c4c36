//===- Explain.h - What a function reads, costs and becomes -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_EXPLAIN_EXPLAIN_H
#define FOVEA_TOOLS_EXPLAIN_EXPLAIN_H

#include "fovea/ExecutionEngine/CompilationTrace.h"

namespace fovea {

struct ExplainOptions {
  CompileOptions compile;
  /// The shapes of all arguments, as TraceOptions has it.
  decltype(TraceOptions::getShapes) getShapes;
  /// Elements of an argument, where they are known: so lists, segments, lengths
  /// and masks are, and those that the function computes from it. Asked for
  /// once `getShapes` was.
  std::function<std::optional<TensorRef>(size_t index)> getData;
  /// For each argument the first one that is the same array, as several sources
  /// may have it; empty if all are taken to differ.
  llvm::SmallVector<unsigned> sameAs;
  /// The batch entry and the query head to draw.
  int64_t batch = 0, head = 0;
};

/// The forms of an explanation.
enum class ExplanationKind {
  Text,
  JSON,
  /// The score matrices of the operations that have one.
  SVG,
  /// A page with everything, also the module after each pass.
  HTML
};

/// Explains one function of a module given as text, in each of the forms.
llvm::Expected<std::vector<std::string>>
explain(llvm::StringRef text, const ExplainOptions &options,
        llvm::ArrayRef<ExplanationKind> kinds);

} // namespace fovea

#endif // FOVEA_TOOLS_EXPLAIN_EXPLAIN_H
