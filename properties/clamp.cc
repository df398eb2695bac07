// SPDX-License-Identifier: Apache-2.0
// Clamp and fused activation.
#include <algorithm>
#include <cmath>
#include <string>

#include "oracles/exact/exact.h"
#include "properties/list.h"
#include "properties/relation.h"

namespace qualm {
namespace {

using relation::Answer;
using relation::Ask;

Verdict AsClamp(Verdict verdict) {
  verdict.kind = FindingKind::kClamp;
  return verdict;
}

// The lower end that every convention keeps. Libraries narrow a zero point that is no code before
// they use it as the bound of a relu (FBGEMM to 8 bits), each in its own way: then only out_min is
// common to all.
int64_t LowEndUnder(const Contract& contract, const Case& c, int64_t channel) {
  if (!c.relu) return c.out_min;
  const CodeRange codes = RangeOf(c.out_dtype);
  const int32_t zero = c.out_q.zero_point_at(channel);
  const bool is_code = zero >= codes.min && zero <= codes.max;
  return contract.exact() || is_code || !IsCode(c.out_dtype) ? relation::LowEnd(c, channel)
                                                             : c.out_min;
}

// For each output: -1 if its exact rounded value lies at least 1 lsb below the clamp, +1 if it lies
// as far above, else 0. An output of -1 or +1 stays at its end of the clamp when the zero point
// moves by one towards the clamp.
std::vector<int> PastAnEnd(const Case& c) {
  std::vector<int> past(static_cast<size_t>(c.M * c.N), 0);
  if (c.out_dtype == DType::kS32) {
    const std::vector<__int128> sums = exact::CorrectedSums(c);
    for (size_t i = 0; i < past.size(); ++i) {
      past[i] = sums[i] > c.out_max ? 1 : sums[i] < relation::LowEnd(c, 0) ? -1 : 0;
    }
    return past;
  }
  // Where the requantization may wrap, a code can come out at either end: nothing is claimed.
  if (c.requant == Requant::kFixedQ31 && exact::RequantMayOverflow(c)) return past;
  if (c.op == Op::kMaxPool) {  // rounds nothing: the codes themselves tell
    Case open = ProblemOf(c);
    open.relu = false;
    OpenClamp(&open);
    const Tensor y = relation::ExactOf(open);
    for (size_t i = 0; i < past.size(); ++i) {
      const int32_t code = y.IntAt(static_cast<int64_t>(i));
      past[i] = code > c.out_max ? 1 : code < relation::LowEnd(c, 0) ? -1 : 0;
    }
    return past;
  }
  const auto mark = [&](int towards) {
    Case moved = ProblemOf(c);
    for (int32_t& zero : moved.out_q.zero_point) {
      const auto shifted = relation::ShiftedInt(zero, -towards);
      if (!shifted) return;  // nothing is known about this end
      zero = *shifted;
    }
    moved.relu = false;  // its bound would move along
    const Tensor y = relation::ExactOf(moved);
    for (size_t i = 0; i < past.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      const int64_t low = relation::LowEnd(c, relation::ChannelOf(c, index));
      if (towards > 0 && y.IntAt(index) == c.out_max) past[i] = 1;
      if (towards < 0 && y.IntAt(index) <= low) past[i] = -1;
    }
  };
  mark(1);
  mark(-1);
  return past;
}

Verdict FloatRelu(const Case& c, Subject& subject, const Tensor& y) {
  const bool exact = subject.contract(c.op).exact();
  for (int64_t i = 0; i < y.size(); ++i) {
    const float value = y.FloatAt(i);
    // Libraries round scales to float32 first, so that 0 times infinity happens there. Their relu
    // may keep the NaN (maxps returns its second operand), and matches_model says where.
    const bool may_be = value >= 0.0f || (!exact && std::isnan(value));
    if (!may_be) {
      return AsClamp(relation::FailedAt(c, i, "at least 0", ElementText(y, i), 0, "relu"));
    }
  }
  if (!exact) return Verdict::Passed();
  Case plain = ProblemOf(c);
  plain.relu = false;
  const Answer unfused = Ask(subject, plain);
  if (unfused.verdict && !unfused.skipped()) return *unfused.verdict;
  if (unfused.skipped()) return Verdict::Passed();
  Tensor expected = unfused.y;
  bool cuts = false;
  for (float& value : expected.as<float>()) {
    cuts = cuts || value < 0.0f;
    value = value > 0.0f ? value : 0.0f;
  }
  if (auto failed = relation::Difference(c, expected, y, "fused relu is not max(unfused, 0)")) {
    return AsClamp(*failed);
  }
  return cuts ? Verdict::Passed() : Verdict::Vacuous("relu cuts nothing off");
}

Verdict Clamp(const Case& c, Subject& subject) {
  if (c.out_dtype == DType::kF32 && !c.relu) {
    return Verdict::Vacuous("an f32 output without relu has no clamp");
  }
  const Answer answer = Ask(subject, c);
  if (answer.verdict) return *answer.verdict;
  const Tensor& y = answer.y;
  if (y.empty()) return Verdict::Vacuous("the output is empty");
  if (c.out_dtype == DType::kF32) return FloatRelu(c, subject, y);

  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t low = LowEndUnder(subject.contract(c.op), c, relation::ChannelOf(c, i));
    if (y.IntAt(i) >= low && y.IntAt(i) <= c.out_max) continue;
    const std::string range = "in [" + std::to_string(low) + "," + std::to_string(c.out_max) + "]";
    const int64_t out = std::max(low - y.IntAt(i), y.IntAt(i) - int64_t{c.out_max});
    return AsClamp(relation::FailedAt(c, i, range, ElementText(y, i), static_cast<double>(out),
                                      "outside the clamp"));
  }
  const std::vector<int> past = PastAnEnd(c);
  const bool vacuous = std::ranges::all_of(past, [](int side) { return side == 0; });
  const Verdict good =
      vacuous ? Verdict::Vacuous("no exact value lies 1 lsb past an end") : Verdict::Passed();
  if (!subject.contract(c.op).exact()) return good;

  for (int64_t i = 0; i < y.size(); ++i) {
    const int side = past[static_cast<size_t>(i)];
    if (side == 0) continue;
    const int64_t end = side > 0 ? c.out_max : relation::LowEnd(c, relation::ChannelOf(c, i));
    if (y.IntAt(i) == end) continue;
    return AsClamp(relation::FailedAt(c, i, std::to_string(end), ElementText(y, i),
                                      static_cast<double>(std::abs(end - y.IntAt(i))),
                                      "the exact value lies past the end of the clamp"));
  }
  if (!c.relu) return good;
  Case plain = ProblemOf(c);
  plain.relu = false;
  const Answer unfused = Ask(subject, plain);
  if (unfused.verdict) return unfused.skipped() ? good : *unfused.verdict;
  Tensor expected = unfused.y;
  for (int64_t i = 0; i < expected.size(); ++i) {
    const auto low = static_cast<int32_t>(relation::LowEnd(c, relation::ChannelOf(c, i)));
    expected.SetInt(i, std::max(expected.IntAt(i), low));
  }
  auto failed = relation::Difference(c, expected, y, "fused relu is not max(unfused, zero point)");
  return failed ? AsClamp(*failed) : good;
}

}  // namespace

std::vector<Property> ClampProperties() {
  return {{"clamp",
           "Outputs stay in [out_min, out_max]; where the exact rounded value lies at least 1 lsb "
           "past an end the output is that end; fused relu is max(unfused, zero point), at most "
           "out_max.",
           OpsWhere([](Op op) { return RowOf(op).clamp; }), true, Clamp}};
}

}  // namespace qualm
