// SPDX-License-Identifier: Apache-2.0
// Blocks as Markdown, for pages that are committed and read on the web: pictures become files.
#ifndef QUALM_REPORT_MARKDOWN_H_
#define QUALM_REPORT_MARKDOWN_H_

#include <string>
#include <utility>
#include <vector>

#include "report/document.h"

namespace qualm::report {

class MarkdownPage {
 public:
  // `folder`: of the pictures, beside the page.
  explicit MarkdownPage(std::string folder) : folder_(std::move(folder)) {}

  void Add(const Blocks& blocks);
  const std::string& text() const { return text_; }
  // Name of the file, and what is in it.
  const std::vector<std::pair<std::string, std::string>>& pictures() const { return pictures_; }

 private:
  std::string folder_, text_;
  std::vector<std::pair<std::string, std::string>> pictures_;
};

}  // namespace qualm::report

#endif  // QUALM_REPORT_MARKDOWN_H_
