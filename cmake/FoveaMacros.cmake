# Build rules shared by every Fovea target.

include(CheckCXXCompilerFlag)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Clones of the repository share what ccache holds: paths are kept relative to
# the clone, and a precompiled header is known by its checksum.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(launcher ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros
      ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# The compiler options of Fovea's own code. LLVM is built without exceptions but
# with RTTI on Debian; the options must agree.
add_library(fovea_options INTERFACE)
target_compile_options(fovea_options INTERFACE
  -Wall -Wextra -Wno-unused-parameter -Werror=return-type
  -fvisibility-inlines-hidden $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions>)
if(FOVEA_ENABLE_ASSERTIONS)
  # After CMAKE_CXX_FLAGS_<CONFIG>, which carries -DNDEBUG.
  target_compile_options(fovea_options INTERFACE -UNDEBUG)
endif()
if(FOVEA_SANITIZERS)
  target_compile_options(fovea_options INTERFACE
    -fsanitize=${FOVEA_SANITIZERS} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(fovea_options INTERFACE -fsanitize=${FOVEA_SANITIZERS})
endif()

include(FoveaPrecompiledHeaders)

# add_fovea_library(<name> <sources...> LINK <targets...> MLIR <MLIR libraries...>
#                   DEPENDS <tablegen targets...>)
# A static library. MLIR libraries are replaced by libMLIR.so.
function(add_fovea_library name)
  cmake_parse_arguments(ARG "" "" "LINK;MLIR;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  add_dependencies(${name} fovea-headers ${ARG_DEPENDS})
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE fovea_options)
  if(ARG_MLIR)
    mlir_target_link_libraries(${name} PUBLIC ${ARG_MLIR})
    target_precompile_headers(${name} REUSE_FROM fovea_precompiled)
  endif()
  target_link_libraries(${name} PUBLIC LLVM)
endfunction()

# add_fovea_tool(<name> <sources...> LINK <targets...> MLIR <MLIR libraries...>)
function(add_fovea_tool name)
  cmake_parse_arguments(ARG "" "" "LINK;MLIR" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  add_dependencies(${name} fovea-headers)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} fovea_options)
  mlir_target_link_libraries(${name} PRIVATE ${ARG_MLIR})
  target_link_libraries(${name} PRIVATE LLVM)
  install(TARGETS ${name} RUNTIME DESTINATION bin)
endfunction()

# add_fovea_unittest(<name> [<sources...>])
# A GoogleTest binary that lit discovers under unittests. By default it has all
# tests of the folder.
function(add_fovea_unittest name)
  find_package(GTest REQUIRED)
  set(sources ${ARGN})
  if(NOT sources)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*Test.cpp)
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${sources})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(${name} PRIVATE fovea_options GTest::gtest GTest::gtest_main)
  add_dependencies(fovea-unittests ${name})
endfunction()
