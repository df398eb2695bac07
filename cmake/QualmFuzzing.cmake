# SPDX-License-Identifier: Apache-2.0
# The fuzzing engine: the one that the environment names (LIB_FUZZING_ENGINE, as OSS-Fuzz does; it
# brings its own flags), else libFuzzer where the compiler has it, else none. Part of the build and
# of the installed package.
include(CheckCXXSourceCompiles)
set(QUALM_FUZZING_ENGINE "$ENV{LIB_FUZZING_ENGINE}" CACHE STRING
    "What fuzz targets link instead of -fsanitize=fuzzer")
if(NOT QUALM_FUZZING_ENGINE)
  set(CMAKE_REQUIRED_FLAGS "-fsanitize=fuzzer")
  if(QUALM_SANITIZE)
    string(APPEND CMAKE_REQUIRED_FLAGS ",${QUALM_SANITIZE}")
  endif()
  check_cxx_source_compiles("
    #include <cstddef>
    #include <cstdint>
    extern \"C\" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }"
    QUALM_HAVE_LIBFUZZER)
  unset(CMAKE_REQUIRED_FLAGS)
endif()

# qualm_link_fuzzing_engine(TARGET): links an executable of QUALM_FUZZ_TARGET with the engine, or
# where there is none with a driver that replays inputs and walks from them at random
# (fuzz/standalone_main.cc says how it is called).
function(qualm_link_fuzzing_engine target)
  if(QUALM_FUZZING_ENGINE)
    target_link_libraries(${target} PRIVATE ${QUALM_FUZZING_ENGINE})
  elseif(QUALM_HAVE_LIBFUZZER)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_link_libraries(${target} PRIVATE qualm::fuzz_driver)
  endif()
endfunction()
