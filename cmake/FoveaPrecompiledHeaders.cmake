# Headers of LLVM and MLIR that many files of the compiler read, compiled once.
# Reading them is most of the time a file takes to compile.

# Without the name of the header, which CMake adds by default: ccache would keep
# it absolute, and clones of the repository could not share what it holds.
set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Xclang -include-pch -Xclang <PCH_FILE>)

# add_fovea_precompiled(<name> <headers...>)
function(add_fovea_precompiled name)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/Precompiled.cpp
       CONTENT "// Carries the precompiled headers.\n")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/Precompiled.cpp)
  target_link_libraries(${name} PRIVATE fovea_includes fovea_options)
  target_precompile_headers(${name} PRIVATE ${ARGN})
  # A precompiled header names files of its own build folder, so it is never
  # taken from a compiler cache. What is compiled with it may be: its checksum
  # is that of what it was made of.
  set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
  get_target_property(headers ${name} PRECOMPILE_HEADERS)
  file(CONFIGURE
       OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.pch.sum
       CONTENT "LLVM ${LLVM_PACKAGE_VERSION} ${CMAKE_CXX_COMPILER_VERSION} ${headers}\n")
endfunction()

set(headers
  <llvm/ADT/TypeSwitch.h>
  <mlir/Dialect/Affine/IR/AffineOps.h>
  <mlir/Dialect/Arith/IR/Arith.h>
  <mlir/Dialect/Func/IR/FuncOps.h>
  <mlir/Dialect/LLVMIR/LLVMDialect.h>
  <mlir/Dialect/Linalg/IR/Linalg.h>
  <mlir/Dialect/Math/IR/Math.h>
  <mlir/Dialect/MemRef/IR/MemRef.h>
  <mlir/Dialect/SCF/IR/SCF.h>
  <mlir/Dialect/Tensor/IR/Tensor.h>
  <mlir/Dialect/Vector/IR/VectorOps.h>
  <mlir/IR/ImplicitLocOpBuilder.h>
  <mlir/IR/PatternMatch.h>
  <mlir/Interfaces/TilingInterface.h>
  <mlir/Pass/Pass.h>
)
add_fovea_precompiled(fovea_precompiled ${headers})
# Those of GPUs declare LLVM's own IR, too, names of which other libraries have:
# Argument, for one.
add_fovea_precompiled(fovea_precompiled_gpu ${headers}
  <mlir/Dialect/GPU/IR/GPUDialect.h>
  <mlir/Dialect/LLVMIR/NVVMDialect.h>
)
