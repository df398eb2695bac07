// SPDX-License-Identifier: Apache-2.0
#include "core/io/shell_word.h"

#include <algorithm>

namespace qualm {
namespace {

bool IsControl(char ch) { return static_cast<unsigned char>(ch) < 0x20 || ch == 0x7F; }

std::string Octal(char ch) {
  const auto byte = static_cast<unsigned char>(ch);
  std::string text = "\\";
  for (const int shift : {6, 3, 0}) text += static_cast<char>('0' + ((byte >> shift) & 7));
  return text;
}

}  // namespace

std::string ShellWord(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789@%+=:,./-_") == std::string::npos;
  if (plain) return word;
  const bool control = std::any_of(word.begin(), word.end(), IsControl);
  std::string quoted = control ? "$'" : "'";
  for (const char ch : word) {
    if (IsControl(ch)) {
      quoted += Octal(ch);
    } else if (ch == '\'') {
      quoted += control ? "\\'" : "'\\''";
    } else {
      quoted += control && ch == '\\' ? "\\\\" : std::string(1, ch);
    }
  }
  return quoted + "'";
}

}  // namespace qualm
