# What `cmake --install` gives: libraries, headers, tools, and files by which
# CMake and pkg-config find them. Libraries and tools are installed where they
# are declared.

include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Fovea)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ ${PROJECT_BINARY_DIR}/include/
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.td" PATTERN "*.inc"
  PATTERN "CMakeFiles" EXCLUDE)
install(EXPORT FoveaTargets NAMESPACE Fovea:: DESTINATION ${package})

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/package/FoveaConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/FoveaConfig.cmake
  INSTALL_DESTINATION ${package})
# Before 1.0, every minor version is another interface.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/package/FoveaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/package/FoveaConfig.cmake
  ${PROJECT_BINARY_DIR}/package/FoveaConfigVersion.cmake
  DESTINATION ${package})

file(RELATIVE_PATH FOVEA_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(name fovea fovea-c fovea-rt)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/package/${name}.pc.in
    ${PROJECT_BINARY_DIR}/package/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/package/${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
