# SPDX-License-Identifier: Apache-2.0
# cmake -D FOLDER=DIR -D COMPILER=CXX -P LibrariesThatChanged.cmake: qualm_library_modules with a
# library of one function whose header, and then whose object, no longer has it.
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
file(REMOVE_RECURSE ${FOLDER})
set(project ${FOLDER}/project)
set(library ${FOLDER}/library)
file(COPY ${root}/adapters/qualm_plugin.h DESTINATION ${project}/adapters)
file(WRITE ${project}/plugin.cc "
#include <changing.h>
#include \"adapters/qualm_plugin.h\"
extern \"C\" const qualm_plugin* qualm_plugin_entry(void) { return changing(1) ? nullptr : nullptr; }
")
file(WRITE ${project}/CMakeLists.txt "
cmake_minimum_required(VERSION 3.25)
project(stub LANGUAGES CXX)
set(QUALM_LIBRARIES ON)
set(QUALM_WERROR ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY \${CMAKE_BINARY_DIR}/lib)
add_library(qualm_flags INTERFACE)
target_compile_options(qualm_flags INTERFACE -Wall)
add_custom_target(qualm_libraries)
function(qualm_plugin_module name)
  add_library(\${name} MODULE plugin.cc)
  set_target_properties(\${name} PROPERTIES PREFIX \"\")
endfunction()
include(\"${root}/cmake/QualmLibraryModules.cmake\")
qualm_library_modules(changing
  IF LIBRARY_IS_FOUND
  ELSE \"changing not found\"
  FOR \"changing of 2022\"
  MODULES changing_plugin
  SOURCES plugin.cc
  INCLUDES \"\${HEADERS}\"
  LINK \"${library}/libchanging.a\")
get_property(unusable GLOBAL PROPERTY QUALM_UNUSABLE)
message(STATUS \"told: \${unusable}\")
if(TARGET changing_plugin)
  message(STATUS \"built\")
endif()
")

# The library as `header` declares it and `source` defines it.
function(make_header header)
  file(WRITE ${library}/changing.h "${header}\n")
endfunction()
function(make_library header source)
  make_header("${header}")
  file(WRITE ${library}/changing.cc "${source}\n")
  file(REMOVE ${library}/libchanging.a)
  execute_process(COMMAND ${COMPILER} -c changing.cc -o changing.o
                  WORKING_DIRECTORY ${library} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_AR} rc libchanging.a changing.o
                  WORKING_DIRECTORY ${library} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Configures (with `ARGN`) and looks for `what` in the output.
function(expect_told what)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${project} -B ${FOLDER}/build -G Ninja
            -D CMAKE_CXX_COMPILER=${COMPILER} -D LIBRARY_IS_FOUND=ON -D HEADERS=${library} ${ARGN}
    OUTPUT_VARIABLE told ERROR_VARIABLE errors RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT told MATCHES "${what}")
    message(SEND_ERROR "expected ${what}, status ${status}: ${told}${errors}")
  endif()
endfunction()

# Builds, which configures where a file has changed, and looks for `what` in the output.
function(expect_built what)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${FOLDER}/build
                  OUTPUT_VARIABLE told ERROR_VARIABLE told RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT told MATCHES "${what}")
    message(SEND_ERROR "the build: expected ${what}, status ${status}: ${told}")
  endif()
endfunction()

function(expect_module exists)
  if((EXISTS ${FOLDER}/build/lib/changing_plugin.so AND NOT exists) OR
     (NOT EXISTS ${FOLDER}/build/lib/changing_plugin.so AND exists))
    message(SEND_ERROR "expected changing_plugin.so: ${exists}")
  endif()
endfunction()

set(reason "built for changing of 2022, the one found does not compile: ")
set(absent ": the subject changing will be absent")

expect_told("changing not found${absent}" -D LIBRARY_IS_FOUND=OFF)

make_library("bool changing(int);" "bool changing(int) { return true; }")
expect_told("told: \n.*-- built")
expect_built("changing_plugin")
expect_module(ON)

# Another folder with headers of the same name.
file(WRITE ${FOLDER}/other/changing.h "bool changed(int);\n")
expect_told("${reason}[^\n]*changing[^\n]*${absent}" -D HEADERS=${FOLDER}/other)
expect_module(OFF)
expect_told("told: \n.*-- built")
expect_built("changing_plugin")

# A header that changes configures again, and nothing of the plugin is left.
make_header("bool changed(int);")
expect_built("${reason}plugin.cc:[0-9]+:[0-9]+: error: [^\n]*changing[^\n]*${absent}")
expect_module(OFF)
expect_told("told: {\"changing\", R\"qualm\\(${reason}[^\n]*\\)qualm\"},")

# A warning that would end the build counts.
make_header("[[deprecated]] bool changing(int);")
expect_built("${reason}plugin.cc[^\n]*deprecated[^\n]*${absent}")

# The header promises what the library lacks: no plugin of it could be loaded.
make_library("bool changing(int);" "bool changed(int) { return true; }")
expect_told("${reason}[^\n]*undefined[^\n]*changing[^\n]*${absent}")

# As it was: nothing is left of the error.
make_library("bool changing(int);" "bool changing(int) { return true; }")
expect_told("told: \n.*-- built")
expect_built("changing_plugin")

# Nor is anything left where the library is gone.
expect_module(ON)
expect_told("changing not found${absent}" -D LIBRARY_IS_FOUND=OFF)
expect_module(OFF)
file(REMOVE_RECURSE ${FOLDER})
