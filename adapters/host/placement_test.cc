// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a call lie, and what a call has done to the memory around them.
#include "adapters/host/placement.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace qualm {
namespace {

using Slot = Placement::Slot;
using Kind = Placement::Damage::Kind;

Case Of(Op op) {
  Case c;
  c.op = op;
  c.M = 2;
  c.N = 3;
  switch (op) {
    case Op::kLinear:
      c.K = 4;
      c.x = Tensor(DType::kU8, {2, 4});
      c.w = Tensor(DType::kS8, {3, 4});
      break;
    case Op::kConv2d:
      c.window.batch = 1;
      c.window.in_h = 2;
      c.window.in_w = 3;
      c.window.in_c = 2;
      DeriveSizes(&c);
      c.x = Tensor(DType::kU8, {1, 2, 3, 2});
      c.w = Tensor(DType::kS8, {3, 1, 1, 2});
      break;
    default:
      c.x = Tensor(DType::kU8, {2, 3});
      if (HasTwoInputs(op)) c.w = Tensor(DType::kU8, {2, 3});
      break;
  }
  for (int64_t i = 0; i < c.x.size(); ++i) c.x.SetInt(i, static_cast<int32_t>(1 + i));
  for (int64_t i = 0; i < c.w.size(); ++i) c.w.SetInt(i, static_cast<int32_t>(101 + i));
  EXPECT_EQ(Validate(c), "");
  return c;
}

TEST(WhyNotLaid, NamesWhatTheCaseLacks) {
  const Case linear = Of(Op::kLinear), conv = Of(Op::kConv2d), add = Of(Op::kAdd),
             rescale = Of(Op::kRescale);
  Case equal = add;
  equal.w = equal.x;
  struct Row {
    const Case& c;
    RunContext context;
    std::string why;
  };
  Case packed = linear;
  packed.w = Tensor(DType::kS4, linear.w.shape());
  const std::string no_weights = "has no weights", no_images = "has no images of dense pixels",
                    no_second = "has no second operand";
  for (const Row& row :
       {Row{linear, {}, ""},
        {linear, {.w_row_gap = 1}, ""},
        {packed, {.x_row_gap = 1}, ""},
        {packed, {.w_row_gap = 1}, "has elements of less than a byte, whose rows are dense"},
        {add, {.w_row_gap = 1}, no_weights},
        {conv, {.x_line_gap = 1}, ""},
        {conv, {.x_row_gap = 1, .x_line_gap = 1}, no_images},
        {linear, {.x_line_gap = 1}, no_images},
        {add, {.over_w = true}, ""},
        {rescale, {.over_w = true}, no_second},
        {rescale, {.shared_inputs = true}, no_second},
        {rescale, {.in_place = true}, ""},
        {add, {.in_place = true, .over_w = true}, "the output lies over the first operand"},
        {equal, {.over_w = true, .shared_inputs = true}, "the output lies over both operands"},
        {equal, {.shared_inputs = true}, ""},
        {equal, {.in_place = true, .shared_inputs = true}, ""},
        {add, {.shared_inputs = true}, "the operands are not equal"}}) {
    EXPECT_EQ(WhyNotLaid(row.c, row.context), row.why) << Describe(row.c);
  }
}

constexpr int64_t kFar = int64_t{1} << 31;

// The contexts in which an operation is laid.
std::vector<std::pair<Case, RunContext>> Layouts() {
  const Case linear = Of(Op::kLinear), conv = Of(Op::kConv2d), add = Of(Op::kAdd);
  Case equal = add;
  equal.w = equal.x;
  return {{linear, {}},
          {linear, {.end_at_guard = false, .poison = 0x5A}},
          {linear, {.x_row_gap = 5, .y_row_gap = 7}},
          {linear, {.w_row_gap = 3}},
          {linear, {.x_row_gap = kFar, .y_row_gap = kFar}},
          {linear, {.w_row_gap = kFar}},
          {conv, {.x_row_gap = 5}},
          {add, {.x_row_gap = 5, .y_row_gap = 7}},
          {add, {.x_row_gap = kFar}},
          {add, {.x_row_gap = 5, .in_place = true}},
          {add, {.x_row_gap = 5, .over_w = true}},
          {equal, {.shared_inputs = true}}};
}

TEST(Placement, LaysTheTensorsOfACase) {
  Placement placement;
  for (const auto& [c, context] : Layouts()) {
    SCOPED_TRACE(Describe(c) + " " + std::to_string(context.x_row_gap));
    placement.Lay(c, context, {.read_slack_bytes = 3, .alignment_bytes = 16});
    EXPECT_EQ(Gather(placement.x()), c.x);
    EXPECT_EQ(Gather(placement.w()), c.w);
    EXPECT_EQ(placement.x().gap, context.x_row_gap);
    EXPECT_EQ(placement.w().gap, HasWeights(c.op) ? context.w_row_gap : context.x_row_gap);
    EXPECT_EQ(placement.y().shape, c.output_shape());
    EXPECT_EQ(placement.y().dtype, c.out_dtype);
    for (const LaidTensor* laid : {&placement.x(), &placement.w()}) {
      if (!laid->is_far()) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(laid->data) % 16, 0u);
      }
    }
    EXPECT_EQ(placement.w().data == placement.x().data, context.shared_inputs);
    EXPECT_EQ(placement.y().data == placement.x().data, context.in_place);
    EXPECT_EQ(placement.y().data == placement.w().data, context.over_w);
    const bool over = context.in_place || context.over_w;
    EXPECT_EQ(placement.y().gap, over ? context.x_row_gap : context.y_row_gap);
    if (!over) {
      const Tensor y = Gather(placement.y());
      for (const uint8_t byte : y.bytes()) EXPECT_EQ(byte, context.poison);
    }
    EXPECT_FALSE(placement.Inspect());
  }
  EXPECT_EQ(placement.buffer(Placement::kBias), nullptr) << "no list was laid";
}

// Lines of an image lie apart, its pixels do not.
TEST(Placement, LaysLinesOfAnImageApart) {
  const Case c = Of(Op::kConv2d);
  Placement placement;
  placement.Lay(c, {.x_line_gap = 4}, {});
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(placement.x().data[i / 6 * 10 + i % 6], 1 + i) << i;
  }
  EXPECT_FALSE(placement.Inspect());
  placement.x().data[7] ^= 1;
  ASSERT_TRUE(placement.Inspect());
  EXPECT_EQ(placement.Inspect()->kind, Kind::kWroteBetweenRows);
}

TEST(Placement, LaysListsAndAccumulators) {
  const Case c = Of(Op::kLinear);
  Placement placement;
  placement.Lay(c, {}, {});
  std::vector<int32_t> bias{7, 8, 9};
  const int32_t* const laid = placement.LayList(Placement::kBiasI32, bias);
  EXPECT_EQ(std::vector<int32_t>(laid, laid + 3), bias);
  placement.LayAcc();
  EXPECT_EQ(placement.acc().shape, c.output_shape());
  EXPECT_EQ(placement.acc().dtype, DType::kS32);
  EXPECT_EQ(placement.acc().gap, 0);
  EXPECT_EQ(placement.buffer(Placement::kAcc)->size(), 24u);
  EXPECT_FALSE(placement.Inspect());
  placement.acc().data[-1] ^= 1;
  ASSERT_TRUE(placement.Inspect());
  EXPECT_EQ(placement.Inspect()->slot, Placement::kAcc);
  placement.Lay(c, {}, {});
  bias[0] = 10;
  EXPECT_FALSE(placement.Inspect()) << "a new call, without the list";
  EXPECT_EQ(placement.buffer(Placement::kAcc), nullptr);
  const int32_t* const again = placement.LayList(Placement::kBiasI32, bias);
  const_cast<int32_t*>(again)[1] = 0;
  ASSERT_TRUE(placement.Inspect());
  EXPECT_EQ(placement.Inspect()->kind, Kind::kModifiedInput);
  EXPECT_EQ(placement.Inspect()->slot, Placement::kBiasI32);
  EXPECT_EQ(placement.Inspect()->byte, 4u);
}

// One byte of each kind, in each layout: the damage names the kind and the buffer.
TEST(Placement, NamesTheDamageOfACall) {
  Placement placement;
  for (const auto& [c, context] : Layouts()) {
    SCOPED_TRACE(Describe(c) + " " + std::to_string(context.x_row_gap));
    const auto damaged = [&](Slot slot, Kind kind, auto at, size_t byte = 0) {
      placement.Lay(c, context, {});
      at() ^= 1;
      const auto damage = placement.Inspect();
      ASSERT_TRUE(damage);
      EXPECT_EQ(damage->slot, slot);
      EXPECT_EQ(damage->kind, kind);
      EXPECT_EQ(damage->byte, byte);
      EXPECT_EQ(damage->status(), kind == Kind::kModifiedInput ? RunStatus::kModifiedInput
                                                               : RunStatus::kTouchedOutside);
    };
    const auto judge = [&](Slot slot, const LaidTensor& laid, bool is_output) {
      // The last byte of the second row; the first byte behind the first row, which is a gap; and
      // the byte in front, where no guard page is.
      const auto last = [&]() -> uint8_t& {
        return laid.data[laid.stride() + laid.rows.columns - 1];
      };
      if (is_output) {
        placement.Lay(c, context, {});
        last() ^= 1;
        EXPECT_FALSE(placement.Inspect()) << "an output is written";
      } else {
        const int64_t stride = laid.is_far() ? laid.rows.columns : laid.stride();
        damaged(slot, Kind::kModifiedInput, last,
                static_cast<size_t>(stride + laid.rows.columns - 1));
        damaged(slot, Kind::kModifiedInput, [&]() -> uint8_t& { return laid.data[0]; });
      }
      if (laid.gap != 0) {
        damaged(slot, laid.is_far() ? Kind::kWroteOutside : Kind::kWroteBetweenRows,
                [&]() -> uint8_t& { return laid.data[laid.rows.columns]; });
      }
      if (context.end_at_guard && !laid.is_far()) {
        damaged(slot, Kind::kWroteOutside, [&]() -> uint8_t& { return laid.data[-1]; });
      }
    };
    placement.Lay(c, context, {});
    judge(Placement::kX, placement.x(), context.in_place);
    if (!context.shared_inputs) judge(Placement::kW, placement.w(), context.over_w);
    if (!context.in_place && !context.over_w) judge(Placement::kY, placement.y(), true);
  }
}

}  // namespace
}  // namespace qualm
