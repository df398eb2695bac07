# SPDX-License-Identifier: Apache-2.0
# The libraries under test: the table of subjects (qualm::libraries), and one paragraph per library
# that finds it and builds its plugins. Libraries behind a pipe need nothing to build.
qualm_library(libraries
  SOURCES
    libraries/emulator.cc libraries/ggml.cc libraries/libraries.cc libraries/models.cc
    libraries/onnxruntime.cc libraries/torch.cc
    libraries/wheels.cc
  DEPS qualm::plugins)

# Programs behind a pipe lie where FindModule looks (cmake/QualmInstall.cmake installs them).
file(GLOB scripts CONFIGURE_DEPENDS libraries/*.py libraries/*.mjs)
foreach(script ${scripts})
  get_filename_component(file ${script} NAME)
  configure_file(${script} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${file} COPYONLY)
endforeach()

include(QualmLibraryModules)

string(REGEX MATCH "^(x86_64|AMD64)$" on_x86_64 "${CMAKE_SYSTEM_PROCESSOR}")

# Not find_package(dnnl): Debian's package file demands OpenCL headers that nothing here uses.
find_path(QUALM_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(QUALM_DNNL_LIBRARY dnnl)
# The C++ interface of 3.x is another one than that of 2.x, and releases of 3.x compute differently.
set(dnnl_version "")
if(QUALM_DNNL_INCLUDE)
  file(STRINGS ${QUALM_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h dnnl_version
       REGEX "^#define DNNL_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9]+" "." dnnl_version "${dnnl_version}")
endif()
qualm_library_modules(onednn
  IF QUALM_DNNL_LIBRARY AND dnnl_version MATCHES "^\\.(2\\.|3\\.7$)"
  ELSE "oneDNN 2.x or 3.7 not found (libdnnl-dev)"
  FOR "oneDNN 2.x or 3.7"
  MODULES qualm_onednn
  SOURCES
    libraries/onednn/conv.cc libraries/onednn/elementwise.cc libraries/onednn/linear.cc
    libraries/onednn/ops.cc libraries/onednn/plugin.cc libraries/onednn/pool.cc
  INCLUDES ${QUALM_DNNL_INCLUDE}
  LINK ${QUALM_DNNL_LIBRARY})

# No package file exists for it. Its header includes pthreadpool.h. Its operators had other functions
# until 2024. What those of 2024 compute is described for x86-64 only.
find_path(QUALM_XNNPACK_INCLUDE xnnpack.h)
find_path(QUALM_PTHREADPOOL_INCLUDE pthreadpool.h)
find_library(QUALM_XNNPACK_LIBRARY XNNPACK)
find_library(QUALM_PTHREADPOOL_LIBRARY pthreadpool)
find_library(QUALM_CPUINFO_LIBRARY cpuinfo)
set(xnnpack_of_2024 "")
if(QUALM_XNNPACK_INCLUDE)
  file(STRINGS ${QUALM_XNNPACK_INCLUDE}/xnnpack.h xnnpack_of_2024
       REGEX "xnn_create_binary_elementwise_nd")
endif()
set(QUALM_XNNPACK_API 2022 CACHE INTERNAL "")
if(xnnpack_of_2024)
  set(QUALM_XNNPACK_API 2024 CACHE INTERNAL "")
endif()
qualm_library_modules(xnnpack
  IF QUALM_XNNPACK_INCLUDE AND QUALM_PTHREADPOOL_INCLUDE AND QUALM_XNNPACK_LIBRARY
     AND QUALM_PTHREADPOOL_LIBRARY AND QUALM_CPUINFO_LIBRARY
     AND (on_x86_64 OR NOT xnnpack_of_2024)
  ELSE "XNNPACK not found (libxnnpack-dev), or of 2024 and not on x86-64"
  FOR "XNNPACK of 2022 or 2024"
  MODULES qualm_xnnpack
  SOURCES libraries/xnnpack/api_${QUALM_XNNPACK_API}.cc libraries/xnnpack/plugin.cc
  INCLUDES ${QUALM_XNNPACK_INCLUDE} ${QUALM_PTHREADPOOL_INCLUDE}
  LINK ${QUALM_XNNPACK_LIBRARY} ${QUALM_PTHREADPOOL_LIBRARY} ${QUALM_CPUINFO_LIBRARY})

# Headers only. What a build of them computes depends on the instruction sets it may use: a plain
# build has no SIMD on x86, and a second build takes SSE4.1. Elsewhere a plain build has other
# arithmetic. -fwrapv: its scalar code adds int32 that may overflow, which C++ leaves to each
# compiler's mood.
find_path(QUALM_GEMMLOWP_INCLUDE gemmlowp/public/gemmlowp.h)
qualm_library_modules(gemmlowp
  IF QUALM_GEMMLOWP_INCLUDE AND on_x86_64
  ELSE "gemmlowp not found (libgemmlowp-dev), or not on x86-64"
  FOR "gemmlowp of 2021"
  MODULES qualm_gemmlowp qualm_gemmlowp_sse4
  SOURCES libraries/gemmlowp_plugin.cc
  INCLUDES ${QUALM_GEMMLOWP_INCLUDE}
  LINK Threads::Threads
  OPTIONS -fwrapv
  OPTIONS_OF qualm_gemmlowp_sse4 -msse4.1)

# Not packaged before Debian 13. Its kernels are static libraries.
find_package(ruy CONFIG QUIET)
qualm_library_modules(ruy
  IF ruy_FOUND AND on_x86_64
  ELSE "ruy not found (libruy-dev), or not on x86-64"
  FOR "ruy of 2023"
  MODULES qualm_ruy
  SOURCES libraries/ruy_plugin.cc
  LINK ruy::ruy)

# Nobody packages it; its own CMake installs share/cmake/fbgemm/fbgemmLibraryConfig.cmake.
find_package(fbgemm CONFIG QUIET
  CONFIGS fbgemmConfig.cmake fbgemm-config.cmake fbgemmLibraryConfig.cmake)
qualm_library_modules(fbgemm
  IF fbgemm_FOUND
  ELSE "FBGEMM not found"
  FOR "FBGEMM at 71d6f8b"
  MODULES qualm_fbgemm qualm_fbgemm_acc16
  SOURCES libraries/fbgemm_plugin.cc
  LINK fbgemm
  OPTIONS_OF qualm_fbgemm_acc16 -DQUALM_FBGEMM_ACC16)

# Nothing of it is needed to build the plugin, which opens the shared objects that scripts/install-ggml
# brings. They are for x86-64.
qualm_library_modules(ggml
  IF on_x86_64
  ELSE "not on x86-64"
  FOR "ggml 0.25"
  MODULES qualm_ggml
  SOURCES libraries/ggml_plugin.cc
  LINK ${CMAKE_DL_LIBS})

# What WhyAbsent in libraries.cc says of libraries that were found and do not fit.
get_property(unusable GLOBAL PROPERTY QUALM_UNUSABLE)
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/qualm_unusable.h
     CONTENT "#define QUALM_UNUSABLE {@unusable@}\n" @ONLY)
target_include_directories(qualm_libraries PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
