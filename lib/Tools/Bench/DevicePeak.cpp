//===- DevicePeak.cpp - The most a GPU can compute and copy ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Tools/Bench/DevicePeak.h"
#include "fovea/ExecutionEngine/GPU.h"
#include "fovea/Target/NVVM/Serialize.h"
#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;
using namespace fovea;

static constexpr StringLiteral kProductsName = "fovea_peak_products";
static constexpr StringLiteral kCopyName = "fovea_peak_copy";
static constexpr int64_t kThreads = 256;
/// Two blocks run on a multiprocessor at once: 16 warps.
static constexpr int64_t kBlocksPerMultiprocessor = 2;
/// How often an iteration goes through all sums, so that the loop itself costs
/// next to nothing.
static constexpr int kRounds = 8;

namespace {
/// A product instruction.
struct Product {
  StringRef name;
  /// Numbers of f32 that a thread adds to, and how many such sets it has.
  unsigned sums, chains;
  /// Columns of the right factor and depth; threads that work together.
  int64_t rows, columns, depth, threads;
  /// The bits of a random number that stay, and those that are set, so that
  /// each half or each whole register is a number of magnitude 1 to 2.
  uint32_t mask, exponent;
  int64_t sharedBytes;

  bool isWarpgroup() const { return threads == 128; }
  bool isTensorCore() const { return threads > 1; }
};
} // namespace

static Product getProduct(const GPUInfo &gpu, ElementType type, StringRef f32) {
  Product product;
  if (type == ElementType::F16)
    product = {"f16", 4, 8, 16, 8, 16, 32, 0x83ff83ff, 0x3c003c00, 0};
  else if (type == ElementType::BF16)
    product = {"bf16", 4, 8, 16, 8, 16, 32, 0x807f807f, 0x3f803f80, 0};
  else if (f32 == "exact")
    return {"f32", 1, 16, 1, 1, 1, 1, 0x807fffff, 0x3f800000, 0};
  else
    product = {"tf32", 4, 8, 16, 8, 8, 32, 0x807fe000, 0x3f800000, 0};
  if (gpu.chip != "sm_90a")
    return product;
  // Rows of 128 bytes: 64 of the left factor, 128 of the right one.
  product.sums = 64;
  product.chains = 1;
  product.rows = 64;
  product.columns = 128;
  product.threads = 128;
  product.sharedBytes = (64 + 128) * 128;
  return product;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

namespace {
class KernelWriter {
public:
  explicit KernelWriter(Module &module)
      : module(module), b(module.getContext()) {}

  void writeProducts(const Product &product);
  void writeCopy();

private:
  /// Adds a kernel and begins its first block.
  Function *begin(StringRef name, ArrayRef<Type *> parameters);
  Value *getThread() {
    return b.CreateIntrinsic(b.getInt32Ty(),
                             Intrinsic::nvvm_read_ptx_sreg_tid_x, {});
  }
  Value *getBlock() {
    return b.CreateIntrinsic(b.getInt32Ty(),
                             Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {});
  }
  /// Factors, the same for every product: tensor cores take more power, and so
  /// lower their clock, for numbers that differ than for zeros.
  Value *makeFactor(const Product &product, unsigned number);
  SmallVector<Value *> makeFactors(const Product &product);
  /// Fills shared memory; the descriptors of both factors.
  SmallVector<Value *> makeSharedFactors(const Product &product);
  SmallVector<Value *> emitAssembly(StringRef text, ArrayRef<Value *> sums,
                                    ArrayRef<Value *> operands,
                                    StringRef constraints, bool hasEffects);
  void emitAssembly(StringRef text) { emitAssembly(text, {}, {}, "", true); }
  /// One product of each chain.
  void multiply(const Product &product, ArrayRef<Value *> factors,
                MutableArrayRef<SmallVector<Value *>> sums);
  void multiplyWarpgroup(const Product &product, ArrayRef<Value *> factors,
                         SmallVector<Value *> &sums);

  Module &module;
  IRBuilder<> b;
};
} // namespace

Function *KernelWriter::begin(StringRef name, ArrayRef<Type *> parameters) {
  auto *kernel = Function::Create(
      FunctionType::get(b.getVoidTy(), parameters, /*isVarArg=*/false),
      GlobalValue::ExternalLinkage, name, module);
  kernel->setCallingConv(CallingConv::PTX_Kernel);
  kernel->addFnAttr("nvvm.reqntid", std::to_string(kThreads));
  b.SetInsertPoint(BasicBlock::Create(module.getContext(), "entry", kernel));
  return kernel;
}

Value *KernelWriter::makeFactor(const Product &product, unsigned number) {
  Value *bits = b.CreateMul(getThread(), b.getInt32(0x9e3779b1));
  bits = b.CreateAdd(bits, b.getInt32(0x85ebca77 * (number + 1)));
  bits = b.CreateMul(bits, b.getInt32(0xc2b2ae3d));
  bits = b.CreateAnd(bits, b.getInt32(product.mask));
  return b.CreateOr(bits, b.getInt32(product.exponent));
}

SmallVector<Value *> KernelWriter::makeFactors(const Product &product) {
  if (product.isWarpgroup())
    return makeSharedFactors(product);
  SmallVector<Value *> factors;
  for (unsigned i = 0; i < (product.isTensorCore() ? 6 : 2); ++i)
    factors.push_back(makeFactor(product, i));
  if (!product.isTensorCore())
    for (Value *&factor : factors)
      factor = b.CreateBitCast(factor, b.getFloatTy());
  return factors;
}

SmallVector<Value *> KernelWriter::makeSharedFactors(const Product &product) {
  auto *shared = new GlobalVariable(
      module, ArrayType::get(b.getInt8Ty(), 0), /*isConstant=*/false,
      GlobalValue::ExternalLinkage, nullptr, "factors", nullptr,
      GlobalValue::NotThreadLocal, /*AddressSpace=*/3);
  shared->setAlignment(Align(1024));
  for (int64_t i = 0; i < product.sharedBytes / 4 / kThreads; ++i) {
    Value *at = b.CreateAdd(getThread(), b.getInt32(i * kThreads));
    b.CreateStore(makeFactor(product, i),
                  b.CreateGEP(b.getInt32Ty(), shared, at));
  }
  emitAssembly("fence.proxy.async.shared::cta;");
  b.CreateIntrinsic(Intrinsic::nvvm_barrier_cta_sync_aligned_all, {},
                    {b.getInt32(0)});
  // As WarpgroupBuilder::getDescriptor: eight rows after 1024 bytes, swizzled.
  int64_t fixed = int64_t(1) << 62 | int64_t(1024 / 16) << 32;
  Value *left = b.CreatePtrToInt(shared, b.getInt64Ty());
  left = b.CreateLShr(b.CreateAnd(left, b.getInt64(0x3ffff)), 4);
  left = b.CreateOr(left, b.getInt64(fixed));
  return {left, b.CreateAdd(left, b.getInt64(64 * 128 / 16))};
}

SmallVector<Value *> KernelWriter::emitAssembly(StringRef text,
                                                ArrayRef<Value *> sums,
                                                ArrayRef<Value *> operands,
                                                StringRef constraints,
                                                bool hasEffects) {
  std::string all;
  for (size_t i = 0; i < sums.size(); ++i)
    all += i ? ",=f" : "=f";
  for (size_t i = 0; i < sums.size(); ++i)
    all += "," + std::to_string(i);
  all += constraints;
  SmallVector<Value *> values(sums);
  append_range(values, operands);
  SmallVector<Type *> types, fields(sums.size(), b.getFloatTy());
  for (Value *value : values)
    types.push_back(value->getType());
  Type *result = sums.empty() ? b.getVoidTy()
                              : StructType::get(module.getContext(), fields);
  Value *call =
      b.CreateCall(InlineAsm::get(FunctionType::get(result, types, false), text,
                                  all, hasEffects),
                   values);
  SmallVector<Value *> results;
  for (unsigned i = 0; i < sums.size(); ++i)
    results.push_back(b.CreateExtractValue(call, i));
  return results;
}

/// "$first, $(first + 1), ..."
static std::string listOperands(unsigned first, unsigned count) {
  std::string list;
  for (unsigned i = 0; i < count; ++i)
    list += (i ? ", $" : "$") + std::to_string(first + i);
  return list;
}

void KernelWriter::multiplyWarpgroup(const Product &product,
                                     ArrayRef<Value *> factors,
                                     SmallVector<Value *> &sums) {
  unsigned count = sums.size();
  // A row of 128 bytes is four products deep. Only narrow products say whether
  // their factors are transposed.
  std::string text = formatv(
      "wgmma.mma_async.sync.aligned.m64n{0}k{1}.f32.{2}.{2} {{{3}}, ${4}, "
      "${5}, 1, 1, 1{6};",
      product.columns, product.depth, product.name, listOperands(0, count),
      2 * count, 2 * count + 1, product.depth == 16 ? ", 0, 0" : "");
  emitAssembly("wgmma.fence.sync.aligned;");
  for (int64_t step = 0; step < kRounds; ++step) {
    Value *offset = b.getInt64(step % 4 * 32 / 16);
    sums = emitAssembly(
        text, sums,
        {b.CreateAdd(factors[0], offset), b.CreateAdd(factors[1], offset)},
        ",l,l", true);
  }
  emitAssembly("wgmma.commit_group.sync.aligned;");
  sums = emitAssembly("wgmma.wait_group.sync.aligned 0;", sums, {}, "", true);
}

void KernelWriter::multiply(const Product &product, ArrayRef<Value *> factors,
                            MutableArrayRef<SmallVector<Value *>> sums) {
  if (product.isWarpgroup())
    return multiplyWarpgroup(product, factors, sums[0]);
  std::string text =
      formatv("mma.sync.aligned.m16n8k{0}.row.col.f32.{1}.{1}.f32 {{{2}}, "
              "{{{3}}, {{{4}}, {{{2}};",
              product.depth, product.name, listOperands(0, 4),
              listOperands(8, 4), listOperands(12, 2));
  for (int round = 0; round < kRounds; ++round)
    for (SmallVector<Value *> &sum : sums)
      if (product.isTensorCore())
        sum = emitAssembly(text, sum, factors, ",r,r,r,r,r,r", false);
      else
        sum[0] = b.CreateIntrinsic(Intrinsic::fma, {b.getFloatTy()},
                                   {factors[0], factors[1], sum[0]});
}

/// `void products(i32 iterations, ptr sink)`
void KernelWriter::writeProducts(const Product &product) {
  Function *kernel = begin(kProductsName, {b.getInt32Ty(), b.getPtrTy(1)});
  LLVMContext &context = module.getContext();
  SmallVector<Value *> factors = makeFactors(product);
  BasicBlock *entry = b.GetInsertBlock();
  auto *body = BasicBlock::Create(context, "body", kernel);
  auto *exit = BasicBlock::Create(context, "exit", kernel);
  b.CreateBr(body);

  b.SetInsertPoint(body);
  PHINode *counter = b.CreatePHI(b.getInt32Ty(), 2);
  counter->addIncoming(b.getInt32(0), entry);
  SmallVector<SmallVector<PHINode *>> phis(product.chains);
  SmallVector<SmallVector<Value *>> sums(product.chains);
  for (auto [chain, chainPhis, chainSums] : enumerate(phis, sums))
    for (unsigned i = 0; i < product.sums; ++i) {
      // Chains that began alike would be one.
      chainPhis.push_back(b.CreatePHI(b.getFloatTy(), 2));
      chainPhis.back()->addIncoming(
          ConstantFP::get(b.getFloatTy(), double(chain)), entry);
      chainSums.push_back(chainPhis.back());
    }
  multiply(product, factors, sums);
  for (auto [chainPhis, chainSums] : zip(phis, sums))
    for (auto [phi, sum] : zip(chainPhis, chainSums))
      phi->addIncoming(sum, body);
  Value *next = b.CreateAdd(counter, b.getInt32(1));
  counter->addIncoming(next, body);
  b.CreateCondBr(b.CreateICmpSLT(next, kernel->getArg(0)), body, exit);

  b.SetInsertPoint(exit);
  Value *total = ConstantFP::get(b.getFloatTy(), 0.0);
  for (SmallVector<Value *> &chain : sums)
    for (Value *sum : chain)
      total = b.CreateFAdd(total, sum);
  Value *at =
      b.CreateAdd(b.CreateMul(getBlock(), b.getInt32(kThreads)), getThread());
  b.CreateStore(total, b.CreateGEP(b.getFloatTy(), kernel->getArg(1), at));
  b.CreateRetVoid();
}

/// `void copy(ptr to, ptr from)`: four chunks of 16 bytes for each thread.
void KernelWriter::writeCopy() {
  constexpr int64_t kChunk = 16, kChunks = 4;
  static_assert(kChunk * kChunks * kThreads == DevicePeak::kCopyBytes);
  Function *kernel = begin(kCopyName, {b.getPtrTy(1), b.getPtrTy(1)});
  auto *type = FixedVectorType::get(b.getInt32Ty(), kChunk / 4);
  Value *block = b.CreateZExt(getBlock(), b.getInt64Ty());
  Value *first = b.CreateAdd(b.CreateMul(block, b.getInt64(kChunks * kThreads)),
                             b.CreateZExt(getThread(), b.getInt64Ty()));
  auto getAddress = [&](unsigned argument, int64_t chunk) {
    Value *at = b.CreateAdd(first, b.getInt64(chunk * kThreads));
    return b.CreateGEP(type, kernel->getArg(argument), at);
  };
  SmallVector<Value *> values;
  for (int64_t i = 0; i < kChunks; ++i)
    values.push_back(b.CreateAlignedLoad(type, getAddress(1, i), Align(16)));
  for (auto [i, value] : enumerate(values))
    b.CreateAlignedStore(value, getAddress(0, i), Align(16));
  b.CreateRetVoid();
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

struct DevicePeak::Impl {
  ~Impl() {
    for (void *block : {sink, buffers[0], buffers[1]})
      fovea_rt_gpu_release(kind, block);
    fovea_rt_gpu_unload(&module);
  }

  Error launch(fovea_rt_gpu_function &function, int64_t blocks,
               int64_t sharedBytes, MutableArrayRef<void *> params);

  GPUInfo gpu;
  Product product;
  int32_t kind = FOVEA_RT_GPU_CUDA;
  GPUCode code;
  fovea_rt_gpu_module module = {};
  fovea_rt_gpu_function products = {&module, kProductsName.data(), nullptr};
  fovea_rt_gpu_function copy = {&module, kCopyName.data(), nullptr};
  int64_t blocks = 0, iterations = 64, copyBytes = 0;
  void *sink = nullptr, *buffers[2] = {};
};

static Error check(fovea_rt_status status) {
  return status ? createStringError(fovea_rt_last_error()) : Error::success();
}

Error DevicePeak::Impl::launch(fovea_rt_gpu_function &function, int64_t blocks,
                               int64_t sharedBytes,
                               MutableArrayRef<void *> params) {
  struct Launch {
    int32_t kind;
    fovea_rt_gpu_function *function;
    int64_t blocks, sharedBytes;
    MutableArrayRef<void *> params;
  } launch{kind, &function, blocks, sharedBytes, params};
  void *packed[] = {&launch};
  return check(fovea_rt_invoke(
      [](void **packed) {
        auto &launch = *static_cast<Launch *>(packed[0]);
        fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(launch.kind);
        fovea_rt_gpu_launch(queue, launch.function, launch.blocks, 1, 1,
                            kThreads, 1, 1, 1, 1, 1, launch.sharedBytes,
                            launch.params.data(), launch.params.size());
        fovea_rt_gpu_end(queue);
      },
      packed));
}

Expected<DevicePeak> DevicePeak::create(const CompileOptions &options,
                                        ElementType type) {
  Expected<GPUInfo> gpu = findGPU(options);
  if (!gpu)
    return gpu.takeError();
  auto impl = std::make_shared<Impl>();
  impl->gpu = *gpu;
  impl->product = getProduct(*gpu, type, options.f32);
  if (options.target == Target::GPUEmulator)
    impl->kind = FOVEA_RT_GPU_EMULATOR;
  LLVMContext context;
  Module module("peak", context);
  KernelWriter writer(module);
  writer.writeProducts(impl->product);
  writer.writeCopy();
  Expected<GPUCode> code = generateGPUCode(module, *gpu);
  if (!code)
    return code.takeError();
  impl->code = std::move(*code);
  impl->module.name = "peak";
  impl->module.ptx = impl->code.ptx.data();
  impl->module.ptx_bytes = impl->code.ptx.size();
  impl->module.bitcode = impl->code.bitcode.data();
  impl->module.bitcode_bytes = impl->code.bitcode.size();
  impl->module.capability = gpu->capability;
  impl->module.exact_capability = gpu->isExact;

  fovea_rt_gpu_properties properties;
  if (Error error = check(
          fovea_rt_gpu_get_properties(impl->kind, /*device=*/0, &properties)))
    return std::move(error);
  impl->blocks = kBlocksPerMultiprocessor * properties.multiprocessors;
  // Much more than the caches hold.
  constexpr int64_t kMostBytes = int64_t(1) << 30;
  impl->copyBytes =
      std::min(kMostBytes, properties.free_bytes / 4) / kCopyBytes * kCopyBytes;
  if (Error error = check(fovea_rt_gpu_acquire(
          impl->kind, impl->blocks * kThreads * sizeof(float), &impl->sink)))
    return std::move(error);
  return DevicePeak(std::move(impl));
}

const GPUInfo &DevicePeak::getGPU() const { return impl->gpu; }
StringRef DevicePeak::getProductName() const { return impl->product.name; }
StringRef DevicePeak::getPTX() const { return impl->code.ptx; }

double DevicePeak::getFlops(int64_t iterations) const {
  const Product &product = impl->product;
  double perProduct = 2.0 * product.rows * product.columns * product.depth;
  return perProduct * product.chains * kRounds * (kThreads / product.threads) *
         impl->blocks * iterations;
}

Error DevicePeak::runProducts(int64_t iterations) {
  auto count = static_cast<int32_t>(iterations);
  void *params[] = {&count, &impl->sink};
  return impl->launch(impl->products, impl->blocks, impl->product.sharedBytes,
                      params);
}

Error DevicePeak::copy(void *to, const void *from, int64_t bytes) {
  assert(bytes % kCopyBytes == 0 && "blocks copy all of their part");
  void *params[] = {&to, &from};
  return impl->launch(impl->copy, bytes / kCopyBytes, /*sharedBytes=*/0,
                      params);
}

/// A time to divide by.
static Expected<double> timePositive(DevicePeak::Timer time,
                                     function_ref<Error()> run) {
  Expected<double> elapsed = time(run);
  if (elapsed && !(*elapsed > 0))
    return createStringError("the device's events measure no time");
  return elapsed;
}

Expected<double> DevicePeak::measureProducts(Timer time, double seconds) {
  constexpr int64_t kMostIterations = 1 << 26;
  // Grow until the loop runs long enough to be timed well; later calls begin
  // there.
  int64_t &iterations = impl->iterations;
  while (true) {
    Expected<double> elapsed =
        timePositive(time, [&] { return runProducts(iterations); });
    if (!elapsed)
      return elapsed;
    if (*elapsed >= seconds / 2 || iterations >= kMostIterations)
      return getFlops(iterations) / *elapsed;
    iterations = std::min<int64_t>(
        iterations * std::clamp(seconds / *elapsed, 2.0, 16.0),
        kMostIterations);
  }
}

Expected<double> DevicePeak::measureCopy(Timer time) {
  if (impl->copyBytes == 0)
    return createStringError("the device has no memory left");
  for (void *&buffer : impl->buffers)
    if (!buffer)
      if (Error error =
              check(fovea_rt_gpu_acquire(impl->kind, impl->copyBytes, &buffer)))
        return std::move(error);
  Expected<double> elapsed = timePositive(time, [&] {
    return copy(impl->buffers[0], impl->buffers[1], impl->copyBytes);
  });
  if (!elapsed)
    return elapsed;
  return 2.0 * impl->copyBytes / *elapsed;
}
