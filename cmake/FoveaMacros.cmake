# Build rules shared by every Fovea target.

include(CheckCXXCompilerFlag)
include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Clones of the repository share what ccache holds: paths are kept relative to
# the clone, and a precompiled header is known by its text.
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

# Where headers are, ours and those of LLVM and MLIR.
add_library(fovea_includes INTERFACE)
target_include_directories(fovea_includes INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
target_include_directories(fovea_includes SYSTEM INTERFACE
  ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
separate_arguments(definitions NATIVE_COMMAND ${LLVM_DEFINITIONS})
target_compile_options(fovea_includes INTERFACE ${definitions})

include(FoveaPrecompiledHeaders)

# Links what of MLIR is named: that is libMLIR.so, or the archives.
function(fovea_link_mlir name)
  if(FOVEA_STATIC_LLVM)
    target_link_libraries(${name} PUBLIC fovea_static_llvm)
  elseif(ARGN)
    mlir_target_link_libraries(${name} PUBLIC ${ARGN})
  endif()
endfunction()

# add_fovea_library(<name> <sources...> LINK <targets...> MLIR <MLIR libraries...>)
# A static library, made by MLIR's function <add_mlir_...library> of the same
# kind. LINK names the libraries whose headers it includes: utils/check_layers.py
# looks.
function(add_fovea_library_of_kind add name)
  cmake_parse_arguments(ARG "" "" "LINK;MLIR" ${ARGN})
  cmake_language(CALL ${add} ${name} ${ARG_UNPARSED_ARGUMENTS}
    EXCLUDE_FROM_LIBMLIR DISABLE_INSTALL DEPENDS fovea-headers)
  target_link_libraries(${name} PUBLIC ${ARG_LINK} fovea_includes
                                PRIVATE fovea_options)
  fovea_link_mlir(${name} ${ARG_MLIR})
  if(MLIRGPUDialect IN_LIST ARG_MLIR)
    target_precompile_headers(${name} REUSE_FROM fovea_precompiled_gpu)
  elseif(ARG_MLIR)
    target_precompile_headers(${name} REUSE_FROM fovea_precompiled)
  endif()
  set_property(GLOBAL APPEND PROPERTY FOVEA_LIBRARIES ${name})
endfunction()
function(add_fovea_library)
  add_fovea_library_of_kind(add_mlir_library ${ARGN})
endfunction()
function(add_fovea_dialect_library)
  add_fovea_library_of_kind(add_mlir_dialect_library ${ARGN})
endfunction()
function(add_fovea_conversion_library)
  add_fovea_library_of_kind(add_mlir_conversion_library ${ARGN})
endfunction()

# add_fovea_shared_library(<name> <sources...> MAP <version script>
#                          EXPORT <name in the namespace Fovea>
#                          ARCHIVES <static libraries...>
#                          LINK <targets...> LINK_PRIVATE <targets...>)
# A shared library with all of the archives, which shows what the script says.
function(add_fovea_shared_library name)
  cmake_parse_arguments(ARG "" "MAP;EXPORT" "ARCHIVES;LINK;LINK_PRIVATE" ${ARGN})
  add_library(${name} SHARED ${ARG_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES
    VERSION ${PROJECT_VERSION}
    EXPORT_NAME ${ARG_EXPORT}
    INSTALL_RPATH "$ORIGIN;${LLVM_LIBRARY_DIR}")
  target_include_directories(${name} INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  list(TRANSFORM ARG_ARCHIVES REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
  if(files)
    target_link_libraries(${name}
      PRIVATE -Wl,--whole-archive ${files} -Wl,--no-whole-archive)
  endif()
  add_dependencies(${name} fovea-headers ${ARG_ARCHIVES})
  target_link_libraries(${name} PUBLIC ${ARG_LINK}
                        PRIVATE ${ARG_LINK_PRIVATE} fovea_includes fovea_options)
  target_link_options(${name}
    PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/${ARG_MAP})
  set_target_properties(${name} PROPERTIES
    LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${ARG_MAP};${files}")
  if(NOT FOVEA_SANITIZERS)
    # The functions of a sanitizer are those of the program.
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
  install(TARGETS ${name} EXPORT FoveaTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# add_fovea_tool(<name> <sources...> LINK <targets...> MLIR <MLIR libraries...>)
# A program, and the library <name>-main with all of it in the function
# <name>_main, with _ for -.
function(add_fovea_tool name)
  cmake_parse_arguments(ARG "" "" "LINK;MLIR" ${ARGN})
  add_library(${name}-main STATIC ${ARG_UNPARSED_ARGUMENTS})
  add_dependencies(${name}-main fovea-headers)
  target_link_libraries(${name}-main PUBLIC ${ARG_LINK} fovea_includes
                                     PRIVATE fovea_options)
  fovea_link_mlir(${name}-main ${ARG_MLIR})
  if(ARG_MLIR)
    target_precompile_headers(${name}-main REUSE_FROM fovea_precompiled)
  endif()
  string(REPLACE "-" "_" main ${name}_main)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/ToolMain.cpp.in
    ${CMAKE_CURRENT_BINARY_DIR}/Main.cpp @ONLY)
  add_executable(${name} ${CMAKE_CURRENT_BINARY_DIR}/Main.cpp)
  target_link_libraries(${name} PRIVATE ${name}-main fovea_options)
  # It starts from wherever it is installed to.
  set_target_properties(${name} PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${LLVM_LIBRARY_DIR}")
  install(TARGETS ${name} EXPORT FoveaTargets
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
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
  target_precompile_headers(${name} REUSE_FROM fovea_precompiled_tests)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(${name}
    PRIVATE fovea_includes fovea_options GTest::gtest GTest::gtest_main)
  add_dependencies(fovea-unittests ${name})
endfunction()
