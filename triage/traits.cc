// SPDX-License-Identifier: Apache-2.0
#include "triage/traits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "oracles/exact/evaluate.h"
#include "properties/adapt.h"
#include "properties/gen/gen.h"
#include "triage/ask.h"
#include "triage/causes.h"
#include "triage/vary.h"

namespace qualm::triage {
namespace {

// One output, and what the exact computation says of it.
struct Output {
  const Case& c;
  int64_t index = 0;
  bool wrong = false;
  double off_by = 0;   // codes, or units in the last place
  double integer = 0;  // exact::Integers
  bool is_code = false;
  exact::Code code = {};  // of codes

  int64_t row() const { return index / c.N; }
  int64_t column() const { return index % c.N; }
  double scaled() const {
    return static_cast<double>(code.value - c.out_q.zero_point_at(column()));
  }
  // The float, the code or the sum from which an elementwise operation makes this output.
  bool has_input() const {
    const Layout layout = RowOf(c.op).layout;
    return layout == Layout::kElements && c.x.size() == c.M * c.N;
  }
  double input() const { return c.x.ValueAt(index); }
};

struct Trait {
  FindingKind kind;
  std::string sentence;
  std::function<bool(const Output&)> has;
  // Of a bound: outputs that do not have it, but nearly. Without right ones among them the bound is
  // not known.
  std::function<bool(const Output&)> nearly = nullptr;
  double bits = 5;  // what it takes to choose it
};

constexpr std::string_view kOnly = "is wrong only where";

std::vector<Trait> AllTraits(const Case& c) {
  using Kind = FindingKind;
  std::vector<Trait> all;
  const auto near_tie = [](const Output& o, double distance) {
    return o.is_code && o.code.tie_distance && *o.code.tie_distance <= distance && o.off_by <= 1;
  };
  all.push_back({Kind::kTie,
                 "is off by one on some exact ties: it rounds them otherwise, or rounds on the way",
                 [=](const Output& o) { return near_tie(o, 0); }});
  for (const int bits : {12, 10, 8, 6, 4, 3}) {
    all.push_back(
        {Kind::kRounding,
         fmt::format("is off by one next to ties, of the answers asked within 2^-{} of one: it "
                     "rounds on the way",
                     bits + 1),
         [=](const Output& o) { return near_tie(o, std::ldexp(1, -bits)); }});
  }
  all.push_back(
      {Kind::kClamp, "is wrong only where the value lies beyond the bounds", [](const Output& o) {
         return o.is_code && (o.code.value < o.code.lo || o.code.value > o.c.out_max);
       }});
  all.push_back({Kind::kClamp, "is wrong only where the highest code is right",
                 [](const Output& o) { return o.is_code && o.code.value >= o.c.out_max; }});
  all.push_back({Kind::kClamp, "is wrong only where the lowest code is right",
                 [](const Output& o) { return o.is_code && o.code.value <= o.code.lo; }});
  all.push_back({Kind::kClamp, "is wrong only where x is infinite",
                 [](const Output& o) { return o.has_input() && std::isinf(o.input()); }});
  all.push_back({Kind::kClamp, "is wrong only where x is NaN",
                 [](const Output& o) { return o.has_input() && std::isnan(o.input()); }});
  const auto large = [&](int bits, std::string_view what, auto magnitude) {
    const auto from = [=](int least) {
      return [=](const Output& o) { return magnitude(o) >= std::ldexp(1, least); };
    };
    all.push_back(
        {bits == 23 || bits == 24 ? Kind::kRounding : Kind::kInt32Overflow,
         fmt::format("is wrong only where {} is 2^{} or more, or -2^{} or less", what, bits, bits),
         from(bits), from(bits - 2)});
  };
  for (const int bits : {7, 8, 15, 16, 23, 24, 29, 30, 31, 32}) {
    large(bits, "the integer that is scaled", [bits](const Output& o) {
      const bool is_number =
          o.c.op != Op::kQuantize && o.c.op != Op::kSoftmax && (bits > 8 || !HasSums(o.c.op));
      return is_number ? std::abs(o.integer) : 0;
    });
    large(bits, "the scaled value",
          [](const Output& o) { return o.is_code ? std::abs(o.scaled()) : 0; });
  }
  all.push_back({Kind::kPadding, "is wrong only where a window reaches into the padding",
                 [](const Output& o) {
                   if (!HasWindow(o.c.op) || !o.c.window.has_padding()) return false;
                   return std::ranges::any_of(TapsOf(o.c.window, o.row()),
                                              [](const Tap& tap) { return tap.x_row < 0; });
                 }});
  all.push_back({Kind::kClamp, "is wrong only where x is the lowest code", [](const Output& o) {
                   return o.has_input() && IsCode(o.c.x.dtype()) &&
                          o.input() == RangeOf(o.c.x.dtype()).min;
                 }});
  all.push_back({Kind::kClamp, "is wrong only where x is the highest code", [](const Output& o) {
                   return o.has_input() && IsCode(o.c.x.dtype()) &&
                          o.input() == RangeOf(o.c.x.dtype()).max;
                 }});
  // Of a table that is indexed by the bits of the code. Other outputs come from no code.
  const bool of_codes = RowOf(c.op).layout == Layout::kElements && IsByteCode(c.x.dtype());
  for (int byte = 0; of_codes && byte < 256; ++byte) {
    all.push_back({Kind::kIndex,
                   fmt::format("is wrong only where the code of x is the byte {}", byte),
                   [byte](const Output& o) {
                     return o.has_input() && (static_cast<int>(o.input()) & 0xFF) == byte;
                   },
                   nullptr, 12});
  }
  return all;
}

// ---- Laws: how the wrong answers to one case follow from the right ones.

// What lies between is possible.
struct Interval {
  double low = -INFINITY, high = INFINITY;
  void MeetWith(double a, double b) {
    low = std::max(low, std::min(a, b));
    high = std::min(high, std::max(a, b));
  }
  bool empty() const { return low > high; }
};

// All outputs are the right ones with the other sign, or times a factor (of each channel, where it
// has a scale of its own), or plus an amount; one for the whole case, one for each channel, or one
// for each row.
enum class Law : uint8_t { kNegative, kFactor, kAmount, kAmountOfChannel, kAmountOfRow };
constexpr std::array kLaws{Law::kNegative, Law::kFactor, Law::kAmount, Law::kAmountOfChannel,
                           Law::kAmountOfRow};

// An output inside the bounds: before it is rounded, and what the subject made of it, in codes
// without the zero point, or in real units; and how far rounding may have moved it.
struct Inside {
  int64_t row = 0, column = 0;
  // An earlier row (column) has the same codes: what is the same in both says nothing of a law.
  bool row_again = false, column_again = false;
  bool wrong = false;
  double value = 0, given = 0, rounding = 0;
};

// Whether the answer keeps to the law; nullopt: too few outputs tell, or what the law adds is so
// little that it turns outputs next to a tie alone.
std::optional<bool> Keeps(Law law, const std::vector<Inside>& outputs, bool per_channel) {
  constexpr int64_t kSurplus = 6;  // outputs beyond those that fix the numbers of the law
  struct Group {
    Interval interval;
    double largest = 0;
    std::vector<double> wrong = {};  // values whose outputs are wrong
  };
  std::map<int64_t, Group> groups;
  int64_t telling = 0;
  double unit = 0;
  bool much = false;
  for (const Inside& o : outputs) {
    const bool of_channel = law == Law::kAmountOfChannel || (law == Law::kFactor && per_channel);
    const int64_t key = of_channel ? o.column : law == Law::kAmountOfRow ? o.row : 0;
    if (law == Law::kAmountOfRow ? o.column_again : o.row_again) continue;
    if (law == Law::kFactor && std::abs(o.value) < o.rounding / 2) continue;  // any factor
    if (law == Law::kNegative) {
      if (std::abs(o.given + o.value) > o.rounding) return false;
      much |= std::abs(o.value) > 2 * o.rounding;
      telling += o.wrong ? 1 : 0;
      continue;
    }
    const double by = law == Law::kFactor ? o.value : 1;
    const double least = (o.given - o.rounding - o.value) / by,
                 most = (o.given + o.rounding - o.value) / by;
    groups[key].interval.MeetWith(least, most);
    groups[key].largest = std::max(groups[key].largest, std::abs(by));
    unit = std::max(unit, 2 * o.rounding);
    // Of outputs that should be the same, any number in their place is one amount away.
    std::vector<double>& values = groups[key].wrong;
    const bool told = std::ranges::any_of(
        values, [&](double value) { return std::abs(value - o.value) <= 2 * o.rounding; });
    if (told || !o.wrong) continue;
    telling += values.empty() ? 0 : 1;  // the first one fixes the number of the law
    values.push_back(o.value);
  }
  if (telling < kSurplus) return std::nullopt;
  for (const auto& [key, group] : groups) {
    if (group.interval.empty()) return false;
    const double least = std::max(group.interval.low, -group.interval.high);  // of its amount
    much |= least * group.largest > 0.75 * unit;
  }
  if (!much) return std::nullopt;
  return true;
}

// Of each row of a matrix of codes, whether an earlier one has the same codes.
std::vector<bool> AgainIn(const Tensor& matrix, int64_t rows) {
  std::vector<bool> again(static_cast<size_t>(rows));
  if (rows == 0) return again;
  std::set<std::vector<uint32_t>> seen;
  const int64_t columns = matrix.size() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<uint32_t> codes;
    for (int64_t i = 0; i < columns; ++i) codes.push_back(matrix.BitsAt(row * columns + i));
    again[static_cast<size_t>(row)] = !seen.insert(std::move(codes)).second;
  }
  return again;
}

// ---- Counting.

// How often each trait was seen, of wrong outputs and of all; and each law kept and broken.
struct Counted {
  explicit Counted(size_t traits) : have(traits), wrong_have(traits), nearly_right(traits) {}

  int64_t asked = 0;
  // Of answers that are wrong somewhere.
  int64_t outputs = 0, wrong = 0, cases_with_wrong = 0;
  std::vector<int64_t> have, wrong_have, nearly_right;
  bool by_more_than_one = false, up = false, down = false;
  double distances = 0;  // of wrong outputs from ties
  std::array<int64_t, kLaws.size()> kept = {}, broken = {}, longest_kept = {};
  int64_t longest = 0;  // sum of a case with a wrong output
  bool wrong_without_bias = false;
  int64_t with_bias = 0;  // of those asked
};

void Count(const Case& c, const Tensor& right, const Tensor& y, const std::vector<Trait>& traits,
           Counted& counted) {
  constexpr int64_t kMostOutputs = 512;
  const exact::Outputs outputs(c);
  const bool is_code = IsCode(c.out_dtype);
  const int64_t step = 1 + right.size() / kMostOutputs;
  Counted seen(traits.size());
  std::vector<Inside> inside;
  const bool of_matrices = c.op == Op::kLinear;
  const std::vector<bool> rows_again = of_matrices ? AgainIn(c.x, c.M) : std::vector<bool>{},
                          columns_again = of_matrices ? AgainIn(c.w, c.N) : std::vector<bool>{};
  const auto add_inside = [&](int64_t i, double value, double given, double rounding) {
    const int64_t row = i / c.N, column = i % c.N;
    inside.push_back({row, column, of_matrices && rows_again[static_cast<size_t>(row)],
                      of_matrices && columns_again[static_cast<size_t>(column)],
                      !y.SameAt(i, right), value, given, rounding});
  };
  for (int64_t i = 0; i < right.size(); ++i) {
    Output output{.c = c, .index = i, .wrong = !y.SameAt(i, right), .is_code = is_code};
    if (!output.wrong && i % step != 0) continue;
    output.integer = static_cast<double>(outputs.integers().values[static_cast<size_t>(i)]);
    if (output.wrong) {
      if (!is_code) counted.distances += 1;
      output.off_by = DistanceLsb(right, y, i);
      counted.by_more_than_one |= output.off_by > 1;
      counted.up |= y.ValueAt(i) > right.ValueAt(i);
      counted.down |= y.ValueAt(i) < right.ValueAt(i);
    }
    if (is_code) {
      output.code = outputs.CodeAt(i / c.N, i % c.N);
      if (output.wrong) counted.distances += output.code.tie_distance.value_or(1);
      const auto is_inside = [&](__int128 code) {
        return code > output.code.lo && code < c.out_max;
      };
      if (c.op != Op::kTable && c.op != Op::kSoftmax && c.op != Op::kMaxPool &&
          is_inside(output.code.value) && is_inside(y.IntAt(i)))
        add_inside(i, outputs.RealAt(i / c.N, i % c.N).value,
                   static_cast<double>(y.IntAt(i) - c.out_q.zero_point_at(i % c.N)), 0.5);
    }
    if (c.op == Op::kDequantize && std::isnormal(y.as<float>()[static_cast<size_t>(i)])) {
      const double given = y.as<float>()[static_cast<size_t>(i)];
      add_inside(i, outputs.RealAt(i / c.N, i % c.N).value, given, std::abs(given) * 0x1p-23);
    }
    seen.outputs += output.wrong ? 1 : step;  // those that were left out count too
    seen.wrong += output.wrong;
    for (size_t t = 0; t < traits.size(); ++t) {
      if (traits[t].has(output)) {
        seen.have[t] += output.wrong ? 1 : step;
        seen.wrong_have[t] += output.wrong;
      } else if (traits[t].nearly && traits[t].nearly(output)) {
        counted.nearly_right[t] += !output.wrong;
      }
    }
  }
  const bool any = seen.wrong > 0;
  if (!any) return;
  // Only answers that are wrong somewhere tell what chooses the wrong outputs.
  counted.cases_with_wrong += 1;
  counted.outputs += seen.outputs;
  counted.wrong += seen.wrong;
  for (size_t t = 0; t < traits.size(); ++t) {
    counted.have[t] += seen.have[t];
    counted.wrong_have[t] += seen.wrong_have[t];
  }
  counted.wrong_without_bias |= !c.bias && !c.bias_i32;
  for (size_t i = 0; i < kLaws.size(); ++i) {
    const std::optional<bool> keeps = Keeps(kLaws[i], inside, c.per_channel);
    if (!keeps) continue;
    (*keeps ? counted.kept : counted.broken)[i] += 1;
    counted.longest_kept[i] = std::max(counted.longest_kept[i], c.K);
  }
  counted.longest = std::max(counted.longest, c.K);
}

// The law that every answer keeps to that is wrong.
std::optional<ShownOfSubject> LawOf(Op op, const Counted& counted) {
  constexpr int64_t kLeast = 5;
  constexpr double kByChance = 0x1p-8;
  // Where most cases have a bias, that all wrong ones have one says little.
  double chance = 1;
  for (int64_t i = 0; i < counted.cases_with_wrong; ++i)
    chance *= static_cast<double>(counted.with_bias + 1) / static_cast<double>(counted.asked + 1);
  const bool of_bias = !counted.wrong_without_bias && chance <= kByChance;
  for (size_t i = 0; i < kLaws.size(); ++i) {
    if (counted.kept[i] < kLeast || counted.broken[i] > 0) continue;
    const std::string evidence =
        fmt::format("so in each of {} answers in which enough outputs tell", counted.kept[i]);
    const FindingKind kind = of_bias ? FindingKind::kIndex : FindingKind::kZeroPoint;
    const std::string within =
        HasSums(op) && counted.longest_kept[i] < counted.longest
            ? fmt::format(", seen in sums of up to {} terms", counted.longest_kept[i])
            : "";
    const std::string of = (of_bias ? ", where there is a bias" : "") + within;
    switch (kLaws[i]) {
      case Law::kNegative:
        return ShownOfSubject{FindingKind::kRounding,
                              "gives the numbers with the other sign" + within, evidence};
      case Law::kFactor:
        return ShownOfSubject{FindingKind::kRounding,
                              "multiplies by another number than the scales give: all outputs of a "
                              "scale are off by one factor" +
                                  within,
                              evidence};
      case Law::kAmount:
        return ShownOfSubject{kind, "adds a wrong amount to all outputs, the same to each" + of,
                              evidence};
      case Law::kAmountOfChannel:
        return ShownOfSubject{
            FindingKind::kZeroPoint,
            "adds a wrong amount to the outputs of a channel, the same in each row" + of, evidence};
      case Law::kAmountOfRow:
        return ShownOfSubject{
            FindingKind::kZeroPoint,
            "adds a wrong amount to the outputs of a row, the same in each channel" + of, evidence};
    }
  }
  return std::nullopt;
}

// "8 of 20 answers are wrong: 30 of their 400 outputs"
std::string Shares(const Counted& counted) {
  return fmt::format("{} of {} answers are wrong: {} of their {} outputs", counted.cases_with_wrong,
                     counted.asked, counted.wrong, counted.outputs);
}

// The trait that chance is least likely to give to all wrong outputs.
std::optional<ShownOfSubject> TraitOf(const Counted& counted, const std::vector<Trait>& traits) {
  constexpr double kMargin = 8;  // what chance is worth in one of 2^8 faults
  constexpr int64_t kFewBeside = 4;
  // The wrong outputs of one case are no independent witnesses.
  const auto witnesses = static_cast<double>(std::min(counted.wrong, 4 * counted.cases_with_wrong));
  size_t best = traits.size();
  double most = kMargin;
  for (size_t t = 0; t < traits.size(); ++t) {
    // One in a thousand wrong outputs may have another reason, which is said.
    const bool only = traits[t].sentence.starts_with(kOnly);
    if (counted.wrong - counted.wrong_have[t] > (only ? counted.wrong / 1000 : 0)) continue;
    if (traits[t].nearly && counted.nearly_right[t] < kFewBeside) continue;
    const double share =
        static_cast<double>(counted.have[t] + 1) / static_cast<double>(counted.outputs + 1);
    // What most outputs have says little, however many are wrong.
    constexpr double kMostShare = 0.5;
    const double bits = -witnesses * std::log2(share) - traits[t].bits;
    if (bits <= most || share > kMostShare) continue;
    most = bits;
    best = t;
  }
  if (best == traits.size()) return std::nullopt;
  ShownOfSubject trait{traits[best].kind, traits[best].sentence, ""};
  const bool all = counted.wrong_have[best] == counted.wrong;
  if (!all) trait.sentence.replace(0, kOnly.size(), "is wrong nearly only where");
  trait.evidence =
      fmt::format("{}, {} of them such; so are {} that are right", Shares(counted),
                  all ? "all" : "nearly all", counted.have[best] - counted.wrong_have[best]);
  return trait;
}

// Rounding on the way moves an output by one code, to either side, and the likelier the nearer its
// value lies to a tie.
std::optional<ShownOfSubject> OffByOne(Op op, const Counted& counted) {
  constexpr int64_t kManyCases = 12;
  // The distances from ties, 0 to 1, of outputs that are wrong for another reason: their mean is a
  // half, with this deviation.
  constexpr double kHalf = 0.5, kDeviation = 0.289, kSurely = 4;
  const auto witnesses = static_cast<double>(std::min(counted.wrong, 4 * counted.cases_with_wrong));
  const double mean = counted.distances / static_cast<double>(std::max<int64_t>(counted.wrong, 1));
  if (counted.by_more_than_one || !counted.up || !counted.down ||
      counted.cases_with_wrong < kManyCases ||
      mean > kHalf - kSurely * kDeviation / std::sqrt(witnesses))
    return std::nullopt;
  const bool is_function = op == Op::kTable || op == Op::kSoftmax;
  return ShownOfSubject{
      FindingKind::kRounding,
      fmt::format(
          "is off by one at most in the cases asked, in either direction, more often near ties: as "
          "if it {}rounded on the way",
          is_function ? "approximated the function, or " : ""),
      Shares(counted)};
}

// A case near `c`, or a drawn one; nullopt where the edits made none.
std::optional<Case> NextCase(const Case& c, Subject& subject, uint64_t i) {
  constexpr uint64_t kSeed = 20261128;
  const uint64_t seed = MixSeed(kSeed, i);
  if (i == 0) return ProblemOf(c);
  if (i % 3 == 0) return Varied(c, seed);
  const gen::Theme theme = i % 8 == 1   ? gen::Theme::kTies
                           : i % 8 == 4 ? gen::Theme::kNearTies
                                        : gen::ThemeOf(c.op, seed);
  return AdaptTo(subject, gen::Draw(c.op, theme, seed));
}

}  // namespace

std::optional<ShownOfSubject> FindCommonTrait(const Case& c, Subject& subject) {
  constexpr uint64_t kMostTries = 800;
  constexpr int64_t kMostAsked = 240, kLargest = 4096, kFewCases = 6;
  if (c.op == Op::kChooseQParams || c.op == Op::kCast || RowOf(c.op).dynamic || c.w_block != 0 ||
      HasFloatX(c))
    return std::nullopt;
  const Convention* const model = ModelOf(subject.contract());
  const std::vector<Trait> traits = AllTraits(c);
  Counted counted(traits.size());
  for (uint64_t i = 0; i < kMostTries && counted.asked < kMostAsked; ++i) {
    const std::optional<Case> next = NextCase(c, subject, i);
    if (!next || next->M * next->N * std::max<int64_t>(next->K, 1) > (i == 0 ? 16 : 1) * kLargest ||
        !subject.CannotRun(*next).empty() ||
        (model != nullptr && !model->cannot_run(*next).empty()))
      continue;
    const std::optional<Tensor> y = Ask(subject, *next);
    ++counted.asked;
    counted.with_bias += next->bias || next->bias_i32;
    if (!y) return std::nullopt;
    Count(*next, RightOutput(*next, model), *y, traits, counted);
  }
  if (counted.cases_with_wrong < kFewCases) return std::nullopt;
  if (auto trait = TraitOf(counted, traits)) return trait;
  if (auto law = LawOf(c.op, counted)) return law;
  return OffByOne(c.op, counted);
}

}  // namespace qualm::triage
