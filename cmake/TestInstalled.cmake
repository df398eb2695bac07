# SPDX-License-Identifier: Apache-2.0
# cmake -P: does the installed tree do, away from where it was built, what it is installed for?
# -D part=tree installs and moves it; -D part=NAME configures, builds and runs examples/NAME with it.
cmake_policy(VERSION 3.25)
set(prefix ${work}/moved)

# run(OUT STATUS command...): stdout and stderr together, and the exit status.
function(run out status)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE result)
  set(${out} "${text}" PARENT_SCOPE)
  set(${status} ${result} PARENT_SCOPE)
endfunction()

function(must_succeed)
  run(text result ${ARGN})
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit status ${result}: ${command}\n${text}")
  endif()
endfunction()

# must_fail(STATUS PATTERN... COMMAND command...): fails as it should, and says why.
function(must_fail status)
  cmake_parse_arguments(ARG "" "" "COMMAND" ${ARGN})
  run(text result ${ARG_COMMAND})
  if(NOT result EQUAL status)
    message(FATAL_ERROR "exit status ${result}, expected ${status}: ${ARG_COMMAND}\n${text}")
  endif()
  foreach(pattern ${ARG_UNPARSED_ARGUMENTS})
    if(NOT text MATCHES "${pattern}")
      message(FATAL_ERROR "'${pattern}' is not in the output of ${ARG_COMMAND}:\n${text}")
    endif()
  endforeach()
endfunction()

# build_example(NAME FOLDER options...): configures and builds it against the moved tree.
function(build_example name folder)
  file(REMOVE_RECURSE ${folder})
  # Without optimisation: it is the installed archives that are tested.
  must_succeed(${CMAKE_COMMAND} -S ${prefix}/share/qualm/examples/${name} -B ${folder}
    -G ${generator} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${cxx}
    -DCMAKE_C_COMPILER=${cc} -DCMAKE_CXX_COMPILER_LAUNCHER=${launcher}
    -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF ${ARGN})
  must_succeed(${CMAKE_COMMAND} --build ${folder} -j 1)
endfunction()

function(test_example folder)
  must_succeed(${CMAKE_CTEST_COMMAND} --test-dir ${folder} --output-on-failure --no-tests=error)
endfunction()

if(part STREQUAL "tree")
  file(REMOVE_RECURSE ${work})
  must_succeed(${CMAKE_COMMAND} --install ${build} --prefix ${work}/installed)
  file(RENAME ${work}/installed ${prefix})
  # Nothing that is read as text leads back.
  file(GLOB_RECURSE texts ${prefix}/lib*/*.cmake ${prefix}/include/*.h)
  foreach(file ${texts})
    file(STRINGS ${file} lines REGEX "${source}|${build}|${work}")
    if(lines)
      message(FATAL_ERROR "${file} holds a path of the build: ${lines}")
    endif()
  endforeach()
  # Every header has what it includes.
  set(all "")
  file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/qualm/*.h)
  foreach(header ${headers})
    string(APPEND all "#include <${header}>\n")
  endforeach()
  file(WRITE ${work}/all.cc "${all}")
  must_succeed(${cxx} -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I ${prefix}/include
    ${work}/all.cc)
  # The installed corpus, not that of the source tree.
  set(command ${prefix}/${bindir}/qualm)
  set(planted ${prefix}/share/qualm/corpus/forum/planted.case.json)
  file(WRITE ${planted} "{")
  must_fail(2 "planted.case.json" COMMAND
    ${command} audit --subject native --budget 1 --out ${work}/report)
  file(REMOVE ${planted})
  must_succeed(${command} audit --subject native --budget 1 --out ${work}/report)
  # The modules that were built are found where they are now.
  file(GLOB modules ${prefix}/lib*/qualm/*.so ${prefix}/lib*/*/qualm/*.so)
  foreach(module ${modules})
    get_filename_component(name ${module} NAME)
    run(text result ${command} check --subject plugin:${name} --op linear --cases 10)
    if(result EQUAL 3)
      message(FATAL_ERROR "${text}")
    endif()
  endforeach()
elseif(part STREQUAL "gtest")
  build_example(gtest ${work}/gtest)
  test_example(${work}/gtest)
  build_example(gtest ${work}/gtest-buggy -DBUGGY=ON)
  must_fail(1 "FAILED  . Gemm.matches_exact" "FAILED  . Gemm.sweep_is_linear" "pair-saturation"
    "minimized in" "\"qualm_case\": 1" COMMAND ${work}/gtest-buggy/gemm_test)
elseif(part STREQUAL "fuzz")
  build_example(fuzz ${work}/fuzz)
  test_example(${work}/fuzz)
  build_example(fuzz ${work}/fuzz-buggy -DBUGGY=ON)
  must_fail(8 "finding linear[^ ]*-gemm-pair-saturation" COMMAND
    ${CMAKE_CTEST_COMMAND} --test-dir ${work}/fuzz-buggy --output-on-failure)
elseif(part STREQUAL "pipe")  # nothing to build
  run(text result python3 -c "import numpy")
  if(NOT result EQUAL 0)
    message("installed test skipped: no python3 with NumPy (python3-numpy)")
    return()
  endif()
  must_succeed(${prefix}/${bindir}/qualm check --op linear --cases 100
    --subject "pipe:python3 '${prefix}/share/qualm/examples/pipe/numpy_linear.py'")
else()
  build_example(${part} ${work}/${part})
  test_example(${work}/${part})
endif()
