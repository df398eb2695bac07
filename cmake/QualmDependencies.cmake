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
  get_target_property(highway_include hwy INTERFACE_INCLUDE_DIRECTORIES)
  set_target_properties(hwy PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${highway_include}" EXCLUDE_FROM_ALL ON)
  if(NOT TARGET hwy::hwy)
    add_library(hwy::hwy ALIAS hwy)
  endif()
endif()

find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)

# MPFR (and GMP, of which it is made): for the definitions in oracles/ only.
find_path(QUALM_MPFR_INCLUDE mpfr.h REQUIRED)
find_library(QUALM_MPFR mpfr REQUIRED)
find_library(QUALM_GMP gmp REQUIRED)
add_library(qualm_mpfr INTERFACE)
target_include_directories(qualm_mpfr SYSTEM INTERFACE ${QUALM_MPFR_INCLUDE})
target_link_libraries(qualm_mpfr INTERFACE ${QUALM_MPFR} ${QUALM_GMP})

if(QUALM_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  find_package(rapidcheck CONFIG REQUIRED)
endif()
