// SPDX-License-Identifier: Apache-2.0
#include "report/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace qualm::report {
namespace {

// Plain text that stays plain.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char ch : text) {
    if (std::string_view("\\`*_[]<>|").find(ch) != std::string_view::npos) escaped += '\\';
    escaped += ch == '\n' ? ' ' : ch;
  }
  return escaped;
}

std::string Inline(const Text& text) {
  std::string markdown;
  for (const Span& span : text.spans()) {
    switch (span.kind) {
      case Span::Kind::kPlain: markdown += Escaped(span.text); break;
      case Span::Kind::kStrong: markdown += "**" + Escaped(span.text) + "**"; break;
      case Span::Kind::kCode: markdown += "`" + span.text + "`"; break;
      case Span::Kind::kLink:
        markdown += fmt::format("[{}]({})", Escaped(span.text), span.href);
        break;
    }
  }
  return markdown;
}

}  // namespace

void MarkdownPage::Add(const Blocks& blocks) {
  struct Renderer {
    MarkdownPage& page;
    void operator()(const Heading& heading) const {
      page.text_ += fmt::format("{} {}\n\n",
                                std::string(static_cast<size_t>(std::min(heading.level, 3)), '#'),
                                Inline(heading.text));
    }
    void operator()(const Paragraph& paragraph) const {
      page.text_ += Inline(paragraph.text) + "\n\n";
    }
    void operator()(const Verbatim& verbatim) const {
      page.text_ += fmt::format("```\n{}\n```\n\n", verbatim.text);
    }
    void operator()(const Bullets& bullets) const {
      for (const Text& item : bullets.items) page.text_ += "* " + Inline(item) + "\n";
      page.text_ += "\n";
    }
    void operator()(const Table& table) const {
      if (!table.caption.empty()) page.text_ += Escaped(table.caption) + ":\n\n";
      std::string rule = "|";
      page.text_ += "|";
      for (const Text& head : table.head) {
        page.text_ += fmt::format(" {} |", Inline(head));
        rule += table.form == Table::Form::kNumbers ? "---:|" : "---|";
      }
      page.text_ += "\n" + rule + "\n";
      for (const auto& row : table.rows) {
        page.text_ += "|";
        for (const Cell& cell : row) page.text_ += fmt::format(" {} |", Inline(cell.text));
        page.text_ += "\n";
      }
      page.text_ += "\n";
    }
    void operator()(const Picture& picture) const {
      const std::string name = picture.name + ".svg";
      page.text_ += fmt::format("![{}]({}/{})\n\n{}\n\n", Escaped(picture.svg.says()), page.folder_,
                                name, Escaped(picture.caption));
      page.pictures_.emplace_back(name, picture.svg.File());
    }
    void operator()(const Fold& fold) const {
      page.text_ += fmt::format("**{}**\n\n", Inline(fold.summary));
      page.Add(fold.inside);
    }
    void operator()(const Section& section) const { page.Add(section.inside); }
  };
  for (const Block& block : blocks) std::visit(Renderer{*this}, block.it);
}

}  // namespace qualm::report
