// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/epilogue.h"

#include <gtest/gtest.h>

#include "kernels/common/fp_environment.h"
#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::Exactly;
using test::ForEachTarget;
using test::GuardedBuffer;
using test::Random;
using test::Term;

// sum * sx * sw + bias, exactly.
std::vector<Term> Terms(__int128 sum, float sx, float sw, float bias) {
  const Term scale = Exactly(sx) * Exactly(sw);
  std::vector<Term> terms;
  // Two halves: a wide sum times 48 bits exceeds 128.
  terms.push_back({(sum >> 64) * scale.mantissa, scale.exponent + 64});
  terms.push_back(
      {static_cast<__int128>(static_cast<uint64_t>(sum)) * scale.mantissa, scale.exponent});
  if (bias != 0) terms.push_back(Exactly(bias));
  return terms;
}

struct Layer {
  std::string what;
  float x_scale;
  std::vector<float> w_scale;
  float y_scale;
  std::vector<float> bias;
};

constexpr size_t kChannels = 37;

// Scales and biases that make ties, cancellation, underflow and overflow, besides ordinary ones.
std::vector<Layer> Layers() {
  std::vector<Layer> layers;
  Random random(23);
  const auto ordinary = [&](int lo, int hi) {
    std::vector<float> v(kChannels);
    for (float& s : v) s = random.Scale(lo, hi);
    return v;
  };
  layers.push_back({"per tensor", 0.02f, {0.003f}, 0.05f, {}});
  layers.push_back({"per channel", 0.02f, ordinary(-10, -7), 0.05f, {}});
  layers.push_back({"powers of two", 0.5f, {0.25f}, 1.0f, {}});
  layers.push_back({"float32 quotient", 0.05f, {0.003f}, 0.05f, {}});
  layers.push_back({"ties", 1.0f, {1.0f}, 6.0f, {}});
  std::vector<float> bias = ordinary(-3, 3);
  for (size_t i = 0; i < kChannels; i += 2) bias[i] = -bias[i];
  layers.push_back({"bias", 0.02f, ordinary(-10, -7), 0.05f, bias});
  for (float& b : bias) b = std::floor(b * 4) / 2;
  layers.push_back({"bias with ties", 1.0f, {0.5f}, 2.0f, bias});
  layers.push_back({"large bias", 0.02f, {0.003f}, 0.05f, std::vector<float>(kChannels, -3e9f)});
  layers.push_back({"zero bias", 0.5f, {0.5f}, 1.0f, std::vector<float>(kChannels, -0.0f)});
  layers.push_back(
      {"tiny", 0x1p-100f, {0x1p-49f}, 0x1p-149f, std::vector<float>(kChannels, 0x1p-149f)});
  layers.push_back({"tinier", 0x1.8p-148f, {0x1.8p-148f}, 0x1p-149f, {}});
  layers.push_back({"underflow", 0x1.234568p-80f, ordinary(-78, -60), 1.0f, {}});
  layers.push_back({"huge", 0x1p60f, ordinary(30, 60), 0x1p100f, {}});
  layers.push_back({"huger",
                    0x1.fffffep127f,
                    {0x1.fffffep127f},
                    0x1p-149f,
                    std::vector<float>(kChannels, -0x1.fffffep127f)});
  return layers;
}

EpilogueParams Params(const Layer& layer) {
  EpilogueParams p;
  p.channels = kChannels;
  p.x_scale = layer.x_scale;
  p.w_scale = layer.w_scale;
  p.y_scale = layer.y_scale;
  p.bias = layer.bias;
  return p;
}

// Sums whose results lie next to ties and bounds of this layer's codes and float32 outputs.
std::vector<__int128> Sums(const Layer& layer, size_t channel, int32_t zero_point, int bits,
                           Random& random) {
  const auto largest = static_cast<__int128>((static_cast<unsigned __int128>(1) << (bits - 1)) - 1);
  std::vector<__int128> sums = {0, 1, -1, largest, -largest - 1, 16777217, 50331649};
  const double sw = layer.w_scale[layer.w_scale.size() == 1 ? 0 : channel];
  const double b = layer.bias.empty() ? 0 : layer.bias[channel];
  const double unit = layer.x_scale * sw;
  const auto push = [&](double target) {
    if (!(std::fabs(target) < 0x1p120)) return;
    const auto sum = static_cast<__int128>(std::nearbyint(target));
    for (int k = -1; k <= 1; ++k) {
      if (sum + k <= largest && sum + k >= -largest - 1) sums.push_back(sum + k);
    }
  };
  for (int i = 0; i < 3; ++i) {
    const double n = static_cast<double>(random.Between(-129, 256) - zero_point);
    push(((n + 0.5) * layer.y_scale - b) / unit);
  }
  push(-b / unit);
  sums.push_back((static_cast<__int128>(static_cast<int64_t>(random.Next())) << 32) >>
                 (96 - random.Between(2, bits < 96 ? bits : 95)));
  return sums;
}

// One epilogue call per set of sums, one per channel; expected(sum, channel) in, out compared.
template <class Wide, class Out, class Expected>
void Check(const EpilogueParams& params, const Layer& layer, int bits, const Expected& expected) {
  Random random(29);
  std::vector<std::vector<__int128>> sums(kChannels);
  size_t rounds = 0;
  for (size_t c = 0; c < kChannels; ++c) {
    sums[c] = Sums(layer, c, params.y_zero_point, bits, random);
    rounds = std::max(rounds, sums[c].size());
  }
  std::vector<std::vector<Out>> want(rounds, std::vector<Out>(kChannels));
  const auto sum = [&](size_t r, size_t c) { return sums[c][(r + c) % sums[c].size()]; };
  for (size_t r = 0; r < rounds; ++r) {
    for (size_t c = 0; c < kChannels; ++c) want[r][c] = expected(sum(r, c), c);
  }
  ForEachTarget([&](const std::string&) {
    const ScopedFpEnvironment environment;
    const Epilogue epilogue = Epilogue::Make(params);
    for (size_t r = 0; r < rounds; ++r) {
      // All channels, and a part of them.
      for (const size_t first : {size_t{0}, size_t{5}}) {
        const size_t count = first == 0 ? kChannels : 19;
        GuardedBuffer<Wide> in(count);
        GuardedBuffer<Out> out(count);
        for (size_t i = 0; i < count; ++i) in[i] = static_cast<Wide>(sum(r, first + i));
        epilogue.Apply(in.data(), static_cast<int64_t>(first), static_cast<int64_t>(count),
                       out.data());
        for (size_t i = 0; i < count; ++i) {
          // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bits are what is promised
          ASSERT_EQ(std::memcmp(&out[i], &want[r][first + i], sizeof(Out)), 0)
              << layer.what << ", channel " << first + i << ", sum " << static_cast<double>(in[i])
              << ": " << +out[i] << ", expected " << +want[r][first + i];
        }
      }
    }
  });
}

template <class Wide>
void CheckAll(int bits) {
  for (const Layer& layer : Layers()) {
    SCOPED_TRACE(layer.what);
    EpilogueParams params = Params(layer);
    const auto sw = [&](size_t c) { return layer.w_scale[layer.w_scale.size() == 1 ? 0 : c]; };
    const auto bias = [&](size_t c) { return layer.bias.empty() ? 0.0f : layer.bias[c]; };

    params.output_type = ElementType::kU8;
    for (const int32_t zero_point : {113, -70000}) {
      params.y_zero_point = zero_point;
      for (const bool relu : {false, true}) {
        params.range = {.min = 3, .relu = relu};
        const int32_t lo = relu ? std::max(zero_point, 3) : 3;
        Check<Wide, uint8_t>(params, layer, bits, [&](__int128 sum, size_t c) {
          return static_cast<uint8_t>(test::ReferenceCode(Terms(sum, layer.x_scale, sw(c), bias(c)),
                                                          Exactly(layer.y_scale), zero_point, lo,
                                                          255));
        });
      }
    }
    params.output_type = ElementType::kS8;
    params.y_zero_point = -3;
    params.range = {.max = 100};
    Check<Wide, int8_t>(params, layer, bits, [&](__int128 sum, size_t c) {
      return static_cast<int8_t>(test::ReferenceCode(Terms(sum, layer.x_scale, sw(c), bias(c)),
                                                     Exactly(layer.y_scale), -3, -128, 100));
    });
    params.output_type = ElementType::kF32;
    for (const bool relu : {false, true}) {
      params.range = {.relu = relu};
      Check<Wide, float>(params, layer, bits, [&](__int128 sum, size_t c) {
        const float v = test::ReferenceFloat(Terms(sum, layer.x_scale, sw(c), bias(c)));
        return relu && std::signbit(v) ? 0.0f : v;
      });
    }
    if (!layer.bias.empty()) continue;
    params.output_type = ElementType::kS32;
    for (const OutputRange range :
         {OutputRange{}, OutputRange{.relu = true}, OutputRange{.min = -7, .max = 100},
          OutputRange{.min = -9, .max = -5, .relu = true}}) {
      params.range = range;
      const int32_t lo = range.relu ? std::max(range.min, 0) : range.min;
      Check<Wide, int32_t>(params, layer, bits, [&](__int128 sum, size_t) {
        return static_cast<int32_t>(std::min<__int128>(std::max<__int128>(sum, lo), range.max));
      });
    }
  }
}

TEST(Epilogue, IsExactForInt32Sums) { CheckAll<int32_t>(32); }
TEST(Epilogue, IsExactForInt64Sums) { CheckAll<int64_t>(64); }
TEST(Epilogue, IsExactForInt128Sums) { CheckAll<__int128>(128); }

TEST(Epilogue, FloatZeroIsPositiveAlsoAfterCancellation) {
  const std::vector<float> w_scale = {0.5f};
  const std::vector<float> bias = {-1.5f, 1.5f, -0.0f};
  EpilogueParams params;
  params.channels = 3;
  params.w_scale = w_scale;
  params.bias = bias;
  params.output_type = ElementType::kF32;
  const std::vector<int32_t> sums = {3, -3, 0};
  ForEachTarget([&](const std::string&) {
    const ScopedFpEnvironment environment;
    std::vector<float> y = {1, 1, 1};
    Epilogue::Make(params).Apply(sums.data(), 0, 3, y.data());
    for (const float v : y) EXPECT_EQ(std::bit_cast<uint32_t>(v), 0u);
  });
}

TEST(Epilogue, NarrowAndWideSumsAgreeAcrossBlocks) {
  constexpr int64_t kMany = 700;
  const std::vector<float> w_scale = {0.003f};
  EpilogueParams params;
  params.channels = kMany;
  params.x_scale = 0.02f;
  params.w_scale = w_scale;
  params.y_scale = 0.05f;
  params.y_zero_point = 100;
  std::vector<int64_t> sums(kMany);
  Random random(31);
  for (int64_t& s : sums) s = random.Between(-100000, 100000);
  sums[300] = int64_t{1} << 40;  // the middle block becomes wide
  sums[301] = -(int64_t{1} << 40);
  ForEachTarget([&](const std::string&) {
    const ScopedFpEnvironment environment;
    const Epilogue epilogue = Epilogue::Make(params);
    std::vector<uint8_t> y(kMany);
    epilogue.Apply(sums.data(), 0, kMany, y.data());
    EXPECT_EQ(y[300], 255);
    EXPECT_EQ(y[301], 0);
    for (size_t i = 0; i < sums.size(); ++i) {
      if (i == 300 || i == 301) continue;
      const auto narrow = static_cast<int32_t>(sums[i]);
      uint8_t one = 0;
      epilogue.Apply(&narrow, static_cast<int64_t>(i), 1, &one);
      ASSERT_EQ(y[i], one) << i;
    }
  });
}

}  // namespace
}  // namespace qualm::kernels
