# SPDX-License-Identifier: Apache-2.0
# Foreign code: the side of the process that tests it (qualm::plugins), the worker that loads plugins,
# and what a plugin is compiled with.
qualm_library(worker_message
  SOURCES host/mailbox.cc host/worker_message.cc
  DEPS qualm::core Threads::Threads)
qualm_library(plugins
  SOURCES
    host/child_process.cc host/foreign.cc host/pipe.cc host/pipe_child.cc
    host/plugin.cc host/worker.cc
  DEPS qualm::core qualm::io qualm::plugin_limits qualm::worker_message)
set_source_files_properties(host/plugin.cc PROPERTIES COMPILE_DEFINITIONS
  "QUALM_MODULES_FROM_BIN=\"${QUALM_MODULES_FROM_BIN}\";QUALM_DATA_FROM_BIN=\"${QUALM_DATA_FROM_BIN}\"")

qualm_executable(qualm-worker
  SOURCES ${PROJECT_SOURCE_DIR}/tools/worker_main.cc host/plugin_host.cc
  DEPS qualm::arena qualm::plugin_limits qualm::worker_message Threads::Threads ${CMAKE_DL_LIBS})
qualm_install_target(qualm-worker)
# Whoever links qualm::plugins needs a worker to start.
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

if(QUALM_BUILD_TESTS)
  qualm_plugin_module(qualm_example TEST_ONLY
    SOURCES ${PROJECT_SOURCE_DIR}/examples/plugin/example_plugin.c)
  target_link_libraries(qualm_example PRIVATE qualm::plugin_interface)
  # The same plugin, built when the structs of the interface were smaller.
  qualm_plugin_module(qualm_example_old TEST_ONLY
    SOURCES ${PROJECT_SOURCE_DIR}/examples/plugin/example_plugin.c)
  target_include_directories(qualm_example_old PRIVATE host/testdata)
  qualm_plugin_module(qualm_broken TEST_ONLY SOURCES host/broken_plugin.cc)
  qualm_plugin_module(qualm_no_entry TEST_ONLY SOURCES host/broken_plugin.cc)
  # The same plugin, whose entry function has a name that nobody looks for.
  target_compile_definitions(qualm_no_entry PRIVATE qualm_plugin_entry=another_entry)
  qualm_test(plugin_test TIER short
    SOURCES
      host/plugin_test.cc host/worker_message_test.cc libraries/gemmlowp_test.cc
      libraries/onednn_golden_test.cc libraries/onednn_test.cc libraries/xnnpack_test.cc
    DEPS qualm::io qualm::libraries qualm::random_case)
  target_compile_definitions(plugin_test PRIVATE QUALM_CORPUS_DIR="${PROJECT_SOURCE_DIR}/corpus")
  add_dependencies(plugin_test qualm_example qualm_example_old qualm_broken qualm_no_entry)
  qualm_test(pipe_test TIER short SOURCES host/pipe_test.cc DEPS qualm::io qualm::plugins)
endif()
