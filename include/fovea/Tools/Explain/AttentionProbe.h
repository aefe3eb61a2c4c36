//===- AttentionProbe.h - What attention of a function is given -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_EXPLAIN_ATTENTIONPROBE_H
#define FOVEA_TOOLS_EXPLAIN_ATTENTIONPROBE_H

#include "fovea/ExecutionEngine/CompilationTrace.h"

namespace fovea {

/// One dense attention of a function, as written or found in linalg.
struct ProbedAttention {
  /// Where the text has it, if it is from a text.
  std::string place;
  /// Why its operands are not returned; empty if they are.
  std::string reason;
  bool isCausal = false;
  double scale = 0;
};

struct AttentionProbe {
  /// A module whose function also returns query, key and value of each
  /// attention that has no reason against it, behind its own results.
  std::string text;
  std::vector<ProbedAttention> attention;
};

/// Lets a function of a module given as text return what its attention reads.
llvm::Expected<AttentionProbe> probeAttention(llvm::StringRef text,
                                              const CompileOptions &options);

/// Useful floating-point operations of a function of a module, for arguments of
/// these shapes; none if they are not known.
std::optional<double> countFlops(llvm::StringRef text, llvm::StringRef entry,
                                 const ArgumentShapes &shapes);

} // namespace fovea

#endif // FOVEA_TOOLS_EXPLAIN_ATTENTIONPROBE_H
