# fovea_static_llvm: the archives of LLVM and MLIR, of which the linker takes what
# is called. Included with FOVEA_STATIC_LLVM.

set(FOVEA_STATIC_TARGETS X86 AArch64 NVPTX)

foreach(part zstd z)
  find_library(FOVEA_STATIC_${part} NAMES lib${part}.a REQUIRED)
endforeach()
file(GLOB archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
if(NOT archives)
  message(FATAL_ERROR "FOVEA_STATIC_LLVM needs the archives of LLVM and MLIR, "
                      "but found none in ${LLVM_LIBRARY_DIR}")
endif()

# Initializers that do nothing keep all other targets out.
set(initializers "")
foreach(target ${LLVM_TARGETS_TO_BUILD})
  if(NOT target IN_LIST FOVEA_STATIC_TARGETS)
    foreach(part Target TargetInfo TargetMC AsmPrinter AsmParser)
      string(APPEND initializers
        "extern \"C\" void LLVMInitialize${target}${part}() {}\n")
    endforeach()
  endif()
endforeach()
configure_file(cmake/StaticLLVM.cpp.in ${PROJECT_BINARY_DIR}/StaticLLVM.cpp @ONLY)
# An object, which comes before archives.
add_library(fovea_static_llvm_objects OBJECT ${PROJECT_BINARY_DIR}/StaticLLVM.cpp)

add_library(fovea_static_llvm INTERFACE)
target_link_libraries(fovea_static_llvm INTERFACE
  $<TARGET_OBJECTS:fovea_static_llvm_objects> ${archives}
  ${FOVEA_STATIC_zstd} ${FOVEA_STATIC_z} ${CMAKE_DL_LIBS})
# lld asks for no order of archives.
target_link_options(fovea_static_llvm INTERFACE
  -fuse-ld=lld -Wl,--gc-sections -Wl,--exclude-libs,ALL -static-libstdc++)

# What upstream's functions link to by the names of components: the archives, not
# the shared libraries that those name in turn.
set(LLVM_LINK_LLVM_DYLIB OFF)
set_target_properties(LLVMSupport PROPERTIES INTERFACE_LINK_LIBRARIES "")
