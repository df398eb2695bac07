// SPDX-License-Identifier: Apache-2.0
#include "triage/reads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "triage/ask.h"
#include "triage/causes.h"

namespace qualm::triage {
namespace {

// Products of one element reach at most twice this, above an output of kRest codes.
constexpr int64_t kMostValue = 100;
constexpr int32_t kRest = 50;

bool Averages(const Case& c) { return RowOf(c.op).layout == Layout::kPool && c.op != Op::kMaxPool; }
bool HasTerms(const Case& c) {
  const Layout layout = RowOf(c.op).layout;
  return layout == Layout::kProducts || layout == Layout::kConv;
}

// ---- The problem that shows what is read. There are two of them, so that a change of a value is
// not taken for the value of another term.

// The real value of the weight of term j in problem `which`; the two together tell j for K terms.
int32_t ValueOf(int64_t j, int64_t terms, int which) {
  const int64_t values = std::min(terms, kMostValue);
  const int64_t at = which == 0 ? j : values - 1 - j % values + 7 * (j / values);
  return static_cast<int32_t>(1 + at % values);
}
int32_t StepOf(const Case& c, int which) {
  if (HasTerms(c)) return which == 0 ? 2 : 4;
  if (Averages(c)) return 1 + which;
  return which == 0 ? 20 : 33;
}

// What a product of 1 adds to the number of an output: the scale of codes is 2.
double UnitOf(const Case& c) { return IsCode(c.out_dtype) ? 0.5 : 1; }

// Leaves room for `above` codes over the zero points.
void MakeRoom(QParams& q, DType dtype, int32_t above) {
  if (!IsCode(dtype)) return;
  const CodeRange range = RangeOf(dtype);
  for (int32_t& z : q.zero_point) z = std::clamp(z, range.min, range.max - above);
}

void Fill(Tensor& tensor, int32_t zero_point, int32_t real) {
  if (tensor.dtype() == DType::kF32) {
    std::ranges::fill(tensor.as<float>(), static_cast<float>(real));
    return;
  }
  const int32_t zero = IsCode(tensor.dtype()) ? zero_point : 0;
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, zero + real);
}

void SetScales(QParams& q, float scale) { std::ranges::fill(q.scale, scale); }

// nullopt: the operation is none of those whose outputs show what they read.
std::optional<Case> ProblemThatShows(const Case& c, int which) {
  const OpRow& row = RowOf(c.op);
  if (row.layout == Layout::kBatches || row.dynamic || c.op == Op::kSoftmax) return std::nullopt;
  if (Averages(c) && c.K > kMostValue) return std::nullopt;
  if (BitsOf(c.w.dtype()) < 8) return std::nullopt;  // too few codes to tell terms apart
  if (c.w_block != 0) return std::nullopt;           // terms are told apart with one zero point
  if (HasFloatX(c)) return std::nullopt;             // by codes of x, too
  Case p = ProblemOf(c);
  const bool terms = HasTerms(c);
  if (row.clamp) OpenClamp(&p);
  p.relu = false;
  if (p.bias) std::ranges::fill(*p.bias, 0.0f);
  if (p.bias_i32) std::ranges::fill(*p.bias_i32, 0);
  std::ranges::fill(p.multiplier, 1.0f);
  SetScales(p.x_q, Averages(c) ? static_cast<float>(c.K) : 1);
  SetScales(p.w_q, 1);
  MakeRoom(p.x_q, p.x.dtype(), 40);
  if (!p.w.empty()) MakeRoom(p.w_q, p.w.dtype(), terms ? static_cast<int32_t>(kMostValue) : 40);
  if (row.out_q == OutQParams::kOwn && IsCode(c.out_dtype)) {
    SetScales(p.out_q, terms ? 2 : 1);
    std::ranges::fill(p.out_q.zero_point, RangeOf(c.out_dtype).min + kRest);
  }
  const int32_t rest = c.op == Op::kMul ? 1 : 0;
  // A maximum sees what is above all other codes.
  const bool maximum = c.op == Op::kMaxPool;
  Fill(p.x, maximum ? RangeOf(c.x.dtype()).min : p.x_q.zero_point_at(0), rest);
  if (row.out_q == OutQParams::kOfInput) p.out_q = p.x_q;
  if (terms) {
    for (int64_t i = 0; i < p.w.size(); ++i)
      p.w.SetInt(i, p.w_q.zero_point_at(i / c.K) + ValueOf(i % c.K, c.K, which));
  } else if (!p.w.empty()) {
    Fill(p.w, p.w_q.zero_point_at(0), rest);
  }
  if (!Validate(p).empty()) return std::nullopt;
  return p;
}

// The case with another window; its codes are of no matter.
Case WithWindow(const Case& c, const Window& window) {
  Case other = ProblemOf(c);
  other.window = window;
  DeriveSizes(&other);
  other.x = Tensor(c.x.dtype(), ShapeOfX(other));
  return other;
}

// The elements that are asked about one by one, and how many they may be.
int64_t ElementsOf(const Case& c) { return c.x.size() + (HasTerms(c) ? 0 : c.w.size()); }
constexpr int64_t kMostElements = 400;

// The case with one image in which a window has room on all sides, and not more than that; without
// a window the first rows of a case that has too many elements. nullopt where that makes no other
// case.
std::optional<Case> OfFittingSize(const Case& c) {
  if (RowOf(c.op).whole_image) return std::nullopt;
  if (!HasWindow(c.op)) {
    const int64_t rows = kMostElements * c.M / std::max<int64_t>(1, ElementsOf(c));
    if (rows == 0 || rows >= c.M) return std::nullopt;
    return slice::Rows(c, slice::Range(0, rows));
  }
  Window v = c.window;
  v.in_h = (v.kernel_h - 1) * v.dilation_h + 1 + 2 * v.stride_h;
  v.in_w = (v.kernel_w - 1) * v.dilation_w + 1 + 2 * v.stride_w;
  v.batch = std::min<int64_t>(v.batch, 1);
  Case fitting = WithWindow(c, v);
  if (fitting.x.shape() == c.x.shape()) return std::nullopt;
  return fitting;
}

// As many windows with other numbers, in which one that lies elsewhere may do so by another
// distance.
std::vector<Case> WithOtherWindows(const Case& c) {
  std::vector<Case> others;
  const int64_t out_h = c.window.out_h(), out_w = c.window.out_w();
  const auto add = [&](auto edit) {
    Window v = c.window;
    edit(v);
    v.in_h =
        (out_h - 1) * v.stride_h + (v.kernel_h - 1) * v.dilation_h + 1 - v.pad_top - v.pad_bottom;
    v.in_w =
        (out_w - 1) * v.stride_w + (v.kernel_w - 1) * v.dilation_w + 1 - v.pad_left - v.pad_right;
    if (v.in_h > 0 && v.in_w > 0) others.push_back(WithWindow(c, v));
  };
  Window more_images = c.window;
  more_images.batch += 2;
  others.push_back(WithWindow(c, more_images));
  if (RowOf(c.op).whole_image) return others;
  add([](Window& v) { ++v.pad_top; });
  add([](Window& v) { ++v.pad_left; });
  add([](Window& v) { ++v.stride_h, ++v.stride_w; });
  return others;
}

// A problem without a window in twice the rows, in twice the channels and in one term more.
std::vector<std::pair<std::string, Case>> InOtherSizes(const Case& c) {
  std::vector<std::pair<std::string, Case>> others;
  const auto places = [](int64_t size, int64_t wanted) {
    std::vector<int64_t> all = slice::Range(0, wanted);
    for (int64_t& place : all) place %= size;
    return all;
  };
  if (HasWindow(c.op) || c.M == 0 || c.N == 0) return others;
  others.emplace_back(fmt::format("with {} rows", 2 * c.M), slice::Rows(c, places(c.M, 2 * c.M)));
  if (c.op != Op::kConcat)
    others.emplace_back(fmt::format("with N = {}", 2 * c.N),
                        slice::Channels(c, places(c.N, 2 * c.N)));
  if (HasTerms(c) && c.K > 0)
    others.emplace_back(fmt::format("with K = {}", c.K + 1), slice::Terms(c, places(c.K, c.K + 1)));
  return others;
}

// ---- Asking.

// An element of x or of a second input.
struct Element {
  bool second = false;
  int64_t index = 0;
  friend auto operator<=>(const Element&, const Element&) = default;
};

class Asker {
 public:
  Asker(const Case& c, Subject& subject)
      : subject_(subject), model_(ModelOf(subject.contract())), c_(c) {}

  // Whether the two problems can be asked. Their outputs are kept.
  bool Start() {
    for (const int which : {0, 1}) {
      std::optional<Case> p = ProblemThatShows(c_, which);
      if (!p || !subject_.CannotRun(*p).empty() ||
          (model_ != nullptr && !model_->cannot_run(*p).empty()))
        return false;
      std::optional<Tensor> y = Ask(subject_, *p);
      if (!y) return false;
      at_rest_.push_back({std::move(*p), {}, std::move(*y)});
      at_rest_.back().right = RightOutput(at_rest_.back().problem, model_);
    }
    return true;
  }

  // What an output gains by the change of the element, and what it should gain.
  struct Gain {
    double is = 0, should = 0;
  };
  // The outputs that gain anything, or should. Empty as well where the subject fails.
  std::map<int64_t, Gain> Change(const Element& element, int which) {
    const AtRest& rest = at_rest_[static_cast<size_t>(which)];
    Case p = rest.problem;
    Tensor& tensor = element.second ? p.w : p.x;
    const int32_t step = StepOf(c_, which);
    if (tensor.dtype() == DType::kF32) {
      tensor.as<float>()[static_cast<size_t>(element.index)] += static_cast<float>(step);
    } else {
      tensor.SetInt(element.index, tensor.IntAt(element.index) + step);
    }
    std::map<int64_t, Gain> gains;
    const std::optional<Tensor> y = Ask(subject_, p);
    if (!y) return gains;
    const Tensor right = RightOutput(p, model_);
    for (int64_t i = 0; i < right.size(); ++i) {
      const Gain gain{y->ValueAt(i) - rest.y.ValueAt(i), right.ValueAt(i) - rest.right.ValueAt(i)};
      if (gain.is != 0 || gain.should != 0) gains[i] = gain;
    }
    return gains;
  }

 private:
  struct AtRest {
    Case problem;
    Tensor right, y;
  };

  Subject& subject_;
  const Convention* const model_;
  const Case& c_;
  std::vector<AtRest> at_rest_;
};

// ---- What an output reads.

// Term by term; where there are no terms, term 0 has all elements.
using Terms = std::map<int64_t, std::set<Element>>;
struct Reading {
  Terms is, should;
};

// Whether not too many questions have to be asked.
bool IsSmall(const Case& c) {
  constexpr int64_t kMostWork = int64_t{1} << 16;
  const int64_t elements = ElementsOf(c);
  return elements > 0 && elements <= kMostElements &&
         c.M * c.N * std::max<int64_t>(c.K, 1) <= kMostWork;
}

// The term whose weight gives these gains in both problems; -1 if there is none, or several.
int64_t TermOf(const Case& c, double first, double second) {
  if (!HasTerms(c)) return 0;
  const double unit = UnitOf(c);
  int64_t found = -1;
  for (int64_t j = 0; j < c.K; ++j) {
    if (first != unit * StepOf(c, 0) * ValueOf(j, c.K, 0) ||
        second != unit * StepOf(c, 1) * ValueOf(j, c.K, 1))
      continue;
    if (found >= 0) return -1;
    found = j;
  }
  return found;
}

// What each output reads that reads anything else than it should, and what it should read. nullopt:
// a gain is the product of no weight.
std::optional<std::map<int64_t, Reading>> Readings(const Case& c, Asker& asker) {
  std::vector<Element> elements;
  const auto add = [&](bool second, const Tensor& tensor) {
    for (int64_t i = 0; i < tensor.size(); ++i) elements.push_back({second, i});
  };
  add(false, c.x);
  if (!HasTerms(c)) add(true, c.w);
  std::map<int64_t, Reading> readings;
  std::set<int64_t> otherwise;
  for (const Element& element : elements) {
    const std::map<int64_t, Asker::Gain> first = asker.Change(element, 0);
    std::map<int64_t, Asker::Gain> second;
    for (const auto& [i, gain] : first) {
      // Where the element is read as it should be, and terms are few, one problem tells the term.
      if (gain.is == gain.should && (!HasTerms(c) || c.K <= kMostValue)) {
        const int64_t term = HasTerms(c) ? std::llround(gain.is / UnitOf(c) / StepOf(c, 0)) - 1 : 0;
        readings[i].is[term].insert(element);
        readings[i].should[term].insert(element);
        continue;
      }
      if (second.empty()) second = asker.Change(element, 1);
      const auto again = second.find(i);
      if (again == second.end() || (gain.is == 0) != (again->second.is == 0) ||
          (gain.should == 0) != (again->second.should == 0))
        return std::nullopt;
      if (!HasTerms(c) && gain.is != 0 && gain.should != 0 && gain.is != gain.should)
        return std::nullopt;
      for (auto [is, of] : {std::pair{true, &Reading::is}, {false, &Reading::should}}) {
        const double one = is ? gain.is : gain.should;
        if (one == 0) continue;
        const int64_t term = TermOf(c, one, is ? again->second.is : again->second.should);
        if (term < 0) return std::nullopt;
        (readings[i].*of)[term].insert(element);
      }
      if (gain.is != gain.should) otherwise.insert(i);
    }
  }
  std::erase_if(readings, [&](const auto& each) { return !otherwise.contains(each.first); });
  return readings;
}

// ---- Saying it.

struct Distance {
  int64_t image = 0, y = 0, x = 0, channel = 0;
  friend bool operator==(const Distance&, const Distance&) = default;
};

std::set<Element> All(const Terms& terms) {
  std::set<Element> all;
  for (const auto& [j, elements] : terms) all.insert(elements.begin(), elements.end());
  return all;
}
const std::set<Element>& At(const Terms& terms, int64_t j) {
  static const std::set<Element> kNone;
  const auto found = terms.find(j);
  return found == terms.end() ? kNone : found->second;
}
std::vector<Element> Without(const std::set<Element>& some, const std::set<Element>& others) {
  std::vector<Element> left;
  std::ranges::set_difference(some, others, std::back_inserter(left));
  return left;
}

// What is said of all outputs that read otherwise than they should.
class Speaker {
 public:
  Speaker(const Case& c, const std::map<int64_t, Reading>& readings)
      : c_(c), readings_(readings), window_(HasWindow(c.op)), terms_(HasTerms(c)) {}

  std::pair<FindingKind, std::string> Sentence() const {
    std::vector<Said> said;
    for (const auto& rule : {&Speaker::OtherOrder, &Speaker::Moved, &Speaker::LeftOut,
                             &Speaker::ImageForPadding, &Speaker::OfOtherElement}) {
      if (Said one = (this->*rule)()) said.push_back(std::move(one));
    }
    // In a small image a kernel that is turned may do the same as a window that is moved.
    if (said.size() == 1) return *said.front();
    return {FindingKind::kIndex, terms_ ? "pairs elements of x and weights otherwise than it should"
                                        : "computes outputs from other elements than it should"};
  }

  // Whether the sentence gives the distance by which windows lie elsewhere.
  bool SaysHowFar() const {
    const Said moved = Moved();
    return moved && moved->second == Sentence().second && moved->second.starts_with(kWindowLies);
  }

  // ", all of channel 1", ", those of channels 1, 3": where the outputs that read otherwise are not
  // of all.
  std::string ChannelsText(size_t most) const {
    std::set<int64_t> channels;
    for (const auto& [output, reading] : readings_) channels.insert(output % c_.N);
    const size_t count = channels.size();
    if (std::ssize(channels) == c_.N) return "";
    while (channels.size() > most) channels.erase(std::prev(channels.end()));
    return fmt::format(", {} {}{}", count == 1 ? "all of channel" : "those of channels",
                       fmt::join(channels, ", "),
                       count > most ? fmt::format(" and {} more", count - most) : "");
  }

  // One output: what it reads instead of what.
  std::string Example(int64_t output) const {
    const Reading& reading = readings_.at(output);
    const std::string y = OutputName(output);
    for (const auto& [j, should] : reading.should) {
      const std::vector<Element> lost = Without(should, At(reading.is, j)),
                                 more = Without(At(reading.is, j), should);
      if (lost.empty() && more.empty()) continue;
      // Of which channel the weight is cannot be seen: that of this output, or another one's.
      const std::string by = terms_ ? " by a weight of " + TermName(j) : "";
      if (more.empty())
        return y + " leaves out " + ElementName(lost.front()) + (terms_ ? ", " + TermName(j) : "");
      return y + (terms_ ? " multiplies " : " reads ") + ElementName(more.front()) + by +
             (lost.empty() ? " too" : " instead of " + ElementName(lost.front()));
    }
    for (const auto& [j, is] : reading.is) {
      if (At(reading.should, j).empty())
        return y + " reads " + ElementName(*is.begin()) + " for " + TermName(j) +
               ", which lies in the padding";
    }
    return "";
  }

 private:
  using Said = std::optional<std::pair<FindingKind, std::string>>;
  static constexpr std::string_view kWindowLies = "looks at a window that lies";

  // In pixels; the position of the whole window, if the element is read with term j.
  Distance PositionOf(const Element& e, int64_t j) const {
    const Window& v = c_.window;
    const int64_t tap = j / Channels();
    return {e.index / (v.in_h * v.in_w * v.in_c),
            e.index / (v.in_w * v.in_c) % v.in_h - tap / v.kernel_w * v.dilation_h,
            e.index / v.in_c % v.in_w - tap % v.kernel_w * v.dilation_w,
            e.index % v.in_c - j % Channels()};
  }
  int64_t Channels() const {  // of one tap
    return terms_ ? std::max<int64_t>(1, c_.K / (c_.window.kernel_h * c_.window.kernel_w)) : 1;
  }

  std::string ElementName(const Element& e) const {
    const std::string name = !HasTwoInputs(c_.op) || terms_ ? "x" : e.second ? "b" : "a";
    if (window_) {
      const Distance at = PositionOf(e, 0);
      std::string text = fmt::format("x at pixel ({}, {})", at.y, at.x);
      if (c_.window.in_c > 1) text += fmt::format(" of channel {}", at.channel);
      if (c_.window.batch > 1) text += fmt::format(" of image {}", at.image);
      return text;
    }
    const Tensor& tensor = e.second ? c_.w : c_.x;
    const int64_t columns = std::max<int64_t>(tensor.shape().back(), 1);
    return fmt::format("{}[{}, {}]", name, e.index / columns, e.index % columns);
  }
  std::string OutputName(int64_t output) const {
    const int64_t m = output / c_.N, n = output % c_.N;
    if (!window_) return fmt::format("y[{}, {}]", m, n);
    const Window& v = c_.window;
    return fmt::format("y at pixel ({}, {}) of channel {}", m / v.out_w() % v.out_h(),
                       m % v.out_w(), n);
  }
  std::string TermName(int64_t j) const {
    if (!window_) return fmt::format("term {}", j);
    const int64_t tap = j / Channels();
    std::string text =
        fmt::format("tap ({}, {})", tap / c_.window.kernel_w, tap % c_.window.kernel_w);
    if (Channels() > 1) text += fmt::format(" of channel {}", j % Channels());
    return text;
  }

  bool OfAll(auto holds) const {
    return std::ranges::all_of(readings_, [&](const auto& each) { return holds(each.second); });
  }

  // Of all elements that are read.
  bool AllIn(auto holds) const {
    return OfAll(
        [&](const Reading& reading) { return std::ranges::all_of(All(reading.is), holds); });
  }
  int64_t GroupOf(const Element& e) const {
    return e.index % c_.window.in_c / (c_.window.in_c / std::max<int64_t>(1, c_.window.groups));
  }

  // The right elements with the weights of other terms.
  Said OtherOrder() const {
    const auto is_order = [&](auto term_of) {
      return OfAll([&](const Reading& reading) {
        return All(reading.is) == All(reading.should) &&
               std::ranges::all_of(reading.should, [&](const auto& each) {
                 return At(reading.is, term_of(each.first)) == each.second;
               });
      });
    };
    if (!terms_) return std::nullopt;
    const Window& v = c_.window;
    const int64_t channels = Channels(), taps = c_.K / channels;
    const auto is_flipped = [&](bool rows, bool columns) {
      return is_order([&](int64_t j) {
        const int64_t r = j / channels / v.kernel_w, s = j / channels % v.kernel_w;
        const int64_t row = rows ? v.kernel_h - 1 - r : r,
                      column = columns ? v.kernel_w - 1 - s : s;
        return (row * v.kernel_w + column) * channels + j % channels;
      });
    };
    if (window_ && taps > 1) {
      if (is_flipped(true, true))
        return {
            {FindingKind::kIndex,
             "takes the weights of the taps from the last to the first (the kernel is flipped)"}};
      if (is_flipped(false, true))
        return {{FindingKind::kIndex, "takes the columns of the kernel from right to left"}};
      if (is_flipped(true, false))
        return {{FindingKind::kIndex, "takes the rows of the kernel from bottom to top"}};
    }
    if (window_ && v.kernel_h == v.kernel_w && is_order([&](int64_t j) {
          const int64_t r = j / channels / v.kernel_w, s = j / channels % v.kernel_w;
          return (s * v.kernel_w + r) * channels + j % channels;
        }))
      return {{FindingKind::kIndex, "takes rows of the kernel for columns (it is transposed)"}};
    if (!window_ && is_order([&](int64_t j) { return c_.K - 1 - j; }))
      return {{FindingKind::kIndex, "takes the weights of a sum from the last to the first"}};
    return std::nullopt;
  }

  // How far the window of one output lies from where it should.
  std::optional<Distance> DistanceOf(const Reading& reading) const {
    std::optional<Distance> was, is;
    const auto agree = [](std::optional<Distance>& all, const Distance& one) {
      if (!all) all = one;
      return *all == one;
    };
    if (terms_) {
      for (const auto& [terms, position] : {std::pair{&reading.should, &was}, {&reading.is, &is}}) {
        for (const auto& [j, elements] : *terms) {
          for (const Element& e : elements)
            if (!agree(*position, PositionOf(e, j))) return std::nullopt;
        }
      }
    } else {
      const std::set<Element> read = All(reading.is), should = All(reading.should);
      if (read.size() != should.size()) return std::nullopt;
      auto at = read.begin();
      for (const Element& e : should) {
        const Distance here = PositionOf(e, 0), there = PositionOf(*at++, 0);
        was = Distance{};
        if (!agree(is, {there.image - here.image, there.y - here.y, there.x - here.x,
                        there.channel - here.channel}))
          return std::nullopt;
      }
    }
    if (!was || !is || *was == *is) return std::nullopt;
    return Distance{is->image - was->image, is->y - was->y, is->x - was->x,
                    is->channel - was->channel};
  }

  Said Moved() const {
    if (!window_) return std::nullopt;
    std::optional<Distance> by;
    bool same = true, inside = true, in_place = true, of_image = true, of_channel = true;
    for (const auto& [output, reading] : readings_) {
      if (reading.should.empty()) continue;  // the whole window lies in the padding
      const std::optional<Distance> one = DistanceOf(reading);
      if (!one) return std::nullopt;
      same &= !by || *by == *one;
      inside &= one->image == 0 && one->channel == 0;
      in_place &= one->y == 0 && one->x == 0;
      of_image &= one->channel == 0;
      of_channel &= one->image == 0;
      by = one;
    }
    if (!by) return std::nullopt;
    const FindingKind kind =
        same && inside && c_.window.has_padding() ? FindingKind::kPadding : FindingKind::kIndex;
    if (in_place && of_image)
      return {{kind, AllIn([&](const Element& e) { return PositionOf(e, 0).image == 0; })
                         ? "reads the first image where it should read another one"
                         : "reads other images than it should"}};
    if (in_place && of_channel)
      return {{kind, AllIn([&](const Element& e) { return GroupOf(e) == 0; })
                         ? "reads the input channels of group 0 where it should read others"
                         : "reads other input channels than it should"}};
    if (in_place) return {{kind, "reads other input channels and images than it should"}};
    if (!same)
      return {{kind,
               "looks at windows that lie elsewhere than they should, each by another "
               "distance"}};
    std::vector<std::string> parts;
    for (const auto& [count, one, less, more] : {std::tuple{by->y, "row", "high", "low"},
                                                 {by->x, "column", "far left", "far right"},
                                                 {by->channel, "channel", "early", "far on"},
                                                 {by->image, "image", "early", "far on"}}) {
      if (count == 0) continue;
      const int64_t many = std::abs(count);
      parts.push_back(
          fmt::format("{} {}{} too {}", many, one, many == 1 ? "" : "s", count < 0 ? less : more));
    }
    return {{kind, fmt::format("{} {}", kWindowLies, fmt::join(parts, ", "))}};
  }

  // All taps of one input channel that lie in the image, and nothing else.
  Said InputChannelLeftOut() const {
    const int64_t channels = Channels();
    if (!window_ || channels < 2) return std::nullopt;
    std::set<int64_t> left;
    bool last_output = c_.N > 1;
    for (const auto& [output, reading] : readings_) {
      std::set<int64_t> out, here;
      for (const auto& [j, should] : reading.should)
        (At(reading.is, j) == should ? here : out).insert(j % channels);
      if (out.size() != 1 || here.contains(*out.begin())) return std::nullopt;
      left.insert(*out.begin());
      last_output &= output % c_.N == c_.N - 1;
    }
    if (left.size() != 1) return std::nullopt;
    const int64_t channel = *left.begin();
    return {{FindingKind::kIndex,
             fmt::format("leaves out {}{}{}",
                         channel == channels - 1 ? "the last input channel"
                                                 : fmt::format("input channel {}", channel),
                         c_.window.groups > 1 ? " of a group" : "",
                         last_output ? ", for the last output channel alone" : "")}};
  }

  Said LeftOut() const {
    std::set<std::vector<int64_t>> all;
    for (const auto& [output, reading] : readings_) {
      std::vector<int64_t> missing;
      for (const auto& [j, is] : reading.is)
        if (!Without(is, At(reading.should, j)).empty()) return std::nullopt;
      for (const auto& [j, should] : reading.should)
        missing.insert(missing.end(), Without(should, At(reading.is, j)).size(), j);
      all.insert(missing);
    }
    if (!terms_) return {{FindingKind::kIndex, "leaves out elements of a window"}};
    if (auto channel = InputChannelLeftOut()) return channel;
    const std::vector<int64_t>& first = *all.begin();
    const int64_t count = std::ssize(first);
    if (all.size() > 1) return {{FindingKind::kIndex, "leaves out terms of a sum"}};
    if (first.front() == c_.K - count)
      return {{FindingKind::kTail,
               count == 1 ? fmt::format("leaves out the last of {} terms", c_.K)
                          : fmt::format("leaves out the last {} of {} terms", count, c_.K)}};
    if (count > 4)
      return {{FindingKind::kIndex, fmt::format("leaves out {} of {} terms, of which {} is the "
                                                "first",
                                                count, c_.K, TermName(first.front()))}};
    std::vector<std::string> names;
    for (const int64_t j : first) names.push_back(TermName(j));
    return {{FindingKind::kIndex, fmt::format("leaves out {}", fmt::join(names, ", "))}};
  }

  // All terms as they should be, and more of them.
  Said ImageForPadding() const {
    if (!terms_ || !window_ || !OfAll([&](const Reading& reading) {
          return std::ranges::all_of(reading.should, [&](const auto& each) {
            return At(reading.is, each.first) == each.second;
          });
        }))
      return std::nullopt;
    return {{FindingKind::kPadding, "reads pixels of the image for taps that lie in the padding"}};
  }

  Said OfOtherElement() const {
    if (terms_) return std::nullopt;
    if (window_) {
      const bool wider = OfAll([](const Reading& reading) {
        return !Without(All(reading.is), All(reading.should)).empty() &&
               Without(All(reading.should), All(reading.is)).empty();
      });
      if (!wider) return std::nullopt;
      return {{FindingKind::kIndex, "reads elements that lie outside of the window"}};
    }
    std::set<bool> second;
    for (const auto& [output, reading] : readings_)
      for (const Element& e : Without(All(reading.is), All(reading.should)))
        second.insert(e.second);
    if (second.size() != 1) return std::nullopt;
    const bool of_second = *second.begin();
    const int64_t columns = (of_second ? c_.w : c_.x).shape().back();
    const bool row_0 = std::ranges::all_of(readings_, [&](const auto& each) {
      const auto& [output, reading] = each;
      const std::vector<Element> more = Without(All(reading.is), All(reading.should));
      return more.empty() || (output >= c_.N && std::ranges::all_of(more, [&](const Element& e) {
                                return e.index < columns;
                              }));
    });
    const std::string name = !HasTwoInputs(c_.op) ? "x" : of_second ? "b" : "a";
    return {{FindingKind::kIndex,
             row_0 ? "takes elements of the first row of " + name + " for other rows"
                   : "takes other elements of " + name + " than it should"}};
  }

  const Case& c_;
  const std::map<int64_t, Reading>& readings_;
  const bool window_, terms_;
};

// Whether this output of y, the answer to c, changes with the weights of other channels.
bool MindsOtherWeights(const Case& c, const Tensor& y, int64_t output, Subject& subject) {
  const auto first_of = [&](int64_t n) { return n * c.w.size() / c.N; };
  const CodeRange codes = RangeOf(c.w.dtype());
  Case other = c;
  for (int64_t n = 0; n < c.N; ++n) {
    for (int64_t i = first_of(n); i < first_of(n + 1) && n != output % c.N; ++i)
      other.w.SetInt(i, codes.min + codes.max - c.w.IntAt(i));
  }
  const std::optional<Tensor> after = Ask(subject, other);
  return after && y.BitsAt(output) != after->BitsAt(output);
}

}  // namespace

std::optional<ShownOfSubject> FindMisreading(const Case& c, const Tensor& right, const Tensor& y,
                                             Subject& subject) {
  using AllReadings = std::map<int64_t, Reading>;
  const auto readings_of = [&](const Case& of) -> std::optional<AllReadings> {
    Asker asker(of, subject);
    return asker.Start() ? Readings(of, asker) : std::nullopt;
  };
  const auto departs = [&](const auto& each) { return !y.SameAt(each.first, right); };
  std::optional<AllReadings> readings;
  const bool small = IsSmall(c);
  if (small) {
    readings = readings_of(c);
    if (!readings || std::ranges::none_of(*readings, departs)) return std::nullopt;
  }
  // In a small image much is out of sight, and several mistakes read the same; a large one takes
  // too many questions.
  const std::optional<Case> fitting = OfFittingSize(c);
  std::optional<AllReadings> of_fitting;
  if (fitting && IsSmall(*fitting)) of_fitting = readings_of(*fitting);
  std::string not_in;
  if (readings && of_fitting && of_fitting->empty())
    not_in = fmt::format("in an image of {}x{}", fitting->window.in_h, fitting->window.in_w);
  const bool use_fitting = of_fitting && !of_fitting->empty();
  if (use_fitting) readings = std::move(of_fitting);
  if (!readings) return std::nullopt;
  // An output that reads nothing at all says nothing of where it reads. Of one or two elements one
  // that has no effect may be clamped away.
  const bool by_element = !HasTerms(c) && !HasWindow(c.op);
  std::erase_if(*readings, [&](const auto& each) {
    return each.second.is.empty() ||
           (by_element && Without(All(each.second.is), All(each.second.should)).empty());
  });
  if (readings->empty()) return std::nullopt;
  const Case& shown = use_fitting ? *fitting : c;
  const Speaker speaker(shown, *readings);
  auto [kind, sentence] = speaker.Sentence();
  // What belongs to another channel comes with its weights.
  if (sentence.find("input channels") != std::string::npos && HasWeights(c.op)) {
    const std::optional<Tensor> answer = Ask(subject, shown);
    if (answer && std::ranges::any_of(*readings, [&](const auto& each) {
          return MindsOtherWeights(shown, *answer, each.first, subject);
        }))
      sentence = "gives outputs of other channels, of their input channels and weights";
  }
  if (speaker.SaysHowFar()) {
    for (const Case& other : WithOtherWindows(shown)) {
      if (!Validate(other).empty() || !IsSmall(other)) continue;
      const std::optional<AllReadings> of_other = readings_of(other);
      if (!of_other || of_other->empty()) continue;
      if (Speaker(other, *of_other).Sentence().second == sentence) continue;
      sentence = "looks at windows that lie elsewhere than they should";
      const bool by_padding = other.window.pad_top != shown.window.pad_top ||
                              other.window.pad_left != shown.window.pad_left;
      kind = by_padding ? FindingKind::kPadding : FindingKind::kIndex;
      break;
    }
  }
  for (const auto& [size, other] : InOtherSizes(shown)) {
    if (!not_in.empty()) break;
    if (!Validate(other).empty() || !IsSmall(other)) continue;
    const std::optional<AllReadings> of_other = readings_of(other);
    if (of_other && of_other->empty()) not_in = size;
  }
  constexpr size_t kMostNamed = 4;
  const std::string where =
      !use_fitting      ? ""
      : HasWindow(c.op) ? fmt::format("in an image of {}x{} ", shown.window.in_h, shown.window.in_w)
                        : fmt::format("in the first {} of the rows ", shown.M);
  return ShownOfSubject{
      kind, sentence,
      fmt::format("{}{}; so {} of {} outputs read otherwise than they should{}", where,
                  speaker.Example(readings->begin()->first), readings->size(), shown.M * shown.N,
                  speaker.ChannelsText(kMostNamed)),
      not_in};
}

}  // namespace qualm::triage
