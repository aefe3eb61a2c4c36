//===- LaunchToRuntime.cpp - Launches as calls of the runtime -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "fovea/Target/NVVM/Attributes.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace fovea::attn {
#define GEN_PASS_DEF_LAUNCHTORUNTIMEPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;

namespace {
struct LaunchToRuntimePass
    : fovea::attn::impl::LaunchToRuntimePassBase<LaunchToRuntimePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<gpu::GPUModuleOp> gpuModules(module.getOps<gpu::GPUModuleOp>());
    for (gpu::GPUModuleOp gpuModule : gpuModules)
      if (failed(embed(gpuModule)))
        return signalPassFailure();
    WalkResult result = module.walk([&](gpu::LaunchFuncOp op) {
      return succeeded(lower(op)) ? WalkResult::advance()
                                  : WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (gpu::GPUModuleOp gpuModule : gpuModules)
      gpuModule.erase();
    if (!gpuModules.empty())
      addUnload();
    functions.clear();
    modules.clear();
  }

private:
  LogicalResult embed(gpu::GPUModuleOp gpuModule);
  LogicalResult lower(gpu::LaunchFuncOp op);
  /// A function that unloads all modules and constants, before their memory
  /// goes away.
  void addUnload();
  LLVM::GlobalOp addText(OpBuilder &builder, Location loc, StringRef name,
                         StringRef text, uint64_t alignment = 1);
  /// A struct as the runtime declares it, of addresses and numbers.
  LLVM::GlobalOp addStruct(OpBuilder &builder, Location loc, StringRef name,
                           ArrayRef<Type> fields,
                           function_ref<Value(OpBuilder &, unsigned)> field);

  /// The descriptors of kernels, by module and name.
  llvm::DenseMap<SymbolRefAttr, LLVM::GlobalOp> functions;
  SmallVector<LLVM::GlobalOp> modules;
};
} // namespace

LLVM::GlobalOp LaunchToRuntimePass::addText(OpBuilder &builder, Location loc,
                                            StringRef name, StringRef text,
                                            uint64_t alignment) {
  auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), text.size());
  auto global = LLVM::GlobalOp::create(builder, loc, type, /*isConstant=*/true,
                                       LLVM::Linkage::Internal, name,
                                       builder.getStringAttr(text), alignment);
  SymbolTable(getOperation()).insert(global);
  return global;
}

LLVM::GlobalOp LaunchToRuntimePass::addStruct(
    OpBuilder &builder, Location loc, StringRef name, ArrayRef<Type> fields,
    function_ref<Value(OpBuilder &, unsigned)> field) {
  auto type = LLVM::LLVMStructType::getLiteral(builder.getContext(), fields);
  auto global = LLVM::GlobalOp::create(builder, loc, type, /*isConstant=*/false,
                                       LLVM::Linkage::Internal, name,
                                       Attribute(), /*alignment=*/8);
  SymbolTable(getOperation()).insert(global);
  OpBuilder::InsertionGuard guard(builder);
  builder.createBlock(&global.getInitializerRegion());
  Value value = LLVM::UndefOp::create(builder, loc, type);
  for (unsigned i = 0; i < fields.size(); ++i)
    value = LLVM::InsertValueOp::create(builder, loc, value, field(builder, i),
                                        static_cast<int64_t>(i));
  LLVM::ReturnOp::create(builder, loc, value);
  return global;
}

LogicalResult LaunchToRuntimePass::embed(gpu::GPUModuleOp gpuModule) {
  auto ptx = gpuModule->getAttrOfType<StringAttr>(kPTXAttrName);
  auto bitcode = gpuModule->getAttrOfType<StringAttr>(kBitcodeAttrName);
  auto capability = gpuModule->getAttrOfType<IntegerAttr>(kCapabilityAttrName);
  if (!ptx || !bitcode || !capability)
    return gpuModule.emitOpError(
        "has no code; run --fovea-serialize-gpu-modules "
        "first");
  OpBuilder builder = OpBuilder::atBlockBegin(getOperation().getBody());
  Location loc = gpuModule.getLoc();
  std::string name = gpuModule.getName().str();
  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  auto addressOf = [&](OpBuilder &builder, LLVM::GlobalOp global) -> Value {
    return LLVM::AddressOfOp::create(builder, loc, global);
  };
  auto number = [&](OpBuilder &builder, Type type, int64_t value) -> Value {
    return LLVM::ConstantOp::create(builder, loc, type,
                                    builder.getIntegerAttr(type, value));
  };
  auto null = [&](OpBuilder &builder) -> Value {
    return LLVM::ZeroOp::create(builder, loc, pointer);
  };
  auto terminated = [](StringRef text) { return text.str() + '\0'; };
  LLVM::GlobalOp nameText =
      addText(builder, loc, name + "_name", terminated(name));
  LLVM::GlobalOp ptxText =
      addText(builder, loc, name + "_ptx", terminated(ptx.getValue()));
  LLVM::GlobalOp bitcodeText = addText(builder, loc, name + "_bitcode",
                                       bitcode.getValue(), /*alignment=*/16);
  // fovea_rt_gpu_module
  LLVM::GlobalOp descriptor =
      addStruct(builder, loc, name + "_module",
                {pointer, pointer, i64, pointer, i64, i32, i32, pointer},
                [&](OpBuilder &builder, unsigned field) {
                  switch (field) {
                  case 0:
                    return addressOf(builder, nameText);
                  case 1:
                    return addressOf(builder, ptxText);
                  case 2:
                    return number(builder, i64, ptx.getValue().size());
                  case 3:
                    return addressOf(builder, bitcodeText);
                  case 4:
                    return number(builder, i64, bitcode.getValue().size());
                  case 5:
                    return number(builder, i32, capability.getInt());
                  case 6:
                    return number(builder, i32,
                                  gpuModule->hasAttr(kExactCapabilityAttrName));
                  default:
                    return null(builder);
                  }
                });
  modules.push_back(descriptor);
  auto attribute = [&](StringRef function) {
    return SymbolRefAttr::get(
        &getContext(), name, {FlatSymbolRefAttr::get(&getContext(), function)});
  };
  for (auto kernel : gpuModule.getOps<LLVM::LLVMFuncOp>()) {
    if (kernel.isExternal())
      continue;
    StringRef kernelName = kernel.getSymName();
    LLVM::GlobalOp kernelText =
        addText(builder, loc, (name + "_" + kernelName + "_name").str(),
                terminated(kernelName));
    // fovea_rt_gpu_function
    functions[attribute(kernelName)] = addStruct(
        builder, loc, (name + "_" + kernelName).str(),
        {pointer, pointer, pointer}, [&](OpBuilder &builder, unsigned field) {
          return field == 0   ? addressOf(builder, descriptor)
                 : field == 1 ? addressOf(builder, kernelText)
                              : null(builder);
        });
  }
  return success();
}

void LaunchToRuntimePass::addUnload() {
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  Location loc = getOperation().getLoc();
  auto type =
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(&getContext()), {});
  auto function = LLVM::LLVMFuncOp::create(builder, loc, kUnloadName, type);
  builder.setInsertionPointToStart(function.addEntryBlock(builder));
  GPURuntimeCalls calls(getOperation());
  for (LLVM::GlobalOp descriptor : modules)
    calls.call(builder, loc, "fovea_rt_gpu_unload",
               LLVM::AddressOfOp::create(builder, loc, descriptor).getResult());
  for (auto global : getOperation().getOps<memref::GlobalOp>()) {
    Value constant = memref::GetGlobalOp::create(builder, loc, global.getType(),
                                                 global.getSymName());
    calls.call(builder, loc, "fovea_rt_gpu_forget",
               calls.getPointer(builder, loc, constant));
  }
  LLVM::ReturnOp::create(builder, loc, ValueRange());
}

LogicalResult LaunchToRuntimePass::lower(gpu::LaunchFuncOp op) {
  LLVM::GlobalOp descriptor = functions.lookup(op.getKernel());
  if (!descriptor)
    return op.emitOpError("launches a kernel that is not in a module");
  auto function = op->getParentOfType<FunctionOpInterface>();
  // The queue that --attn-place-gpu-buffers has opened.
  Value queue;
  function.walk([&](LLVM::CallOp call) {
    if (call.getCallee() == "fovea_rt_gpu_begin")
      queue = call.getResult();
  });
  if (!queue)
    return op.emitOpError("is in a function without a queue; run "
                          "--attn-place-gpu-buffers first");
  OpBuilder builder(op);
  Location loc = op.getLoc();
  GPURuntimeCalls calls(getOperation());
  LLVMTypeConverter converter(&getContext());
  Type i64 = builder.getI64Type();
  auto toI64 = [&](Value value) -> Value {
    if (!value)
      return LLVM::ConstantOp::create(builder, loc, i64,
                                      builder.getI64IntegerAttr(1));
    if (value.getType().isIndex())
      return arith::IndexCastOp::create(builder, loc, i64, value);
    if (value.getType() != i64)
      return arith::ExtSIOp::create(builder, loc, i64, value);
    return value;
  };

  // The parameters of a kernel are the fields of the descriptors of its
  // arguments, one after the other.
  SmallVector<Value> fields;
  for (Value operand : op.getKernelOperands()) {
    Type type = converter.convertType(operand.getType());
    Value value = operand;
    if (type != operand.getType())
      value = UnrealizedConversionCastOp::create(builder, loc, type, operand)
                  .getResult(0);
    if (auto memref = dyn_cast<MemRefType>(operand.getType()))
      MemRefDescriptor::unpack(builder, loc, value, memref, fields);
    else
      fields.push_back(value);
  }
  SmallVector<Type> fieldTypes;
  for (Value field : fields)
    fieldTypes.push_back(field.getType());
  auto valuesType = LLVM::LLVMStructType::getLiteral(&getContext(), fieldTypes);
  auto listType = LLVM::LLVMArrayType::get(calls.pointerType, fields.size());
  Value values, list;
  {
    // Once, even if the launch is in a loop.
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&function.getFunctionBody().front());
    Value one = LLVM::ConstantOp::create(builder, loc, i64,
                                         builder.getI64IntegerAttr(1));
    values = LLVM::AllocaOp::create(builder, loc, calls.pointerType, valuesType,
                                    one);
    list =
        LLVM::AllocaOp::create(builder, loc, calls.pointerType, listType, one);
  }
  auto kernel =
      cast<LLVM::LLVMFuncOp>(getOperation().lookupSymbol(op.getKernel()));
  for (auto [i, field] : llvm::enumerate(fields)) {
    // What a kernel takes by value lies in memory already.
    if (kernel.getArgAttr(i, LLVM::LLVMDialect::getByValAttrName())) {
      Value entry = LLVM::GEPOp::create(
          builder, loc, calls.pointerType, listType, list,
          ArrayRef<LLVM::GEPArg>{0, static_cast<int32_t>(i)});
      LLVM::StoreOp::create(builder, loc, field, entry);
      continue;
    }
    Value address =
        LLVM::GEPOp::create(builder, loc, calls.pointerType, valuesType, values,
                            ArrayRef<LLVM::GEPArg>{0, static_cast<int32_t>(i)});
    LLVM::StoreOp::create(builder, loc, field, address);
    Value entry =
        LLVM::GEPOp::create(builder, loc, calls.pointerType, listType, list,
                            ArrayRef<LLVM::GEPArg>{0, static_cast<int32_t>(i)});
    LLVM::StoreOp::create(builder, loc, address, entry);
  }
  SmallVector<Value> operands = {
      queue, LLVM::AddressOfOp::create(builder, loc, descriptor)};
  for (gpu::KernelDim3 dim :
       {op.getGridSizeOperandValues(), op.getBlockSizeOperandValues()})
    for (Value extent : {dim.x, dim.y, dim.z})
      operands.push_back(toI64(extent));
  for (Value extent :
       {op.getClusterSizeX(), op.getClusterSizeY(), op.getClusterSizeZ()})
    operands.push_back(toI64(extent)); // 1 without clusters
  Value sharedBytes = op.getDynamicSharedMemorySize();
  operands.push_back(
      sharedBytes ? toI64(sharedBytes)
                  : Value(LLVM::ConstantOp::create(
                        builder, loc, i64, builder.getI64IntegerAttr(0))));
  operands.push_back(list);
  operands.push_back(LLVM::ConstantOp::create(
      builder, loc, i64, builder.getI64IntegerAttr(fields.size())));
  calls.call(builder, loc, "fovea_rt_gpu_launch", operands);
  op.erase();
  return success();
}
