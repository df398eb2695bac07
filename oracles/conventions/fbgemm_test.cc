// SPDX-License-Identifier: Apache-2.0
// FBGEMM's choice of scales and its 3-D depthwise kernel, worked out by hand, and the cases at the
// edge of its 2-D depthwise kernel.
#include "oracles/conventions/fbgemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/case.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"

namespace qualm {
namespace {

using conventions::ChosenQParams;

std::pair<float, int32_t> Chosen(float min, float max, int32_t qmin, int32_t qmax,
                                 bool preserve_sparsity = false, bool power_of_two = false) {
  const ChosenQParams chosen =
      conventions::FbgemmChooseQParams(min, max, qmin, qmax, preserve_sparsity, power_of_two);
  return {static_cast<float>(chosen.scale), chosen.zero_point};
}
std::pair<float, int32_t> Is(float scale, int32_t zero_point) { return {scale, zero_point}; }

TEST(FbgemmChooseQParams, ScaleAndZeroPoint) {
  EXPECT_EQ(Chosen(-63.5f, 64.0f, 0, 255), Is(0.5f, 127));  // 127.5 / 255; 63.5 / 0.5
  EXPECT_EQ(Chosen(-64.0f, 63.5f, -128, 127), Is(0.5f, 0));
  EXPECT_EQ(Chosen(-10.0f, 245.0f, -128, 127), Is(1.0f, -118));
  EXPECT_EQ(Chosen(-245.0f, 10.0f, -128, 127), Is(1.0f, 117));
  // The range is widened to hold 0.
  EXPECT_EQ(Chosen(100.0f, 255.0f, 0, 255), Is(1.0f, 0));
  EXPECT_EQ(Chosen(-255.0f, -100.0f, 0, 255), Is(1.0f, 255));
}

TEST(FbgemmChooseQParams, ScalesWithoutAReciprocal) {
  EXPECT_EQ(Chosen(0.0f, 0.0f, 0, 255), Is(0.1f, 0));
  EXPECT_EQ(Chosen(0.0f, 0.0f, -128, 127), Is(0.1f, 127)) << "|qmax| is less than |qmin|";
  EXPECT_EQ(Chosen(0.0f, 255e-39f, 0, 255), Is(0.1f, 0)) << "1 / 1e-39 is infinite in float32";
}

// preserve_sparsity: both ends in the proportion of -128 to 127, 0 in the middle.
TEST(FbgemmChooseQParams, Symmetric) {
  EXPECT_EQ(Chosen(-1.0f, 127.0f, -128, 127, true), Is(1.0f, 0));  // -0.5 is rounded to even
  EXPECT_EQ(Chosen(-128.0f, 1.0f, -128, 127, true), Is(1.0f, 0));
  EXPECT_EQ(Chosen(-128.0f, 1.0f, 0, 255, true), Is(1.0f, 128));  // 127.5
  EXPECT_EQ(Chosen(-1.0f, 254.0f, 0, 255, false), Is(1.0f, 1)) << "not asked for";
  EXPECT_EQ(Chosen(0.0f, 255.0f, 0, 255, true), Is(1.0f, 0)) << "no number below 0";
  EXPECT_EQ(Chosen(-255.0f, 0.0f, 0, 255, true), Is(1.0f, 255)) << "no number above 0";
}

TEST(FbgemmChooseQParams, PowersOfTwo) {
  EXPECT_EQ(Chosen(-70.0f, 185.0f, 0, 255, false, true), Is(1.0f, 70)) << "1 is one already";
  EXPECT_EQ(Chosen(0.0f, 256.0f, 0, 255, false, true), Is(2.0f, 0)) << "just above 1";
  EXPECT_EQ(Chosen(0.0f, 765.0f, 0, 255, false, true), Is(4.0f, 0)) << "3";
  EXPECT_EQ(Chosen(0.0f, 76.5f, 0, 255, false, true), Is(0.5f, 0)) << "0.3";
  EXPECT_EQ(Chosen(-70.0f, 71.0f, 0, 255, false, false), Is(141.0f / 255, 127)) << "not asked for";
  // The scale is larger than the range needs, and the ends disagree about the zero point: -128 + 60
  // from the lower, 127 - 71 from the upper. The end with the smaller sum of its code and its
  // number counts: 128 + 60 < 127 + 71 < 128 + 72; at 128 + 70 = 127 + 71 the upper one.
  EXPECT_EQ(Chosen(-60.0f, 71.0f, -128, 127, false, true), Is(1.0f, -68));
  EXPECT_EQ(Chosen(-72.0f, 71.0f, -128, 127, false, true), Is(1.0f, 56));
  EXPECT_EQ(Chosen(-70.0f, 71.0f, -128, 127, false, true), Is(1.0f, 56));
}

// Scales under 6.1e-5 become 6.1e-5, and the ends move with the scale.
TEST(FbgemmChooseQParams, SmallScales) {
  EXPECT_EQ(Chosen(0.0f, 1e-3f, -128, 127), Is(6.1e-5f, -128));
  EXPECT_EQ(Chosen(-1e-3f, 0.0f, -128, 127), Is(6.1e-5f, 127));
  EXPECT_EQ(Chosen(-1e-3f, 1.55e-3f, -128, 127), Is(6.1e-5f, -28));  // 1e-5 apart: 100 codes
  EXPECT_EQ(Chosen(-0.016f, 0.016f, 0, 255).first, 0.032f / 255) << "above the smallest";
}

TEST(FbgemmChooseQParams, InfiniteEnds) {
  EXPECT_EQ(Chosen(-INFINITY, INFINITY, 0, 255), Is(INFINITY, INT32_MIN));
  EXPECT_EQ(Chosen(0.0f, INFINITY, 0, 255), Is(INFINITY, INT32_MIN));
  EXPECT_EQ(Chosen(-FLT_MAX, FLT_MAX, 0, 255).second, 128) << "finite ends have a finite scale";
}

// The window of output (d, h, w) holds the taps inside the volume: 4, 5, 6, 7, 6, 5, 4 along an
// axis. The sum of its codes saturates to int16 before it meets the zero point of w.
TEST(FbgemmDepthwise3d, CountsTheTapsOfEachPlace) {
  for (const int32_t x : {1, 96, 255}) {
    for (const int32_t w_zero_point : {0, 1, 3, -2}) {
      const float out_scale = 1024;
      const std::vector<int32_t> y = conventions::FbgemmDepthwise3d(x, w_zero_point, out_scale);
      ASSERT_EQ(y.size(), 343u);
      const auto taps = [](int64_t at) { return 7 - std::abs(at - 3); };
      for (int64_t i = 0; i < 343; ++i) {
        const int64_t sum = x * taps(i / 49) * taps(i / 7 % 7) * taps(i % 7);
        const int64_t corrected = sum - w_zero_point * std::min<int64_t>(sum, INT16_MAX);
        const auto code = static_cast<int32_t>(
            std::clamp(std::nearbyint(static_cast<double>(corrected) / out_scale), 0.0, 255.0));
        ASSERT_EQ(y[static_cast<size_t>(i)], code) << x << " " << w_zero_point << " at " << i;
      }
    }
  }
}

TEST(FbgemmDepthwise3d, SumsRowsInInt16) {
  const auto centre = [](int32_t x, int32_t w_zp) {
    const float scale = static_cast<float>(343 * x) / 200.0f;
    return conventions::FbgemmDepthwise3d(x, w_zp, scale)[343 / 2];
  };
  EXPECT_EQ(centre(95, 1), 0);  // 343*95 = 32585 fits
  EXPECT_EQ(centre(96, 1), 1);  // 32928 does not: 161 are left
  EXPECT_EQ(centre(255, 1), 125);
  EXPECT_EQ(centre(255, 0), 200);  // without a zero point the row sum is not used
}

// product + half a unit, shifted; the vector body wraps where the scalar rest clamps.
TEST(FbgemmConventions, RequantizesInFixedPoint) {
  for (const bool vector_body : {false, true}) {
    EXPECT_EQ(conventions::FbgemmRequantizeFixedPoint(5, 1, 1, 2, vector_body), 5);   // 2.5 up
    EXPECT_EQ(conventions::FbgemmRequantizeFixedPoint(-5, 1, 1, 9, vector_body), 7);  // -2.5 up
    EXPECT_EQ(conventions::FbgemmRequantizeFixedPoint(100, 3, 2, 0, vector_body), 75);
    EXPECT_EQ(conventions::FbgemmRequantizeFixedPoint(100, 3, 2, 200, vector_body), 255);
  }
  // 2^61 - 2^31 + 1
  EXPECT_EQ(conventions::FbgemmRequantizeFixedPoint(INT32_MAX, INT32_MAX, 1, 0, false), 255);
  EXPECT_EQ(conventions::FbgemmRequantizeFixedPoint(INT32_MAX, INT32_MAX, 1, 0, true), 0);
}

// takeDepthWiseFastPath asks for as many groups as channels: 8 groups of two channels each are for
// the groupwise kernel, whatever the number of outputs. The depthwise kernel saturates pairs under
// VNNI too.
TEST(FbgemmConventions, GroupsOfTwoChannelsAreNotDepthwise) {
  for (const int64_t per_group : {1, 2}) {
    Case c = ConstantConv(3, 3, 8 * per_group, 8, 3, 8, 255, 127);
    Window& v = c.window;
    v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = 1;
    DeriveSizes(&c);
    ASSERT_EQ(Validate(c), "");
    const int64_t centre = 4 * 8;
    const int64_t exact = 255 * 127 * 9 * per_group;
    const int32_t acc = Get("fbgemm@vnni").run(c).acc->IntAt(centre);
    if (per_group == 1) {
      EXPECT_LT(acc, exact) << "four pairs of 64770 are cut to 32767";
    } else {
      EXPECT_EQ(acc, exact);
    }
  }
}

// 2^63 is one more than lrintf can say: the step that gives -2^63 for it is lossy.
TEST(FbgemmConventions, ScalarRequantizeOf2To63) {
  Case c = CaseOver(Op::kRequantize, Tensor::Of<int32_t>({1, 1}, std::vector<int32_t>{INT32_MAX}),
                    DType::kU8);
  c.multiplier = {0x1p32f};
  ASSERT_EQ(Validate(c), "");
  ASSERT_EQ(Get("fbgemm@scalar").cannot_run(c), "");
  bool lossy = false;
  for (const TraceStep& step : Get("fbgemm@scalar").trace(c, 0)) {
    if (step.stage == Stage::kRound) lossy = step.lossy;
  }
  EXPECT_TRUE(lossy);
  EXPECT_EQ(Get("fbgemm@scalar").run(c).y.IntAt(0), 0);
}

}  // namespace
}  // namespace qualm
