// SPDX-License-Identifier: Apache-2.0
// A case cut out of a case computes the same outputs as the whole, for every operation.
#include "core/slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "oracles/exact/exact.h"
#include "properties/distinct.h"
#include "properties/gen/gen.h"
#include "properties/sweep.h"

namespace qualm::slice {
namespace {

constexpr uint64_t kCases = 400;

// Last, first, and first again.
std::vector<int64_t> Some(int64_t count) { return {count - 1, 0, 0}; }

// Whether row i of `cut` is row rows[i] of `whole`, both [..., columns].
void ExpectRows(const Tensor& cut, const Tensor& whole, Places rows, int64_t columns) {
  ASSERT_EQ(cut.size(), static_cast<int64_t>(rows.size()) * columns);
  for (int64_t i = 0; i < cut.size(); ++i) {
    const int64_t row = rows[static_cast<size_t>(i / columns)];
    ASSERT_EQ(cut.BitsAt(i), whole.BitsAt(row * columns + i % columns)) << i;
  }
}

TEST(SumsOf, AreTheSumsAndNothingElse) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    const Case sums = SumsOf(c);
    ASSERT_EQ(Validate(sums), "");
    ASSERT_EQ(sums.out_q, QParams{});
    const Tensor y = exact::Evaluate(sums);
    for (int64_t i = 0; i < y.size(); ++i) {
      int64_t sum = 0;
      for (int64_t k = 0; k < c.K; ++k) {
        sum += (int64_t{c.x.IntAt(i / c.N * c.K + k)} - c.x_q.zero_point_at(0)) *
               (int64_t{c.w.IntAt(i % c.N * c.K + k)} - c.w_q.zero_point_at(i % c.N));
      }
      ASSERT_EQ(y.IntAt(i), std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX)) << Describe(c);
    }
  }
}

TEST(Rows, AreTheSameAlone) {
  for (Op op : AllOps()) {
    if (HasWindow(op) || op == Op::kChooseQParams) continue;
    for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M == 0 || RowsShareQParams(c)) continue;
      SCOPED_TRACE(Describe(c));
      const std::vector<int64_t> rows = Some(c.M);
      const Case cut = Rows(c, rows);
      ASSERT_EQ(Validate(cut), "");
      ExpectRows(exact::Evaluate(cut), exact::Evaluate(c), rows, c.N);
    }
  }
}

// A list that differs from all rows in its first place alone is no list of all rows.
TEST(Rows, AllButTheFirstAreNotAllRows) {
  int64_t cut_rows = 0;
  for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
    const Case c = gen::Draw(Op::kLinear, seed);
    if (c.M < 2) continue;
    std::vector<int64_t> rows = Range(0, c.M);
    rows[0] = c.M - 1;
    SCOPED_TRACE(Describe(c));
    ExpectRows(Rows(c, rows).x, c.x, rows, c.K);
    ++cut_rows;
  }
  EXPECT_GT(cut_rows, 20);
}

// No operation takes codes of 4 bits yet, but tensors hold them: a row may begin within a byte.
TEST(Rows, OfFourBitsAreCutCodeByCode) {
  Case c;
  c.M = 3, c.K = 3, c.N = 1;
  c.x = Tensor(DType::kS4, {3, 3});
  c.w = Tensor(DType::kS8, {1, 3});
  for (int32_t i = 0; i < 9; ++i) c.x.SetInt(i, i - 4);
  const std::vector<int64_t> rows{2, 1, 1};
  const Case cut = Rows(c, rows);
  EXPECT_EQ(cut.x.dtype(), DType::kS4);
  for (int64_t i = 0; i < 9; ++i)
    EXPECT_EQ(cut.x.IntAt(i), rows[static_cast<size_t>(i / 3)] * 3 + i % 3 - 4) << i;
}

// Channels cut out of a case give the same outputs; their parameters and biases are cut with them.
TEST(Channels, AreTheSameAlone) {
  int64_t with_lists = 0, with_bias = 0;
  for (Op op : AllOps()) {
    if (op == Op::kSoftmax || op == Op::kChooseQParams) continue;  // an output is about all of x
    for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.N == 0) continue;
      SCOPED_TRACE(Describe(c));
      // Of concat those of the first input come first; groups give the same number of channels
      // each.
      std::vector<int64_t> channels = Some(c.N);
      if (op == Op::kConcat) std::ranges::sort(channels);
      if (IsConv(op) && c.window.groups > 1) channels = {c.N - 1};
      ASSERT_EQ(Channels(c, Range(0, c.N)), ProblemOf(c));
      const Case cut = Channels(c, channels);
      ASSERT_EQ(Validate(cut), "");
      const Tensor alone = exact::Evaluate(cut), whole = exact::Evaluate(c);
      ASSERT_EQ(cut.M, c.M);
      for (int64_t i = 0; i < alone.size(); ++i) {
        ASSERT_EQ(alone.BitsAt(i),
                  whole.BitsAt(i / cut.N * c.N + channels[static_cast<size_t>(i % cut.N)]));
      }
      with_lists += c.per_channel;
      with_bias += c.bias || c.bias_i32;
    }
  }
  EXPECT_GT(with_lists, 100);
  EXPECT_GT(with_bias, 100);
}

// A convolution of no output channels keeps one group; unequal parts of groups are no convolution.
TEST(Channels, OfGroups) {
  int64_t with_groups = 0;
  for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
    const Case c = gen::Draw(Op::kConv2d, seed);
    const int64_t per_group = c.window.groups == 0 ? 0 : c.N / c.window.groups;
    if (c.window.groups < 2 || per_group < 2) continue;
    EXPECT_EQ(Validate(Channels(c, {})), "") << Describe(c);
    if (++with_groups > 1) continue;
    const std::vector<int64_t> uneven = Range(0, per_group + 1);
    EXPECT_DEATH((void)Channels(c, uneven), "internal check failed");
  }
  EXPECT_GT(with_groups, 5);
}

TEST(Terms, OfAllAreTheCase) {
  for (Op op : AllOps()) {
    if (!HasSums(op)) continue;
    for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
      const Case c = gen::Draw(op, seed);
      SCOPED_TRACE(Describe(c));
      const int64_t count = op == Op::kLinear ? c.K : c.window.in_c / c.window.groups;
      EXPECT_EQ(Terms(c, Range(0, count)), ProblemOf(c));
      // A term whose two codes are the zero points adds nothing.
      const int32_t zx = c.x_q.zero_point_at(0);
      const CodeRange codes = RangeOf(c.x.dtype());
      if (op == Op::kDepthwise || c.per_channel || zx < codes.min || zx > codes.max) continue;
      std::vector<int64_t> terms = Range(0, count);
      terms.push_back(-1);
      const Case longer = Terms(c, terms, zx, RangeOf(c.w.dtype()).max);
      ASSERT_EQ(Validate(longer), "");
      ASSERT_EQ(exact::Evaluate(longer), exact::Evaluate(c));
    }
  }
}

// Each weight keeps the scale and the zero point of its block.
TEST(Terms, OfBlocksKeepTheirParameters) {
  int whole = 0, single = 0;
  for (uint64_t seed = 0; seed < 4 * kCases; ++seed) {
    const std::optional<Case> c = gen::InBlocks(gen::Draw(Op::kLinear, seed), seed);
    if (!c || c->N == 0) continue;
    SCOPED_TRACE(Describe(*c));
    const int64_t n = c->N - 1, from = static_cast<int64_t>(seed) % c->K;
    for (const std::vector<int64_t>& terms :
         {Range(0, (c->K + 1) / 2), Range(from, c->K), std::vector<int64_t>{c->K - 1, 0}}) {
      const Case cut = Terms(Channels(*c, {&n, 1}), terms);
      ASSERT_EQ(Validate(cut), "");
      (cut.w_block == 1 ? single : whole) += 1;
      for (int64_t i = 0; i < cut.K; ++i) {
        const size_t of = WEntry(*c, n, terms[static_cast<size_t>(i)]), at = WEntry(cut, 0, i);
        ASSERT_EQ(cut.w_q.scale[at], c->w_q.scale[of]) << i;
        ASSERT_EQ(cut.w_q.zero_point[at], c->w_q.zero_point[of]) << i;
      }
    }
    const Case none = Terms(*c, {});
    EXPECT_EQ(Validate(none), "");
    EXPECT_EQ(none.w_block, 0);
  }
  EXPECT_GT(whole, 100);
  EXPECT_GT(single, 100);
}

// Each output keeps the scales and zero points of its row and channel, term by term.
TEST(Cuts, OfBlocksOfBothOperandsComputeTheSlice) {
  int cuts = 0, single = 0;
  for (uint64_t seed = 0; seed < 4 * kCases; ++seed) {
    const std::optional<Case> c = gen::XInBlocks(gen::Draw(Op::kLinear, seed), seed);
    if (!c || c->N == 0) continue;
    SCOPED_TRACE(Describe(*c));
    const Tensor y = exact::Evaluate(*c);
    const int64_t m = c->M - 1, n = c->N - 1;
    const Case one = OneOutput(*c, m * c->N + n);
    ASSERT_EQ(Validate(one), "");
    ASSERT_EQ(exact::Evaluate(one).BitsAt(0), y.BitsAt(m * c->N + n));
    const std::vector<int64_t> terms{c->K - 1, 0};
    const Case cut = Terms(one, terms);
    ASSERT_EQ(Validate(cut), "");
    for (int64_t i = 0; i < cut.K; ++i) {
      const size_t of = XEntry(*c, m, terms[static_cast<size_t>(i)]), at = XEntry(cut, 0, i);
      ASSERT_EQ(cut.x_q.scale[at], c->x_q.scale[of]);
      ASSERT_EQ(cut.x_q.zero_point[at], c->x_q.zero_point[of]);
    }
    single += cut.w_block == c->w_block ? 1 : 0;  // of one block any terms may go
    EXPECT_EQ(Validate(Rows(*c, {})), "");
    EXPECT_EQ(Validate(Terms(*c, {})), "");
    EXPECT_EQ(WithoutBlocks(*c).x_q.scale, std::vector<float>{c->x_q.scale[0]});
    ++cuts;
  }
  EXPECT_GT(cuts, 100);
  EXPECT_GT(single, 20);
}

// Each output of a quantize, dequantize or cast keeps the scale and the zero point of its block.
TEST(Cuts, OfBlocksOfARowComputeTheSlice) {
  int cuts = 0, whole = 0, single = 0, plain = 0;
  for (const Op op : {Op::kQuantize, Op::kDequantize, Op::kCast}) {
    for (uint64_t seed = 0; seed < 12 * kCases; ++seed) {
      const Case drawn = gen::Draw(op, seed);
      const std::optional<Case> c =
          op == Op::kCast ? gen::WithCastScales(drawn, seed) : gen::ElementsInBlocks(drawn, seed);
      if (!c || c->x_block == 0) continue;
      SCOPED_TRACE(Describe(*c));
      const Tensor y = exact::Evaluate(*c);
      const int64_t last = c->M * c->N - 1, from = static_cast<int64_t>(seed) % c->N;
      const Case one = OneOutput(*c, last);
      ASSERT_EQ(Validate(one), "");
      EXPECT_EQ(one.x_block, 0);
      ASSERT_TRUE(exact::Evaluate(one).SameAt(0, y, last));
      const std::vector<int64_t> rows{c->M - 1};
      for (const std::vector<int64_t>& columns :
           {Range(0, (c->N + 1) / 2), Range(from, c->N), std::vector<int64_t>{c->N - 1, 0}}) {
        const Case cut = Channels(Rows(*c, rows), columns);
        ASSERT_EQ(Validate(cut), "");
        (cut.x_block == 0 ? plain : cut.x_block == 1 ? single : whole) += 1;
        const Tensor part = exact::Evaluate(cut);
        for (int64_t i = 0; i < part.size(); ++i)
          ASSERT_TRUE(part.SameAt(i, y, rows[0] * c->N + columns[static_cast<size_t>(i)])) << i;
      }
      for (const Case& none : {Rows(*c, {}), Channels(*c, {})}) {
        EXPECT_EQ(Validate(none), "");
        EXPECT_EQ(none.x_block, 0);
      }
      EXPECT_EQ(Validate(WithoutBlocks(*c)), "");
      ++cuts;
    }
  }
  for (const int count : {cuts, whole, single, plain}) EXPECT_GT(count, 20);
}

TEST(Batches, AreTheSameAlone) {
  for (Op op : AllOps()) {
    if (!HasWindow(op) && op != Op::kChooseQParams) continue;
    for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
      const Case c = gen::Draw(op, seed);
      const int64_t batches = c.x.shape()[0];
      if (batches == 0) continue;
      SCOPED_TRACE(Describe(c));
      const std::vector<int64_t> some = Some(batches);
      const Case cut = Batches(c, some);
      ExpectRows(cut.x, c.x, some, c.x.size() / batches);
      if (!HasWindow(op)) continue;
      ASSERT_EQ(Validate(cut), "");
      ExpectRows(exact::Evaluate(cut), exact::Evaluate(c), some, c.M / batches * c.N);
    }
  }
}

// Rows and columns of values, and the batches that hold them.
TEST(Rows, OfChooseQParamsAreOfEveryBatch) {
  for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
    const Case c = gen::Draw(Op::kChooseQParams, seed);
    const std::vector<int64_t> rows = Some(c.M), columns = Some(c.N);
    const Case cut = Channels(Rows(c, rows), columns);
    ASSERT_EQ(cut.x.shape(), (std::vector<int64_t>{c.x.shape()[0], 3, 3}));
    for (int64_t i = 0; i < cut.x.size(); ++i) {
      const int64_t m = rows[static_cast<size_t>(i / 3 % 3)];
      const int64_t n = columns[static_cast<size_t>(i % 3)];
      ASSERT_EQ(cut.x.BitsAt(i), c.x.BitsAt((i / 9 * c.M + m) * c.N + n));
    }
  }
}

TEST(DistinctParts, AnyNanIsRightInTheWholeToo) {
  Case c;
  c.op = Op::kCast;
  c.overflow = FloatOverflow::kNan;
  c.M = 1, c.N = 4096;
  c.out_dtype = DType::kF16;
  c.x = Tensor::Of<float>({c.M, c.N}, std::vector<float>(4096, -1e30f));
  const std::optional<Distinct> distinct = DistinctPartsOf(c);
  ASSERT_TRUE(distinct);
  Tensor negative(c.out_dtype, c.output_shape());
  for (int64_t i = 0; i < c.N; ++i) negative.SetBits(i, 0xFE00);
  EXPECT_EQ(distinct->Expanded(exact::Evaluate(distinct->c), c.output_shape()), negative);
}

// The oracle computes the distinct rows and columns of a large case, once each.
TEST(DistinctParts, GiveTheWholeOutput) {
  for (Op op : AllOps()) {
    int64_t whole = 0, parts = 0;
    for (uint64_t seed = 0; seed < 24; ++seed) {
      const Case c = gen::Draw(op, gen::Theme::kLayer, seed);
      const std::optional<Distinct> distinct = DistinctPartsOf(c);
      if (!distinct) continue;
      ASSERT_EQ(Validate(distinct->c), "") << Describe(c);
      ASSERT_EQ(distinct->Expanded(exact::Evaluate(distinct->c), c.output_shape()),
                exact::Evaluate(c))
          << Describe(c);
      whole += c.M * c.N;
      parts += distinct->c.M * distinct->c.N;
    }
    if (RowOf(op).layout == Layout::kElements && op != Op::kSoftmax) {
      EXPECT_GT(whole, 0) << Name(op);
      EXPECT_LE(4 * parts, whole) << Name(op);
    }
  }
}

// Each of the cases has one parameter of the other, and there is one for each that differs.
TEST(WithOneParameterOf, ChangesOneAtATime) {
  int64_t changes = 0;
  for (Op op : AllOps()) {
    for (uint64_t seed = 0; seed < kCases / 8; ++seed) {
      const Case c = ProblemOf(gen::Draw(op, seed)), other = gen::Draw(op, seed + kCases);
      SCOPED_TRACE(Describe(c));
      ASSERT_TRUE(WithOneParameterOf(c, c).empty());
      const std::vector<Case> cases = WithOneParameterOf(c, other);
      for (const Case& one : cases) {
        ASSERT_EQ(WithOneParameterOf(c, one), (std::vector<Case>{one}));
        ASSERT_EQ(WithOneParameterOf(one, other).size(), cases.size() - 1);
        ++changes;
      }
    }
  }
  EXPECT_GT(changes, 500);
}

TEST(WithParamsOf, GivesEveryChannelThoseOfOne) {
  for (Op op : AllOps()) {
    if (!HasChannelList(op) || op == Op::kChooseQParams) continue;
    for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
      const Case drawn = gen::Draw(op, seed);
      const Case c = gen::WithCastScales(drawn, seed).value_or(drawn);
      if (c.N == 0 || c.x_block != 0) continue;
      SCOPED_TRACE(Describe(c));
      const int64_t n = c.N / 2;
      const Case list = WithParamsOf(c, n, true), one = WithParamsOf(c, n, false);
      ASSERT_EQ(Validate(list), "");
      ASSERT_EQ(Validate(one), "");
      if (c.requant == Requant::kExact) {
        ASSERT_EQ(exact::Evaluate(list), exact::Evaluate(one));
      }
      const Tensor y = exact::Evaluate(list), whole = exact::Evaluate(c);
      for (int64_t m = 0; m < c.M; ++m) ASSERT_EQ(y.BitsAt(m * c.N + n), whole.BitsAt(m * c.N + n));
    }
  }
}

TEST(ExplicitPadding, OfRealZeroComputesTheSame) {
  int64_t padded = 0;
  for (Op op : {Op::kConv2d, Op::kDepthwise}) {
    for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
      const Case c = gen::Draw(op, seed);
      const int32_t zx = c.x_q.zero_point_at(0);
      const CodeRange codes = RangeOf(c.x.dtype());
      if (zx < codes.min || zx > codes.max) continue;
      const Case by_hand = ExplicitPadding(c, zx);
      ASSERT_EQ(Validate(by_hand), "") << Describe(c);
      ASSERT_EQ(exact::Evaluate(by_hand), exact::Evaluate(c)) << Describe(c);
      padded += by_hand.x.size() > c.x.size();
    }
  }
  EXPECT_GT(padded, 50);
}

TEST(Crop, LeavesTheMiddleOfEachImage) {
  for (Op op : AllOps()) {
    if (!HasWindow(op)) continue;
    int64_t cropped = 0;
    for (uint64_t seed = 0; seed < kCases / 4; ++seed) {
      const Case c = gen::Draw(op, seed);
      const Window& old = c.window;
      if (old.in_h < 4 || old.in_w < 4) continue;
      SCOPED_TRACE(Describe(c));
      const Case cut = Crop(c, 1, 2, 2, 1);
      const Window& v = cut.window;
      ASSERT_EQ(cut.x.shape(),
                (std::vector<int64_t>{old.batch, old.in_h - 3, old.in_w - 3, old.in_c}));
      for (int64_t i = 0; i < cut.x.size(); ++i) {
        const int64_t pixel = i / v.in_c, row = pixel / v.in_w;
        const int64_t image = row / v.in_h;
        const int64_t from = (image * old.in_h + row % v.in_h + 1) * old.in_w + pixel % v.in_w + 2;
        ASSERT_EQ(cut.x.BitsAt(i), c.x.BitsAt(from * v.in_c + i % v.in_c)) << i;
      }
      if (op == Op::kGlobalAvgPool) {  // the mean is over all that is left
        ASSERT_EQ(Validate(cut), "");
        const Window none = Crop(c, old.in_h, 0, 0, old.in_w).window;
        ASSERT_EQ(none.kernel_h, 1);
        ASSERT_EQ(none.kernel_w, 1);
      } else {
        ASSERT_EQ(v.kernel_h, old.kernel_h);
        ASSERT_EQ(v.kernel_w, old.kernel_w);
      }
      ++cropped;
    }
    EXPECT_GT(cropped, 10) << Name(op);
  }
}

TEST(Pixel, IsTheSameAloneAsInItsImage) {
  int64_t pixels = 0, outside = 0, overhanging = 0;
  for (Op op : AllOps()) {
    if (!HasWindow(op)) continue;
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.M == 0 || c.N == 0) continue;
      const Tensor whole = exact::Evaluate(c);
      for (int64_t m : {int64_t{0}, c.M / 2, c.M - 1}) {
        const Case pixel = Pixel(c, m);
        ASSERT_EQ(Validate(pixel), "") << Describe(c) << " pixel " << m;
        ASSERT_EQ(pixel.M, 1) << Describe(c) << " pixel " << m;
        const Tensor alone = exact::Evaluate(pixel);
        for (int64_t n = 0; n < c.N; ++n) {
          ASSERT_EQ(alone.BitsAt(n), whole.BitsAt(m * c.N + n))
              << Describe(c) << " pixel " << m << " channel " << n;
        }
        ++pixels;
        bool sees_image = false;
        for (const Tap& tap : TapsOf(c.window, m)) sees_image = sees_image || tap.x_row >= 0;
        outside += !sees_image;
        overhanging += pixel.K < c.K;
      }
    }
  }
  EXPECT_GT(pixels, 4000);
  EXPECT_GT(outside, 20);      // windows that lie wholly in the padding
  EXPECT_GT(overhanging, 20);  // windows of ceil mode
}

TEST(LeadingChannels, AreWhatChannelsAccepts) {
  int64_t several_groups = 0, part_of_a_group = 0;
  for (Op op : {Op::kConv2d, Op::kDepthwise}) {
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const Case c = gen::Draw(op, seed);
      if (c.N == 0) continue;
      const int64_t per_group = c.N / c.window.groups;
      for (int64_t most : {int64_t{1}, per_group + 1, c.N}) {
        const std::vector<int64_t> columns = LeadingChannels(c, most);
        const auto count = static_cast<int64_t>(columns.size());
        ASSERT_GE(count, 1);
        ASSERT_LE(count, most);
        ASSERT_EQ(Validate(Channels(c, columns)), "") << Describe(c);
        several_groups += count > per_group;
        part_of_a_group += count < per_group;
      }
    }
  }
  EXPECT_GT(several_groups, 100);
  EXPECT_GT(part_of_a_group, 100);
}

// With real 0 in the padding the corrected sums of a sweep are an affine function of the code.
TEST(Sweep, OfAConvolutionIsAffineInTheCodeWithTheStatedDirection) {
  int64_t padded = 0;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case c = gen::Draw(seed % 2 == 0 ? Op::kConv2d : Op::kDepthwise, seed);
    if (c.M == 0 || c.N == 0 || c.K == 0) continue;
    for (const Case& base : {sweep::OneRow(c), Pixel(c, 0)}) {
      const Case expanded = sweep::Expand(base, {10, 11, 20});
      ASSERT_EQ(Validate(expanded), "") << Describe(c);
      const std::vector<__int128> sums = exact::CorrectedSums(expanded);
      for (int64_t n = 0; n < c.N; ++n) {
        const auto at = [&](int64_t row) { return sums[static_cast<size_t>(row * c.N + n)]; };
        const __int128 slope = at(1) - at(0);
        ASSERT_TRUE(at(2) - at(0) == 10 * slope) << Describe(c);
        ASSERT_EQ(sweep::Direction(base, n), slope > 0 ? 1 : slope < 0 ? -1 : 0) << Describe(c);
      }
      for (const Tap& tap : TapsOf(base.window, 0)) padded += tap.x_row < 0;
    }
  }
  EXPECT_GT(padded, 100);
}

}  // namespace
}  // namespace qualm::slice
