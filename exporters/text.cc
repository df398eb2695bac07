// SPDX-License-Identifier: Apache-2.0
#include "exporters/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/float_text.h"
#include "core/scaled_cast.h"
#include "core/status.h"
#include "core/verdict.h"

namespace qualm::exporters {
namespace {

constexpr size_t kColumns = 100;

std::string Element(Language language, const Tensor& values, int64_t i) {
  return values.dtype() == DType::kF32 ? Literal(language, values.FloatAt(i))
                                       : std::to_string(values.IntAt(i));
}

// "  1, 2, 3\n": lines with two spaces before each.
std::string Wrapped(Language language, const Tensor& values, std::string_view comma) {
  std::string text, line = " ";
  for (int64_t i = 0; i < values.size(); ++i) {
    const std::string word =
        fmt::format("{}{}", Element(language, values, i), i + 1 < values.size() ? comma : "");
    if (line.size() + 1 + word.size() > kColumns) text += std::exchange(line, " ") + "\n";
    line += " " + word;
  }
  return text + line + "\n";
}

// Runs of backticks inside need a longer one around.
std::string Ticks(std::string_view text, size_t least) {
  size_t longest = 0, run = 0;
  for (const char ch : text) longest = std::max(longest, run = ch == '`' ? run + 1 : 0);
  return std::string(std::max(least, longest + 1), '`');
}

// Writes the constants of one case.
class Writer {
 public:
  Writer(Language language, std::string_view slack) : language_(language), slack_(slack) {}

  std::string text;

  void Size(std::string_view name, int64_t value) { text += Number(language_, name, value); }
  void Put(std::string_view name, const Tensor& values) {
    text += List(language_, name, values, slack_);
  }
  template <class T>
  void Put(std::string_view name, const std::vector<T>& values) {
    Put(name, Tensor::Of<T>({static_cast<int64_t>(values.size())}, values));
  }
  void QParamsOf(const std::string& name, const QParams& q, bool list) {
    if (list) {
      Put(name + "_scale", q.scale);
      Put(name + "_zp", q.zero_point);
    } else {
      text += Number(language_, name + "_scale", q.scale_at(0));
      Size(name + "_zp", q.zero_point_at(0));
    }
  }

 private:
  const Language language_;
  const std::string_view slack_;
};

void PutSizes(const Case& c, Writer& writer) {
  writer.Size("M", c.M);
  writer.Size("N", c.N);
  if (c.K != 0 || RowOf(c.op).layout == Layout::kProducts) writer.Size("K", c.K);
  if (RowOf(c.op).layout == Layout::kColumns) writer.Size("NA", ShapeOfX(c)[1]);
  if (RowOf(c.op).layout == Layout::kBatches) writer.Size("batches", ShapeOfX(c)[0]);
  if (!HasWindow(c.op)) return;
  const Window& v = c.window;
  const std::pair<std::string_view, int64_t> sizes[] = {{"batch", v.batch},
                                                        {"H", v.in_h},
                                                        {"W", v.in_w},
                                                        {"C", v.in_c},
                                                        {"R", v.kernel_h},
                                                        {"S", v.kernel_w},
                                                        {"OH", v.out_h()},
                                                        {"OW", v.out_w()},
                                                        {"stride_h", v.stride_h},
                                                        {"stride_w", v.stride_w},
                                                        {"pad_top", v.pad_top},
                                                        {"pad_bottom", v.pad_bottom},
                                                        {"pad_left", v.pad_left},
                                                        {"pad_right", v.pad_right},
                                                        {"dilation_h", v.dilation_h},
                                                        {"dilation_w", v.dilation_w},
                                                        {"groups", v.groups}};
  for (const auto& [name, value] : sizes) writer.Size(name, value);
}

void PutQParams(const Case& c, Writer& writer) {
  const OpRow& row = RowOf(c.op);
  const bool multiplier = row.multiplier && UsesMultiplier(c);
  if (HasXQParams(c) && !multiplier)
    writer.QParamsOf(HasTwoInputs(c.op) ? "a" : "x", c.x_q,
                     row.per_channel == PerChannel::kX || c.x_block != 0);
  if (HasTwoInputs(c.op)) writer.QParamsOf("b", c.w_q, false);
  if (HasWeights(c.op) || (row.multiplier && !multiplier)) writer.QParamsOf("w", c.w_q, true);
  if (multiplier) writer.Put("multiplier", c.multiplier);
  if (IsScaledCast(c)) {
    writer.Put("x_scale", c.x_q.scale);
    writer.Put("out_scale", c.out_q.scale);
  }
  if (row.out_q != OutQParams::kNone)
    writer.QParamsOf("out", c.out_q, row.per_channel == PerChannel::kOut);
}

}  // namespace

std::string Fill(std::string_view text, std::initializer_list<Slot> slots) {
  std::string filled;
  while (!text.empty()) {
    const size_t open = std::min(text.find('$'), text.size());
    filled += text.substr(0, open);
    text.remove_prefix(open);
    if (text.empty()) break;
    const size_t close = text.find('$', 1);
    const auto* const slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& each) {
      return each.first == text.substr(1, close - 1);
    });
    QUALM_CHECK(slot != slots.end());
    filled += slot->second;
    text.remove_prefix(close + 1);
  }
  return filled;
}

std::string Plain(std::string_view text) {
  std::string plain;
  for (const char ch : text) plain += ch >= 0x20 && ch < 0x7F ? ch : '?';
  // "\" joins a comment with the next line, and so does "??/" in old C.
  while (plain.ends_with('\\') || plain.ends_with("?\?/")) plain.back() = '?';
  return plain;
}

std::string Comment(std::string_view mark, std::string_view text) {
  std::string comment;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = Plain(text.substr(begin, end - begin));
    comment += std::string(mark) + (line.empty() ? "" : " ") + line + "\n";
    begin = end + 1;
  }
  return comment;
}

std::string Code(std::string_view text) {
  const std::string plain = Plain(text), ticks = Ticks(plain, 1);
  const std::string gap = ticks.size() > 1 ? " " : "";
  return ticks + gap + plain + gap + ticks;
}

std::string Fence(std::string_view language, std::string_view text) {
  const std::string ticks = Ticks(text, 3);
  return fmt::format("{}{}\n{}{}{}\n", ticks, language, text, text.ends_with('\n') ? "" : "\n",
                     ticks);
}

std::string_view TypeIn(Language language, DType dtype) {
  QUALM_CHECK(language != Language::kPython);
  switch (dtype) {
    case DType::kU8: return "uint8_t";
    case DType::kS8: return "int8_t";
    case DType::kU16: return "uint16_t";
    case DType::kS16: return "int16_t";
    case DType::kS32: return "int32_t";
    case DType::kF32: return "float";
    default: break;
  }
  QUALM_CHECK(!"a type that C++ lacks");
  return "";
}

std::string Literal(Language language, float value) {
  const bool python = language == Language::kPython;
  if (std::isnan(value)) return python ? "nan" : "NAN";
  if (std::isinf(value)) return std::string(value < 0 ? "-" : "") + (python ? "inf" : "INFINITY");
  return python ? FloatText(value) : FloatText(value) + "f";
}

std::string List(Language language, std::string_view name, const Tensor& values,
                 std::string_view slack) {
  const bool words = language == Language::kPython && values.dtype() == DType::kF32;
  std::string inside = Wrapped(language, values, words ? "" : ",");
  constexpr size_t kShort = 60;  // fits behind the name
  inside = inside.size() > kShort ? "\n" + inside : inside.substr(2, inside.size() - 3);
  // Python has no hex literal of a float: the prelude of a script has floats().
  if (words) return fmt::format("{} = floats('''{}''')\n", name, inside);
  if (language == Language::kPython) return fmt::format("{} = [{}]\n", name, inside);
  const std::string_view type = TypeIn(language, values.dtype());
  if (language == Language::kCpp)
    return fmt::format("const std::vector<{}> {} = {{{}}};\n", type, name, inside);
  return fmt::format(
      "static const {} {}[{}{}] = {{{}}};\n", type, name, std::max<int64_t>(values.size(), 1),
      slack.empty() ? "" : fmt::format(" + {}", slack), values.empty() ? "0" : inside);
}

std::string Number(Language language, std::string_view name, int64_t value) {
  if (language == Language::kPython) return fmt::format("{} = {}\n", name, value);
  return fmt::format("{}const int64_t {} = {};\n", language == Language::kC ? "static " : "", name,
                     value);
}

std::string Number(Language language, std::string_view name, float value) {
  const std::string literal = Literal(language, value);
  if (language == Language::kPython)
    return fmt::format("{} = float.fromhex('{}')\n", name, literal);
  return fmt::format("{}const float {} = {};\n", language == Language::kC ? "static " : "", name,
                     literal);
}

std::string Constants(Language language, const Case& c, std::string_view slack) {
  Writer writer(language, slack);
  PutSizes(c, writer);
  PutQParams(c, writer);
  if (RowOf(c.op).clamp && c.out_dtype != DType::kF32) {
    writer.Size("out_min", c.out_min);
    writer.Size("out_max", c.out_max);
  }
  if (RowOf(c.op).relu) writer.Size("relu", c.relu ? 1 : 0);
  writer.Put(HasTwoInputs(c.op) ? "a" : "x", c.x);
  if (HasW(c.op)) writer.Put(HasTwoInputs(c.op) ? "b" : "w", c.w);
  if (c.bias) writer.Put("bias", *c.bias);
  if (c.bias_i32) writer.Put("bias_i32", *c.bias_i32);
  return writer.text;
}

}  // namespace qualm::exporters
