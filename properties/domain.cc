// SPDX-License-Identifier: Apache-2.0
#include "properties/domain.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <type_traits>
#include <utility>

#include "core/declared_domain.h"
#include "core/float_ends.h"
#include "core/float_text.h"
#include "core/forwarding_subject.h"
#include "core/nearest.h"
#include "core/slice.h"
#include "core/status.h"

namespace qualm {
namespace {

// Calls see(name, span of numbers) for each range of the case that its operation has: scales and
// zero points that nothing computes with are left out. C is Case or const Case.
template <class C, class See>
void EachRange(C& c, const See& see) {
  const OpRow& row = RowOf(c.op);
  const auto qparams = [&](std::string_view scale, std::string_view zero_point, auto& q) {
    see(scale, std::span(q.scale));
    see(zero_point, std::span(q.zero_point));
  };
  if (row.multiplier && UsesMultiplier(c)) {
    see("multiplier", std::span(c.multiplier));
    see("out_zp", std::span(c.out_q.zero_point));
  } else {
    if (HasXQParams(c)) qparams("x_scale", "x_zp", c.x_q);
    if (HasW(c.op) || row.multiplier) qparams("w_scale", "w_zp", c.w_q);
    if (HasOutQParams(c.op) && IsCode(c.out_dtype)) qparams("out_scale", "out_zp", c.out_q);
  }
  if (c.bias) see("bias", std::span(*c.bias));
  if (c.bias_i32) see("bias_i32", std::span(*c.bias_i32));
  if (c.x.dtype() == DType::kF32) see("x", c.x.template as<float>());
}

// The sizes of a case by their names in case files.
template <class C, class See>
void EachSize(C& c, const See& see) {
  const Layout layout = RowOf(c.op).layout;
  if (HasWindow(c.op)) {
    auto& v = c.window;
    see("batch", v.batch);
    see("in_h", v.in_h);
    see("in_w", v.in_w);
    see("in_c", v.in_c);
    if (layout == Layout::kConv) see("N", c.N);
    return;
  }
  see("M", c.M);
  if (layout != Layout::kColumns) see("N", c.N);
  if (layout == Layout::kProducts) see("K", c.K);
}

constexpr std::array<std::string_view, 17> kNames{
    "x_scale", "x_zp", "w_scale", "w_zp", "out_scale", "out_zp", "multiplier", "bias", "bias_i32",
    "x",       "M",    "N",       "K",    "batch",     "in_h",   "in_w",       "in_c"};

template <class T>
bool IsInside(T value, double least, double most) {
  return static_cast<double>(value) >= least && static_cast<double>(value) <= most;
}

float Moved(float value, double least, double most) {
  if (IsInside(value, least, most)) return value;
  if (std::isfinite(value) && value != 0) {
    const bool grows = std::fabs(value) < std::min(std::fabs(least), std::fabs(most));
    float moved = value;
    for (int i = 0; i < 300; ++i) {
      moved *= grows ? 2.0f : 0.5f;
      if (IsInside(moved, least, most)) return moved;
    }
  }
  if (std::isnan(value)) return FloatAtLeast(least);
  return std::clamp(value, FloatAtLeast(least), FloatAtMost(most));
}

// Integers wrap around, so that they stay as different as the range lets them.
int64_t Wrapped(int64_t value, double least, double most) {
  if (IsInside(value, least, most)) return value;
  const auto from = static_cast<int64_t>(std::ceil(least));
  const auto count = static_cast<int64_t>(std::floor(most)) - from + 1;
  if (count <= 0) return value;
  const int64_t rest = (value - from) % count;
  return from + (rest < 0 ? rest + count : rest);
}

// The tensor of another shape, which repeats the old one along each dimension.
Tensor Repeated(const Tensor& from, const std::vector<int64_t>& shape) {
  if (from.shape() == shape) return from;
  Tensor to(from.dtype(), shape);
  if (to.empty() || from.empty() || from.shape().size() != shape.size()) return to;
  const std::vector<int64_t>& old = from.shape();
  const size_t last = shape.size() - 1;
  const int64_t line = shape[last], lines = to.size() / line;
  for (int64_t i = 0; i < lines; ++i) {
    // The line of `from` that lies at the same place, each index modulo its dimension.
    int64_t rest = i, source = 0, step = 1;
    for (size_t d = last; d-- > 0;) {
      source += rest % shape[d] % old[d] * step;
      step *= old[d];
      rest /= shape[d];
    }
    for (int64_t at = 0; at < line; at += old[last])
      to.CopyFrom(from, source * old[last], std::min(old[last], line - at), i * line + at);
  }
  return to;
}

// An empty list, of a case without channels, gets `otherwise`.
template <class T>
void Repeat(std::vector<T>& list, int64_t count, T otherwise = 0) {
  const std::vector<T> old = std::exchange(list, {});
  for (int64_t i = 0; i < count; ++i)
    list.push_back(old.empty() ? otherwise : old[static_cast<size_t>(i) % old.size()]);
}

// The list of parameters of `from_rows` channels, or of the blocks of each, for `to_rows`. The same
// of the blocks of rows of x.
template <class T>
void RepeatBlocks(const Case& from, int64_t from_rows, const Case& to, int64_t to_rows,
                  std::vector<T>& list, T otherwise) {
  const std::vector<T> old = std::exchange(list, {});
  const int64_t old_blocks = RowBlocks(from), blocks = RowBlocks(to);
  for (int64_t i = 0; i < to_rows * blocks; ++i) {
    const int64_t source =
        old.empty() ? 0 : i / blocks % from_rows * old_blocks + i % blocks % old_blocks;
    list.push_back(old.empty() ? otherwise : old[static_cast<size_t>(source)]);
  }
}

// Groups that fit the channels: each input channel of a depthwise layer is one, with as many output
// channels as before.
void FitGroups(const Case& from, Case& to) {
  Window& v = to.window;
  if (RowOf(to.op).depthwise) {
    const int64_t each = from.window.groups > 0 ? from.N / from.window.groups : 1;
    v.groups = v.in_c;
    if (to.N % std::max<int64_t>(v.groups, 1) != 0) to.N = v.in_c * each;
  } else if (v.groups > 0 && (v.in_c % v.groups != 0 || to.N % v.groups != 0)) {
    v.groups = 1;
  }
}

// The case with the sizes that `set` gives it, and data that repeat its own; nullopt where no valid
// case comes out.
template <class Set>
std::optional<Case> Resized(const Case& c, const Set& set) {
  Case to = HasElementBlocks(c) ? slice::WithoutBlocks(c) : ProblemOf(c);
  set(to);
  if (IsPool(to.op)) to.N = to.window.in_c;
  if (RowOf(to.op).layout == Layout::kConv) FitGroups(c, to);
  DeriveSizes(&to);
  if (to.M == c.M && to.N == c.N && to.K == c.K && to.window == c.window) return to;
  if (RowOf(c.op).layout == Layout::kConv && to.window.groups < 1) return std::nullopt;
  to.x = Repeated(c.x, ShapeOfX(to));
  if (HasW(to.op)) to.w = Repeated(c.w, ShapeOfW(to));
  if (to.x_block != 0) {
    RepeatBlocks(c, c.M, to, to.M, to.x_q.scale, 1.0f);
    RepeatBlocks(c, c.M, to, to.M, to.x_q.zero_point, 0);
  }
  if (c.per_channel && HasChannelList(c.op)) {
    ForEachChannelQParams(to, [&](QParams& q) {
      RepeatBlocks(c, c.N, to, to.N, q.scale, 1.0f);
      RepeatBlocks(c, c.N, to, to.N, q.zero_point, 0);
    });
  }
  if (to.N != c.N) {
    if (c.per_channel && UsesMultiplier(c)) Repeat(to.multiplier, to.N, 1.0f);
    if (to.bias) Repeat(*to.bias, to.N);
    if (to.bias_i32) Repeat(*to.bias_i32, to.N);
  }
  if (!Validate(to).empty()) return std::nullopt;
  return to;
}

// One number for the data of a case, to choose a shape by.
uint64_t Chosen(const Case& c, size_t count) {
  uint64_t hash =
      static_cast<uint64_t>(c.M) * 31 + static_cast<uint64_t>(c.N) * 7 + static_cast<uint64_t>(c.K);
  for (int64_t i = 0; i < std::min<int64_t>(c.x.size(), 8); ++i)
    hash = hash * 0x9E3779B97F4A7C15u + c.x.BitsAt(i);
  return (hash ^ hash >> 32) % count;
}

bool IsOf(const ShapeOfCase& shape, Op op) {
  const OpRow& row = RowOf(op);
  if (row.layout != shape.layout || row.whole_image) return false;
  const bool depthwise = shape.window.groups > 1 && shape.window.groups == shape.window.in_c;
  return row.layout != Layout::kConv || row.depthwise == depthwise;
}

bool Has(const ShapeOfCase& shape, const Case& c) {
  if (shape.layout == Layout::kElements || shape.layout == Layout::kProducts)
    return c.M == shape.M && c.N == shape.N && c.K == shape.K;
  Window v = shape.window;
  v.ceil_mode = c.window.ceil_mode;
  v.count_include_pad = c.window.count_include_pad;
  return c.window == v && (shape.layout == Layout::kPool || c.N == shape.N);
}

std::optional<Case> Shaped(const ShapeOfCase& shape, const Case& c) {
  return Resized(c, [&](Case& to) {
    if (HasWindow(c.op)) {
      to.window = shape.window;
      to.window.ceil_mode = c.window.ceil_mode;
      to.window.count_include_pad = c.window.count_include_pad;
    }
    to.M = shape.M;
    to.N = shape.N;
    to.K = shape.K;
  });
}

std::string Number(double value) { return ShortestDecimal(static_cast<float>(value)); }

[[noreturn]] void WrongShape(std::string_view text, const std::string& what) {
  throw InputError(
      "shape: '" + std::string(text) + "' " + what +
      ", expected MxNxK, MxK:KxN, MxN, or sizes as of benchdnn (mb1ic64ih56oc64kh3ph1)");
}

// Digits at `at`, which moves behind them.
std::optional<int64_t> TakeNumber(std::string_view text, size_t& at) {
  int64_t value = 0;
  const char* const from = text.data() + at;
  const auto [end, error] = std::from_chars(from, text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > INT32_MAX) return std::nullopt;
  at += static_cast<size_t>(end - from);
  return value;
}

// "64x512x1024", "64x512:512x1024", "64x512".
ShapeOfCase ParseSizes(std::string_view text) {
  std::vector<int64_t> sizes;
  std::string between;
  for (size_t at = 0;;) {
    const std::optional<int64_t> size = TakeNumber(text, at);
    if (!size) WrongShape(text, "is none");
    sizes.push_back(*size);
    if (at == text.size()) break;
    between += text[at++];
  }
  ShapeOfCase shape{.text = std::string(text)};
  if (between == "xx") {
    shape.layout = Layout::kProducts;
    shape.M = sizes[0], shape.N = sizes[1], shape.K = sizes[2];
  } else if (between == "x:x" && sizes[1] == sizes[2]) {
    shape.layout = Layout::kProducts;
    shape.M = sizes[0], shape.N = sizes[3], shape.K = sizes[1];
  } else if (between == "x") {
    shape.M = sizes[0], shape.N = sizes[1];
  } else {
    WrongShape(text, between == "x:x" ? "multiplies matrices that do not fit" : "is none");
  }
  return shape;
}

// The sizes of benchdnn by name, e.g. "ic" -> 64.
std::map<std::string, int64_t> NamedSizes(std::string_view text) {
  constexpr std::array<std::string_view, 16> kKnown{"mb", "g",  "ic", "oc", "ih", "iw", "oh", "ow",
                                                    "kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw"};
  std::map<std::string, int64_t> sizes;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '_') {  // benchdnn lets one stand between sizes
      ++at;
      continue;
    }
    if (text[at] == 'n') break;  // n"name" ends the line
    const size_t digits = text.find_first_of("0123456789", at);
    const std::string name(text.substr(at, digits - at));
    if (digits == std::string_view::npos || std::ranges::find(kKnown, name) == kKnown.end()) {
      WrongShape(text, "has '" + name + "'");
    }
    at = digits;
    const std::optional<int64_t> size = TakeNumber(text, at);
    if (!size || !sizes.emplace(name, *size).second) WrongShape(text, "has '" + name + "' wrongly");
  }
  return sizes;
}

// Padding on both sides together, where the output's size says it: the input's size less what the
// windows reach.
int64_t PaddingFor(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t dilation) {
  return std::max<int64_t>((out - 1) * stride + (kernel - 1) * dilation + 1 - in, 0);
}

ShapeOfCase ParseLayer(std::string_view text) {
  std::map<std::string, int64_t> sizes = NamedSizes(text);
  const auto size = [&](const char* name, int64_t otherwise) {
    const auto found = sizes.find(name);
    return found == sizes.end() ? otherwise : found->second;
  };
  if (!sizes.contains("ic")) WrongShape(text, "has no ic");
  ShapeOfCase shape{.text = std::string(text)};
  const int64_t ih = size("ih", size("iw", 1)), iw = size("iw", ih);
  if (!sizes.contains("kh") && !sizes.contains("kw")) {
    if (!sizes.contains("oc")) WrongShape(text, "has neither kh nor oc");
    shape.layout = Layout::kProducts;
    shape.M = size("mb", 2), shape.N = size("oc", 0), shape.K = size("ic", 0) * ih * iw;
    return shape;
  }
  shape.layout = sizes.contains("oc") ? Layout::kConv : Layout::kPool;
  Window& v = shape.window;
  v.batch = size("mb", 2);
  v.in_h = ih, v.in_w = iw;
  v.in_c = size("ic", 0);
  v.groups = size("g", 1);
  v.kernel_h = size("kh", size("kw", 1)), v.kernel_w = size("kw", v.kernel_h);
  v.stride_h = size("sh", size("sw", 1)), v.stride_w = size("sw", v.stride_h);
  v.dilation_h = size("dh", size("dw", 0)) + 1, v.dilation_w = size("dw", v.dilation_h - 1) + 1;
  // ph is the padding above; what oh asks for beyond it lies below.
  const auto padding = [&](const char* pad, const char* other_pad, const char* out,
                           const char* other_out, int64_t in, int64_t kernel, int64_t stride,
                           int64_t dilation, int64_t& before, int64_t& after) {
    const bool has_out = sizes.contains(out) || sizes.contains(other_out);
    const int64_t all =
        has_out ? PaddingFor(size(out, size(other_out, 1)), in, kernel, stride, dilation) : 0;
    const bool has_pad = sizes.contains(pad) || sizes.contains(other_pad);
    before = has_pad ? size(pad, size(other_pad, 0)) : all / 2;
    after = has_out ? std::max<int64_t>(all - before, 0) : before;
  };
  padding("ph", "pw", "oh", "ow", v.in_h, v.kernel_h, v.stride_h, v.dilation_h, v.pad_top,
          v.pad_bottom);
  padding("pw", "ph", "ow", "oh", v.in_w, v.kernel_w, v.stride_w, v.dilation_w, v.pad_left,
          v.pad_right);
  shape.N = shape.layout == Layout::kPool ? v.in_c : size("oc", 0);
  const bool whole = v.kernel_h > 0 && v.kernel_w > 0 && v.stride_h > 0 && v.stride_w > 0 &&
                     v.groups > 0 && v.in_c % v.groups == 0 && shape.N % v.groups == 0;
  if (!whole || v.out_h() < 1 || v.out_w() < 1) WrongShape(text, "is no layer with an output");
  return shape;
}

Domain& Current() {
  static Domain domain;
  return domain;
}

class DomainSubject final : public ForwardingSubject {
 public:
  DomainSubject(std::unique_ptr<Subject> subject, const Domain& domain)
      : ForwardingSubject(*subject), own_(std::move(subject)), domain_(domain) {}

  std::string CannotRun(const Case& c) const override {
    std::string why = inner().CannotRun(c);
    return why.empty() ? domain_.WhyOutside(c) : why;
  }
  Case Inside(const Case& c) const override { return inner().Inside(domain_.Inside(c)); }

 private:
  std::unique_ptr<Subject> own_;
  const Domain domain_;
};

}  // namespace

ShapeOfCase ParseShape(std::string_view text) {
  if (text.empty()) WrongShape(text, "is empty");
  return text[0] >= '0' && text[0] <= '9' ? ParseSizes(text) : ParseLayer(text);
}

std::optional<double> ParseEnd(std::string_view text) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (text == "inf" || text == "+inf") return infinity;
  if (text == "-inf") return -infinity;
  return ParseDoubleText(text);
}

void Domain::AddRange(std::optional<Op> op, const std::string& name, double least, double most) {
  if (std::ranges::find(kNames, name) == kNames.end()) {
    throw InputError(name + ": is no range of a domain, nearest is '" +
                     std::string(NearestName(name, kNames)) + "'");
  }
  if (!(least <= most)) {
    throw InputError(name + ": from " + Number(least) + " to " + Number(most) +
                     " is empty, expected [LEAST, MOST]");
  }
  of_[op].ranges[name] = {least, most};
}

void Domain::AddShape(std::optional<Op> op, std::string_view text) {
  ShapeOfCase shape = ParseShape(text);
  if (op && !IsOf(shape, *op)) WrongShape(text, "is no shape of " + std::string(Name(*op)));
  of_[op].shapes.push_back(std::move(shape));
}

const Domain::Range* Domain::RangeOf(Op op, std::string_view name) const {
  for (const std::optional<Op> of : {std::optional(op), std::optional<Op>()}) {
    const auto said = of_.find(of);
    if (said == of_.end()) continue;
    const auto range = said->second.ranges.find(name);
    if (range != said->second.ranges.end()) return &range->second;
  }
  return nullptr;
}

std::vector<const ShapeOfCase*> Domain::ShapesOf(Op op) const {
  std::vector<const ShapeOfCase*> shapes;
  for (const std::optional<Op> of : {std::optional(op), std::optional<Op>()}) {
    const auto said = of_.find(of);
    if (said == of_.end()) continue;
    for (const ShapeOfCase& shape : said->second.shapes) {
      if (IsOf(shape, op)) shapes.push_back(&shape);
    }
    if (!shapes.empty()) break;
  }
  return shapes;
}

std::string Domain::WhyOutside(const Case& c) const {
  if (of_.empty()) return "";  // asked for each call of a Python function
  std::string why;
  const auto check = [&](std::string_view name, auto value) {
    const Range* const range = why.empty() ? RangeOf(c.op, name) : nullptr;
    if (range == nullptr || IsInside(value, range->least, range->most)) return;
    const std::string text = std::is_integral_v<decltype(value)>
                                 ? std::to_string(static_cast<int64_t>(value))
                                 : ShortestDecimal(static_cast<float>(value));
    why = "the domain has no " + std::string(name) + " " + text + ", only " + Number(range->least) +
          " to " + Number(range->most);
  };
  EachSize(c, check);
  EachRange(c, [&](std::string_view name, auto numbers) {
    for (const auto number : numbers) check(name, number);
  });
  if (!why.empty()) return why;
  const std::vector<const ShapeOfCase*> shapes = ShapesOf(c.op);
  const bool has = std::ranges::any_of(shapes, [&](const auto* shape) { return Has(*shape, c); });
  return shapes.empty() || has ? "" : "the domain has no such shape";
}

Case Domain::Inside(const Case& c) const {
  if (WhyOutside(c).empty()) return c;
  std::optional<Case> inside;
  const std::vector<const ShapeOfCase*> shapes = ShapesOf(c.op);
  if (!shapes.empty()) {
    inside = Shaped(*shapes[Chosen(c, shapes.size())], c);
  } else {
    inside = Resized(c, [&](Case& to) {
      EachSize(to, [&](std::string_view name, int64_t& size) {
        if (const Range* const range = RangeOf(c.op, name))
          size = Wrapped(size, std::max(range->least, 0.0), range->most);
      });
    });
  }
  if (!inside) return c;
  EachRange(*inside, [&](std::string_view name, auto numbers) {
    const Range* const range = RangeOf(c.op, name);
    if (range == nullptr) return;
    for (auto& number : numbers) {
      if constexpr (std::is_same_v<decltype(number), float&>) {
        number = Moved(number, range->least, range->most);
      } else {
        number = static_cast<int32_t>(Wrapped(number, std::max(range->least, double{INT32_MIN}),
                                              std::min(range->most, double{INT32_MAX})));
      }
    }
  });
  if (RowOf(c.op).out_q == OutQParams::kOfInput) inside->out_q = inside->x_q;
  return Validate(*inside).empty() && WhyOutside(*inside).empty() ? *inside : c;
}

std::string Domain::Text() const {
  std::string text;
  for (const auto& [op, said] : of_) {
    const std::string of = op ? std::string(Name(*op)) : "*";
    for (const auto& [name, range] : said.ranges)
      text += of + " " + name + " " + DoubleText(range.least) + " " + DoubleText(range.most) + "\n";
    for (const ShapeOfCase& shape : said.shapes) text += of + " shape " + shape.text + "\n";
  }
  return text;
}

Domain Domain::Parse(const std::string& text) {
  Domain domain;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string of, name, first, second;
    words >> of >> name >> first >> second;
    const std::optional<Op> op = of == "*" ? std::nullopt : ParseOp(of);
    if (of != "*" && !op) throw InputError("domain: '" + line + "' names no operation");
    if (name == "shape") {
      domain.AddShape(op, first);
      continue;
    }
    const std::optional<double> least = ParseEnd(first), most = ParseEnd(second);
    if (!least || !most) throw InputError("domain: '" + line + "' has no two ends of a range");
    domain.AddRange(op, name, *least, *most);
  }
  return domain;
}

void SetDomain(Domain domain) { Current() = std::move(domain); }
const Domain& TheDomain() { return Current(); }

std::unique_ptr<Subject> InDomain(std::unique_ptr<Subject> subject, const Domain& domain) {
  if (domain.empty()) return subject;
  return std::make_unique<DomainSubject>(std::move(subject), domain);
}

std::unique_ptr<Subject> MakeInDomain(const std::string& name) {
  std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make(name);
  if (const auto* const declared = dynamic_cast<const DeclaredDomain*>(subject.get())) {
    try {
      const Domain own = Domain::Parse(declared->domain_text());
      subject = InDomain(std::move(subject), own);
    } catch (const InputError& error) {
      throw Unavailable("subject '" + name + "': its domain: " + error.what());
    }
  }
  return InDomain(std::move(subject), TheDomain());
}

}  // namespace qualm
