//===- FullyMasked.h - Rows without keys in raised attention ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_SUPPORT_FULLYMASKED_H
#define FOVEA_SUPPORT_FULLYMASKED_H

namespace fovea::attn {

/// What a row of queries that may read no key gives once attention is raised.
enum class FullyMasked {
  Ours,  // zeros, whatever the program gives
  Refuse // no attention is raised for which the program could give others
};

} // namespace fovea::attn

#endif // FOVEA_SUPPORT_FULLYMASKED_H
