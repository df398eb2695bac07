// SPDX-License-Identifier: Apache-2.0
#include "report/escape.h"

#include "report/document.h"

namespace qualm::report {

std::string Escape(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char ch : text) {
    switch (ch) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      case '\n':
      case '\t': escaped += ch; break;
      default:
        if (static_cast<unsigned char>(ch) < 0x20 || ch == 0x7F) {
          escaped += "\xEF\xBF\xBD";
        } else {
          escaped += ch;
        }
    }
  }
  return escaped;
}

std::string Slug(const std::string& text) {
  std::string slug;
  for (const char ch : text) {
    const bool plain = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9');
    if (plain) {
      slug += ch;
    } else if (ch >= 'A' && ch <= 'Z') {
      slug += static_cast<char>(ch - 'A' + 'a');
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug.empty() ? "x" : slug;
}

}  // namespace qualm::report
