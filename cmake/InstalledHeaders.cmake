# SPDX-License-Identifier: Apache-2.0
# Run while installing, with `root` and `to` set: writes the public headers and all that they include
# to TO/qualm/, with includes of each other spelled "qualm/FOLDER/NAME.h".
cmake_policy(VERSION 3.25)  # an install script has none of its own
set(public
  adapters/function_subject.h adapters/host/in_process.h adapters/qualm_plugin.h
  adapters/qualm_plugin.hpp adapters/registry.h
  core/case.h core/contract.h core/finding.h core/forwarding_subject.h core/io/case_json.h
  core/io/golden.h core/own_subject.h core/rng.h
  core/status.h core/subject.h core/tensor.h core/types.h core/verdict.h
  fuzz/case_codec.h fuzz/check_all.h fuzz/feedback.h fuzz/mutator.h fuzz/target.h
  oracles/exact/exact.h oracles/headroom/headroom.h oracles/conventions/convention.h oracles/trace.h
  properties/adapt.h properties/coverage.h properties/engine.h properties/gen/gen.h
  properties/gtest.h properties/property.h properties/suite.h properties/sweep.h
  triage/triage.h triage/triaged.h)

# The public headers of kernels/ are those on top of the folder.
file(GLOB kernels RELATIVE ${root} ${root}/kernels/*.h)
list(APPEND public ${kernels})

file(REMOVE_RECURSE ${to})
set(done)
while(public)
  list(POP_FRONT public header)
  if(header IN_LIST done)
    continue()
  endif()
  list(APPEND done ${header})
  file(STRINGS ${root}/${header} includes REGEX "^#include \"[a-z_/]+\\.h\"")
  foreach(include ${includes})
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included ${include})
    if(EXISTS ${root}/${included})
      list(APPEND public ${included})
    endif()
  endforeach()
  # Not file(READ) and string(REPLACE): lists would swallow semicolons and brackets of C++.
  get_filename_component(folder ${to}/qualm/${header} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(
    COMMAND sed -E "s!^#include \"((adapters|core|fuzz|kernels|oracles|properties|triage)/)!#include \"qualm/\\1!" ${root}/${header}
    OUTPUT_FILE ${to}/qualm/${header} COMMAND_ERROR_IS_FATAL ANY)
endwhile()
