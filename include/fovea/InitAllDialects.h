//===- InitAllDialects.h - Dialect registration -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_INITALLDIALECTS_H
#define FOVEA_INITALLDIALECTS_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace fovea {

/// Registers every dialect that Fovea's pipelines read or produce, and the
/// interface implementations they need. The one place for all tools and APIs.
void registerAllDialects(mlir::DialectRegistry &registry);

} // namespace fovea

#endif // FOVEA_INITALLDIALECTS_H
