//===- DiskCacheTest.cpp - Tests of compiled code in a folder -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/DiskCache.h"
#include "TestUtils.h"
#include "fovea/ExecutionEngine/KernelCache.h"
#include "fovea/Target/CPU/HostTarget.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include <chrono>

using namespace fovea;
using namespace fovea::test;

namespace {

/// Has ranks, names, dynamic extents and strides, attention whose lengths must
/// agree, and results.
constexpr const char *kDense = R"(
  func.func @dense(%q: tensor<1x1x?x4xf32>, %k: tensor<1x1x?x4xf32>
                     {bufferization.buffer_layout = strided<[?, ?, ?, 1]>},
                   %v: tensor<1x1x?x4xf32>) -> (tensor<1x1x?x4xf32>, f32) {
    %c2 = arith.constant 2 : index
    %zero = arith.constant 0.5 : f32
    %n = tensor.dim %q, %c2 : tensor<1x1x?x4xf32>
    %init = tensor.empty(%n) : tensor<1x1x?x4xf32>
    %out = attn.dense ins(%q, %k, %v : tensor<1x1x?x4xf32>,
        tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
        outs(%init : tensor<1x1x?x4xf32>) -> tensor<1x1x?x4xf32>
    return %out, %zero : tensor<1x1x?x4xf32>, f32
  }
)";

class DiskCacheTest : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("fovea-cache", root));
    // Folders are made.
    folder = (root + "/one/two").str();
  }
  void TearDown() override { llvm::sys::fs::remove_directories(root); }

  std::vector<std::string> getFiles() const {
    std::vector<std::string> files;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(folder, error), end;
         it != end && !error; it.increment(error))
      files.push_back(it->path());
    return files;
  }

  static std::string read(llvm::StringRef path) {
    auto buffer = llvm::MemoryBuffer::getFile(path);
    return buffer ? (*buffer)->getBuffer().str() : std::string();
  }
  static void write(llvm::StringRef path, llvm::StringRef text) {
    std::error_code error;
    llvm::raw_fd_ostream os(path, error);
    ASSERT_FALSE(error);
    os << text;
  }

  /// How many of `texts` a cache of another process would find.
  int countLoads(std::vector<std::string> texts,
                 const CompileOptions &options = {}) const {
    int count = 0;
    for (const std::string &text : texts)
      count += DiskCache(folder).load(text, options).has_value();
    return count;
  }

  static void expectAdds(const Kernel &kernel) {
    Floats x({4}, {1, 2, 3, 4});
    llvm::SmallVector<OwnedTensor> results;
    ASSERT_EQ(getText(kernel.invoke({x, x}, results)), "");
    EXPECT_EQ(toFloats(results[0]), (std::vector<float>{2, 4, 6, 8}));
  }

  /// The kernel of `text`, compiled by a cache with the folder.
  KernelCache::Statistics add(const std::string &text,
                              const CompileOptions &options = {}) const {
    KernelCache cache(/*capacity=*/4, DiskCache(folder));
    llvm::Expected<Kernel> kernel = cache.getOrCompile(text, options);
    if (kernel)
      expectAdds(*kernel);
    else
      ADD_FAILURE() << llvm::toString(kernel.takeError());
    return cache.getStatistics();
  }

  llvm::SmallString<128> root;
  std::string folder;
};

TEST_F(DiskCacheTest, keepsKernelsForOthers) {
  EXPECT_EQ(add(kAdd).loads, 0u);
  ASSERT_EQ(getFiles().size(), 1u);
  KernelCache::Statistics second = add(kAdd);
  EXPECT_EQ(second.loads, 1u);
  EXPECT_EQ(second.misses, 1u);
  EXPECT_EQ(getFiles().size(), 1u);
}

TEST_F(DiskCacheTest, loadsAllThatKernelsConsistOf) {
  KernelCache first(4, DiskCache(folder)), second(4, DiskCache(folder));
  llvm::Expected<Kernel> compiled = first.getOrCompile(kDense);
  ASSERT_TRUE(bool(compiled)) << getText(compiled.takeError());
  llvm::Expected<Kernel> loaded = second.getOrCompile(kDense);
  ASSERT_TRUE(bool(loaded)) << getText(loaded.takeError());
  ASSERT_EQ(second.getStatistics().loads, 1u);
  EXPECT_EQ(loaded->getName(), compiled->getName());
  EXPECT_EQ(loaded->getCPU(), compiled->getCPU());
  EXPECT_EQ(loaded->getTarget(), compiled->getTarget());
  EXPECT_EQ(loaded->getDiagnostics(), compiled->getDiagnostics());
  EXPECT_EQ(loaded->getSignature().getString(),
            compiled->getSignature().getString());

  Floats q({1, 1, 3, 4}), k({1, 1, 5, 4}), v({1, 1, 5, 4}), fewer({1, 1, 2, 4});
  llvm::SmallVector<OwnedTensor> expected, results;
  ASSERT_EQ(getText(compiled->invoke({q, k, v}, expected)), "");
  ASSERT_EQ(getText(loaded->invoke({q, k, v}, results)), "");
  EXPECT_EQ(toFloats(results[0]), toFloats(expected[0]));
  EXPECT_EQ(toFloats(results[1]), std::vector<float>{0.5});
  std::string error = getText(compiled->checkInputs({q, k, fewer}));
  EXPECT_NE(error, "");
  EXPECT_EQ(getText(loaded->checkInputs({q, k, fewer})), error);
}

TEST_F(DiskCacheTest, differentiatesWhatItLoads) {
  std::string text = R"(func.func @square(%x: f32) -> f32 {
    %0 = arith.mulf %x, %x : f32
    return %0 : f32
  })";
  KernelCache cache(4, DiskCache(folder));
  ASSERT_TRUE(bool(cache.getOrCompile(text)));
  std::optional<Kernel> kernel = DiskCache(folder).load(text, {});
  ASSERT_TRUE(kernel);
  llvm::Expected<Kernel> gradient = compileVJP(*kernel);
  ASSERT_TRUE(bool(gradient)) << getText(gradient.takeError());
  Floats three({}, {3}), one({}, {1});
  llvm::SmallVector<OwnedTensor> results;
  ASSERT_EQ(getText(gradient->invoke({three, one}, results)), "");
  EXPECT_EQ(toFloats(results[0]), std::vector<float>{6});
}

TEST_F(DiskCacheTest, tellsTextsAndOptionsApart) {
  EXPECT_EQ(add(kAdd).loads, 0u);
  EXPECT_EQ(countLoads({kAdd}), 1);
  EXPECT_EQ(countLoads({std::string(kAdd) + "\n"}), 0);
  auto expectOther = [&](const CompileOptions &options) {
    EXPECT_EQ(add(kAdd, options).loads, 0u);
    EXPECT_EQ(add(kAdd, options).loads, 1u);
  };
  CompileOptions options;
  options.target = Target::Reference;
  expectOther(options);
  options.optLevel = 0;
  expectOther(options);
  options.cpu =
      fovea::detail::getBaselineCPU(llvm::Triple(llvm::sys::getProcessTriple()))
          .str();
  expectOther(options);
  options.entry = "add";
  expectOther(options);
  options.raise = false;
  expectOther(options);
  options.f32 = "tf32";
  expectOther(options);
  EXPECT_EQ(getFiles().size(), 7u);
}

TEST_F(DiskCacheTest, keepsNoKernelsOfGPUs) {
  CompileOptions options;
  options.target = Target::GPUEmulator;
  EXPECT_EQ(add(kAdd, options).loads, 0u);
  EXPECT_EQ(add(kAdd, options).loads, 0u);
  EXPECT_TRUE(getFiles().empty());
}

TEST_F(DiskCacheTest, keepsNothingWithoutFolder) {
  KernelCache cache(4, DiskCache(""));
  ASSERT_TRUE(bool(cache.getOrCompile(kAdd)));
  EXPECT_FALSE(DiskCache("").load(kAdd, {}));
  EXPECT_FALSE(DiskCache().load(kAdd, {}));
}

TEST_F(DiskCacheTest, ignoresDamagedFiles) {
  add(kAdd);
  std::string path = getFiles().at(0), good = read(path);
  ASSERT_GT(good.size(), 1000u);
  for (size_t i = 0; i < good.size(); i += i < 64 ? 1 : 61) {
    std::string damaged = good;
    damaged[i] ^= 1 << i % 8;
    write(path, damaged);
    ASSERT_EQ(countLoads({kAdd}), 0) << "byte " << i;
    write(path, good.substr(0, i));
    ASSERT_EQ(countLoads({kAdd}), 0) << i << " bytes";
  }
  write(path, good + "x");
  EXPECT_EQ(countLoads({kAdd}), 0);
  write(path, good);
  EXPECT_EQ(countLoads({kAdd}), 1);
  // It is replaced.
  write(path, "");
  EXPECT_EQ(add(kAdd).loads, 0u);
  EXPECT_EQ(add(kAdd).loads, 1u);
}

TEST_F(DiskCacheTest, ignoresCodeForOtherMachines) {
  add(kAdd);
  std::string path = getFiles().at(0), file = read(path);
  auto writeWithChecksum = [&] {
    uint64_t checksum = llvm::xxh3_64bits(llvm::StringRef(file).drop_front(24));
    file.replace(8, sizeof(checksum), reinterpret_cast<const char *>(&checksum),
                 sizeof(checksum));
    write(path, file);
  };
  // Canary: the checksum is the one that it looks at.
  writeWithChecksum();
  EXPECT_EQ(countLoads({kAdd}), 1);
  auto machine =
      llvm::cantFail(fovea::detail::createHostTargetMachine("native"));
  size_t features = file.find(machine->getTargetFeatureString().str());
  ASSERT_NE(features, std::string::npos);
  file[features] = file[features] == '+' ? '-' : '+';
  writeWithChecksum();
  EXPECT_EQ(countLoads({kAdd}), 0);
}

TEST_F(DiskCacheTest, ignoresWhatOthersCanWrite) {
  add(kAdd);
  std::string path = getFiles().at(0);
  for (auto writable :
       {llvm::sys::fs::group_write, llvm::sys::fs::others_write}) {
    ASSERT_FALSE(llvm::sys::fs::setPermissions(path, llvm::sys::fs::owner_all |
                                                         writable));
    EXPECT_EQ(countLoads({kAdd}), 0);
  }
  ASSERT_FALSE(llvm::sys::fs::setPermissions(path, llvm::sys::fs::owner_read));
  EXPECT_EQ(countLoads({kAdd}), 1);
}

TEST_F(DiskCacheTest, doesWithoutFolderThatCannotBeMade) {
  folder = (root + "/file").str();
  write(folder, "text");
  EXPECT_EQ(add(kAdd).loads, 0u);
  EXPECT_EQ(add(kAdd).loads, 0u);
  EXPECT_EQ(read(folder), "text");
  // A folder in the place of an entry.
  folder = (root + "/other").str();
  add(kAdd);
  std::string path = getFiles().at(0);
  ASSERT_FALSE(llvm::sys::fs::remove(path));
  ASSERT_FALSE(llvm::sys::fs::create_directories(path + "/inside"));
  EXPECT_EQ(add(kAdd).loads, 0u);
  EXPECT_EQ(add(kAdd).loads, 0u);
  // Nothing temporary is left.
  EXPECT_EQ(getFiles().size(), 1u);
}

TEST_F(DiskCacheTest, dropsTheOnesUnusedForLongest) {
  std::vector<std::string> texts;
  for (char name : {'a', 'b', 'c', 'd'})
    texts.push_back(std::string(kAdd) + "//" + name + "\n");
  add(texts[0]);
  uint64_t bytes = read(getFiles().at(0)).size();
  add(texts[1]);
  // Makes all as old as one another, and uses the first one.
  for (const std::string &path : getFiles()) {
    int file;
    ASSERT_FALSE(llvm::sys::fs::openFileForWrite(
        path, file, llvm::sys::fs::CD_OpenExisting));
    auto hourAgo = std::chrono::time_point_cast<std::chrono::nanoseconds>(
        std::chrono::system_clock::now() - std::chrono::hours(1));
    EXPECT_FALSE(
        llvm::sys::fs::setLastAccessAndModificationTime(file, hourAgo));
    llvm::sys::Process::SafelyCloseFileDescriptor(file);
  }
  EXPECT_EQ(countLoads({texts[0]}), 1);
  auto addBounded = [&](const std::string &text, uint64_t maxBytes) {
    KernelCache cache(4, DiskCache(folder, maxBytes));
    EXPECT_TRUE(bool(cache.getOrCompile(text)));
  };
  addBounded(texts[2], 2 * bytes + bytes / 2);
  EXPECT_EQ(countLoads({texts[0]}), 1);
  EXPECT_EQ(countLoads({texts[1]}), 0);
  EXPECT_EQ(countLoads({texts[2]}), 1);
  EXPECT_EQ(getFiles().size(), 2u);
  // What does not fit alone makes nothing go away.
  addBounded(texts[3], bytes / 2);
  EXPECT_EQ(getFiles().size(), 2u);
  // Files of others stay, files of writers that were killed do not.
  write(folder + "/notes.txt", std::string(4 * bytes, 'x'));
  write(folder + "/0123-abc.kernel", std::string(4 * bytes, 'x'));
  addBounded(texts[3], bytes + bytes / 2);
  EXPECT_EQ(countLoads({texts[3]}), 1);
  EXPECT_EQ(getFiles().size(), 2u);
}

TEST_F(DiskCacheTest, readsTheEnvironment) {
  auto load = [&] { return DiskCache::fromEnvironment().load(kAdd, {}); };
  add(kAdd);
  setenv("FOVEA_CACHE_DIR", folder.c_str(), 1);
  EXPECT_TRUE(load());
  setenv("FOVEA_CACHE_BYTES", "10", 1);
  EXPECT_FALSE(load());
  setenv("FOVEA_CACHE_BYTES", "ten", 1);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(load());
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "fovea: ignoring FOVEA_CACHE_BYTES='ten': expected a number of "
            "bytes; using 268435456\n");
  unsetenv("FOVEA_CACHE_BYTES");
  setenv("FOVEA_CACHE_DIR", "", 1);
  EXPECT_FALSE(load());
  unsetenv("FOVEA_CACHE_DIR");
  setenv("XDG_CACHE_HOME", root.c_str(), 1);
  EXPECT_FALSE(load());
  ASSERT_FALSE(llvm::sys::fs::rename(folder, root + "/fovea"));
  EXPECT_TRUE(load());
  unsetenv("XDG_CACHE_HOME");
  setenv("FOVEA_CACHE_DIR", "", 1);
}

} // namespace
