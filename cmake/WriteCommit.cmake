# SPDX-License-Identifier: Apache-2.0
# cmake -D source=DIR -D header=FILE -P WriteCommit.cmake: the commit that is built, "" outside git.
# The file keeps its time where nothing changed, so that nothing is compiled again.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${source} rev-parse --short=10 HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(CONFIGURE OUTPUT ${header} CONTENT "#define QUALM_COMMIT \"@commit@\"\n" @ONLY)
