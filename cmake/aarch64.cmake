# SPDX-License-Identifier: Apache-2.0
# Toolchain file: Linux on aarch64, cross-built by this machine's clang and lld against the libraries
# that scripts/test-arm unpacks; what is built runs under qemu-user. QEMU_CPU chooses the processor,
# for instance QEMU_CPU=max,sve-default-vector-length=64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

if(DEFINED ENV{QUALM_CACHE_DIR})
  set(qualm_cache $ENV{QUALM_CACHE_DIR})
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(qualm_cache $ENV{XDG_CACHE_HOME}/qualm)
else()
  set(qualm_cache $ENV{HOME}/.cache/qualm)
endif()
set(CMAKE_SYSROOT ${qualm_cache}/aarch64)
if(NOT EXISTS ${CMAKE_SYSROOT}/usr/include/stdio.h)
  message(FATAL_ERROR "no aarch64 libraries in ${CMAKE_SYSROOT}: scripts/test-arm puts them there")
endif()

set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
add_link_options(-fuse-ld=lld)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${CMAKE_SYSROOT})
