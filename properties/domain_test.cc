// SPDX-License-Identifier: Apache-2.0
#include "properties/domain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/status.h"
#include "properties/adapt.h"
#include "properties/gen/gen.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

// Every range of a case that there is.
Domain Narrow() {
  Domain domain;
  for (const char* name : {"x_scale", "w_scale", "out_scale", "multiplier"})
    domain.AddRange({}, name, 0.001, 0.5);
  for (const char* name : {"x_zp", "w_zp", "out_zp"}) domain.AddRange({}, name, -3, 100);
  domain.AddRange({}, "bias", -2, 3);
  domain.AddRange({}, "bias_i32", -1000, 1000);
  domain.AddRange({}, "x", -6, 6);
  for (const char* name : {"M", "N", "K", "batch", "in_h", "in_w", "in_c"})
    domain.AddRange({}, name, 2, 12);
  return domain;
}

TEST(DomainTest, DrawnCasesOfEveryOperationAreBroughtInside) {
  const Domain domain = Narrow();
  for (const Op op : AllOps()) {
    int inside = 0, changed = 0;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Case c = gen::Draw(op, seed);
      const Case moved = domain.Inside(c);
      ASSERT_EQ(Validate(moved), "") << Describe(c);
      inside += domain.WhyOutside(moved).empty() ? 1 : 0;
      changed += moved != c ? 1 : 0;
      EXPECT_EQ(domain.Inside(moved), moved);
      EXPECT_EQ(moved.out_dtype, c.out_dtype);
    }
    EXPECT_GT(changed, 50) << Name(op);
    // Sizes of windows that fit no kernel, and depthwise channels that are no multiple, stay.
    EXPECT_GE(inside, HasWindow(op) ? 50 : 100) << Name(op);
  }
}

TEST(DomainTest, NumbersKeepTheirDigits) {
  Domain domain;
  domain.AddRange(Op::kLinear, "x_scale", 1e-6, 1e3);
  Case c = gen::Draw(Op::kLinear, 1);
  c.x_q.scale[0] = 0x1.2345p-100f;
  EXPECT_EQ(domain.WhyOutside(c).substr(0, 26), "the domain has no x_scale ");
  const float moved = domain.Inside(c).x_q.scale[0];
  int exponent = 0;
  EXPECT_EQ(std::frexp(moved, &exponent), std::frexp(0x1.2345p-100f, &exponent));
  // Of another operation nothing is said.
  c = gen::Draw(Op::kAdd, 1);
  c.x_q.scale[0] = 0x1p-100f;
  EXPECT_EQ(domain.WhyOutside(c), "");
}

TEST(DomainTest, ScalesThatNothingComputesWithAreFree) {
  Domain domain;
  domain.AddRange({}, "x_scale", 0.25, 0.5);
  domain.AddRange({}, "out_scale", 0.25, 0.5);
  for (const Op op : {Op::kQuantize, Op::kCast, Op::kDynamicLinear}) {
    Case c = gen::Draw(op, 3);
    c.out_q.scale.assign(c.out_q.scale.size(), op == Op::kQuantize ? 0.25f : 1.0f);
    EXPECT_EQ(domain.WhyOutside(c), "") << Name(op);
  }
}

TEST(DomainTest, ASubjectTakesItsDomainAlone) {
  Domain domain;
  domain.AddShape({}, "3x5x7");
  domain.AddShape({}, "2x16x32");
  const auto subject = InDomain(std::make_unique<TestSubject>(), domain);
  int of_first = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    EXPECT_EQ(subject->CannotRun(c), "the domain has no such shape");
    const std::optional<Case> taken = AdaptTo(*subject, c);
    ASSERT_TRUE(taken.has_value()) << Describe(c);
    EXPECT_TRUE((taken->M == 3 && taken->N == 5 && taken->K == 7) ||
                (taken->M == 2 && taken->N == 16 && taken->K == 32));
    of_first += taken->M == 3 ? 1 : 0;
  }
  EXPECT_GT(of_first, 10);
  EXPECT_LT(of_first, 50);
}

// Codes repeat along each dimension.
TEST(DomainTest, LargerTensorsRepeatTheSmaller) {
  Domain domain;
  domain.AddShape({}, "5x4x5");
  Case c;
  c.op = Op::kLinear;
  c.M = 2, c.N = 3, c.K = 2;
  c.x = Tensor(DType::kU8, {2, 2});
  c.w = Tensor(DType::kS4, {3, 2});
  for (int i = 0; i < 4; ++i) c.x.SetInt(i, i);
  for (int i = 0; i < 6; ++i) c.w.SetInt(i, i - 3);
  c.bias_i32 = {10, 20, 30};
  ASSERT_EQ(Validate(c), "");
  const Case large = domain.Inside(c);
  ASSERT_EQ(large.M, 5);
  for (int64_t m = 0; m < 5; ++m) {
    for (int64_t k = 0; k < 5; ++k)
      EXPECT_EQ(large.x.IntAt(m * 5 + k), c.x.IntAt(m % 2 * 2 + k % 2));
  }
  for (int64_t n = 0; n < 4; ++n) {
    for (int64_t k = 0; k < 5; ++k)
      EXPECT_EQ(large.w.IntAt(n * 5 + k), c.w.IntAt(n % 3 * 2 + k % 2));
  }
  EXPECT_EQ(*large.bias_i32, (std::vector<int32_t>{10, 20, 30, 10}));
}

TEST(DomainTest, BlocksFollowTheirRows) {
  Domain domain;
  domain.AddShape({}, "3x4x70");
  for (const bool of_x : {false, true}) {
    int in_blocks = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const Case drawn = gen::Draw(Op::kLinear, seed);
      const auto c = of_x ? gen::XInBlocks(drawn, seed) : gen::InBlocks(drawn, seed);
      if (!c) continue;
      const Case moved = domain.Inside(*c);
      EXPECT_EQ(domain.WhyOutside(moved), "") << Describe(*c);
      in_blocks += (of_x ? moved.x_block : moved.w_block) > 0 ? 1 : 0;
    }
    EXPECT_GT(in_blocks, 5);
  }
}

TEST(DomainTest, ShapesAsPeopleWriteThem) {
  const auto product = [](const char* text, int64_t M, int64_t N, int64_t K) {
    const ShapeOfCase shape = ParseShape(text);
    EXPECT_EQ(shape.layout, Layout::kProducts) << text;
    EXPECT_EQ(std::vector({shape.M, shape.N, shape.K}), std::vector({M, N, K})) << text;
  };
  product("64x512x1024", 64, 512, 1024);
  product("64x1024:1024x512", 64, 512, 1024);
  product("mb112ic2048oc1000", 112, 1000, 2048);
  product("mb1ic64ih7oc10n\"fc\"", 1, 10, 64 * 49);
  EXPECT_EQ(ParseShape("3x4").layout, Layout::kElements);

  // Sizes of the output as benchdnn gives them beside these lines.
  struct Layer {
    const char* text;
    Layout layout;
    int64_t out_h, out_w, groups;
  };
  for (const Layer& layer : {
           Layer{"mb1ic64ih56oc64oh56kh3ph1", Layout::kConv, 56, 56, 1},
           Layer{"mb1ic3ih224oc64oh112kh7sh2ph3n\"conv1\"", Layout::kConv, 112, 112, 1},
           Layer{"g32mb2ic32ih14oc32oh14kh3ph1", Layout::kConv, 14, 14, 32},
           Layer{"ic8ih10iw20oc4kh3kw1", Layout::kConv, 8, 20, 1},
           Layer{"mb1_ic8_ih9_oc4_kh3_dh1", Layout::kConv, 5, 5, 1},
           Layer{"mb1ic64ih112oh56kh3sh2ph0", Layout::kPool, 56, 56, 1},
       }) {
    const ShapeOfCase shape = ParseShape(layer.text);
    EXPECT_EQ(shape.layout, layer.layout) << layer.text;
    EXPECT_EQ(shape.window.out_h(), layer.out_h) << layer.text;
    EXPECT_EQ(shape.window.out_w(), layer.out_w) << layer.text;
    EXPECT_EQ(shape.window.groups, layer.groups) << layer.text;
  }
}

TEST(DomainTest, ShapesOfLayersMakeCases) {
  Domain domain;
  domain.AddShape({}, "mb2ic4ih6oc8kh3ph1");
  domain.AddShape({}, "g4mb1ic4ih6oc4kh3sh2");
  domain.AddShape({}, "mb1ic4ih6kh2sh2");
  for (const Op op : {Op::kConv2d, Op::kDepthwise, Op::kMaxPool, Op::kAvgPool}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const Case moved = domain.Inside(gen::Draw(op, seed));
      EXPECT_EQ(domain.WhyOutside(moved), "") << Describe(moved);
      EXPECT_EQ(moved.window.in_h, 6);
    }
  }
}

TEST(DomainTest, WrongWordsAreNamed) {
  for (const char* text :
       {"", "x", "3x", "3x4x5x6", "3x4:5x6", "mb1oc3kh1", "ic3", "ic3zz4", "mb1ic64ih2oc64kh3",
        "mb1ic3ih8oc4kh3sh0", "99999999999x1x1", "g3mb1ic4ih6oc4kh3"}) {
    EXPECT_THROW(ParseShape(text), InputError) << text;
  }
  Domain domain;
  EXPECT_THROW(domain.AddRange({}, "x_scal", 1, 2), InputError);
  EXPECT_THROW(domain.AddRange({}, "x_scale", 2, 1), InputError);
  EXPECT_THROW(domain.AddRange({}, "x_scale", NAN, 1), InputError);
  EXPECT_THROW(domain.AddShape(Op::kAdd, "3x4x5"), InputError);
}

TEST(DomainTest, ItsTextIsReadAgain) {
  Domain domain = Narrow();
  domain.AddShape(Op::kLinear, "3x5x7");
  domain.AddShape({}, "mb2ic4ih6oc8kh3ph1");
  domain.AddRange(Op::kConv2d, "bias", -INFINITY, 0.1);
  EXPECT_EQ(Domain::Parse(domain.Text()).Text(), domain.Text());
  EXPECT_THROW(Domain::Parse("linear x_scale 1"), InputError);
  EXPECT_THROW(Domain::Parse("liner x_scale 1 2"), InputError);
}

}  // namespace
}  // namespace qualm
