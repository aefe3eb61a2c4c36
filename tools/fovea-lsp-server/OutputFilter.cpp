//===- OutputFilter.cpp - Changes to what the server answers --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OutputFilter.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>

using namespace llvm;
using namespace fovea;

namespace {
/// The read end of a pipe in place of standard output, and who reads it.
struct OutputFilter {
  lsp::MessageEditor edit;
  std::FILE *input;
  /// Where standard output really goes.
  int output;
  std::error_code error;
  std::thread reader;

  void run();
  std::string editMessage(StringRef text) const;
  std::optional<std::string> readBytes(size_t count) const;
};
} // namespace

/// The one that runs; main and the exit of the process finish it.
static OutputFilter *current = nullptr;

std::optional<std::string> OutputFilter::readBytes(size_t count) const {
  std::string bytes(count, '\0');
  if (std::fread(bytes.data(), 1, count, input) != count)
    return std::nullopt;
  return bytes;
}

/// The message as it is to be sent: the same bytes where nothing is changed.
std::string OutputFilter::editMessage(StringRef text) const {
  Expected<json::Value> message = json::parse(text);
  if (!message) {
    consumeError(message.takeError());
    return text.str();
  }
  json::Object *object = message->getAsObject();
  if (!object || !edit(*object))
    return text.str();
  // As it came: --pretty and -lit-test break lines.
  if (text.contains('\n'))
    return formatv("{0:2}\n", *message);
  return formatv("{0}", *message);
}

void OutputFilter::run() {
  raw_fd_ostream os(output, /*shouldClose=*/false, /*unbuffered=*/true);
  char *line = nullptr;
  size_t capacity = 0;
  ssize_t length;
  while ((length = getline(&line, &capacity, input)) > 0) {
    StringRef header(line, length);
    size_t count;
    if (!header.consume_front("Content-Length: ") ||
        header.trim().getAsInteger(10, count)) {
      os.write(line, length);
      continue;
    }
    // An empty line ends the header.
    (void)getline(&line, &capacity, input);
    std::optional<std::string> text = readBytes(count);
    if (!text)
      break;
    std::string message = editMessage(*text);
    os << "Content-Length: " + std::to_string(message.size()) + "\r\n\r\n" +
              message;
  }
  std::free(line);
  error = os.error();
  os.clear_error();
}

Error lsp::finishOutputFilter() {
  if (!current)
    return Error::success();
  std::unique_ptr<OutputFilter> filter(std::exchange(current, nullptr));
  outs().flush();
  // The last end of the pipe that is written to closes.
  dup2(filter->output, STDOUT_FILENO);
  filter->reader.join();
  std::fclose(filter->input);
  close(filter->output);
  return errorCodeToError(filter->error);
}

Error lsp::startOutputFilter(MessageEditor edit) {
  // It exists before the handler below, and so is there for it.
  outs().flush();
  int ends[2];
  int output = dup(STDOUT_FILENO);
  if (output < 0 || pipe(ends) != 0)
    return errorCodeToError(std::error_code(errno, std::generic_category()));
  dup2(ends[1], STDOUT_FILENO);
  close(ends[1]);
  current = new OutputFilter{
      std::move(edit), fdopen(ends[0], "r"), output, {}, std::thread()};
  current->reader = std::thread([filter = current] { filter->run(); });
  std::atexit([] { consumeError(finishOutputFilter()); });
  return Error::success();
}
