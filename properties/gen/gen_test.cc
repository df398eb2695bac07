// SPDX-License-Identifier: Apache-2.0
#include "properties/gen/gen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "core/float_format.h"
#include "core/scaled_cast.h"
#include "oracles/exact/exact.h"
#include "oracles/headroom/headroom.h"
#include "properties/coverage.h"

namespace qualm::gen {
namespace {

constexpr uint64_t kCases = 1000;

// Hashes every field of the problem; the expected numbers below depend on the order of fields.
// TheHashTellsFieldsApart finds a field that is missing here.
uint64_t Mix(uint64_t hash, const Case& c) {
  const auto mix = [&](uint64_t value) { hash = MixSeed(hash, value); };
  const auto mix_float = [&](float value) { mix(std::bit_cast<uint32_t>(value)); };
  const auto mix_int = [&](int64_t value) { mix(static_cast<uint64_t>(value)); };
  for (int64_t dim : {c.M, c.N, c.K}) mix_int(dim);
  for (const Tensor* tensor : {&c.x, &c.w}) {
    mix(static_cast<uint64_t>(tensor->dtype()));
    for (int64_t i = 0; i < tensor->size(); ++i) mix(tensor->BitsAt(i));
  }
  for (const QParams* q : {&c.x_q, &c.w_q, &c.out_q}) {
    for (float scale : q->scale) mix_float(scale);
    for (int32_t zero : q->zero_point) mix_int(zero);
  }
  if (c.w_block != 0) mix_int(c.w_block);
  if (c.x_block != 0) mix_int(c.x_block);
  for (float m : c.multiplier) mix_float(m);
  if (c.bias) {
    for (float bias : *c.bias) mix_float(bias);
  }
  if (c.bias_i32) {
    for (int32_t bias : *c.bias_i32) mix_int(bias);
  }
  mix(static_cast<uint64_t>(c.out_dtype));
  mix_int(c.out_min);
  mix_int(c.out_max);
  mix((c.relu ? 1u : 0u) | (c.per_channel ? 2u : 0u) | static_cast<unsigned>(c.requant) << 2);
  if (c.op == Op::kTable) {
    mix(static_cast<uint64_t>(c.function));
    mix_float(c.negative_slope);
  }
  if (RowOf(c.op).cast)
    mix(static_cast<uint64_t>(c.rounding) << 2 | static_cast<uint64_t>(c.overflow));
  if (RowOf(c.op).rule) mix(static_cast<uint64_t>(c.rule) << 1 | static_cast<uint64_t>(c.x_gran));
  if (RowOf(c.op).observer) mix(c.codes ? 1 : 0);
  if (RowOf(c.op).qparams) {
    const Observer& o = c.observer;
    mix_int(c.x.shape()[0]);
    for (const int64_t field : {static_cast<int64_t>(o.kind), static_cast<int64_t>(o.dtype),
                                int64_t{o.quant_min}, int64_t{o.quant_max}}) {
      mix_int(field);
    }
    mix((o.symmetric ? 1u : 0u) | (o.reduce_range ? 2u : 0u));
    mix_float(o.averaging_constant);
  }
  if (!HasWindow(c.op)) return hash;
  const Window& v = c.window;
  for (int64_t number :
       {v.batch, v.in_h, v.in_w, v.in_c, v.kernel_h, v.kernel_w, v.stride_h, v.stride_w, v.pad_top,
        v.pad_bottom, v.pad_left, v.pad_right, v.dilation_h, v.dilation_w, v.groups}) {
    mix_int(number);
  }
  mix((v.ceil_mode ? 1u : 0u) | (v.count_include_pad ? 2u : 0u));
  return hash;
}

void Alter(bool& flag) { flag = !flag; }
void Alter(int32_t& number) { number ^= 1; }
void Alter(int64_t& number) { ++number; }
void Alter(float& number) { number = -number - 1; }
void Alter(DType& dtype) { dtype = dtype == DType::kU8 ? DType::kS8 : DType::kU8; }
template <NamedEnum E>
void Alter(E& choice) {
  choice = static_cast<E>((static_cast<size_t>(choice) + 1) % CountOf<E>());
}
void Alter(Tensor& tensor) { tensor = Tensor(DType::kS32, {3, 3, 3, 3}); }
void Alter(QParams& q) { Alter(q.scale.front()); }
template <class T>
void Alter(std::vector<T>& list) {
  list.push_back(T(1));
}
template <class T>
void Alter(std::optional<std::vector<T>>& list) {
  if (!list) list.emplace();
  Alter(*list);
}

TEST(Gen, TheHashTellsFieldsApart) {
  for (const Op op : AllOps()) {
    const Case c = Draw(op, 1);
    size_t fields = 0;
    ForEachField(c, [&](const Field& /*field*/, const auto& /*value*/) { ++fields; });
    for (size_t changed = 1; changed < fields; ++changed) {  // field 0 is the operation
      Case other = c;
      size_t at = 0;
      std::string name;
      ForEachField(other, [&]<class T>(const Field& field, T& value) {
        if (at++ != changed) return;
        const bool of_window = field.least >= 0 && !HasWindow(op);
        if (of_window || (field.has != nullptr && !(RowOf(op).*field.has))) return;
        name = field.name;
        if constexpr (!std::is_same_v<T, Op>) Alter(value);
      });
      EXPECT_TRUE(name.empty() || Mix(0, other) != Mix(0, c)) << Name(op) << " " << name;
    }
  }
}

TEST(Gen, DrawsValidCasesOfItsOp) {
  for (Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 3 * kCases; ++seed) {
      const Case c = Draw(op, seed);
      ASSERT_EQ(c.op, op);
      ASSERT_EQ(Validate(c), "") << Describe(c) << " seed " << seed;
    }
    for (Theme theme : AllThemes()) {
      for (uint64_t seed = 0; seed < 100; ++seed) {
        const Case c = Draw(op, theme, seed);
        ASSERT_EQ(c.op, op);
        ASSERT_EQ(Validate(c), "") << Describe(c) << " theme " << Name(theme) << " seed " << seed;
      }
    }
  }
}

TEST(Gen, BlocksOfEveryKind) {
  int same = 0, shorter = 0, one = 0, symmetric = 0, many = 0, alike = 0;
  for (const Op op : {Op::kLinear, Op::kDynamicLinear}) {
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const std::optional<Case> c = InBlocks(Draw(op, seed), seed);
      if (!c) continue;
      ASSERT_EQ(Validate(*c), "") << Describe(*c);
      ASSERT_NE(c->w_block, 0);
      (c->K % c->w_block == 0 ? same : shorter) += 1;
      one += RowBlocks(*c) == 1 ? 1 : 0;
      symmetric += std::ranges::count(c->w_q.zero_point, 0) == std::ssize(c->w_q.zero_point);
      if (RowBlocks(*c) < 16) continue;
      ++many;
      alike += std::ranges::adjacent_find(c->w_q.scale, std::not_equal_to()) == c->w_q.scale.end();
    }
  }
  for (const int count : {same, shorter, one, symmetric, many, alike}) EXPECT_GT(count, 10);
  EXPECT_EQ(InBlocks(Draw(Op::kConv2d, 1), 1), std::nullopt);
}

TEST(Gen, BlocksOfElements) {
  for (const Op op : {Op::kQuantize, Op::kDequantize}) {
    int all = 0, shorter = 0, one = 0, small = 0;
    for (uint64_t seed = 0; seed < 4 * kCases; ++seed) {
      const Case drawn = seed % 2 == 0 ? Draw(op, seed) : *WithSmallCodes(op, seed);
      const std::optional<Case> c = ElementsInBlocks(drawn, seed);
      if (!c) continue;
      ASSERT_EQ(Validate(*c), "") << Describe(*c);
      ASSERT_TRUE(HasElementBlocks(*c));
      ++all;
      shorter += c->N % c->x_block != 0 ? 1 : 0;
      one += ElementBlocks(*c) == 1 ? 1 : 0;
      small += HasSmallCodes(*c) ? 1 : 0;
    }
    EXPECT_GT(all, static_cast<int>(kCases) / 5) << Name(op);
    for (const int count : {shorter, one, small}) EXPECT_GT(count, 10) << Name(op);
  }
  EXPECT_EQ(ElementsInBlocks(Draw(Op::kLinear, 1), 1), std::nullopt);
}

TEST(Gen, ScaledCasts) {
  int all = 0, of_x = 0, of_out = 0, both = 0, ties = 0, overflows = 0, underflows = 0, twice = 0;
  int channels = 0, blocks = 0, rows = 0;
  for (uint64_t seed = 0; seed < 8 * kCases; ++seed) {
    const std::optional<Case> c = WithCastScales(Draw(Op::kCast, seed), seed);
    if (!c) continue;
    ASSERT_EQ(Validate(*c), "") << Describe(*c);
    ASSERT_TRUE(IsScaledCast(*c));
    ++all;
    const auto has = [](const QParams& q) {
      return std::ranges::any_of(q.scale, [](float scale) { return scale != 1; });
    };
    const bool x = has(c->x_q), out = has(c->out_q);
    channels += c->per_channel && c->N > 1 ? 1 : 0;
    blocks += c->x_block != 0 && ElementBlocks(*c) > 1 ? 1 : 0;
    rows += c->x_block != 0 && ElementBlocks(*c) == 1 && c->M > 1 ? 1 : 0;
    (x && out ? both : x ? of_x : of_out) += 1;
    bool tie = false, over = false, under = false;
    const double largest = DecodeFloat(c->out_dtype, LargestCode(c->out_dtype)),
                 least = DecodeFloat(c->out_dtype, 1);
    for (int64_t i = 0; i < c->x.size(); ++i) {
      const Quotient quotient = QuotientOf(*c, i);
      const double value = std::abs(quotient.value);
      if (!std::isfinite(value) || value == 0) continue;
      over |= value > largest;
      under |= value < least;
      const auto at = [&](FloatRounding rounding) {
        return DecodeFloat(c->out_dtype,
                           EncodeFloat(c->out_dtype, value, rounding, FloatOverflow::kInfinity));
      };
      const double low = at(FloatRounding::kTowardZero), high = at(FloatRounding::kUp);
      tie |= quotient.exact && value < largest && low < high && value - low == high - value;
    }
    ties += tie, overflows += over, underflows += under;
    bool exact = true;
    const Case quotients = WithQuotients(*c, &exact);
    twice += exact::Evaluate(quotients) != exact::Evaluate(*c);
    EXPECT_TRUE(!exact || exact::Evaluate(quotients) == exact::Evaluate(*c)) << Describe(*c);
  }
  EXPECT_GT(all, static_cast<int>(kCases));
  for (const int count : {of_x, of_out, both, ties, overflows, underflows, channels, blocks})
    EXPECT_GT(count, 200);
  EXPECT_GT(rows, 20);
  EXPECT_GT(twice, 20) << "cases that a quotient in float32 gets wrong";
  EXPECT_EQ(WithCastScales(Draw(Op::kLinear, 1), 1), std::nullopt);
}

TEST(Gen, FloatXOfEveryKind) {
  int plain = 0, blocks = 0, integers = 0, denormals = 0, negative_zeros = 0, large = 0;
  for (uint64_t seed = 0; seed < 4 * kCases; ++seed) {
    const std::optional<Case> c = WithFloatX(Draw(Op::kLinear, seed), seed);
    if (!c) continue;
    ASSERT_EQ(Validate(*c), "") << Describe(*c);
    ASSERT_TRUE(HasFloatX(*c));
    (c->w_block == 0 ? plain : blocks) += 1;
    const std::span<const float> x = c->x.as<float>();
    const auto any = [&](auto holds) { return std::ranges::any_of(x, holds) ? 1 : 0; };
    denormals += any([](float v) { return v != 0 && !std::isnormal(v); });
    negative_zeros += any([](float v) { return v == 0 && std::signbit(v); });
    large += any([](float v) { return std::abs(v) > 0x1p100f; });
    float least = 0x1p127f;
    for (const float v : x) least = v == 0 ? least : std::min(least, std::abs(v));
    integers += !x.empty() && least > 0x1p-25f &&
                        std::ranges::all_of(x, [&](float v) { return std::fmod(v, least) == 0; })
                    ? 1
                    : 0;
  }
  for (const int count : {plain, blocks, integers, denormals, negative_zeros, large})
    EXPECT_GT(count, 10);
}

TEST(Gen, BlocksOfBothOperands) {
  int stored = 0, other = 0, shorter = 0, several = 0, lowest = 0, nibbles = 0;
  for (uint64_t seed = 0; seed < 2 * kCases; ++seed) {
    const Case drawn = Draw(Op::kLinear, seed);
    const std::optional<Case> c = XInBlocks(drawn, seed);
    if (const std::optional<Case> as_stored = XInBlocks(drawn, seed, true))
      ASSERT_EQ(Validate(*as_stored), "") << Describe(*as_stored);
    if (!c) continue;
    ASSERT_EQ(Validate(*c), "") << Describe(*c);
    ASSERT_EQ(c->x_block, c->w_block);
    const auto is_half = [](float scale) { return CodeOf(DType::kF16, scale).has_value(); };
    const bool halves = c->x_block == 32 && std::ranges::all_of(c->x_q.scale, is_half) &&
                        std::ranges::all_of(c->w_q.scale, is_half);
    (halves ? stored : other) += 1;
    shorter += c->K % 32 != 0 ? 1 : 0;
    several += RowBlocks(*c) > 1 ? 1 : 0;
    nibbles += c->w.dtype() == DType::kU4 ? 1 : 0;
    for (int64_t i = 0; i < c->x.size(); ++i) {
      if (c->x.IntAt(i) != -128) continue;
      ++lowest;
      break;
    }
  }
  for (const int count : {stored, other, shorter, several, lowest, nibbles}) EXPECT_GT(count, 20);
  EXPECT_EQ(XInBlocks(Draw(Op::kDynamicLinear, 1), 1), std::nullopt);
}

// A seed in a report must give the same case elsewhere: any compiler, library, number of jobs.
// A deliberate change of the generators changes these numbers; nothing else may.
TEST(Gen, SeedsGiveTheSameCasesEverywhere) {
  const std::map<Op, uint64_t> expected{
      {Op::kQuantize, 0xbb8f2867b9e6c952},      {Op::kDequantize, 0x05426902862d19b1},
      {Op::kRequantize, 0x684e7864fc574fed},    {Op::kLinear, 0x55d7f997f9c5be9f},
      {Op::kConv2d, 0xe4375a204c5fff84},        {Op::kDepthwise, 0xb54eae929d09a842},
      {Op::kAdd, 0x5e21f835e20335d0},           {Op::kMul, 0x80ad04326344752b},
      {Op::kMaxPool, 0x3f12dfcedba429b8},       {Op::kAvgPool, 0x5f9597555c3b6f6f},
      {Op::kGlobalAvgPool, 0x434c16f0dddf55b1}, {Op::kRescale, 0x26bb6ed8e074574e},
      {Op::kConcat, 0xc63a1db08099b677},        {Op::kTable, 0x2d2e75cfd683d166},
      {Op::kSoftmax, 0x2590d1582613892a},       {Op::kChooseQParams, 0xbe2e2227e8cf79f1},
      {Op::kSub, 0x5ab38b1586fca7ce},           {Op::kDynamicLinear, 0x1de74b27fa3dfef0},
      {Op::kCast, 0x2826332d54ec5e7e}};
  for (Op op : AllOps()) {
    uint64_t hash = 0;
    for (uint64_t seed = 0; seed < kCases; ++seed) hash = Mix(hash, Draw(op, seed));
    for (Theme theme : AllThemes()) hash = Mix(hash, Draw(op, theme, 7));
    EXPECT_EQ(hash, expected.at(op)) << Name(op) << " 0x" << std::hex << hash;
  }
}

TEST(Gen, SeedsGiveDifferentCases) {
  for (Op op : AllOps()) {
    std::set<uint64_t> hashes;
    for (uint64_t seed = 0; seed < kCases; ++seed) hashes.insert(Mix(0, Draw(op, seed)));
    // Empty cases carry little and may coincide.
    EXPECT_GT(hashes.size(), kCases * 97 / 100) << Name(op);
  }
}

TEST(Gen, CodesOfSixteenBits) {
  for (const Op op : AllOps()) {
    std::map<DType, int> drawn;
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const Case c = Draw(op, seed);
      ++drawn[IsWideCode(c.out_dtype) ? c.out_dtype : c.x.dtype()];
    }
    const OpRow& row = RowOf(op);
    for (const DType wide : {DType::kS16, DType::kU16}) {
      // Sums of such codes are drawn for those who take them alone.
      const bool has = !HasSums(op) && (row.x_types.contains(wide) || row.out_types.contains(wide));
      EXPECT_EQ(drawn[wide] > static_cast<int>(kCases) / 50, has) << Name(op) << " " << Name(wide);
      EXPECT_LT(drawn[wide], static_cast<int>(kCases) / 8) << Name(op);
    }
  }
}

// Draw has none of them.
TEST(Gen, CodesOfFewerThanEightBits) {
  for (const Op op : AllOps()) {
    const OpRow& row = RowOf(op);
    const bool has = row.x_types.contains(DType::kU4) || row.out_types.contains(DType::kU4);
    std::map<DType, int> drawn;
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      EXPECT_FALSE(HasSmallCodes(Draw(op, seed)));
      const std::optional<Case> c = WithSmallCodes(op, seed);
      ASSERT_EQ(c.has_value(), has) << Name(op);
      if (!c) break;
      ASSERT_EQ(Validate(*c), "") << Describe(*c);
      ++drawn[IsSmallCode(c->out_dtype) ? c->out_dtype : c->x.dtype()];
    }
    if (!has) continue;
    EXPECT_EQ(drawn.size(), 4U) << Name(op);
    for (const auto& [dtype, count] : drawn) {
      EXPECT_TRUE(IsSmallCode(dtype));
      EXPECT_GT(count, static_cast<int>(kCases) / 10) << Name(dtype);
    }
  }
}

TEST(Gen, SumsOfCodesOfSixteenBits) {
  constexpr uint64_t kDrawn = 1000;
  for (const Op op : OpsWhere([](Op each) { return HasSums(each); })) {
    std::map<DType, int> x, w, out;
    int beyond_int32 = 0, symmetric = 0;
    for (uint64_t seed = 0; seed < kDrawn; ++seed) {
      const std::optional<Case> c = WithWideCodes(op, seed);
      ASSERT_TRUE(c && IsWideCode(c->x.dtype()));
      ASSERT_EQ(Validate(*c), "") << Describe(*c);
      ++x[c->x.dtype()], ++w[c->w.dtype()], ++out[c->out_dtype];
      symmetric += c->x_q.zero_point == std::vector<int32_t>{0} && c->x.dtype() == DType::kS16;
      beyond_int32 += headroom::ReachedBy(*c, 0.01).int32_overflows;
    }
    EXPECT_GT(x[DType::kS16], 600);
    EXPECT_GT(x[DType::kU16], 100);
    EXPECT_GT(w[DType::kS8], 600);
    EXPECT_EQ(out.size(), RowOf(op).out_types.count) << Name(op);
    EXPECT_GT(symmetric, 400);
    EXPECT_GT(beyond_int32, 100) << Name(op);
  }
}

TEST(Gen, WeightsOfEveryType) {
  for (const Op op : OpsWhere(HasWeights)) {
    std::map<DType, int> drawn;
    for (uint64_t seed = 0; seed < kCases; ++seed) ++drawn[Draw(op, seed).w.dtype()];
    for (const DType dtype : kWeightCodes)
      EXPECT_GE(drawn[dtype], static_cast<int>(kCases) / 1000) << Name(op) << " " << Name(dtype);
    // The two of 4 bits together, for faults that only they have.
    EXPECT_GE(drawn[DType::kS4] + drawn[DType::kU4], static_cast<int>(kCases) / 12) << Name(op);
  }
}

class HazardRates : public testing::Test {
 protected:
  // Percentage of cases of `op` that reach a hazard.
  static std::map<Hazard, double> Measure(Op op) {
    std::map<Hazard, double> rates;
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      for (Hazard hazard : HazardsOf(Draw(op, seed))) rates[hazard] += 100.0 / kCases;
    }
    for (const auto& [hazard, rate] : rates) {
      RecordProperty(std::string(Name(op)) + "." + std::string(Name(hazard)), std::to_string(rate));
    }
    return rates;
  }
};

// Reports compare drawn cases with these shares. Shares of less than a percent need more cases than
// this; rare_themes_test finds the faults for which the rare themes exist.
TEST_F(HazardRates, AreAsDeclared) {
  for (const Op op : AllOps()) {
    const auto rates = Measure(op);
    for (const HazardRow& row : AllHazards()) {
      const auto at = rates.find(row.hazard);
      if (at == rates.end() || row.least < 0.01) continue;
      EXPECT_GE(at->second, 100 * row.least) << Name(op) << " " << row.name;
    }
  }
}

TEST_F(HazardRates, Linear) {
  auto rates = Measure(Op::kLinear);
  EXPECT_GE(rates[Hazard::kPairSaturates], 15);
  EXPECT_GE(rates[Hazard::kInt32Overflows], 0.3);
  EXPECT_GE(rates[Hazard::kExactTie], 5);
  EXPECT_GE(rates[Hazard::kNearTie], 3);
  EXPECT_GE(rates[Hazard::kClampLow], 25);
  EXPECT_GE(rates[Hazard::kClampHigh], 25);
  EXPECT_GE(rates[Hazard::kMinCodeRun], 3);
  EXPECT_GE(rates[Hazard::kKTail], 30);
  EXPECT_GE(rates[Hazard::kNTail], 25);
  EXPECT_GE(rates[Hazard::kMTail], 5);
  EXPECT_GE(rates[Hazard::kZeroPointPair], 15);
  EXPECT_GE(rates[Hazard::kEmpty], 2);
  EXPECT_GE(rates[Hazard::kSpecialFloat], 1);
  EXPECT_GE(rates[Hazard::kPerChannel], 25);
}

TEST_F(HazardRates, Elementwise) {
  for (Op op : {Op::kQuantize, Op::kRequantize}) {
    auto rates = Measure(op);
    EXPECT_GE(rates[Hazard::kExactTie], 10) << Name(op);
    EXPECT_GE(rates[Hazard::kNearTie], 5) << Name(op);
    EXPECT_GE(rates[Hazard::kClampLow], 30) << Name(op);
    EXPECT_GE(rates[Hazard::kClampHigh], 30) << Name(op);
    EXPECT_GE(rates[Hazard::kEmpty], 1) << Name(op);
  }
  auto rates = Measure(Op::kQuantize);
  EXPECT_GE(rates[Hazard::kSpecialFloat], 15);
  rates = Measure(Op::kDequantize);
  EXPECT_GE(rates[Hazard::kMinCodeRun], 10);
  EXPECT_GE(rates[Hazard::kSpecialFloat], 5);
}

TEST_F(HazardRates, Convolutions) {
  for (Op op : {Op::kConv2d, Op::kDepthwise}) {
    auto rates = Measure(op);
    EXPECT_GE(rates[Hazard::kPairSaturates], 25) << Name(op);
    EXPECT_GE(rates[Hazard::kInt32Overflows], 1) << Name(op);
    EXPECT_GE(rates[Hazard::kExactTie], 3) << Name(op);
    EXPECT_GE(rates[Hazard::kNearTie], 5) << Name(op);
    EXPECT_GE(rates[Hazard::kClampLow], 30) << Name(op);
    EXPECT_GE(rates[Hazard::kClampHigh], 30) << Name(op);
    EXPECT_GE(rates[Hazard::kMinCodeRun], 8) << Name(op);
    EXPECT_GE(rates[Hazard::kKTail], 25) << Name(op);
    EXPECT_GE(rates[Hazard::kNTail], 25) << Name(op);
    EXPECT_GE(rates[Hazard::kMTail], 20) << Name(op);
    EXPECT_GE(rates[Hazard::kZeroPointPair], 15) << Name(op);
    EXPECT_GE(rates[Hazard::kEmpty], 1) << Name(op);
    EXPECT_GE(rates[Hazard::kPerChannel], 25) << Name(op);
    EXPECT_GE(rates[Hazard::kPadding], 30) << Name(op);
    EXPECT_GE(rates[Hazard::kPaddingOffCode], 2) << Name(op);
    EXPECT_GE(rates[Hazard::kAllDistinct], 12) << Name(op);
  }
  EXPECT_GE(Measure(Op::kConv2d)[Hazard::kGroups], 25);
}

TEST_F(HazardRates, Pools) {
  for (Op op : {Op::kMaxPool, Op::kAvgPool, Op::kGlobalAvgPool}) {
    auto rates = Measure(op);
    EXPECT_GE(rates[Hazard::kClampLow], 15) << Name(op);
    EXPECT_GE(rates[Hazard::kClampHigh], 12) << Name(op);
    EXPECT_GE(rates[Hazard::kMinCodeRun], 25) << Name(op);
    EXPECT_GE(rates[Hazard::kKTail], 20) << Name(op);
    EXPECT_GE(rates[Hazard::kNTail], 25) << Name(op);
    EXPECT_GE(rates[Hazard::kEmpty], 1) << Name(op);
    EXPECT_LE(rates[Hazard::kEmpty], 8) << Name(op);
    EXPECT_GE(rates[Hazard::kLongWindow], 1) << Name(op);
    if (op == Op::kGlobalAvgPool) continue;
    EXPECT_GE(rates[Hazard::kPadding], 20) << Name(op);
    EXPECT_GE(rates[Hazard::kAllDistinct], 6) << Name(op);
  }
  for (Op op : {Op::kAvgPool, Op::kGlobalAvgPool}) {
    auto rates = Measure(op);
    EXPECT_GE(rates[Hazard::kExactTie], 12) << Name(op);
    EXPECT_GE(rates[Hazard::kLongWindow], 4) << Name(op);
    EXPECT_GE(rates[Hazard::kMultiplierAboveOne], 6) << Name(op);
  }
}

TEST_F(HazardRates, Operands) {
  for (Op op : {Op::kAdd, Op::kMul, Op::kRescale}) {
    auto rates = Measure(op);
    EXPECT_GE(rates[Hazard::kExactTie], 9) << Name(op);
    EXPECT_GE(rates[Hazard::kNearTie], 4) << Name(op);
    EXPECT_GE(rates[Hazard::kClampLow], 30) << Name(op);
    EXPECT_GE(rates[Hazard::kClampHigh], 30) << Name(op);
    EXPECT_GE(rates[Hazard::kMinCodeRun], 20) << Name(op);
    EXPECT_GE(rates[Hazard::kNTail], 25) << Name(op);
    EXPECT_GE(rates[Hazard::kEmpty], 1) << Name(op);
    EXPECT_GE(rates[Hazard::kMultiplierAboveOne], 15) << Name(op);
    if (op != Op::kRescale) {
      EXPECT_GE(rates[Hazard::kZeroPointPair], 25) << Name(op);
    }
  }
}

TEST(Gen, DrawsEveryRequantizationMode) {
  for (Op op : AllOps()) {
    std::map<Requant, uint64_t> count;
    for (uint64_t seed = 0; seed < kCases; ++seed) ++count[Draw(op, seed).requant];
    const bool has_modes = HasSums(op) || op == Op::kRequantize;
    for (Requant requant : {Requant::kFloat32, Requant::kFixedQ31, Requant::kFixedRndnu}) {
      if (has_modes) {
        EXPECT_GT(count[requant], kCases / 100) << Name(op) << " " << Name(requant);
      } else {
        EXPECT_EQ(count[requant], 0u) << Name(op);
      }
    }
    // Most cases stay exact: they are the ones that every other subject can run.
    EXPECT_GT(count[Requant::kExact], kCases * 3 / 4) << Name(op);
  }
}

TEST_F(HazardRates, Tables) {
  for (Op op : {Op::kConcat, Op::kTable}) {
    auto rates = Measure(op);
    EXPECT_GE(rates[Hazard::kExactTie], 9) << Name(op);
    EXPECT_GE(rates[Hazard::kNearTie], 2) << Name(op);
    EXPECT_GE(rates[Hazard::kClampLow], 15) << Name(op);
    EXPECT_GE(rates[Hazard::kClampHigh], 20) << Name(op);
    EXPECT_GE(rates[Hazard::kMinCodeRun], 15) << Name(op);
    EXPECT_GE(rates[Hazard::kNTail], 25) << Name(op);
    EXPECT_GE(rates[Hazard::kEmpty], 1) << Name(op);
    EXPECT_GE(rates[Hazard::kMultiplierAboveOne], 15) << Name(op);
  }
  EXPECT_GE(Measure(Op::kConcat)[Hazard::kZeroPointPair], 25);
  auto rates = Measure(Op::kSoftmax);
  EXPECT_GE(rates[Hazard::kExactTie], 3);
  EXPECT_GE(rates[Hazard::kNearTie], 1);
  EXPECT_GE(rates[Hazard::kClampLow], 8);
  EXPECT_GE(rates[Hazard::kClampHigh], 8);
  EXPECT_GE(rates[Hazard::kNTail], 25);
  EXPECT_GE(rates[Hazard::kEmpty], 1);
}

// Parameters that only these operations have.
TEST(Gen, TablesAndRowsOfEveryKind) {
  std::map<Function, int64_t> functions;
  int64_t first_empty = 0, second_empty = 0, long_rows = 0, wide_rows = 0, elements = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    ++functions[Draw(Op::kTable, seed).function];
    const Case concat = Draw(Op::kConcat, seed);
    first_empty += concat.x.empty() && !concat.w.empty();
    second_empty += !concat.x.empty() && concat.w.empty();
    const Case softmax = Draw(Op::kSoftmax, seed);
    elements += softmax.x.size();
    long_rows += softmax.N > 512;
    int32_t low = 300, high = -300;
    for (int64_t n = 0; n < softmax.N && softmax.M > 0; ++n) {
      low = std::min(low, softmax.x.IntAt(n));
      high = std::max(high, softmax.x.IntAt(n));
    }
    wide_rows += high - low > 127;
  }
  for (const auto& [function, count] : functions) EXPECT_GE(count, 100) << Name(function);
  EXPECT_EQ(functions.size(), 5u);
  EXPECT_GE(first_empty, 50);
  EXPECT_GE(second_empty, 50);
  EXPECT_GE(long_rows, 60);
  EXPECT_GE(wide_rows, 200);
  EXPECT_LE(elements / static_cast<int64_t>(kCases), 400);
}

TEST(Gen, ObserversMeetTheirCorners) {
  std::map<Observer::Kind, int> kinds;
  int at_floor = 0, one_sided = 0, several_batches = 0, custom = 0, denormal = 0, reduced = 0;
  int with_codes = 0, ties = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case c = Draw(Op::kChooseQParams, seed);
    const bool layer = HasSizesOfLayers(ThemeOf(Op::kChooseQParams, seed));
    EXPECT_LE(c.x.size(), layer ? 75000 : 24 * 400) << Describe(c);
    ++kinds[c.observer.kind];
    const Tensor y = exact::Evaluate(c);
    at_floor += y.FloatAt(0) == 0x1p-23f;
    const auto [low, high] = std::ranges::minmax(c.x.as<float>());
    one_sided += low > 0 || high < 0;
    several_batches += c.x.shape()[0] > 1;
    custom += CodeRange{c.observer.quant_min, c.observer.quant_max} != RangeOf(c.observer.dtype);
    denormal += std::ranges::any_of(c.x.as<float>(),
                                    [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; });
    reduced += c.observer.reduce_range;
    with_codes += c.codes;
    if (c.codes && !layer) ties += headroom::Measure(c).ties > 0;
  }
  EXPECT_GE(kinds[Observer::Kind::kMinMax], 300);
  EXPECT_GE(kinds[Observer::Kind::kMovingAverage], 300);
  EXPECT_GE(kinds[Observer::Kind::kHistogram], 120);
  EXPECT_GE(at_floor, 60);
  EXPECT_GE(one_sided, 150);
  EXPECT_GE(several_batches, 500);
  EXPECT_GE(custom, 80);
  EXPECT_GE(denormal, 50);
  EXPECT_GE(reduced, 200);
  EXPECT_GE(with_codes, 90);
  EXPECT_GE(ties, 30);
}

// The most products of Draw(op, seed): layers have more, and are rare.
int64_t MostProducts(Op op, uint64_t seed) {
  return HasSizesOfLayers(ThemeOf(op, seed)) ? int64_t{5} << 20 : 80000;
}

// Sizes and edges of parameters that no other theme reaches: each about once in 2,000 cases or more
// often.
TEST(Gen, ReachesLayersAndEdgesOfParameters) {
  constexpr int64_t kSeeds = 16000;
  for (Op op : AllOps()) {
    std::map<Hazard, int64_t> reached;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Theme theme = ThemeOf(op, seed);
      if (theme != Theme::kLayer && theme != Theme::kParameterEdges) continue;
      const Case c = Draw(op, seed);
      ASSERT_EQ(Validate(c), "") << Describe(c);
      for (Hazard hazard : HazardsOf(c)) ++reached[hazard];
    }
    for (const HazardRow& row : AllHazards()) {
      if (row.hazard < Hazard::kBlocksOfK || !row.about(op)) continue;
      EXPECT_GE(reached[row.hazard], kSeeds / 4000) << Name(op) << " " << row.name;
    }
  }
}

// Layers and edges of parameters: some cases, at most one of 40.
TEST(Gen, RareThemesAreRare) {
  for (Op op : AllOps()) {
    int64_t rare = 0;
    for (uint64_t seed = 0; seed < 4 * kCases; ++seed) {
      const Theme theme = ThemeOf(op, seed);
      rare += theme == Theme::kLayer || theme == Theme::kParameterEdges;
    }
    EXPECT_GE(rare, 1) << Name(op);
    EXPECT_LE(rare, 4 * static_cast<int64_t>(kCases) / 40) << Name(op);
  }
}

// Small layers, and long rows with one far value, in one of 100 cases or more.
TEST(Gen, DrawsMiddlingSizesAndFarValues) {
  constexpr uint64_t kSeeds = 5 * kCases;
  for (const Op op : AllOps()) {
    uint64_t middling = 0, far = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Theme theme = ThemeOf(op, seed);
      far += theme == Theme::kFarValue;
      if (theme != Theme::kMiddling) continue;
      const Case c = Draw(op, seed);
      const bool terms = op == Op::kDepthwise || (c.K >= 32 && c.K <= 512);
      middling += c.M >= 4 && c.M <= 64 && c.N >= 16 && c.N <= 64 && terms;
    }
    const bool sums = RowOf(op).layout == Layout::kProducts || IsConv(op);
    const bool reduces = sums || IsPool(op) || op == Op::kSoftmax || op == Op::kChooseQParams;
    EXPECT_GE(middling, sums ? kSeeds / 100 : 0) << Name(op);
    EXPECT_GE(far, reduces ? kSeeds / 100 : 0) << Name(op);
  }
}

TEST(Gen, WindowsAreSmallAndOfEveryKind) {
  int64_t far_padding = 0, stride_skips = 0, dilated_past = 0, multiplied = 0, overhang = 0,
          all_min = 0, one_line = 0;
  for (Op op : AllOps()) {
    if (!HasWindow(op)) continue;
    int64_t products = 0;
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const Case c = Draw(op, seed);
      const Window& v = c.window;
      const int64_t cost = c.M * c.N * (IsConv(op) ? c.K : v.kernel_h * v.kernel_w);
      products += cost;
      EXPECT_LE(cost, MostProducts(op, seed)) << Describe(c);
      far_padding += IsConv(op) && (v.pad_top >= v.kernel_h + v.dilation_h || v.pad_left > v.in_w);
      stride_skips += v.stride_h > v.kernel_h || v.stride_w > v.kernel_w;
      dilated_past += v.dilation_h >= v.in_h && v.kernel_h > 1;
      multiplied += op == Op::kDepthwise && c.N > v.in_c;
      one_line += v.in_h == 1 && v.pad_top > 0 && v.pad_bottom > 0 && v.in_w > 1;
      Window floor = v;
      floor.ceil_mode = false;
      overhang += floor.out_h() * floor.out_w() != v.out_h() * v.out_w();
      const int32_t low = RangeOf(c.x.dtype()).min;
      bool only_low = c.M * c.N != 0 && op == Op::kMaxPool;
      for (int64_t i = 0; only_low && i < c.x.size(); ++i) only_low = c.x.IntAt(i) == low;
      all_min += only_low;
    }
    EXPECT_LE(products / static_cast<int64_t>(kCases), 12500) << Name(op);
  }
  EXPECT_GE(far_padding, 50);
  EXPECT_GE(stride_skips, 200);
  EXPECT_GE(dilated_past, 50);
  EXPECT_GE(multiplied, 150);
  EXPECT_GE(overhang, 60);
  EXPECT_GE(all_min, 30);
  EXPECT_GE(one_line, 50) << "of kernels of several rows";
}

// The cost of a case decides how many cases are judged in a second.
TEST(Gen, LinearCasesAreSmall) {
  int64_t products = 0;
  int64_t library_like = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case c = Draw(Op::kLinear, seed);
    products += c.M * c.N * c.K;
    EXPECT_LE(c.M * c.N * c.K, MostProducts(Op::kLinear, seed)) << Describe(c);
    library_like += c.x.dtype() == DType::kU8 && c.w.dtype() == DType::kS8 && IsCode(c.out_dtype) &&
                    !c.bias_i32 && c.K > 0;
  }
  EXPECT_LE(products / static_cast<int64_t>(kCases), 4000);
  EXPECT_GE(library_like, 200);  // a library that has u8*s8 with a float bias can judge these
}

// The three ways in which a sum leaves float32 or int32, and both signs of a tie.
TEST(Gen, ReachesTheCornersOfAccumulators) {
  int64_t beyond_float = 0, beyond_30 = 0, beyond_int32 = 0, pairs_on_edge = 0;
  for (uint64_t seed = 0; seed < 5 * kCases; ++seed) {
    const Case c = Draw(Op::kLinear, seed);
    bool f = false, p = false, o = false;
    for (__int128 sum : exact::CorrectedSums(c)) {
      const __int128 magnitude = sum < 0 ? -sum : sum;
      f = f || magnitude > 1 << 24;
      p = p || magnitude > 1 << 30;
      o = o || sum > INT32_MAX || sum < INT32_MIN;
    }
    beyond_float += f;
    beyond_30 += p;
    beyond_int32 += o;
    if (headroom::HasPairs(c) && c.M > 0 && c.N > 0) {
      const int32_t nearest = headroom::Measure(c).pair_min;
      pairs_on_edge += nearest >= -8 && nearest <= 8;
    }
  }
  EXPECT_GE(beyond_float, 100);
  EXPECT_GE(beyond_30, 50);
  EXPECT_GE(beyond_int32, 20);
  EXPECT_GE(pairs_on_edge, 50);
}

}  // namespace
}  // namespace qualm::gen
