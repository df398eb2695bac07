// SPDX-License-Identifier: Apache-2.0
// The places of weights may exceed 2^31. The weights are 2 GiB of zero pages that the system
// shares.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/sums/split.h"

namespace qualm::kernels {
namespace {

TEST(SplitLong, AnUnsafePairBehindTwoToThe31) {
  constexpr int64_t kQuads = (int64_t{1} << 29) + 16;
  constexpr auto kBytes = static_cast<size_t>(4 * kQuads);
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const PanelWeights panel = {1, static_cast<int8_t*>(mapped)};
  constexpr int64_t kPlace = 4 * kQuads - 2;
  panel.At(kPlace, 0)[0] = 127;
  panel.At(kPlace, 0)[1] = 127;
  ExtraQuads extra;
  ASSERT_TRUE(SplitPanel(kQuads, panel, kMostExtraPlaces, &extra));
  EXPECT_EQ(extra.places, (std::vector<int64_t>{kPlace, kPlace, kPlace, kPlace}));
  EXPECT_EQ(extra.weights, (std::vector<int8_t>{126, 0, 0, 0}));
  EXPECT_EQ(panel.At(kPlace, 0)[0], 1);
  EXPECT_EQ(panel.At(kPlace, 0)[1], 127);
  munmap(mapped, kBytes);
}

}  // namespace
}  // namespace qualm::kernels
