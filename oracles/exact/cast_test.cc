// SPDX-License-Identifier: Apache-2.0
// Casts: the two forms against each other where they could part, and examples by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/verdict.h"
#include "oracles/exact/exact.h"

namespace qualm::exact {
namespace {

Case Cast(Tensor x, DType to, FloatRounding rounding = FloatRounding::kNearestEven,
          FloatOverflow overflow = FloatOverflow::kInfinity) {
  Case c = CaseOver(Op::kCast, std::move(x), to);
  c.rounding = rounding;
  c.overflow = overflow;
  return c;
}

Tensor One(DType dtype, const char* text) {
  Tensor x(dtype, {1, 1});
  x.SetBits(0, CodeOfText(dtype, text).value());
  return x;
}

void ExpectFormsAgree(const Case& c) {
  ASSERT_EQ(Validate(c), "");
  const Tensor fast = Evaluate(c), naive = EvaluateRational(c);
  for (int64_t i = 0; i < fast.size(); ++i) {
    ASSERT_EQ(fast.BitsAt(i), naive.BitsAt(i))
        << Describe(c) << " of " << ElementText(c.x, i) << ": " << ElementText(fast, i) << " and "
        << ElementText(naive, i);
  }
}

TEST(CastForms, AgreeOnEveryPattern) {
  for (const DType from : RowOf(Op::kCast).x_types) {
    if (from == DType::kF32) continue;
    const int64_t codes = int64_t{RangeOf(from).max} + 1;
    // Of 16 bits every pattern to f8e4m3fn, and every 61st to the others.
    for (const DType to : RowOf(Op::kCast).out_types) {
      const int64_t step = codes > 256 && to != DType::kF8E4M3FN ? 61 : 1;
      Tensor x(from, {1, (codes + step - 1) / step});
      for (int64_t i = 0; i < x.size(); ++i) x.SetBits(i, static_cast<uint32_t>(i * step));
      ExpectFormsAgree(Cast(x, to));
    }
  }
}

// What lies at, between and beside the values of the output type, as f32.
TEST(CastForms, AgreeAroundEveryBoundary) {
  for (const DType to : RowOf(Op::kCast).out_types) {
    if (BitsOf(to) > 8) continue;
    std::vector<float> values;
    for (uint32_t code = 0; code <= LargestCode(to); ++code) {
      const double a = DecodeFloat(to, code);
      const double b = code < LargestCode(to) ? DecodeFloat(to, code + 1) : 2 * a;
      for (const double value : {a, a + (b - a) / 2, b, a + (b - a) * 0.5625}) {
        const auto x = static_cast<float>(value);
        for (const float near : {std::nextafter(x, 0.0f), x, std::nextafter(x, INFINITY)}) {
          values.push_back(near);
          values.push_back(-near);
        }
      }
    }
    const auto count = static_cast<int64_t>(values.size());
    for (int rounding = 0; rounding < 3; ++rounding) {
      for (int overflow = 0; overflow < 3; ++overflow) {
        ExpectFormsAgree(Cast(Tensor::Of<float>({1, count}, values), to,
                              static_cast<FloatRounding>(rounding),
                              static_cast<FloatOverflow>(overflow)));
      }
    }
  }
}

struct Example {
  DType from;
  const char* x;
  DType to;
  const char* y;
  FloatRounding rounding = FloatRounding::kNearestEven;
  FloatOverflow overflow = FloatOverflow::kInfinity;
};

TEST(Cast, Examples) {
  using enum DType;
  constexpr auto kUp = FloatRounding::kUp, kDown = FloatRounding::kTowardZero,
                 kEven = FloatRounding::kNearestEven;
  constexpr auto kSaturate = FloatOverflow::kSaturate, kNan = FloatOverflow::kNan;
  for (const Example& e : std::initializer_list<Example>{
           {kF32, "464", kF8E4M3FN, "448"},  // a tie, to the even code
           {kF32, "0x1.d00002p+8", kF8E4M3FN, "nan:7f"},
           {kF32, "0x1.d00002p+8", kF8E4M3FN, "448", kEven, kSaturate},
           {kF32, "0x1.d00002p+8", kF8E4M3FN, "448", kDown},
           {kF32, "-500", kF8E4M3FN, "-448", kUp},
           {kF32, "500", kF8E4M3FN, "nan:7f", kUp},
           {kF32, "61440", kF8E5M2, "inf"},
           {kF32, "61440", kF8E5M2, "nan:7e", kEven, kNan},
           {kF32, "inf", kF8E5M2, "inf", kEven, kNan},
           {kF32, "-inf", kF8E5M2, "-57344", kEven, kSaturate},
           {kF16, "nan:7c01", kF8E5M2, "nan:7e"},
           {kF16, "nan:fe00", kF4E2M1FN, "6"},
           {kF32, "0x1p-10", kF8E4M3FN, "0"},  // half of the smallest subnormal
           {kF32, "-0x1p-10", kF8E4M3FN, "-0x0p+0"},
           {kF32, "-0x1p-10", kF8E4M3FNUZ, "-0x1p-10"},
           {kF32, "-0x1p-12", kF8E4M3FNUZ, "0"},  // no -0
           {kF32, "0x1.8p-10", kF8E4M3FN, "0x1p-9"},
           {kF32, "0x1p-149", kF8E8M0FNU, "0x1p-127"},
           {kF32, "1.5", kF8E8M0FNU, "2"},
           {kF32, "1.5", kF8E8M0FNU, "1", kDown},
           {kF32, "0", kF8E8M0FNU, "nan:ff"},
           {kF32, "-1", kF8E8M0FNU, "0x1p-127", kEven, kSaturate},
           {kF32, "-1", kUE4M3, "nan:7f"},
           {kF8E8M0FNU, "0x1p-127", kF32, "0x1p-127"},
           {kF8E4M3FN, "nan:ff", kF32, "nan:7fc00000"},
           {kF6E3M2FN, "-28", kBF16, "-28"}}) {
    const Case c = Cast(One(e.from, e.x), e.to, e.rounding, e.overflow);
    const Tensor y = Evaluate(c);
    EXPECT_EQ(y.BitsAt(0), CodeOfText(e.to, e.y)) << e.x << " -> " << ElementText(y, 0);
    ExpectFormsAgree(c);
  }
}

Case Scaled(Case c, float x_scale, float out_scale) {
  c.x_q.scale = {x_scale};
  c.out_q.scale = {out_scale};
  return c;
}

TEST(ScaledCast, Examples) {
  using enum DType;
  constexpr float kTenth = 0.1f;  // more than 1/10
  struct Row {
    DType from;
    const char* x;
    DType to;
    float x_scale, out_scale;
    const char* y;
  };
  for (const Row& r : std::initializer_list<Row>{
           {kF32, "3", kF8E4M3FN, 1, 0.25f, "12"},
           {kF8E4M3FN, "3", kF32, 0.25f, 1, "0.75"},
           {kF8E5M2, "2", kF8E4M3FN, 0.5f, 4, "0.25"},
           // 0.265625 is half way, and the float32 nearest to the quotient; that lies above it.
           {kF32, "0x1.b33334p-6", kF8E4M3FN, 1, kTenth, "0.28125"},
           {kF32, "0x1.b33332p-6", kF8E4M3FN, 1, kTenth, "0.25"},
           {kF32, "-0x1.b33334p-6", kF8E4M3FN, 1, kTenth, "-0.28125"},
           {kF32, "46.3", kF8E4M3FN, 1, kTenth, "448"},
           {kF32, "46.5", kF8E4M3FN, 1, kTenth, "nan:7f"},
           {kF32, "0.625", kF4E2M1FN, 1, 0.5f, "1"},  // a tie, to the even code
           {kF32, "0.875", kF4E2M1FN, 1, 0.5f, "2"},
           {kF32, "-1", kF6E2M3FN, 1, 0.25f, "-4"},
           {kF32, "0x1p-149", kF32, 0x1p-149f, 0x1p-149f, "0x1p-149"},
           {kF32, "0x1p-149", kF32, 0.5f, 1, "0"},
           {kF32, "0x1p-149", kF32, 0x1.000002p-1f, 1, "0x1p-149"},
           {kF32, "0x1.fffffep+127", kF32, 0x1.fffffep+127f, 0x1.fffffep+127f, "0x1.fffffep+127"},
           {kF32, "2", kF32, 0x1.fffffep+127f, 1, "inf"},
           {kF32, "-0x0p+0", kF8E5M2, 3, 7, "-0x0p+0"},
           {kF32, "-inf", kF8E5M2, 3, 7, "-inf"},
           {kF8E4M3FN, "nan:7f", kF32, 3, 7, "nan:7fc00000"},
           {kF8E8M0FNU, "0x1p-127", kF8E8M0FNU, 3, 2, "0x1p-126"}}) {
    const Case c = Scaled(Cast(One(r.from, r.x), r.to), r.x_scale, r.out_scale);
    const Tensor y = Evaluate(c);
    EXPECT_EQ(y.BitsAt(0), CodeOfText(r.to, r.y)) << r.x << " -> " << ElementText(y, 0);
    ExpectFormsAgree(c);
  }
}

TEST(ScaledCast, TellsTheQuotient) {
  const Case c = Scaled(Cast(One(DType::kF32, "3"), DType::kF8E4M3FN), 1, 0.25f);
  const Trace trace = Derive(c, 0);
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].text, "x / out_scale: 0x1.8p+1 / 0.25 = 12");
  EXPECT_EQ(trace[0].value, "12");
  EXPECT_EQ(trace[1].value, "0x1.8p+3");
  EXPECT_EQ(RealValueText(Scaled(Cast(One(DType::kF16, "1"), DType::kF32), 3, 7), 0), "3/7");
  EXPECT_EQ(Describe(c), "cast M=1 N=1 f32->f8e4m3fn per-tensor out_scale=0x1p-2");
}

TEST(Cast, EveryNanIsRight) {
  const Case c = Cast(One(DType::kF32, "nan:ffc00001"), DType::kF8E5M2);
  for (const Tensor& right : {Evaluate(c), EvaluateRational(c)}) {
    for (const char* nan : {"nan:7d", "nan:7f", "nan:fe"})
      EXPECT_EQ(FirstDivergence(right, One(DType::kF8E5M2, nan)), std::nullopt) << nan;
    EXPECT_NE(FirstDivergence(right, One(DType::kF8E5M2, "inf")), std::nullopt);
  }
}

TEST(Cast, StepsEndInTheOutput) {
  using enum DType;
  const auto last = [](const Case& c) { return Derive(c, 0).back(); };
  EXPECT_EQ(last(Cast(One(kF32, "464"), kF8E4M3FN)).value, "0x1.cp+8");
  EXPECT_EQ(last(Cast(One(kF32, "480"), kF8E4M3FN)).text,
            "beyond the largest value of f8e4m3fn, 448, overflow infinity: nan:7f");
  EXPECT_EQ(last(Cast(One(kF32, "-1"), kF8E8M0FNU)).text,
            "f8e8m0fnu has no such number, overflow infinity: nan:ff");
  EXPECT_EQ(last(Cast(One(kF32, "nan:7fc00000"), kF8E5M2)).text,
            "x is nan:7fc00000, which gives any NaN of f8e5m2");
  EXPECT_EQ(last(Cast(One(kF32, "-0x1p-30"), kF8E5M2)).value, "-0x0p+0");
  EXPECT_EQ(RealValueText(Cast(One(kF16, "0.75"), kF8E5M2), 0), "3/4");
  EXPECT_EQ(RealValueText(Cast(One(kF16, "-inf"), kF8E5M2), 0), "-inf");
}

}  // namespace
}  // namespace qualm::exact
