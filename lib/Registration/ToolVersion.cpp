//===- ToolVersion.cpp - What --version of tools prints -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ToolVersion.h"
#include "fovea/Version.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

void fovea::setVersionPrinter() {
  cl::SetVersionPrinter([](raw_ostream &os) {
    os << "fovea " << FOVEA_VERSION << '\n';
    // LLVM's own lines, which this printer takes the place of.
    os.flush();
    cl::PrintVersionMessage();
  });
}
