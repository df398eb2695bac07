// SPDX-License-Identifier: Apache-2.0
#include "oracles/exact/evaluate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "core/slice.h"
#include "core/status.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/meanings.h"
#include "oracles/exact/observer.h"

namespace qualm::exact {

void DifferencesOfX(const Case& c, Integers* integers) {
  for (int64_t i = 0; i < c.M * c.N; ++i) integers->values.push_back(Difference(c.x, c.x_q, i));
}

Line IdentityLine(const Case&, int64_t) { return {}; }

namespace {

// Whether an output is a sum of several integers, each with a scale of its own.
bool AddsTerms(const Case& c) { return c.w_block != 0 || HasFloatX(c); }

// The line of channel n but for the terms of its blocks: the bias, and the scale of the output.
Line BlocksLine(const Case& c, int64_t n) {
  Line line;
  if (c.bias) line = Plus(line, (*c.bias)[static_cast<size_t>(n)]);
  return c.out_dtype == DType::kF32 ? line : Over(line, c.out_q.scale_at(0));
}

}  // namespace

Line RescaleLine(const Case& c, int64_t) {
  return Over(Scale(c.x_q.scale_at(0)), c.out_q.scale_at(0));
}

Integers IntegersOf(const Case& c) {
  Integers integers;
  integers.values.reserve(static_cast<size_t>(c.M * c.N));
  const FastForm& form = MeaningOf(c.op).fast;
  if (form.integers != nullptr) form.integers(c, &integers);
  return integers;
}

Tensor EvaluateFrom(const Case& c, Integers integers) {
  return Outputs(c, std::move(integers)).Clamped();
}

Outputs::Outputs(const Case& c) : Outputs(c, IntegersOf(c)) {}

Outputs::Outputs(const Case& c, Integers integers)
    : c_(c), form_(MeaningOf(c.op).fast), integers_(std::move(integers)) {
  QUALM_CHECK(!HasElementBlocks(c));  // slice::BlocksAsChannels has none
  const bool codes = IsCode(c.out_dtype);
  const bool blocks = AddsTerms(c);
  const bool estimates = codes && form_.scaled == nullptr && !blocks;
  // The channels of a sum differ in the scale of w and in the float bias alone.
  const bool one_line = HasSums(c) && !c.bias && c.w_q.scale.size() == 1;
  const auto channels = static_cast<size_t>(c.N);
  if (c.out_dtype != DType::kS32) lines_.reserve(channels);
  if (estimates) estimated_.reserve(channels);
  lo_.reserve(channels);
  zero_.reserve(channels);
  for (int64_t n = 0; n < c.N; ++n) {
    const bool same = one_line && n > 0;
    if (c.out_dtype != DType::kS32)
      lines_.push_back(same ? lines_.front() : blocks ? BlocksLine(c, n) : form_.line(c, n));
    if (estimates) {
      const EstimatedLine line = same ? estimated_.front() : EstimatedLine(lines_.back());
      estimated_.push_back(line);
    }
    if (c.requant != Requant::kExact) backend_.emplace_back(c, n);
    lo_.push_back(LowerBound(c, n));
    zero_.push_back(c.out_q.zero_point_at(n));
  }
}

Scaled Outputs::OnChannelLine(int64_t m, int64_t n) const {
  Scaled scaled;
  if (!lines_.empty()) scaled.line = lines_[static_cast<size_t>(n)];  // else the output is s32
  scaled.integer = integers_.values[IndexOf(m, n)];
  return scaled;
}

Terms Outputs::BlockTerms(int64_t m, int64_t n) const {
  const auto blocks = static_cast<size_t>(RowBlocks(c_));
  const auto levels = static_cast<size_t>(integers_.levels);
  terms_.clear();
  for (size_t block = 0; block < blocks; ++block) {
    const float x_scale =
        integers_.scales.empty()
            ? c_.x_q.scale[c_.x_block == 0 ? 0 : static_cast<size_t>(m) * blocks + block]
            : integers_.scales[static_cast<size_t>(m)];
    const size_t entry = c_.w_q.scale.size() == 1 ? 0 : static_cast<size_t>(n) * blocks + block;
    const Line scale = Scale(x_scale, c_.w_q.scale[entry]);
    const size_t first = (IndexOf(m, n) * blocks + block) * levels;
    for (size_t level = 0; level < levels; ++level) {
      const int up = integers_.unit + static_cast<int>(level) * FloatBlockSums::kLevelBits;
      terms_.push_back({integers_.values[first + level], scale.gain, scale.gain_exponent + up});
    }
  }
  return terms_;
}

Scaled Outputs::ScaledAt(int64_t m, int64_t n) const {
  QUALM_CHECK(!AddsTerms(c_));
  Scaled scaled = OnChannelLine(m, n);
  if (form_.scaled != nullptr) form_.scaled(c_, integers_, m, n, &scaled);
  return scaled;
}

Real Outputs::RealAt(int64_t m, int64_t n) const {
  if (form_.real != nullptr) {
    if (const std::optional<Real> real = form_.real(c_, m, n)) return *real;
  }
  if (AddsTerms(c_)) return ToReal(lines_[static_cast<size_t>(n)], BlockTerms(m, n));
  const Scaled scaled = ScaledAt(m, n);
  return ToReal(scaled.line, scaled.integer);
}

Rounded Outputs::RoundedAt(int64_t m, int64_t n) const {
  if (AddsTerms(c_)) return Round(lines_[static_cast<size_t>(n)], BlockTerms(m, n));
  if (form_.rounded != nullptr) return form_.rounded(c_, integers_, m, n, OnChannelLine(m, n));
  const Scaled scaled = ScaledAt(m, n);
  return Round(scaled.line, scaled.integer);
}

std::optional<Near> Outputs::NearAt(int64_t m, int64_t n) const {
  if (!estimated_.empty())
    return Decide(estimated_[static_cast<size_t>(n)].At(integers_.values[IndexOf(m, n)]));
  if (AddsTerms(c_)) return Decide(EstimateOf(lines_[static_cast<size_t>(n)], BlockTerms(m, n)));
  if (form_.rounded == nullptr) {
    const Scaled scaled = ScaledAt(m, n);
    return Decide(EstimatedLine(scaled.line).At(scaled.integer));
  }
  if (form_.estimate == nullptr) return std::nullopt;
  const std::optional<Estimate> estimate = form_.estimate(c_, m, n, OnChannelLine(m, n));
  return estimate ? Decide(*estimate) : std::nullopt;
}

__int128 Outputs::CodeOf(int64_t m, int64_t n, int64_t rounded) const {
  const auto channel = static_cast<size_t>(n);
  return backend_.empty() ? __int128{rounded} + zero_[channel]
                          : backend_[channel].CodeOf(integers_.values[IndexOf(m, n)]);
}

Code Outputs::CodeAt(int64_t m, int64_t n, double* distance_bound) const {
  if (c_.out_dtype == DType::kS32) return CodeAt(m, n);
  const std::optional<Near> near = NearAt(m, n);
  if (!near) return CodeAt(m, n);
  *distance_bound = near->tie_distance;
  Code code;
  code.lo = lo_[static_cast<size_t>(n)];
  code.value = CodeOf(m, n, near->integer);
  return code;
}

Code Outputs::CodeAt(int64_t m, int64_t n) const {
  Code code;
  code.lo = lo_[static_cast<size_t>(n)];
  if (c_.out_dtype == DType::kS32) {
    code.value = integers_.values[IndexOf(m, n)];
    return code;
  }
  const Rounded rounded = RoundedAt(m, n);
  code.value = CodeOf(m, n, rounded.integer);
  code.tie_distance = rounded.tie_distance;
  code.rest = rounded.rest;
  return code;
}

Ends Outputs::EndsReached(double near) const {
  Ends ends;
  const bool estimates = !estimated_.empty() && backend_.empty();
  size_t index = 0;
  for (int64_t m = 0; m < c_.M; ++m) {
    for (int64_t n = 0; n < c_.N; ++n, ++index) {
      // What an estimate decides is no tie. Only a near tie needs the exact distance.
      const auto look_closely = [&](double bound) {
        if (ends.tie || ends.near_tie || bound > near) return;
        ends.near_tie = *CodeAt(m, n).tie_distance <= near;
      };
      const auto channel = static_cast<size_t>(n);
      if (estimates) {  // the plain way of most outputs
        if (const auto known = Decide(estimated_[channel].At(integers_.values[index]))) {
          const int64_t code = known->integer + zero_[channel];
          ends.below = ends.below || code < lo_[channel];
          ends.above = ends.above || (code >= lo_[channel] && code > c_.out_max);
          look_closely(known->tie_distance);
          continue;
        }
      }
      double bound = 2;  // as of far values, which have no distance
      const Code code = CodeAt(m, n, &bound);
      ends.below = ends.below || code.value < code.lo;
      ends.above = ends.above || (code.value >= code.lo && code.value > c_.out_max);
      if (!code.tie_distance) {
        look_closely(bound);
        continue;
      }
      ends.tie = ends.tie || *code.tie_distance == 0;
      ends.near_tie = ends.near_tie || *code.tie_distance <= near;
    }
    if (ends.below && ends.above && ends.tie) break;
  }
  ends.near_tie = ends.near_tie && !ends.tie;
  return ends;
}

float Outputs::UnclampedFloatAt(int64_t m, int64_t n) const {
  if (AddsTerms(c_)) return RoundToFloat(lines_[static_cast<size_t>(n)], BlockTerms(m, n));
  const Scaled scaled = ScaledAt(m, n);
  return RoundToFloat(scaled.line, scaled.integer);
}

float Outputs::FloatAt(int64_t m, int64_t n) const {
  const float value = UnclampedFloatAt(m, n);
  // By the sign bit: a comparison would let a negative denormal through under DAZ.
  return c_.relu && std::signbit(value) ? 0.0f : value;
}

Tensor Outputs::Clamped() const {
  Tensor y(c_.out_dtype, c_.output_shape());
  const bool estimates = !estimated_.empty() && backend_.empty();
  const bool bytes = BitsOf(c_.out_dtype) == 8;
  uint8_t* const codes = y.bytes().data();
  size_t index = 0;
  for (int64_t m = 0; m < c_.M; ++m) {
    for (int64_t n = 0; n < c_.N; ++n, ++index) {
      if (c_.out_dtype == DType::kF32) {
        y.as<float>()[index] = FloatAt(m, n);
        continue;
      }
      if (estimates) {  // the plain way of most outputs
        const auto channel = static_cast<size_t>(n);
        if (const auto near = Decide(estimated_[channel].At(integers_.values[index]))) {
          const int64_t code = std::max(near->integer + zero_[channel], lo_[channel]);
          const auto fits = static_cast<int32_t>(std::min<int64_t>(code, c_.out_max));
          if (bytes) {
            codes[index] = static_cast<uint8_t>(fits);
          } else {
            y.SetInt(static_cast<int64_t>(index), fits);
          }
          continue;
        }
      }
      double unused = 0;
      const Code code = CodeAt(m, n, &unused);
      const __int128 value = std::max<__int128>(code.value, code.lo);
      y.SetInt(static_cast<int64_t>(index),
               static_cast<int32_t>(std::min<__int128>(value, c_.out_max)));
    }
  }
  return y;
}

Tensor Evaluate(const Case& c) {
  if (HasElementBlocks(c)) return slice::InRowsOf(c, Evaluate(slice::BlocksAsChannels(c)));
  const FastForm& form = MeaningOf(c.op).fast;
  return form.outputs != nullptr ? form.outputs(c) : Outputs(c).Clamped();
}

Tensor EvaluateFromSums(const Case& c, std::span<const __int128> sums) {
  QUALM_CHECK(HasSums(c) && c.w_block == 0);
  QUALM_CHECK_EQ(sums.size(), static_cast<size_t>(c.M * c.N));
  return EvaluateFrom(c, {{sums.begin(), sums.end()}, {}, {}});
}

bool RequantMayOverflow(const Case& c) {
  if (c.requant != Requant::kFloat32 && c.requant != Requant::kFixedQ31) return false;
  constexpr double kSafe = 0x1p29;
  const bool has_multiplier = !c.multiplier.empty();
  std::vector<double> multipliers;
  for (const float scale : has_multiplier ? c.multiplier : c.w_q.scale) {
    // x_scale*w_scale may overflow in float32 where the quotient is small.
    if (!has_multiplier && static_cast<double>(scale) * c.x_q.scale_at(0) >= 0x1p127) return true;
    multipliers.push_back(has_multiplier ? scale
                                         : static_cast<double>(scale) * c.x_q.scale_at(0) /
                                               c.out_q.scale_at(0));
    if (multipliers.back() >= 0x1p127) return true;
  }
  if (std::abs(static_cast<double>(c.out_q.zero_point_at(0))) > kSafe) return true;
  const std::vector<__int128> accumulators = IntegersOf(c).values;
  for (size_t i = 0; i < accumulators.size(); ++i) {
    const double fitting = std::clamp(static_cast<double>(accumulators[i]), -0x1p31, 0x1p31);
    const size_t channel = multipliers.size() == 1 ? 0 : i % static_cast<size_t>(c.N);
    if (std::abs(fitting) * multipliers[channel] >= kSafe) return true;
  }
  return false;
}

std::optional<double> TieDistance(const Case& c, int64_t index) {
  if (c.codes && index >= 2 * ChosenCount(c))
    return TieDistance(ExactCodesCaseOf(c, ChooseQParams(c)), index - 2 * ChosenCount(c));
  if (!IsCode(c.out_dtype)) return std::nullopt;
  const Case one = slice::OneOutput(c, index);
  return Outputs(one).CodeAt(0, 0).tie_distance;
}

std::vector<std::optional<double>> TieDistances(const Case& c) {
  if (RowOf(c.op).cast) return std::vector<std::optional<double>>(static_cast<size_t>(c.M * c.N));
  if (c.codes) {
    std::vector<std::optional<double>> distances(static_cast<size_t>(2 * ChosenCount(c)));
    std::ranges::copy(TieDistances(ExactCodesCaseOf(c, ChooseQParams(c))),
                      std::back_inserter(distances));
    return distances;
  }
  if (HasElementBlocks(c)) return TieDistances(slice::BlocksAsChannels(c));
  const Outputs outputs(c);
  std::vector<std::optional<double>> distances;
  for (int64_t i = 0; i < c.M * c.N; ++i)
    distances.push_back(outputs.CodeAt(i / c.N, i % c.N).tie_distance);
  return distances;
}

}  // namespace qualm::exact
