// SPDX-License-Identifier: Apache-2.0
#ifndef QUALM_CORE_IO_SHELL_WORD_H_
#define QUALM_CORE_IO_SHELL_WORD_H_

#include <string>

namespace qualm {

// A word of a command line, quoted for a shell where it must be; never more than one line. Control
// characters are written in the $'...' quotes of bash, zsh and POSIX 2024.
std::string ShellWord(const std::string& word);

}  // namespace qualm

#endif  // QUALM_CORE_IO_SHELL_WORD_H_
