// SPDX-License-Identifier: Apache-2.0
#include "report/html.h"

#include <fmt/format.h>

#include "report/escape.h"
#include "report/words.h"

namespace qualm::report {
namespace {

std::string_view ClassOf(Tone tone) {
  switch (tone) {
    case Tone::kNone: return "";
    case Tone::kGood: return "good";
    case Tone::kDeclared: return "declared";
    case Tone::kBad: return "bad";
    case Tone::kMuted: return "muted";
  }
  return "";
}

// An attribute, or nothing where the value is "".
std::string With(std::string_view name, std::string_view value) {
  return value.empty() ? "" : fmt::format(" {}=\"{}\"", name, Escape(value));
}

std::string Inline(const Text& text) {
  std::string html;
  for (const Span& span : text.spans()) {
    const std::string words = Escape(WithoutFolders(span.text));
    switch (span.kind) {
      case Span::Kind::kPlain: html += words; break;
      case Span::Kind::kStrong: html += "<strong>" + words + "</strong>"; break;
      case Span::Kind::kCode: html += "<code>" + words + "</code>"; break;
      case Span::Kind::kLink:
        html += fmt::format("<a{}>{}</a>", With("href", span.href), words);
        break;
    }
  }
  return html;
}

std::string Body(const Blocks& blocks);

std::string CellHtml(const Cell& cell, bool head) {
  std::string style;
  if (cell.shade >= 0) style = fmt::format("--shade:{:.0f}%", 100 * cell.shade);
  return fmt::format("<{0}{1}{2}{3}{4}>{5}</{6}>", head ? "th scope=\"row\"" : "td",
                     With("class", ClassOf(cell.tone)), With("title", WithoutFolders(cell.title)),
                     With("style", style), cell.shade >= 0 ? " data-shade" : "", Inline(cell.text),
                     head ? "th" : "td");
}

struct Renderer {
  std::string operator()(const Heading& heading) const {
    return fmt::format("<h{0}{1}>{2}</h{0}>\n", heading.level, With("id", heading.id),
                       Inline(heading.text));
  }
  std::string operator()(const Paragraph& paragraph) const {
    std::string names(ClassOf(paragraph.tone));
    if (paragraph.verdict) names += " verdict";
    return fmt::format("<p{}>{}</p>\n", With("class", names), Inline(paragraph.text));
  }
  std::string operator()(const Verbatim& verbatim) const {
    const std::string button =
        verbatim.copy.empty() ? ""
                              : fmt::format("<button type=\"button\" class=\"copy\">{}</button>",
                                            Escape(verbatim.copy));
    return fmt::format("<div class=\"verbatim\">{}<pre tabindex=\"0\">{}</pre></div>\n", button,
                       Escape(verbatim.text));
  }
  std::string operator()(const Bullets& bullets) const {
    std::string html = "<ul>\n";
    for (const Text& item : bullets.items) html += "<li>" + Inline(item) + "</li>\n";
    return html + "</ul>\n";
  }
  std::string operator()(const Table& table) const {
    static constexpr std::string_view kForms[] = {"", "numbers", "matrix"};
    // The visible caption stays where it is when the table is moved sideways.
    std::string html = table.caption.empty()
                           ? ""
                           : fmt::format("<p class=\"caption\" aria-hidden=\"true\">{}</p>\n",
                                         Escape(table.caption));
    html += fmt::format("<div class=\"scroll\" role=\"region\" tabindex=\"0\"{}><table{}>\n",
                        With("aria-label", table.caption),
                        With("class", kForms[static_cast<int>(table.form)]));
    if (!table.caption.empty()) html += "<caption>" + Escape(table.caption) + "</caption>\n";
    if (!table.head.empty()) {
      html += "<thead><tr>";
      for (const Text& text : table.head)
        html += "<th scope=\"col\"><span>" + Inline(text) + "</span></th>";
      html += "</tr></thead>\n";
    }
    html += "<tbody>\n";
    for (const auto& row : table.rows) {
      html += "<tr>";
      for (size_t i = 0; i < row.size(); ++i) html += CellHtml(row[i], i == 0);
      html += "</tr>\n";
    }
    return html + "</tbody></table></div>\n";
  }
  std::string operator()(const Picture& picture) const {
    if (picture.svg.empty()) return "";
    return fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n", picture.svg.Inline(),
                       Escape(WithoutFolders(picture.caption)));
  }
  std::string operator()(const Fold& fold) const {
    return fmt::format("<details{}><summary>{}</summary>\n{}</details>\n", With("id", fold.id),
                       Inline(fold.summary), Body(fold.inside));
  }
  std::string operator()(const Section& section) const {
    return fmt::format("<section class=\"item {}\"{}>\n{}</section>\n", ClassOf(section.tone),
                       With("id", section.id), Body(section.inside));
  }
};

std::string Body(const Blocks& blocks) {
  std::string html;
  for (const Block& block : blocks) html += std::visit(Renderer(), block.it);
  return html;
}

std::string Contents(const Blocks& blocks) {
  std::string html;
  for (const Block& block : blocks) {
    const auto* heading = std::get_if<Heading>(&block.it);
    if (heading == nullptr || heading->level != 2 || heading->id.empty()) continue;
    html += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", Escape(heading->id),
                        Inline(heading->text));
  }
  return html;
}

}  // namespace

std::string Html(const Blocks& first, const Blocks& rest) {
  return fmt::format(
      "{}<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">"
      "<style>{}{}</style></head>\n<body><a class=\"skip\" href=\"#contents\">Skip to the "
      "contents</a>\n<main>\n<header>\n{}</header>\n"
      "<nav id=\"contents\" aria-label=\"Contents\"><h2>Contents</h2><ol>\n{}</ol>\n"
      "<p><label for=\"filter\">Show only faults with these words:</label> "
      "<input id=\"filter\" type=\"search\" placeholder=\"onednn linear\"> "
      "<span id=\"matches\" role=\"status\"></span></p></nav>\n{}</main>\n<script>{}</script>"
      "</body></html>\n",
      kHtmlHead, kStyle, SvgStyle(), Body(first), Contents(rest), Body(rest), kScript);
}

}  // namespace qualm::report
