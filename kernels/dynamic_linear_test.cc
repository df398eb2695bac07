// SPDX-License-Identifier: Apache-2.0
// dynamic_linear on every instruction set: choices of a scale as libraries recorded them, sums
// longer than cases have, rows, threads, scratch, the environment of the caller, refusals.
#include "kernels/dynamic_linear.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>
#include <numeric>

#include "kernels/common/counted_new.h"
#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;
using test::TestPool;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr QParamsRule kRules[] = {QParamsRule::kObserver, QParamsRule::kAten, QParamsRule::kOnnx};

struct Problem {
  int64_t m = 1, n = 1, k = 1;
  std::vector<float> x;    // dense [m,k]
  std::vector<int32_t> w;  // dense [n,k], codes
  ElementType w_type = ElementType::kS8;
  std::vector<float> w_scale = {1.0f};
  std::vector<int32_t> w_zero = {0};
  std::vector<float> bias;
  int64_t x_gap = 0, w_gap = 0, y_gap = 0;
  bool relu = false, per_row = false;
  QParamsRule rule = QParamsRule::kObserver;
  ObserverParams qparams;
};

Status Pack(const Problem& p, PackedDynamicLinear* packed) {
  const int64_t stride = p.k + p.w_gap;
  std::vector<uint8_t> w(static_cast<size_t>(p.n * stride), 0x5A);
  for (int64_t i = 0; i < p.n * p.k; ++i) {
    w[static_cast<size_t>(i / p.k * stride + i % p.k)] =
        static_cast<uint8_t>(p.w[static_cast<size_t>(i)]);
  }
  ObserverParams qparams = p.qparams;
  qparams.rule = p.rule;
  return PackedDynamicLinear::Pack({.weights = {w.data(), p.w_type, p.n, p.k, stride},
                                    .w_scale = p.w_scale,
                                    .w_zero_point = p.w_zero,
                                    .bias = p.bias,
                                    .relu = p.relu,
                                    .per_row = p.per_row,
                                    .qparams = qparams},
                                   packed);
}

// From and to memory that ends at a page which cannot be touched. Gaps between rows of x hold NaN;
// those of y stay as they were.
std::vector<float> Outputs(const Problem& p, ThreadPool* pool = nullptr) {
  PackedDynamicLinear packed;
  EXPECT_EQ(Pack(p, &packed).error, "");
  const auto size = [](int64_t rows, int64_t columns, int64_t gap) {
    return static_cast<size_t>(rows == 0 || columns == 0 ? 0
                                                         : (rows - 1) * (columns + gap) + columns);
  };
  GuardedBuffer<float> x(size(p.m, p.k, p.x_gap)), y(size(p.m, p.n, p.y_gap));
  for (size_t i = 0; i < x.size(); ++i) x[i] = kNan;
  for (int64_t i = 0; i < p.m * p.k; ++i) {
    x[static_cast<size_t>(i / p.k * (p.k + p.x_gap) + i % p.k)] = p.x[static_cast<size_t>(i)];
  }
  for (size_t i = 0; i < y.size(); ++i) y[i] = -77.0f;
  EXPECT_EQ(packed
                .Run({x.data(), ElementType::kF32, p.m, p.k, p.k + p.x_gap},
                     {y.data(), ElementType::kF32, p.m, p.n, p.n + p.y_gap}, {}, pool)
                .error,
            "");
  std::vector<float> dense;
  for (size_t i = 0; i < y.size(); ++i) {
    if (static_cast<int64_t>(i) % (p.n + p.y_gap) < p.n) {
      dense.push_back(y[i]);
    } else {
      EXPECT_EQ(y[i], -77.0f) << "a gap was written";
    }
  }
  return dense;
}

void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

// An identity for weights shows what each value is quantized to.
Problem Identity(const std::vector<float>& x, QParamsRule rule) {
  Problem p;
  p.x = x;
  p.n = p.k = static_cast<int64_t>(x.size());
  p.w.resize(static_cast<size_t>(p.n * p.k));
  for (int64_t j = 0; j < p.n; ++j) p.w[static_cast<size_t>(j * p.k + j)] = 1;
  p.rule = rule;
  return p;
}

// Scales recorded from PyTorch 1.13.1's torch._choose_qparams_per_tensor, in float32: the smallest
// and the largest value of choose_aten4 and choose_aten5.
TEST(DynamicLinear, ChoosesAsAtenDoes) {
  Problem p = Identity({-0x1.a3ad8ep-3f, 0x1.22beeep-1f}, QParamsRule::kAten);
  const float scale = 0x1.8d37890909091p-9f;
  std::vector<float> expected = {-68 * scale, (255 - 68) * scale};
  ForEachTarget([&](const std::string&) { ExpectSameBits(Outputs(p), expected); });
  p = Identity({-0x1.f19d3ep-31f, 0x1.10bb68p-31f}, QParamsRule::kAten);
  p.qparams.reduce_range = true;
  p.w_scale = {0x1p20f};
  // Widened to the scale 6.1e-5, of which both are 0.
  ForEachTarget([&](const std::string&) { ExpectSameBits(Outputs(p), {0.0f, 0.0f}); });
  p.x = {0, 0};
  ForEachTarget([&](const std::string&) { ExpectSameBits(Outputs(p), {0.0f, 0.0f}); });
}

TEST(DynamicLinear, ChoosesAsOnnxDoes) {
  // By hand: scale 7/255, zero point RNE(3 * 255/7) = RNE(109.29).
  const Problem p = Identity({0, 2, -3, -2.5f, 1.34f, 0.5f, 4}, QParamsRule::kOnnx);
  const float scale = 7.0f / 255.0f;
  std::vector<float> expected;
  for (const int code : {109, 182, 0, 18, 158, 127, 255}) {
    expected.push_back(static_cast<float>(code - 109) * scale);
  }
  ForEachTarget([&](const std::string&) { ExpectSameBits(Outputs(p), expected); });
  // Denormals: the smallest of all is its own scale.
  const Problem q = Identity({0x1p-149f, 0x1.8p-148f, 0}, QParamsRule::kOnnx);
  ForEachTarget([&](const std::string&) { ExpectSameBits(Outputs(q), q.x); });
}

TEST(DynamicLinear, ARowHasItsOwnScaleOrThatOfAll) {
  Random random(8);
  for (const QParamsRule rule : kRules) {
    Problem p;
    p.m = 70;  // a full block and a remainder
    p.n = 3;
    p.k = 9;
    p.rule = rule;
    for (int64_t i = 0; i < p.m * p.k; ++i) p.x.push_back(random.Scale(-3, 3));
    p.x[5] = 1000;  // an outlier in the first row
    for (int64_t i = 0; i < p.n * p.k; ++i) {
      p.w.push_back(static_cast<int32_t>(random.Between(-128, 127)));
    }
    const std::vector<float> together = Outputs(p);
    ForEachTarget([&](const std::string&) { ExpectSameBits(Outputs(p), together); });
    p.per_row = true;
    std::vector<float> alone;
    for (int64_t i = 0; i < p.m; ++i) {
      Problem one = p;
      one.m = 1;
      one.per_row = i % 2 == 0;  // for one row both are the same
      one.x.assign(p.x.begin() + i * p.k, p.x.begin() + (i + 1) * p.k);
      const std::vector<float> y = Outputs(one);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    EXPECT_NE(alone, together);
    ForEachTarget([&](const std::string&) { ExpectSameBits(Outputs(p), alone); });
  }
}

// Sums beyond int32 from blocks of few rows. The values are their codes less the zero point: their
// range is that of the codes, so the scale is 1.
TEST(DynamicLinear, LongSums) {
  for (const bool signed_codes : {false, true}) {
    Problem p;
    p.m = 6;
    p.n = 2;
    p.k = 66'003;
    p.per_row = true;
    if (signed_codes) p.qparams = {.type = ElementType::kS8, .quant_min = -128, .quant_max = 127};
    for (int64_t i = 0; i < p.m; ++i) {
      // Zero points at both ends of the codes, and in between.
      for (int64_t k = 0; k < p.k; ++k) {
        p.x.push_back(i % 3 == 0 ? 255.0f : i % 3 == 1 ? -255.0f : k == 0 ? -127.0f : 128.0f);
      }
    }
    p.w.assign(static_cast<size_t>(p.n * p.k), 127);
    std::fill_n(p.w.begin() + p.k, p.k, -128);
    for (const auto& [zero0, zero1] : {std::pair{0, 0}, {-128, 127}}) {
      p.w_zero = {zero0, zero1};
      p.w_scale = {1, 1};
      std::vector<float> expected;
      for (int64_t i = 0; i < p.m; ++i) {
        const double sum = std::accumulate(p.x.begin() + i * p.k, p.x.begin() + (i + 1) * p.k, 0.0);
        expected.push_back(static_cast<float>(sum * (127 - zero0)));
        expected.push_back(static_cast<float>(sum * (-128 - zero1)));
      }
      ForEachTarget([&](const std::string&) { ExpectSameBits(Outputs(p), expected); });
    }
  }
}

// Panels of 32, 64 and 128 bit sums, row sums and a K tail: every part of the scratch is used.
Problem UsesAllScratch(bool per_row) {
  Random random(12);
  Problem p;
  p.m = 200;
  p.n = 140;
  p.k = 11;
  p.per_row = per_row;
  for (int64_t i = 0; i < p.m * p.k; ++i) p.x.push_back(random.Scale(-9, 3));
  p.x[100] = kNan;
  for (int64_t i = 0; i < p.n * p.k; ++i) {
    p.w.push_back(static_cast<int32_t>(random.Between(-128, 127)));
  }
  p.w_zero.assign(140, 1);
  for (size_t j = 0; j < 30; ++j) p.w_zero[j] = j < 10 ? INT32_MIN : 1 << 28;
  p.w_scale = {0.7f};
  return p;
}

TEST(DynamicLinear, AnyNumberOfThreadsGivesTheSameBits) {
  for (const bool per_row : {false, true}) {
    const Problem p = UsesAllScratch(per_row);
    const std::vector<float> expected = Outputs(p);
    for (const int64_t threads : {0, 1, 2, 3, 100}) {
      TestPool pool(threads);
      ForEachTarget([&](const std::string&) { ExpectSameBits(Outputs(p, &pool), expected); });
    }
  }
}

TEST(DynamicLinear, ScratchOfTheAskedSizeSufficesAtAnyAlignment) {
  for (const bool per_row : {false, true}) {
    for (const QParamsRule rule : kRules) {
      Problem p = UsesAllScratch(per_row);
      p.rule = rule;
      ForEachTarget([&](const std::string&) {
        const std::vector<float> expected = Outputs(p);
        PackedDynamicLinear packed;
        ASSERT_TRUE(Pack(p, &packed).ok());
        const size_t bytes = packed.ScratchBytes(p.m);
        for (const size_t slack : {0, 1, 3, 8}) {
          GuardedBuffer<uint8_t> memory(bytes + slack);
          std::fill_n(memory.data(), memory.size(), uint8_t{0xA5});
          std::vector<float> y(static_cast<size_t>(p.m * p.n));
          const int64_t before = testing::allocations;
          const Status status =
              packed.Run({p.x.data(), ElementType::kF32, p.m, p.k, p.k},
                         {y.data(), ElementType::kF32, p.m, p.n, p.n}, {memory.data(), bytes});
          EXPECT_EQ(testing::allocations, before);
          ASSERT_TRUE(status.ok()) << status.error;
          ExpectSameBits(y, expected);
          for (size_t i = bytes; i < memory.size(); ++i) ASSERT_EQ(memory[i], 0xA5);
        }
        // One byte less is not touched.
        GuardedBuffer<uint8_t> less(bytes - 1);
        std::fill_n(less.data(), less.size(), uint8_t{0xC3});
        std::vector<float> y(static_cast<size_t>(p.m * p.n));
        ASSERT_TRUE(packed
                        .Run({p.x.data(), ElementType::kF32, p.m, p.k, p.k},
                             {y.data(), ElementType::kF32, p.m, p.n, p.n}, {less.data(), bytes - 1})
                        .ok());
        ExpectSameBits(y, expected);
        for (size_t i = 0; i < less.size(); ++i) ASSERT_EQ(less[i], 0xC3);
      });
    }
  }
}

TEST(DynamicLinear, ScratchIsBounded) {
  PackedDynamicLinear packed;
  EXPECT_EQ(packed.ScratchBytes(10), 0u);
  ASSERT_TRUE(Pack(UsesAllScratch(false), &packed).ok());
  EXPECT_EQ(packed.ScratchBytes(0), 0u);
  EXPECT_EQ(packed.ScratchBytes(-1), 0u);
  EXPECT_LT(packed.ScratchBytes(1), packed.ScratchBytes(5));
  EXPECT_EQ(packed.ScratchBytes(1000), packed.ScratchBytes(INT64_MAX));
  EXPECT_LT(packed.ScratchBytes(INT64_MAX), 200u << 10);
}

TEST(DynamicLinear, RowsOfXAndYMayBeInterleaved) {
  Problem p = UsesAllScratch(true);
  const std::vector<float> expected = Outputs(p);
  PackedDynamicLinear packed;
  ASSERT_TRUE(Pack(p, &packed).ok());
  const int64_t stride = p.k + p.n;
  std::vector<float> buffer(static_cast<size_t>(p.m * stride));
  for (int64_t i = 0; i < p.m * p.k; ++i) {
    buffer[static_cast<size_t>(i / p.k * stride + i % p.k)] = p.x[static_cast<size_t>(i)];
  }
  ASSERT_TRUE(packed
                  .Run({buffer.data(), ElementType::kF32, p.m, p.k, stride},
                       {buffer.data() + p.k, ElementType::kF32, p.m, p.n, stride})
                  .ok());
  std::vector<float> y;
  for (int64_t i = 0; i < p.m * p.n; ++i) {
    y.push_back(buffer[static_cast<size_t>(i / p.n * stride + p.k + i % p.n)]);
  }
  ExpectSameBits(y, expected);
}

TEST(DynamicLinear, RoundingModeOfTheCallerDoesNotMatter) {
  for (const QParamsRule rule : kRules) {
    for (const bool per_row : {false, true}) {
      Problem p = UsesAllScratch(per_row);
      p.rule = rule;
      ForEachTarget([&](const std::string&) {
        const std::vector<float> expected = Outputs(p);
        for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
          std::fesetround(mode);
          const std::vector<float> y = Outputs(p);
          const int after = std::fegetround();
          std::fesetround(FE_TONEAREST);
          EXPECT_EQ(after, mode);
          ExpectSameBits(y, expected);
        }
      });
    }
  }
}

TEST(DynamicLinear, InvalidArgumentsAreErrors) {
  const auto error = [](const auto& change) {
    Problem p;
    p.w = {1};
    change(p);
    PackedDynamicLinear packed;
    const std::string text = Pack(p, &packed).error;
    EXPECT_TRUE(text.empty() || packed.ScratchBytes(1) == 0) << "something was packed";
    return text;
  };
  EXPECT_EQ(error([](Problem&) {}), "");
  EXPECT_NE(error([](Problem& p) { p.w_scale = {0}; }), "");
  EXPECT_NE(error([](Problem& p) { p.w_zero = {}; }), "");
  EXPECT_NE(error([](Problem& p) { p.bias = {1, 2}; }), "");
  EXPECT_NE(error([](Problem& p) { p.bias = {kNan}; }), "");
  EXPECT_NE(error([](Problem& p) { p.qparams.type = ElementType::kF32; }), "");
  EXPECT_NE(error([](Problem& p) { p.qparams.quant_max = 0; }), "");
  EXPECT_NE(error([](Problem& p) { p.qparams.symmetric = p.qparams.reduce_range = true; }), "");
  EXPECT_NE(error([](Problem& p) { p.rule = static_cast<QParamsRule>(3); }), "");
  for (const QParamsRule rule : {QParamsRule::kAten, QParamsRule::kOnnx}) {
    EXPECT_EQ(error([&](Problem& p) { p.rule = rule; }), "");
    EXPECT_NE(error([&](Problem& p) { p.rule = rule, p.qparams.symmetric = true; }), "");
    EXPECT_NE(error([&](Problem& p) { p.rule = rule, p.qparams.quant_max = 127; }), "");
    EXPECT_EQ(error([&](Problem& p) { p.rule = rule, p.qparams.reduce_range = true; }) == "",
              rule == QParamsRule::kAten);
  }

  Problem p;
  p.w = {1};
  PackedDynamicLinear packed;
  std::vector<float> x = {1, 2}, y = {-7, -7};
  const auto run = [&](const ConstMatrix& from, const MutableMatrix& to) {
    const std::string text = packed.Run(from, to).error;
    EXPECT_EQ(y, (std::vector<float>{-7, -7}));
    return text;
  };
  const ConstMatrix good_x = {x.data(), ElementType::kF32, 2, 1, 1};
  const MutableMatrix good_y = {y.data(), ElementType::kF32, 2, 1, 1};
  EXPECT_NE(run(good_x, good_y), "");  // nothing packed
  ASSERT_EQ(Pack(p, &packed).error, "");
  EXPECT_EQ(PackedDynamicLinear::Pack({}, nullptr).ok(), false);
  EXPECT_NE(run({x.data(), ElementType::kU8, 2, 1, 1}, good_y), "");
  EXPECT_NE(run({x.data(), ElementType::kF32, 1, 2, 2}, good_y), "");
  EXPECT_NE(run({x.data(), ElementType::kF32, 1, 1, 1}, good_y), "");
  EXPECT_NE(run(good_x, {y.data(), ElementType::kS32, 2, 1, 1}), "");
  EXPECT_NE(run(good_x, {nullptr, ElementType::kF32, 2, 1, 1}), "");
  EXPECT_NE(run({y.data(), ElementType::kF32, 2, 1, 1}, good_y), "");
}

}  // namespace
}  // namespace qualm::kernels
