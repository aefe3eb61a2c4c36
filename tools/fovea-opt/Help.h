//===- Help.h - What fovea-opt --help shows ---------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_FOVEAOPT_HELP_H
#define FOVEA_TOOLS_FOVEAOPT_HELP_H

namespace fovea::opt {

/// Lets --help begin with Fovea's pipelines and passes, and leaves of all other
/// options only those that are often needed; --help-hidden shows the rest.
/// Called when everything is registered and before the command line is parsed.
void arrangeHelp();

} // namespace fovea::opt

#endif // FOVEA_TOOLS_FOVEAOPT_HELP_H
