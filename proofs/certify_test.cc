// SPDX-License-Identifier: Apache-2.0
// Certificates against all activations, witnesses against the arithmetic of conventions.
#include "proofs/certify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/rng.h"
#include "core/slice.h"
#include "core/status.h"
#include "oracles/conventions/accumulation.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "proofs/directed.h"
#include "proofs/weights.h"

namespace qualm::proofs {
namespace {

using Kind = Scheme::Kind;

Case Linear(int64_t n, const std::vector<int8_t>& w, DType x = DType::kU8) {
  Case c;
  c.N = n;
  c.K = static_cast<int64_t>(w.size()) / n;
  c.w = Tensor::Of<int8_t>({n, c.K}, w);
  c.x = Tensor(x, {0, c.K});
  return c;
}

Case RandomLinear(Rng& rng, int64_t n, int64_t k, int32_t limit) {
  std::vector<int8_t> w(static_cast<size_t>(n * k));
  for (int8_t& value : w) value = static_cast<int8_t>(rng.Between(-limit, limit - 1));
  return Linear(n, w);
}

Case RandomConv(Rng& rng, int64_t depth) {
  Case c;
  c.op = Op::kConv2d;
  c.N = 4;
  c.window.kernel_h = c.window.in_h = 3;
  c.window.kernel_w = c.window.in_w = 2;
  c.window.in_c = depth;
  DeriveSizes(&c);
  c.x = Tensor(DType::kU8, ShapeOfX(c));
  c.w = Tensor(DType::kS8, ShapeOfW(c));
  for (int64_t i = 0; i < c.w.size(); ++i) {
    c.w.SetInt(i, static_cast<int32_t>(rng.Between(-128, 127)));
  }
  return c;
}

bool IsUnsafe(const Proof& proof, int64_t n) {
  return std::ranges::find(proof.unsafe, n, &UnsafeChannel::n) != proof.unsafe.end();
}

// Whether a kernel errs on channel n for some activations: all of them are tried.
bool ErrsSomewhere(const Case& layer, const Scheme& scheme, Codes x, int64_t n) {
  const std::vector<int32_t> w = WeightsOf(layer, n);
  std::vector<int32_t> codes(w.size(), x.lo);
  for (;;) {
    int64_t exact = 0;
    for (size_t k = 0; k < w.size(); ++k) {
      exact += int64_t{codes[k] + scheme.x_plus} * (w[k] + scheme.w_plus);
    }
    if (exact != Simulate(scheme, codes, w)) return true;
    size_t k = 0;
    while (k < w.size() && codes[k] == x.hi) codes[k++] = x.lo;
    if (k == w.size()) return false;
    ++codes[k];
  }
}

// Over all u8 activations a pair is safe iff its positive weights add up to at most 128 and its
// negative weights to at least -128.
TEST(Certify, EveryPairOfWeights) {
  int unsafe = 0;
  for (int w0 = -128; w0 <= 127; ++w0) {
    for (int w1 = -128; w1 <= 127; ++w1) {
      const bool safe =
          std::max(w0, 0) + std::max(w1, 0) <= 128 && std::min(w0, 0) + std::min(w1, 0) >= -128;
      const Case layer = Linear(1, {static_cast<int8_t>(w0), static_cast<int8_t>(w1)});
      const Scheme pairs = SchemeOf("pairs", layer);
      ASSERT_EQ(IsSafe(layer, pairs, {0, 255}), safe) << w0 << " " << w1;
      ASSERT_EQ(Certify(layer, pairs, {0, 255}).safe(), safe) << w0 << " " << w1;
      // reduce_range relies on codes up to 128 being safe; some weights are unsafe from 129 on.
      ASSERT_TRUE(IsSafe(layer, pairs, {0, 128}));
      ASSERT_EQ(IsSafe(layer, pairs, {0, 129}), w0 + w1 >= -254);
      unsafe += safe ? 0 : 1;
    }
  }
  EXPECT_EQ(unsafe, 8001 + 8256);  // w0 + w1 >= 129, w0 + w1 <= -129
}

// Every scheme on rows of three weights and few codes, against all inputs.
TEST(Certify, AgreesWithAllInputs) {
  Rng rng(3);
  std::map<std::string, int> safe, unsafe;
  for (int i = 0; i < 400; ++i) {
    Case layer = RandomLinear(rng, 2, 3, 128);
    const int32_t lo = static_cast<int32_t>(rng.Between(0, 1) == 0 ? 0 : rng.Between(0, 250));
    const Codes u8{lo, static_cast<int32_t>(rng.Between(lo, std::min(lo + 5, 255)))};
    std::vector<std::pair<Scheme, Codes>> judged;
    // Ranges from 0 or another code: only the ends matter, so few codes stand for all.
    for (const char* name : {"pairs", "acc16"}) judged.emplace_back(SchemeOf(name, layer), u8);
    judged.back().first.spill = rng.Chance(1, 2) ? 2 : 256;
    judged.emplace_back(GivenPairs({2, 0, kNoTerm, 1}), u8);
    Case s8 = layer;
    s8.x = Tensor(DType::kS8, {0, 3});
    // Only weights of -128 make two products leave int16.
    for (int64_t k = 0; k < 2 && rng.Chance(1, 2); ++k) s8.w.SetInt(k, -128);
    const Codes near_end{-128, static_cast<int32_t>(rng.Between(-128, -124))};
    Scheme chain = SchemeOf("neon-mlal", s8);
    chain.order = {0, 1, 2, kNoTerm};
    judged.emplace_back(chain, near_end);
    judged.emplace_back(SchemeOf("pairs", s8), Codes{122, 127});
    for (const auto& [scheme, x] : judged) {
      const Case& of = scheme.x_plus != 0 || scheme.kind == Kind::kChains ? s8 : layer;
      const Proof proof = Certify(of, scheme, x);
      for (int64_t n = 0; n < of.N; ++n) {
        const bool errs = ErrsSomewhere(of, scheme, x, n);
        ASSERT_EQ(IsUnsafe(proof, n), errs)
            << scheme.name << " " << x.lo << ".." << x.hi << " " << of.w.IntAt(n * 3) << " "
            << of.w.IntAt(n * 3 + 1) << " " << of.w.IntAt(n * 3 + 2);
        (errs ? unsafe : safe)[scheme.name] += 1;
      }
      EXPECT_EQ(IsSafe(of, scheme, x), proof.safe());
    }
  }
  for (const char* name : {"pairs", "acc16", "given", "neon-mlal"}) {
    EXPECT_GT(safe[name], 20) << name;
    EXPECT_GT(unsafe[name], 20) << name;
  }
}

// The kernel errs on each witness as the witness says, and witnesses lie inside the range.
TEST(Certify, WitnessesErr) {
  Rng rng(5);
  int witnesses = 0;
  for (int i = 0; i < 200; ++i) {
    const Case layer = rng.Chance(1, 2) ? RandomLinear(rng, 3, rng.Between(1, 40), 128)
                                        : RandomConv(rng, rng.Between(1, 5));
    const Codes x = rng.Chance(1, 2) ? Codes{0, 255} : Codes{3, 200};
    std::vector<Scheme> schemes = SchemesOfConventions(layer);
    ASSERT_GE(schemes.size(), 1u);
    for (const char* name : {"pairs", "pairs-in-tap", "acc16", "float32"}) {
      schemes.push_back(SchemeOf(name, layer));
    }
    for (const Scheme& scheme : schemes) {
      for (const UnsafeChannel& channel : Certify(layer, scheme, x).unsafe) {
        const auto witness = WitnessOf(layer, scheme, x, channel);
        ASSERT_TRUE(witness) << scheme.name;
        EXPECT_EQ(witness->n, channel.n);
        ++witnesses;
        const std::vector<int32_t> w = WeightsOf(layer, channel.n);
        int64_t exact = 0;
        for (size_t k = 0; k < w.size(); ++k) {
          EXPECT_TRUE(x.lo <= witness->x[k] && witness->x[k] <= x.hi);
          exact += int64_t{witness->x[k]} * w[k];
        }
        EXPECT_EQ(witness->exact, exact);
        EXPECT_EQ(witness->got, Simulate(scheme, witness->x, w));
        EXPECT_NE(witness->exact, witness->got);
      }
    }
  }
  EXPECT_GT(witnesses, 500);
}

// Simulate agrees with the conventions, and each witness, written as a case, fails under the
// convention as it would in the kernel.
TEST(Certify, ConventionsFailOnWitnesses) {
  Rng rng(7);
  std::map<std::string, int> failed;
  for (int i = 0; i < 60; ++i) {
    for (const DType type : {DType::kU8, DType::kS8}) {
      Case layer = rng.Chance(1, 2) ? RandomLinear(rng, 2, rng.Between(2, 600), 128)
                                    : RandomConv(rng, rng.Between(1, 5));
      layer.x = Tensor(type, ShapeOfX(layer));
      const Codes x = type == DType::kU8 ? Codes{0, 255} : Codes{-128, 127};
      for (const Scheme& scheme : SchemesOfConventions(layer)) {
        const Convention& convention = *FindConvention(scheme.name);
        const Proof proof = Certify(layer, scheme, x);
        for (const UnsafeChannel& channel : proof.unsafe) {
          const auto witness = WitnessOf(layer, scheme, x, channel);
          ASSERT_TRUE(witness);
          const Case c = WitnessCase(layer, *witness);
          ASSERT_EQ(Validate(c), "");
          if (!convention.cannot_run(c).empty()) continue;
          const ConventionOutput output = convention.run(c);
          EXPECT_NE(output.y, exact::Evaluate(c)) << scheme.name << " " << c.note;
          EXPECT_EQ(exact::RawSums(c)[0] - output.acc->IntAt(0), witness->exact - witness->got)
              << scheme.name;
          ++failed[scheme.name];
        }
        // Safe channels give exact outputs even on inputs that aim at them.
        const Case directed = Directed(layer, x, 8, static_cast<uint64_t>(i));
        Case codes = directed;
        codes.out_dtype = DType::kU8;
        codes.out_min = 0;
        codes.out_max = 255;
        if (!convention.cannot_run(codes).empty()) continue;
        const Tensor acc = *convention.run(codes).acc;
        const std::vector<int64_t> exact = exact::RawSums(codes);
        for (size_t at = 0; at < exact.size(); ++at) {
          if (IsUnsafe(proof, static_cast<int64_t>(at) % layer.N)) continue;
          ASSERT_EQ(acc.IntAt(static_cast<int64_t>(at)), exact[at]) << scheme.name;
        }
      }
    }
  }
  EXPECT_GT(failed["fbgemm@avx2"], 50);
  EXPECT_GT(failed["fbgemm@avx2+acc16"], 20);
  EXPECT_GT(failed.size(), 3u);
}

// Beyond 2^24 float32 holds even numbers only.
TEST(Certify, SumsInFloat32) {
  std::vector<int8_t> w(519, 127);  // 255*127*518 < 2^24 < 255*127*519
  const Case more = Linear(1, w);
  const Scheme scheme = SchemeOf("float32", more);
  ASSERT_FALSE(IsSafe(more, scheme, {0, 255}));
  const Proof proof = Certify(more, scheme, {0, 255});
  ASSERT_EQ(proof.unsafe.size(), 1u);
  const auto witness = WitnessOf(more, scheme, {0, 255}, proof.unsafe[0]);
  ASSERT_TRUE(witness);
  EXPECT_GT(witness->exact, 1 << 24);
  EXPECT_NE(witness->exact % 2, 0);
  w.pop_back();
  EXPECT_TRUE(IsSafe(Linear(1, w), scheme, {0, 255}));
  // Even weights reach twice as far.
  EXPECT_TRUE(IsSafe(Linear(1, std::vector<int8_t>(1000, 126)), scheme, {0, 255}));
  EXPECT_FALSE(IsSafe(Linear(1, std::vector<int8_t>(1100, -126)), scheme, {0, 255}));
  EXPECT_TRUE(IsSafe(Linear(1, std::vector<int8_t>(100000, 0)), scheme, {0, 255}));
}

// -128 * -128 twice is 32768: the one sum of two s8 products that leaves int16.
TEST(Certify, NeonChains) {
  std::vector<int8_t> w(16, 0);
  w[0] = w[8] = -128;
  const Case layer = Linear(1, w, DType::kS8);
  const Scheme scheme = SchemeOf("neon-mlal", layer);
  const Proof proof = Certify(layer, scheme, {-128, 127});
  ASSERT_EQ(proof.unsafe_sums, 1);
  const auto witness = WitnessOf(layer, scheme, {-128, 127}, proof.unsafe[0]);
  ASSERT_TRUE(witness);
  EXPECT_EQ(witness->exact, 32768);
  EXPECT_EQ(witness->got, -32768);
  EXPECT_TRUE(IsSafe(layer, scheme, {-127, 127}));
  w[8] = 0;
  w[9] = -128;  // another lane
  EXPECT_TRUE(IsSafe(Linear(1, w, DType::kS8), scheme, {-128, 127}));
  EXPECT_TRUE(IsSafe(layer, SchemeOf("neon-mlal:1", layer), {-128, 127}));
  EXPECT_THROW(SchemeOf("neon-mlal", Linear(1, w)), InputError);
}

TEST(Certify, AccumulatorsAreBounded) {
  const Case layer = Linear(2, {127, -128, 1, 2});
  const Proof proof = Certify(layer, SchemeOf("pairs", layer), {10, 200});
  EXPECT_EQ(proof.most, 127 * 200 - 128 * 10);
  EXPECT_EQ(proof.least, 127 * 10 - 128 * 200);
  EXPECT_TRUE(proof.fits_int32());
  const Case tall = Linear(1, std::vector<int8_t>(70000, 127));
  EXPECT_FALSE(Certify(tall, SchemeOf("acc16", tall), {0, 255}).fits_int32());
}

// A convolution reads code 0 or the zero point in its padding.
TEST(Certify, PaddingWidensTheRange) {
  Rng rng(1);
  Case layer = RandomConv(rng, 2);
  layer.x_q.zero_point = {240};
  EXPECT_EQ(WithPadding(layer, {10, 100}), (Codes{0, 240}));
  layer.x_q.zero_point = {-7};  // no code: its low byte
  EXPECT_EQ(WithPadding(layer, {10, 100}), (Codes{0, 249}));
  EXPECT_EQ(WithPadding(Linear(1, {1, 1}), {10, 100}), (Codes{10, 100}));
}

TEST(Certify, SchemesAreRefused) {
  Case layer = Linear(1, {1, 1});
  EXPECT_THROW(SchemeOf("pears", layer), InputError);
  EXPECT_THROW(SchemeOf("torch@2", layer), InputError);
  layer.w = Tensor(DType::kU8, {1, 2});
  EXPECT_THROW(SchemeOf("pairs", layer), InputError);
  EXPECT_THROW(SchemeOf("acc16:3", Linear(1, {1, 1})), InputError);
}

TEST(Weights, AreQuantizedAsPyTorchDoes) {
  Case layer = Linear(2, {0, 0, 0, 0});
  const std::vector<float> w = {1.0f, -0.5f, 0.25f, 0.125f};
  layer.w = Tensor::Of<float>({2, 2}, w);
  const Case tensor = WithCodes(layer, false);
  EXPECT_EQ(tensor.w_q.scale, std::vector<float>{1 / 127.5f});
  EXPECT_EQ(tensor.w, Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{127, -64, 32, 16}));
  const Case channel = WithCodes(layer, true);
  EXPECT_EQ(channel.w_q.scale, (std::vector<float>{1 / 127.5f, 0.25f / 127.5f}));
  EXPECT_EQ(channel.w.IntAt(2), 127);
  EXPECT_EQ(Validate(channel), "");
}

}  // namespace
}  // namespace qualm::proofs
