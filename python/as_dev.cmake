# SPDX-License-Identifier: Apache-2.0
# What `pip install ./python` adds to CMake's cache: the compiler and flags of preset dev, if it is there.
find_program(CLANGXX clang++-19)
find_program(CLANG clang-19)
if(CLANGXX AND CLANG AND NOT CMAKE_CXX_COMPILER)
  set(CMAKE_CXX_COMPILER clang++-19 CACHE STRING "")
  set(CMAKE_C_COMPILER clang-19 CACHE STRING "")
  set(QUALM_WERROR ON CACHE BOOL "")
endif()
