// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fit.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <span>

#include "core/status.h"

namespace qualm::fuzz {
namespace {

bool HasChannelLists(Op op) {
  return op == Op::kQuantize || op == Op::kDequantize || op == Op::kRequantize || HasSums(op);
}

int64_t CeilOfQuotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Whether each of the `out` windows along one axis has a tap inside [0, in).
bool EveryWindowMeetsInput(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t pad,
                           int64_t dilation) {
  for (int64_t i = 0; i < out; ++i) {
    bool meets = false;
    for (int64_t tap = 0; tap < kernel && !meets; ++tap) {
      const int64_t at = i * stride - pad + tap * dilation;
      meets = at >= 0 && at < in;
    }
    if (!meets) return false;
  }
  return true;
}

// A pool without padding has no window wholly in it: this ends.
void KeepWindowsOnInput(Window* v) {
  while (!EveryWindowMeetsInput(v->out_h(), v->in_h, v->kernel_h, v->stride_h, v->pad_top,
                                v->dilation_h)) {
    --(v->pad_top > v->pad_bottom ? v->pad_top : v->pad_bottom);
  }
  while (!EveryWindowMeetsInput(v->out_w(), v->in_w, v->kernel_w, v->stride_w, v->pad_left,
                                v->dilation_w)) {
    --(v->pad_left > v->pad_right ? v->pad_left : v->pad_right);
  }
}

void ClampWindow(Op op, Window* v) {
  const auto clamp = [](int64_t* value, int64_t low, int64_t high) {
    *value = std::clamp(*value, low, high);
  };
  clamp(&v->batch, 0, LimitsOf(Op::kConv2d).m);
  for (int64_t* size : {&v->in_h, &v->in_w}) clamp(size, 0, MaxImage(op));
  for (int64_t* size : {&v->kernel_h, &v->kernel_w}) clamp(size, 1, MaxKernel(op));
  for (int64_t* step : {&v->stride_h, &v->stride_w, &v->dilation_h, &v->dilation_w})
    clamp(step, 1, kMaxStep);
  for (int64_t* pad : {&v->pad_top, &v->pad_bottom, &v->pad_left, &v->pad_right})
    clamp(pad, 0, kMaxPad);
}

// Channels and groups of a convolution: as many of each in every group.
void FitConvChannels(Case* c) {
  Window& v = c->window;
  const Limits limits = LimitsOf(c->op);
  v.ceil_mode = v.count_include_pad = false;
  v.groups = c->op == Op::kDepthwise ? std::clamp<int64_t>(v.in_c, 1, kMaxChannels)
                                     : std::clamp<int64_t>(v.groups, 1, kMaxGroups);
  const int64_t inputs = c->op == Op::kDepthwise ? 1 : CeilOfQuotient(v.in_c, v.groups);
  v.in_c = v.groups * std::min(limits.k, inputs);
  c->N = v.groups * std::min(limits.n, CeilOfQuotient(c->N, v.groups));
}

void FitPool(Case* c) {
  Window& v = c->window;
  v.groups = 1;
  if (!RowOf(c->op).ceil_mode) v.ceil_mode = false;
  v.in_c = std::min(v.in_c, LimitsOf(c->op).n);
  if (c->op != Op::kMaxPool) v.dilation_h = v.dilation_w = 1;
  if (c->op != Op::kAvgPool) v.count_include_pad = false;
  if (c->op == Op::kGlobalAvgPool) {
    v.kernel_h = std::max<int64_t>(v.in_h, 1);
    v.kernel_w = std::max<int64_t>(v.in_w, 1);
    v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = 0;
  }
  if (!v.count_include_pad) KeepWindowsOnInput(&v);
}

// One step towards less work: images before pixels before channels, so that tails of vectors stay.
void Lessen(Case* c) {
  Window& v = c->window;
  const int64_t outputs = c->N / v.groups, inputs = v.in_c / v.groups;
  constexpr int64_t kFew = 4;
  if (v.batch > 1) {
    v.batch = 1;
  } else if (IsPool(c->op) && c->K > kMaxKernel * kMaxKernel && v.in_c > kFew) {
    v.in_c = kFew;  // for large windows channels are what there are too many of
  } else if (c->M > kFew && std::max(v.in_h, v.in_w) > 1) {
    --(v.in_h > v.in_w ? v.in_h : v.in_w);
  } else if (c->op == Op::kConv2d && outputs > kFew) {
    c->N = outputs / 2 * v.groups;
  } else if (c->op == Op::kConv2d && inputs > 1) {
    v.in_c = inputs / 2 * v.groups;
  } else if (c->op != Op::kConv2d && v.in_c > 1) {
    v.in_c /= 2;
    if (IsConv(c->op)) c->N = outputs * v.in_c;
  } else {
    v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = 0;
  }
}

void FitTypes(Case* c) {
  DType x = IsCode(c->x.dtype()) ? c->x.dtype() : DType::kU8;
  if (c->op == Op::kQuantize || c->op == Op::kChooseQParams) x = DType::kF32;
  if (c->op == Op::kRequantize) x = DType::kS32;
  c->x = Reshaped(c->x, x, FittedShapeOfX(*c));
  DType w = HasSums(c->op) && IsCode(c->w.dtype()) ? c->w.dtype() : DType::kU8;
  if (HasTwoInputs(c->op)) w = x;
  c->w = HasW(c->op) ? Reshaped(c->w, w, FittedShapeOfW(*c)) : Tensor();
  if (c->op == Op::kMaxPool || c->op == Op::kSoftmax) {
    c->out_dtype = x;
  } else if (c->op == Op::kDequantize || c->op == Op::kChooseQParams) {
    c->out_dtype = DType::kF32;
  } else if (!HasSums(c->op) && !IsCode(c->out_dtype)) {
    c->out_dtype = DType::kU8;
  }
}

// Parameters without a meaning for the op stay default, so that equal problems compare equal.
void FitQParams(Case* c) {
  if (c->op != Op::kRequantize) c->multiplier.clear();
  if (c->op == Op::kQuantize || c->op == Op::kChooseQParams) c->x_q = QParams{};
  if (!HasW(c->op) && c->op != Op::kRequantize) c->w_q = QParams{};
  if (c->op == Op::kDequantize || c->op == Op::kChooseQParams) c->out_q = QParams{};
  if (c->op == Op::kSoftmax) c->out_q = {{0x1p-8f}, {RangeOf(c->out_dtype).min}};
  if (!HasChannelLists(c->op) &&
      (c->op != Op::kChooseQParams || c->observer.kind == Observer::Kind::kHistogram)) {
    c->per_channel = false;
  }
  const auto fit = [](auto& list, size_t length, auto filler) {
    list.resize(length, list.empty() ? filler : list.back());
  };
  const bool lists = HasChannelLists(c->op) && c->per_channel;
  const auto length = static_cast<size_t>(lists ? c->N : 1);
  const bool no_quotient = c->x_q == QParams{} && c->w_q == QParams{};
  const bool multiplies =
      c->op == Op::kRequantize && (!c->multiplier.empty() || (lists && c->N == 0 && no_quotient));
  if (multiplies) {
    fit(c->multiplier, length, 1.0f);
    c->x_q = c->w_q = QParams{};  // mean nothing beside a multiplier
  }
  for (QParams* q : {&c->x_q, &c->w_q, &c->out_q}) {
    const bool channels = HasChannelLists(c->op) && !multiplies && q == &ChannelQParams(*c);
    fit(q->scale, channels ? length : 1, 1.0f);
    fit(q->zero_point, channels ? length : 1, 0);
  }
  if (c->op == Op::kMaxPool) c->out_q = c->x_q;
}

void FitPostOp(Case* c) {
  if (!HasSums(c->op)) c->bias_i32.reset();
  if (!HasSums(c->op) || c->out_dtype == DType::kS32) c->bias.reset();
  if (c->bias) c->bias_i32.reset();
  const auto channels = static_cast<size_t>(c->N);
  if (c->bias) c->bias->resize(channels, c->bias->empty() ? 0.0f : c->bias->back());
  if (c->bias_i32) c->bias_i32->resize(channels, c->bias_i32->empty() ? 0 : c->bias_i32->back());
  if (!(HasSums(c->op) || c->op == Op::kRequantize) || !IsCode(c->out_dtype) || c->bias)
    c->requant = Requant::kExact;
  if (c->op == Op::kDequantize || c->op == Op::kTable || c->op == Op::kSoftmax ||
      c->op == Op::kChooseQParams)
    c->relu = false;
  const CodeRange range = RangeOf(c->out_dtype);
  c->out_min = std::clamp(c->out_min, range.min, range.max);
  c->out_max = std::clamp(c->out_max, range.min, range.max);
  if (c->out_min > c->out_max) std::swap(c->out_min, c->out_max);
  if (c->out_dtype == DType::kF32) c->out_min = range.min, c->out_max = range.max;
}

// What PyTorch can observe (docs/quantization.md): finite values, no sums that overflow, and for
// histograms bins that are neither too narrow nor too many.
void FitObservedValues(Case* c) {
  Observer& o = c->observer;
  float most = FLT_MAX;
  if (o.kind == Observer::Kind::kMovingAverage) most = 0x1p126f;
  if (o.kind == Observer::Kind::kHistogram) most = 0x1p24f;
  const std::span<float> values = c->x.as<float>();
  for (float& value : values) value = std::isnan(value) ? 0.0f : std::clamp(value, -most, most);
  if (o.kind != Observer::Kind::kHistogram) return;
  const auto span_of = [](std::span<const float> some) {
    const auto [least, greatest] = std::ranges::minmax(some);
    return static_cast<double>(greatest) - least;
  };
  const auto batches = static_cast<size_t>(c->x.shape()[0]);
  const size_t count = values.size() / batches;
  double first = 0;
  for (size_t b = 0; b < batches && first == 0; ++b) {
    first = span_of(values.subspan(b * count, count));
  }
  if (first > 0 && (first < 0x1p-60 || span_of(values) > 0x1p10 * first))
    o.kind = Observer::Kind::kMinMax;
}

void FitFunctionAndObserver(Case* c) {
  if (c->op != Op::kTable) c->function = Function::kRelu;
  if (c->function != Function::kLeakyRelu) c->negative_slope = Case{}.negative_slope;
  if (c->op != Op::kChooseQParams) c->observer = Observer{};
  Observer& o = c->observer;
  const CodeRange range = RangeOf(o.dtype);
  o.quant_min = std::clamp(o.quant_min, range.min, 0);
  o.quant_max = std::clamp(o.quant_max, 0, range.max);
  if (o.quant_min == o.quant_max) o.quant_max = range.max;
  if ((o.symmetric && o.dtype == DType::kU8) || o.quant_min >> 1 == o.quant_max >> 1)
    o.reduce_range = false;
  // NaN too becomes a number.
  o.averaging_constant = o.averaging_constant >= 0 ? std::min(o.averaging_constant, 1.0f) : 0.0f;
  if (c->op == Op::kChooseQParams) FitObservedValues(c);
}

}  // namespace

Limits LimitsOf(Op op) {
  switch (op) {
    case Op::kQuantize:
    case Op::kDequantize:
    case Op::kRequantize: return {kMaxM, kMaxN, 0};
    case Op::kLinear: return {kMaxM, kMaxN, kMaxK};
    case Op::kConv2d: return {2, 40, kMaxChannels};
    case Op::kDepthwise: return {2, 3, 1};
    case Op::kMaxPool:
    case Op::kAvgPool:
    case Op::kGlobalAvgPool: return {2, kMaxChannels, 0};
    case Op::kAdd:
    case Op::kMul:
    case Op::kRescale:
    case Op::kTable:
    case Op::kSoftmax: return {kMaxM, kMaxChannels, 0};
    case Op::kConcat: return {kMaxM, kMaxChannels, kMaxChannels};
    case Op::kChooseQParams: return {kMaxM, kMaxN, 3};
  }
  QUALM_CHECK(!"unknown operation");
  return {};
}

int64_t MaxImage(Op op) { return op == Op::kAvgPool || op == Op::kGlobalAvgPool ? 18 : 8; }

int64_t MaxKernel(Op op) { return op == Op::kAvgPool ? MaxImage(op) : kMaxKernel; }

int64_t WorkOf(const Case& c) {
  int64_t work = c.M * c.N * std::max<int64_t>(c.K, 1);
  for (const std::vector<int64_t>& shape : {FittedShapeOfX(c), FittedShapeOfW(c)}) {
    int64_t size = 1;
    for (const int64_t dim : shape) size *= dim;
    work += size;
  }
  return work;
}

void FitWindow(Case* c) {
  if (!HasWindow(c->op)) {
    c->window = Window{};
    return;
  }
  const auto fit = [c] {
    ClampWindow(c->op, &c->window);
    IsConv(c->op) ? FitConvChannels(c) : FitPool(c);
    DeriveSizes(c);
  };
  for (fit(); WorkOf(*c) > kMaxWork; fit()) Lessen(c);
}

bool IsSmall(const Case& c) {
  if (HasWindow(c.op)) {
    Case fit = c;
    FitWindow(&fit);
    return fit.window == c.window && fit.N == c.N;
  }
  const Limits limits = LimitsOf(c.op);
  const bool within = c.M <= limits.m && c.N <= limits.n && c.K <= limits.k;
  return within && (c.op != Op::kChooseQParams || c.x.shape()[0] <= limits.k);
}

std::vector<int64_t> FittedShapeOfX(const Case& c) {
  const Window& v = c.window;
  if (HasWindow(c.op)) return {v.batch, v.in_h, v.in_w, v.in_c};
  const std::vector<int64_t>& given = c.x.shape();
  if (c.op == Op::kConcat) return {c.M, given.size() == 2 ? std::min(given[1], c.N) : 0};
  if (c.op == Op::kChooseQParams) {
    const int64_t batches = given.size() == 3 ? given[0] : 1;
    return {std::clamp<int64_t>(batches, 1, LimitsOf(c.op).k), c.M, c.N};
  }
  return {c.M, c.op == Op::kLinear ? c.K : c.N};
}

std::vector<int64_t> FittedShapeOfW(const Case& c) {
  const Window& v = c.window;
  if (IsConv(c.op)) return {c.N, v.kernel_h, v.kernel_w, v.in_c / v.groups};
  if (c.op == Op::kLinear) return {c.N, c.K};
  if (HasTwoOperands(c.op)) return {c.M, c.N};
  if (c.op == Op::kConcat) return {c.M, c.N - FittedShapeOfX(c)[1]};
  return {0};
}

Tensor Reshaped(const Tensor& from, DType dtype, const std::vector<int64_t>& shape) {
  if (from.dtype() == dtype && from.shape() == shape) return from;
  Tensor to(dtype, shape);
  const std::vector<int64_t>& old = from.shape();
  if (old.size() != shape.size() || (from.dtype() == DType::kF32) != (dtype == DType::kF32))
    return to;
  const CodeRange range = RangeOf(dtype);
  for (int64_t i = 0; i < to.size(); ++i) {
    // Place of element i along every axis, and with it that of the old element.
    int64_t rest = i, at = 0, step = 1;
    bool exists = true;
    for (size_t axis = shape.size(); axis-- > 0;) {
      const int64_t place = rest % shape[axis];
      rest /= shape[axis];
      exists &= place < old[axis];
      at += place * step;
      step *= old[axis];
    }
    if (!exists) continue;
    if (dtype == DType::kF32) {
      to.as<float>()[static_cast<size_t>(i)] = from.FloatAt(at);
    } else {
      to.SetInt(i, std::clamp(from.IntAt(at), range.min, range.max));
    }
  }
  return to;
}

void FitCase(Case* c) {
  const Limits limits = LimitsOf(c->op);
  if (!HasWindow(c->op)) {
    const int64_t least = c->op == Op::kChooseQParams ? 1 : 0;
    c->M = std::clamp(c->M, least, limits.m);
    c->N = std::clamp(c->N, least, limits.n);
    c->K = c->op == Op::kLinear ? std::clamp<int64_t>(c->K, 0, limits.k) : 0;
  }
  FitWindow(c);
  FitTypes(c);
  FitFunctionAndObserver(c);
  FitQParams(c);
  FitPostOp(c);
}

}  // namespace qualm::fuzz
