# SPDX-License-Identifier: Apache-2.0
# Foreign code: the parent's side (qualm::plugins), children behind a pipe, the worker that plugins
# run in, and the plugins we ship.
qualm_library(worker_message SOURCES host/worker_message.cc DEPS qualm::core)
qualm_library(plugins
  SOURCES host/child_process.cc libraries/fbgemm.cc host/foreign.cc libraries/gemmlowp.cc libraries/onednn.cc host/pipe.cc host/pipe_child.cc host/plugin.cc
          libraries/ruy.cc libraries/torch.cc host/worker.cc libraries/xnnpack.cc
  DEPS qualm::core qualm::io qualm::plugin_limits qualm::worker_message)
set_source_files_properties(host/plugin.cc PROPERTIES COMPILE_DEFINITIONS
  "QUALM_MODULES_FROM_BIN=\"${QUALM_MODULES_FROM_BIN}\";QUALM_DATA_FROM_BIN=\"${QUALM_DATA_FROM_BIN}\"")

qualm_executable(qualm-worker
  SOURCES ${PROJECT_SOURCE_DIR}/tools/worker_main.cc host/plugin_host.cc
  DEPS qualm::arena qualm::plugin_limits qualm::worker_message ${CMAKE_DL_LIBS})
qualm_install_target(qualm-worker)
# Found at run time as plugins are (FindPlugin).
configure_file(libraries/torch_child.py ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/torch_child.py COPYONLY)
# Whoever links the parent's side needs a worker to start.
add_dependencies(qualm_plugins qualm-worker)

# What a plugin needs to be compiled: the folder of qualm_plugin.h.
add_library(qualm_plugin_interface INTERFACE)
add_library(qualm::plugin_interface ALIAS qualm_plugin_interface)
target_include_directories(qualm_plugin_interface INTERFACE
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/qualm/adapters>)
set_target_properties(qualm_plugin_interface PROPERTIES EXPORT_NAME plugin_interface)
qualm_install_target(qualm_plugin_interface)

# qualm_plugin_module(NAME SOURCES ... [TEST_ONLY]): NAME.so in the library folder, loaded by the
# worker only. Installed, unless it is TEST_ONLY.
function(qualm_plugin_module name)
  cmake_parse_arguments(ARG "TEST_ONLY" "" "SOURCES" ${ARGN})
  add_library(${name} MODULE ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES
    PREFIX "" C_STANDARD 99 C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden)
  target_link_libraries(${name} PRIVATE qualm_flags)
  if(NOT ARG_TEST_ONLY)
    qualm_install_target(${name})
  endif()
endfunction()

# Not find_package(dnnl): Debian's package file demands OpenCL headers that nothing here uses.
find_path(QUALM_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(QUALM_DNNL_LIBRARY dnnl)
if(QUALM_DNNL_INCLUDE AND QUALM_DNNL_LIBRARY)
  file(STRINGS ${QUALM_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h dnnl_major
       REGEX "^#define DNNL_VERSION_MAJOR +[0-9]+")
  string(REGEX MATCH "[0-9]+$" dnnl_major "${dnnl_major}")
  if(dnnl_major EQUAL 2)
    qualm_plugin_module(qualm_onednn
      SOURCES
        libraries/onednn/conv.cc libraries/onednn/elementwise.cc libraries/onednn/linear.cc
        libraries/onednn/ops.cc libraries/onednn/plugin.cc libraries/onednn/pool.cc)
    target_include_directories(qualm_onednn SYSTEM PRIVATE ${QUALM_DNNL_INCLUDE})
    target_link_libraries(qualm_onednn PRIVATE ${QUALM_DNNL_LIBRARY})
    add_dependencies(qualm_plugins qualm_onednn)
  else()
    message(STATUS "oneDNN ${dnnl_major}.x found: the subject onednn needs 2.x, it will be absent")
  endif()
else()
  message(STATUS "oneDNN not found (libdnnl-dev): the subject onednn will be absent")
endif()

# No package file exists for it. pthreadpool.h is included by its header.
find_path(QUALM_XNNPACK_INCLUDE xnnpack.h)
find_path(QUALM_PTHREADPOOL_INCLUDE pthreadpool.h)
find_library(QUALM_XNNPACK_LIBRARY XNNPACK)
find_library(QUALM_PTHREADPOOL_LIBRARY pthreadpool)
find_library(QUALM_CPUINFO_LIBRARY cpuinfo)
if(QUALM_XNNPACK_INCLUDE AND QUALM_PTHREADPOOL_INCLUDE AND QUALM_XNNPACK_LIBRARY
   AND QUALM_PTHREADPOOL_LIBRARY AND QUALM_CPUINFO_LIBRARY)
  # Later versions split setup into reshape and setup, and pass scales of other types.
  file(STRINGS ${QUALM_XNNPACK_INCLUDE}/xnnpack.h xnnpack_reshape REGEX "xnn_reshape_add_nd_qs8")
  if(NOT xnnpack_reshape)
    qualm_plugin_module(qualm_xnnpack SOURCES libraries/xnnpack_plugin.cc)
    target_include_directories(qualm_xnnpack SYSTEM PRIVATE
      ${QUALM_XNNPACK_INCLUDE} ${QUALM_PTHREADPOOL_INCLUDE})
    target_link_libraries(qualm_xnnpack PRIVATE
      ${QUALM_XNNPACK_LIBRARY} ${QUALM_PTHREADPOOL_LIBRARY} ${QUALM_CPUINFO_LIBRARY})
    add_dependencies(qualm_plugins qualm_xnnpack)
  else()
    message(STATUS "XNNPACK found, but newer than 2022: the subject xnnpack will be absent")
  endif()
else()
  message(STATUS "XNNPACK not found (libxnnpack-dev): the subject xnnpack will be absent")
endif()

# Headers only. What a build of them computes depends on the instruction sets it may use: a plain one
# has no SIMD on x86, and a second one takes SSE4.1. Elsewhere a plain build has other arithmetic.
find_path(QUALM_GEMMLOWP_INCLUDE gemmlowp/public/gemmlowp.h)
if(QUALM_GEMMLOWP_INCLUDE AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  function(qualm_gemmlowp_module name)
    qualm_plugin_module(${name} SOURCES libraries/gemmlowp_plugin.cc)
    target_include_directories(${name} SYSTEM PRIVATE ${QUALM_GEMMLOWP_INCLUDE})
    target_link_libraries(${name} PRIVATE Threads::Threads)
    # Its scalar code adds int32 that may overflow, which C++ leaves to each compiler's mood.
    target_compile_options(${name} PRIVATE -fwrapv)
    add_dependencies(qualm_plugins ${name})
  endfunction()
  qualm_gemmlowp_module(qualm_gemmlowp)
  qualm_gemmlowp_module(qualm_gemmlowp_sse4)
  target_compile_options(qualm_gemmlowp_sse4 PRIVATE -msse4.1)
else()
  message(STATUS "gemmlowp not found (libgemmlowp-dev), or not on x86-64: the subject gemmlowp will be absent")
endif()

# Not packaged before Debian 13. Its kernels are static libraries.
find_package(ruy CONFIG QUIET)
if(ruy_FOUND AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  qualm_plugin_module(qualm_ruy SOURCES libraries/ruy_plugin.cc)
  target_link_libraries(qualm_ruy PRIVATE ruy::ruy)
  add_dependencies(qualm_plugins qualm_ruy)
else()
  message(STATUS "ruy not found (libruy-dev), or not on x86-64: the subject ruy will be absent")
endif()

# Nobody packages it; its own CMake installs share/cmake/fbgemm/fbgemmLibraryConfig.cmake.
find_package(fbgemm CONFIG QUIET
  CONFIGS fbgemmConfig.cmake fbgemm-config.cmake fbgemmLibraryConfig.cmake)
if(fbgemm_FOUND)
  foreach(name qualm_fbgemm qualm_fbgemm_acc16)
    qualm_plugin_module(${name} SOURCES libraries/fbgemm_plugin.cc)
    target_link_libraries(${name} PRIVATE fbgemm)
    add_dependencies(qualm_plugins ${name})
  endforeach()
  target_compile_definitions(qualm_fbgemm_acc16 PRIVATE QUALM_FBGEMM_ACC16)
else()
  message(STATUS "FBGEMM not found: the subject fbgemm will be absent")
endif()

if(QUALM_BUILD_TESTS)
  qualm_plugin_module(qualm_example TEST_ONLY SOURCES ${PROJECT_SOURCE_DIR}/examples/plugin/example_plugin.c)
  target_link_libraries(qualm_example PRIVATE qualm::plugin_interface)
  qualm_plugin_module(qualm_broken TEST_ONLY SOURCES host/broken_plugin.cc)
  qualm_plugin_module(qualm_no_entry TEST_ONLY SOURCES host/broken_plugin.cc)
  # The same, under a name that nobody looks for.
  target_compile_definitions(qualm_no_entry PRIVATE qualm_plugin_entry=another_entry)
  qualm_test(plugin_test
    SOURCES host/plugin_test.cc libraries/gemmlowp_test.cc libraries/onednn_golden_test.cc libraries/onednn_test.cc
            host/worker_message_test.cc libraries/xnnpack_test.cc
    DEPS qualm::io qualm::plugins)
  target_compile_definitions(plugin_test PRIVATE QUALM_CORPUS_DIR="${PROJECT_SOURCE_DIR}/corpus")
  add_dependencies(plugin_test qualm_example qualm_broken qualm_no_entry)
  qualm_test(pipe_test SOURCES host/pipe_test.cc DEPS qualm::io qualm::plugins)
endif()
