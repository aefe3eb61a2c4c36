//===- CompilationTrace.h - What a compilation does -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles a function like the embedding API, without generating machine code,
// and tells what happened on the way: for tools that explain it.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EXECUTIONENGINE_COMPILATIONTRACE_H
#define FOVEA_EXECUTIONENGINE_COMPILATIONTRACE_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir {
class FunctionOpInterface;
} // namespace mlir

namespace fovea {

/// A remark of a pass.
struct PassDecision {
  /// Such as "attn-select-tiles" and "TilesSelected".
  std::string category, name;
  /// Whether it says what was done; otherwise, what was not.
  bool isPassed;
  /// The operation that it is about, as `inspect` numbers them.
  std::optional<unsigned> operation;
  struct Value {
    std::string key, text;
  };
  llvm::SmallVector<Value, 6> values;
};

/// The module after a pass that has changed it.
struct PassStage {
  std::string pass, ir;
};

/// A parallel loop of the runtime, or a launch of a kernel.
struct ParallelLoop {
  /// The name of its body, or none for a launch.
  std::string body;
  /// None where extents decide.
  std::optional<int64_t> tasks;
};

/// Memory that a function asks the runtime for.
struct Workspace {
  /// Scratch of each thread of its parallel loops.
  int64_t scratchBytes = 0;
  /// All allocations together, results included; none where sizes depend on
  /// arguments.
  std::optional<int64_t> allocatedBytes = 0;
};

struct CompilationTrace {
  std::string name, cpu;
  Signature signature;
  std::vector<PassDecision> decisions;
  std::vector<PassStage> stages;
  std::vector<ParallelLoop> loops;
  Workspace workspace;
};

using ArgumentShapes = llvm::SmallVector<llvm::SmallVector<int64_t>>;

struct TraceOptions {
  /// Whether to keep the module after every pass.
  bool keepsStages = false;
  /// Shapes of the arguments: what code does for these. Without them, what it
  /// does for all. The second argument says what errors call an argument.
  std::function<llvm::Expected<ArgumentShapes>(
      const Signature &, llvm::function_ref<std::string(size_t)>)>
      getShapes;
  /// Is given the entry once attention has been found in linalg, before it is
  /// lowered. Decisions count the operations that a walk visits from here on.
  std::function<void(mlir::FunctionOpInterface, const ArgumentShapes &)>
      inspect;
};

/// Compiles one function of a module given as text. `cpu` and `chip` of the
/// options need not be of this machine.
llvm::Expected<CompilationTrace>
traceCompilation(llvm::StringRef text, const CompileOptions &options,
                 const TraceOptions &traceOptions);

} // namespace fovea

#endif // FOVEA_EXECUTIONENGINE_COMPILATIONTRACE_H
