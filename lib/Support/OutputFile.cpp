//===- OutputFile.cpp - Files that tools write ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Support/OutputFile.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Support/raw_ostream.h"
#include <csignal>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;
using namespace fovea;

/// A full disk would otherwise end the process when the stream closes.
static std::error_code takeError(raw_fd_ostream &os) {
  os.flush();
  std::error_code code = os.error();
  os.clear_error();
  return code;
}

/// Where `path` leads, over links to files that need not exist.
static ErrorOr<std::string> followLinks(StringRef path) {
  std::filesystem::path current = path.str();
  // As many as Linux follows.
  for (int links = 0; links <= 40; ++links) {
    std::error_code code;
    std::filesystem::path target = std::filesystem::read_symlink(current, code);
    // Where /dev/stdout leads is something open, which need not have a name.
    if (code || StringRef(current.native()).starts_with("/proc/"))
      return current.string();
    current = current.parent_path() / target;
  }
  return std::make_error_code(std::errc::too_many_symbolic_link_levels);
}

/// Gives the new file the mode and the owner of the old one.
static std::error_code copyStatus(const struct stat &from, int file) {
  // Only a privileged user may give files away; it takes bits off the mode.
  struct stat own;
  if (fstat(file, &own) == 0 &&
      (own.st_uid != from.st_uid || own.st_gid != from.st_gid))
    (void)!fchown(file, from.st_uid, from.st_gid);
  if (fchmod(file, from.st_mode & 07777) != 0)
    return std::error_code(errno, std::generic_category());
  return {};
}

static Error replaceFile(StringRef path, const struct stat *existing,
                         function_ref<void(raw_ostream &)> write) {
  Expected<sys::fs::TempFile> file =
      sys::fs::TempFile::create(path + ".%%%%%%%%");
  if (!file)
    return file.takeError();
  std::error_code code;
  {
    raw_fd_ostream os(file->FD, /*shouldClose=*/false);
    write(os);
    code = takeError(os);
  }
  if (!code && existing)
    code = copyStatus(*existing, file->FD);
  if (!code)
    return file->keep(path);
  return joinErrors(errorCodeToError(code), file->discard());
}

Error fovea::writeOutput(StringRef path,
                         function_ref<void(raw_ostream &)> write) {
  ErrorOr<std::string> target = followLinks(path);
  if (!target)
    return errorCodeToError(target.getError());
  struct stat existing;
  bool exists = path != "-" && stat(target->c_str(), &existing) == 0;
  if (path == "-" || StringRef(*target).starts_with("/proc/") ||
      (exists && !S_ISREG(existing.st_mode))) {
    // Nothing that a new file could replace.
    std::error_code code;
    raw_fd_ostream os(path, code);
    if (code)
      return errorCodeToError(code);
    write(os);
    return errorCodeToError(takeError(os));
  }
  // A new file in its place needs no permission, but the caller means it.
  if (exists)
    if (std::error_code code =
            sys::fs::access(*target, sys::fs::AccessMode::Write))
      return errorCodeToError(code);
  return replaceFile(*target, exists ? &existing : nullptr, write);
}

bool fovea::isSameFile(StringRef lhs, StringRef rhs) {
  struct stat first, second;
  return stat(lhs.str().c_str(), &first) == 0 &&
         stat(rhs.str().c_str(), &second) == 0 && S_ISREG(first.st_mode) &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

Error fovea::refuseSameFile(StringRef output, StringRef input) {
  if (!isSameFile(output, input))
    return Error::success();
  return createStringError("cannot write '" + output +
                           "': it is the input; name another file");
}

Expected<std::string> fovea::convertFile(
    StringRef program, StringRef inputSuffix, StringRef input,
    StringRef outputSuffix,
    function_ref<SmallVector<StringRef>(StringRef, StringRef)> getArguments) {
  SmallString<128> from, to, log;
  scope_exit remove([&] {
    for (StringRef path : {from.str(), to.str(), log.str()})
      if (!path.empty())
        sys::fs::remove(path);
  });
  for (auto [suffix, path] : {std::pair(inputSuffix, &from),
                              {outputSuffix, &to},
                              {StringRef("log"), &log}})
    if (std::error_code code =
            sys::fs::createTemporaryFile("fovea", suffix, *path))
      return createStringError(code, "cannot create a temporary file");
  if (Error error = writeOutput(from, [&](raw_ostream &os) { os << input; }))
    return createStringError("cannot write a temporary file: " +
                             toString(std::move(error)));
  SmallVector<StringRef> arguments = getArguments(from, to);
  arguments.insert(arguments.begin(), program);
  std::string message;
  int status = sys::ExecuteAndWait(
      program, arguments, std::nullopt, {std::nullopt, log.str(), log.str()},
      /*SecondsToWait=*/0, /*MemoryLimit=*/0, &message);
  ErrorOr<std::unique_ptr<MemoryBuffer>> file = MemoryBuffer::getFile(
      status ? log : to, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  std::string text = file ? (*file)->getBuffer().str() : std::string();
  if (status)
    return createStringError(message + text);
  return text;
}

int fovea::runWithOutput(StringRef tool, function_ref<int()> main) {
  // Writing fails, instead of the process.
  std::signal(SIGPIPE, SIG_IGN);
  int status = main();
  std::error_code code = takeError(outs());
  if (!code)
    return status;
  WithColor::error(errs(), tool)
      << "cannot write to standard output: " << code.message() << '\n';
  return 1;
}
