//===- fovea-lsp-server.cpp - Language server -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OperationDocs.h"
#include "OutputFilter.h"
#include "fovea/InitAllDialects.h"
#include "fovea/Support/OutputFile.h"
#include "fovea/ToolVersion.h"
#include "fovea/Version.h"
#include "mlir/IR/Dialect.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;

/// Upstream's server calls itself mlir-lsp-server.
static bool nameServer(json::Object &result) {
  json::Object *info = result.getObject("serverInfo");
  if (!info)
    return false;
  (*info)["name"] = "fovea-lsp-server";
  (*info)["version"] = FOVEA_VERSION;
  return true;
}

/// Where the pointer is on an operation, upstream's server says its name in
/// quotes, a paragraph of its own, and its generic form.
static bool addDocs(json::Object &result) {
  json::Object *contents = result.getObject("contents");
  std::optional<StringRef> text;
  if (contents)
    text = contents->getString("value");
  if (!text || !text->consume_front("\""))
    return false;
  auto [name, rest] = text->split('"');
  auto [symbol, form] = rest.split("\n\n");
  StringRef docs = fovea::lsp::getOperationDocs(name);
  if (docs.empty())
    return false;
  (*contents)["value"] =
      ("`" + name + "`" + symbol + "\n\n" + docs + "\n\n" + form).str();
  return true;
}

static bool editMessage(json::Object &message) {
  json::Object *result = message.getObject("result");
  return result && (nameServer(*result) || addDocs(*result));
}

static int fail(Error error) {
  WithColor::error(errs(), "fovea-lsp-server")
      << "cannot write to standard output: " << toString(std::move(error))
      << '\n';
  return 1;
}

int fovea_lsp_server_main(int argc, char **argv) {
  fovea::setVersionPrinter();
  mlir::DialectRegistry registry;
  fovea::registerAllDialects(registry);
  return fovea::runWithOutput("fovea-lsp-server", [&] {
    if (Error error = fovea::lsp::startOutputFilter(editMessage))
      return fail(std::move(error));
    int status =
        int(mlir::failed(mlir::MlirLspServerMain(argc, argv, registry)));
    if (Error error = fovea::lsp::finishOutputFilter())
      return fail(std::move(error));
    return status;
  });
}
