# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down, so that find_package(qualm) works in another project and the
# command runs from wherever the tree is moved to: no installed file holds a path of this machine.

set(QUALM_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/qualm)
set(QUALM_MODULE_DIR ${CMAKE_INSTALL_LIBDIR}/qualm)
set(QUALM_DATA_DIR ${CMAKE_INSTALL_DATADIR}/qualm)
# From the command to its modules and data.
file(RELATIVE_PATH QUALM_MODULES_FROM_BIN
     ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/qualm)
file(RELATIVE_PATH QUALM_DATA_FROM_BIN
     ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/qualm)

# All that is installed, and nothing else: `cmake --build DIR --target qualm_package`, then
# `cmake --install DIR`. (The target `install` builds every test first.)
add_custom_target(qualm_package)

# qualm_install_target(TARGET [ARCHIVE_FOLDER folder]): an archive or executable, exported as
# qualm::NAME, or a module for the worker.
function(qualm_install_target target)
  cmake_parse_arguments(ARG "" "ARCHIVE_FOLDER" "" ${ARGN})
  if(NOT ARG_ARCHIVE_FOLDER)
    set(ARG_ARCHIVE_FOLDER ${CMAKE_INSTALL_LIBDIR})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL MODULE_LIBRARY)
    install(TARGETS ${target} LIBRARY DESTINATION ${QUALM_MODULE_DIR})
  else()
    install(TARGETS ${target} EXPORT qualm
      ARCHIVE DESTINATION ${ARG_ARCHIVE_FOLDER} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  if(NOT type STREQUAL INTERFACE_LIBRARY)
    add_dependencies(qualm_package ${target})
  endif()
endfunction()

# qualm_test_package(): the tests of the installed tree (TestInstalled.cmake): one that installs it
# and moves it, and one for each project in examples/.
function(qualm_test_package)
  if(QUALM_SANITIZE OR QUALM_COVERAGE OR QUALM_MUTATE OR CMAKE_CROSSCOMPILING)
    message(STATUS "the tests of the installed tree are left out: they need a plain build")
    return()
  endif()
  set(work ${PROJECT_BINARY_DIR}/installed)
  set(script ${PROJECT_SOURCE_DIR}/cmake/TestInstalled.cmake)
  set(settings -D build=${PROJECT_BINARY_DIR} -D source=${PROJECT_SOURCE_DIR} -D work=${work}
      -D cxx=${CMAKE_CXX_COMPILER} -D cc=${CMAKE_C_COMPILER} -D generator=${CMAKE_GENERATOR}
      -D launcher=${CMAKE_CXX_COMPILER_LAUNCHER} -D bindir=${CMAKE_INSTALL_BINDIR})
  add_test(NAME installed.tree
           COMMAND ${CMAKE_COMMAND} ${settings} -D part=tree -P ${script})
  set_tests_properties(installed.tree PROPERTIES FIXTURES_SETUP installed_tree)
  set(tests installed.tree)
  foreach(example gtest fuzz plugin pipe kernels)
    add_test(NAME installed.${example}
             COMMAND ${CMAKE_COMMAND} ${settings} -D part=${example} -P ${script})
    set_tests_properties(installed.${example} PROPERTIES FIXTURES_REQUIRED installed_tree)
    list(APPEND tests installed.${example})
  endforeach()
  set_tests_properties(${tests} PROPERTIES
    LABELS short TIMEOUT 1800 SKIP_REGULAR_EXPRESSION "installed test skipped: ")
endfunction()

# qualm_install_shell_support(): what the shells and man need, printed by the command itself.
function(qualm_install_shell_support)
  set(shell ${PROJECT_BINARY_DIR}/shell)
  foreach(what "bash:completion bash" "_qualm:completion zsh" "qualm.fish:completion fish"
          "qualm.1:man")
    string(REPLACE ":" ";" what "${what}")
    list(GET what 0 file)
    list(GET what 1 arguments)
    separate_arguments(arguments)
    list(APPEND made ${shell}/${file})
    add_custom_command(OUTPUT ${shell}/${file}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${shell}
      COMMAND qualm ${arguments} > ${shell}/${file}
      DEPENDS qualm VERBATIM)
  endforeach()
  add_custom_target(qualm_shell ALL DEPENDS ${made})
  add_dependencies(qualm_package qualm_shell)
  install(FILES ${shell}/bash RENAME qualm
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${shell}/_qualm DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${shell}/qualm.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  install(FILES ${shell}/qualm.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endfunction()

# Everything but the targets, which install themselves.
function(qualm_install_package)
  include(CMakePackageConfigHelpers)
  get_target_property(hwy_is_imported hwy::hwy IMPORTED)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/qualmConfig.cmake.in
    ${PROJECT_BINARY_DIR}/qualmConfig.cmake INSTALL_DESTINATION ${QUALM_PACKAGE_DIR})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/qualmConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES
    ${PROJECT_BINARY_DIR}/qualmConfig.cmake ${PROJECT_BINARY_DIR}/qualmConfigVersion.cmake
    cmake/FindMPFR.cmake cmake/QualmFuzzing.cmake
    DESTINATION ${QUALM_PACKAGE_DIR})
  install(EXPORT qualm NAMESPACE qualm:: FILE qualmTargets.cmake DESTINATION ${QUALM_PACKAGE_DIR})

  # Headers, spelled <qualm/core/case.h>: a project may well have a core/ of its own.
  set(headers ${PROJECT_BINARY_DIR}/installed_headers)
  install(CODE "
    set(root \"${PROJECT_SOURCE_DIR}\")
    set(to \"${headers}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/InstalledHeaders.cmake\")")
  install(DIRECTORY ${headers}/qualm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

  foreach(folder forum regressions onnx golden fuzz certificates)
    install(DIRECTORY corpus/${folder} DESTINATION ${QUALM_DATA_DIR}/corpus)
  endforeach()
  install(DIRECTORY examples DESTINATION ${QUALM_DATA_DIR})
  # Programs that run behind a pipe.
  file(GLOB children CONFIGURE_DEPENDS adapters/libraries/*.py adapters/libraries/*.mjs)
  if(children)
    install(FILES ${children} DESTINATION ${QUALM_DATA_DIR})
  endif()
  install(FILES tools/pytorch/qualm_export.py DESTINATION ${QUALM_DATA_DIR}/pytorch)
  install(FILES core/io/case.schema.json DESTINATION ${QUALM_DATA_DIR})
  if(NOT CMAKE_CROSSCOMPILING)
    qualm_install_shell_support()
  endif()
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()
