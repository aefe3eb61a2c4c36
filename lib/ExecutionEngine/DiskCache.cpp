//===- DiskCache.cpp - Compiled code in a folder --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/DiskCache.h"
#include "CompilerThread.h"
#include "KernelFile.h"
#include "PackedEntry.h"
#include "fovea/Support/Clock.h"
#include "fovea/Target/CPU/HostTarget.h"
#include "fovea/Version.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/xxhash.h"
#include <cstdlib>
#include <fcntl.h>
#include <link.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;
using namespace fovea;

static constexpr StringLiteral kSuffix = ".kernel";

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// Appends the build id of a loaded object to the string at `data` if compiled
/// code depends on it: the one with this function, and shared libraries.
static int addBuildId(dl_phdr_info *info, size_t, void *data) {
  auto address = reinterpret_cast<uintptr_t>(&addBuildId);
  StringRef name = sys::path::filename(info->dlpi_name);
  bool isWanted = name.starts_with("libLLVM") || name.starts_with("libMLIR") ||
                  name.starts_with("libfovea");
  bool isThis = false;
  std::string id;
  for (const auto &header : ArrayRef(info->dlpi_phdr, info->dlpi_phnum)) {
    uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD)
      isThis |= address >= begin && address - begin < header.p_memsz;
    if (header.p_type != PT_NOTE)
      continue;
    StringRef notes(reinterpret_cast<const char *>(begin), header.p_memsz);
    while (notes.size() >= sizeof(ElfW(Nhdr))) {
      const auto *note = reinterpret_cast<const ElfW(Nhdr) *>(notes.data());
      notes = notes.drop_front(sizeof(*note));
      size_t nameBytes = alignTo(note->n_namesz, 4);
      if (note->n_type == NT_GNU_BUILD_ID && notes.starts_with("GNU"))
        id += notes.substr(nameBytes, note->n_descsz);
      notes = notes.substr(nameBytes + alignTo(note->n_descsz, 4));
    }
  }
  auto &ids = *static_cast<std::optional<std::string> *>(data);
  if (!isWanted && !isThis)
    return 0;
  if (id.empty()) {
    // Nobody could tell this build from the next one.
    ids.reset();
    return 1;
  }
  *ids += id;
  return 0;
}

/// What tells this compiler from any other; nothing if that is unknown.
static const std::optional<std::string> &getBuildId() {
  static const std::optional<std::string> id = [] {
    std::optional<std::string> ids(FOVEA_VERSION);
    dl_iterate_phdr(addBuildId, &ids);
    return ids;
  }();
  return id;
}

/// All that code depends on; empty if it is not kept.
static std::string getKey(StringRef text, const CompileOptions &options) {
  if (options.target != fovea::Target::CPU &&
      options.target != fovea::Target::Reference)
    return {};
  const std::optional<std::string> &build = getBuildId();
  if (!build)
    return {};
  // Names of CPUs say little about what is there: hypervisors hide features.
  auto machine = fovea::detail::createHostTargetMachine(
      StringRef(options.cpu).split(',').first);
  if (!machine) {
    consumeError(machine.takeError());
    return {};
  }
  const std::string parts[] = {*build,
                               (*machine)->getTargetTriple().str(),
                               (*machine)->getTargetCPU().str(),
                               (*machine)->getTargetFeatureString().str(),
                               fovea::detail::serialize(options),
                               text.str()};
  std::string key;
  for (const std::string &part : parts)
    key += std::to_string(part.size()) + ':' + part;
  return key;
}

std::string DiskCache::getPath(StringRef key) const {
  XXH128_hash_t hash = xxh3_128bits(arrayRefFromStringRef(key));
  SmallString<128> path(folder);
  sys::path::append(
      path, utohexstr(hash.high64, /*LowerCase=*/true, /*Width=*/16) +
                utohexstr(hash.low64, /*LowerCase=*/true, 16) + kSuffix);
  return path.str().str();
}

//===----------------------------------------------------------------------===//
// Environment
//===----------------------------------------------------------------------===//

DiskCache DiskCache::fromEnvironment() {
  uint64_t maxBytes = kDefaultBytes;
  const char *bytes = std::getenv("FOVEA_CACHE_BYTES");
  if (bytes && *bytes && !to_integer(bytes, maxBytes, /*Base=*/10)) {
    maxBytes = kDefaultBytes;
    errs() << "fovea: ignoring FOVEA_CACHE_BYTES='" << bytes
           << "': expected a number of bytes; using " << maxBytes << '\n';
  }
  if (const char *folder = std::getenv("FOVEA_CACHE_DIR"))
    return DiskCache(folder, maxBytes);
  SmallString<128> folder;
  if (!sys::path::cache_directory(folder))
    return DiskCache();
  sys::path::append(folder, "fovea");
  return DiskCache(folder, maxBytes);
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Whether nobody but this user and the administrator can have written it: what
/// is in it will run.
static bool isTrusted(const sys::fs::file_status &status) {
  return status.type() == sys::fs::file_type::regular_file &&
         (status.getUser() == geteuid() || status.getUser() == 0) &&
         !(status.permissions() &
           (sys::fs::group_write | sys::fs::others_write));
}

static std::unique_ptr<MemoryBuffer> readFile(const std::string &path,
                                              uint64_t maxBytes) {
  Expected<sys::fs::file_t> file =
      sys::fs::openNativeFileForRead(path, sys::fs::OF_UpdateAtime);
  if (!file) {
    consumeError(file.takeError());
    return nullptr;
  }
  std::unique_ptr<MemoryBuffer> buffer;
  sys::fs::file_status status;
  if (!sys::fs::status(*file, status) && isTrusted(status) &&
      status.getSize() <= maxBytes) {
    // Volatile: not mapped, because others may truncate it.
    auto read = MemoryBuffer::getOpenFile(*file, path, status.getSize(),
                                          /*RequiresNullTerminator=*/false,
                                          /*IsVolatile=*/true);
    if (read)
      buffer = std::move(*read);
  }
  sys::fs::closeFile(*file);
  return buffer;
}

/// Says that the file was used. In a folder that cannot be written to it stays
/// as old as it was.
static void touch(const std::string &path) {
  utimensat(AT_FDCWD, path.c_str(), /*times=*/nullptr, /*flags=*/0);
}

std::optional<Kernel> DiskCache::load(StringRef text,
                                      const CompileOptions &options) const {
  if (folder.empty())
    return std::nullopt;
  Expected<Kernel> kernel =
      fovea::detail::compileOnThread<Kernel>([&]() -> Expected<Kernel> {
        Stopwatch watch;
        std::string key = getKey(text, options);
        std::string path = getPath(key);
        std::unique_ptr<MemoryBuffer> file;
        if (!key.empty())
          file = readFile(path, maxBytes);
        auto impl = std::make_shared<Kernel::Impl>();
        std::unique_ptr<MemoryBuffer> object;
        if (file)
          object = fovea::detail::readKernelFile(file->getBuffer(), key, *impl);
        if (!object)
          return createStringError("no such entry");
        touch(path);
        impl->options = options;
        auto machine = fovea::detail::createHostTargetMachine(
            StringRef(options.cpu).split(',').first);
        if (!machine)
          return machine.takeError();
        impl->times.parse = watch.lap();
        auto code = fovea::detail::LoadedCode::load(std::move(object),
                                                    fovea::detail::kPackedName,
                                                    **machine, impl->times);
        if (!code)
          return code.takeError();
        impl->setCode(std::move(*code));
        return Kernel(impl);
      });
  if (kernel)
    return *kernel;
  consumeError(kernel.takeError());
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Whether the process may write files of that size; the signal that it gets
/// otherwise would end it.
static bool isWithinLimit(size_t bytes) {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur);
}

/// Writes all of it or nothing: readers never see a part.
static void writeFile(const std::string &path, StringRef text) {
  SmallString<128> temporary;
  int file;
  if (sys::fs::createUniqueFile(StringRef(path).drop_back(kSuffix.size()) +
                                    "-%%%%%%%%" + kSuffix,
                                file, temporary, sys::fs::OF_None,
                                sys::fs::owner_read | sys::fs::owner_write))
    return;
  raw_fd_ostream os(file, /*shouldClose=*/true);
  os << text;
  os.close();
  bool isWritten = !os.has_error();
  os.clear_error();
  if (!isWritten || sys::fs::rename(temporary, path))
    sys::fs::remove(temporary);
}

void DiskCache::store(StringRef text, const CompileOptions &options,
                      const Kernel &kernel) const {
  const Kernel::Impl &impl = kernel.getImpl();
  std::unique_ptr<MemoryBuffer> object = impl.code->takeObject();
  if (folder.empty() || !object)
    return;
  std::string key = getKey(text, options);
  if (key.empty())
    return;
  std::string file =
      fovea::detail::writeKernelFile(key, impl, object->getBuffer());
  if (file.size() > maxBytes || !isWithinLimit(file.size()) ||
      sys::fs::create_directories(folder, /*IgnoreExisting=*/true,
                                  sys::fs::owner_all))
    return;
  writeFile(getPath(key), file);
  evict();
}

void DiskCache::evict() const {
  struct File {
    sys::TimePoint<> lastUse;
    uint64_t bytes;
    std::string path;
  };
  std::vector<File> files;
  uint64_t sum = 0;
  std::error_code error;
  for (sys::fs::directory_iterator it(folder, error), end; it != end && !error;
       it.increment(error)) {
    // Others come and go. Temporary files of processes that were killed count,
    // too.
    sys::fs::file_status status;
    if (!StringRef(it->path()).ends_with(kSuffix) ||
        sys::fs::status(it->path(), status))
      continue;
    files.push_back(
        {status.getLastModificationTime(), status.getSize(), it->path()});
    sum += files.back().bytes;
  }
  llvm::sort(files, [](const File &left, const File &right) {
    return left.lastUse < right.lastUse;
  });
  for (const File &file : files) {
    if (sum <= maxBytes)
      break;
    sys::fs::remove(file.path);
    sum -= file.bytes;
  }
}
