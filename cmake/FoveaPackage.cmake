# The Debian package, of all that `cmake --install` gives: cpack --config
# CPackConfig.cmake in the build folder. Libraries of other packages that it needs
# are found by dpkg-shlibdeps.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fovea)
set(CPACK_PACKAGE_CONTACT "The Fovea Project")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
# For programs that include the headers for C++.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS libmlir-${LLVM_VERSION_MAJOR}-dev)
include(CPack)
