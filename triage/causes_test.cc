// SPDX-License-Identifier: Apache-2.0
// Which causes a case is asked about, what they are called, and where they act. What a kernel with
// each of them answers stands in corpus/causes (cause_cases_test.cc).
#include "triage/causes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/tensor.h"
#include "oracles/exact/exact.h"
#include "properties/gen/gen.h"
#include "triage/cause_families.h"

namespace qualm::triage {
namespace {

using Values = std::vector<int32_t>;
using Reals = std::vector<float>;

constexpr DType kU8 = DType::kU8;
constexpr DType kS8 = DType::kS8;

Tensor Codes(DType dtype, std::vector<int64_t> shape, const Values& values) {
  Tensor tensor(dtype, std::move(shape));
  EXPECT_EQ(tensor.size(), std::ssize(values));
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, values[static_cast<size_t>(i)]);
  return tensor;
}

Case Checked(Case c) {
  EXPECT_EQ(Validate(c), "");
  return c;
}

// A linear layer without parameters, whose outputs are the sums themselves.
Case Layer(DType x_dtype, const Values& x, DType w_dtype, const Values& w, int64_t rows = 1) {
  Case c;
  c.M = rows;
  c.K = std::ssize(x) / rows;
  c.N = c.K == 0 ? 1 : std::ssize(w) / c.K;
  c.x = Codes(x_dtype, {c.M, c.K}, x);
  c.w = Codes(w_dtype, {c.N, c.K}, w);
  c.out_dtype = DType::kS32;
  OpenClamp(&c);
  return Checked(c);
}

// The case with codes for outputs.
Case ToCodes(Case c, DType dtype, float scale = 1.0f, int32_t zero_point = 0) {
  c.out_dtype = dtype;
  c.out_q = {{scale}, {zero_point}};
  OpenClamp(&c);
  return Checked(c);
}

Case ToFloats(Case c) {
  c.out_dtype = DType::kF32;
  c.out_min = 0, c.out_max = 255;
  OpenClamp(&c);
  return Checked(c);
}

// An operation on elements.
Case Elements(Op op, DType dtype, const Values& a, const Values& b = {}, int64_t rows = 1) {
  const DType out = RowOf(op).out_types.contains(kS8) ? kS8 : RowOf(op).out_types.front();
  Case c = CaseOver(op, Codes(dtype, {rows, std::ssize(a) / rows}, a), out);
  if (HasTwoInputs(op)) c.w = Codes(dtype, {rows, std::ssize(b) / rows}, b);
  if (op == Op::kConcat) c.N += std::ssize(b) / rows;
  if (op == Op::kSoftmax) c.out_dtype = dtype, c.out_q = FixedOutQParams(dtype);
  OpenClamp(&c);
  return Checked(c);
}

Case Quantized(const Reals& x, float scale = 1.0f, int32_t zero_point = 0, DType dtype = kS8) {
  Case c = CaseOver(Op::kQuantize, Tensor::Of<float>({1, std::ssize(x)}, std::span<const float>(x)),
                    dtype);
  c.out_q = {{scale}, {zero_point}};
  return Checked(c);
}

// A pool, or a convolution of one output channel for each `in_c` weights of a tap. Sums go out as
// they are, averages as s8.
Case Windowed(Op op, Window window, DType dtype, const Values& x, const Values& w = {}) {
  Case c;
  c.op = op;
  c.window = window;
  const int64_t taps = window.kernel_h * window.kernel_w;
  const int64_t channels = window.groups == 0 ? 0 : window.in_c / window.groups;
  if (IsConv(op)) c.N = std::ssize(w) / (taps * channels);
  DeriveSizes(&c);
  c.x = Codes(dtype, {window.batch, window.in_h, window.in_w, window.in_c}, x);
  if (IsConv(op)) c.w = Codes(kS8, {c.N, window.kernel_h, window.kernel_w, channels}, w);
  c.out_dtype = IsConv(op) ? DType::kS32 : op == Op::kMaxPool ? dtype : kS8;
  OpenClamp(&c);
  return Checked(c);
}

// A layer over floats that chooses the scales of its rows.
Case Dynamic(const Reals& x, const Values& w, int64_t rows = 1) {
  Case c;
  c.op = Op::kDynamicLinear;
  c.M = rows;
  c.K = std::ssize(x) / rows;
  c.N = std::ssize(w) / c.K;
  c.x = Tensor::Of<float>({c.M, c.K}, std::span<const float>(x));
  c.w = Codes(kS8, {c.N, c.K}, w);
  return ToFloats(c);
}

// The answer of a subject with these causes; nullopt if one of them is not asked about the case.
std::optional<Tensor> AnswerOf(const Case& c, const std::vector<std::string_view>& names,
                               const Convention* model = nullptr) {
  EXPECT_EQ(Validate(c), "");
  std::vector<const Cause*> causes;
  for (const std::string_view name : names) causes.push_back(&CauseNamed(name));
  return Counterfactual(c, causes, model);
}

std::optional<Values> Answer(const Case& c, std::string_view name,
                             const Convention* model = nullptr) {
  const std::optional<Tensor> y = AnswerOf(c, {name}, model);
  if (!y) return std::nullopt;
  Values values;
  for (int64_t i = 0; i < y->size(); ++i) values.push_back(y->IntAt(i));
  return values;
}

bool IsAsked(const Case& c, std::string_view name) { return AnswerOf(c, {name}).has_value(); }

bool Exists(std::string_view name) {
  return std::ranges::find(AllCauses(), name, &Cause::name) != AllCauses().end();
}

// The scale and zero point that observers find for these values.
Case Observing(const Reals& values, Observer::Kind kind = Observer::Kind::kMinMax,
               int64_t batches = 1) {
  Case c;
  c.op = Op::kChooseQParams;
  c.M = 1;
  c.N = std::ssize(values) / batches;
  c.x = Tensor::Of<float>({batches, 1, c.N}, std::span<const float>(values));
  c.observer.kind = kind;
  return ToFloats(c);
}

Values Ones(int64_t count) { return Values(static_cast<size_t>(count), 1); }

// `count` codes: first, first + 1, ...
Values From(int32_t first, int64_t count) {
  Values values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

// A layer of one output with both zero points.
Case WithZeroPoints(const Values& x, const Values& w, int32_t zx, int32_t zw, DType x_dtype = kU8,
                    DType w_dtype = kS8) {
  Case c = Layer(x_dtype, x, w_dtype, w);
  c.x_q.zero_point = {zx};
  c.w_q.zero_point = {zw};
  return c;
}

// ---- Which causes are asked.

// A small case of each operation, of two rows, in which most steps have something to do.
Case PlainCase(Op op) {
  const OpRow& row = RowOf(op);
  const Values four{1, 2, 3, 4}, fourteen{1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7};
  Case c;
  if (HasWindow(op)) {
    Window v{.batch = 2, .in_h = 1, .in_w = 3, .in_c = 2, .kernel_h = 1, .kernel_w = 3};
    if (row.depthwise) v.groups = 2;
    c = Windowed(op, v, kS8, Values(12, 7), Values(row.depthwise ? 6 : 12, 1));
  } else if (op == Op::kChooseQParams) {
    c = Observing({1, 2}, Observer::Kind::kMovingAverage);
  } else if (op == Op::kQuantize || op == Op::kRequantize) {
    Tensor x = op == Op::kQuantize ? Tensor(DType::kF32, {2, 2}) : Tensor(DType::kS32, {2, 2});
    c = CaseOver(op, std::move(x), kS8);
  } else if (op == Op::kCast) {
    c = CaseOver(op, Tensor(DType::kF32, {2, 2}), DType::kF16);
  } else if (row.dynamic) {
    c = Dynamic(Reals(14, 1), fourteen, 2);
    c.x_gran = Granularity::kRow;
  } else if (HasSums(op)) {
    c = Layer(kS8, fourteen, kS8, fourteen, 2);
  } else {
    c = Elements(op, kS8, four, HasTwoInputs(op) ? four : Values{}, 2);
  }
  if (HasSums(op)) c = ToCodes(c, kS8);
  if (row.bias) c.bias = Reals(static_cast<size_t>(c.N), 1);
  return Checked(c);
}

std::string OpsAskedAbout(const Cause& cause) {
  std::string ops;
  for (const Op op : AllOps()) {
    if (!cause.applies(PlainCase(op))) continue;
    ops += (ops.empty() ? "" : " ") + std::string(Name(op));
  }
  return ops;
}

// A cause that is asked about an operation without its step costs time and may fit an answer by
// chance; one that is not asked is never named.
TEST(CausesAsked, AreThoseOfTheStepsOfAnOperation) {
  struct Group {
    const char* ops;
    std::vector<const char*> names;
  };
  const std::vector<Group> groups{
      {"linear conv2d depthwise dynamic_linear",
       {"pair saturation", "16-bit accumulation", "int16 pair wrap", "int16 wrap of taps",
        "weight zero point taken from the input", "padded K in K*zx*zw", "row sum of row 0",
        "float32 zero-point term", "zero-point term negated in int32",
        "input sign in the products"}},
      {"mul linear conv2d depthwise dynamic_linear", {"int32 wrap"}},
      {"mul", {"int16 product"}},
      {"linear dynamic_linear",
       {"last product dropped", "product tail of 4 dropped", "product tail of 8 dropped",
        "last term dropped", "term tail of 4 dropped", "term tail of 8 dropped",
        "product tail of 16 dropped", "product tail of 32 dropped", "term tail of 16 dropped",
        "term tail of 32 dropped"}},
      {"", {"padding not in the divisor"}},
      {"linear conv2d depthwise", {"bias wraps", "bias conversion overflow", "int32 bias"}},
      {"avg_pool global_avg_pool", {"16-bit sum"}},
      {"", {"count in 8 bits"}},
      {"max_pool", {"maximum from -127", "padding wins"}},
      {"conv2d depthwise max_pool avg_pool", {"padding of code 0"}},
      {"avg_pool", {"unclipped divisor", "padding in the divisor", "kernel as divisor"}},
      {"conv2d depthwise max_pool avg_pool global_avg_pool",
       {"padding on other side", "padding of other axis", "strides swapped", "dilations swapped",
        "dilation ignored"}},
      {"conv2d depthwise", {"kernel width bounded by height"}},
      {"depthwise", {"group modulo", "channel within group"}},
      {"softmax", {"maximum not subtracted", "maximum from 0", "int8 distance"}},
      {"quantize", {"denormal inputs are zero"}},
      {"choose_qparams", {"no scale floor", "double average"}},
      {"choose_qparams dynamic_linear", {"range without zero", "reduce_range added"}},
      {"dynamic_linear",
       {"one choice for all rows", "a choice for each row", "choice of row 0", "scale of row 0",
        "zero point of row 0", "rule of observers", "rule of ATen", "rule of ONNX"}},
      {"quantize dynamic_linear",
       {"NaN as lower bound", "x * fl(1/s)", "x * fl(1/s), NaN is 0", "fl(x / s)"}},
      {"dequantize", {"int8 difference"}},
      {"quantize dequantize dynamic_linear", {"denormals are zero"}},
      {"requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool concat",
       {"float64 multiplier", "float32 reciprocal"}},
      {"requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool concat "
       "dynamic_linear",
       {"float32 multiplier"}},
      {"quantize requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool "
       "concat dynamic_linear",
       {"conversion overflow", "zero point before rounding (float32)"}},
      {"quantize requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool "
       "concat table dynamic_linear",
       {"truncating narrow", "zero point before rounding", "half away from zero", "half up",
        "half down below zero", "half up below zero"}},
      {"quantize requantize rescale add sub mul linear conv2d depthwise avg_pool global_avg_pool "
       "concat table softmax dynamic_linear",
       {"truncation"}},
      {"quantize requantize rescale add sub mul linear conv2d depthwise max_pool avg_pool "
       "global_avg_pool concat table softmax",
       {"relu at code 0", "relu instead of out_min"}},
      {"requantize linear conv2d depthwise", {"float32 scale product"}},
      {"rescale add sub mul concat", {"left shift dropped"}},
      {"table", {"table index offset"}},
      {"concat", {"first operand for all"}},
      {"add sub mul concat", {"operands swapped", "sign of both operands"}},
      {"dequantize rescale add sub mul linear conv2d depthwise max_pool avg_pool global_avg_pool "
       "concat table softmax",
       {"input sign"}},
      {"add sub mul linear conv2d depthwise concat dynamic_linear", {"weight sign"}}};
  for (const Group& group : groups) {
    for (const char* const name : group.names)
      EXPECT_EQ(OpsAskedAbout(CauseNamed(name)), group.ops) << name;
  }
}

// Sums and floats are not rounded to codes, and a requantization mode has steps of its own.
TEST(CausesAsked, DependOnTheOutput) {
  const std::vector<const char*> of_codes{"half up",
                                          "half away from zero",
                                          "truncation",
                                          "zero point before rounding",
                                          "zero point before rounding (float32)",
                                          "conversion overflow",
                                          "truncating narrow",
                                          "float64 multiplier",
                                          "float32 reciprocal"};
  const Case sums = Layer(kU8, {1}, kS8, {1});
  const Case floats = ToFloats(sums), codes = ToCodes(sums, kU8);
  Case mode = codes;
  mode.requant = Requant::kFixedQ31;
  for (const char* const name : of_codes) {
    EXPECT_TRUE(IsAsked(codes, name)) << name;
    EXPECT_FALSE(IsAsked(sums, name)) << name;
    EXPECT_FALSE(IsAsked(floats, name)) << name;
    EXPECT_FALSE(IsAsked(mode, name)) << name;
  }
  EXPECT_TRUE(IsAsked(floats, "float32 multiplier"));
  EXPECT_FALSE(IsAsked(sums, "float32 multiplier"));
  EXPECT_FALSE(IsAsked(mode, "float32 multiplier"));
  EXPECT_FALSE(IsAsked(Elements(Op::kDequantize, kU8, {1}), "float32 multiplier"));
  EXPECT_FALSE(IsAsked(Elements(Op::kDequantize, kU8, {1}), "float64, then float32"));
  EXPECT_TRUE(IsAsked(floats, "denormals are zero"));
  EXPECT_FALSE(IsAsked(sums, "denormals are zero"));
  EXPECT_FALSE(IsAsked(codes, "denormals are zero"));
  EXPECT_TRUE(CauseNamed("relu at code 0").applies(codes));
  EXPECT_FALSE(CauseNamed("relu at code 0").applies(floats));
  EXPECT_FALSE(CauseNamed("relu at code 0").applies(sums));
}

// One answer has one cause: where two rows of the table drop the same terms, one is looked for. All
// say what they do, or a tail of 8 would not explain 10 terms.
TEST(CauseOfTails, OneRowIsAskedForEachNumberOfTermsLeft) {
  const auto asked = [](int64_t terms) {
    const Case c = Layer(kU8, Values(static_cast<size_t>(terms), 1), kS8,
                         Values(static_cast<size_t>(terms), 1));
    std::vector<int64_t> left;
    for (const char* const name :
         {"last product dropped", "product tail of 4 dropped", "product tail of 8 dropped",
          "product tail of 16 dropped", "product tail of 32 dropped"}) {
      const std::optional<Values> y = Answer(c, name);
      left.push_back(y && CauseNamed(name).IsLookedFor(c) ? y->front() : -1);
    }
    return left;
  };
  using Left = std::vector<int64_t>;
  EXPECT_EQ(asked(1), (Left{0, -1, -1, -1, -1}));
  EXPECT_EQ(asked(2), (Left{1, 0, -1, -1, -1}));
  EXPECT_EQ(asked(4), (Left{3, -1, 0, -1, -1}));
  EXPECT_EQ(asked(5), (Left{4, -1, 0, -1, -1}));
  EXPECT_EQ(asked(9), (Left{8, -1, -1, 0, -1}));
  EXPECT_EQ(asked(10), (Left{9, 8, -1, 0, -1}));
  EXPECT_EQ(asked(31), (Left{30, 28, 24, 16, 0}));
  EXPECT_EQ(asked(32), (Left{31, -1, -1, -1, -1}));
  EXPECT_EQ(asked(50), (Left{49, 48, -1, -1, 32}));
  const Case ten = Layer(kU8, Ones(10), kS8, Ones(10));
  EXPECT_EQ(Answer(ten, "product tail of 8 dropped"), Values{8});
  EXPECT_EQ(Answer(ten, "product tail of 16 dropped"), Values{0});
}

TEST(FamilyOfChannels, AreAskedWhereChannelsDiffer) {
  for (const int64_t modulo : {1, 4, 8, 16, 32, 64, 128, 256}) {
    const auto layer = [](int64_t channels) {
      Case c = Layer(kU8, {1}, kS8, Ones(channels));
      c.per_channel = true;
      c.bias_i32 = From(1, channels);
      c.w_q = {Reals(static_cast<size_t>(channels), 1), From(1, channels)};
      return Checked(c);
    };
    for (const char* const what : {"bias", "weight zero point", "parameters"}) {
      const std::string name = fmt::format("{} of channel n % {}", what, modulo);
      EXPECT_FALSE(IsAsked(layer(modulo), name)) << name;
      EXPECT_TRUE(IsAsked(layer(modulo + 1), name)) << name;
    }
    EXPECT_EQ(Exists(fmt::format("scale of channel n % {}", modulo)), modulo == 4 || modulo > 16);
  }
  // Lists of one entry, equal entries, and no bias at all.
  const Case plain = Layer(kU8, {1}, kS8, Ones(10));
  Case equal = plain;
  equal.per_channel = true;
  equal.w_q = {Reals(10, 2), Values(10, 3)};
  equal.bias_i32 = Values(10, 4);
  for (const char* const what : {"bias", "weight zero point", "parameters", "scale"}) {
    for (const char* const source :
         {"channel n % 4", "the next channel", "the channel before", "the opposite channel"}) {
      const std::string name = fmt::format("{} of {}", what, source);
      EXPECT_FALSE(IsAsked(plain, name)) << name;
      EXPECT_FALSE(IsAsked(equal, name)) << name;
    }
  }
  EXPECT_FALSE(IsAsked(Layer(kU8, {1}, kS8, {1}), "parameters of the next channel"));
}

TEST(FamiliesAsked, AreThoseOfTheStepsOfAnOperation) {
  const Case linear = ToCodes(Layer(kU8, Ones(33), kS8, Ones(33)), kU8);
  const Case add = Elements(Op::kAdd, kU8, Ones(300), Ones(300));
  const Case dynamic = Dynamic(Reals(33, 1), Ones(33));
  // Long windows of many pixels and channels are no sums of products either. Nothing is computed.
  std::vector<Case> others{add};
  for (const DType dtype : {kU8, kS8}) {
    Case pool;
    pool.op = Op::kAvgPool;
    pool.M = pool.N = 300;
    pool.K = 70001;
    pool.x = pool.w = Tensor(dtype, {0});
    pool.window = {.batch = 1, .in_h = 2, .in_w = 3, .in_c = 1};
    pool.window.pad_left = pool.window.pad_right = pool.window.dilation_w = 2;
    others.push_back(pool);
    pool.K = 65536;
    others.push_back(pool);
  }
  for (const Cause& cause : CausesOfFamilies()) {
    const bool of_sums =
        (cause.stage == CauseStage::kTail || cause.stage == CauseStage::kAccumulate ||
         cause.stage == CauseStage::kOffset || cause.stage == CauseStage::kGeometry);
    for (const Case& c : others) EXPECT_FALSE(of_sums && cause.applies(c)) << cause.name;
  }
  const std::set<std::string_view> of_multipliers{
      "multiplier cut to 8 bits", "multiplier rounded to 8 bits", "rounded twice in fixed point"};
  for (const char* const name : {"floor", "ceiling", "half down", "half to the bound",
                                 "int16 that wraps", "multiplier cut to 8 bits",
                                 "multiplier rounded to 8 bits", "rounded twice in fixed point"}) {
    const Cause& cause = CauseNamed(name);
    EXPECT_TRUE(cause.applies(linear)) << name;
    EXPECT_TRUE(cause.applies(add)) << name;
    EXPECT_FALSE(cause.applies(dynamic)) << name;
    EXPECT_FALSE(cause.applies(ToFloats(linear))) << name;
    EXPECT_FALSE(cause.applies(Layer(kU8, {1}, kS8, {1}))) << name;
    EXPECT_EQ(cause.applies(Quantized({1})), !of_multipliers.contains(name)) << name;
    EXPECT_FALSE(cause.applies(Elements(Op::kTable, kS8, {1}))) << name;
    EXPECT_FALSE(cause.applies(Elements(Op::kSoftmax, kS8, {1}))) << name;
    Case mode = linear;
    mode.requant = Requant::kFloat32;
    EXPECT_FALSE(cause.applies(mode)) << name;
  }
  for (const char* const name :
       {"K*zx*zw ignored", "column-sum term twice", "float32 sum, in 8 lanes",
        "last block of 32 alone", "weights one code on"}) {
    EXPECT_TRUE(CauseNamed(name).applies(linear)) << name;
    EXPECT_TRUE(CauseNamed(name).applies(dynamic)) << name;
  }
}

// ---- Answers of cases that are too long for a file.

// 256 codes of -128 are the most that an int16 holds: -32768. One more wraps.
TEST(FamilyOfZeroPoints, SumsOfCodesInLanes) {
  const auto name = [](const char* sum, int lanes, int every) {
    return fmt::format("{} sum in {} int16 lanes that wrap{}", sum, lanes,
                       every == 0 ? "" : fmt::format(", emptied every {} additions", every));
  };
  for (const int lanes : {8, 16, 32}) {
    const auto all = static_cast<size_t>(lanes) * 257;
    const int32_t right = 128 * 257 * lanes;
    const Case columns = WithZeroPoints(Values(all, 0), Values(all, -128), 1, 0);
    const Case rows = WithZeroPoints(Values(all, -128), Values(all, 0), 0, 1, kS8);
    for (const int every : {0, 257}) {
      EXPECT_EQ(Answer(columns, name("column", lanes, every)), Values{right - 65536 * lanes});
      EXPECT_EQ(Answer(rows, name("row", lanes, every)), Values{right - 65536 * lanes});
    }
    EXPECT_EQ(Answer(columns, name("column", lanes, 256)), Values{right});
    EXPECT_EQ(Answer(rows, name("row", lanes, 256)), Values{right});
    // 129 codes of 255 are 32895, 256 of them 65280.
    const auto few = static_cast<size_t>(lanes) * 129;
    const Case u8 = WithZeroPoints(Values(few, 255), Values(few, 0), 0, 1);
    EXPECT_EQ(Answer(u8, name("row", lanes, 256)), Values{(65536 - 32895) * lanes});
    const Case full = WithZeroPoints(Values(few - static_cast<size_t>(lanes), 255),
                                     Values(few - static_cast<size_t>(lanes), 0), 0, 1);
    EXPECT_FALSE(IsAsked(full, name("row", lanes, 256))) << "no lane is full";
    EXPECT_FALSE(IsAsked(full, name("column", lanes, 0)));
  }
}

TEST(FamilyOfSums, OffsetsAndRowsThatWrap) {
  for (const int64_t modulo : {32768, 65536}) {
    // The last two codes are read from the first two, which are 5 and 7.
    Values codes = Ones(modulo + 2);
    codes[0] = 5, codes[1] = 7;
    const auto sum = static_cast<int32_t>(2 * (5 + 7) + modulo - 2);
    const Values ones = Ones(modulo + 2);
    EXPECT_EQ(Answer(Layer(kU8, ones, kS8, codes), fmt::format("weights offset modulo {}", modulo)),
              Values{sum});
    EXPECT_EQ(Answer(Layer(kU8, codes, kS8, ones), fmt::format("input offset modulo {}", modulo)),
              Values{sum});
    const Case fits = Layer(kU8, Ones(modulo), kS8, Ones(modulo));
    EXPECT_FALSE(IsAsked(fits, fmt::format("weights offset modulo {}", modulo)));
    EXPECT_FALSE(IsAsked(fits, fmt::format("input offset modulo {}", modulo)));
  }
  // Two rows: offsets count from the first.
  Values rows = Ones(40000);
  rows[0] = 9, rows[32767] = 3, rows[39999] = 4;
  EXPECT_EQ(Answer(Layer(kU8, Ones(20000), kS8, rows), "weights offset modulo 32768"),
            (Values{20008, 20000 + 2 + 8}));
  rows = Ones(40000);
  rows[0] = 9, rows[32767] = 3, rows[39999] = 4;
  const Case input = Layer(kU8, rows, kS8, Ones(20000), 2);
  EXPECT_EQ(Answer(input, "input offset modulo 32768"), (Values{20008, 20000 + 2 + 8}));
  EXPECT_FALSE(IsAsked(input, "weights offset modulo 32768"));
}

// ---- Names, sentences and stages.

// A sentence with a name in braces that no operation has words for ends the program.
TEST(CauseNames, CanBeWrittenForEveryOperation) {
  for (const std::span<const Cause> all : {AllCauses(), AllPlaces(), KnownArithmetic()}) {
    for (const Cause& cause : all) {
      for (const Op op : AllOps()) {
        EXPECT_NO_THROW(cause.NameFor(op)) << cause.name;
        EXPECT_NO_THROW(cause.SentenceFor(op)) << cause.sentence;
      }
    }
  }
}

TEST(CauseNames, HaveTheWordsOfTheOperation) {
  const Cause& ignored = CauseNamed("weight zero point ignored");
  EXPECT_EQ(ignored.NameFor(Op::kLinear), "weight zero point ignored");
  EXPECT_EQ(ignored.NameFor(Op::kRequantize), "weight zero point ignored");
  EXPECT_EQ(ignored.NameFor(Op::kConcat), "zero point of b ignored");
  EXPECT_EQ(ignored.SentenceFor(Op::kDynamicLinear), "ignores the weight zero point");
  EXPECT_EQ(ignored.SentenceFor(Op::kMul), "ignores the zero point of b");
  const Cause& sign = CauseNamed("input sign");
  EXPECT_EQ(sign.NameFor(Op::kRescale), "input sign");
  EXPECT_EQ(sign.NameFor(Op::kAdd), "sign of a");
  EXPECT_EQ(sign.SentenceFor(Op::kAdd), "reads the codes of a with the other signedness");
  const auto multiplied = [](Op op) {
    const std::string text = CauseNamed("float32 multiplier").SentenceFor(op);
    return text.substr(text.find("multiplier"), text.find(" to float32") - text.find("multiplier"));
  };
  const auto rounded = [](Op op) {
    const std::string text = CauseNamed("float32 multiplier").SentenceFor(op);
    return text.substr(0, text.find(" and the "));
  };
  EXPECT_EQ(rounded(Op::kConv2d), "rounds the sum");
  EXPECT_EQ(rounded(Op::kMul), "rounds the product");
  EXPECT_EQ(rounded(Op::kSub), "rounds the sum");
  EXPECT_EQ(rounded(Op::kAvgPool), "rounds the sum");
  EXPECT_EQ(rounded(Op::kRescale), "rounds the code less its zero point");
  EXPECT_EQ(multiplied(Op::kLinear), "multiplier fl(fl(sx*sw)/sy)");
  EXPECT_EQ(multiplied(Op::kRequantize), "multiplier fl(fl(sx*sw)/sy)");
  EXPECT_EQ(multiplied(Op::kRescale), "multiplier fl(sx/sy)");
  EXPECT_EQ(multiplied(Op::kAvgPool), "multiplier fl(sx/sy)");
  EXPECT_EQ(multiplied(Op::kMul), "multiplier fl(fl(sa*sb)/sy)");
  EXPECT_EQ(multiplied(Op::kSub), "multipliers fl(sa/sy) and fl(sb/sy)");
  const auto reciprocal = [](Op op) { return CauseNamed("float32 reciprocal").SentenceFor(op); };
  EXPECT_EQ(reciprocal(Op::kConv2d), "multiplies by fl(fl(sx*sw) * fl(1/sy)) before rounding");
  EXPECT_EQ(reciprocal(Op::kRequantize), "multiplies by fl(fl(sx*sw) * fl(1/sy)) before rounding");
  EXPECT_EQ(reciprocal(Op::kRescale), "multiplies by fl(sx * fl(1/sy)) before rounding");
  EXPECT_EQ(reciprocal(Op::kMul), "multiplies by fl(fl(sa*sb) * fl(1/sy)) before rounding");
  EXPECT_EQ(reciprocal(Op::kAdd),
            "multiplies by fl(sa * fl(1/sy)) and fl(sb * fl(1/sy)) before rounding");
}

TEST(CauseNames, TellFamiliesFromOtherCauses) {
  EXPECT_FALSE(CauseNamed("pair saturation").of_family);
  EXPECT_TRUE(CauseNamed("K*zx*zw ignored").of_family);
}

// A report names a cause, and reads the name back.
TEST(FamiliesSay, EachNameOnce) {
  std::vector<std::string> names;
  for (const Cause& cause : AllCauses()) names.push_back(cause.name);
  for (const Cause& place : AllPlaces()) names.push_back(place.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  EXPECT_EQ(twice, names.end()) << *twice;
}

// Where two causes would do the same there is one.
TEST(FamiliesSay, NothingThatAnotherCauseSays) {
  for (const char* const name :
       {"weights raised by 128, but not in the padding", "K rounded up to 4 in K*zx*zw",
        "saturated pairs in 1 int16 lane that saturate, emptied every 128 additions",
        "scale of channel n % 1", "scale of channel n % 8"}) {
    EXPECT_FALSE(Exists(name)) << name;
  }
}

TEST(FamiliesSay, WhatTheSubjectDoes) {
  const auto sentence = [](std::string_view name) {
    return CauseNamed(name).SentenceFor(Op::kLinear);
  };
  EXPECT_EQ(sentence("multiplier cut to 8 bits"), "cuts the multiplier to 8 significant bits");
  EXPECT_EQ(sentence("multiplier rounded to 8 bits"),
            "rounds the multiplier to 8 significant bits");
  EXPECT_EQ(sentence("bias of channel n % 1"), "takes the bias of channel n from channel 0");
  EXPECT_EQ(sentence("bias of channel n % 4"), "takes the bias of channel n from channel n % 4");
  EXPECT_EQ(sentence("row sum in 8 int16 lanes that wrap, emptied every 257 additions"),
            "adds the codes of the input in 8 int16 lanes that wrap, emptied every 257 additions, "
            "for the zero point of the weights");
  EXPECT_EQ(sentence("column sum in 8 int16 lanes that wrap"),
            "adds the weights in 8 int16 lanes that wrap, for the zero point of the input");
  const std::string stride =
      "reads the last, shorter block of a panel of 4 rows by 32 terms with the stride of ";
  EXPECT_EQ(sentence("stride of the last block, panels of 4 by 32"), stride + "a whole block");
  EXPECT_EQ(sentence("stride of the last block, panels of 4 by 32, padded"),
            stride + "a short block");
}

// Causes of one stage are never tried together, so a wrong stage hides a pair of faults.
TEST(FamiliesSay, TheStageInWhichTheyAct) {
  EXPECT_EQ(CauseNamed("first block of 32 alone").stage, CauseStage::kTail);
  EXPECT_EQ(CauseNamed("last block of 32 alone").stage, CauseStage::kAccumulate);
  EXPECT_EQ(CauseNamed("float32 sum, in 4 lanes").stage, CauseStage::kAccumulate);
  EXPECT_EQ(CauseNamed("int16 that wraps").stage, CauseStage::kClamp);
  EXPECT_EQ(CauseNamed("half down").stage, CauseStage::kRound);
}

// ---- Conventions and places.

// A convention that adds 1000 to every output.
Convention Thousands() {
  Convention model;
  model.name = "thousands";
  model.cannot_run = [](const Case&) { return ""; };
  model.run = [](const Case& c) {
    Tensor y = exact::Evaluate(c);
    for (int64_t i = 0; i < y.size(); ++i) y.SetInt(i, y.IntAt(i) + 1000);
    return ConventionOutput{y, {}};
  };
  return model;
}

// Two rows and two channels; 3 times the sum of each row is a term of its sums.
Case TwoByTwo() {
  Case c = Layer(kU8, {10, 20}, kS8, {1, 2}, 2);
  c.w_q.zero_point = {3};
  return c;
}

TEST(CausesOfConventions, MoveItsSumsOrEditItsCase) {
  const Convention model = Thousands();
  Case c = TwoByTwo();
  EXPECT_EQ(Answer(c, "row-sum term ignored", &model), (Values{1010, 1020, 1020, 1040}));
  EXPECT_EQ(Answer(c, "weight zero point ignored", &model), (Values{1010, 1020, 1020, 1040}));
  EXPECT_EQ(Answer(c, "row sum of row 0", &model), (Values{980, 990, 990, 1010}));
  c.bias_i32 = {{5, 7}};
  EXPECT_EQ(Answer(c, "row-sum term ignored", &model), (Values{1015, 1027, 1025, 1047}));
  EXPECT_FALSE(AnswerOf(ToCodes(TwoByTwo(), kS8), {"half up"}, &model))
      << "the convention rounds in its own way";
}

TEST(CausesOfConventions, AreNotAskedWhereTheConventionRefuses) {
  Convention model = Thousands();
  const auto thousands = model.run;
  model.run = [&model, &thousands](const Case& c) {
    EXPECT_EQ(model.cannot_run(c), "") << "it may do anything with a case that it refuses";
    return thousands(c);
  };
  model.cannot_run = [](const Case& c) { return c.x.dtype() == kU8 ? "" : "u8 alone"; };
  EXPECT_FALSE(AnswerOf(TwoByTwo(), {"input sign"}, &model));
  EXPECT_TRUE(AnswerOf(TwoByTwo(), {"weight sign"}, &model));
  // An output alone, or its bias, may be refused where the whole case is not.
  model.cannot_run = [](const Case& c) { return c.N == 2 ? "" : "two channels"; };
  EXPECT_FALSE(AnswerOf(TwoByTwo(), {"row-sum term ignored"}, &model));
  model.cannot_run = [](const Case& c) { return c.bias_i32 ? "no bias" : ""; };
  EXPECT_FALSE(AnswerOf(TwoByTwo(), {"row-sum term ignored"}, &model));
  // A kernel may compute the channels of a tail in another way.
  model = Thousands();
  model.run = [&thousands](const Case& c) {
    return c.N == 2 ? thousands(c) : ConventionOutput{exact::Evaluate(c), {}};
  };
  EXPECT_FALSE(AnswerOf(TwoByTwo(), {"row-sum term ignored"}, &model));
}

TEST(CausesOfConventions, MoveNoSumThatAnInt32BiasCannot) {
  const Convention model = Thousands();
  Case c = TwoByTwo();
  c.out_max = 1000000;
  c.bias_i32 = {{INT32_MAX - 29, INT32_MAX - 59}};
  EXPECT_FALSE(AnswerOf(c, {"row-sum term ignored"}, &model)) << "row 1 moves by 60";
  c.bias_i32 = {{INT32_MAX - 60, INT32_MAX - 60}};
  EXPECT_TRUE(AnswerOf(c, {"row-sum term ignored"}, &model));
  c = ToCodes(TwoByTwo(), kS8, 100);
  c.bias = {{200, 300}};
  Convention exact_model = Thousands();
  exact_model.run = [](const Case& of) { return ConventionOutput{exact::Evaluate(of), {}}; };
  EXPECT_FALSE(AnswerOf(c, {"row-sum term ignored"}, &exact_model)) << "it has a float bias";
  EXPECT_FALSE(AnswerOf(c, {"int32 bias"}, &exact_model)) << "two biases are no case";
  c.w_q.zero_point = {0};
  EXPECT_EQ(AnswerOf(c, {"row-sum term ignored"}, &exact_model), exact::Evaluate(c))
      << "no sum moves";
}

TEST(CausesOfConventions, MoveAtMost4096Sums) {
  const Convention model = Thousands();
  const auto layer = [](size_t channels) {
    Case c = Layer(kU8, {1}, kS8, Values(channels, 1));
    c.w_q.zero_point = {3};
    return c;
  };
  EXPECT_EQ(Answer(layer(4096), "row-sum term ignored", &model), Values(4096, 1001));
  EXPECT_FALSE(AnswerOf(layer(4097), {"row-sum term ignored"}, &model));
  Case c = layer(5000);
  EXPECT_EQ(Answer(c, "weight zero point ignored", &model), Values(5000, 1001));
}

TEST(CausesOfConventions, TheRightOutputIsTheOneThatWasPromised) {
  Convention model = Thousands();
  const Case c = Layer(kU8, {2}, kS8, {3});
  EXPECT_EQ(RightOutput(c, nullptr).IntAt(0), 6);
  EXPECT_EQ(RightOutput(c, &model).IntAt(0), 1006);
  model.cannot_run = [](const Case&) { return "nothing"; };
  EXPECT_EQ(RightOutput(c, &model).IntAt(0), 6);
  EXPECT_EQ(ModelOf(Contract{}), nullptr);
  EXPECT_EQ(ModelOf({"fbgemm@avx2"}), FindConvention("fbgemm@avx2"));
  EXPECT_NE(ModelOf({"fbgemm@avx2"}), nullptr);
}

// A cause may find no blocks where another one was, or a zero point that is no code any more.
TEST(CausesTogether, ActOnWhatAnotherOneMoved) {
  std::vector<Case> cases;
  for (const Op op : AllOps())
    for (uint64_t seed = 0; seed < 3; ++seed) cases.push_back(gen::Draw(op, seed));
  for (uint64_t seed = 0; seed < 16; ++seed)
    if (auto in_blocks = gen::InBlocks(gen::Draw(Op::kLinear, seed), seed))
      cases.push_back(*std::move(in_blocks));
  std::erase_if(cases, [](const Case& c) { return c.M * c.N * std::max<int64_t>(c.K, 1) > 512; });
  ASSERT_GE(cases.size(), 30u);
  int64_t acting = 0;
  for (const Case& c : cases) {
    for (const Cause& first : AllCauses()) {
      const bool moves =
          first.stage == CauseStage::kXZeroPoint || first.stage == CauseStage::kWZeroPoint;
      const bool asked = c.w_block != 0 ? first.knows_blocks : moves && !first.of_family;
      if (!asked || !Counterfactual(c, first)) continue;
      for (const Cause& second : AllCauses()) {
        if (second.stage == first.stage) continue;
        const std::vector<const Cause*> both{&first, &second};
        acting += Counterfactual(c, both) ? 1 : 0;
      }
    }
  }
  EXPECT_GE(acting, 10000);
}

const Cause& PlaceNamed(std::string_view name) {
  const auto found = std::ranges::find(AllPlaces(), name, &Cause::name);
  EXPECT_NE(found, AllPlaces().end()) << name;
  return *found;
}

TEST(CausesAtPlaces, LeaveAllOtherOutputsRight) {
  const Case c = TwoByTwo();
  const auto answer = [&](std::string_view cause, std::string_view place,
                          const Convention* model) -> std::optional<Values> {
    const std::vector<const Cause*> both{&CauseNamed(cause), &PlaceNamed(place)};
    const std::optional<Tensor> y = Counterfactual(c, both, model);
    if (!y) return std::nullopt;
    return Values(y->as<int32_t>().begin(), y->as<int32_t>().end());
  };
  const Convention model = Thousands();
  // Right are -20, -10, -40, -20; without the zero point 10, 20, 20, 40.
  constexpr std::string_view kIgnored = "weight zero point ignored";
  EXPECT_EQ(answer(kIgnored, "only from column 1 on", nullptr), (Values{-20, 20, -40, 40}));
  EXPECT_EQ(answer(kIgnored, "only in the last row", nullptr), (Values{-20, -10, 20, 40}));
  EXPECT_EQ(answer(kIgnored, "only in the last row", &model), (Values{980, 990, 1020, 1040}));
  EXPECT_EQ(answer(kIgnored, "only from column 2 on", nullptr), std::nullopt)
      << "there are two columns";
  EXPECT_EQ(answer("half up", "only in the last row", nullptr), std::nullopt);
  const Case codes = ToCodes(c, kS8);
  const std::vector<const Cause*> both{&CauseNamed("half up"), &PlaceNamed("only in the last row")};
  EXPECT_EQ(Counterfactual(codes, both, &model), std::nullopt);
}

TEST(CausesAtPlaces, ArePartsOfTheOutput) {
  const Case c = TwoByTwo();
  const auto last = PlaceIn(c, PlaceNamed("only in the last row"));
  ASSERT_TRUE(last);
  EXPECT_FALSE(last(0, 0));
  EXPECT_FALSE(last(0, 1));
  EXPECT_TRUE(last(1, 0));
  EXPECT_FALSE(PlaceIn(c, PlaceNamed("only from row 2 on")));
  EXPECT_FALSE(PlaceIn(c, CauseNamed("weight zero point ignored"))) << "acts everywhere";
}

// The rows, or the columns, in which a place lets a cause act, of `size` of them.
std::optional<Values> Within(std::string_view name, bool of_columns, int64_t size) {
  Case c = of_columns ? Layer(kU8, {1}, kS8, Ones(size)) : Layer(kU8, Ones(size), kS8, {1}, size);
  const auto place = std::ranges::find(AllPlaces(), name, &Cause::name);
  EXPECT_NE(place, AllPlaces().end()) << name;
  if (place == AllPlaces().end()) return std::nullopt;
  const auto is_at = PlaceIn(c, *place);
  if (!is_at) return std::nullopt;
  Values within;
  for (int64_t i = 0; i < size; ++i) {
    if (of_columns ? is_at(0, i) : is_at(i, 0)) within.push_back(static_cast<int32_t>(i));
  }
  return within;
}

TEST(Places, AreColumnsOrRows) {
  for (const bool of_columns : {true, false}) {
    const std::string one = of_columns ? "column" : "row", all = of_columns ? "N" : "M";
    for (const int32_t from : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
      const std::string name = fmt::format("only from {} {} on", one, from);
      EXPECT_EQ(Within(name, of_columns, from), std::nullopt);
      EXPECT_EQ(Within(name, of_columns, from + 3), From(from, 3));
      EXPECT_EQ(Within(name, !of_columns, from + 3), std::nullopt);
    }
    for (const int32_t lanes : {4, 8, 16, 32, 64}) {
      const std::string last = fmt::format("only in the last {} % {} {}s", all, lanes, one);
      const std::string before = fmt::format("only before the last {} % {} {}s", all, lanes, one);
      EXPECT_EQ(Within(last, of_columns, 2 * lanes), std::nullopt);
      EXPECT_EQ(Within(last, of_columns, 2 * lanes + 3), From(2 * lanes, 3));
      EXPECT_EQ(Within(last, of_columns, 3), From(0, 3));
      EXPECT_EQ(Within(before, of_columns, 2 * lanes), From(0, 2 * lanes));
      EXPECT_EQ(Within(before, of_columns, 2 * lanes + 3), From(0, 2 * lanes));
      EXPECT_EQ(Within(before, of_columns, 3), std::nullopt);
      EXPECT_EQ(Within(before, of_columns, lanes + 1), From(0, lanes));
    }
    for (const int32_t lanes : {2, 4, 8}) {
      for (int32_t lane = 0; lane < lanes; ++lane) {
        const std::string name =
            fmt::format("only in {}s whose number modulo {} is {}", one, lanes, lane);
        EXPECT_EQ(Within(name, of_columns, lanes), std::nullopt);
        EXPECT_EQ(Within(name, of_columns, 2 * lanes), (Values{lane, lanes + lane}));
      }
      const std::string none =
          fmt::format("only in {}s whose number modulo {} is {}", one, lanes, lanes);
      EXPECT_EQ(std::ranges::count(AllPlaces(), none, &Cause::name), 0);
    }
    const std::string last = fmt::format("only in the last {}", one);
    EXPECT_EQ(Within(last, of_columns, 1), std::nullopt);
    EXPECT_EQ(Within(last, of_columns, 2), Values{1});
    EXPECT_EQ(Within(last, of_columns, 5), Values{4});
  }
}

}  // namespace
}  // namespace qualm::triage
