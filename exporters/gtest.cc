// SPDX-License-Identifier: Apache-2.0
// A GoogleTest of the production kernels on the case. A project that links qualm::kernels keeps it,
// so that the case stays right.
#include <fmt/format.h>

#include "exporters/evidence.h"
#include "exporters/nbits.h"
#include "oracles/conventions/float_sums.h"

namespace qualm::exporters {
namespace {

// The header of the kernel, and the call: gives `status`.
struct Call {
  std::string_view header;
  std::string_view text;
};

// Matrices of x (a), w (b) and y, dense; Q is a scale and zero point.
constexpr std::string_view kImages =
    R"(  const ConstImages images{x.data(), $x_type$, batch, H, W, C, H * W * C, W * C, C};
)";
constexpr std::string_view kWindow =
    "{H, W, R, S, stride_h, stride_w, pad_top, pad_bottom, pad_left, pad_right, dilation_h,\n"
    "       dilation_w}";

constexpr std::string_view kLayer = R"({.weights = {w.data(), $w_type$, N, K, K},
       .input_type = $x_type$,
       .x_scale = x_scale,
       .x_zero_point = x_zp,
       .w_scale = w_scale,
       .w_zero_point = w_zp,
$bias$       .output_type = $y_type$,
       .y_scale = out_scale,
       .y_zero_point = out_zp,
       .range = range,
       .requantization = $requant$})";

constexpr std::string_view kLinear = R"(  PackedLinear layer;
  Status status = PackedLinear::Pack(
      $layer$,
      &layer);
  if (status.ok()) status = layer.Run({x.data(), $x_type$, M, K, K}, y_matrix);
)";
constexpr std::string_view kConv = R"(  PackedConv layer;
  Status status = PackedConv::Pack(
      {.layer = $layer$,
       .in_channels = C,
       .groups = groups,
       .window = $window$},
      &layer);
$images$  if (status.ok()) status = layer.Run(images, y_matrix);
)";
constexpr std::string_view kOperands =
    R"(  const Status status = $name$({a.data(), $x_type$, M, N, N}, {a_scale, a_zp}, {b.data(), $x_type$, M, N, N},
      {b_scale, b_zp}, {out_scale, out_zp}, range, y_matrix);
)";
constexpr std::string_view kConcat =
    R"(  const ConcatInput inputs[] = {{{a.data(), $x_type$, M, NA, NA}, {a_scale, a_zp}},
                                {{b.data(), $x_type$, M, N - NA, N - NA}, {b_scale, b_zp}}};
  const Status status = Concat(inputs, {out_scale, out_zp}, range, y_matrix);
)";
constexpr std::string_view kRequantize = R"(  std::vector<Multiplier> multipliers;
  for (const float factor : $factors$) multipliers.push_back($multiplier$);
  const Status status = Requantize({x.data(), $x_type$, M, N, N}, multipliers, out_zp, range, y_matrix,
                                   $requant$);
)";
constexpr std::string_view kTable = R"(  PackedTable table;
  Status status = PackedTable::Build({.function = TableFunction::$function$,
                                      .negative_slope = $negative_slope$,
                                      .x_type = $x_type$,
                                      .x_q = {x_scale, x_zp},
                                      .y_type = $y_type$,
                                      .y_q = {out_scale, out_zp},
                                      .range = range},
                                     &table);
  if (status.ok()) status = table.Run({x.data(), $x_type$, M, N, N}, y_matrix);
)";
constexpr std::string_view kSoftmax = R"(  PackedSoftmax softmax;
  Status status = PackedSoftmax::Build(x_scale, N, &softmax);
  if (status.ok()) status = softmax.Run({x.data(), $x_type$, M, N, N}, range, y_matrix);
)";
constexpr std::string_view kChooseQParams = R"(  $state$
  Status status;
  for (int64_t b = 0; b < batches && status.ok(); ++b) {
    const ConstMatrix batch{x.data() + b * M * N, $x_type$, M, N, N};
    status = $observe$;
  }
  const size_t columns = y.size() / 2;  // the scales, then the zero points
  std::vector<int32_t> zero_points(columns);
  if (status.ok()) {
    status = ChooseQParams($params$, $chosen$);
  }
  std::copy(zero_points.begin(), zero_points.end(), y.begin() + columns);
)";
constexpr std::string_view kDynamicLinear = R"(  PackedDynamicLinear layer;
  Status status = PackedDynamicLinear::Pack({.weights = {w.data(), $w_type$, N, K, K},
                                             .w_scale = w_scale,
                                             .w_zero_point = w_zp,
$bias$                                             .relu = relu != 0,
                                             .per_row = $per_row$,
                                             .qparams = $params$},
                                            &layer);
  if (status.ok()) status = layer.Run({x.data(), $x_type$, M, K, K}, y_matrix);
)";

// Rows in blocks are rows with a scale and zero point for each column.
constexpr std::string_view kElementBlocks = R"(  Status status;
  for (int64_t m = 0; m < M && status.ok(); ++m) {
    std::vector<float> scales;
    std::vector<int32_t> zero_points;
    for (int64_t n = 0; n < N; ++n) {
      scales.push_back($q$_scale[m * $blocks$ + n / $x_block$]);
      zero_points.push_back($q$_zp[m * $blocks$ + n / $x_block$]);
    }
    const ConstMatrix row{x.data() + m * N, $x_type$, 1, N, N};
    status = $name$(row, scales, zero_points, $range$MutableMatrix{y.data() + m * N, $y_type$, 1, N, N});
  }
)";
constexpr std::string_view kNBits = R"(  PackedNBitsLinear layer;
  Status status = PackedNBitsLinear::Pack({.bits = $bits$,
                                           .channels = N,
                                           .depth = K,
                                           .block = $block$,
                                           .codes = codes.data(),
                                           .scales = scales.data(),
                                           .zero_points = zero_points.data(),
                                           .bias = $real_bias$},
                                          &layer);
  if (status.ok()) status = layer.Run($rows$, y_matrix);
)";

constexpr std::string_view kSameBits = R"(  // The bits: zeros have signs.
  EXPECT_TRUE(std::memcmp(y.data(), expected.data(), y.size() * sizeof y[0]) == 0);
)";
constexpr std::string_view kWithin =
    R"(  // What float32 sums of any order can give; infinities at both ends: anything.
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_TRUE((y[i] >= lowest[i] && y[i] <= highest[i]) ||
                (std::isinf(lowest[i]) && std::isinf(highest[i])))
        << "output " << i << ": " << y[i] << ", not from " << lowest[i] << " to " << highest[i];
  }
)";

// A linear whose kernel adds float32 numbers (kernels/nbits_linear.h).
bool AddsFloats(const Case& c) {
  return c.op == Op::kLinear && (HasFloatX(c) || c.x_block != 0 || c.w_block != 0);
}

// The weights as that kernel takes them, and the ends between which it may round.
std::string NBitsLists(const NBits& w, const std::vector<FloatSum>& sums) {
  std::vector<float> lowest, highest;
  for (const FloatSum& sum : sums) {
    lowest.push_back(static_cast<float>(sum.permitted.low));
    highest.push_back(static_cast<float>(sum.permitted.high));
  }
  const auto list = [](std::string_view name, const Tensor& values) {
    return List(Language::kCpp, name, values);
  };
  const auto count = static_cast<int64_t>(sums.size());
  return "// The weights as ONNX's MatMulNBits stores them.\n" + list("codes", w.codes) +
         list("scales", w.scales) + list("zero_points", w.zero_points) +
         list("lowest", Tensor::Of<float>({count}, lowest)) +
         list("highest", Tensor::Of<float>({count}, highest));
}

void RequireNBits(const Case& c) {
  Require(HasFloatX(c) || c.x_block != 0,
          "kernels for weights in blocks beside x that is neither f32 nor in such blocks");
  Require(c.out_dtype == DType::kF32 && !c.relu,
          "kernels that sum blocks into codes, or with relu");
  if (HasFloatX(c)) return;
  Require(c.x.dtype() == DType::kS8, "kernels for x in blocks that is not s8");
  for (const int32_t zero : c.x_q.zero_point)
    Require(zero == 0, "kernels for x in blocks with zero points");
}

Call CallOf(const Case& c) {
  if (AddsFloats(c)) return {"nbits_linear.h", kNBits};
  if (HasElementBlocks(c)) return {"elementwise.h", kElementBlocks};
  switch (c.op) {
    case Op::kQuantize:
      return {"elementwise.h",
              "  const Status status =\n      Quantize({x.data(), $x_type$, M, N, N}, out_scale, "
              "out_zp, range, y_matrix);\n"};
    case Op::kDequantize:
      return {"elementwise.h",
              "  const Status status =\n      Dequantize({x.data(), $x_type$, M, N, N}, x_scale, "
              "x_zp, y_matrix);\n"};
    case Op::kRequantize: return {"elementwise.h", kRequantize};
    case Op::kRescale:
      return {"elementwise.h",
              "  const Status status = RescaleCodes({x.data(), $x_type$, M, N, N}, {x_scale, "
              "x_zp},\n                                     {out_scale, out_zp}, range, "
              "y_matrix);\n"};
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul: return {"binary.h", kOperands};
    case Op::kMaxPool:
      return {"pool.h",
              "$images$  const Status status =\n      MaxPool(images, {$window$, OH, OW}, out_zp, "
              "range, y_matrix);\n"};
    case Op::kAvgPool:
      return {"pool.h",
              "$images$  const Status status =\n      AvgPool(images, {$window$, OH, OW}, "
              "$count_include_pad$,\n              {x_scale, x_zp}, {out_scale, out_zp}, range, "
              "y_matrix);\n"};
    case Op::kGlobalAvgPool:
      return {"pool.h",
              "$images$  const Status status =\n      GlobalAvgPool(images, {x_scale, x_zp}, "
              "{out_scale, out_zp}, range, y_matrix);\n"};
    case Op::kLinear: return {"linear.h", kLinear};
    case Op::kConv2d:
    case Op::kDepthwise: return {"conv.h", kConv};
    case Op::kConcat: return {"concat.h", kConcat};
    case Op::kTable: return {"table.h", kTable};
    case Op::kSoftmax: return {"softmax.h", kSoftmax};
    case Op::kChooseQParams: return {"observer.h", kChooseQParams};
    case Op::kDynamicLinear: return {"dynamic_linear.h", kDynamicLinear};
    case Op::kCast: break;
  }
  return {};
}

// "leaky_relu" -> "LeakyRelu".
std::string Camel(std::string_view name) {
  std::string text;
  bool begins = true;
  for (const char ch : name) {
    if (ch != '_')
      text += begins && ch >= 'a' && ch <= 'z' ? static_cast<char>(ch - 'a' + 'A') : ch;
    begins = ch == '_';
  }
  return text;
}

std::string ElementTypeOf(DType dtype) { return "ElementType::k" + Camel(Name(dtype)); }

// The state that an observer keeps between batches, its call for a batch, and its choice.
struct ObserverText {
  std::string state, observe, chosen;
};
ObserverText ObserverOf(const Case& c) {
  const std::string minmax = "std::vector<MinMaxState> states(y.size() / 2);";
  const std::string chosen = "states, {y.data(), columns}, zero_points";
  switch (c.observer.kind) {
    case Observer::Kind::kMinMax: return {minmax, "ObserveMinMax(batch, states)", chosen};
    case Observer::Kind::kMovingAverage:
      return {minmax,
              fmt::format("ObserveMovingAverage(batch, {}, states)",
                          Literal(Language::kCpp, c.observer.averaging_constant)),
              chosen};
    case Observer::Kind::kHistogram: break;
  }
  return {"HistogramState state;", "ObserveHistogram(batch, &state)",
          "state, y.data(), zero_points.data()"};
}

std::string ParamsText(const Case& c) {
  const Observer& o = c.observer;
  return fmt::format("{{{}, {}, {}, {}, {}, QParamsRule::k{}}}", o.symmetric, o.reduce_range,
                     ElementTypeOf(o.dtype), o.quant_min, o.quant_max, Camel(Name(c.rule)));
}

std::string BiasText(const Case& c, std::string_view indent) {
  std::string text = fmt::format("{}.bias = {},\n", indent, c.bias ? "bias" : "{}");
  if (!RowOf(c.op).bias_i32) return text;
  return text + fmt::format("{}.bias_i32 = {},\n", indent, c.bias_i32 ? "bias_i32" : "{}");
}

constexpr std::string_view kProgram = R"($head$#include <gtest/gtest.h>
$header$

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

using namespace qualm::kernels;

$constants$$expected$
template <class List>
void Print(const char* name, const List& values) {
  std::printf("%-8s", name);
  for (const auto value : values) std::printf(" $format$", value);
  std::printf("\n");
}

TEST($suite$, $test$) {
  std::vector<$out$> y(expected.size());
  [[maybe_unused]] const MutableMatrix y_matrix{y.data(), $y_type$, M, N, N};
$range$$call$  ASSERT_TRUE(status.ok()) << status.error;
  Print("EXPECTED", expected);
  Print("GOT", y);
$check$}

}  // namespace
)";

// The names of parameters in the structs of the kernels are int32 and float.
std::string Narrow(std::string constants) {
  for (const std::string_view name : {"x_zp", "a_zp", "b_zp", "out_zp", "out_min", "out_max"}) {
    const std::string wide = fmt::format("const int64_t {} =", name);
    if (const size_t at = constants.find(wide); at != std::string::npos)
      constants.replace(at, wide.size(), fmt::format("const int32_t {} =", name));
  }
  return constants;
}

}  // namespace

std::string WriteGTest(const Evidence& evidence) {
  Case c = evidence.c;
  c.w = InBytes(c.w);  // but for those in blocks, as the kernels take them
  const Call call = CallOf(c);
  Require(!c.codes, std::string(kWithCodes));
  const bool adds_floats = AddsFloats(c);
  Require(c.w_block == 0 || adds_floats, kInBlocks);
  NBits nbits;
  std::string lists;
  if (adds_floats) {
    RequireNBits(c);
    nbits = NBitsOf(BitsOf(evidence.c.w.dtype()) < 4 ? c : evidence.c, NBitsBlock(c));
    lists = NBitsLists(nbits, FloatSums(c));
  }
  const ObserverText observer = ObserverOf(c);
  const bool multiplier = RowOf(c.op).multiplier && UsesMultiplier(c);
  const std::string x_type = ElementTypeOf(c.x.dtype()), y_type = ElementTypeOf(c.out_dtype);
  const std::string w_type = ElementTypeOf(c.w.dtype()),
                    requant = "Requantization::k" + Camel(Name(c.requant));
  const std::string layer = Fill(kLayer, {{"w_type", w_type},
                                          {"x_type", x_type},
                                          {"y_type", y_type},
                                          {"bias", BiasText(c, "       ")},
                                          {"requant", requant}});
  const std::string text = Fill(
      call.text, {{"x_type", x_type},
                  {"y_type", y_type},
                  {"w_type", w_type},
                  {"layer", layer},
                  {"requant", requant},
                  {"window", std::string(kWindow)},
                  {"images", Fill(kImages, {{"x_type", x_type}})},
                  {"name", Camel(Name(c.op))},
                  {"factors", multiplier ? "multiplier" : "w_scale"},
                  {"multiplier", multiplier ? "{factor}" : "{x_scale, factor, out_scale}"},
                  {"count_include_pad", c.window.count_include_pad ? "true" : "false"},
                  {"function", c.function == Function::kHardSwish ? "kHardSwish"
                                                                  : "k" + Camel(Name(c.function))},
                  {"negative_slope", Literal(Language::kCpp, c.negative_slope)},
                  {"state", observer.state},
                  {"observe", observer.observe},
                  {"chosen", observer.chosen},
                  {"params", ParamsText(c)},
                  {"bias", BiasText(c, std::string(45, ' '))},
                  {"q", c.op == Op::kQuantize ? "out" : "x"},
                  {"range", c.op == Op::kQuantize ? "range, " : ""},
                  {"blocks", HasElementBlocks(c) ? std::to_string(ElementBlocks(c)) : ""},
                  {"x_block", std::to_string(c.x_block)},
                  {"bits", std::to_string(nbits.bits)},
                  {"block", std::to_string(nbits.block)},
                  {"real_bias", c.bias ? "bias.data()" : "nullptr"},
                  {"rows", HasFloatX(c) ? "ConstMatrix{x.data(), ElementType::kF32, M, K, K}"
                                        : "ConstCodedRows{x.data(), M, K, K, x_scale.data()}"},
                  {"per_row", c.x_gran == Granularity::kRow ? "true" : "false"}});
  std::string suite(Name(c.op));
  suite[0] = static_cast<char>(suite[0] - 'a' + 'A');
  std::erase(suite, '_');
  const bool integers = RowOf(c.op).clamp && c.out_dtype != DType::kF32;
  const std::string relu = RowOf(c.op).relu ? "relu != 0" : "false";
  const std::string range = integers           ? "{out_min, out_max, " + relu + "}"
                            : RowOf(c.op).relu ? "{.relu = relu != 0}"
                                               : "";
  return Fill(
      kProgram,
      {{"head", Head(evidence, "//",
                     "with find_package(qualm), find_package(GTest) and\n"
                     "target_link_libraries(repro_test PRIVATE qualm::kernels "
                     "GTest::gtest_main)")},
       {"header", fmt::format("#include <qualm/kernels/{}>", call.header)},
       {"constants", Narrow(Constants(Language::kCpp, c)) + lists},
       {"test", adds_floats ? "IsASumInFloat32" : "MatchesExact"},
       {"check", std::string(adds_floats ? kWithin : kSameBits)},
       {"expected", List(Language::kCpp, "expected", evidence.expected)},
       {"format", c.out_dtype == DType::kF32 ? "%a" : "%d"},
       {"suite", suite},
       {"out", std::string(TypeIn(Language::kCpp, c.out_dtype))},
       {"y_type", y_type},
       {"range", range.empty() ? "" : "  [[maybe_unused]] const OutputRange range" + range + ";\n"},
       {"call", text}});
}

}  // namespace qualm::exporters
