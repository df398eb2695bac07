#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stands in front of a compiler's command line and hands it to afl-clang-fast++, which calls that
# compiler. Debian 12's AFL++ 4.04c brings its instrumentation as plugins for clang 14, which cannot
# compile our C++20, and which no other clang loads. Hence LLVM-NATIVE: clang's own trace-pc-guard.
compiler=$1
shift
AFL_CC=$compiler AFL_CXX=$compiler AFL_LLVM_INSTRUMENT=LLVM-NATIVE AFL_QUIET=1 exec afl-clang-fast++ "$@"
