// SPDX-License-Identifier: Apache-2.0
// A page as blocks of plain text. Builders say what the page says; html.cc and markdown.cc say how
// it looks. Text is never markup: only those two files escape it.
#ifndef QUALM_REPORT_DOCUMENT_H_
#define QUALM_REPORT_DOCUMENT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "report/svg.h"

namespace qualm::report {

struct Span {
  enum class Kind : uint8_t { kPlain, kStrong, kCode, kLink };
  std::string text;
  Kind kind = Kind::kPlain;
  std::string href;  // of a link: "#anchor" or an address
};

// A line of text with words that stand out.
class Text {
 public:
  Text() = default;
  Text(std::string plain) {
    if (!plain.empty()) spans_.push_back({std::move(plain), Span::Kind::kPlain, ""});
  }
  Text(const char* plain) : Text(std::string(plain)) {}
  explicit Text(Span span) : spans_{std::move(span)} {}

  Text& operator+=(const Text& more) {
    spans_.insert(spans_.end(), more.spans_.begin(), more.spans_.end());
    return *this;
  }
  friend Text operator+(Text left, const Text& right) { return left += right; }
  const std::vector<Span>& spans() const { return spans_; }
  bool empty() const { return spans_.empty(); }

 private:
  std::vector<Span> spans_;
};
inline Text Strong(std::string text) { return Text({std::move(text), Span::Kind::kStrong, ""}); }
inline Text Code(std::string text) { return Text({std::move(text), Span::Kind::kCode, ""}); }
inline Text Link(std::string text, std::string href) {
  return Text({std::move(text), Span::Kind::kLink, std::move(href)});
}

// How good or bad something is. Colour shows it, but never colour alone.
enum class Tone : uint8_t { kNone, kGood, kDeclared, kBad, kMuted };

struct Block;
using Blocks = std::vector<Block>;

struct Heading {
  int level = 2;
  Text text;
  std::string id;  // the anchor; "": none
};
struct Paragraph {
  Text text;
  Tone tone = Tone::kNone;
  bool verdict = false;  // the sentence that the page begins with
};
// Verbatim text, with a button to copy it if people run or paste it.
struct Verbatim {
  std::string text;
  std::string copy;  // words on the button, "": none
};
struct Bullets {
  std::vector<Text> items;
};
struct Cell {
  Cell(Text t, Tone how = Tone::kNone) : text(std::move(t)), tone(how) {}
  Cell(std::string plain) : text(std::move(plain)) {}
  Cell(const char* plain) : text(plain) {}
  Text text;
  Tone tone = Tone::kNone;
  std::string title = {};  // said where one points at the cell
  double shade = -1;       // 0..1: how dark, of a shaded matrix
};
struct Table {
  enum class Form : uint8_t { kPlain, kNumbers, kMatrix };  // a matrix has its head upright
  std::string caption;
  std::vector<Text> head;
  std::vector<std::vector<Cell>> rows;
  Form form = Form::kPlain;
};
struct Picture {
  Svg svg;
  std::string caption;
  std::string name;  // of its file, where pages keep pictures in files: "000-sweep-0"
};
// Shut until somebody wants it.
struct Fold {
  Text summary;
  std::string id;
  Blocks inside;
};
// A part of the page that the filter shows or hides as a whole.
struct Section {
  std::string id;
  Tone tone = Tone::kNone;
  Blocks inside;
};

struct Block {
  std::variant<Heading, Paragraph, Verbatim, Bullets, Table, Picture, Fold, Section> it;
  template <class T>
  Block(T block) : it(std::move(block)) {}
};

inline void Append(Blocks& blocks, Blocks more) {
  blocks.insert(blocks.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

// An anchor made of any text: letters, digits and single dashes.
std::string Slug(const std::string& text);

}  // namespace qualm::report

#endif  // QUALM_REPORT_DOCUMENT_H_
