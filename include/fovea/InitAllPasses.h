//===- InitAllPasses.h - Pass registration ----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_INITALLPASSES_H
#define FOVEA_INITALLPASSES_H

namespace fovea {

/// Registers Fovea's passes and pipelines, and the upstream passes that go with
/// them. The one place for all tools and APIs.
void registerAllPasses();

} // namespace fovea

#endif // FOVEA_INITALLPASSES_H
