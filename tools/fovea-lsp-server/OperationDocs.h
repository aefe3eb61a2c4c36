//===- OperationDocs.h - Documentation of operations ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_FOVEALSPSERVER_OPERATIONDOCS_H
#define FOVEA_TOOLS_FOVEALSPSERVER_OPERATIONDOCS_H

#include "llvm/ADT/StringRef.h"

namespace fovea::lsp {

/// Summary, syntax and description of the operation as Markdown, from its
/// TableGen file; empty for operations of other dialects.
llvm::StringRef getOperationDocs(llvm::StringRef name);

} // namespace fovea::lsp

#endif // FOVEA_TOOLS_FOVEALSPSERVER_OPERATIONDOCS_H
