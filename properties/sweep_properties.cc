// SPDX-License-Identifier: Apache-2.0
// Sweep properties: x is one code everywhere, all other things fixed; the code runs over its type.
// They need no reference: an exact kernel's curve is a rounded straight line.
#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "core/slice.h"
#include "oracles/exact/exact.h"
#include "properties/list.h"
#include "properties/property.h"
#include "properties/relation.h"
#include "properties/sweep.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;

struct Swept {
  Case base;  // with as many channels as are worth their time
  std::vector<int32_t> codes;
  Case expanded;        // all of them, a row each
  Tensor y;             // [codes, N]
  bool vacuous = true;  // no channel's exact curve takes 3 values
  std::optional<Verdict> verdict;

  std::vector<int32_t> CurveOf(int64_t n) const {
    std::vector<int32_t> curve;
    curve.reserve(codes.size());
    for (size_t i = 0; i < codes.size(); ++i) {
      curve.push_back(y.IntAt(static_cast<int64_t>(i) * base.N + n));
    }
    return curve;
  }
};

Swept SweepAll(const Case& c, Subject& subject) {
  Swept swept;
  if (c.out_dtype == DType::kF32) {
    swept.verdict = Verdict::Vacuous("an f32 output has no codes to compare");
    return swept;
  }
  if (c.N == 0 || c.K == 0 || (IsConv(c.op) && c.M == 0)) {
    swept.verdict = Verdict::Vacuous("the output is empty or does not depend on x");
    return swept;
  }
  // 256 rows of every channel would make the widest cases the slowest by far.
  const std::vector<int64_t> columns =
      slice::LeadingChannels(c, std::clamp<int64_t>(1024 / c.K, 1, c.N));
  swept.base = slice::Channels(c, columns);
  if (IsConv(c.op)) {
    // Now the pixel that sees most of the image, now any: corners see the padding.
    const uint64_t hash = relation::Hash(c);
    swept.base =
        hash % 2 == 0
            ? sweep::OneRow(swept.base)
            : slice::Pixel(swept.base, static_cast<int64_t>(hash / 2 % static_cast<uint64_t>(c.M)));
  }
  swept.codes = sweep::Codes(swept.base);
  swept.expanded = sweep::Expand(swept.base, swept.codes);
  Answer answer = Ask(subject, swept.expanded);
  if (answer.verdict) {
    swept.verdict = std::move(answer.verdict);
    return swept;
  }
  swept.y = std::move(answer.y);
  // Channel by channel: most often the first one takes enough values.
  for (int64_t n = 0; n < swept.base.N && swept.vacuous; ++n) {
    const Tensor exact = sweep::ExactCurve(swept.base, n, swept.codes);
    std::set<int32_t> values;
    for (int64_t i = 0; i < exact.size() && values.size() < 3; ++i) values.insert(exact.IntAt(i));
    swept.vacuous = values.size() < 3;
  }
  return swept;
}

// A failure of channel n at code x, told on the case itself: the sweep is its derived form.
Verdict Bent(const std::string& what, int32_t x, int64_t n, int32_t y,
             const std::string& expected) {
  return Verdict::Failed(what + " at x = " + std::to_string(x) + ", channel " + std::to_string(n) +
                         ": got " + std::to_string(y) + ", expected " + expected);
}

// A property of one curve, of every channel that is swept.
template <class JudgeCurve, class WhyNot>
Verdict JudgeSweep(const Case& c, Subject& subject, JudgeCurve judge, WhyNot why_not) {
  auto* const memo = dynamic_cast<MemoSubject*>(&subject);
  const std::shared_ptr<const Swept> shared =
      memo != nullptr ? memo->Shared<Swept>(c, [&] { return SweepAll(c, subject); })
                      : std::make_shared<const Swept>(SweepAll(c, subject));
  const Swept& swept = *shared;
  if (swept.verdict) return *swept.verdict;
  if (std::string reason = why_not(swept.expanded); !reason.empty())
    return Verdict::NotApplicable(std::move(reason));
  for (int64_t n = 0; n < swept.base.N; ++n) {
    Verdict verdict = judge(swept.base, n, swept.codes, swept.CurveOf(n));
    if (verdict.failed()) return verdict;
  }
  return swept.vacuous ? Verdict::Vacuous("no exact sweep takes 3 values") : Verdict::Passed();
}

Verdict SweepIsMonotone(const Case& c, Subject& subject) {
  return JudgeSweep(c, subject, sweep::JudgeMonotone, sweep::WhyNotMonotone);
}

Verdict SweepIsLinear(const Case& c, Subject& subject) {
  if (std::string reason = sweep::WhyNotLinear(c); !reason.empty())
    return Verdict::NotApplicable(std::move(reason));
  return JudgeSweep(c, subject, sweep::JudgeLinear, sweep::WhyNotLinear);
}

}  // namespace

namespace sweep {

std::string WhyNotMonotone(const Case& expanded) {
  return exact::RequantMayOverflow(expanded) ? std::string(relation::kRequantOverflows) : "";
}

std::string WhyNotLinear(const Case& expanded) {
  if (expanded.requant == Requant::kExact) return "";
  return std::string(Name(expanded.requant)) + " rounds more than once";
}

Verdict JudgeMonotone(const Case& base, int64_t n, const std::vector<int32_t>& codes,
                      const std::vector<int32_t>& y) {
  const int direction = Direction(base, n);
  for (size_t i = 1; i < y.size(); ++i) {
    const bool right = direction > 0   ? y[i] >= y[i - 1]
                       : direction < 0 ? y[i] <= y[i - 1]
                                       : y[i] == y[i - 1];
    if (right) continue;
    const std::string bound = direction > 0 ? "at least " : direction < 0 ? "at most " : "";
    return Bent("the sweep turns back", codes[i], n, y[i], bound + std::to_string(y[i - 1]));
  }
  return Verdict::Passed();
}

Verdict JudgeLinear(const Case& base, int64_t n, const std::vector<int32_t>& codes,
                    const std::vector<int32_t>& y) {
  const auto low = static_cast<int32_t>(relation::LowEnd(base, 0));
  const int32_t high = base.out_max;
  if (base.out_dtype == DType::kS32) {
    const auto inside = [&](size_t i) { return y[i] > low && y[i] < high; };
    for (size_t i = 2; i < y.size(); ++i) {
      if (!inside(i) || !inside(i - 1) || !inside(i - 2)) continue;
      const int64_t straight = 2 * int64_t{y[i - 1]} - y[i - 2];
      if (y[i] != straight)
        return Bent("the accumulator changes slope", codes[i], n, y[i], std::to_string(straight));
    }
  } else if (!HasStabbingLine(codes, y, low, high)) {
    return Verdict::Failed("no straight line rounds to the sweep of channel " + std::to_string(n));
  }
  return Verdict::Passed();
}

}  // namespace sweep

std::vector<Property> SweepProperties() {
  constexpr std::string_view kTurn = "sweep";  // one sweep serves both
  return {
      {"sweep_is_monotone",
       "With x constant, each output is monotone in its code, in the direction of sum(w - zw) over "
       "the taps in the image, and constant where that is 0. Not where float32 or fixed_q31 "
       "overflow.",
       OpsWhere(HasSums), false, SweepIsMonotone, kSeldom, kTurn},
      {"sweep_is_linear",
       "With x constant, some straight line lies within half a code of every output strictly "
       "inside the clamp and beyond it at the ends; raw accumulators have second difference 0. Not "
       "under a requantization mode.",
       OpsWhere(HasSums), false, SweepIsLinear, kSeldom, kTurn},
  };
}

}  // namespace qualm
