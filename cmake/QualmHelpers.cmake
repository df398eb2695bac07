# SPDX-License-Identifier: Apache-2.0
# Flags and helper functions. Every target of ours goes through qualm_library or qualm_executable,
# so that no file is compiled without -ffp-contract=off: both compilers otherwise fuse a*b+c inside
# FMA-targeted functions, and two roundings silently become one.

find_program(QUALM_CCACHE ccache)
if(QUALM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the first ccache keeps nothing that uses a precompiled header, without the second it compiles
  # again what another build folder has and no precompiled header is used for.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_NOHASHDIR=1 ${QUALM_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${QUALM_CCACHE})
endif()

add_library(qualm_flags INTERFACE)
# g++ takes what GoogleTest's macros are made of for an else that dangles.
target_compile_options(qualm_flags INTERFACE -ffp-contract=off -Wall -Wextra -Wshadow
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-dangling-else>
                       # Takes a row of a table for dangling where its name was a temporary.
                       $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>
                       $<$<BOOL:${QUALM_WERROR}>:-Werror>)
# Functions and lines: what a backtrace and a profile show. Variables are optimised away at -O2, and
# describing them takes an eighth of the build. For a debugger: -DCMAKE_BUILD_TYPE=Debug.
target_compile_options(qualm_flags INTERFACE $<$<CONFIG:RelWithDebInfo>:-g1>)
target_include_directories(qualm_flags INTERFACE ${PROJECT_SOURCE_DIR})
if(QUALM_SANITIZE)
  # Global, so that GoogleTest's own objects and ours agree.
  add_compile_options(-fsanitize=${QUALM_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${QUALM_SANITIZE})
endif()
if(QUALM_COVERAGE)
  target_compile_options(qualm_flags INTERFACE --coverage -O0 -g)
  target_link_options(qualm_flags INTERFACE --coverage)
endif()
if(QUALM_COMPRESS_DEBUG)
  # zstd makes an executable with debug information a third as large, and links as fast; zlib does not.
  include(CheckLinkerFlag)
  check_linker_flag(CXX -Wl,--compress-debug-sections=zstd QUALM_LINKER_HAS_ZSTD)
  if(QUALM_LINKER_HAS_ZSTD)
    add_link_options(-Wl,--compress-debug-sections=zstd)
  endif()
endif()

# The containers take clang a second in each file, the long integers of Boost three: a target compiles
# them once. Only headers of others belong here. gcc's precompiled headers take 150 MB; its build also
# shows which include is missing.
function(qualm_precompile target)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # The time of the build would make each precompiled header another one for ccache.
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# qualm_library(NAME SOURCES a.cc ... DEPS lib ... [HEADERS <header>...] [INTERNAL]): static library
# qualm_NAME, alias qualm::NAME. It is installed and exported under that name unless it is INTERNAL.
# HEADERS, and the containers with them, are compiled once.
function(qualm_library name)
  cmake_parse_arguments(ARG "INTERNAL" "" "SOURCES;DEPS;HEADERS" ${ARGN})
  add_library(qualm_${name} STATIC ${ARG_SOURCES})
  add_library(qualm::${name} ALIAS qualm_${name})
  # Warnings and flags are ours: nothing of them is exported.
  target_link_libraries(qualm_${name} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:qualm_flags>)
  target_compile_features(qualm_${name} PUBLIC cxx_std_20)
  target_include_directories(qualm_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(ARG_HEADERS)
    qualm_precompile(qualm_${name} <algorithm> <array> <cmath> <functional> <map> <memory> <optional>
                     <set> <span> <string> <vector> ${ARG_HEADERS})
  endif()
  if(NOT ARG_INTERNAL)
    set_target_properties(qualm_${name} PROPERTIES EXPORT_NAME ${name})
    qualm_install_target(qualm_${name})
  endif()
endfunction()

# qualm_executable(NAME SOURCES a.cc ... DEPS lib ...)
function(qualm_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} qualm_flags)
endfunction()

# GoogleTest and the containers are compiled once for all tests, once with and once without
# optimisation.
set(QUALM_TEST_HEADERS <algorithm> <filesystem> <fmt/format.h> <functional> <gtest/gtest.h> <map>
                       <random> <string> <vector>)
function(qualm_test_headers target)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    return()
  endif()
  set(name qualm_test_headers)
  if(ARG_OPTIMIZED)
    set(name qualm_optimized_test_headers)
  endif()
  if(NOT TARGET ${name})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/empty_main.cc CONTENT "int main() {}\n")
    qualm_executable(${name} SOURCES ${CMAKE_BINARY_DIR}/empty_main.cc DEPS GTest::gtest)
    target_compile_features(${name} PRIVATE cxx_std_20)
    target_compile_options(${name} PRIVATE $<$<NOT:$<BOOL:${ARG_OPTIMIZED}>>:-O0>)
    qualm_precompile(${name} ${QUALM_TEST_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()

# What brings main() into each test; scripts/mutate-judges has one of its own.
set(QUALM_TEST_MAIN GTest::gtest_main CACHE STRING "Library or object with the main function of tests")
mark_as_advanced(QUALM_TEST_MAIN)

# qualm_test(NAME [TIER smoke|short|long] SOURCES a_test.cc ... DEPS lib ... [TIMEOUT seconds]
#            [OPTIMIZED] [SHORT Suite.Test:...]):
# a GoogleTest binary; each TEST is one ctest, labelled with its tier; those of a smoke test that
# take seconds and are named by SHORT belong to the short tier. The dearer tiers start first, so that
# no long test is left for the end when one core has nothing to do. Tests may read the corpus
# through QUALM_SOURCE_DIR and find sibling executables through QUALM_BINARY_DIR. The sources of a
# test are compiled without optimisation, in half the time, since the libraries do the work;
# OPTIMIZED is for a test that computes much by itself, or copies many cases: the linker takes an
# inline function that test and library share (a vector's copy, Case's constructor) from the test.
function(qualm_test name)
  if(NOT QUALM_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "OPTIMIZED" "TIER;TIMEOUT;SHORT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIER)
    set(ARG_TIER smoke)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  # An emulator is some 30 times slower, sanitizers on a busy machine ten.
  if(CMAKE_CROSSCOMPILING OR QUALM_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  qualm_executable(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} GTest::gtest ${QUALM_TEST_MAIN})
  if(NOT ARG_OPTIMIZED)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  qualm_test_headers(${name})
  target_compile_definitions(${name} PRIVATE
    QUALM_SOURCE_DIR="${PROJECT_SOURCE_DIR}" QUALM_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set(cost_smoke 0)
  set(cost_short 10)
  set(cost_long 100)
  set(filter_${ARG_TIER} *)
  if(ARG_SHORT)
    set(filter_${ARG_TIER} "-${ARG_SHORT}")
    set(filter_short ${ARG_SHORT})
  endif()
  foreach(tier smoke short long)
    if(DEFINED filter_${tier})
      gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 120
        TEST_FILTER "${filter_${tier}}" TEST_LIST ${name}_${tier}
        PROPERTIES LABELS ${tier} TIMEOUT ${ARG_TIMEOUT} COST ${cost_${tier}})
    endif()
  endforeach()
endfunction()
