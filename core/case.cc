// SPDX-License-Identifier: Apache-2.0
#include "core/case.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/float_text.h"
#include "core/scaled_cast.h"
#include "core/status.h"

namespace qualm {
namespace {

std::string Wrong(std::string_view field, std::string_view what) {
  return std::string(field) + ": " + std::string(what);
}

std::string DoesNotBelong(std::string_view field, Op op) {
  return Wrong(field, "does not belong to op " + std::string(Name(op)) + ", expected none");
}

std::string CheckTensor(std::string_view field, const Tensor& tensor,
                        const std::vector<int64_t>& shape) {
  if (tensor.shape() == shape) return "";
  std::string text = "shape [";
  for (size_t i = 0; i < tensor.shape().size(); ++i) {
    text += (i != 0 ? "," : "") + std::to_string(tensor.shape()[i]);
  }
  text += "] does not match the dimensions, expected [";
  for (size_t i = 0; i < shape.size(); ++i) text += (i != 0 ? "," : "") + std::to_string(shape[i]);
  return Wrong(field, text + "]");
}

std::string CheckScales(std::string_view field, const std::vector<float>& scales) {
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!std::isfinite(scales[i]) || scales[i] <= 0.0f) {
      return Wrong(field, "entry " + std::to_string(i) + " must be finite and greater than 0");
    }
  }
  return "";
}

std::string CheckLength(std::string_view field, size_t length, bool per_channel, int64_t channels,
                        int64_t blocks = 1, std::string_view each = "channel") {
  const size_t want = per_channel ? static_cast<size_t>(channels * blocks) : 1;
  if (length == want) return "";
  return Wrong(
      field, "has " + std::to_string(length) + " entries, expected " + std::to_string(want) +
                 (!per_channel ? ""
                  : blocks == 1 && each == "channel"
                      ? " (one per channel)"
                      : " (" + std::to_string(blocks) + " blocks per " + std::string(each) + ")"));
}

std::string CheckQParams(std::string_view name, const QParams& q, bool per_channel,
                         int64_t channels, int64_t blocks, std::string_view each) {
  // Nearly every case is right, so names are made only for one that is not.
  const size_t want = per_channel ? static_cast<size_t>(channels * blocks) : 1;
  const auto is_scale = [](float scale) { return std::isfinite(scale) && scale > 0.0f; };
  if (q.scale.size() == want && q.zero_point.size() == want &&
      std::ranges::all_of(q.scale, is_scale))
    return "";
  const std::string scale = std::string(name) + "_scale";
  if (auto error = CheckScales(scale, q.scale); !error.empty()) return error;
  if (auto error = CheckLength(scale, q.scale.size(), per_channel, channels, blocks, each);
      !error.empty())
    return error;
  return CheckLength(std::string(name) + "_zp", q.zero_point.size(), per_channel, channels, blocks,
                     each);
}

// Positions of a window along one axis. With ceil_mode a last, partial window counts if it starts
// inside the input or the leading padding (PyTorch's pooling_output_shape).
int64_t Extent(int64_t in, int64_t kernel, int64_t stride, int64_t pad_before, int64_t pad_after,
               int64_t dilation, bool ceil_mode) {
  const int64_t room = in + pad_before + pad_after - dilation * (kernel - 1) - 1;
  if (room < 0 || in == 0) return 0;
  int64_t count = room / stride + 1;
  if (ceil_mode && room % stride != 0 && count * stride < in + pad_before) ++count;
  return count;
}

// M and K of a case with a window.
int64_t RowsOf(const Case& c) { return c.window.batch * c.window.out_h() * c.window.out_w(); }
int64_t TermsOf(const Case& c) {
  const Window& v = c.window;
  return v.kernel_h * v.kernel_w * (IsConv(c.op) ? v.in_c / v.groups : 1);
}

std::string CheckWindow(const Case& c) {
  if (!HasWindow(c.op)) return "";
  // Bounds that keep derived sizes from overflowing. Readers bound the dimensions of tensors too.
  constexpr int64_t kMost = int64_t{1} << 20;
  const Window& v = c.window;
  const bool conv = IsConv(c.op);
  std::string error;
  ForEachWindowNumber(c, [&](const Field& field, int64_t number) {
    if (!error.empty() || (number >= field.least && number <= kMost)) return;
    error = Wrong(conv && field.name == "C" ? "IC" : field.name,
                  "is " + std::to_string(number) + ", expected " + std::to_string(field.least) +
                      ".." + std::to_string(kMost));
  });
  QUALM_RETURN_IF_ERROR(error);
  if (conv) {
    if (v.in_c % v.groups != 0 || c.N % v.groups != 0)
      return Wrong("groups", "does not divide the input and output channels");
    if (RowOf(c.op).depthwise && v.groups != v.in_c)
      return Wrong("groups", "a depthwise convolution has one group per input channel");
  } else {
    if (v.groups != 1) return Wrong("groups", "only convolutions have them");
    if (c.N != v.in_c) return Wrong("C", "a pool has as many output as input channels");
  }
  if ((v.dilation_h != 1 || v.dilation_w != 1) && !RowOf(c.op).dilation)
    return DoesNotBelong("dilation", c.op);
  if (RowsOf(c) != c.M || TermsOf(c) != c.K) return Wrong("M", "does not follow from the window");
  if (RowOf(c.op).whole_image && (v.kernel_h != std::max<int64_t>(v.in_h, 1) ||
                                  v.kernel_w != std::max<int64_t>(v.in_w, 1) || v.has_padding()))
    return Wrong("R", "the window of " + std::string(Name(c.op)) + " is the whole image");
  // A window without a single input element has no maximum, and its average divides by zero. A
  // window is rows times columns, so each axis can be checked alone.
  if (IsPool(c.op) && !v.count_include_pad && c.M > 0 &&
      !(EveryWindowMeetsInput(v.out_h(), v.in_h, v.kernel_h, v.stride_h, v.pad_top, v.dilation_h) &&
        EveryWindowMeetsInput(v.out_w(), v.in_w, v.kernel_w, v.stride_w, v.pad_left, v.dilation_w)))
    return Wrong("pad", "a window lies wholly in the padding");
  return "";
}

std::string CheckDType(std::string_view field, DType dtype, const DTypeList& allowed) {
  if (allowed.contains(dtype)) return "";
  return Wrong(field, "type not possible here, expected " + Join(allowed));
}

// Codes of ue4m3 end below its byte: the bit of the sign is padding.
std::string CheckPadding(const Tensor& x) {
  if (x.dtype() != DType::kUE4M3) return "";
  for (int64_t i = 0; i < x.size(); ++i) {
    if (x.IntAt(i) > RangeOf(x.dtype()).max)
      return Wrong("x", "a code of ue4m3 has its highest bit, expected 0..127");
  }
  return "";
}

// Checks the parameters by which scales and zero points are chosen.
std::string CheckChoice(const Observer& o) {
  if (!IsByteCode(o.dtype)) return Wrong("dtype", "type not possible here, expected u8 or s8");
  const CodeRange range = RangeOf(o.dtype);
  if (o.quant_min < range.min || o.quant_max > range.max || o.quant_min >= o.quant_max)
    return Wrong("quant_min", "expected quant_min < quant_max, both inside the type");
  // PyTorch (MinMaxObserver._validate_qmin_qmax): 0 must be a code.
  if (o.quant_min > 0 || o.quant_max < 0)
    return Wrong("quant_min", "expected quant_min <= 0 <= quant_max");
  if (o.reduce_range && o.quant_min >> 1 == o.quant_max >> 1)
    return Wrong("reduce_range", "leaves a single code");
  // PyTorch: "Cannot reduce range for symmetric quantization for quint8".
  if (o.reduce_range && o.symmetric && o.dtype == DType::kU8)
    return Wrong("reduce_range", "does not go with symmetric u8");
  return "";
}

// The choice of scale and zero point.
std::string CheckRule(const Case& c) {
  if (!RowOf(c.op).rule) return "";
  const Observer& o = c.observer;
  const std::string rule(Name(c.rule));
  if (IsMx(c.rule)) {
    if (RowOf(c.op).dynamic) return Wrong("qparams_rule", rule + " is of choose_qparams alone");
    if (o != Observer{.dtype = o.dtype})
      return Wrong("observer", rule + " goes with min_max and no other parameter");
    return CheckDType("dtype", o.dtype, kMxElements);
  }
  QUALM_RETURN_IF_ERROR(CheckChoice(o));
  if (c.rule == QParamsRule::kObserver)
    return c.codes ? Wrong("codes", "goes with another qparams_rule than observer") : "";
  if (o.kind != Observer::Kind::kMinMax) return Wrong("observer", rule + " goes with min_max");
  if (o.dtype != DType::kU8) return Wrong("dtype", rule + " chooses for u8 codes");
  if (o.symmetric) return Wrong("symmetric", rule + " is affine");
  if (CodeRange{o.quant_min, o.quant_max} != RangeOf(o.dtype))
    return Wrong("quant_min", rule + " spreads over all codes");
  if (c.rule == QParamsRule::kOnnx && o.reduce_range)
    return Wrong("reduce_range", rule + " has none");
  return "";
}

std::string CheckObserver(const Case& c) {
  if (!RowOf(c.op).observer) return "";
  const Observer& o = c.observer;
  if (c.x.dtype() != DType::kF32) return Wrong("x_dtype", "type not possible here, expected f32");
  if (c.out_dtype != DType::kF32) return Wrong("out_dtype", "type not possible here, expected f32");
  if (c.x.shape().size() != 3 || c.x.shape()[1] != c.M || c.x.shape()[2] != c.N)
    return Wrong("x", "does not have the shape [batches,M,N]");
  if (c.x.shape()[0] < 1 || c.M < 1 || c.N < 1)
    return Wrong("x", "is empty, expected something to observe");

  if (c.per_channel && o.kind == Observer::Kind::kHistogram)
    return Wrong("gran", "the histogram observer is per tensor");
  const auto batches = static_cast<size_t>(c.x.shape()[0]);
  const size_t count = c.x.as<float>().size() / batches;
  double first_span = 0;  // of the first batch that holds two different values
  double least = INFINITY, most = -INFINITY;
  for (size_t b = 0; b < batches; ++b) {
    double low = INFINITY, high = -INFINITY;
    for (const float value : c.x.as<float>().subspan(b * count, count)) {
      // PyTorch asserts min <= max, which NaN fails; an infinity gives no scale.
      if (!std::isfinite(value)) return Wrong("x", "has a value that is not finite");
      low = std::min<double>(low, value);
      high = std::max<double>(high, value);
    }
    least = std::min(least, low);
    most = std::max(most, high);
    if (first_span == 0) first_span = high - low;
  }
  // Otherwise the difference of two batches overflows, and then min > max.
  if (o.kind == Observer::Kind::kMovingAverage && std::max(-least, most) > 0x1p126)
    return Wrong("x", "moving averages are of values up to 2^126");
  if (o.kind != Observer::Kind::kHistogram) return "";
  // Larger values have no room for a bin on either side; float32 counts end at 2^24. Bins narrower
  // than 2^-71 or more than 2^28 parts of a combined histogram: PyTorch divides by zero, or runs
  // out of memory.
  if (std::max(-least, most) > 0x1p24 || count > size_t{1} << 24)
    return Wrong("x", "a histogram is of up to 2^24 values of up to 2^24");
  if (first_span > 0 && (first_span < 0x1p-60 || most - least > 0x1p10 * first_span))
    return Wrong("x", "the first batch of a histogram must span 2^-60, and 2^-10 of all values");
  return "";
}

}  // namespace

int64_t Window::out_h() const {
  return Extent(in_h, kernel_h, stride_h, pad_top, pad_bottom, dilation_h, ceil_mode);
}
int64_t Window::out_w() const {
  return Extent(in_w, kernel_w, stride_w, pad_left, pad_right, dilation_w, ceil_mode);
}

std::vector<int64_t> Case::output_shape() const {
  switch (RowOf(op).layout) {
    case Layout::kElements:
    case Layout::kProducts:
    case Layout::kColumns: return {M, N};
    case Layout::kConv:
    case Layout::kPool: return {window.batch, window.out_h(), window.out_w(), N};
    case Layout::kBatches:
      if (codes) return {1, 2 * ChosenCount(*this) + x.size()};
      return {2, ChosenCount(*this)};
  }
  return {};
}

bool Case::HoldsOutput(const Tensor& y) const {
  return y.dtype() == out_dtype && y.shape() == output_shape();
}

std::vector<int64_t> ShapeOfX(const Case& c) {
  const std::vector<int64_t>& given = c.x.shape();
  switch (RowOf(c.op).layout) {
    case Layout::kElements: return {c.M, c.N};
    case Layout::kProducts: return {c.M, c.K};
    case Layout::kConv:
    case Layout::kPool: return {c.window.batch, c.window.in_h, c.window.in_w, c.window.in_c};
    case Layout::kColumns: return {c.M, given.size() == 2 ? given[1] : 0};
    case Layout::kBatches: return {given.size() == 3 ? given[0] : 0, c.M, c.N};
  }
  return {};
}

std::vector<int64_t> ShapeOfW(const Case& c) {
  if (!HasW(c.op)) return {0};
  const Window& v = c.window;
  switch (RowOf(c.op).layout) {
    case Layout::kElements: return {c.M, c.N};
    case Layout::kProducts: return {c.N, c.K};
    case Layout::kConv: return {c.N, v.kernel_h, v.kernel_w, v.in_c / v.groups};
    case Layout::kColumns: return {c.M, c.N - ShapeOfX(c)[1]};
    case Layout::kPool:
    case Layout::kBatches: break;
  }
  return {0};
}

const QParams& ChannelQParams(const Case& c) {
  switch (RowOf(c.op).per_channel) {
    case PerChannel::kX: return c.x_q;
    case PerChannel::kOut:
    case PerChannel::kXAndOut: return c.out_q;
    case PerChannel::kW:
    case PerChannel::kNone:
    case PerChannel::kRows: break;
  }
  return c.w_q;
}
QParams& ChannelQParams(Case& c) { return const_cast<QParams&>(ChannelQParams(std::as_const(c))); }

QParams FixedOutQParams(DType out_dtype) { return {{0x1p-8f}, {RangeOf(out_dtype).min}}; }

bool UsesMultiplier(const Case& c) {
  if (!RowOf(c.op).multiplier) return false;
  if (!c.multiplier.empty()) return true;
  return c.per_channel && c.N == 0 && c.x_q == QParams{} && c.w_q == QParams{};
}

bool EveryWindowMeetsInput(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t pad,
                           int64_t dilation) {
  for (int64_t i = 0; i < out; ++i) {
    const int64_t first = i * stride - pad;
    // The first tap at or after 0.
    const int64_t skipped = first >= 0 ? 0 : (-first + dilation - 1) / dilation;
    if (skipped >= kernel || first + skipped * dilation >= in) return false;
  }
  return true;
}

void DeriveSizes(Case* c) {
  if (!HasWindow(c->op)) return;
  if (IsPool(c->op)) c->N = c->window.in_c;
  c->M = RowsOf(*c);
  c->K = TermsOf(*c);
}

std::vector<Tap> TapsOf(const Window& v, int64_t m) {
  const int64_t out_h = v.out_h(), out_w = v.out_w();
  QUALM_CHECK(out_h > 0 && out_w > 0);  // no output, no taps
  const int64_t image = m / (out_h * out_w);
  const int64_t top = m / out_w % out_h * v.stride_h - v.pad_top;
  const int64_t left = m % out_w * v.stride_w - v.pad_left;
  std::vector<Tap> taps;
  for (int64_t r = 0; r < v.kernel_h; ++r) {
    for (int64_t s = 0; s < v.kernel_w; ++s) {
      const int64_t y = top + r * v.dilation_h, x = left + s * v.dilation_w;
      const bool inside = y >= 0 && y < v.in_h && x >= 0 && x < v.in_w;
      taps.push_back({r, s, inside ? ((image * v.in_h + y) * v.in_w + x) * v.in_c : -1});
    }
  }
  return taps;
}

bool IsClamped(const Case& c) { return CodeRange{c.out_min, c.out_max} != RangeOf(c.out_dtype); }

void OpenClamp(Case* c) {
  const CodeRange range = RangeOf(c->out_dtype);
  c->out_min = range.min;
  c->out_max = range.max;
}

Case CaseOver(Op op, Tensor x, DType out_dtype) {
  Case c;
  c.op = op;
  c.M = x.shape()[0];
  c.N = x.shape()[1];
  c.x = std::move(x);
  c.out_dtype = out_dtype;
  OpenClamp(&c);
  return c;
}

std::span<const float> ListOf(const Case& c, Printed::List list) {
  const OpRow& row = RowOf(c.op);
  const bool product = row.multiplier && !UsesMultiplier(c);
  switch (list) {
    case Printed::List::kX:
      return c.x.dtype() == DType::kF32 ? c.x.as<float>() : std::span<const float>();
    case Printed::List::kXScale:
      if (row.multiplier ? product : HasXQParams(c) || row.cast) return c.x_q.scale;
      return {};
    case Printed::List::kWScale:
      if (product || HasW(c.op)) return c.w_q.scale;
      return {};
    case Printed::List::kOutScale:
      if (row.out_q == OutQParams::kOwn || row.cast) return c.out_q.scale;
      return {};
    case Printed::List::kMultiplier: return c.multiplier;
    case Printed::List::kBias:
      if (c.bias) return *c.bias;
      return {};
  }
  return {};
}

int64_t LowerBound(const Case& c, int64_t channel) {
  // Without a channel (per-channel parameters, N = 0) there is no zero point to look at.
  if (!c.relu || c.out_q.zero_point.empty()) return c.out_min;
  const int64_t zero = c.out_dtype == DType::kS32 ? 0 : c.out_q.zero_point_at(channel);
  return std::max<int64_t>(c.out_min, zero);
}

Case ProblemOf(const Case& c) {
  Case problem = c;
  static const Case without;
  ForEachRemark(problem, without,
                [](const Field& /*field*/, auto& value, const auto& nothing) { value = nothing; });
  return problem;
}

namespace {

// Appends values to a key so that different lists of values never give the same bytes.
class KeyWriter {
 public:
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Put(T value) {
    key_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  void Put(const std::vector<T>& list) {
    Put(list.size());
    key_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
  }
  template <class T>
  void Put(const std::optional<T>& value) {
    Put(value.has_value());
    if (value) Put(*value);
  }
  void Put(const QParams& q) {
    Put(q.scale);
    Put(q.zero_point);
  }
  void Put(const Tensor& tensor) {
    Put(tensor.dtype());
    Put(tensor.shape());
    key_.append(tensor.bytes().begin(), tensor.bytes().end());
  }
  std::string Take() { return std::move(key_); }

 private:
  std::string key_;
};

}  // namespace

std::string ProblemKey(const Case& c) {
  KeyWriter key;
  ForEachField(c, [&](const Field& /*field*/, const auto& value) { key.Put(value); });
  return key.Take();
}

namespace {

template <class T>
size_t Listed(const T& /*one value or a tensor*/) {
  return 0;
}
template <class T>
size_t Listed(const std::vector<T>& list) {
  return list.size();
}
template <class T>
size_t Listed(const std::optional<T>& list) {
  return list ? Listed(*list) : 0;
}
size_t Listed(const QParams& q) { return q.scale.size() + q.zero_point.size(); }

}  // namespace

size_t ListedValues(const Case& c) {
  size_t count = 0;
  ForEachField(c, [&](const Field& /*field*/, const auto& value) { count += Listed(value); });
  return count;
}

namespace {

// Bit i: the operation has the parameter that ForEachParameter visits after i others.
uint64_t ParametersOf(Op op) {
  static const std::array<uint64_t, kOpCount> parameters = [] {
    std::array<uint64_t, kOpCount> every{};
    for (const Op each : AllOps()) {
      const Case any;
      uint64_t bit = 1;
      ForEachParameter(any, [&](const Field& field, const auto& /*value*/) {
        if (RowOf(each).*field.has) every[static_cast<size_t>(each)] |= bit;
        bit <<= 1;
      });
    }
    return every;
  }();
  return parameters[static_cast<size_t>(op)];
}

// A parameter that the operation does not have keeps its default.
std::string CheckFieldsBelong(const Case& c) {
  static const Case without;
  // As bits of a number first, and with their names only where one is wrong.
  uint64_t set = 0, bit = 1;
  ForEachParameter(c, without, [&](const Field& /*field*/, const auto& value, const auto& nothing) {
    set |= value == nothing ? 0 : bit;
    bit <<= 1;
  });
  if ((set & ~ParametersOf(c.op)) == 0)
    return HasW(c.op) || c.w.empty() ? "" : DoesNotBelong("w", c.op);
  std::string error;
  ForEachParameter(c, without, [&](const Field& field, const auto& value, const auto& nothing) {
    if (!error.empty() || RowOf(c.op).*field.has || value == nothing) return;
    error = DoesNotBelong(field.name, c.op);
  });
  return error;
}

std::string CheckTypes(const Case& c) {
  const OpRow& row = RowOf(c.op);
  const DTypeList& out = KeepsType(c.op) ? row.x_types : row.out_types;
  if (!HasFloatX(c)) {
    QUALM_RETURN_IF_ERROR(
        CheckDType("x_dtype", c.x.dtype(), row.float_x ? kCodesOrFloat : row.x_types));
  }
  if (row.layout == Layout::kColumns && (c.x.shape().size() != 2 || c.x.shape()[1] > c.N))
    return Wrong("x", "does not have the shape [M,A] with A <= N");
  QUALM_RETURN_IF_ERROR(CheckTensor("x", c.x, ShapeOfX(c)));
  QUALM_RETURN_IF_ERROR(CheckPadding(c.x));
  if (HasWeights(c.op)) {
    QUALM_RETURN_IF_ERROR(CheckDType("w_dtype", c.w.dtype(), kWeightCodes));
  } else if (row.second == Second::kInput && c.w.dtype() != c.x.dtype()) {
    return Wrong("w_dtype", "type not possible here, expected the type of x");
  }
  if (HasW(c.op)) QUALM_RETURN_IF_ERROR(CheckTensor("w", c.w, ShapeOfW(c)));
  return CheckDType("out_dtype", c.out_dtype, out);
}

// The output of some operations has fixed parameters, or those of the input.
std::string CheckOutQParams(const Case& c) {
  const std::string name(Name(c.op));
  switch (RowOf(c.op).out_q) {
    case OutQParams::kNone:
    case OutQParams::kOwn: return "";
    case OutQParams::kOfInput:
      if (c.x_q == c.out_q && c.x.dtype() == c.out_dtype) return "";
      return Wrong("out_scale", name + " keeps the type and qparams of its input");
    case OutQParams::kFixed:
      if (c.out_q.scale != FixedOutQParams(c.out_dtype).scale)
        return Wrong("out_scale", "of " + name + " is 0x1p-8");
      if (c.out_q.zero_point != FixedOutQParams(c.out_dtype).zero_point)
        return Wrong("out_zp", "of " + name + " is the lowest code of the output type");
      if (c.x.dtype() == c.out_dtype) return "";
      return Wrong("out_dtype", "of " + name + " is the type of its input");
  }
  return "";
}

// Blocks along K of the weights. No unit is common to the blocks of a channel, so nothing that
// counts in units of x_scale*w_scale goes with them.
std::string CheckBlocks(const Case& c) {
  if (HasElementBlocks(c)) {
    if (c.x_block < 0) return Wrong("x_block", "must be >= 0");
    if (c.per_channel)
      return Wrong("x_block", "blocks lie within rows, expected gran tensor beside them");
    if (c.relu) return Wrong("relu", "has no one bound beside x_block, expected false");
    if (c.M == 0 || c.N == 0)
      return Wrong("x_block", "x is empty, expected elements to make blocks of");
    return "";
  }
  if (c.x_block != 0) {
    if (c.x_block != c.w_block)
      return Wrong("x_block", "is " + std::to_string(c.x_block) + " beside w_block " +
                                  std::to_string(c.w_block) + ", expected 0 or the same");
    if (HasFloatX(c)) return Wrong("x_block", "x is f32, expected no blocks of it");
    if (c.M == 0) return Wrong("x_block", "M is 0, expected rows to make blocks of");
    if (c.out_dtype != DType::kF32)
      return Wrong("x_block", "a scale for each block of x and w, expected out_dtype f32");
  }
  if (c.w_block == 0) return "";
  if (c.w_block < 0) return Wrong("w_block", "must be >= 0");
  if (!c.per_channel) return Wrong("w_block", "blocks lie within channels, expected gran channel");
  if (c.K == 0) return Wrong("w_block", "K is 0, expected weights to make blocks of");
  if (c.out_dtype == DType::kS32)
    return Wrong("w_block", "a sum of blocks has no unit, expected out_dtype u8, s8 or f32");
  if (c.bias_i32)
    return Wrong("bias_i32", "has no unit beside w_block, expected bias, in real units");
  if (c.requant != Requant::kExact)
    return Wrong("requant", "has no accumulator beside w_block, expected exact");
  return "";
}

// A sum of float32 numbers has no unit but 1, and stays a real number.
std::string CheckFloatX(const Case& c) {
  if (!HasFloatX(c)) return "";
  if (c.x_q != QParams{}) return Wrong("x_scale", "x is f32, expected no scale and no zero point");
  if (c.out_dtype != DType::kF32)
    return Wrong("out_dtype", "type not possible beside x of f32, expected f32");
  if (c.bias_i32) return Wrong("bias_i32", "has no unit beside x of f32, expected bias");
  const std::span<const float> values = c.x.as<float>();
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return "";
  return Wrong("x", "element " + std::to_string(bad - values.begin()) +
                        " is not finite, expected a number: NaN and infinities drown the sum");
}

// A cast has two lists of scales, and no zero points.
std::string CheckCastScales(const Case& c) {
  if (!RowOf(c.op).cast) return "";
  const bool blocks = c.x_block != 0;
  for (const auto& [name, q] : {std::pair{"x", &c.x_q}, {"out", &c.out_q}}) {
    QUALM_RETURN_IF_ERROR(CheckQParams(name, *q, c.per_channel || blocks, blocks ? c.M : c.N,
                                       blocks ? ElementBlocks(c) : 1, blocks ? "row" : "channel"));
    if (std::ranges::any_of(q->zero_point, [](int32_t z) { return z != 0; }))
      return Wrong(std::string(name) + "_zp", "a cast has none, expected 0");
  }
  return "";
}

std::string CheckAllQParams(const Case& c) {
  const OpRow& row = RowOf(c.op);
  const auto check = [&](std::string_view operand, const QParams& q, PerChannel list) {
    return CheckQParams(operand, q, c.per_channel && row.per_channel == list, c.N,
                        list == PerChannel::kW ? RowBlocks(c) : 1, "channel");
  };
  if (row.cast) return "";  // CheckCastScales
  if (UsesMultiplier(c)) {
    QUALM_RETURN_IF_ERROR(CheckScales("multiplier", c.multiplier));
    QUALM_RETURN_IF_ERROR(CheckLength("multiplier", c.multiplier.size(), c.per_channel, c.N));
    return check("out", c.out_q, PerChannel::kOut);
  }
  if (HasElementBlocks(c)) {
    const bool of_x = row.per_channel == PerChannel::kX;
    return CheckQParams(of_x ? "x" : "out", ChannelQParams(c), true, c.M, ElementBlocks(c), "row");
  }
  if (c.x_block != 0) {
    QUALM_RETURN_IF_ERROR(CheckQParams("x", c.x_q, true, c.M, RowBlocks(c), "row"));
  } else if (HasXQParams(c)) {
    QUALM_RETURN_IF_ERROR(check("x", c.x_q, PerChannel::kX));
  }
  if (HasW(c.op) || row.multiplier) QUALM_RETURN_IF_ERROR(check("w", c.w_q, PerChannel::kW));
  if (row.out_q != OutQParams::kNone)
    QUALM_RETURN_IF_ERROR(check("out", c.out_q, PerChannel::kOut));
  QUALM_RETURN_IF_ERROR(CheckOutQParams(c));
  if (row.per_channel == PerChannel::kNone && c.per_channel)
    return Wrong("gran", "only per tensor here");
  return "";
}

std::string CheckBias(const Case& c) {
  if (c.bias && c.bias_i32) return Wrong("bias_i32", "bias is given too, expected one of the two");
  const auto channels = static_cast<size_t>(c.N);
  if (c.bias) {
    if (c.bias->size() != channels) return Wrong("bias", "expected one entry per output channel");
    for (size_t i = 0; i < channels; ++i) {
      if (!std::isfinite((*c.bias)[i]))
        return Wrong("bias", "entry " + std::to_string(i) + " must be finite");
    }
    if (c.out_dtype == DType::kS32)
      return Wrong("bias", "an s32 output takes bias_i32, not a float bias");
  }
  if (c.bias_i32 && c.bias_i32->size() != channels)
    return Wrong("bias_i32", "expected one entry per output channel");
  return "";
}

std::string CheckClamp(const Case& c) {
  const CodeRange range = RangeOf(c.out_dtype);
  if (c.out_min < range.min || c.out_min > range.max)
    return Wrong("out_min", "outside the output type");
  if (c.out_max < range.min || c.out_max > range.max)
    return Wrong("out_max", "outside the output type");
  if (c.out_min > c.out_max) return Wrong("out_min", "is greater than out_max");
  if (IsFloat(c.out_dtype) && IsClamped(c)) return Wrong("out_min", "a float output has no clamp");
  return "";
}

// The range of each parameter that is a number (FieldsOf).
std::string CheckRanges(const Case& c) {
  static const Case without;
  bool same = true;  // every number has its default, which lies in its range
  ForEachParameter(c, without,
                   [&]<class T>(const Field& /*field*/, const T& value, const T& usual) {
                     if constexpr (std::is_same_v<T, float> || std::is_same_v<T, int32_t>)
                       same = same && value == usual;
                   });
  if (same) return "";
  std::string error;
  ForEachParameter(c, [&]<class T>(const Field& field, const T& value) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, int32_t>) {
      if (!error.empty() || IsInRange(field, value)) return;
      const auto text = [](double bound) {
        const bool whole = bound == std::floor(bound) && std::fabs(bound) < 0x1p31;
        return whole ? std::to_string(static_cast<int64_t>(bound))
                     : FloatText(static_cast<float>(bound));
      };
      const bool open = field.highest == Field{}.highest;
      error =
          Wrong(field.name, open ? "must be finite and >= " + text(field.lowest)
                                 : "expected " + text(field.lowest) + ".." + text(field.highest));
    }
  });
  return error;
}

std::string CheckParameters(const Case& c) {
  if (c.requant != Requant::kExact) {
    if (!IsCode(c.out_dtype)) return Wrong("requant", "only outputs of codes are requantized");
    if (c.bias) return Wrong("requant", "takes bias_i32, not a float bias, unless exact");
  }
  QUALM_RETURN_IF_ERROR(CheckRanges(c));
  if (!RowOf(c.op).function) return "";
  if (c.function != Function::kLeakyRelu && c.negative_slope != Case{}.negative_slope)
    return Wrong("negative_slope", "only leaky_relu has it");
  return "";
}

std::string CheckSizes(const Case& c) {
  if (c.M < 0) return Wrong("M", "must be >= 0");
  if (c.N < 0) return Wrong("N", "must be >= 0");
  if (c.K < 0) return Wrong("K", "must be >= 0");
  if (RowOf(c.op).layout != Layout::kProducts && !HasWindow(c.op) && c.K != 0)
    return Wrong("K", "only sums have it");
  if (!HasWindow(c.op) && c.window != Window{})
    return Wrong("window", "only convolutions and pools have it");
  return "";
}

std::string CheckRemarks(const Case& c) {
  if (c.expected && !c.HoldsOutput(*c.expected))
    return Wrong("expected", "does not have the type and shape of the output");
  if (c.observed && !c.HoldsOutput(c.observed->y))
    return Wrong("observed", "does not have the type and shape of the output");
  if (c.observed) {
    int64_t before = -1;
    for (const auto& [index, text] : c.observed->printed) {
      if (index <= before || index >= c.observed->y.size() || c.out_dtype != DType::kF32 ||
          !ParseDecimal(text) || ParseFloatText(text) != c.observed->y.FloatAt(index))
        return Wrong("observed", "a printed number stands for another value");
      before = index;
    }
  }
  const Printed* before = nullptr;
  for (const Printed& number : c.printed) {
    const std::span<const float> values = ListOf(c, number.list);
    if (number.index < 0 || number.index >= static_cast<int64_t>(values.size()) ||
        !ParseDecimal(number.text) ||
        ParseFloatText(number.text) != values[static_cast<size_t>(number.index)])
      return Wrong("printed", "a number stands for another value");
    if (before != nullptr &&
        std::tie(before->list, before->index) >= std::tie(number.list, number.index))
      return Wrong("printed", "numbers are not in order");
    before = &number;
  }
  return "";
}

}  // namespace

std::string Validate(const Case& c) {
  // In this order: a check may rely on what the checks before it found right.
  for (const auto check : {CheckFieldsBelong, CheckSizes, CheckWindow, CheckRule, CheckObserver,
                           CheckTypes, CheckBlocks, CheckFloatX, CheckCastScales, CheckAllQParams,
                           CheckParameters, CheckBias, CheckClamp, CheckRemarks}) {
    QUALM_RETURN_IF_ERROR(check(c));
  }
  return "";
}

std::string TypesText(const Case& c) {
  std::string text(Name(c.x.dtype()));
  if (HasW(c.op)) text += "*" + std::string(Name(c.w.dtype()));
  return text + "->" + std::string(Name(c.out_dtype));
}

namespace {

// The words of Describe for a parameter that is not the default.
template <class T>
std::string ParameterText(const Field& field, const T& value) {
  const std::string name(field.name);
  if constexpr (std::is_same_v<T, DType> || std::is_same_v<T, Granularity> ||
                std::is_same_v<T, FloatRounding> || std::is_same_v<T, FloatOverflow>) {
    return name + "=" + std::string(Name(value));
  } else if constexpr (NamedEnum<T>) {
    return std::string(Name(value));
  } else if constexpr (std::is_same_v<T, float>) {
    return name + "=" + FloatText(value);
  } else if constexpr (std::is_same_v<T, int32_t>) {
    return name + "=" + std::to_string(value);
  } else {
    return name;  // a flag, or a list
  }
}

std::string WindowText(const Case& c) {
  const Window& v = c.window;
  const auto pair = [](int64_t a, int64_t b) {
    return a == b ? std::to_string(a) : std::to_string(a) + "x" + std::to_string(b);
  };
  std::string text = std::to_string(v.batch) + "x" + std::to_string(v.in_h) + "x" +
                     std::to_string(v.in_w) + "x" + std::to_string(v.in_c) + " kernel " +
                     std::to_string(v.kernel_h) + "x" + std::to_string(v.kernel_w);
  if (IsConv(c.op)) text += " -> " + std::to_string(c.N);
  if (v.stride_h != 1 || v.stride_w != 1) text += " stride " + pair(v.stride_h, v.stride_w);
  if (v.has_padding()) {
    text += " pad " + std::to_string(v.pad_top) + "," + std::to_string(v.pad_bottom) + "," +
            std::to_string(v.pad_left) + "," + std::to_string(v.pad_right);
  }
  if (v.dilation_h != 1 || v.dilation_w != 1)
    text += " dilation " + pair(v.dilation_h, v.dilation_w);
  if (v.groups != 1) text += " groups " + std::to_string(v.groups);
  return text;
}

}  // namespace

std::string Describe(const Case& c) {
  std::string text(Name(c.op));
  text += HasWindow(c.op) ? " " + WindowText(c)
                          : " M=" + std::to_string(c.M) + " N=" + std::to_string(c.N);
  if (RowOf(c.op).layout == Layout::kProducts) text += " K=" + std::to_string(c.K);
  text += " " + TypesText(c) + (c.per_channel ? " per-channel" : " per-tensor");
  const Case usual;
  ForEachParameter(c, usual, [&](const Field& field, const auto& value, const auto& unsaid) {
    if (RowOf(c.op).*field.has && (field.is_required(c.op) || value != unsaid))
      text += " " + ParameterText(field, value);
  });
  if (IsScaledCast(c)) {
    for (const auto& [name, q] : {std::pair{"x_scale", &c.x_q}, {"out_scale", &c.out_q}}) {
      if (q->scale.size() > 1) {
        text += " " + std::string(name) + "s";
      } else if (q->scale != QParams{}.scale && !q->scale.empty()) {
        text += " " + std::string(name) + "=" + FloatText(q->scale[0]);
      }
    }
  }
  if (IsClamped(c))
    text += " clamp=" + std::to_string(c.out_min) + ".." + std::to_string(c.out_max);
  return text;
}

}  // namespace qualm
