//===- ToolVersion.h - What --version of tools prints -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLVERSION_H
#define FOVEA_TOOLVERSION_H

namespace fovea {

/// Has --version of this process print Fovea's version, and then LLVM's. To be
/// called before options are parsed, and after cl::ResetCommandLineParser,
/// which otherwise takes --version away.
void setVersionPrinter();

} // namespace fovea

#endif // FOVEA_TOOLVERSION_H
