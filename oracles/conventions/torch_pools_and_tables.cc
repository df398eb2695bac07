// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "oracles/conventions/aten.h"
#include "oracles/conventions/definition.h"
#include "oracles/conventions/torch_operators.h"
#include "oracles/exact/arithmetic/real.h"

namespace qualm::conventions {
namespace {

// Pools -------------------------------------------------------------------------------------------

// The pixels whose maximum an output is, as rows of x.
using Pixels = std::vector<int64_t> (*)(const Window& window, int64_t m);

std::vector<int64_t> InsideTheImage(const Window& window, int64_t m) {
  std::vector<int64_t> rows;
  for (const Tap& tap : TapsOf(window, m)) {
    if (tap.x_row >= 0) rows.push_back(tap.x_row);
  }
  return rows;
}

// QNNPACK moves a tap in the padding onto the nearest pixel (indirection.c,
// pytorch_qnnp_indirection_init_maxpool2d). With dilation 1 that pixel is in the window anyway;
// with more it may lie between two taps, and wins though no tap is there.
std::vector<int64_t> MovedIntoTheImage(const Window& v, int64_t m) {
  std::vector<int64_t> rows;
  const int64_t column = m % v.out_w();
  const int64_t row = m / v.out_w() % v.out_h();
  const int64_t image = m / v.out_w() / v.out_h();
  for (int64_t r = 0; r < v.kernel_h; ++r) {
    for (int64_t s = 0; s < v.kernel_w; ++s) {
      const int64_t y = row * v.stride_h + r * v.dilation_h - v.pad_top;
      const int64_t x = column * v.stride_w + s * v.dilation_w - v.pad_left;
      const int64_t pixel = (image * v.in_h + std::clamp<int64_t>(y, 0, v.in_h - 1)) * v.in_w +
                            std::clamp<int64_t>(x, 0, v.in_w - 1);
      rows.push_back(pixel * v.in_c);
    }
  }
  return rows;
}

std::string CannotPool(const Case& c) {
  const Window& v = c.window;
  return FirstReason({
      ZeroPointsAreCodes(c),
      WholeRange(c),
      Require(!c.relu, "this function has no fused relu"),
      Require(v.pad_top == v.pad_bottom && v.pad_left == v.pad_right,
              "padding must be the same on both sides"),
      Require(v.pad_top <= v.kernel_h / 2 && v.pad_left <= v.kernel_w / 2,
              "padding must be at most half of the window"),
  });
}

std::string CannotMaxPoolQnnpack(const Case& c) {
  const Window& v = c.window;
  // ATen pools s8 codes and in ceil mode, with another arithmetic.
  return FirstReason(
      {CannotPool(c), Require(c.x.dtype() == DType::kU8, "QNNPACK pools u8 only"),
       Require(!v.ceil_mode, "QNNPACK has no ceil mode"),
       Require(v.kernel_h * v.kernel_w > 1, "QNNPACK has no window of one element")});
}

Convention MaxPool(Pixels pixels, std::string (*cannot_run)(const Case&)) {
  Convention convention;
  convention.cannot_run = cannot_run;
  convention.run = [pixels](const Case& c) {
    ConventionOutput output{Tensor(c.out_dtype, c.output_shape()), std::nullopt};
    for (int64_t m = 0; m < c.M; ++m) {
      const std::vector<int64_t> rows = pixels(c.window, m);
      for (int64_t n = 0; n < c.N; ++n) {
        int32_t most = RangeOf(c.x.dtype()).min;
        for (const int64_t row : rows) most = std::max(most, c.x.IntAt(row + n));
        output.y.SetInt(m * c.N + n, most);
      }
    }
    return output;
  };
  convention.trace = [pixels](const Case& c, int64_t index) {
    Trace trace;
    int32_t most = RangeOf(c.x.dtype()).min;
    std::string codes;
    for (const int64_t row : pixels(c.window, index / c.N)) {
      const int32_t code = c.x.IntAt(row + index % c.N);
      most = std::max(most, code);
      codes += (codes.empty() ? "" : ", ") + std::to_string(code);
    }
    trace.push_back({Stage::kAccumulate, "the largest of " + codes, std::to_string(most), false});
    return trace;
  };
  return convention;
}

std::string CannotAvgPool(const Case& c) {
  const bool one = c.x_q == c.out_q && c.x.dtype() == c.out_dtype;
  return FirstReason({
      Require(one, "the output has the type, scale and zero point of the input"),
      Require(std::isnormal(c.x_q.scale[0]), "scales must be normal numbers"),
      CannotPool(c),
  });
}

std::string CannotAvgPoolQnnpack(const Case& c) {
  const Window& v = c.window;
  return FirstReason({
      Require(c.x.dtype() == DType::kU8, "QNNPACK pools u8 only"),
      CannotAvgPool(c),
      Require(!v.ceil_mode, "QNNPACK has no ceil mode"),
      Require(v.kernel_h * v.kernel_w > 1, "QNNPACK has no window of one element"),
  });
}

void ClampToFloat(Value& v, const Channel& c) {
  v.SetReal(std::clamp(v.number, static_cast<float>(c.low), static_cast<float>(c.high)));
}

Channel ChannelOf(const Case& c, int64_t) {
  Channel channel;
  SetClamp(channel, c);
  channel.a.scale = c.x_q.scale[0];
  channel.a.zero_point = c.x_q.zero_point[0];
  channel.reciprocal = 1.0f / c.out_q.scale[0];
  channel.zero_point = c.out_q.zero_point[0];
  return channel;
}

// A convention of steps that may differ from element to element. value_of gives the integer that
// they begin with.
template <class ValueOf, class ChannelAt, class StepsOf>
Convention Walked(ValueOf value_of, ChannelAt channel_of, StepsOf steps_of) {
  Convention convention;
  const auto one = [=](const Case& c, int64_t index, Trace* trace) {
    Value value;
    value.SetInt(value_of(c, index, trace));
    Apply(steps_of(c, index), channel_of(c, index), value, trace);
    return static_cast<int32_t>(value.integer);
  };
  convention.run = [one](const Case& c) {
    ConventionOutput output{Tensor(c.out_dtype, c.output_shape()), std::nullopt};
    for (int64_t i = 0; i < output.y.size(); ++i) output.y.SetInt(i, one(c, i, nullptr));
    return output;
  };
  convention.trace = [one](const Case& c, int64_t index) {
    Trace trace;
    one(c, index, &trace);
    return trace;
  };
  return convention;
}

int64_t SumInside(const Case& c, int64_t index, Trace* trace) {
  int64_t total = 0;
  const std::vector<int64_t> rows = InsideTheImage(c.window, index / c.N);
  for (const int64_t row : rows) total += c.x.IntAt(row + index % c.N) - c.x_q.zero_point[0];
  if (trace != nullptr) {
    trace->push_back({Stage::kAccumulate,
                      "the sum of x - zero point over " + std::to_string(rows.size()) +
                          " pixels inside the image",
                      std::to_string(total), false});
  }
  return total;
}

// Tables ------------------------------------------------------------------------------------------

void MaxZeroPoint(Value& v, const Channel& c) {
  v.SetInt(std::max<int64_t>(v.integer, c.zero_point));
}
void HardSwish(Value& v, const Channel&) {
  const float x = v.number;
  Value sum;
  const float ramp = std::min(std::max(AddInto(sum, x, 3.0f), 0.0f), 6.0f);
  v.lossy = sum.lossy && ramp == sum.number;  // a sum that is cut to 0 or 6 has lost nothing
  const float product = MultiplyInto(v, x, ramp);
  v.SetReal(product / 6.0f);
  v.lossy = v.lossy || static_cast<double>(v.number) * 6.0 != static_cast<double>(product);
}
void LeakyRelu(Value& v, const Channel& c) {
  if (!(v.number > 0.0f)) MultiplyInto(v, v.number, c.multiplier);
}
void Dequantize(Value& v, const Channel& c) {
  MultiplyInto(v, c.a.scale, static_cast<float>(v.integer - c.a.zero_point));
}

Channel TableChannel(const Case& c, int64_t index) {
  Channel channel = ChannelOf(c, index);
  channel.multiplier = c.negative_slope;
  return channel;
}

const Step kReluCodes[] = {{Stage::kClamp, "the larger of it and {zero_point}", MaxZeroPoint}};
constexpr Step kHardSwish{Stage::kScale, "x*min(max(x + 3, 0), 6)/6", HardSwish};

// ATen's sigmoid and tanh: exp and tanh come from Sleef in vectors, from the C library in the rest.
// Sleef's are within 1 ulp, glibc's tanhf within 2.19 ulp, which is 2^-22.49 of it at most: a tanh
// and a sigmoid are within 2^-22 of the real ones.
template <double (*kFunction)(double)>
void NearTheReal(Value& v, const Channel& c) {
  const double real = kFunction(static_cast<double>(v.number));
  v.SetReal(static_cast<float>(real + c.side * (std::abs(real) * 0x1p-22 + 0x1p-126)));
}
double Sigmoid(double x) { return 1 / (1 + exact::RoundedExp(-x)); }

Step AtenFunction(const Case& c) {
  switch (c.function) {
    case Function::kSigmoid: return {Stage::kScale, "sigmoid(x) in float32", NearTheReal<Sigmoid>};
    case Function::kTanh:
      return {Stage::kScale, "tanh(x) in float32", NearTheReal<exact::RoundedTanh>};
    case Function::kHardSwish: return kHardSwish;
    case Function::kRelu:
    case Function::kLeakyRelu: break;
  }
  QUALM_CHECK(c.function == Function::kLeakyRelu);
  return {Stage::kScale, "if negative, times {multiplier}", LeakyRelu};
}

// QNNPACK's tables of 256, made in float32: hardswish.c; sigmoid.c and tanh.c around the C
// library's expf and tanhf, for one output scale and zero point each.
void SigmoidCodes(Value& v, const Channel& c) {
  v.SetReal(256.0f / (1.0f + Beside(exact::RoundedExp(-v.number), c.side * kExpUlps)));
}
void TanhCodes(Value& v, const Channel& c) {
  v.SetReal(128.0f * Beside(exact::RoundedTanh(v.number), c.side * kTanhUlps) + 128.0f);
}

constexpr Step kQnnpackToReal{Stage::kScale, "fl({a_scale}*(x - {a_zp}))", Dequantize};
constexpr Step kQnnpackClamp{Stage::kClamp, "clamp to {low}..{high} in float32", ClampToFloat};
constexpr Step kQnnpackRound{Stage::kRound, "lrintf, ties to even", step::RoundX86};
const Step kQnnpackSigmoid[] = {
    kQnnpackToReal,
    {Stage::kScale, "256/(1 + expf(-x)) in float32", SigmoidCodes},
    kQnnpackClamp,
    kQnnpackRound,
};
const Step kQnnpackTanh[] = {
    kQnnpackToReal,
    {Stage::kScale, "128*tanhf(x) + 128 in float32", TanhCodes},
    kQnnpackClamp,
    kQnnpackRound,
};
const Step kQnnpackHardSwish[] = {
    kQnnpackToReal,
    kHardSwish,
    {Stage::kScale, "times fl(1/scale) {reciprocal}", step::TimesReciprocal},
    {Stage::kZeroPoint, "+ zero point {zero_point} in float32, before rounding",
     step::AddZeroPointFloat},
    kQnnpackClamp,
    kQnnpackRound,
    {Stage::kClamp, "to u8", step::Clamp},  // infinity times 0 is NaN, which became INT32_MIN
};

std::string CannotTable(const Case& c) {
  const bool relu = c.function == Function::kRelu;
  return FirstReason({
      Require(c.x.dtype() == DType::kU8 && c.out_dtype == DType::kU8, "codes must be u8"),
      Require(!relu || c.x_q == c.out_q, "relu leaves scale and zero point as they are"),
      ZeroPointsAreCodes(c),
      WholeRange(c),
  });
}

int64_t CodeAt(const Case& c, int64_t index, Trace*) { return c.x.IntAt(index); }

// `cannot_run`: for all other reasons than that the C library decides.
template <class StepsOf>
Convention Table(std::string (*cannot_run)(const Case&), StepsOf steps_of) {
  const auto on = [=](int side) {
    const auto channel_of = [side](const Case& c, int64_t index) {
      Channel channel = TableChannel(c, index);
      channel.side = side;
      return channel;
    };
    return Walked(CodeAt, channel_of, steps_of);
  };
  Convention convention = on(0);
  convention.cannot_run = [cannot_run, low = on(-1).run, high = on(1).run](const Case& c) {
    const bool real = c.function == Function::kSigmoid || c.function == Function::kTanh;
    const std::string reason = cannot_run(c);
    return !reason.empty() || !real ? reason : Require(low(c).y == high(c).y, kUndecided);
  };
  return convention;
}

std::string CannotTableQnnpack(const Case& c) {
  const auto fixed = [&](Function function, float scale, int32_t zero_point) {
    return c.function != function || c.out_q == QParams{{scale}, {zero_point}};
  };
  return FirstReason({
      CannotTable(c),
      Require(c.function != Function::kLeakyRelu, "leaky_relu is ATen's"),
      Require(fixed(Function::kSigmoid, 0x1p-8f, 0),
              "the output of sigmoid has scale 2^-8 and zero point 0"),
      Require(fixed(Function::kTanh, 0x1p-7f, 128),
              "the output of tanh has scale 2^-7 and zero point 128"),
      Require(std::isnormal(c.x_q.scale[0]) && std::isnormal(c.out_q.scale[0]),
              "scales must be normal numbers"),
  });
}

}  // namespace

Convention AtenMaxPool() { return MaxPool(InsideTheImage, CannotPool); }
Convention QnnpackMaxPool() {
  Convention convention = MaxPool(MovedIntoTheImage, CannotMaxPoolQnnpack);
  convention.variations = {"V27"};
  return convention;
}

// average-pooling.c and q8avgpool/*-sse2.c. The divisor is the whole window, also where
// count_include_pad is false (AveragePool2d.cpp, qnnpack_avg_pool2d, does not pass it on).
Convention QnnpackAvgPool() {
  static const Step kSteps[] = {
      {Stage::kScale, "to float32", step::ToFloat},
      {Stage::kScale, "times fl(scale/fl(scale*count)) {multiplier}", step::TimesMultiplier},
      {Stage::kRound, "cvtps2dq, ties to even", step::RoundX86},
      {Stage::kZeroPoint, "to int16, + zero point {zero_point}, saturating",
       step::AddZeroPointSat16},
      {Stage::kClamp, "clamp to {low}..{high}", step::Clamp},
  };
  const auto channel_of = [](const Case& c, int64_t index) {
    Channel channel = ChannelOf(c, index);
    const float scale = c.x_q.scale[0];
    const auto count = static_cast<float>(c.window.kernel_h * c.window.kernel_w);
    channel.multiplier = scale / (scale * count);
    return channel;
  };
  Convention convention =
      Walked(SumInside, channel_of, [](const Case&, int64_t) { return std::span(kSteps); });
  convention.cannot_run = CannotAvgPoolQnnpack;
  convention.variations = {"V1", "V8", "V27"};
  return convention;
}

// QuantizedOpKernels.cpp, _qavg_pool_nhwc_kernel and _qadaptive_avg_pool_kernel. The vector loop
// multiplies by m = fl(1/count), the rest by fl(1/fl(1/m)), which is m for every count to 2^24.
Convention AtenAvgPool(int64_t lanes, AtenBuild build) {
  const auto count = [](const Case& c, int64_t index) {
    const Window& v = c.window;
    if (c.op == Op::kAvgPool && !v.count_include_pad) {
      return static_cast<int64_t>(InsideTheImage(v, index / c.N).size());
    }
    // In ceil mode a window may reach beyond the padding; taps beyond it do not count.
    const int64_t column = index / c.N % v.out_w(), row = index / c.N / v.out_w() % v.out_h();
    const auto along = [](int64_t at, int64_t taps, int64_t end) {
      return std::min(at + taps, end) - at;
    };
    return along(row * v.stride_h - v.pad_top, v.kernel_h, v.in_h + v.pad_bottom) *
           along(column * v.stride_w - v.pad_left, v.kernel_w, v.in_w + v.pad_right);
  };
  const auto channel_of = [count](const Case& c, int64_t index) {
    Channel channel = ChannelOf(c, index);
    channel.reciprocal = 1.0f / static_cast<float>(count(c, index));
    return channel;
  };
  Convention convention = Walked(SumInside, channel_of, [=](const Case& c, int64_t index) {
    std::vector<Step> steps = {{Stage::kScale, "to float32", step::ToFloat}};
    const Step scale{Stage::kScale, "times fl(1/count) {reciprocal}", step::TimesReciprocal};
    const auto in_body = [&](int64_t width) {
      return width != 0 && index % c.N < c.N / width * width;
    };
    // avg_pool has a vector loop of its own, global_avg_pool calls FBGEMM's of AVX2.
    const bool fbgemms = c.op == Op::kGlobalAvgPool && build != AtenBuild::kPlain && in_body(8);
    const std::vector<Step> quantize =
        fbgemms ? FbgemmQuantize(true, build == AtenBuild::kFbgemmLegacy)
                : AtenToCode(c.op == Op::kAvgPool && in_body(lanes), scale, build);
    steps.insert(steps.end(), quantize.begin(), quantize.end());
    return steps;
  });
  convention.cannot_run = CannotAvgPool;
  return convention;
}

Convention QnnpackTable() {
  return Table(CannotTableQnnpack, [](const Case& c, int64_t) -> std::span<const Step> {
    switch (c.function) {
      case Function::kRelu: return kReluCodes;
      case Function::kSigmoid: return kQnnpackSigmoid;
      case Function::kTanh: return kQnnpackTanh;
      case Function::kHardSwish: return kQnnpackHardSwish;
      case Function::kLeakyRelu: break;
    }
    QUALM_CHECK(false);  // CannotTableQnnpack
    return {};
  });
}

Convention AtenTable(int64_t block, AtenBuild build) {
  return Table(CannotTable, [block, build](const Case& c, int64_t index) {
    if (c.function == Function::kRelu)
      return std::vector<Step>(std::begin(kReluCodes), std::end(kReluCodes));
    const bool vector = block != 0 && index < c.M * c.N / block * block;
    // PyTorch 2 gives the vectors of sigmoid no premultiplied zero point (qsigmoid_kernel).
    const bool fused = build == AtenBuild::kPlain || c.function != Function::kSigmoid;
    return AtenThroughFloat(vector, fused, AtenFunction(c), build);
  });
}

}  // namespace qualm::conventions
