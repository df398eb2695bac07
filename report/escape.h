// SPDX-License-Identifier: Apache-2.0
// The one place where text becomes safe inside HTML and SVG, elements and quoted attributes alike.
#ifndef QUALM_REPORT_ESCAPE_H_
#define QUALM_REPORT_ESCAPE_H_

#include <string>
#include <string_view>

namespace qualm::report {

// Control characters that XML does not know become a replacement character.
std::string Escape(std::string_view text);

}  // namespace qualm::report

#endif  // QUALM_REPORT_ESCAPE_H_
