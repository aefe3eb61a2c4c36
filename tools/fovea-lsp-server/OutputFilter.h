//===- OutputFilter.h - Changes to what the server answers ------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Upstream's server is one function that writes to standard output. What it
// says passes through here before anybody reads it.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_FOVEALSPSERVER_OUTPUTFILTER_H
#define FOVEA_TOOLS_FOVEALSPSERVER_OUTPUTFILTER_H

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <functional>

namespace fovea::lsp {

/// Changes a message in place, and returns whether it did.
using MessageEditor = std::function<bool(llvm::json::Object &message)>;

/// From now on, sends each message of the protocol that is written to standard
/// output through `edit`; everything else, such as --help, passes as it is.
llvm::Error startOutputFilter(MessageEditor edit);

/// Waits until everything has passed and gives standard output back. Happens by
/// itself where the process exits. Returns the error of writing, if there was
/// one.
llvm::Error finishOutputFilter();

} // namespace fovea::lsp

#endif // FOVEA_TOOLS_FOVEALSPSERVER_OUTPUTFILTER_H
