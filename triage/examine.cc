// SPDX-License-Identifier: Apache-2.0
#include "triage/examine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/rng.h"
#include "core/scaled_cast.h"
#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "properties/adapt.h"
#include "properties/gen/gen.h"
#include "triage/ask.h"
#include "triage/causes.h"
#include "triage/code_length.h"
#include "triage/cover.h"
#include "triage/vary.h"

namespace qualm::triage {
namespace {

// So many answers that bear a cause out are enough to stop asking about it.
constexpr size_t kPlenty = 6;
// The least number of drawn cases on which a cause is compared with the subject, even if borne out.
constexpr int kDrawn = 6;
// And on cases with less of what a condition may be about.
constexpr int kReduced = 24;

// The properties of a case on which a fault may depend: sizes, and modes such as types.
struct Shape {
  int64_t k = 0, n = 0, m = 0;
  int64_t channels = 0, width = 0;  // of an image, and of its output
  int64_t taps = 0;                 // of a kernel, where they are not the terms of the sum
  int64_t kernel_h = 0, kernel_w = 0, stride_h = 0, stride_w = 0;
  int64_t block = 0;  // of weights
  std::array<std::string, 52> modes;
  // The first ones; and by these too kernels choose a loop.
  static constexpr size_t kModesOfTypes = 3, kModesOfDispatch = 19;
};
struct Size {
  const char* name;
  int64_t Shape::* of;
  bool in_lanes = true;  // a loop over it may go by vectors or blocks; else a few values are usual
};
constexpr std::array kSizes{Size{"K", &Shape::k},
                            Size{"N", &Shape::n},
                            Size{"M", &Shape::m},
                            Size{"C", &Shape::channels},
                            Size{"the width of the output", &Shape::width},
                            Size{"the number of taps", &Shape::taps},
                            Size{"the height of the kernel", &Shape::kernel_h, false},
                            Size{"the width of the kernel", &Shape::kernel_w, false},
                            Size{"the stride of rows", &Shape::stride_h, false},
                            Size{"the stride of columns", &Shape::stride_w, false},
                            Size{"the size of blocks", &Shape::block, false}};
bool AllZero(const std::vector<int32_t>& list) {
  return std::ranges::all_of(list, [](int32_t value) { return value == 0; });
}

bool AnyBelowZero(const std::vector<int32_t>& list) {
  return std::ranges::any_of(list, [](int32_t value) { return value < 0; });
}

// Every code of the tensor lies in [low, high].
bool AllWithin(const Tensor& tensor, int32_t low, int32_t high) {
  if (!IsCode(tensor.dtype())) return false;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.IntAt(i) < low || tensor.IntAt(i) > high) return false;
  }
  return true;
}

// By what a sum is multiplied, of every channel.
bool HasMultiplier(const Case& c) {
  return !c.multiplier.empty() ||
         (HasSums(c) && !c.x_q.scale.empty() && !c.w_q.scale.empty() && !c.out_q.scale.empty());
}
bool AllBelowOne(const Case& c) {
  if (!c.multiplier.empty())
    return std::ranges::all_of(c.multiplier, [](float value) { return value < 1; });
  return std::ranges::all_of(c.w_q.scale, [&](float scale) {
    return double{c.x_q.scale_at(0)} * scale < c.out_q.scale_at(0);
  });
}

bool AllPowersOfTwo(const Case& c) {
  const auto is_power = [](double value) {
    int exponent = 0;
    return std::frexp(value, &exponent) == 0.5;
  };
  if (!c.multiplier.empty()) return std::ranges::all_of(c.multiplier, is_power);
  const double x = c.x_q.scale_at(0), out = c.out_q.scale_at(0);
  return std::ranges::all_of(c.w_q.scale,
                             [&](float scale) { return is_power(x * double{scale} / out); });
}

Shape ShapeOf(const Case& c) {
  const auto type = [](const char* what, const Tensor& tensor) {
    return fmt::format("where {} is {}", what, Name(tensor.dtype()));
  };
  const auto flag = [](const char* what, bool value) {
    return fmt::format("where {} is {}", what, value);
  };
  const auto whether = [](std::string_view yes, std::string_view no, bool value) {
    return "where " + std::string(value ? yes : no);
  };
  const bool pair = HasTwoInputs(c.op);
  const std::string x = pair ? "a" : "x", w = pair ? "b" : "w";
  const Window& v = c.window;
  return {
      RowOf(c.op).layout == Layout::kPool ? 0 : c.K,
      c.N,
      c.M,
      HasWindow(c.op) ? v.in_c : 0,
      HasWindow(c.op) ? v.out_w() : 0,
      c.op == Op::kConv2d || RowOf(c.op).layout == Layout::kPool ? v.kernel_h * v.kernel_w : 0,
      HasWindow(c.op) ? v.kernel_h : 0,
      HasWindow(c.op) ? v.kernel_w : 0,
      HasWindow(c.op) ? v.stride_h : 0,
      HasWindow(c.op) ? v.stride_w : 0,
      c.w_block,
      {type(x.c_str(), c.x),
       type(w.c_str(), c.w),
       fmt::format("where the output is {}", Name(c.out_dtype)),
       whether("parameters are per tensor", "parameters are per channel", !c.per_channel),
       whether("there is a bias", "there is no bias", c.bias || c.bias_i32),
       whether("there is a relu", "there is no relu", c.relu),
       whether("M is 1", "M is 2 or more", c.M == 1),
       whether("the output is codes", "the output is " + std::string(Name(c.out_dtype)),
               IsCode(c.out_dtype)),
       whether("there is padding", "there is no padding", v.has_padding()),
       whether("there is one group", "there are several groups",
               v.groups <= 1 || c.op == Op::kDepthwise),
       whether("the stride is 1", "a stride is 2 or more", v.stride_h <= 1 && v.stride_w <= 1),
       whether("the kernel is 1x1", "the kernel has several taps", v.kernel_h * v.kernel_w <= 1),
       whether("the zero point of " + x + " is 0", "the zero point of " + x + " is not 0",
               AllZero(c.x_q.zero_point)),
       whether(pair ? "the zero point of b is 0" : "the zero points of w are 0",
               pair ? "the zero point of b is not 0" : "a zero point of w is not 0",
               AllZero(c.w_q.zero_point)),
       !HasWindow(c.op) ? "" : fmt::format("where the kernel is {}x{}", v.kernel_h, v.kernel_w),
       whether("the dilation is 1", "a dilation is 2 or more",
               v.dilation_h <= 1 && v.dilation_w <= 1),
       !HasWeights(c.op) ? ""
                         : whether("weights have fewer than 8 bits", "weights have 8 bits",
                                   BitsOf(c.w.dtype()) < 8),
       !HasWindow(c.op) ? ""
                        : whether("the paddings of opposite sides are equal",
                                  "the paddings of opposite sides differ",
                                  v.pad_top == v.pad_bottom && v.pad_left == v.pad_right),
       !HasWindow(c.op)
           ? ""
           : whether("the padding above is that on the left",
                     "the padding above is not that on the left", v.pad_top == v.pad_left),
       flag("ceil_mode", c.window.ceil_mode),
       flag("count_include_pad", c.window.count_include_pad),
       whether("the bias is int32", "there is no int32 bias", c.bias_i32.has_value()),
       whether("the bias is float", "there is no float bias", c.bias.has_value()),
       whether("N is 1", "N is 2 or more", c.N == 1),
       whether("K is 1", "K is 2 or more", c.K == 1),
       whether("there is padding above", "there is no padding above", v.pad_top > 0),
       whether("there is padding below", "there is no padding below", v.pad_bottom > 0),
       whether("there is padding on the left", "there is no padding on the left", v.pad_left > 0),
       whether("there is padding on the right", "there is no padding on the right",
               v.pad_right > 0),
       whether("there is one image", "there are several images", v.batch <= 1),
       whether("the stride of rows is 1", "the stride of rows is 2 or more", v.stride_h <= 1),
       whether("the stride of columns is 1", "the stride of columns is 2 or more", v.stride_w <= 1),
       whether("the dilation of rows is 1", "the dilation of rows is 2 or more", v.dilation_h <= 1),
       whether("the dilation of columns is 1", "the dilation of columns is 2 or more",
               v.dilation_w <= 1),
       whether("the zero point of " + x + " is below 0",
               "the zero point of " + x + " is not below 0", AnyBelowZero(c.x_q.zero_point)),
       whether(pair ? "the zero point of b is below 0" : "a zero point of w is below 0",
               pair ? "the zero point of b is not below 0" : "no zero point of w is below 0",
               AnyBelowZero(c.w_q.zero_point)),
       !IsCode(c.x.dtype())
           ? ""
           : whether(x + " has 16 bits", x + " has at most 8 bits", IsWideCode(c.x.dtype())),
       whether("the output zero point is 0", "the output zero point is not 0",
               AllZero(c.out_q.zero_point)),
       !HasMultiplier(c)
           ? ""
           : whether("the multiplier is below 1", "a multiplier is 1 or more", AllBelowOne(c)),
       !pair ? ""
             : whether("the scales of a and b are equal", "the scales of a and b differ",
                       c.x_q.scale == c.w_q.scale),
       !pair ? ""
             : whether("a has the scale of the output", "a has another scale than the output",
                       c.x_q.scale == c.out_q.scale),
       whether("no weight lies beyond 64", "a weight lies beyond 64", AllWithin(c.w, -64, 64)),
       whether("no weight is below 0", "a weight is below 0", AllWithin(c.w, 0, 255)),
       whether("no code of x is above 127", "a code of x is above 127",
               AllWithin(c.x, INT32_MIN, 127)),
       whether("no code of x is below 0", "a code of x is below 0", AllWithin(c.x, 0, INT32_MAX)),
       !HasWindow(c.op) ? ""
                        : whether("the kernel has an even height", "the kernel has an odd height",
                                  v.kernel_h % 2 == 0),
       !HasWindow(c.op) ? ""
                        : whether("the kernel has an even width", "the kernel has an odd width",
                                  v.kernel_w % 2 == 0),
       !HasWindow(c.op)
           ? ""
           : whether("the image has one line", "the image has several lines", v.in_h == 1),
       c.op == Op::kDepthwise || v.groups < 2 ? ""
                                              : fmt::format("where there are {} groups", v.groups),
       !HasWeights(c.op) || HasWindow(c.op)
           ? ""
           : whether("the weights are in blocks", "the weights are in no blocks", c.w_block != 0),
       !HasMultiplier(c) ? ""
                         : whether("multipliers are powers of two",
                                   "a multiplier is no power of two", AllPowersOfTwo(c)),
       c.op != Op::kTable ? "" : fmt::format("where the function is {}", Name(c.function))}};
}

// One further answer, beside what a hypothesis says of it.
struct Answered {
  Shape shape = {};
  double saved = 0;      // bits, by the prediction
  bool departs = false;  // the hypothesis predicts so
  bool near = false;
  bool bears_out = false, against = false, otherwise = false, stray = false;
  bool may_hide = false;  // other faults that are known act there too
  bool inside = false;    // a number that departs as predicted is none at which codes saturate
};

// Whether the output is the lowest or highest code of its type, which anything that saturates
// gives.
bool IsAtAnEnd(const Tensor& y, int64_t i) {
  if (!IsCode(y.dtype())) return false;
  const CodeRange range = RangeOf(y.dtype());
  return y.IntAt(i) <= range.min || y.IntAt(i) >= range.max;
}

struct Tested {
  Hypothesis causes;
  std::vector<Answered> answers;
  bool refuted = false;
  int drawn = 0, reduced = 0;
  bool unworded = false;  // it needs a condition, and none of those that have words is right
  std::string exception;  // the first answer that it does not give

  // Whether it says how every answer is rounded, so that each one may contradict it.
  const Convention* convention() const { return causes.front()->convention; }
  bool says_rounding() const {
    return convention() != nullptr || std::ranges::any_of(causes, [](const Cause* cause) {
             return cause->stage == CauseStage::kRound || cause->stage == CauseStage::kScale;
           });
  }
  // A convention says nothing of a case that it does not define.
  bool SpeaksOf(const Case& c) const {
    return convention() == nullptr || convention()->cannot_run(c).empty();
  }

  int64_t count(bool Answered::* what) const {
    return std::ranges::count_if(answers, [&](const Answered& each) { return each.*what; });
  }
  bool settled() const {
    const auto bearing_out = static_cast<size_t>(count(&Answered::bears_out));
    const auto against = static_cast<size_t>(count(&Answered::against));
    return refuted ||
           (against == 0 ? bearing_out >= kPlenty : bearing_out + against >= 6 * kPlenty);
  }
};

// A condition that holds for the case found, what it takes to choose it, and whether it holds for
// another case.
struct Candidate {
  std::string text;
  double bits = 0;
  std::function<bool(const Shape&)> holds;
  int64_t Shape::* size_of = nullptr;  // of a condition on one size
  bool of_type = false;
  // Of two, which are not both of them on a type: drawn cases have to bear it out.
  bool of_two = false, of_two_sizes = false;
  // Told with another one too. Most conditions separate answers by chance where two are chosen.
  bool pairs = false;
};

// Where no condition separates all answers, two that do together, or three: each holds wherever the
// cause is borne out, and none is idle.
void AddPairs(const Tested& tested, std::vector<Candidate>& candidates) {
  constexpr size_t kMostOfThem = 24;
  constexpr int64_t kLeast = 3;  // answers that one of them alone lets out
  constexpr double kMoreBits = 5;
  const auto excluded = [&](const Candidate& where) {
    std::vector<bool> out;
    for (const Answered& each : tested.answers)
      if (each.against) out.push_back(!where.holds(each.shape));
    return out;
  };
  std::vector<std::pair<const Candidate*, std::vector<bool>>> necessary;
  for (const Candidate& where : candidates) {
    const bool holds = std::ranges::all_of(tested.answers, [&](const Answered& each) {
      return !each.bears_out || where.holds(each.shape);
    });
    if (where.text.empty() || !holds) continue;
    std::vector<bool> out = excluded(where);
    if (std::ranges::all_of(out, std::identity())) return;  // one is enough
    if (where.pairs && std::ranges::any_of(out, std::identity()))
      necessary.emplace_back(&where, std::move(out));
  }
  // First those that say most.
  std::ranges::sort(necessary, {}, [](const auto& each) {
    return std::tuple(-std::ranges::count(each.second, true), each.first->bits, each.first);
  });
  if (necessary.size() > kMostOfThem) necessary.resize(kMostOfThem);
  using Chosen = std::vector<const std::pair<const Candidate*, std::vector<bool>>*>;
  // Together they let out every answer that is against, and each of them some alone.
  const auto separate = [](const Chosen& chosen) {
    std::vector<int64_t> alone(chosen.size());
    for (size_t at = 0; at < chosen.front()->second.size(); ++at) {
      const auto lets_out = [at](const auto* each) { return each->second[at]; };
      const auto out = std::ranges::count_if(chosen, lets_out);
      if (out == 0) return false;
      const auto first = std::ranges::find_if(chosen, lets_out);
      if (out == 1) ++alone[static_cast<size_t>(first - chosen.begin())];
    }
    return std::ranges::min(alone) >= kLeast;
  };
  const auto is_of_size = [](const auto* each) { return each->first->size_of != nullptr; };
  std::vector<Candidate> found;
  const auto add = [&](const Chosen& chosen) {
    Candidate all = *chosen.front()->first;
    std::vector<std::function<bool(const Shape&)>> parts{all.holds};
    for (size_t i = 1; i < chosen.size(); ++i) {
      const Candidate& part = *chosen[i]->first;
      all.text += i + 1 == chosen.size() ? " and " : ", ";
      all.text += part.text.substr(std::string_view("where ").size());
      all.bits += part.bits + kMoreBits;
      all.of_type &= part.of_type;
      parts.push_back(part.holds);
    }
    found.push_back({.text = std::move(all.text),
                     .bits = all.bits,
                     .holds =
                         [parts = std::move(parts)](const Shape& shape) {
                           return std::ranges::all_of(
                               parts, [&](const auto& part) { return part(shape); });
                         },
                     .of_two = chosen.size() > 2 || !all.of_type,
                     .of_two_sizes = std::ranges::all_of(chosen, is_of_size)});
  };
  for (size_t i = 0; i < necessary.size(); ++i) {
    for (size_t j = i + 1; j < necessary.size(); ++j) {
      const Chosen two{&necessary[i], &necessary[j]};
      if (separate(two)) add(two);
    }
  }
  // A loop for one kernel, stride and type: three that no two replace.
  constexpr size_t kMostOfThree = 14;
  const size_t several = found.empty() ? std::min(necessary.size(), kMostOfThree) : 0;
  for (size_t i = 0; i < several; ++i) {
    for (size_t j = i + 1; j < several; ++j) {
      for (size_t k = j + 1; k < several; ++k) {
        const Chosen three{&necessary[i], &necessary[j], &necessary[k]};
        if (std::ranges::none_of(three, is_of_size) && separate(three)) add(three);
      }
    }
  }
  candidates.insert(candidates.end(), std::make_move_iterator(found.begin()),
                    std::make_move_iterator(found.end()));
}

// The conditions among which one is chosen. A size is bounded where no answer in between leaves the
// bound open, so that the sentence says no more than was asked.
std::vector<Candidate> ConditionsOf(const Shape& base, const Tested& tested) {
  std::vector<Candidate> candidates{{"", 0, [](const Shape&) { return true; }}};
  constexpr double kBitsOfMode = 5;  // one of 51, few of which differ among cases of an operation
  for (size_t i = 0; i < base.modes.size(); ++i) {
    const bool is_told = std::ranges::count(candidates, base.modes[i], &Candidate::text) > 0;
    if (base.modes[i].empty() || is_told) continue;
    candidates.push_back(
        {.text = base.modes[i],
         .bits = kBitsOfMode,
         .holds = [i, mode = base.modes[i]](const Shape& s) { return s.modes[i] == mode; },
         .of_type = i < Shape::kModesOfTypes,
         .pairs = i < Shape::kModesOfDispatch});
  }
  for (const auto& [name, size_of, in_lanes] : kSizes) {
    std::set<int64_t> in{base.*size_of}, out;
    for (const Answered& each : tested.answers) {
      if (each.bears_out) in.insert(each.shape.*size_of);
      if (each.against) out.insert(each.shape.*size_of);
    }
    if (out.empty()) continue;
    // Which size, and which bound or remainder. Kernels seldom fail on small sizes alone.
    const double bits_of_bound = 1 + std::log2(static_cast<double>(in.size() + out.size()));
    constexpr double kBitsOfUpper = 3, kBitsOfRest = 6;
    const int64_t least = *in.begin(), most = *in.rbegin();
    candidates.push_back({fmt::format("where {} is {} or more", name, least), bits_of_bound,
                          [=](const Shape& s) { return s.*size_of >= least; }, size_of});
    candidates.back().pairs = size_of == &Shape::block;  // a kernel for large blocks, and for a row
    // Of few sizes each has to be asked: a kernel that is wrong at 3 and 5 may be right at 4.
    constexpr int64_t kFew = 8;
    if (most > kFew || std::ssize(in) == most - least + 1) {
      candidates.push_back({fmt::format("where {} is {}{}", name, most, most > 1 ? " or less" : ""),
                            bits_of_bound + kBitsOfUpper,
                            [=](const Shape& s) { return s.*size_of <= most; }, size_of});
    }
    if (!in_lanes && in.size() == 1) {
      candidates.push_back({fmt::format("where {} is {}", name, least),
                            bits_of_bound + kBitsOfUpper,
                            [=](const Shape& s) { return s.*size_of == least; }, size_of});
      candidates.back().pairs = true;
    }
    for (const int64_t lanes : {2, 4, 8, 16, 32, 64}) {
      if (!in_lanes) break;
      const int64_t rest = base.*size_of % lanes;
      candidates.push_back({fmt::format("where {} % {} is {}", name, lanes, rest), kBitsOfRest,
                            [=](const Shape& s) { return s.*size_of % lanes == rest; }, size_of});
      candidates.push_back({fmt::format("where {} % {} is not 0", name, lanes), kBitsOfRest,
                            [=](const Shape& s) { return rest != 0 && s.*size_of % lanes != 0; },
                            size_of});
      // What is left behind whole vectors, in a loop that needs one of them. A cause that acts in
      // such tails alone says so itself.
      const bool elsewhere = std::ranges::any_of(tested.answers, [&](const Answered& each) {
        return each.departs && each.shape.*size_of % lanes == 0;
      });
      if (rest == 0 || base.*size_of < lanes || lanes == 2 || !elsewhere) continue;
      candidates.push_back(
          {fmt::format("where {0} is above {1} and {0} % {1} is not 0", name, lanes),
           kBitsOfRest + 1,
           [=](const Shape& s) { return s.*size_of > lanes && s.*size_of % lanes != 0; }, size_of});
    }
  }
  AddPairs(tested, candidates);
  return candidates;
}

// What a subject answers that has certain faults: these alone, or these and the established ones.
struct Predicted {
  Tensor alone, together;
  bool Has(int64_t i, uint32_t bits) const {
    return alone.BitsAt(i) == bits || together.BitsAt(i) == bits;
  }
  friend bool operator==(const Predicted&, const Predicted&) = default;
};

class Examiner {
 public:
  Examiner(const Case& c, const Tensor& actual, const RunContext& context,
           const std::vector<Hypothesis>& hypotheses, Subject& subject,
           std::span<const Hypothesis> established, const ExamineLimits& limits)
      : base_(c),
        actual_(actual),
        context_(context),
        subject_(subject),
        model_(ModelOf(subject.contract())),
        established_(established),
        limits_(limits) {
    for (const Hypothesis& causes : hypotheses) tested_.emplace_back().causes = causes;
    about_rounding_ = std::ranges::any_of(tested_, [](const Tested& tested) {
      return std::ranges::any_of(
          tested.causes, [](const Cause* cause) { return cause->stage == CauseStage::kRound; });
    });
  }

  Examination Run() {
    constexpr uint64_t kMostTries = 2000;
    // Another poison than that of other questions: the subject runs, nothing is remembered.
    context_.poison = kPoison;
    // At least this many drawn cases are tried: they may contradict what near cases bear out.
    constexpr uint64_t kLeastTries = 600;
    for (uint64_t i = 0; i < kMostTries && !(Done() && (i >= kLeastTries || Spent())); ++i) {
      const bool near = i % 4 != 3;
      const uint64_t seed = MixSeed(kSeed, i);
      const bool reduced = i % 4 == 1;
      std::optional<Case> c = near ? Varied(base_, seed) : Drawn(i);
      if (c && reduced) c = Reduced(*c, seed);
      if (c) Try(*c, near, reduced);
    }
    if (work_ >= limits_.most_work) AskSmall();
    AskDrawn();
    return Result();
  }

 private:
  static constexpr uint64_t kSeed = 20261123;

  bool Spent() const {
    return examination_.asked >= limits_.most_calls || work_ >= limits_.most_work || Alive() == 0;
  }
  bool Done() const {
    return Spent() ||
           (std::ranges::all_of(tested_, &Tested::settled) && (Alive() < 2 || alike_ > kMostAlike));
  }
  int64_t Alive() const {
    return std::ranges::count_if(tested_, [](const Tested& tested) { return !tested.refuted; });
  }

  static int64_t WorkOf(const Case& c) {
    return c.M * c.N * std::max<int64_t>(c.K, 1) + c.x.size() + c.w.size();
  }
  bool Refused(const Case& c) const {
    return !subject_.CannotRun(c).empty() || (model_ != nullptr && !model_->cannot_run(c).empty());
  }

  // A small case of the operation, drawn without regard to the case found.
  std::optional<Case> Drawn(uint64_t i) const {
    const uint64_t seed = MixSeed(kSeed, i);
    const bool tie = about_rounding_ && i % 8 == 3;
    const Case c = tie ? gen::Draw(base_.op, gen::Theme::kTies, seed) : gen::Draw(base_.op, seed);
    if (c.x.size() + c.w.size() > 4096 || c.M * c.N * std::max<int64_t>(c.K, 1) > 16384)
      return std::nullopt;
    return base_.w_block != 0 || HasFloatX(base_) || IsScaledCast(base_) ? TakenBy(subject_, c)
                                                                         : AdaptTo(subject_, c);
  }

  // What the causes give, or the right output where they change nothing.
  Predicted Predict(const Case& c, const Hypothesis& causes, const Tensor& right) const {
    Tensor alone = causes.empty() ? right : Counterfactual(c, causes, model_).value_or(right);
    const Hypothesis all = Together(c, established_, model_, causes);
    if (all.size() == causes.size()) return {alone, alone};
    return {alone, Counterfactual(c, all, model_).value_or(alone)};
  }

  // What the causes give without the place that they end with; nullopt if they end with none.
  std::optional<Tensor> Everywhere(const Case& c, Hypothesis causes) const {
    if (causes.back()->stage != CauseStage::kPlace) return std::nullopt;
    causes.pop_back();
    return Counterfactual(c, causes, model_);
  }

  void Try(const Case& c, bool near, bool reduced) {
    const Tensor right = RightOutput(c, model_);
    const Predicted without = Predict(c, {}, right);
    work_ += (Alive() + 1) * WorkOf(c);
    std::vector<std::optional<Predicted>> predicted;
    bool worth = false;
    std::optional<Predicted> first;
    bool differ = false;
    for (const Tested& tested : tested_) {
      if (tested.refuted) {
        predicted.emplace_back();
        continue;
      }
      Predicted y = Predict(c, tested.causes, right);
      worth |= (!tested.settled() || (!near && tested.drawn < kDrawn) ||
                (reduced && tested.reduced < kReduced)) &&
               y != without;
      differ |= first && *first != y;
      if (!first) first = y;
      predicted.emplace_back(std::move(y));
    }
    alike_ = differ ? 0 : alike_ + 1;
    // The second half of the questions is kept for cases that tell the remaining causes apart.
    if (2 * examination_.asked >= limits_.most_calls && Alive() > 1) worth = false;
    if ((!worth && !differ) || Refused(c)) return;
    const Outcome outcome = subject_.Run(c, context_);
    ++examination_.asked;
    if (!outcome.ok() || outcome.y.shape() != right.shape()) return;
    for (size_t i = 0; i < tested_.size(); ++i) {
      if (!predicted[i] || !tested_[i].SpeaksOf(c)) continue;
      Hold(*predicted[i], c, without, outcome.y, near, tested_[i]);
      tested_[i].reduced += reduced && tested_[i].answers.back().departs;
    }
  }

  // The case found is so large that all work went into cases like it. Asks whether smaller ones
  // show the fault too.
  void AskSmall() {
    constexpr uint64_t kFirst = 6000, kTries = 400;
    constexpr int kMostCalls = 32;
    const auto is_open = [](const Tested& tested) {
      return !tested.refuted && tested.drawn < 2 * kDrawn;
    };
    int calls = 0;
    for (uint64_t i = 0; i < kTries && calls < kMostCalls; ++i) {
      if (std::ranges::none_of(tested_, is_open)) return;
      const std::optional<Case> c = Drawn(kFirst + i);
      if (!c || Refused(*c)) continue;
      const Tensor right = RightOutput(*c, model_);
      const Predicted without = Predict(*c, {}, right);
      std::optional<Tensor> y;
      for (Tested& tested : tested_) {
        if (!is_open(tested) || !tested.SpeaksOf(*c)) continue;
        const Predicted predicted = Predict(*c, tested.causes, right);
        if (predicted == without) continue;
        if (!y) {
          const Outcome outcome = subject_.Run(*c, context_);
          ++calls;
          ++examination_.asked;
          if (!outcome.ok() || outcome.y.shape() != right.shape()) break;
          y = outcome.y;
        }
        Hold(predicted, *c, without, *y, false, tested);
      }
    }
  }

  // The cases so far were asked because a hypothesis acts there. What says how a kernel rounds
  // speaks of all others as well.
  void AskDrawn() {
    constexpr uint64_t kFirst = 4000;
    const auto any = [&] {
      return std::ranges::any_of(tested_, [](const Tested& tested) {
        return !tested.refuted && tested.says_rounding() &&
               tested.count(&Answered::bears_out) > 1 && tested.count(&Answered::stray) == 0;
      });
    };
    int64_t calls = 0;
    for (uint64_t i = 0; i < 4 * static_cast<uint64_t>(limits_.most_drawn); ++i) {
      if (calls == limits_.most_drawn || !any()) return;
      const std::optional<Case> c = Drawn(kFirst + i);
      if (!c || Refused(*c)) continue;
      const Outcome outcome = subject_.Run(*c, context_);
      ++calls;
      ++examination_.asked;
      const Tensor right = RightOutput(*c, model_);
      if (!outcome.ok() || outcome.y.shape() != right.shape()) continue;
      const Predicted without = Predict(*c, {}, right);
      for (Tested& tested : tested_) {
        if (tested.refuted || !tested.says_rounding() || !tested.SpeaksOf(*c)) continue;
        Hold(Predict(*c, tested.causes, right), *c, without, outcome.y, false, tested);
      }
    }
  }

  // What comes nearest to the answer: the hypothesis alone, or with the established faults.
  static Tensor Nearest(const Predicted& predicted, const Tensor& actual) {
    Tensor nearest = predicted.alone;
    for (int64_t i = 0; i < actual.size(); ++i) {
      if (predicted.together.SameAt(i, actual)) nearest.CopyFrom(actual, i, 1, i);
    }
    return nearest;
  }

  // Compares an answer with the prediction of a hypothesis, and with the answer of a subject that
  // is `without` it.
  void Hold(const Predicted& predicted, const Case& c, const Predicted& without,
            const Tensor& actual, bool near, Tested& tested) const {
    int64_t given = 0, right = 0, other = 0, more = 0, far = 0;
    bool inside = false;
    for (int64_t i = 0; i < actual.size(); ++i) {
      const uint32_t is = actual.BitsAt(i);
      const bool said = predicted.Has(i, is), said_without = without.Has(i, is);
      const bool acts = !predicted.alone.SameAt(i, without.alone) ||
                        !predicted.together.SameAt(i, without.together);
      if (!acts) {
        more += said_without ? 0 : 1;
        far += !said_without && DistanceLsb(predicted.alone, actual, i) > 1 ? 1 : 0;
      } else if (!said || !said_without) {  // else nothing is told
        (said ? given : said_without ? right : other) += 1;
        inside |= said && !IsAtAnEnd(actual, i);
      }
    }
    Answered answered{.shape = ShapeOf(c), .inside = inside};
    answered.saved = BitsSaved(c, Nearest(without, actual), Nearest(predicted, actual), actual);
    answered.near = near;
    answered.departs = given + right + other > 0;
    answered.against = right > 0;
    answered.may_hide = without.together != without.alone;
    // "Only there" is told by answers that are right elsewhere, where the cause acts everywhere
    // else: in a row of 7 columns all are among the last N % 16.
    const bool gives = given > 0 && right == 0 && other == 0;
    std::optional<Tensor> everywhere;
    if (gives || (more > 0 && !near)) everywhere = Everywhere(c, tested.causes);
    answered.bears_out = gives && (!everywhere || (more == 0 && *everywhere != predicted.alone));
    // A drawn case may show another fault of the subject.
    answered.otherwise = other > 0 || (more > 0 && (near || everywhere == actual));
    // What a rule of rounding has to say of an answer is a last bit. All else is another fault.
    answered.stray =
        more > 0 && !near && tested.says_rounding() && (tested.convention() != nullptr || far == 0);
    if ((answered.against || answered.otherwise || answered.stray) && tested.exception.empty()) {
      if (const auto at = FirstDivergence(predicted.alone, actual))
        tested.exception = fmt::format("{}: {} instead of {} at index {}", Describe(c), at->actual,
                                       at->expected, at->index);
    }
    tested.drawn += !near && answered.departs;
    tested.answers.push_back(std::move(answered));
    // What was wrong several times and hardly ever right will not be right.
    const int64_t against = tested.count(&Answered::against);
    tested.refuted |= against >= 3 * static_cast<int64_t>(kPlenty) &&
                      against > 6 * tested.count(&Answered::bears_out);
  }

  struct Fit {
    Candidate where;
    Examination::Weighed weighed;
  };

  // The hypothesis under each condition that holds of every answer, and under none.
  // Without `chance` only those that the answers show by more than chance.
  std::vector<Fit> Fits(const Tested& tested, bool chance = false) const {
    const Shape base = ShapeOf(base_);
    const double found = BitsSaved(base_, RightOutput(base_, model_), actual_, actual_);
    std::vector<Fit> fits;
    for (const Candidate& where : ConditionsOf(base, tested)) {
      // How much shorter all answers become where the hypothesis is applied as the condition says.
      Examination::Weighed weighed{.causes = tested.causes,
                                   .bits = found - where.bits - BitsOf(tested.causes),
                                   .exception = tested.exception};
      int64_t outside = 0, lost = 0, certain = 0;
      std::set<int64_t> sizes_in, sizes_out;
      for (const Answered& each : tested.answers) {
        const bool holds = where.holds(each.shape);
        weighed.bits += holds ? each.saved : 0;
        weighed.bearing_out += holds && each.bears_out;
        weighed.drawn += holds && each.bears_out && !each.near;
        weighed.inside += holds && each.bears_out && each.inside;
        weighed.against += holds && each.against;
        weighed.otherwise += holds && each.otherwise;
        weighed.stray += each.stray;  // a condition does not say how the others are rounded
        const bool other = each.against || each.otherwise || each.stray;
        weighed.telling += holds && (each.bears_out || other);
        weighed.given += holds && each.bears_out && !other;
        certain += holds && each.against && !each.may_hide;
        outside += !holds && each.against;
        lost += !holds && each.bears_out;
        if (where.size_of == nullptr) continue;
        if (each.bears_out) sizes_in.insert(each.shape.*where.size_of);
        if (each.against) sizes_out.insert(each.shape.*where.size_of);
      }
      if (!where.text.empty()) {
        // A condition is told if it holds of every answer, and if chance would not separate them
        // so: which of them are right has to take more bits than choosing the condition. Answers of
        // one size are one.
        constexpr double kMargin = 2;
        const bool of_size = where.size_of != nullptr;
        const int64_t in = of_size ? std::ssize(sizes_in) : weighed.bearing_out;
        const int64_t out = of_size ? std::ssize(sizes_out) : outside;
        // Faults that are known beside it hide it now and then.
        const int64_t hidden = established_.empty() ? 0 : weighed.bearing_out / 10;
        if (certain > 0 || weighed.against > hidden || lost > hidden ||
            (!chance && Log2Choose(in + out, out) < where.bits + kMargin))
          continue;
        weighed.where.text = where.text;
        weighed.where.of_size = of_size || where.of_two_sizes;
        weighed.where.of_two = where.of_two;
        weighed.where.holds = [holds = where.holds](const Case& c) { return holds(ShapeOf(c)); };
      }
      weighed.unworded = where.text.empty() && tested.unworded;
      if (!where.text.empty() && tested.unworded) continue;
      fits.push_back({where, std::move(weighed)});
    }
    return fits;
  }

  // The hypothesis under the condition that is worth most.
  Examination::Weighed Weigh(const Tested& tested) const {
    std::vector<Fit> fits = Fits(tested);
    return std::move(std::ranges::max_element(fits, {}, [](const Fit& fit) {
                       return fit.weighed.bits;
                     })->weighed);
  }

  // The hypothesis without a condition, and under each one that is worth as much as the best but
  // for a few bits.
  std::vector<Fit> LikelyFits(const Tested& tested) const {
    constexpr double kAhead = 2.5;
    std::vector<Fit> fits = Fits(tested);
    double most = -INFINITY;
    for (const Fit& fit : fits | std::views::drop(1)) most = std::max(most, fit.weighed.bits);
    std::erase_if(fits, [&](const Fit& fit) {
      return !fit.where.text.empty() && fit.weighed.bits <= most - kAhead;
    });
    return fits;
  }

  // Whether conditions on sizes say different things of a case.
  static bool SizesDiffer(const std::vector<Fit>& fits, const Shape& shape) {
    std::set<bool> said;
    for (const Fit& fit : fits)
      if (fit.where.size_of != nullptr) said.insert(fit.where.holds(shape));
    return said.size() > 1;
  }

  // Whether the case has a mode that no answer has which bears the cause out.
  static bool IsNew(const Tested& tested, const Shape& shape) {
    for (size_t i = 0; i < shape.modes.size(); ++i) {
      if (std::ranges::none_of(tested.answers, [&](const Answered& each) {
            return each.bears_out && each.shape.modes[i] == shape.modes[i];
          }))
        return true;
    }
    return false;
  }

  // Asks about a case. nullopt: it tells nothing of the causes, and is not asked; false: no answer.
  std::optional<bool> AskAbout(Tested& tested, const Case& c, bool near) {
    const Predicted without = Predict(c, {}, RightOutput(c, model_));
    const Predicted predicted = Predict(c, tested.causes, without.alone);
    if (predicted == without) return std::nullopt;
    const Outcome outcome = subject_.Run(c, context_);
    ++examination_.asked;
    if (!outcome.ok() || outcome.y.shape() != predicted.alone.shape()) return false;
    Hold(predicted, c, without, outcome.y, near, tested);
    return true;
  }

  // Several conditions may hold of all answers so far. Asks about cases on which they differ, until
  // one is left; then about those on which that one differs from what the answers only may show,
  // and about some others within it and outside of it.
  void TellConditionsApart(Tested& tested) {
    constexpr uint64_t kMostTries = 4000;
    constexpr int kMostCalls = 48, kMostOfNoDispute = 8, kMostOfSeen = 4;
    constexpr int kMostForPairs = 24;  // where no condition is left, two may be
    std::vector<Fit> fits, rivals;
    std::array<int, 2> of_no_dispute{};  // outside, within
    const auto weigh = [&] {
      fits = LikelyFits(tested);
      rivals = fits.size() <= 2 ? Fits(tested, true) : fits;
    };
    weigh();
    int calls = 0;
    bool differ = false;
    for (uint64_t i = 0; i < kMostTries && calls < (rivals.size() > 1 ? kMostCalls : kMostForPairs);
         ++i) {
      const uint64_t seed = MixSeed(kSeed + 1, i);
      std::optional<Case> c = i % 4 == 3 ? Drawn(kMostTries + i) : Varied(base_, seed);
      if (c && i % 2 == 1) c = Reduced(*c, seed);
      if (c && i % 8 == 4) c = Extended(*c, seed);
      // Other types of the same bits are seldom drawn.
      Tensor* const retyped = !c ? nullptr : i % 8 == 2 ? &c->w : i % 8 == 6 ? &c->x : nullptr;
      if (retyped != nullptr && IsCode(retyped->dtype())) {
        *retyped = OtherSign(*retyped);
        if (!Validate(*c).empty()) continue;
      }
      if (!c || Refused(*c)) continue;
      const Shape shape = ShapeOf(*c);
      const auto conditions = rivals | std::views::drop(1);  // behind the one that always holds
      const auto holding =
          std::ranges::count_if(conditions, [&](const Fit& fit) { return fit.where.holds(shape); });
      const bool told = holding == 0 || holding == std::ssize(conditions);
      int& undisputed = of_no_dispute[holding > 0 ? 1 : 0];
      // Drawn cases have to bear two conditions out.
      const bool wanted = told && holding > 0 && i % 4 == 3 && fits.size() == 2 &&
                          fits[1].where.of_two && fits[1].weighed.drawn < 2;
      if (told && fits.size() > 1 && (fits.size() > 2 || undisputed == kMostOfNoDispute) && !wanted)
        continue;
      // What no answer has borne out yet may contradict the one condition that is left.
      if (told && holding > 0 && undisputed >= kMostOfSeen && !IsNew(tested, shape) && !wanted)
        continue;
      differ |= SizesDiffer(fits, shape);
      const std::optional<bool> answered = AskAbout(tested, *c, i % 4 != 3);
      if (!answered) continue;
      ++calls;
      undisputed += told ? 1 : 0;
      if (!*answered) continue;
      const size_t before = fits.size();
      weigh();
      differ &= fits.size() == before;
    }
    bool asked_below = false;
    for (const Fit& fit : fits | std::views::drop(1)) asked_below |= AskBelow(fit.where, tested);
    if (asked_below) weigh();
    // Any of several sizes may be it where no case told them apart that could have. Of modes the
    // first is the likeliest.
    tested.unworded = fits.size() == 1 || (fits.size() > 2 && differ);
  }

  // Of "M is 6 or more" the sizes 5 and 4, if no answer tells of them: cases are cut to them.
  bool AskBelow(const Candidate& where, Tested& tested) {
    if (!where.text.ends_with(" or more") || HasWindow(base_.op)) return false;
    Case (*const cut)(const Case&, slice::Places) =
        where.size_of == &Shape::m   ? slice::Rows
        : where.size_of == &Shape::n ? slice::Channels
        : where.size_of == &Shape::k && HasSums(base_.op)
            ? +[](const Case& c, slice::Places terms) { return slice::Terms(c, terms); }
            : nullptr;
    if (cut == nullptr) return false;
    int64_t least = INT64_MAX, most_out = 0;
    for (const Answered& each : tested.answers) {
      const int64_t size = each.shape.*where.size_of;
      if (each.bears_out) least = std::min(least, size);
      if (each.against && !where.holds(each.shape)) most_out = std::max(most_out, size);
    }
    constexpr int64_t kMostSizes = 4;
    constexpr uint64_t kTries = 12;
    bool asked = false;
    for (int64_t size = least - 1; size > std::max(most_out, least - 1 - kMostSizes); --size) {
      for (uint64_t i = 0; i < kTries; ++i) {
        std::optional<Case> c = i == 0 ? base_ : Varied(base_, MixSeed(kSeed + 2, i));
        if (!c || ShapeOf(*c).*where.size_of < size) continue;
        *c = ProblemOf(cut(*c, slice::Range(0, size)));
        if (!Validate(*c).empty() || Refused(*c)) continue;
        if (!AskAbout(tested, *c, true).value_or(false)) continue;
        asked = true;
        break;
      }
    }
    return asked;
  }

  Examination Result() {
    std::vector<Examination::Weighed>& weighed = examination_.weighed;
    for (const Tested& tested : tested_) weighed.push_back(Weigh(tested));
    // No condition is told that has not been held to further cases: first those of single causes.
    constexpr int kMostHeld = 4;
    std::vector<size_t> conditional;
    for (size_t at = 0; at < weighed.size(); ++at) {
      const Tested& tested = tested_[at];
      const Examination::Weighed& each = weighed[at];
      // What many answers bear out, and no condition separates from the others, may take two.
      const bool may_take_two = !tested.refuted && each.causes.size() == 1 && each.against > 0 &&
                                each.otherwise == 0 &&
                                each.bearing_out >= static_cast<int64_t>(2 * kPlenty);
      if (!each.where.text.empty() || may_take_two) conditional.push_back(at);
    }
    std::ranges::sort(conditional, {}, [&](size_t at) {
      return std::tuple(weighed[at].where.text.empty(), weighed[at].causes.size(),
                        -weighed[at].bits);
    });
    int held = 0;
    for (const size_t at : conditional) {
      Tested& tested = tested_[at];
      const bool had_one = !weighed[at].where.text.empty();
      if (held++ < kMostHeld && !tested.refuted) {
        TellConditionsApart(tested);
        tested.unworded &= had_one;  // else none was contradicted
      } else {
        tested.unworded = had_one;
      }
      // The others have not been held to these cases.
      const double bits = weighed[at].bits;
      weighed[at] = Weigh(tested);
      weighed[at].bits = std::min(bits, weighed[at].bits);
    }
    MostWorthFirst(weighed);
    return std::move(examination_);
  }

  // The examination ends after this many cases on which all remaining causes predict the same.
  static constexpr int64_t kMostAlike = 150;

  const Case& base_;
  const Tensor& actual_;
  RunContext context_;
  Subject& subject_;
  const Convention* const model_;
  const std::span<const Hypothesis> established_;
  const ExamineLimits& limits_;
  std::vector<Tested> tested_;
  bool about_rounding_ = false;
  int64_t alike_ = 0;
  Examination examination_;
  int64_t work_ = 0;
};

}  // namespace

void MostWorthFirst(std::vector<Examination::Weighed>& all) {
  std::ranges::sort(all, {}, [](const Examination::Weighed& each) {
    return std::pair(-each.bits, NamesOf(each.causes, Op::kLinear));
  });
}

std::optional<TellingCase> FindTellingCase(const Case& c,
                                           std::span<const Hypothesis> explanations) {
  constexpr uint64_t kTries = 200;
  constexpr int64_t kLargest = 4096;
  std::optional<TellingCase> best;
  size_t most = 1;
  for (uint64_t i = 0; i < kTries && most < explanations.size(); ++i) {
    std::optional<Case> near = Varied(c, MixSeed(20261127, i));
    if (!near || near->M * near->N * std::max<int64_t>(near->K, 1) > kLargest) continue;
    const Tensor right = exact::Evaluate(*near);
    std::vector<Tensor> outputs;
    for (const Hypothesis& causes : explanations)
      outputs.push_back(Counterfactual(*near, causes).value_or(right));
    for (int64_t at = 0; at < right.size(); ++at) {
      std::set<uint32_t> different;
      for (const Tensor& y : outputs) different.insert(y.BitsAt(at));
      if (different.size() <= most) continue;
      most = different.size();
      best = TellingCase{ProblemOf(*near), at, {}};
      for (const Tensor& y : outputs) best->given.push_back(ElementText(y, at));
    }
  }
  return best;
}

Examination Examine(const Case& c, const Tensor& actual, const RunContext& context,
                    const std::vector<Hypothesis>& hypotheses, Subject& subject,
                    std::span<const Hypothesis> established, const ExamineLimits& limits) {
  return Examiner(c, actual, context, hypotheses, subject, established, limits).Run();
}

}  // namespace qualm::triage
