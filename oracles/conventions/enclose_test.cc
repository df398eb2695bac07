// SPDX-License-Identifier: Apache-2.0
// What a convention says of all inputs between two, held against the codes of inputs between them.
// Proofs rest on it: a range that is too narrow proves what is false.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"

namespace qualm {
namespace {

// Floats in their order as integers, -NaN to NaN.
int64_t Rank(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  return bits >= 0 ? bits : -static_cast<int64_t>(bits & 0x7fffffff);
}
float OfRank(int64_t rank) {
  const auto magnitude = static_cast<uint32_t>(rank < 0 ? -rank : rank);
  return std::bit_cast<float>(rank < 0 ? magnitude | 0x80000000u : magnitude);
}

// A quantize or requantize of one row, without x.
Case AnyScale(Rng& rng, Op op) {
  Case c;
  c.op = op;
  c.M = 1;
  c.out_dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
  const CodeRange range = RangeOf(c.out_dtype);
  const auto power = [&](int least, int most) {
    const float one = std::ldexp(1.0f, static_cast<int>(rng.Between(least, most)));
    return rng.Chance(1, 3) ? one : one * static_cast<float>(1 + rng.Unit());
  };
  c.out_q = {{1.0f}, {static_cast<int32_t>(rng.Between(range.min, range.max))}};
  if (rng.Chance(1, 4)) c.out_q.zero_point = {0};
  if (op == Op::kQuantize) {
    c.out_q.scale = {rng.Chance(1, 4) ? power(-120, 120) : power(-6, 6)};
  } else {
    c.multiplier = {rng.Chance(1, 4) ? power(-31, 12) : power(-12, 0)};
  }
  OpenClamp(&c);
  return c;
}

void SetInputs(Case* c, const std::vector<float>& x) {
  c->N = static_cast<int64_t>(x.size());
  c->x = Tensor::Of<float>({1, c->N}, x);
}
void SetInputs(Case* c, const std::vector<int32_t>& x) {
  c->N = static_cast<int64_t>(x.size());
  c->x = Tensor::Of<int32_t>({1, c->N}, x);
}

// Holds the range of two inputs against both and random ones between them.
class Between {
 public:
  explicit Between(const Convention& convention) : convention_(convention) {}

  template <class T>
  void Check(Case c, T first, T last, Rng& rng) {
    SetInputs(&c, std::vector<T>{first, last});
    if (!Validate(c).empty() || !convention_.cannot_run(c).empty()) return;
    ++asked_;
    const std::optional<CodeRange> codes = EncloseBy(convention_, c);
    if (!codes) return;
    ++known_;
    std::vector<T> inside{first, last};
    for (int i = 0; i < 40; ++i) inside.push_back(Any(first, last, rng));
    SetInputs(&c, inside);
    const Tensor y = convention_.run(c).y;
    for (int64_t i = 0; i < y.size(); ++i) {
      ASSERT_TRUE(y.IntAt(i) >= codes->min && y.IntAt(i) <= codes->max)
          << convention_.name << ": " << inside[static_cast<size_t>(i)] << " between " << first
          << " and " << last << " has code " << y.IntAt(i) << ", not " << codes->min << ".."
          << codes->max;
    }
    if (y.IntAt(0) != y.IntAt(1)) ++apart_;
  }

  int64_t asked() const { return asked_; }
  int64_t known() const { return known_; }
  int64_t apart() const { return apart_; }

 private:
  static float Any(float first, float last, Rng& rng) {
    if (std::isnan(first)) return first;
    return OfRank(rng.Between(Rank(first), Rank(last)));
  }
  static int32_t Any(int32_t first, int32_t last, Rng& rng) {
    return static_cast<int32_t>(rng.Between(first, last));
  }

  const Convention& convention_;
  int64_t asked_ = 0, known_ = 0, apart_ = 0;
};

class EncloseTest : public testing::TestWithParam<std::string> {};

TEST_P(EncloseTest, HoldsTheCodesBetweenTheEnds) {
  const Convention& convention = *FindConvention(GetParam());
  Between between(convention);
  Rng rng(31);
  constexpr std::array<float, 12> kMarks{0.0f,    -0.0f,    1.0f,    -1.0f,    0x1p23f,  -0x1p24f,
                                         0x1p31f, -0x1p31f, 0x1p63f, -0x1p63f, INFINITY, -INFINITY};
  for (int trial = 0; trial < 1500 && !HasFailure(); ++trial) {
    Case c = AnyScale(rng, Op::kQuantize);
    const auto real = [&] {
      const float mark = rng.Pick(kMarks) * c.out_q.scale[0];
      if (rng.Chance(1, 2) && !std::isnan(mark)) return mark;
      return static_cast<float>((rng.Unit() - 0.5) * 900) * c.out_q.scale[0];
    };
    float first = real(), last = real();
    if (rng.Chance(1, 3)) last = first;
    if (rng.Chance(1, 3)) last = std::clamp(first + c.out_q.scale[0], -FLT_MAX, FLT_MAX);
    if (Rank(first) > Rank(last)) std::swap(first, last);
    if (rng.Chance(1, 30)) first = last = NAN;
    between.Check(c, first, last, rng);
  }
  constexpr std::array<int32_t, 8> kSums{0,         1,       -1,         INT32_MAX,
                                         INT32_MIN, 1 << 24, -(1 << 25), INT32_MAX - 64};
  for (int trial = 0; trial < 1500 && !HasFailure(); ++trial) {
    Case c = AnyScale(rng, Op::kRequantize);
    const auto sum = [&] {
      return rng.Chance(1, 3) ? rng.Pick(kSums)
                              : static_cast<int32_t>(rng.Next()) >> rng.Between(0, 24);
    };
    int32_t first = sum(), last = rng.Chance(1, 4) ? first : sum();
    if (first > last) std::swap(first, last);
    between.Check(c, first, last, rng);
  }
  // Of these nothing is known: a step of theirs need not rise.
  const bool none = convention.name == "aten@aarch64" || convention.name == "gemmlowp@sse4" ||
                    convention.name == "tflite@builtin" || convention.name == "torch-decomposed" ||
                    convention.name.starts_with("numpy@");
  if (none || !(Has(convention, Op::kQuantize) || Has(convention, Op::kRequantize))) return;
  // mnn and ggml have s8 without zero points, ggml no x beyond the codes.
  const bool ggml = convention.name.starts_with("ggml@");
  EXPECT_GT(between.asked(), ggml ? 30 : convention.name == "mnn" ? 150 : 500);
  EXPECT_GT(between.known(), between.asked() / 3);
  EXPECT_GT(between.apart(), between.asked() / 7) << "ends of one code alone show little";
}

// What it does not know of it says nothing of.
TEST(Enclose, OnlyCodesOfOneScale) {
  for (const Convention& convention : AllConventions()) {
    Rng rng(32);
    Case c = AnyScale(rng, Op::kQuantize);
    SetInputs(&c, std::vector<float>{0.0f, 1.0f});
    c.per_channel = true;
    c.out_q = {{1.0f, 1.0f}, {0, 0}};
    EXPECT_FALSE(EncloseBy(convention, c)) << convention.name;
    c = AnyScale(rng, Op::kRequantize);
    SetInputs(&c, std::vector<int32_t>{0, 1});
    c.out_dtype = DType::kF32;
    c.out_q = {{1.0f}, {0}};
    EXPECT_FALSE(EncloseBy(convention, c)) << convention.name;
    c = Case();
    c.op = Op::kDequantize;
    c.M = 1;
    c.N = 2;
    c.x = Tensor(DType::kU8, {1, 2});
    c.out_dtype = DType::kF32;
    EXPECT_FALSE(EncloseBy(convention, c)) << convention.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EncloseTest, testing::ValuesIn(NamesOfConventions()), TestName);

}  // namespace
}  // namespace qualm
