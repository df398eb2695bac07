// SPDX-License-Identifier: Apache-2.0
// OpenVINO's CPU plugin on models that quantize (openvinotoolkit/openvino 2026.4.1). QuantizeLinear
// becomes a FakeQuantize, which knows the real numbers of the lowest and the highest code and makes
// a float32 scale and shift of them: alone as common/transformations/src/fq_decomposition.cpp of
// src/common/snippets does, behind a sum as src/plugins/intel_cpu/src/nodes/fake_quantize.cpp.
// Scales and bias of the sum are folded into these: which of them where, and whether the shift is
// added by a fused multiply-add, depends on what all channels share (measured on AVX-512 with
// VNNI, and on AVX2, where pairs of products saturate; s8 codes of x are moved up by 128 for it).
#include "oracles/conventions/openvino.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "oracles/conventions/definition.h"
#include "oracles/conventions/families.h"

namespace qualm::conventions {
namespace {

constexpr float kSteps = 255;  // between the lowest and the highest code
// A shift of less than these codes is left out; shifts that differ by less become the first one
// (updateOptimizedFormula of fake_quantize.cpp).
constexpr float kNegligible = kSteps * 0.00001F;
constexpr float kAlike = 0.00005F;

// OpenVINO flushes denormals; beyond these nothing was held.
constexpr float kLeastScale = 0x1p-60F, kLargestScale = 0x1p60F;

// From here on codes were seen that no such sum gives (2^23 below zero became the zero point).
constexpr float kLargestShift = 0x1p22F;

// What is done to a number before it is rounded.
struct Affine {
  float scale = 0, shift = 0;
};

// The real numbers that the lowest and the highest code stand for.
struct Range {
  float low, high;
};
Range RangeOf(const Case& c, int64_t n) {
  const float scale = c.out_q.scale_at(n);
  const auto real = [&](int32_t code) {
    return static_cast<float>(code - c.out_q.zero_point_at(n)) * scale;
  };
  return {real(c.out_min), real(c.out_max)};
}
Affine AffineOf(Range r) { return {kSteps / (r.high - r.low), -r.low * kSteps / (r.high - r.low)}; }

// The constants of a linear.
class Linear {
 public:
  explicit Linear(const Case& c) : c_(c), range_(RangeOf(c, 0)) {
    for (int64_t n = 0; n < c.N; ++n) {
      one_scale_ = one_scale_ && Scale(n) == Scale(0);
      one_bias_ = one_bias_ && Bias(n) == Bias(0);
      offsets_.push_back(OffsetOf(n));
      any_offset_ = any_offset_ || offsets_.back() != 0;
      folded_.push_back(FoldedOf(n));
      alike_ = alike_ && (n == 0 || std::fabs(folded_[At(n)].shift - folded_[0].shift) < kAlike);
    }
  }

  // The bias is folded into the range, as the zero point of x and then the scale are.
  bool InRange() const { return !c_.bias_i32 || (one_scale_ && one_bias_); }
  // The sum is multiplied by its scale before that of the output.
  bool Twice() const { return !InRange() && one_scale_ && any_offset_; }
  bool Fused() const {
    if (!InRange()) return false;
    for (int64_t n = 1; n < c_.N; ++n) {
      if (Multiplier(n) != Multiplier(0) || Shift(n) != Shift(0)) return false;
    }
    return true;
  }

  float Scale(int64_t n) const { return c_.x_q.scale_at(0) * c_.w_q.scale_at(n); }
  // Zero point of x times the weights.
  int32_t Offset(int64_t n) const { return offsets_[At(n)]; }
  float Multiplier(int64_t n) const {
    if (InRange()) return folded_[At(n)].scale;
    return Twice() ? AffineOf(range_).scale : Scale(n) * AffineOf(range_).scale;
  }
  float Shift(int64_t n) const {
    const auto low = static_cast<float>(c_.out_min);
    if (!InRange()) return Bias(n) * AffineOf(range_).scale + AffineOf(range_).shift + low;
    const float shift = folded_[alike_ ? 0 : At(n)].shift + low;
    return alike_ && std::fabs(shift) < kNegligible ? 0 : shift;
  }

 private:
  static size_t At(int64_t n) { return static_cast<size_t>(n); }
  float Bias(int64_t n) const {
    return c_.bias_i32 ? static_cast<float>((*c_.bias_i32)[At(n)]) * Scale(n) : 0;
  }
  int32_t OffsetOf(int64_t n) const {
    const int32_t zero_point = c_.x_q.zero_point_at(0);
    int64_t sum = 0;
    for (int64_t k = 0; k < c_.K && zero_point != 0; ++k) sum += c_.w.IntAt(n * c_.K + k);
    return Wrap32(sum * zero_point);
  }
  Affine FoldedOf(int64_t n) const {
    const auto fold = [&](float real) {
      if (c_.bias_i32) real -= Bias(n);
      return real / Scale(n) + static_cast<float>(Offset(n));
    };
    return AffineOf({fold(range_.low), fold(range_.high)});
  }

  const Case& c_;
  Range range_;
  std::vector<int32_t> offsets_;  // by channel
  std::vector<Affine> folded_;
  bool one_scale_ = true, one_bias_ = true, any_offset_ = false, alike_ = true;
};

void ClampToRange(Value& v, const Channel& c) {
  const float number = v.number;
  v.SetReal(MinPs(MaxPs(number, c.a.scale), c.b.scale));
  v.lossy = v.number != number;
}
void AddLowest(Value& v, const Channel& c) { AddInto(v, v.number, static_cast<float>(c.low)); }
void PutOffsetBack(Value& v, const Channel& c) { v.SetInt(v.integer + c.a.zero_point); }
void CodeTimesScale(Value& v, const Channel& c) {
  const auto code = static_cast<float>(v.integer);
  const float shift = -static_cast<float>(c.zero_point) * c.scale;
  v.SetReal(std::fma(code, c.scale, shift));
  v.lossy = double{v.number} != double{code - static_cast<float>(c.zero_point)} * c.scale;
}
void ToCode(Value& v, const Channel& c) {
  const float low = static_cast<float>(c.low), high = static_cast<float>(c.high);
  v.SetInt(static_cast<int64_t>(MinPs(MaxPs(RoundNearestEven(v.number), low), high)));
}

Channel ChannelOf(const Case& c, int64_t n) {
  Channel channel;
  if (c.op == Op::kDequantize) {
    SetColumnScale(channel, c, n);
    return channel;
  }
  SetClamp(channel, c);
  if (c.op == Op::kQuantize) {
    const Range range = RangeOf(c, n);
    channel.a.scale = range.low;
    channel.b.scale = range.high;
    channel.multiplier = AffineOf(range).scale;
    channel.bias = -range.low * channel.multiplier;
    return channel;
  }
  const Linear linear(c);
  channel.multiplier = linear.Multiplier(n);
  channel.bias = linear.Shift(n);
  channel.scale = linear.Scale(n);
  if (linear.InRange()) channel.a.zero_point = linear.Offset(n);
  return channel;
}

bool HasZeroPoint(const QParams& q) {
  return std::ranges::any_of(q.zero_point, [](int32_t zero_point) { return zero_point != 0; });
}

// Whether each constant of the case is a normal number, and far from those that are flushed to 0.
bool IsPlain(const Case& c) {
  const auto scales = [](const QParams& q) {
    return std::ranges::all_of(q.scale,
                               [](float s) { return s >= kLeastScale && s <= kLargestScale; });
  };
  if (c.op == Op::kDequantize) return scales(c.x_q);
  if (!scales(c.out_q)) return false;
  if (c.op == Op::kQuantize) return true;
  const Linear linear(c);
  for (int64_t n = 0; n < c.N; ++n) {
    if (!(linear.Scale(n) >= kLeastScale && std::isnormal(linear.Multiplier(n)) &&
          std::fabs(linear.Shift(n)) < kLargestShift))
      return false;
  }
  return scales(c.x_q) && scales(c.w_q);
}

std::string CannotRun(const Case& c) {
  return FirstReason({
      Require(c.op == Op::kDequantize || c.out_dtype == DType::kU8 || c.out_dtype == DType::kS8,
              "outputs are codes"),
      Require(!c.bias, "no float bias"),
      Require(!c.relu, "no relu"),
      Require(
          IsPlain(c),
          "a scale is beyond 2^-60..2^60, a shift 2^22 or more, or a multiplier no normal float32"),
      Require(c.op != Op::kLinear || (c.w.dtype() == DType::kS8 && WeightZeroPointsAre(c, 0)),
              "weights are s8 without zero points"),
      Require(c.op != Op::kLinear || c.K <= 256, "held for K up to 256"),
      WholeRange(c),
      ZeroPointsAreCodes(c),
  });
}

std::vector<Step> Steps(const Case& c) {
  const Step to_code{Stage::kRound, "round half to even, clamp to {low}..{high}", ToCode,
                     Rise::kAlways};
  if (c.op == Op::kDequantize)
    return {{Stage::kScale, "code * {scale} - zero point * {scale}, fused", CodeTimesScale}};
  const Step scale{Stage::kScale, "times {multiplier}", step::TimesMultiplier};
  const Step shift{Stage::kZeroPoint, "+ {bias}", step::AddBiasFloat};
  if (c.op == Op::kQuantize) {
    std::vector<Step> steps{{Stage::kClamp, "clamp to {a_scale}..{b_scale}, NaN to the first",
                             ClampToRange, Rise::kAlways},
                            scale};
    // Without zero points the shift is the lowest code, and both are left out.
    if (HasZeroPoint(c.out_q)) {
      steps.push_back(shift);
      steps.push_back({Stage::kRound, "round half to even", step::RoundEven});
      steps.push_back({Stage::kZeroPoint, "+ lowest code {low}", AddLowest, Rise::kAlways});
    }
    steps.push_back(to_code);
    return steps;
  }
  const Linear linear(c);
  std::vector<Step> steps;
  if (linear.InRange())
    steps.push_back({Stage::kOffset, "the zero point of x put back: + {a_zp}", PutOffsetBack});
  steps.push_back({Stage::kScale, "to float32", step::ToFloat});
  if (linear.Fused()) {
    steps.push_back(
        {Stage::kScale, "times {multiplier}, + {bias}, fused", step::TimesMultiplierPlusBias});
  } else {
    if (linear.Twice()) steps.push_back({Stage::kScale, "times {scale}", step::TimesScale});
    steps.push_back(scale);
    steps.push_back(shift);
  }
  steps.push_back(to_code);
  return steps;
}

Accumulation Pairs(const Case& c) {
  Accumulation result;
  result.kind =
      c.x.dtype() == DType::kS8 ? Accumulation::Kind::kPairsXPlus128 : Accumulation::Kind::kPairs;
  return result;
}

Convention Make(const char* name, const std::string& description, bool pairs) {
  Definition definition;
  definition.name = name;
  definition.description = description;
  definition.pair_saturates = pairs;
  definition.source =
      "openvino 2026.4.1 src/plugins/intel_cpu/src/nodes/fake_quantize.cpp, "
      "src/common/snippets/src/pass/fq_decomposition.cpp";
  definition.satisfies = {"row_independence"};
  definition.variations = {"V2", "V3", "V8", "V14", "V16", "V17", "V43"};
  definition.ops = {Op::kQuantize, Op::kDequantize, Op::kLinear};
  definition.cannot_run = CannotRun;
  if (pairs) definition.variations.insert(definition.variations.begin() + 2, "V6");
  definition.accumulation = pairs ? Pairs : ExactSums;
  definition.channel = ChannelOf;
  definition.steps = Steps;
  return MakeConvention(std::move(definition));
}

}  // namespace

bool OpenvinoMultipliesByOne(const Case& c) {
  if (c.op != Op::kLinear || !CannotRun(c).empty()) return false;
  const Linear linear(c);
  bool by_one = !linear.InRange() && !linear.Twice();
  for (int64_t n = 0; n < c.N; ++n) by_one = by_one && linear.Multiplier(n) == 1;
  return by_one;
}

std::vector<Convention> OpenvinoConventions() {
  const std::string what =
      "OpenVINO's CPU plugin, models with QuantizeLinear and DequantizeLinear: FakeQuantize's "
      "float32 scale and shift, into which scales and bias are folded";
  return {Make("openvino", what, false),
          Make("openvino@avx2", "as openvino, on AVX2 without VNNI: saturating int16 pairs", true)};
}

}  // namespace qualm::conventions
