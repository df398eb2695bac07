# SPDX-License-Identifier: Apache-2.0
# Where each dependency comes from. scripts/bootstrap installs the packaged ones and, where the
# distribution's Highway is older than 1.2, fetches the 1.2.0 source archive into the cache below.
include(FetchContent)

set(QUALM_CACHE_DIR "$ENV{QUALM_CACHE_DIR}" CACHE PATH "Where bootstrap keeps source archives")
if(NOT QUALM_CACHE_DIR)
  if(DEFINED ENV{XDG_CACHE_HOME})
    set(QUALM_CACHE_DIR "$ENV{XDG_CACHE_HOME}/qualm")
  else()
    set(QUALM_CACHE_DIR "$ENV{HOME}/.cache/qualm")
  endif()
endif()

# Highway: system package >= 1.2, else the cached archive, else the project's own release archive.
find_package(hwy 1.2 QUIET)
if(NOT hwy_FOUND)
  set(highway_urls)
  if(EXISTS ${QUALM_CACHE_DIR}/highway-1.2.0.tar.gz)
    list(APPEND highway_urls file://${QUALM_CACHE_DIR}/highway-1.2.0.tar.gz)
  else()
    list(APPEND highway_urls
         https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz)
  endif()
  set(HWY_ENABLE_TESTS OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_EXAMPLES OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_CONTRIB OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_INSTALL OFF CACHE BOOL "" FORCE)
  FetchContent_Declare(highway
    URL ${highway_urls}
    URL_HASH SHA256=7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343
    DOWNLOAD_EXTRACT_TIMESTAMP ON)
  FetchContent_MakeAvailable(highway)
  # Its headers are not ours to warn about.
  set_target_properties(hwy PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES $<BUILD_INTERFACE:${highway_SOURCE_DIR}>)
  # Whoever links the installed kernels needs it too; its headers they do not need.
  qualm_install_target(hwy ARCHIVE_FOLDER ${CMAKE_INSTALL_LIBDIR}/qualm)
  if(NOT TARGET hwy::hwy)
    add_library(hwy::hwy ALIAS hwy)
  endif()
endif()

find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt REQUIRED)
find_package(Boost 1.74 CONFIG REQUIRED)  # its own package file: CMake drops FindBoost
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)

# Headers alone: the wire format of ONNX files, hashes of certificates. Their packages bring no
# CMake files everywhere.
find_path(PROTOZERO_INCLUDE_DIR protozero/pbf_reader.hpp REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
mark_as_advanced(PROTOZERO_INCLUDE_DIR XXHASH_INCLUDE_DIR)

# For the definitions in oracles/ only.
find_package(MPFR REQUIRED)

if(QUALM_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  find_package(rapidcheck CONFIG REQUIRED)
endif()
