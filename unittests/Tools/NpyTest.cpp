//===- NpyTest.cpp - Tests of array files -------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Tools/Npy/Npy.h"
#include "../ExecutionEngine/TestUtils.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace fovea;
using namespace fovea::test;
using testing::HasSubstr;

namespace {

class NpyTest : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("fovea-npy", folder));
    path = (folder + "/x.npy").str();
  }
  void TearDown() override { llvm::sys::fs::remove_directories(folder); }

  void write(llvm::StringRef content) {
    std::error_code code;
    llvm::raw_fd_ostream(path, code) << content;
    ASSERT_FALSE(code);
  }

  /// A file of version 1 with that header.
  void writeFile(llvm::StringRef header, llvm::StringRef data) {
    std::string content("\x93NUMPY\1\0", 8);
    content += char(header.size() & 0xff);
    content += char(header.size() >> 8);
    write(content + header.str() + data.str());
  }

  std::string readError() { return getText(readNpy(path)); }

  llvm::SmallString<128> folder;
  std::string path;
};

TEST_F(NpyTest, readsWhatItWrites) {
  char data[64];
  for (int i = 0; i < 64; ++i)
    data[i] = i;
  for (ElementType type :
       {ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64,
        ElementType::I1, ElementType::I8, ElementType::I16, ElementType::I32,
        ElementType::I64})
    for (llvm::SmallVector<int64_t> shape :
         {llvm::SmallVector<int64_t>{}, {8}, {2, 3}, {4, 0, 5}, {1, 2, 2, 1}}) {
      TensorRef tensor{data, type, shape, {}, true};
      ASSERT_EQ(getText(writeNpy(path, tensor)), "");
      llvm::Expected<OwnedTensor> read = readNpy(path);
      ASSERT_TRUE(bool(read)) << getText(read.takeError());
      EXPECT_EQ(read->getElementType(), type);
      EXPECT_EQ(read->getShape(), llvm::ArrayRef<int64_t>(shape));
      EXPECT_EQ(memcmp(read->getData(), data, read->getNumBytes()), 0);
      uint64_t size;
      ASSERT_FALSE(llvm::sys::fs::file_size(path, size));
      EXPECT_EQ((size - read->getNumBytes()) % 64, 0u);
    }
}

TEST_F(NpyTest, readsLaterVersions) {
  llvm::StringRef header =
      "{'shape': (2,), \"descr\": '<i2', 'fortran_order': True}";
  for (char version : {2, 3}) {
    std::string content("\x93NUMPY", 6);
    content += version;
    content += '\0';
    content += char(header.size());
    content.append(3, '\0');
    write(content + header.str() + "abcd");
    llvm::Expected<OwnedTensor> read = readNpy(path);
    ASSERT_TRUE(bool(read)) << getText(read.takeError());
    EXPECT_EQ(read->getElementType(), ElementType::I16);
    EXPECT_EQ(read->getShape(), llvm::ArrayRef<int64_t>(2));
  }
  std::string content("\x93NUMPY\4\0", 8);
  write(content + "....");
  EXPECT_THAT(readError(), HasSubstr("expected version 1, 2 or 3 of the "
                                     "format, but got 4.0"));
}

TEST_F(NpyTest, takesBitsForBF16OnlyWhereItIsExpected) {
  writeFile("{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }", "ab");
  EXPECT_THAT(readError(), HasSubstr("unsupported element type '<u2'"));
  llvm::Expected<OwnedTensor> read = readNpy(path, ElementType::BF16);
  ASSERT_TRUE(bool(read)) << getText(read.takeError());
  EXPECT_EQ(read->getElementType(), ElementType::BF16);
}

TEST_F(NpyTest, explainsWhatIsWrong) {
  EXPECT_THAT(readError(), HasSubstr(path + "': No such file"));
  write("PK\3\4 zipped");
  EXPECT_THAT(readError(), HasSubstr("does not start with the magic"));
  write("\x93NUMPY\1");
  EXPECT_THAT(readError(), HasSubstr("truncated: the header is incomplete"));
  write(std::string("\x93NUMPY\1\0\x76\0{'descr'", 18));
  EXPECT_THAT(readError(),
              HasSubstr("truncated: the header needs 118 bytes, but only 8"));
  writeFile("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }",
            "abcd");
  EXPECT_THAT(readError(),
              HasSubstr("expected little-endian elements, but got '>f4'"));
  writeFile("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }",
            "0123456789abcdef");
  EXPECT_THAT(readError(), HasSubstr("expected C order, but got Fortran"));
  writeFile("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
            "01234567");
  EXPECT_THAT(readError(), HasSubstr("truncated: the shape needs 12 bytes of "
                                     "elements, but got 8"));
  writeFile("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
            "01234567");
  EXPECT_THAT(readError(), HasSubstr("trailing bytes"));
  writeFile("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
            "01234567");
  EXPECT_THAT(readError(), HasSubstr("unsupported element type '<c8'"));
  writeFile("{'descr': '<f4', 'fortran_order': False, 'shape': "
            "(4611686018427387904, 4), }",
            "");
  EXPECT_THAT(readError(), HasSubstr("more bytes than 64 bits can count"));
}

TEST_F(NpyTest, survivesEveryTruncatedOrChangedHeader) {
  float value[] = {1, 2};
  int64_t shape[] = {2};
  ASSERT_EQ(getText(writeNpy(path, {value, ElementType::F32, shape, {}, true})),
            "");
  std::string good;
  {
    auto buffer = llvm::MemoryBuffer::getFile(path);
    ASSERT_TRUE(bool(buffer));
    good = (*buffer)->getBuffer().str();
  }
  for (size_t length = 0; length < good.size(); ++length) {
    write(llvm::StringRef(good).take_front(length));
    EXPECT_NE(readError(), "") << length;
  }
  for (size_t position = 0; position < 80; ++position)
    for (char change : {'\0', '\xff', '(', '}', '\'', '9'}) {
      std::string bad = good;
      bad[position] = change;
      write(bad);
      // Either is fine; a crash is not.
      llvm::consumeError(readNpy(path).takeError());
    }
}

TEST_F(NpyTest, leavesNothingBehindWhenItFails) {
  float value = 1;
  std::string missing = (folder + "/none/x.npy").str();
  EXPECT_THAT(
      getText(writeNpy(missing, {&value, ElementType::F32, {}, {}, true})),
      HasSubstr(missing + "': cannot write: No such file or directory"));
  EXPECT_FALSE(llvm::sys::fs::exists(missing));
}

TEST_F(NpyTest, writesToADeviceInsteadOfReplacingIt) {
  float value = 1;
  std::string link = (folder + "/full").str();
  ASSERT_FALSE(llvm::sys::fs::create_link("/dev/full", link));
  EXPECT_THAT(getText(writeNpy(link, {&value, ElementType::F32, {}, {}, true})),
              HasSubstr("cannot write: No space left on device"));
  EXPECT_TRUE(llvm::sys::fs::is_symlink_file(link));
  EXPECT_EQ(
      getText(writeNpy("/dev/null", {&value, ElementType::F32, {}, {}, true})),
      "");
}

} // namespace
