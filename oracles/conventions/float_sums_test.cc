// SPDX-License-Identifier: Apache-2.0
#include "oracles/conventions/float_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random_case_test_util.h"
#include "core/rng.h"
#include "core/slice.h"
#include "oracles/accepted.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/dynamic_linear.h"
#include "oracles/exact/exact.h"
#include "oracles/exact/reduction.h"

namespace qualm {
namespace {

const Contract kSum = ParseContract("sum");

// A kernel of the class that docs/sums.md permits. Each case draws how it computes, and each output
// the order in which it adds.
class HonestKernel {
 public:
  HonestKernel(const Case& c, uint64_t seed)
      : c_(c),
        rng_(seed),
        lists_(HasFloatX(c) ? exact::Reduction{} : exact::ReductionOf(c, 0)),
        form_(rng_.Between(0, 6)) {}

  Tensor Run() {
    Tensor y(c_.out_dtype, c_.output_shape());
    for (int64_t i = 0; i < y.size(); ++i) {
      const float value = HasFloatX(c_)     ? OutputOfFloats(i / c_.N, i % c_.N)
                          : c_.w_block == 0 ? Output(i / c_.N, i % c_.N)
                                            : OutputOfBlocks(i / c_.N, i % c_.N);
      if (c_.out_dtype == DType::kF32) {
        // Some keep the NaN under relu, as maxps does.
        y.as<float>()[static_cast<size_t>(i)] =
            c_.relu && !(value > 0) && value == value ? 0 : value;
      } else {
        y.SetInt(i, Code(value, i % c_.N));
      }
    }
    return y;
  }

 private:
  // A product that is not computed yet, because a fused multiply-add may take it, or a number.
  struct Term {
    float a = 0;
    std::optional<float> b = {};
  };
  float ValueOf(const Term& term) const { return term.b ? term.a * *term.b : term.a; }

  float Add(std::vector<Term> terms) {
    if (terms.empty()) return 0;
    const bool chain = rng_.Chance(1, 3);
    const auto take = [&]() {
      const auto at = static_cast<size_t>(rng_.Between(0, std::ssize(terms) - 1));
      std::swap(terms[at], terms.back());
      const Term term = terms.back();
      terms.pop_back();
      return term;
    };
    if (chain) {
      float sum = rng_.Chance(1, 2) ? 0.0f : ValueOf(take());
      while (!terms.empty()) sum = Added(sum, take());
      return sum;
    }
    while (terms.size() > 1) {
      const Term one = take(), other = take();
      terms.push_back({Added(ValueOf(one), other)});
    }
    return ValueOf(terms.front());
  }
  float Added(float sum, const Term& term) {
    return term.b && rng_.Chance(1, 2) ? std::fma(term.a, *term.b, sum) : sum + ValueOf(term);
  }

  float Output(int64_t m, int64_t n) {
    const float sx = c_.x_q.scale_at(0), sw = c_.w_q.scale_at(n), gain = sx * sw;
    const float sy = c_.out_dtype == DType::kF32 ? 1 : c_.out_q.scale_at(0);
    const int64_t rounds_bias = c_.bias_i32 ? (*c_.bias_i32)[static_cast<size_t>(n)] : 0;
    std::vector<Term> bias;
    if (c_.bias) bias.push_back({(*c_.bias)[static_cast<size_t>(n)]});
    const bool codes = c_.out_dtype != DType::kF32;

    std::vector<std::pair<int64_t, int64_t>> products;
    const int64_t row = lists_.x_row(m, n);
    for (int64_t k = 0; k < c_.K; ++k) {
      const int64_t depth = lists_.taps == 0 ? 1 : c_.K / lists_.taps;
      if (lists_.taps != 0 && lists_.inside[static_cast<size_t>(m * lists_.taps + k / depth)] == 0)
        continue;
      products.emplace_back(
          lists_.x[static_cast<size_t>(row * c_.K + k)] + lists_.x_offset -
              int64_t{c_.x_q.zero_point_at(0)},
          lists_.w[static_cast<size_t>(n * c_.K + k)] - int64_t{c_.w_q.zero_point_at(n)});
    }
    std::vector<Term> terms;
    float value = 0;
    switch (form_) {
      case 0:    // one integer sum
      case 1: {  // several, each scaled
        const int64_t parts = form_ == 0 ? 1 : rng_.Between(1, 5);
        std::vector<__int128> sums(static_cast<size_t>(parts));
        sums[0] = rounds_bias;
        for (const auto& [x, w] : products)
          sums[static_cast<size_t>(rng_.Between(0, parts - 1))] += static_cast<__int128>(x) * w;
        if (codes && form_ == 0 && rng_.Chance(1, 2)) {  // the multiplier of a requantization
          const float multiplier = rng_.Chance(1, 2) ? gain / sy : gain * (1 / sy);
          const auto sum = static_cast<float>(sums[0]);
          if (bias.empty()) return sum * multiplier;
          if (rng_.Chance(1, 2)) return (sum + bias[0].a / gain) * multiplier;
          return rng_.Chance(1, 2) ? std::fma(sum, multiplier, bias[0].a / sy)
                                   : sum * multiplier + bias[0].a * (1 / sy);
        }
        const int64_t how = rng_.Between(0, 2);
        for (const __int128 sum : sums) {
          const auto one = static_cast<float>(sum);
          terms.push_back(how == 0   ? Term{one, gain}
                          : how == 1 ? Term{one * sx, sw}
                                     : Term{one * sw, sx});
        }
        std::ranges::copy(bias, std::back_inserter(terms));
        value = Add(terms);
        break;
      }
      case 2:    // operands dequantized first
      case 3: {  // in float64, rounded at the end
        for (const auto& [x, w] : products)
          terms.push_back({static_cast<float>(x) * sx, static_cast<float>(w) * sw});
        if (form_ == 3) {
          double wide = 0;
          for (const Term& term : terms) wide += static_cast<double>(term.a) * *term.b;
          if (!bias.empty()) wide += bias[0].a;
          wide += static_cast<double>(static_cast<float>(rounds_bias) * gain);
          value = static_cast<float>(wide);
          break;
        }
        std::ranges::copy(bias, std::back_inserter(terms));
        if (c_.bias_i32) terms.push_back({static_cast<float>(rounds_bias), gain});
        value = Add(terms);
        break;
      }
      case 4:    // one of them dequantized
      case 5: {  // with both scales
        const float scale = form_ == 4 ? sw : gain;
        for (const auto& [x, w] : products)
          terms.push_back({static_cast<float>(x), static_cast<float>(w) * scale});
        if (form_ == 4) terms = {{Add(terms), sx}};
        if (c_.bias_i32) terms.push_back({static_cast<float>(rounds_bias), gain});
        std::ranges::copy(bias, std::back_inserter(terms));
        value = Add(terms);
        break;
      }
      default: {  // scaled last, after all has been added in float32
        for (const auto& [x, w] : products)
          terms.push_back({static_cast<float>(x), static_cast<float>(w)});
        if (c_.bias_i32) terms.push_back({static_cast<float>(rounds_bias)});
        terms = {{Add(terms) * sw, sx}};
        std::ranges::copy(bias, std::back_inserter(terms));
        value = Add(terms);
        break;
      }
    }
    return rng_.Chance(1, 2) ? value / sy : value * (1 / sy);
  }

  // Weights in blocks: a scale and a zero point for each, of x too where it has them.
  float OutputOfBlocks(int64_t m, int64_t n) {
    const bool codes = c_.out_dtype != DType::kF32;
    const float sy = codes ? c_.out_q.scale_at(0) : 1;
    const bool multiplies = codes && form_ == 0 && rng_.Chance(1, 2);  // by sx * sw / sy at once
    const bool sx_last = !multiplies && rng_.Chance(1, 3) && c_.x_block == 0;
    std::vector<Term> terms;
    for (int64_t from = 0; from < c_.K; from += c_.w_block) {
      const size_t entry = WEntry(c_, n, from), x_entry = XEntry(c_, m, from);
      const float sx = c_.x_q.scale[x_entry];
      const float sw = c_.w_q.scale[entry], gain = sx * sw;
      __int128 sum = 0;
      for (int64_t k = from; k < std::min<int64_t>(c_.K, from + c_.w_block); ++k) {
        const int64_t x = c_.x.IntAt(m * c_.K + k) - int64_t{c_.x_q.zero_point[x_entry]};
        const int64_t w = c_.w.IntAt(n * c_.K + k) - int64_t{c_.w_q.zero_point[entry]};
        sum += static_cast<__int128>(x) * w;
        if (form_ < 3) continue;  // blocks are added in integers
        const auto a = static_cast<float>(x), b = static_cast<float>(w);
        if (!multiplies)
          terms.push_back(sx_last      ? Term{a, b * sw}
                          : form_ == 3 ? Term{a * sx, b * sw}
                                       : Term{a, b * gain});
      }
      const auto one = static_cast<float>(sum);
      if (multiplies) {
        terms.push_back({one, rng_.Chance(1, 2) ? gain / sy : gain * (1 / sy)});
      } else if (form_ < 3) {
        terms.push_back(sx_last      ? Term{one, sw}
                        : form_ == 0 ? Term{one, gain}
                        : form_ == 1 ? Term{one * sx, sw}
                                     : Term{one * sw, sx});
      }
    }
    if (sx_last) terms = {{Add(terms), c_.x_q.scale[0]}};
    if (c_.bias) {
      const float bias = (*c_.bias)[static_cast<size_t>(n)];
      terms.push_back({multiplies ? bias / sy : bias});
    }
    const float value = Add(terms);
    if (multiplies) return value;
    return rng_.Chance(1, 2) ? value / sy : value * (1 / sy);
  }

  // f32 x: weights are dequantized first, or the scale of a block comes last.
  float OutputOfFloats(int64_t m, int64_t n) {
    const int64_t size = c_.w_block == 0 ? std::max<int64_t>(c_.K, 1) : c_.w_block;
    std::vector<Term> terms;
    double wide = 0;
    for (int64_t from = 0; from < c_.K; from += size) {
      const size_t entry = c_.w_q.scale.size() == 1 ? 0 : WEntry(c_, n, from);
      const float scale = c_.w_q.scale[entry];
      std::vector<std::vector<Term>> parts(static_cast<size_t>(form_ == 4 ? 3 : 1));
      for (int64_t k = from; k < std::min(c_.K, from + size); ++k) {
        const float x = c_.x.FloatAt(m * c_.K + k);
        const auto w =
            static_cast<float>(c_.w.IntAt(n * c_.K + k) - int64_t{c_.w_q.zero_point[entry]});
        wide += static_cast<double>(x) * (w * scale);
        switch (form_) {
          case 0: terms.push_back({x, w * scale}); break;
          case 1: terms.push_back({x * scale, w}); break;
          case 2: terms.push_back({x * w, scale}); break;
          default: parts[static_cast<size_t>(rng_.Below(parts.size()))].push_back({x, w});
        }
      }
      for (const std::vector<Term>& part : parts) {
        if (!part.empty()) terms.push_back({Add(part), scale});
      }
    }
    if (c_.bias) terms.push_back({(*c_.bias)[static_cast<size_t>(n)]});
    if (form_ != 6) return Add(terms);
    return static_cast<float>(wide + (c_.bias ? double{(*c_.bias)[static_cast<size_t>(n)]} : 0.0));
  }

  int32_t Code(float value, int64_t n) {
    const auto low = static_cast<double>(std::min<int64_t>(LowerBound(c_, n), c_.out_max));
    if (value != value) return c_.out_max;  // no case where it can be NaN is decided
    const double code = std::nearbyint(static_cast<double>(value)) + c_.out_q.zero_point_at(n);
    return static_cast<int32_t>(std::clamp(code, low, static_cast<double>(c_.out_max)));
  }

  const Case& c_;
  Rng rng_;
  exact::Reduction lists_;
  int64_t form_;
};

// A layer of ordinary size and scales.
Case Layer(uint64_t seed, DType out, bool in_blocks = false) {
  Rng rng(seed);
  Case c;
  c.op = Op::kLinear;
  c.M = rng.Between(1, 6);
  c.N = rng.Between(1, 8);
  c.K = rng.Between(1, 200);
  const auto tensor = [&](DType dtype, int64_t rows) {
    Tensor codes(dtype, {rows, c.K});
    const CodeRange range = RangeOf(dtype);
    for (int64_t i = 0; i < codes.size(); ++i)
      codes.SetInt(i, static_cast<int32_t>(rng.Between(range.min, range.max)));
    return codes;
  };
  const bool powers = rng.Chance(1, 4);
  const auto scale = [&](int exponent) {
    const double part = powers ? 1.0 : 1.0 + static_cast<double>(rng.Between(0, 1 << 23)) * 0x1p-23;
    return static_cast<float>(std::ldexp(part, exponent));
  };
  c.x = tensor(DType::kU8, c.M);
  c.w = tensor(DType::kS8, c.N);
  c.x_q = {{scale(-6)}, {static_cast<int32_t>(rng.Between(0, 255))}};
  c.w_q = {{scale(-8)}, {static_cast<int32_t>(rng.Between(-3, 3))}};
  if (in_blocks) {
    c.w_block = static_cast<int32_t>(rng.Between(1, 40));
    c.per_channel = true;
    c.w_q = {{}, {}};
    for (int64_t i = 0; i < c.N * RowBlocks(c); ++i) {
      c.w_q.scale.push_back(scale(static_cast<int>(rng.Between(-10, -6))));
      c.w_q.zero_point.push_back(static_cast<int32_t>(rng.Between(-3, 3)));
    }
    if (out == DType::kF32 && rng.Chance(1, 2)) {
      c.x_block = c.w_block;
      c.x_q = {{}, {}};
      for (int64_t i = 0; i < c.M * RowBlocks(c); ++i) {
        c.x_q.scale.push_back(scale(static_cast<int>(rng.Between(-8, -4))));
        c.x_q.zero_point.push_back(static_cast<int32_t>(rng.Between(0, 255)));
      }
    }
  }
  if (rng.Chance(1, 2)) {
    c.bias.emplace();
    for (int64_t n = 0; n < c.N; ++n)
      c.bias->push_back(static_cast<float>(rng.Between(-999, 999)) * c.x_q.scale[0] * 0x1p-8f);
  }
  c.out_dtype = out;
  OpenClamp(&c);
  if (IsCode(out)) c.out_q = {{scale(0)}, {static_cast<int32_t>(rng.Between(0, 255))}};
  return c;
}

// A layer of ordinary f32 x and weights in blocks.
Case FloatLayer(uint64_t seed) {
  Case c = Layer(seed, DType::kF32, true);
  Rng rng(seed + 1'000'000);
  const Tensor codes = c.x;
  c.x = Tensor(DType::kF32, {c.M, c.K});
  for (float& x : c.x.as<float>()) {
    double sum = 0;  // nearly normal
    for (int i = 0; i < 6; ++i) sum += rng.Unit() - 0.5;
    x = static_cast<float>(sum);
  }
  c.x_q = QParams{};
  c.x_block = 0;
  return c;
}

TEST(FloatSums, AcceptEveryHonestKernel) {
  SumGrades grades;
  int64_t inexact = 0;
  const auto ask = [&](const Case& c, uint64_t seed) {
    ASSERT_EQ(Validate(c), "");
    if (!WhyNoFloatSums(c).empty()) return;
    const Accepted right = AcceptedBy(kSum, c);
    grades.Add(*right.grades());
    EXPECT_FALSE(right.First(right.nominal()));
    for (uint64_t again = 0; again < 3; ++again) {
      const Tensor y = HonestKernel(c, seed * 3 + again).Run();
      const auto first = right.First(y);
      ASSERT_FALSE(first) << Describe(c) << " seed " << seed << " index " << first->index << ": "
                          << first->actual << " is not in " << first->expected;
      for (int64_t i = 0; i < y.size(); ++i) inexact += y.SameAt(i, right.nominal()) ? 0 : 1;
    }
  };
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
      Case c = test::RandomCase(seed).Draw(op);
      ask(c, seed);
    }
    ask(test::RandomCase(seed).DrawInBlocks(Op::kLinear), seed);
    ask(test::RandomCase(seed).DrawFloatX(), seed);
    if (seed % 3 == 0) ask(FloatLayer(seed), seed);
    if (seed % 6 == 0) {
      for (const bool in_blocks : {false, true}) {
        ask(Layer(seed, DType::kF32, in_blocks), seed);
        ask(Layer(seed, DType::kU8, in_blocks), seed);
      }
    }
  }
  RecordProperty("outputs", std::to_string(grades.all()));  // docs/sums.md has these two
  RecordProperty("inexact", std::to_string(inexact));
  EXPECT_GT(grades.all(), 100'000);
  EXPECT_GT(grades.window, 1000);
  EXPECT_GT(grades.bound, 10'000);
  EXPECT_GT(inexact, 10'000) << "or `exact` would do";
}

// Weights without a sign, and their zero points as terms of their own, as MatMulNBits at accuracy
// level 4 adds them; in blocks, of f32 outputs.
Tensor WithOffsetsApart(const Case& c, uint64_t seed) {
  Rng rng(seed);
  Tensor y(c.out_dtype, c.output_shape());
  const int64_t lowest = RangeOf(c.w.dtype()).min;
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t m = i / c.N, n = i % c.N;
    std::vector<std::pair<float, float>> terms;
    for (int64_t from = 0; from < c.K; from += c.w_block) {
      const size_t entry = WEntry(c, n, from), x_entry = XEntry(c, m, from);
      const float sx = c.x_q.scale[x_entry], sw = c.w_q.scale[entry];
      int64_t sum = 0, x_sum = 0;
      for (int64_t k = from; k < std::min<int64_t>(c.K, from + c.w_block); ++k) {
        const int64_t x = c.x.IntAt(m * c.K + k) - int64_t{c.x_q.zero_point[x_entry]};
        sum += x * (c.w.IntAt(n * c.K + k) - lowest);
        x_sum += x;
      }
      terms.emplace_back(static_cast<float>(sum), sx * sw);
      terms.emplace_back(sx * static_cast<float>(x_sum),
                         -sw * static_cast<float>(c.w_q.zero_point[entry] - lowest));
    }
    if (c.bias) terms.emplace_back((*c.bias)[static_cast<size_t>(n)], 1.0f);
    float total = 0;
    while (!terms.empty()) {
      const auto at = terms.begin() + static_cast<int64_t>(rng.Below(terms.size()));
      total = rng.Chance(1, 2) ? std::fma(at->first, at->second, total)
                               : total + at->first * at->second;
      terms.erase(at);
    }
    y.as<float>()[static_cast<size_t>(i)] = c.relu ? std::max(total, 0.0f) : total;
  }
  return y;
}

TEST(FloatSums, ZeroPointsMayBeTermsOfTheirOwn) {
  const Contract apart = ParseContract("sum+offsets");
  int64_t outputs = 0, beyond_sum = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Case c = Layer(seed, DType::kF32, true);
    Rng rng(seed);
    // Weights near their zero point have the smallest products, and the same offsets.
    for (int64_t i = 0; seed % 2 == 1 && i < c.w.size(); ++i)
      c.w.SetInt(i, c.w_q.zero_point[WEntry(c, i / c.K, i % c.K)] + (rng.Chance(1, 8) ? 1 : 0));
    const Accepted right = AcceptedBy(apart, c), strict = AcceptedBy(kSum, c);
    EXPECT_FALSE(right.First(HonestKernel(c, seed).Run())) << "what sum accepts, seed " << seed;
    const Tensor y = WithOffsetsApart(c, seed);
    const auto first = right.First(y);
    ASSERT_FALSE(first) << "seed " << seed << ": " << first->actual << " is not in "
                        << first->expected;
    for (int64_t i = 0; i < y.size(); ++i) beyond_sum += strict.Holds(y, i) ? 0 : 1;
    outputs += y.size();
  }
  EXPECT_GT(outputs, 5000);
  EXPECT_GT(beyond_sum, outputs / 10) << "or `sum` would do";
  EXPECT_EQ(WhyNotJudged(apart, FloatLayer(1)),
            "sum+offsets judges codes of x; f32 x has no sum that is exact");
}

// The answers of a wrong kernel: how many outputs it changes, and how many of these are noticed.
struct Refused {
  int64_t changed = 0, noticed = 0;
  void Add(const Case& c, const Tensor& y, const Contract& contract = kSum) {
    const Accepted right = AcceptedBy(contract, c);
    for (int64_t i = 0; i < y.size(); ++i) {
      if (y.SameAt(i, right.nominal())) continue;
      ++changed;
      noticed += right.Holds(y, i) ? 0 : 1;
    }
  }
};

// Each fault, of ordinary layers.
TEST(FloatSums, RefuseWrongKernels) {
  struct Fault {
    const char* name;
    std::function<Tensor(const Case&)> run;
    double least;  // the share of the changed outputs that is noticed
  };
  const auto exact_of = [](Case c, const std::function<void(Case&)>& change) {
    change(c);
    return exact::Evaluate(c);
  };
  const std::vector<Fault> faults{
      {"zeros", [](const Case& c) { return Tensor(c.out_dtype, c.output_shape()); }, 0.999},
      {"the last term is dropped",
       [&](const Case& c) {
         return exact_of(c, [](Case& other) {
           for (int64_t m = 0; m < other.M; ++m)
             other.x.SetInt((m + 1) * other.K - 1, other.x_q.zero_point[0]);
         });
       },
       0.999},
      {"the scale of the neighbour",
       [&](const Case& c) { return exact_of(c, [](Case& other) { other.w_q.scale[0] *= 1.25f; }); },
       0.999},
      {"no bias",
       [&](const Case& c) { return exact_of(c, [](Case& other) { other.bias.reset(); }); }, 0.95}};
  for (const DType out : {DType::kF32, DType::kU8}) {
    for (const Fault& fault : faults) {
      Refused refused;
      for (uint64_t seed = 0; seed < 300; ++seed) {
        const Case c = Layer(seed, out);
        refused.Add(c, fault.run(c));
      }
      EXPECT_GT(refused.changed, out == DType::kF32 ? 1000 : 20) << fault.name;
      EXPECT_GE(static_cast<double>(refused.noticed),
                fault.least * static_cast<double>(refused.changed))
          << fault.name << " -> " << Name(out) << ": " << refused.noticed << " of "
          << refused.changed;
    }
  }
}

Case One(std::vector<uint8_t> x, std::vector<int8_t> w, float sx, float sw) {
  Case c;
  c.op = Op::kLinear;
  c.M = c.N = 1;
  c.K = std::ssize(x);
  c.x = Tensor::Of<uint8_t>({1, c.K}, x);
  c.w = Tensor::Of<int8_t>({1, c.K}, w);
  c.x_q.scale = {sx};
  c.w_q.scale = {sw};
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  return c;
}

// Wrong kernels of weights in blocks, as `exact` of another case.
TEST(FloatSums, RefuseWrongBlocks) {
  const std::vector<std::pair<const char*, void (*)(Case&)>> faults{
      {"the scale of the neighbour",
       [](Case& c) { std::ranges::rotate(c.w_q.scale, c.w_q.scale.begin() + 1); }},
      {"the scale of the neighbour, of x",
       [](Case& c) { std::ranges::rotate(c.x_q.scale, c.x_q.scale.begin() + 1); }},
      {"the zero point of the first block",
       [](Case& c) { std::ranges::fill(c.w_q.zero_point, c.w_q.zero_point[0]); }},
      {"the last block dropped", [](Case& c) {
         for (int64_t k = (RowBlocks(c) - 1) * c.w_block; k < c.K; ++k) {
           for (int64_t m = 0; m < c.M; ++m)
             c.x.SetInt(m * c.K + k, c.x_q.zero_point[XEntry(c, m, k)]);
         }
       }}};
  for (const char* const contract : {"sum", "sum+offsets"}) {
    for (const auto& [name, plant] : faults) {
      Refused refused;
      for (uint64_t seed = 0; seed < 200; ++seed) {
        const Case c = Layer(seed, DType::kF32, true);
        Case wrong = c;
        plant(wrong);
        refused.Add(c, exact::Evaluate(wrong), ParseContract(contract));
      }
      EXPECT_GT(refused.changed, 1000) << name;
      EXPECT_GE(refused.noticed * 1000, refused.changed * 995)
          << contract << ", " << name << ": " << refused.noticed << " of " << refused.changed;
    }
  }
}

// Wrong kernels of f32 x, as `exact` of another case: each at the rates that docs/sums.md states.
TEST(FloatSums, RefuseWrongFloats) {
  struct Fault {
    const char* name;
    void (*plant)(Case&);
    double least = 0.995;  // the share of the changed outputs that is noticed
  };
  const std::vector<Fault> faults{
      {"zeros", [](Case& c) { std::ranges::fill(c.x.as<float>(), 0.0f); }},
      {"the last product dropped",
       [](Case& c) {
         for (int64_t m = 0; m < c.M; ++m)
           c.x.as<float>()[static_cast<size_t>((m + 1) * c.K - 1)] = 0;
       }},
      {"the scale of the neighbour",
       [](Case& c) { std::ranges::rotate(c.w_q.scale, c.w_q.scale.begin() + 1); }},
      {"one scale of the neighbour",
       [](Case& c) { c.w_q.scale.front() = c.w_q.scale[c.w_q.scale.size() > 1 ? 1 : 0]; }},
      {"a scale a quarter too large", [](Case& c) { c.w_q.scale.back() *= 1.25f; }},
      {"zero points ignored", [](Case& c) { std::ranges::fill(c.w_q.zero_point, 0); }},
      {"weights in pairs swapped",
       [](Case& c) {
         for (int64_t i = 0; i + 1 < c.K; i += 2) {
           const int32_t one = c.w.IntAt(i);
           c.w.SetInt(i, c.w.IntAt(i + 1));
           c.w.SetInt(i + 1, one);
         }
       }},
      {"x rounded to bfloat16",
       [](Case& c) {
         for (float& x : c.x.as<float>())
           x = std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x8000) & 0xffff0000);
       },
       0.97}};
  for (const auto& [name, plant, least] : faults) {
    Refused refused;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const Case c = FloatLayer(seed);
      Case wrong = c;
      plant(wrong);
      refused.Add(c, exact::Evaluate(wrong));
    }
    RecordProperty(name,
                   std::to_string(refused.noticed) + " of " + std::to_string(refused.changed));
    EXPECT_GT(refused.changed, 300) << name;
    EXPECT_GE(static_cast<double>(refused.noticed), least * static_cast<double>(refused.changed))
        << name << ": " << refused.noticed << " of " << refused.changed;
  }
}

// 3 and 5 times 1, in blocks of one weight.
Case Blocks(float first, float second) {
  Case c = One({3, 5}, {1, 1}, 1, 1);
  c.w_block = 1;
  c.per_channel = true;
  c.w_q = {{first, second}, {0, 0}};
  return c;
}

Case FloatOne(std::vector<float> x, std::vector<int8_t> w, float scale) {
  Case c = One(std::vector<uint8_t>(x.size()), std::move(w), 1, scale);
  c.x = Tensor::Of<float>({1, c.K}, x);
  return c;
}

struct Grade {
  std::string name;
  Case c;
  SumGrade grade;
  double low, high;
};

TEST(FloatSums, TheStrongestGradeThatHolds) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto with = [](Case c, const std::function<void(Case&)>& change) {
    change(c);
    return c;
  };
  const float third = 1.0f / 3;  // 0xAAAAAB * 2^-25
  const std::vector<Grade> grades{
      {"powers of two", One({3, 5}, {7, -2}, 0x1p-4f, 0x1p-3f), SumGrade::kWindow, 11 * 0x1p-7,
       11 * 0x1p-7},
      {"a bias far below", with(One({3}, {7}, 1, 1), [](Case& c) { c.bias = {{0x1p-19f}}; }),
       SumGrade::kWindow, 21 + 0x1p-19, 21 + 0x1p-19},
      // 21 + 2^-20 has 25 bits. Two terms: h = 4, and 84 * 2^-24 are 2.6 ulps.
      {"and one bit farther", with(One({3}, {7}, 1, 1), [](Case& c) { c.bias = {{0x1p-20f}}; }),
       SumGrade::kBound, 21 - 2 * 0x1p-19, 21 + 3 * 0x1p-19},
      // 3 * 2^-3 + 5 * 2^19 has 25 bits; with 2^-1 for 2^-3 it has 23.
      {"two blocks", Blocks(0x1p-1f, 0x1p19f), SumGrade::kWindow, 0x5p19 + 1.5, 0x5p19 + 1.5},
      {"two blocks far apart", Blocks(0x1p-3f, 0x1p19f), SumGrade::kBound, 0x5p19 - 0.25,
       0x5p19 + 1},
      {"24 bits and one more", One({1}, {1}, third, 1), SumGrade::kWindow, third, third},
      {"three of them", One({3}, {1}, third, 1), SumGrade::kBound, 1.0 - 2 * 0x1p-24,
       1.0 + 0x1p-23},
      {"nothing", One({}, {}, 1, 1), SumGrade::kWindow, 0, 0},
      {"terms of zero", One({0, 0}, {3, 5}, third, third), SumGrade::kWindow, 0, 0},
      {"scales that overflow", One({1}, {1}, 0x1p100f, 0x1p100f), SumGrade::kUndecided, -kInfinity,
       kInfinity},
      {"one way round they do", One({255}, {1}, 0x1p125f, 0x1p-100f), SumGrade::kUndecided,
       -kInfinity, kInfinity},
      // The product of the scales is 0 in float32, and dequantized operands are not. Half of the
      // least float32 for each of the 20,000 units, and for two more.
      {"scales that underflow", One({200}, {100}, 0x1p-80f, 0x1p-80f), SumGrade::kBound,
       -9991 * 0x1p-149, 10010 * 0x1p-149},
      // f32 x. Multiples of 2^-2 times 1 and 2^19 times 1; then the same with one bit more.
      {"floats", FloatOne({0.75f, 0x5p19f}, {1, 1}, 1), SumGrade::kWindow, 0x5p19 + 0.75,
       0x5p19 + 0.75},
      // Two terms and three roundings: half of 2^-2 and less.
      {"and one bit more", FloatOne({0.375f, 0x5p19f}, {1, 1}, 1), SumGrade::kBound, 0x5p19,
       0x5p19 + 0.75},
      // One term and two roundings, of a product of 25 bits: 1.5 ulps, and a third of one above 3.
      {"a third of a float", FloatOne({third}, {9}, 1), SumGrade::kBound, 3.0 - 0x1p-22,
       3.0 + 0x1p-22},
      {"floats that overflow", FloatOne({0x1p127f}, {2}, 1), SumGrade::kUndecided, -kInfinity,
       kInfinity},
      {"on the way only", FloatOne({0x1p100f}, {1}, 0x1p-100f), SumGrade::kWindow, 1, 1},
      // 3/2 of the least float32. Three products may be denormal, and each is off by half of it,
      // the one of x and w by a quarter.
      {"denormal floats", FloatOne({0x3p-149f}, {1}, 0.5f), SumGrade::kBound, 0x1p-149, 0x2p-149},
      {"relu", with(One({1}, {-1}, third, third), [](Case& c) { c.relu = true; }), SumGrade::kBound,
       0, 0}};
  for (const Grade& each : grades) {
    ASSERT_EQ(Validate(each.c), "") << each.name;
    const std::vector<FloatSum> sums = FloatSums(each.c);
    ASSERT_EQ(sums.size(), 1u);
    EXPECT_EQ(sums[0].grade, each.grade) << each.name;
    EXPECT_EQ(sums[0].permitted.low, each.low) << each.name;
    EXPECT_EQ(sums[0].permitted.high, each.high) << each.name;
  }
}

TEST(FloatSums, CodesAreThoseOfTheInterval) {
  Case c = One({1}, {1}, 1, 1);
  c.out_dtype = DType::kU8;
  OpenClamp(&c);
  c.x.SetInt(0, 5);
  c.out_q = {{2}, {10}};  // 2.5, a tie that nothing may round away
  EXPECT_EQ(FloatSums(c)[0].grade, SumGrade::kWindow);
  EXPECT_EQ(FloatSums(c)[0].permitted.low, 12);
  EXPECT_EQ(FloatSums(c)[0].permitted.high, 12);
  c.x_q.scale = {3};
  c.w_q.scale = {1.0f / 3};  // above 1/3, so above 2.5; a float32 may give 2.5
  EXPECT_EQ(FloatSums(c)[0].grade, SumGrade::kBound);
  EXPECT_EQ(FloatSums(c)[0].permitted.low, 12);
  EXPECT_EQ(FloatSums(c)[0].permitted.high, 13);
  c.x.SetInt(0, 4);  // 2 and a little
  EXPECT_EQ(FloatSums(c)[0].permitted.low, 12);
  EXPECT_EQ(FloatSums(c)[0].permitted.high, 12);
}

// The codes of one term of the real value `value`, a few ulps above a tie, whose scales are no
// powers of two: how far below the tie the sum may lie, in ulps, shows how many roundings count.
std::pair<double, double> CodesNextToATie(int ulps, bool bias) {
  constexpr float kUlp = 0x1p-22f;  // of 2.5
  Case c = One({1}, {1}, 3, 2.5f + static_cast<float>(ulps) * kUlp);
  c.out_dtype = DType::kU8;
  OpenClamp(&c);
  c.out_q.scale = {3};
  if (bias) c.bias = {{0x1p-60f}};
  const FloatSum sum = FloatSums(c)[0];
  EXPECT_EQ(sum.grade, SumGrade::kBound);
  return {sum.permitted.low, sum.permitted.high};
}

TEST(FloatSums, RoundingsOfCodesAreCounted) {
  using Codes = std::pair<double, double>;
  // h = 5: 5/8 of 5 ulps and a little.
  EXPECT_EQ(CodesNextToATie(3, false), (Codes{2, 3}));
  EXPECT_EQ(CodesNextToATie(4, false), (Codes{3, 3}));
  // Two terms, and the bias may be divided first: h = 8.
  EXPECT_EQ(CodesNextToATie(5, true), (Codes{2, 3}));
  EXPECT_EQ(CodesNextToATie(6, true), (Codes{3, 3}));
}

TEST(FloatSums, OperandsOfMoreBitsAreRounded) {
  // Four roundings of 2^24 + 1, whose neighbours are 1 below 2^24 and 2 above.
  const auto expect = [](const Case& c) {
    const Permitted permitted = FloatSums(c)[0].permitted;
    EXPECT_EQ(permitted.low, 0x1p24 - 3);
    EXPECT_EQ(permitted.high, 0x1p24 + 4);
  };
  Case c = One({0}, {1}, 1, 1);
  c.x_q.zero_point = {-(1 << 24) - 1};
  expect(c);
  c = One({1}, {0}, 1, 1);
  c.w_q.zero_point = {-(1 << 24) - 1};
  expect(c);
  // Of f32 x three roundings: one scale less.
  c = FloatOne({1}, {0}, 1);
  c.w_q.zero_point = {-(1 << 24) - 1};
  EXPECT_EQ(FloatSums(c)[0].permitted.low, 0x1p24 - 2);
  EXPECT_EQ(FloatSums(c)[0].permitted.high, 0x1p24 + 4);
}

TEST(FloatSums, PaddingAddsNothing) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 1;
  c.window = {.batch = 1, .in_h = 1, .in_w = 1, .in_c = 1, .kernel_h = 3, .kernel_w = 3};
  c.window.pad_top = c.window.pad_bottom = c.window.pad_left = c.window.pad_right = 1;
  DeriveSizes(&c);
  c.x = Tensor::Of<uint8_t>({1, 1, 1, 1}, std::vector<uint8_t>{201});
  c.w = Tensor::Of<int8_t>({1, 3, 3, 1}, std::vector<int8_t>(9, 1));
  c.x_q = {{4095}, {200}};
  c.w_q.scale = {4095};  // 4095 * 4095 has 24 bits
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  ASSERT_EQ(Validate(c), "");
  EXPECT_EQ(FloatSums(c)[0].grade, SumGrade::kWindow);
  c.x.SetInt(0, 202);
  EXPECT_EQ(FloatSums(c)[0].grade, SumGrade::kBound);
}

// A float bias of codes may be divided by the scale of the output, or by the product of the others.
TEST(FloatSums, QuotientsOfTheBiasOfCodes) {
  Case c = One({0}, {1}, 1, 1);
  c.out_dtype = DType::kU8;
  OpenClamp(&c);
  c.bias = {{2.5f}};
  EXPECT_EQ(FloatSums(c)[0].grade, SumGrade::kWindow);
  c.w_q.scale = {3};
  EXPECT_EQ(FloatSums(c)[0].grade, SumGrade::kBound) << "a third is no float32";
  // 2^-127 and a little is denormal, and its last bit 2^-24 of the sum. h = 8: 4 ulps of 0.5,
  // and 1.
  c.x_q.scale = c.w_q.scale = {0x1p63f};
  for (const int ulps : {5, 7}) {
    c.bias = {{0.5f + static_cast<float>(ulps) * 0x1p-24f}};
    const FloatSum sum = FloatSums(c)[0];
    EXPECT_EQ(sum.grade, SumGrade::kBound);
    EXPECT_EQ(sum.permitted.low, ulps == 5 ? 0 : 1);
    EXPECT_EQ(sum.permitted.high, 1);
  }
  c.x_q.scale = c.w_q.scale = {0x1p-60f};
  c.bias = {{0x1p10f}};
  EXPECT_EQ(FloatSums(c)[0].grade, SumGrade::kUndecided) << "2^130 is no float32";
}

// Zeros have either sign: a product of -0 begins the sum of some kernels.
TEST(FloatSums, ZerosHaveEitherSign) {
  const Case c = One({0}, {-1}, 1, 1);
  const Accepted right = AcceptedBy(kSum, c);
  EXPECT_FALSE(right.First(Tensor::Of<float>({1, 1}, std::vector{-0.0f})));
  EXPECT_TRUE(right.First(Tensor::Of<float>({1, 1}, std::vector{0x1p-149f})));
}

TEST(FloatSums, OfDynamicLinearAreThoseOfItsCodes) {
  int64_t judged = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    test::RandomCase draw(seed);
    const Case c =
        seed % 2 == 0 ? draw.Draw(Op::kDynamicLinear) : draw.DrawInBlocks(Op::kDynamicLinear);
    const Accepted right = AcceptedBy(kSum, c);
    EXPECT_FALSE(right.First(right.nominal())) << Describe(c);
    // Row by row it is a linear.
    for (int64_t m = 0; m < c.M && !RowsShareQParams(c); ++m) {
      const Case row = slice::Rows(c, {{m}});
      const std::vector<FloatSum> alone = FloatSums(row);
      const std::vector<FloatSum> all = FloatSums(c);
      for (int64_t n = 0; n < c.N; ++n) {
        const FloatSum &one = alone[static_cast<size_t>(n)],
                       &other = all[static_cast<size_t>(m * c.N + n)];
        EXPECT_EQ(one.permitted.low, other.permitted.low);
        EXPECT_EQ(one.permitted.high, other.permitted.high);
        ++judged;
      }
    }
  }
  EXPECT_GT(judged, 1000);
}

TEST(FloatSums, RefuseWhatIsNoSumOfFloats) {
  const auto why = [](Op op, const std::function<void(Case&)>& change) {
    Case c = test::RandomCase::OfBytes(3).Draw(op);
    c.out_dtype = DType::kU8;
    c.requant = Requant::kExact;
    change(c);
    return WhyNotJudged(kSum, c);
  };
  const auto nothing = [](Case&) {};
  EXPECT_EQ(why(Op::kLinear, nothing), "");
  EXPECT_EQ(why(Op::kAdd, nothing), "sum judges sums of products, not add");
  EXPECT_EQ(why(Op::kConv2d, [](Case& c) { c.out_dtype = DType::kS32; }),
            "sum judges f32 outputs and codes; an s32 sum is exact");
  EXPECT_NE(why(Op::kLinear, [](Case& c) { c.requant = Requant::kFixedQ31; }), "");
}

// Libraries that requantize in float32 keep to it, whatever their order; saturating pairs and cut
// off fractions do not.
TEST(FloatSums, TellOrdersFromFaults) {
  const auto refused_of = [](const char* name, DType out) {
    const Convention* const convention = FindConvention(name);
    int64_t outputs = 0, refused = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      Case c = Layer(seed, out);
      if (!convention->cannot_run(c).empty()) c.w_q.zero_point = {0};
      if (!convention->cannot_run(c).empty()) continue;
      const Accepted right = AcceptedBy(kSum, c);
      const Tensor y = convention->run(c).y;
      outputs += y.size();
      for (int64_t i = 0; i < y.size(); ++i) refused += right.Holds(y, i) ? 0 : 1;
    }
    EXPECT_GT(outputs, 1000) << name;
    return refused;
  };
  for (const char* const name :
       {"fbgemm@vnni", "onednn2@amx", "onednn3@vnni", "onednn3.10@vnni", "tvm"}) {
    EXPECT_EQ(refused_of(name, DType::kF32), 0) << name;
    EXPECT_EQ(refused_of(name, DType::kU8), 0) << name;
  }
  for (const char* const name : {"numpy@float32", "numpy@float64", "onnxruntime@vnni", "qnnpack"})
    EXPECT_EQ(refused_of(name, DType::kU8), 0) << name;
  for (const char* const name : {"fbgemm@avx2", "onednn3@avx2"}) {
    EXPECT_GT(refused_of(name, DType::kF32), 1000) << name;
    EXPECT_GT(refused_of(name, DType::kU8), 1000) << name;
  }
  EXPECT_GT(refused_of("plain@truncate", DType::kU8), 1000);
}

}  // namespace
}  // namespace qualm
