# SPDX-License-Identifier: Apache-2.0
# Plugins of libraries under test. A library changes while its plugin stays, so each plugin is tried
# before anything is built: a library that it does not fit is absent with the reason, and no build
# fails for it.

# qualm_library_modules(SUBJECT IF condition... ELSE "what is missing" FOR "which versions"
#   MODULES name... SOURCES ... [INCLUDES folder...] [LINK library...] [OPTIONS flag...]
#   [OPTIONS_OF module flag...]):
# the plugins of one library. Where the condition does not hold, or where they do not compile and
# link, a line says that the subject will be absent. The global property QUALM_UNUSABLE collects
# why: "{"SUBJECT", R"qualm(reason)qualm"}," for each subject that was found and is not usable.
function(qualm_library_modules subject)
  cmake_parse_arguments(ARG "" "ELSE;FOR"
    "IF;MODULES;SOURCES;INCLUDES;LINK;OPTIONS;OPTIONS_OF" ${ARGN})
  if(NOT ARG_FOR)
    message(FATAL_ERROR "qualm_library_modules(${subject}): expected FOR \"which versions\"")
  endif()
  if(NOT QUALM_LIBRARIES)
    set(ARG_IF FALSE)
    set(ARG_ELSE "QUALM_LIBRARIES is off")
  endif()
  if(NOT (${ARG_IF}))
    message(STATUS "${ARG_ELSE}: the subject ${subject} will be absent")
    qualm_remove_modules(${ARG_MODULES})
    return()
  endif()
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ REGEX "^[^/]")
  # Imported, so that what it includes is a system header here and in a try.
  set(library qualm_library_of_${subject})
  add_library(${library} INTERFACE IMPORTED)
  target_include_directories(${library} INTERFACE ${ARG_INCLUDES})
  target_link_libraries(${library} INTERFACE ${ARG_LINK})
  list(POP_FRONT ARG_OPTIONS_OF special)
  foreach(module ${ARG_MODULES})
    set(options_${module} ${ARG_OPTIONS})
    if(module STREQUAL special)
      list(APPEND options_${module} ${ARG_OPTIONS_OF})
    endif()
    qualm_try_module(error ${module} ${library} "${ARG_SOURCES}" "${options_${module}}" "${ARG_LINK}")
    if(error)
      set(reason "built for ${ARG_FOR}, the one found does not compile: ${error}")
      message(STATUS "${reason}: the subject ${subject} will be absent")
      set_property(GLOBAL APPEND_STRING PROPERTY QUALM_UNUSABLE
        "{\"${subject}\", R\"qualm(${reason})qualm\"},")
      qualm_remove_modules(${ARG_MODULES})
      return()
    endif()
  endforeach()
  foreach(module ${ARG_MODULES})
    qualm_plugin_module(${module} SOURCES ${ARG_SOURCES})
    target_link_libraries(${module} PRIVATE ${library})
    target_compile_options(${module} PRIVATE ${options_${module}})
    add_dependencies(qualm_libraries ${module})
  endforeach()
endfunction()

# What an earlier configuration built would still be loaded.
function(qualm_remove_modules)
  foreach(module ${ARGN})
    file(REMOVE ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/${module}.so)
  endforeach()
endfunction()

# Sets `result` to the first error of compiling and linking the sources, "" if there is none. The
# answer is kept until a source, a header, the library or a flag changes. A header of the library that
# changes configures again, as do the sources of a module that failed; of one that fits, an error in
# our own files is for the build to tell.
function(qualm_try_module result module library sources options link)
  get_target_property(flags qualm_flags INTERFACE_COMPILE_OPTIONS)
  list(FILTER flags EXCLUDE REGEX "^\\$<")  # of these only -Werror decides
  if(QUALM_WERROR)
    list(APPEND flags -Werror)
  endif()
  list(APPEND flags ${options})
  get_target_property(includes ${library} INTERFACE_INCLUDE_DIRECTORIES)
  set(asked ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${flags}
            ${includes})
  foreach(file ${link})
    if(EXISTS "${file}")
      file(TIMESTAMP "${file}" time)
      file(SIZE "${file}" size)
      list(APPEND asked ${time} ${size})
    endif()
    list(APPEND asked ${file})
  endforeach()

  qualm_digest(digest "${asked}" "${sources};${QUALM_HEADERS_OF_${module}}")
  if(NOT digest STREQUAL "${QUALM_TRIED_${module}}")
    set(main ${CMAKE_CURRENT_BINARY_DIR}/tried/main.cc)
    file(CONFIGURE OUTPUT ${main} CONTENT "#include \"adapters/qualm_plugin.h\"
int main() { return qualm_plugin_entry() == nullptr; }\n")
    list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CMAKE_CXX_COMPILER_LAUNCHER)
    set(language "$ENV{LC_ALL}")
    set(ENV{LC_ALL} C)
    # -H: the compiler tells which headers it reads.
    try_compile(compiles SOURCES ${sources} ${main} NO_CACHE
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR}"  # which may have spaces
      COMPILE_DEFINITIONS ${flags} -H
      LINK_LIBRARIES ${library}
      CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
      OUTPUT_VARIABLE output)
    set(ENV{LC_ALL} "${language}")
    string(REGEX MATCHALL "\n\\.+ [^\n]+" lines "\n${output}")
    set(headers "")
    foreach(line ${lines})
      # ccache makes names relative to the folder of the try.
      string(REGEX REPLACE "^\n\\.+ " "" file "${line}")
      cmake_path(ABSOLUTE_PATH file NORMALIZE
                 BASE_DIRECTORY ${CMAKE_BINARY_DIR}/CMakeFiles/CMakeScratch/TryCompile)
      list(APPEND headers ${file})
    endforeach()
    list(REMOVE_DUPLICATES headers)
    set(error "")
    if(NOT compiles)
      file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/tried/${module}.txt "${output}")
      # GNU ld says no "error:" where a symbol is missing.
      string(REGEX MATCH "[^\n]*(error:|undefined reference to|cannot find)[^\n]*" error "${output}")
      string(REPLACE "${PROJECT_SOURCE_DIR}/" "" error "${error}")
      string(REGEX REPLACE "^(\\.\\./)+" "" error "${error}")
      if(NOT error)
        set(error "see ${CMAKE_CURRENT_BINARY_DIR}/tried/${module}.txt")
      endif()
    endif()
    qualm_digest(digest "${asked}" "${sources};${headers}")
    set(QUALM_TRIED_${module} "${digest}" CACHE INTERNAL "")
    set(QUALM_HEADERS_OF_${module} "${headers}" CACHE INTERNAL "")
    set(QUALM_ERROR_OF_${module} "${error}" CACHE INTERNAL "")
  endif()
  set(watched ${QUALM_HEADERS_OF_${module}} ${sources})
  if(NOT QUALM_ERROR_OF_${module})
    list(FILTER watched EXCLUDE REGEX "^${PROJECT_SOURCE_DIR}/")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${watched})
  set(${result} "${QUALM_ERROR_OF_${module}}" PARENT_SCOPE)
endfunction()

function(qualm_digest result asked files)
  foreach(file ${files})
    if(EXISTS ${file})
      file(SHA256 ${file} content)
      list(APPEND asked ${content})
    endif()
  endforeach()
  string(SHA256 digest "${asked}")
  set(${result} ${digest} PARENT_SCOPE)
endfunction()
