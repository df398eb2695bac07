// SPDX-License-Identifier: Apache-2.0
#include "kernels/sums/epilogue.h"

#include <gtest/gtest.h>

#include "kernels/common/fp_environment.h"
#include "kernels/common/test_support.h"

namespace qualm::kernels {
namespace {

using test::ForEachTarget;
using test::Random;

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

// Sums of any width, all channels at once and each alone.
template <class Wide, class Out>
void ExpectChannelsAsAlone(const EpilogueParams& params, const std::vector<Wide>& sums) {
  ForEachTarget([&](const std::string&) {
    const ScopedFpEnvironment environment;
    const Epilogue epilogue = Epilogue::Make(params);
    std::vector<Out> together(sums.size());
    epilogue.Apply(sums.data(), 0, params.channels, together.data());
    for (size_t i = 0; i < sums.size(); ++i) {
      Out alone = 0;
      epilogue.Apply(&sums[i], static_cast<int64_t>(i), 1, &alone);
      // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bits are what is promised
      ASSERT_EQ(std::memcmp(&alone, &together[i], sizeof(Out)), 0) << i;
    }
  });
}

template <class Wide>
void ExpectChannelsAsAlone(int bits) {
  constexpr int64_t kChannels = 370;
  Random random(23);
  std::vector<float> any, thirds, bias;
  std::vector<Wide> sums;
  for (int64_t i = 0; i < kChannels; ++i) {
    any.push_back(random.Scale(-10, -7));
    thirds.push_back(static_cast<float>(random.Between(1, 9)) * 0x1p-9f);
    bias.push_back(random.Scale(-3, 3) * (i % 2 == 0 ? 1.0f : -1.0f));
    const auto number = static_cast<Wide>(static_cast<int64_t>(random.Next()));
    sums.push_back(static_cast<Wide>((number << (bits - std::min(bits, 64))) >>
                                     random.Between(bits / 2, bits - 2)));
  }
  for (const bool is_any : {true, false}) {  // values of every kind, and many next to ties
    EpilogueParams params;
    params.channels = kChannels;
    params.x_scale = is_any ? 0.02f : 1.0f;
    params.w_scale = is_any ? any : thirds;
    params.y_scale = is_any ? 0.05f : 3.0f;
    params.y_zero_point = 113;
    ExpectChannelsAsAlone<Wide, uint8_t>(params, sums);
    params.bias = bias;
    ExpectChannelsAsAlone<Wide, uint8_t>(params, sums);
    params.output_type = ElementType::kF32;
    ExpectChannelsAsAlone<Wide, float>(params, sums);
  }
}

TEST(Epilogue, ChannelsAreAsAloneForInt32Sums) { ExpectChannelsAsAlone<int32_t>(32); }
TEST(Epilogue, ChannelsAreAsAloneForInt64Sums) { ExpectChannelsAsAlone<int64_t>(64); }
TEST(Epilogue, ChannelsAreAsAloneForInt128Sums) { ExpectChannelsAsAlone<__int128>(128); }

}  // namespace
}  // namespace qualm::kernels
