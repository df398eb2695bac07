// SPDX-License-Identifier: Apache-2.0
// Blocks as one HTML page that needs nothing else: style, script and pictures are inside.
#ifndef QUALM_REPORT_HTML_H_
#define QUALM_REPORT_HTML_H_

#include <string>
#include <string_view>

#include "report/document.h"

namespace qualm::report {

// The first bytes of every page of ours: a file that begins differently is somebody else's.
inline constexpr std::string_view kHtmlHead =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>qualm report</title>";

// Headings of level 2 become the table of contents, which follows the blocks of `first`.
std::string Html(const Blocks& first, const Blocks& rest);

// style.cc, script.cc
extern const char* const kStyle;
extern const char* const kScript;

}  // namespace qualm::report

#endif  // QUALM_REPORT_HTML_H_
