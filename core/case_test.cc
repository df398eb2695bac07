// SPDX-License-Identifier: Apache-2.0
#include "core/case.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>

namespace qualm {
namespace {

Case Linear() {
  Case c;
  c.op = Op::kLinear;
  c.M = 2, c.N = 3, c.K = 4;
  c.x = Tensor(DType::kU8, {2, 4});
  c.w = Tensor(DType::kS8, {3, 4});
  return c;
}

Case Quantize() {
  Case c;
  c.op = Op::kQuantize;
  c.M = 2, c.N = 3;
  c.x = Tensor(DType::kF32, {2, 3});
  return c;
}

Case Dequantize() {
  Case c;
  c.op = Op::kDequantize;
  c.M = 2, c.N = 3;
  c.x = Tensor(DType::kS8, {2, 3});
  c.out_dtype = DType::kF32;
  c.out_min = INT32_MIN, c.out_max = INT32_MAX;
  return c;
}

Case Requantize() {
  Case c;
  c.op = Op::kRequantize;
  c.M = 2, c.N = 3;
  c.x = Tensor(DType::kS32, {2, 3});
  c.multiplier = {0.5f};
  return c;
}

TEST(Validate, AcceptsTheWholeDomain) {
  EXPECT_EQ(Validate(Linear()), "");
  EXPECT_EQ(Validate(Quantize()), "");
  EXPECT_EQ(Validate(Dequantize()), "");
  EXPECT_EQ(Validate(Requantize()), "");

  Case c = Linear();
  c.x_q = {{std::numeric_limits<float>::denorm_min()}, {INT32_MIN}};
  c.w_q = {{1.0f, 2.0f, std::numeric_limits<float>::max()}, {1, -1, INT32_MAX}};
  c.per_channel = true;
  c.bias = {{0.0f, -1e38f, 1e-45f}};
  c.out_min = c.out_max = 9;
  c.relu = true;
  c.expected = Tensor(DType::kU8, {2, 3});
  EXPECT_EQ(Validate(c), "");

  Case empty = Linear();
  empty.M = empty.N = empty.K = 0;
  empty.x = Tensor(DType::kU8, {0, 0});
  empty.w = Tensor(DType::kS8, {0, 0});
  EXPECT_EQ(Validate(empty), "");

  Case quotient = Requantize();
  quotient.multiplier.clear();
  quotient.per_channel = true;
  quotient.w_q = {{1.0f, 2.0f, 3.0f}, {0, 0, 0}};
  EXPECT_EQ(Validate(quotient), "");
}

TEST(Validate, NamesTheFieldOfEachMistake) {
  const float kInf = std::numeric_limits<float>::infinity();
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  struct Mistake {
    std::string field;
    Case base;
    std::function<void(Case&)> make;
  };
  const std::vector<Mistake> mistakes = {
      {"M", Linear(), [](Case& c) { c.M = -1; }},
      {"N", Linear(), [](Case& c) { c.N = -1; }},
      {"K", Linear(), [](Case& c) { c.K = -1; }},
      {"K", Quantize(), [](Case& c) { c.K = 1; }},
      {"w", Quantize(), [](Case& c) { c.w = Tensor(DType::kS8, {1}); }},
      {"bias", Quantize(), [](Case& c) { c.bias = {{1.0f, 1.0f, 1.0f}}; }},
      {"bias_i32", Requantize(), [](Case& c) { c.bias_i32 = {{1, 1, 1}}; }},
      {"multiplier", Linear(), [](Case& c) { c.multiplier = {1.0f}; }},
      {"multiplier", Requantize(), [=](Case& c) { c.multiplier = {kNan}; }},
      {"multiplier", Requantize(), [](Case& c) { c.multiplier = {1.0f, 1.0f, 1.0f}; }},
      {"multiplier", Requantize(), [](Case& c) { c.per_channel = true; }},
      {"x", Linear(), [](Case& c) { c.x = Tensor(DType::kU8, {4, 2}); }},
      {"w", Linear(), [](Case& c) { c.w = Tensor(DType::kS8, {12}); }},
      {"x_dtype", Linear(), [](Case& c) { c.x = Tensor(DType::kS32, {2, 4}); }},
      {"w_dtype", Linear(), [](Case& c) { c.w = Tensor(DType::kF32, {3, 4}); }},
      {"x_dtype", Quantize(), [](Case& c) { c.x = Tensor(DType::kU8, {2, 3}); }},
      {"out_dtype", Quantize(), [](Case& c) { c.out_dtype = DType::kS32; }},
      {"out_dtype", Dequantize(), [](Case& c) { c.out_dtype = DType::kU8; }},
      {"relu", Dequantize(), [](Case& c) { c.relu = true; }},
      {"x_scale", Linear(), [](Case& c) { c.x_q.scale = {0.0f}; }},
      {"x_scale", Linear(), [](Case& c) { c.x_q.scale = {-1.0f}; }},
      {"x_scale", Linear(), [](Case& c) { c.x_q.scale = {}; }},
      {"x_zp", Linear(), [](Case& c) { c.x_q.zero_point = {1, 2}; }},
      {"w_scale", Linear(), [=](Case& c) { c.w_q.scale = {kInf}; }},
      {"w_scale", Linear(), [](Case& c) { c.per_channel = true; }},
      {"w_zp", Linear(),
       [](Case& c) {
         c.per_channel = true;
         c.w_q.scale = {1.0f, 1.0f, 1.0f};
       }},
      {"out_scale", Linear(), [=](Case& c) { c.out_q.scale = {kNan}; }},
      {"out_scale", Requantize(), [](Case& c) { c.out_q.scale = {-0.0f}; }},
      {"x_scale", Dequantize(), [](Case& c) { c.x_q.scale = {1.0f, 1.0f, 1.0f}; }},
      {"bias_i32", Linear(),
       [](Case& c) {
         c.bias = {{1.0f, 1.0f, 1.0f}};
         c.bias_i32 = {{1, 1, 1}};
       }},
      {"bias_i32", Linear(), [](Case& c) { c.bias_i32 = {{1}}; }},
      {"bias", Linear(), [](Case& c) { c.bias = {{1.0f}}; }},
      {"bias", Linear(), [=](Case& c) { c.bias = {{1.0f, kInf, 1.0f}}; }},
      {"bias", Linear(),
       [](Case& c) {
         c.bias = {{1.0f, 1.0f, 1.0f}};
         c.out_dtype = DType::kS32;
       }},
      {"out_min", Linear(), [](Case& c) { c.out_min = -1; }},
      {"out_max", Linear(), [](Case& c) { c.out_max = 256; }},
      {"out_min", Linear(), [](Case& c) { c.out_min = 10, c.out_max = 9; }},
      {"out_min", Dequantize(), [](Case& c) { c.out_min = 0; }},
      {"expected", Linear(), [](Case& c) { c.expected = Tensor(DType::kU8, {3, 2}); }},
      {"expected", Linear(), [](Case& c) { c.expected = Tensor(DType::kS8, {2, 3}); }},
      {"observed", Linear(), [](Case& c) { c.observed = Observed{"", Tensor(DType::kU8, {6})}; }},
  };
  for (const Mistake& mistake : mistakes) {
    Case c = mistake.base;
    ASSERT_EQ(Validate(c), "");
    mistake.make(c);
    const std::string error = Validate(c);
    EXPECT_TRUE(error.starts_with(mistake.field + ": "))
        << "got '" << error << "', wanted " << mistake.field << " for " << Describe(c);
  }
}

TEST(Case, LowerBoundFollowsRelu) {
  Case c = Linear();
  c.out_min = 3;
  c.out_q.zero_point = {7};
  EXPECT_EQ(LowerBound(c), 3);
  c.relu = true;
  EXPECT_EQ(LowerBound(c), 7);
  c.out_q.zero_point = {300};
  EXPECT_EQ(LowerBound(c), 300);
  c.out_q.zero_point = {-9};
  EXPECT_EQ(LowerBound(c), 3);
  c.out_dtype = DType::kS32;
  c.out_min = -5;
  c.out_q.zero_point = {7};
  EXPECT_EQ(LowerBound(c), 0);
}

TEST(Validate, RequantizationModesNeedAnAccumulatorAndCodes) {
  for (const Requant requant : {Requant::kFloat32, Requant::kFixedQ31, Requant::kFixedRndnu}) {
    for (Case c : {Linear(), Requantize()}) {
      c.requant = requant;
      EXPECT_EQ(Validate(c), "");
    }
    Case c = Quantize();
    c.requant = requant;
    EXPECT_EQ(Validate(c), "requant: does not belong to op quantize, expected none");
    c = Linear();
    c.requant = requant;
    c.bias_i32 = {{1, 2, 3}};
    EXPECT_EQ(Validate(c), "");
    c.bias_i32.reset();
    c.bias = {{1, 2, 3}};
    EXPECT_EQ(Validate(c), "requant: takes bias_i32, not a float bias, unless exact");
    c.bias.reset();
    c.out_dtype = DType::kS32;
    c.out_min = INT32_MIN, c.out_max = INT32_MAX;
    EXPECT_EQ(Validate(c), "requant: only outputs of codes are requantized");
    EXPECT_EQ(Parse<Requant>(Name(requant)), requant);
  }
  EXPECT_EQ(Parse<Requant>("fp32"), std::nullopt);
}

// Changes a value of any type that a field has.
void Change(Op& op) { op = op == Op::kLinear ? Op::kAdd : Op::kLinear; }
void Change(bool& flag) { flag = !flag; }
void Change(DType& dtype) { dtype = dtype == DType::kU8 ? DType::kS8 : DType::kU8; }
void Change(Tensor& tensor) { tensor = Tensor(DType::kS8, {tensor.size() + 1}); }
void Change(QParams& q) { q.zero_point[0] += 1; }
template <class T>
  requires std::is_arithmetic_v<T>
void Change(T& number) {
  number += 1;
}
template <NamedEnum E>
void Change(E& value) {
  value = static_cast<E>((static_cast<size_t>(value) + 1) % CountOf<E>());
}
template <class T>
void Change(std::vector<T>& list) {
  list.push_back(T{1});
}
template <class T>
void Change(std::optional<std::vector<T>>& list) {
  list = std::vector<T>{};
}

TEST(Fields, EachOneAloneMakesAnotherProblem) {
  const Case base = Linear();
  int count = 0;
  ForEachField(base, [&](const Field& field, const auto& /*value*/) {
    Case changed = base;
    int at = 0;
    ForEachField(changed, [&](const Field& /*field*/, auto& value) {
      if (at++ == count) Change(value);
    });
    ++count;
    EXPECT_FALSE(changed == base) << field.name;
    EXPECT_NE(ProblemKey(changed), ProblemKey(base)) << field.name;
  });
  EXPECT_GE(count, 46);  // more with each new field
  Case with_remarks = base;
  with_remarks.note = "not part of the problem";
  EXPECT_EQ(ProblemKey(with_remarks), ProblemKey(base));
}

// A parameter that an operation does not have is refused by name.
TEST(Fields, ParametersBelongToTheOperationsWhoseRowsSaySo) {
  int refused = 0;
  for (const Op op : AllOps()) {
    Case base;
    base.op = op;
    ForEachParameter(base, [&](const Field& field, auto& value) {
      if (RowOf(op).*field.has) return;
      const auto before = value;
      Change(value);
      const std::string error = Validate(base);
      EXPECT_TRUE(error.starts_with(std::string(field.name) + ": does not belong to op ")) << error;
      value = before;
      ++refused;
    });
  }
  EXPECT_GT(refused, 100);
}

TEST(Case, ProblemLeavesRemarksBehind) {
  Case c = Linear();
  c.property = "p", c.contract = "exact", c.note = "n";
  c.expected = Tensor(DType::kU8, {2, 3});
  c.observed = Observed{"me", Tensor(DType::kU8, {2, 3})};
  EXPECT_TRUE(ProblemOf(c) == Linear());
}

// No parameter is forgotten in the line for people.
TEST(Case, DescribesEveryParameter) {
  int said = 0;
  for (const Op op : AllOps()) {
    Case c;
    c.op = op;
    const std::string usual = Describe(c);
    ForEachParameter(c, [&](const Field& field, auto& value) {
      if (!(RowOf(op).*field.has)) return;
      const auto before = value;
      Change(value);
      EXPECT_NE(Describe(c), usual) << field.name;
      value = before;
      ++said;
    });
    if (!RowOf(op).clamp) continue;
    c.out_max -= 1;
    EXPECT_EQ(Describe(c), usual + " clamp=0..254");
  }
  EXPECT_GT(said, 40);
}

TEST(Case, DescribesItself) {
  Case c = Linear();
  c.relu = true;
  c.bias = {{0.0f, 0.0f, 0.0f}};
  EXPECT_EQ(Describe(c), "linear M=2 N=3 K=4 u8*s8->u8 per-tensor bias relu");
  c.bias.reset();
  c.requant = Requant::kFixedRndnu;
  EXPECT_EQ(Describe(c), "linear M=2 N=3 K=4 u8*s8->u8 per-tensor relu fixed_rndnu");
  EXPECT_EQ(Describe(Quantize()), "quantize M=2 N=3 f32->u8 per-tensor");
  c = {};
  c.op = Op::kTable;
  c.function = Function::kLeakyRelu;
  c.negative_slope = 0.25f;
  EXPECT_EQ(Describe(c), "table M=0 N=0 u8->u8 per-tensor leaky_relu negative_slope=0x1p-2");
}

}  // namespace
}  // namespace qualm
