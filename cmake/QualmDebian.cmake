# SPDX-License-Identifier: Apache-2.0
# `cpack -G DEB` in the build folder: a package for the Debian that it was made on. It holds what
# `cmake --install` lays down, below /usr, and the Python package where the build has it; apt brings
# the shared libraries, and what other projects need to link with qualm.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "qualm developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # libraries under test too: their modules are in the package
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS
    "libfmt-dev, libgtest-dev, libmpfr-dev, nlohmann-json3-dev, python3, zlib1g-dev")
get_target_property(kind qualm_python TYPE)
if(kind STREQUAL MODULE_LIBRARY)
  set(CPACK_INSTALL_CMAKE_PROJECTS
      "${PROJECT_BINARY_DIR};${PROJECT_NAME};ALL;/"
      "${PROJECT_BINARY_DIR};${PROJECT_NAME};debian_python;/")
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", python3-numpy, python3-pytest")
  set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/debian/prerm)
endif()
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
