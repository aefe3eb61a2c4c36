# Headers that many files read, compiled once. Reading them is most of the time a
# file takes to compile.

# Without the name of the header, which CMake adds by default: ccache would keep
# it absolute, and clones of the repository could not share what it holds.
set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Xclang -include-pch -Xclang <PCH_FILE>)

# Writes what ccache takes in place of a precompiled header: its text. The header
# itself names files of its own build folder. Options are those of the files
# compiled with it, which ccache sees, too; asserts are left out, for they name
# files.
function(add_fovea_precompiled_text name header)
  set(text ${header}.pch.sum)
  set(includes $<TARGET_PROPERTY:${name},INCLUDE_DIRECTORIES>)
  add_custom_command(OUTPUT ${text}
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++${CMAKE_CXX_STANDARD} -w -DNDEBUG
      "-I$<JOIN:${includes},;-I>" -E -P -MD -MT ${text} -MF ${header}.sum.d
      -x c++-header ${header} -o ${text}
    DEPFILE ${header}.sum.d
    COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Writing the text of ${name}")
  add_custom_target(${name}_text DEPENDS ${text})
  add_dependencies(${name}_text fovea-headers)
  add_dependencies(${name} ${name}_text)
endfunction()

# add_fovea_precompiled(<name> HEADERS <headers...> [LINK <targets...>])
# LINK names what tells where the headers are and what is defined for them.
function(add_fovea_precompiled name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINK" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/Precompiled.cpp
       CONTENT "// Carries the precompiled headers.\n")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/Precompiled.cpp)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} fovea_includes fovea_options)
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  add_dependencies(${name} fovea-headers)
  if(CCACHE_PROGRAM)
    # ccache would not take the header itself from elsewhere.
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
    add_fovea_precompiled_text(${name}
      ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx)
  endif()
endfunction()

set(headers
  <fovea/Dialect/Attn/IR/AttnOps.h>
  <llvm/ADT/TypeSwitch.h>
  <mlir/Dialect/Affine/IR/AffineOps.h>
  <mlir/Dialect/Arith/IR/Arith.h>
  <mlir/Dialect/Bufferization/IR/Bufferization.h>
  <mlir/Dialect/Func/IR/FuncOps.h>
  <mlir/Dialect/LLVMIR/LLVMDialect.h>
  <mlir/Dialect/Linalg/IR/Linalg.h>
  <mlir/Dialect/Linalg/Transforms/Transforms.h>
  <mlir/Dialect/Math/IR/Math.h>
  <mlir/Dialect/MemRef/IR/MemRef.h>
  <mlir/Dialect/SCF/IR/SCF.h>
  <mlir/Dialect/Tensor/IR/Tensor.h>
  <mlir/Dialect/Vector/IR/VectorOps.h>
  <mlir/IR/ImplicitLocOpBuilder.h>
  <mlir/IR/PatternMatch.h>
  <mlir/Interfaces/TilingInterface.h>
  <mlir/Pass/Pass.h>
  <mlir/Transforms/DialectConversion.h>
  <mlir/Transforms/GreedyPatternRewriteDriver.h>
)
add_fovea_precompiled(fovea_precompiled HEADERS ${headers})
# Those of GPUs declare LLVM's own IR, too, names of which other libraries have:
# Argument, for one.
add_fovea_precompiled(fovea_precompiled_gpu HEADERS ${headers}
  <mlir/Dialect/GPU/IR/GPUDialect.h>
  <mlir/Dialect/LLVMIR/NVVMDialect.h>
)

if(FOVEA_ENABLE_TESTS AND NOT FOVEA_STATIC_LLVM)
  find_package(GTest REQUIRED)
  add_fovea_precompiled(fovea_precompiled_tests
    HEADERS <functional> <map> <memory> <random> <set> <string> <thread> <vector>
      <gmock/gmock.h> <gtest/gtest.h>
    LINK GTest::gmock)
  # Programs are not compiled as libraries are, and share no header with them.
  set_target_properties(fovea_precompiled_tests PROPERTIES
    EXCLUDE_FROM_ALL ON
    POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(fovea_precompiled_tests PRIVATE -fPIE)
endif()
