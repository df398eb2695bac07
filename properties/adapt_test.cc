// SPDX-License-Identifier: Apache-2.0
#include "properties/adapt.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/scaled_cast.h"
#include "core/slice.h"
#include "oracles/conventions/convention.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "properties/relation.h"
#include "properties/test_subject.h"

namespace qualm {
namespace {

// u8*s8 -> s32 and nothing else: what a plain integer GEMM takes.
std::string PlainGemm(const Case& c) {
  if (c.relu) return "relu";
  if (c.bias || c.bias_i32) return "bias";
  if (c.per_channel) return "per channel";
  if (c.requant != Requant::kExact) return "requant";
  if (c.x.dtype() != DType::kU8) return "x";
  if (c.w.dtype() != DType::kS8) return "w";
  if (c.out_dtype != DType::kS32) return "out";
  const CodeRange all = RangeOf(DType::kS32);
  if (c.out_min != all.min || c.out_max != all.max) return "clamp";
  for (const int32_t z : c.x_q.zero_point) {
    if (z < 0 || z > 255) return "x zero point";
  }
  return c.w_q.zero_point[0] != 0 ? "w zero point" : "";
}

TEST(Adapt, ATakenCaseStaysAsItIs) {
  const TestSubject subject;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    EXPECT_EQ(AdaptTo(subject, c), c);
  }
}

// Only those who take weights in blocks get them: half of the drawn cases that can have some.
TEST(TakenBy, DrawsBlocksForThoseWhoTakeThem) {
  TestSubject all, s8, none;
  all.takes_blocks = s8.takes_blocks = true;
  s8.cannot_run = [](const Case& c) { return c.x.dtype() == DType::kU8 ? "x" : ""; };
  none.cannot_run = [](const Case& c) { return HasWideCodes(c) ? kOfWideCodes.data() : ""; };
  int of_all = 0, of_s8 = 0;
  for (const Op op : {Op::kLinear, Op::kDynamicLinear, Op::kConv2d}) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const Case c = gen::Draw(op, seed);
      EXPECT_EQ(TakenBy(none, c), AdaptTo(none, c));
      const std::optional<Case> taken = TakenBy(all, c);
      ASSERT_TRUE(taken);
      EXPECT_EQ(Validate(*taken), "");
      EXPECT_EQ(TakenBy(all, *taken), taken) << "a taken case stays as it is";
      of_all += taken->w_block != 0 ? 1 : 0;
      if (op != Op::kLinear) continue;
      const std::optional<Case> adapted = TakenBy(s8, c);
      of_s8 += adapted && adapted->w_block != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(of_all, 200);
  EXPECT_LT(of_all, 400);
  EXPECT_GT(of_s8, 80);
}

// The same of f32 x, and whoever takes nothing else gets nothing else.
TEST(TakenBy, DrawsFloatsForThoseWhoTakeThem) {
  TestSubject all, only, none;
  all.takes_blocks = all.takes_float_x = only.takes_blocks = only.takes_float_x = true;
  only.cannot_run = [](const Case& c) { return HasFloatX(c) ? "" : "codes"; };
  int of_all = 0, in_blocks = 0, of_only = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    EXPECT_FALSE(TakenBy(none, c) && HasFloatX(*TakenBy(none, c)));
    const std::optional<Case> taken = TakenBy(all, c);
    ASSERT_TRUE(taken);
    EXPECT_EQ(Validate(*taken), "") << Describe(*taken);
    EXPECT_EQ(TakenBy(all, *taken), taken) << "a taken case stays as it is";
    of_all += HasFloatX(*taken) ? 1 : 0;
    in_blocks += HasFloatX(*taken) && taken->w_block != 0 ? 1 : 0;
    const std::optional<Case> other = TakenBy(only, c);
    of_only += other && HasFloatX(*other) ? 1 : 0;
  }
  EXPECT_GT(of_all, 150);
  EXPECT_LT(of_all, 250);
  EXPECT_GT(in_blocks, 70);
  EXPECT_GT(of_only, 380);
  const Case conv = gen::Draw(Op::kConv2d, 1);
  EXPECT_EQ(gen::WithFloatX(conv, 1), std::nullopt);
}

// Whoever has nothing but blocks of both operands gets every linear that has terms and rows.
TEST(TakenBy, DrawsBlocksOfBothForThoseWhoTakeNothingElse) {
  TestSubject stored;
  stored.takes_blocks = true;
  stored.cannot_run = [](const Case& c) {
    return c.x_block != 32             ? "blocks of 32 alone"
           : c.x.dtype() != DType::kS8 ? "x"
           : c.bias                    ? "bias"
           : c.x_q.zero_point[0] != 0  ? "zero point"
                                       : "";
  };
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    const std::optional<Case> taken = TakenBy(stored, c);
    ASSERT_EQ(taken.has_value(), c.M > 0 && c.K > 0) << Describe(c);
    if (taken) EXPECT_EQ(WhyNot(stored, *taken), "");
  }
}

// Whoever has no codes of 16 bits gets their high bytes, real numbers that are nearly the same.
TEST(Adapt, MakesBytesOfCodesOfSixteenBits) {
  TestSubject bytes;
  bytes.cannot_run = [](const Case& c) { return HasWideCodes(c) ? "wide" : ""; };
  for (const Op op : {Op::kQuantize, Op::kDequantize, Op::kRequantize, Op::kLinear, Op::kConv2d,
                      Op::kDepthwise}) {
    int wide = 0;
    for (uint64_t seed = 0; seed < (HasSums(op) ? 100 : 400); ++seed) {
      const Case c = HasSums(op) ? *gen::WithWideCodes(op, seed) : gen::Draw(op, seed);
      const std::optional<Case> adapted = AdaptTo(bytes, c);
      ASSERT_TRUE(adapted) << Describe(c);
      EXPECT_EQ(Validate(*adapted), "") << Describe(c);
      if (!HasWideCodes(c)) continue;
      ++wide;
      for (int64_t i = 0; IsWideCode(c.x.dtype()) && i < c.x.size(); ++i)
        EXPECT_EQ(adapted->x.IntAt(i), c.x.IntAt(i) >> 8);
      if (IsWideCode(c.out_dtype)) EXPECT_EQ(adapted->out_max, c.out_max >> 8);
    }
    EXPECT_GT(wide, 20) << Name(op);
  }
}

// Whoever has no other codes gets such cases, of the type that it has.
TEST(TakenBy, DrawsCodesOfSixteenBitsForThoseWhoTakeNothingElse) {
  TestSubject wide;
  wide.cannot_run = [](const Case& c) {
    return c.x.dtype() == DType::kU16 || c.out_dtype == DType::kU16 ? "u16"
           : HasWideCodes(c)                                        ? ""
                                                                    : "bytes";
  };
  for (const Op op : {Op::kQuantize, Op::kDequantize, Op::kRequantize, Op::kLinear, Op::kConv2d,
                      Op::kDepthwise}) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Case c = gen::Draw(op, seed);
      const std::optional<Case> taken = TakenBy(wide, c);
      ASSERT_TRUE(taken) << Describe(c);
      EXPECT_EQ(WhyNot(wide, *taken), "");
    }
  }
}

// Scales of blocks of a row are for those who take them.
TEST(TakenBy, DrawsBlocksOfElementsForThoseWhoTakeThem) {
  TestSubject all, none;
  none.cannot_run = [](const Case& c) {
    return HasElementBlocks(c) ? std::string(kElementsInBlocks) : "";
  };
  for (const Op op : {Op::kQuantize, Op::kDequantize}) {
    int blocks = 0;
    for (uint64_t seed = 0; seed < 600; ++seed) {
      const Case c = gen::Draw(op, seed);
      EXPECT_FALSE(HasElementBlocks(*TakenBy(none, c)));
      const std::optional<Case> taken = TakenBy(all, c);
      ASSERT_TRUE(taken);
      EXPECT_EQ(TakenBy(all, *taken), taken) << "a taken case stays as it is";
      blocks += HasElementBlocks(*taken) ? 1 : 0;
      EXPECT_EQ(AdaptTo(none, *taken).has_value(), true) << Describe(*taken);
    }
    EXPECT_GT(blocks, 30) << Name(op);
    EXPECT_LT(blocks, 150) << Name(op);
  }
}

// So are scales of casts.
TEST(TakenBy, DrawsScaledCastsForThoseWhoTakeThem) {
  TestSubject all, none;
  none.cannot_run = [](const Case& c) {
    return IsScaledCast(c) ? std::string(kOfScaledCasts) : "";
  };
  int scaled = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Case c = gen::Draw(Op::kCast, seed);
    EXPECT_EQ(TakenBy(none, c), c);
    const std::optional<Case> taken = TakenBy(all, c);
    ASSERT_TRUE(taken);
    EXPECT_EQ(TakenBy(all, *taken), taken) << "a taken case stays as it is";
    scaled += IsScaledCast(*taken) ? 1 : 0;
    EXPECT_TRUE(AdaptTo(none, *taken).has_value()) << Describe(*taken);
  }
  EXPECT_GT(scaled, 100);
  EXPECT_LT(scaled, 200);
}

// Whoever has no codes of fewer than 8 bits gets the same codes in bytes, with the same clamp.
TEST(Adapt, MakesBytesOfCodesOfFewerBits) {
  TestSubject bytes;
  bytes.cannot_run = [](const Case& c) { return HasSmallCodes(c) ? "small" : ""; };
  for (const Op op : {Op::kQuantize, Op::kDequantize}) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Case c = *gen::WithSmallCodes(op, seed);
      const std::optional<Case> adapted = AdaptTo(bytes, c);
      ASSERT_TRUE(adapted) << Describe(c);
      ASSERT_EQ(Validate(*adapted), "") << Describe(c);
      const Tensor y = exact::Evaluate(c), wide = exact::Evaluate(*adapted);
      for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y.ValueAt(i), wide.ValueAt(i));
    }
  }
}

// Whoever has bytes too gets one case of codes of fewer bits in eight.
TEST(TakenBy, DrawsCodesOfFewerBitsForThoseWhoTakeThem) {
  TestSubject all, bytes;
  bytes.cannot_run = [](const Case& c) {
    return HasSmallCodes(c) ? std::string(kOfSmallCodes) : "";
  };
  for (const Op op : {Op::kQuantize, Op::kDequantize}) {
    int small = 0;
    for (uint64_t seed = 0; seed < 800; ++seed) {
      small += HasSmallCodes(*TakenBy(all, gen::Draw(op, seed)));
      EXPECT_FALSE(HasSmallCodes(*TakenBy(bytes, gen::Draw(op, seed))));
    }
    EXPECT_GT(small, 50) << Name(op);
    EXPECT_LT(small, 140) << Name(op);
  }
}

// Whoever has no other codes gets such cases, of the type that it has.
TEST(TakenBy, DrawsCodesOfFewerBitsForThoseWhoTakeNothingElse) {
  for (const DType has : {DType::kU4, DType::kS2}) {
    TestSubject small;
    small.cannot_run = [has](const Case& c) {
      return c.x.dtype() == has || c.out_dtype == has ? "" : "another type";
    };
    for (const Op op : {Op::kQuantize, Op::kDequantize}) {
      int taken = 0;
      for (uint64_t seed = 0; seed < 100; ++seed)
        taken += TakenBy(small, gen::Draw(op, seed)) ? 1 : 0;
      EXPECT_GT(taken, 60) << Name(op) << " " << Name(has);
    }
  }
}

// Whoever has bytes too gets one sum of 16 bits in eight.
TEST(TakenBy, DrawsSumsOfSixteenBitsForThoseWhoTakeThem) {
  TestSubject all;
  for (const Op op : {Op::kLinear, Op::kConv2d, Op::kDepthwise}) {
    int wide = 0;
    for (uint64_t seed = 0; seed < 800; ++seed)
      wide += HasWideCodes(*TakenBy(all, gen::Draw(op, seed)));
    EXPECT_GT(wide, 60) << Name(op);
    EXPECT_LT(wide, 140) << Name(op);
  }
}

TEST(Adapt, BringsEveryLinearIntoAPlainGemm) {
  TestSubject subject;
  subject.cannot_run = PlainGemm;
  int changed = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    const std::optional<Case> adapted = AdaptTo(subject, c);
    if (!adapted) {
      EXPECT_EQ(c.N, 0) << Describe(c);  // nothing to take the parameters of one channel from
      continue;
    }
    EXPECT_EQ(Validate(*adapted), "");
    EXPECT_EQ(PlainGemm(*adapted), "");
    EXPECT_EQ(adapted->x.shape(), c.x.shape());
    EXPECT_EQ(adapted->w.shape(), c.w.shape());
    EXPECT_TRUE(c.w.dtype() != DType::kS8 || adapted->w == c.w);
    changed += *adapted == c ? 0 : 1;
  }
  EXPECT_GT(changed, 400);
}

// Each parameter by itself, also one that has no line in the list of changes.
TEST(Adapt, EveryParameterCanBeLeftOut) {
  int left_out = 0;
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Case c = gen::Draw(op, seed);
      for (const Case& plain : slice::WithOneParameterOf(c, Case{})) {
        if (!Validate(plain).empty()) continue;
        const auto wants_plain = [&](const Case& candidate) {
          return candidate == plain ? std::string() : std::string("another case");
        };
        EXPECT_EQ(AdaptTo(wants_plain, c), plain) << Describe(c) << ", wanted " << Describe(plain);
        ++left_out;
      }
    }
  }
  EXPECT_GT(left_out, 500);
}

// Expects that AdaptTo makes exactly edit(c) of `c` if the subject takes nothing else.
template <class Edit>
void ExpectOneChange(const Case& c, const char* what, Edit edit) {
  ASSERT_EQ(Validate(c), "") << what;
  Case wanted = ProblemOf(c);
  edit(wanted);
  DeriveSizes(&wanted);
  ASSERT_EQ(Validate(wanted), "") << what;
  ASSERT_FALSE(wanted == c) << what;
  const auto only = [&](const Case& candidate) {
    return candidate == wanted ? std::string() : std::string("another case");
  };
  EXPECT_EQ(AdaptTo(only, c), wanted) << what;
}
// Expects that AdaptTo does not offer edit(c).
template <class Edit>
void ExpectNoChange(const Case& c, const char* what, Edit edit) {
  Case unwanted = ProblemOf(c);
  edit(unwanted);
  const auto only = [&](const Case& candidate) {
    return candidate == unwanted ? std::string() : std::string("another case");
  };
  EXPECT_EQ(AdaptTo(only, c), std::nullopt) << what;
}

Case LinearWithAll() {
  Case c;
  c.op = Op::kLinear;
  c.M = 1;
  c.N = 2;
  c.K = 2;
  c.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{0, 255});
  c.w = Tensor::Of<int8_t>({2, 2}, std::vector<int8_t>{-128, 127, 1, 2});
  c.x_q = {{0.5f}, {300}};
  c.w_q = {{2, 3}, {-200, 5}};
  c.out_q = {{4}, {400}};
  c.per_channel = true;
  c.bias_i32 = {{1, 2}};
  c.out_min = 3;
  c.out_max = 200;
  c.relu = true;
  c.requant = Requant::kFloat32;
  return c;
}

void MoveAll(std::vector<int32_t>& zero_points, int32_t by) {
  for (int32_t& zero : zero_points) zero += by;
}
void MoveX(Case& c, DType to) {
  const int32_t by = to == DType::kS8 ? -128 : 128;
  c.x = *relation::Shifted(c.x, to, by);
  MoveAll(c.x_q.zero_point, by);
}
void MoveW(Case& c, DType to) {
  const int32_t by = to == DType::kS8 ? -128 : 128;
  c.w = *relation::Shifted(c.w, to, by);
  MoveAll(c.w_q.zero_point, by);
}
void MoveOut(Case& c, DType to) {
  MoveAll(c.out_q.zero_point, to == DType::kS8 ? -128 : 128);
  c.out_dtype = to;
  OpenClamp(&c);
}

TEST(Adapt, ALinearLosesOneThingAtATime) {
  const Case c = LinearWithAll();
  ExpectOneChange(c, "relu", [](Case& e) { e.relu = false; });
  ExpectOneChange(c, "clamp", [](Case& e) { OpenClamp(&e); });
  ExpectOneChange(c, "requant", [](Case& e) { e.requant = Requant::kExact; });
  ExpectOneChange(c, "bias in int32", [](Case& e) { e.bias_i32.reset(); });
  ExpectOneChange(c, "per channel", [](Case& e) {
    e.per_channel = false;
    e.w_q = {{2}, {-200}};
  });
  ExpectOneChange(c, "zero point of x", [](Case& e) { e.x_q.zero_point = {255}; });
  ExpectOneChange(c, "zero points of w", [](Case& e) { e.w_q.zero_point = {-128, 5}; });
  ExpectOneChange(c, "output zero point", [](Case& e) { e.out_q.zero_point = {255}; });
  ExpectOneChange(c, "symmetric x", [](Case& e) { e.x_q.zero_point = {0}; });
  ExpectOneChange(c, "symmetric w", [](Case& e) { e.w_q.zero_point = {0, 0}; });
  ExpectOneChange(c, "symmetric output", [](Case& e) { e.out_q.zero_point = {0}; });
  Case real = c;  // which no mode of requantization takes
  real.requant = Requant::kExact;
  real.bias_i32.reset();
  real.bias = {{1, 2}};
  ExpectOneChange(real, "bias in real units", [](Case& e) { e.bias.reset(); });
  ExpectOneChange(real, "s32", [](Case& e) {
    e.bias.reset();
    e.out_dtype = DType::kS32;
    e.out_q = QParams{};
    OpenClamp(&e);
  });
  ExpectOneChange(real, "f32", [](Case& e) {
    e.out_dtype = DType::kF32;
    e.out_q = QParams{};
    OpenClamp(&e);
  });
}

TEST(Adapt, ALinearTakesOtherTypesWithTheSameRealValues) {
  const Case c = LinearWithAll();
  const DType u8 = DType::kU8, s8 = DType::kS8;
  ExpectOneChange(c, "x", [&](Case& e) { MoveX(e, s8); });
  ExpectOneChange(c, "w", [&](Case& e) { MoveW(e, u8); });
  ExpectOneChange(c, "x and w", [&](Case& e) { MoveX(e, s8), MoveW(e, u8); });
  ExpectOneChange(c, "x and output", [&](Case& e) { MoveX(e, s8), MoveOut(e, s8); });
  ExpectOneChange(c, "output", [&](Case& e) { MoveOut(e, s8); });
  ExpectOneChange(c, "all s8", [&](Case& e) { MoveX(e, s8), MoveOut(e, s8); });
  Case other = c;  // the other way round
  MoveX(other, s8), MoveW(other, u8), MoveOut(other, s8);
  ExpectOneChange(other, "x", [&](Case& e) { MoveX(e, u8); });
  ExpectOneChange(other, "output", [&](Case& e) { MoveOut(e, u8); });
  ExpectOneChange(other, "x and output", [&](Case& e) { MoveX(e, u8), MoveOut(e, u8); });
  ExpectOneChange(other, "all u8", [&](Case& e) { MoveX(e, u8), MoveOut(e, u8); });
  ExpectOneChange(other, "all s8", [&](Case& e) { MoveW(e, s8); });
  Case mixed = c;  // x u8, w s8, output s8
  MoveOut(mixed, s8);
  ExpectOneChange(mixed, "all u8", [&](Case& e) { MoveW(e, u8), MoveOut(e, u8); });
  ExpectOneChange(mixed, "all s8", [&](Case& e) { MoveX(e, s8); });
  ExpectOneChange(mixed, "w", [&](Case& e) { MoveW(e, u8); });
  for (const DType from : {u8, s8}) {
    Case both = c;  // all of one type; w keeps it
    if (from == u8) MoveW(both, u8);
    if (from == s8) MoveX(both, s8), MoveOut(both, s8);
    const DType to = from == u8 ? s8 : u8;
    ExpectOneChange(both, "x and output", [&](Case& e) { MoveX(e, to), MoveOut(e, to); });
  }
  ExpectNoChange(c, "the output has the type already", [](Case& e) {
    MoveAll(e.out_q.zero_point, 128);
    OpenClamp(&e);
  });
  ExpectNoChange(c, "all s8: w has the type already",
                 [&](Case& e) { MoveX(e, s8), MoveW(e, u8), MoveOut(e, s8); });
  ExpectNoChange(c, "all u8: the clamp is not in the way", [&](Case& e) {
    MoveW(e, u8);
    OpenClamp(&e);
  });
  // Integers and floats have no zero point and no mode of requantization.
  ExpectOneChange(c, "s32", [](Case& e) {
    e.out_dtype = DType::kS32;
    e.out_q = QParams{};
    e.requant = Requant::kExact;
    OpenClamp(&e);
  });
  ExpectOneChange(c, "f32", [](Case& e) {
    e.out_dtype = DType::kF32;
    e.out_q = QParams{};
    e.requant = Requant::kExact;
    OpenClamp(&e);
  });
  Case sums = c;
  sums.out_dtype = DType::kS32;
  sums.out_q = QParams{};
  sums.requant = Requant::kExact;
  OpenClamp(&sums);
  for (const DType to : {u8, s8}) {
    ExpectOneChange(sums, "codes", [&](Case& e) {
      e.out_dtype = to;
      OpenClamp(&e);
    });
  }
  ExpectNoChange(sums, "x and output need codes", [&](Case& e) {
    MoveX(e, s8);
    e.out_dtype = u8;
    OpenClamp(&e);
  });
  ExpectNoChange(sums, "all u8 needs codes", [&](Case& e) {
    MoveW(e, u8);
    e.out_dtype = u8;
    OpenClamp(&e);
  });
}

TEST(Adapt, ElementsTakeTheQParamsOfTheirInput) {
  Case c = CaseOver(Op::kRescale, Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{7}), DType::kS8);
  c.x_q = {{2}, {3}};
  c.out_q = {{4}, {5}};
  c.out_max = 100;
  ExpectOneChange(c, "output as input", [](Case& e) {
    e.out_dtype = DType::kU8;
    e.out_q = e.x_q;
    OpenClamp(&e);
  });
  ExpectOneChange(c, "all u8", [](Case& e) { MoveOut(e, DType::kU8); });
  ExpectNoChange(c, "there is no w", [](Case& e) { e.w = Tensor(DType::kS8, {}); });
  Case add = CaseOver(Op::kAdd, Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{7}), DType::kU8);
  add.w = add.x;
  add.w_q.zero_point = {9};
  ExpectOneChange(add, "both operands",
                  [](Case& e) { MoveX(e, DType::kS8), MoveW(e, DType::kS8); });
  ExpectOneChange(add, "all s8", [](Case& e) {
    MoveX(e, DType::kS8), MoveW(e, DType::kS8), MoveOut(e, DType::kS8);
  });
  Case linear = LinearWithAll();
  linear.requant = Requant::kExact;
  ExpectNoChange(linear, "sums have a scale of their own", [](Case& e) {
    e.out_q = e.x_q;
    OpenClamp(&e);
  });
}

TEST(Adapt, WindowsBecomePlainer) {
  Case c;
  c.op = Op::kMaxPool;
  c.N = 1;
  c.window = {.batch = 1, .in_h = 9, .in_w = 9, .in_c = 1, .kernel_h = 3, .kernel_w = 3};
  c.window.dilation_h = c.window.dilation_w = 2;
  c.window.pad_top = 2, c.window.pad_bottom = 1, c.window.pad_left = 1, c.window.pad_right = 2;
  c.x = Tensor(DType::kU8, {1, 9, 9, 1});
  DeriveSizes(&c);
  ExpectOneChange(c, "dilation", [](Case& e) { e.window.dilation_h = e.window.dilation_w = 1; });
  ExpectOneChange(c, "equal pads",
                  [](Case& e) { e.window.pad_bottom = 2, e.window.pad_right = 1; });
  ExpectOneChange(c, "pads of at most half of the kernel", [](Case& e) {
    e.window.pad_top = e.window.pad_bottom = e.window.pad_left = e.window.pad_right = 1;
  });
}

TEST(Adapt, DynamicLinearsTakeARule) {
  int met = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Case c = gen::Draw(Op::kDynamicLinear, seed);
    if (!Validate(c).empty()) continue;
    for (const QParamsRule rule :
         {QParamsRule::kObserver, QParamsRule::kAten, QParamsRule::kOnnx}) {
      Case wanted = ProblemOf(c);
      wanted.rule = rule;
      wanted.observer = {.reduce_range = c.observer.reduce_range && rule == QParamsRule::kAten};
      wanted.codes = c.codes && rule != QParamsRule::kObserver;
      if (wanted == c || !Validate(wanted).empty()) continue;
      ExpectOneChange(c, "rule", [&](Case& e) { e = wanted; });
      ++met;
    }
  }
  EXPECT_GT(met, 50);
}

TEST(Adapt, CodesAreLeftOut) {
  int met = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Case c = gen::Draw(Op::kChooseQParams, seed);
    if (!c.codes) continue;
    ++met;
    ExpectOneChange(c, "codes", [](Case& e) { e.codes = false; });
  }
  EXPECT_GT(met, 20);
}

TEST(Adapt, RowsOfResultsNeedNoChannel) {
  int met = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Case c = gen::Draw(Op::kChooseQParams, seed);
    if (!c.per_channel) continue;
    ++met;
    ExpectOneChange(c, "per tensor", [](Case& e) { e.per_channel = false; });
  }
  EXPECT_GT(met, 10);
}

TEST(Adapt, ConventionsRefuseToo) {
  TestSubject subject;
  const Case c = gen::Draw(Op::kLinear, gen::Theme::kUniform, 1);
  EXPECT_EQ(WhyNot(subject, c), "");
  int refused = 0, taken = 0;
  for (const Convention& convention : AllConventions()) {
    subject.set_contract({convention.name});
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Case drawn = gen::Draw(Op::kLinear, seed);
      EXPECT_EQ(WhyNot(subject, drawn), convention.cannot_run(drawn));
      ++(convention.cannot_run(drawn).empty() ? taken : refused);
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(taken, 20);
  subject.set_contract({"no such convention"});
  EXPECT_EQ(WhyNot(subject, c), "");
  subject.cannot_run = [](const Case&) { return "never"; };
  EXPECT_EQ(WhyNot(subject, c), "never");
  subject.set_contract({"fbgemm@avx2"});
  EXPECT_EQ(WhyNot(subject, c), "never");
  subject.set_contract({});
  EXPECT_EQ(WhyNot(subject, c), "never");
}

TEST(Adapt, EndsAfter32Reasons) {
  // A new reason for every case: the search would go on for ever.
  int64_t asked = 0;
  const auto always_another = [&](const Case&) { return std::to_string(++asked); };
  EXPECT_EQ(AdaptTo(always_another, LinearWithAll()), std::nullopt);
  EXPECT_GT(asked, 32);
  EXPECT_LT(asked, 32 * 40);
}

TEST(Adapt, ChangesNothingThatIsNotInTheWay) {
  TestSubject subject;
  subject.cannot_run = [](const Case& c) { return c.relu ? "relu" : ""; };
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Case c = gen::Draw(Op::kConv2d, seed);
    if (!c.relu) continue;
    const std::optional<Case> adapted = AdaptTo(subject, c);
    ASSERT_TRUE(adapted.has_value());
    c = ProblemOf(c);
    c.relu = false;
    EXPECT_EQ(*adapted, c);
  }
}

TEST(Adapt, EveryOpIntoSymmetricS8) {
  TestSubject subject;
  subject.cannot_run = [](const Case& c) -> std::string {
    if (IsCode(c.x.dtype()) && c.x.dtype() != DType::kS8) return "x";
    if (IsCode(c.w.dtype()) && !c.w.empty() && c.w.dtype() != DType::kS8) return "w";
    if (IsCode(c.out_dtype) && c.out_dtype != DType::kS8) return "out";
    return "";
  };
  for (const Op op : AllOps()) {
    int adapted = 0;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const std::optional<Case> c = AdaptTo(subject, gen::Draw(op, seed));
      if (!c) continue;
      ++adapted;
      EXPECT_EQ(Validate(*c), "") << Name(op);
      EXPECT_EQ(subject.CannotRun(*c), "") << Name(op);
    }
    EXPECT_GE(adapted, 90) << Name(op);
  }
}

TEST(Adapt, EveryOpToPerTensor) {
  TestSubject subject;
  subject.cannot_run = [](const Case& c) { return c.per_channel ? "per channel" : ""; };
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Case c = gen::Draw(op, seed);
      const std::optional<Case> adapted = AdaptTo(subject, c);
      // Nothing to take the parameters of one channel from.
      if (!adapted) {
        EXPECT_TRUE(c.per_channel && c.N == 0) << Describe(c);
      } else {
        EXPECT_EQ(Validate(*adapted), "") << Describe(c);
      }
    }
  }
}

TEST(Adapt, AnOpThatIsNotOfferedStaysSo) {
  TestSubject subject;
  subject.cannot_run = [](const Case&) { return "not offered"; };
  for (const Op op : AllOps()) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_FALSE(AdaptTo(subject, gen::Draw(op, seed)).has_value()) << Name(op);
    }
  }
}

TEST(Adapt, SizesAreNotAdapted) {
  TestSubject subject;
  subject.cannot_run = [](const Case& c) { return c.K == 0 || c.K % 4 != 0 ? "K" : ""; };
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    EXPECT_EQ(AdaptTo(subject, c).has_value(), c.K != 0 && c.K % 4 == 0);
  }
}

}  // namespace
}  // namespace qualm
