// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fit.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <span>
#include <type_traits>

#include "core/status.h"

namespace qualm::fuzz {
namespace {

// A pool that adds codes up: the output has a scale of its own.
bool Averages(Op op) { return IsPool(op) && HasOutQParams(op); }

int64_t CeilOfQuotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Takes padding away until every window of a pool meets the image. The loops end, because without
// padding no window lies wholly in it.
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

// Makes all groups have the same number of input channels, and of output channels.
void FitConvChannels(Case* c) {
  Window& v = c->window;
  const Sizes limits = LimitsOf(c->op);
  const bool depthwise = RowOf(c->op).depthwise;
  v.groups = depthwise ? std::clamp<int64_t>(v.in_c, 1, kMaxChannels)
                       : std::clamp<int64_t>(v.groups, 1, kMaxGroups);
  const int64_t inputs = depthwise ? 1 : CeilOfQuotient(v.in_c, v.groups);
  v.in_c = v.groups * std::min(limits.k, inputs);
  c->N = v.groups * std::min(limits.n, CeilOfQuotient(c->N, v.groups));
}

void FitPool(Case* c) {
  Window& v = c->window;
  v.groups = 1;
  v.in_c = std::min(v.in_c, LimitsOf(c->op).n);
  if (RowOf(c->op).whole_image) {
    v.kernel_h = std::max<int64_t>(v.in_h, 1);
    v.kernel_w = std::max<int64_t>(v.in_w, 1);
    v.drop_padding();
  }
  if (!v.count_include_pad) KeepWindowsOnInput(&v);
}

// One step towards less work: images before pixels before channels, so that tails of vectors stay.
void Lessen(Case* c) {
  Window& v = c->window;
  const int64_t outputs = c->N / v.groups, inputs = v.in_c / v.groups;
  // Each output channel is a sum over the input channels of its group.
  const bool mixes = IsConv(c->op) && !RowOf(c->op).depthwise;
  constexpr int64_t kFew = 4;
  if (v.batch > 1) {
    v.batch = 1;
  } else if (IsPool(c->op) && c->K > kMaxKernel * kMaxKernel && v.in_c > kFew) {
    v.in_c = kFew;  // under a large window there are too many channels
  } else if (c->M > kFew && std::max(v.in_h, v.in_w) > 1) {
    --(v.in_h > v.in_w ? v.in_h : v.in_w);
  } else if (mixes && outputs > kFew) {
    c->N = outputs / 2 * v.groups;
  } else if (mixes && inputs > 1) {
    v.in_c = inputs / 2 * v.groups;
  } else if (!mixes && v.in_c > 1) {
    v.in_c /= 2;
    if (IsConv(c->op)) c->N = outputs * v.in_c;
  } else {
    v.drop_padding();
  }
}

// The shape of x, with the dimensions that only x gives brought within the limits.
std::vector<int64_t> FittedShapeOfX(const Case& c) {
  std::vector<int64_t> shape = ShapeOfX(c);
  const Layout layout = RowOf(c.op).layout;
  if (layout == Layout::kColumns) shape[1] = std::min(shape[1], c.N);
  if (layout == Layout::kBatches) shape[0] = std::clamp<int64_t>(shape[0], 1, LimitsOf(c.op).k);
  return shape;
}

void FitTypes(Case* c) {
  const OpRow& row = RowOf(c->op);
  const auto fitted = [](const DTypeList& types, DType dtype) {
    return types.contains(dtype) ? dtype : types.front();
  };
  const DType x = HasFloatX(*c) ? DType::kF32 : fitted(row.x_types, c->x.dtype());
  c->x = Reshaped(c->x, x, FittedShapeOfX(*c));
  switch (row.second) {
    case Second::kNone: c->w = Tensor(); break;
    case Second::kWeights:
      c->w = Reshaped(c->w, fitted(kWeightCodes, c->w.dtype()), ShapeOfW(*c));
      break;
    case Second::kInput: c->w = Reshaped(c->w, x, ShapeOfW(*c)); break;
  }
  c->out_dtype = KeepsType(c->op) ? x : fitted(row.out_types, c->out_dtype);
  if (HasFloatX(*c)) c->out_dtype = DType::kF32;
}

// Every number is finite, and all of the case is in real units.
void FitFloatX(Case* c) {
  if (!HasFloatX(*c)) return;
  for (float& value : c->x.as<float>()) value = std::isfinite(value) ? value : 0.0f;
  c->bias_i32.reset();
  c->x_q = QParams{};
}

// Parameters that the operation lacks stay default, so that equal problems compare equal.
void ClearForeignParameters(Case* c) {
  static const Case none;
  ForEachParameter(*c, none, [&](const Field& field, auto& value, const auto& missing) {
    if (!(RowOf(c->op).*field.has)) value = missing;
  });
}

// Blocks of a row lie in rows that are there, and have no one bound for a relu.
void FitElementBlocks(Case* c) {
  if (c->per_channel || c->M == 0 || c->N == 0) c->x_block = 0;
  c->x_block = std::min(c->x_block, kMaxBlock);
  if (c->x_block != 0) c->relu = false;
}

// Weights in blocks are those of channels, and no sum that has a unit.
void FitBlocks(Case* c) {
  if (HasElementBlocks(*c)) return FitElementBlocks(c);
  if (!c->per_channel || c->K == 0 || c->out_dtype == DType::kS32) c->w_block = 0;
  if (c->w_block == 0 || c->M == 0 || c->out_dtype != DType::kF32 || HasFloatX(*c)) c->x_block = 0;
  if (c->w_block == 0) return;
  c->w_block = std::min(c->w_block, kMaxBlock);
  if (c->x_block != 0) c->x_block = c->w_block;
  c->bias_i32.reset();
  c->requant = Requant::kExact;
}

void FitQParams(Case* c) {
  const OpRow& row = RowOf(c->op);
  if (!HasXQParams(*c) && !row.cast) c->x_q = QParams{};
  if (!HasW(c->op) && !row.multiplier) c->w_q = QParams{};
  if (row.out_q == OutQParams::kNone && !row.cast) c->out_q = QParams{};
  if (row.cast) {  // it has scales alone
    for (QParams* q : {&c->x_q, &c->out_q}) std::ranges::fill(q->zero_point, 0);
  }
  if (row.out_q == OutQParams::kFixed) c->out_q = FixedOutQParams(c->out_dtype);
  if (row.per_channel == PerChannel::kNone || c->observer.kind == Observer::Kind::kHistogram) {
    c->per_channel = false;
  }
  const auto fit = [](auto& list, size_t length, auto filler) {
    list.resize(length, list.empty() ? filler : list.back());
  };
  const bool lists = HasChannelList(c->op) && c->per_channel;
  const auto length = static_cast<size_t>(lists ? c->N : 1);
  const bool multiplies = UsesMultiplier(*c);
  if (multiplies) {
    fit(c->multiplier, length, 1.0f);
    c->x_q = c->w_q = QParams{};  // without a meaning if there is a multiplier
  }
  for (QParams* q : {&c->x_q, &c->w_q, &c->out_q}) {
    const bool is_list = q == &ChannelQParams(*c) || (row.cast && q == &c->x_q);
    const bool channels = HasChannelList(c->op) && !multiplies && is_list;
    const auto blocks = static_cast<size_t>(RowBlocks(*c));
    const bool elements = HasElementBlocks(*c);
    const bool rows = c->x_block != 0 && (elements ? is_list : q == &c->x_q);
    const auto of_row = elements ? static_cast<size_t>(ElementBlocks(*c)) : blocks;
    const size_t entries = rows       ? static_cast<size_t>(c->M) * of_row
                           : channels ? length * blocks
                                      : 1;
    fit(q->scale, entries, 1.0f);
    fit(q->zero_point, entries, 0);
  }
  if (row.out_q == OutQParams::kOfInput) c->out_q = c->x_q;
}

void FitPostOp(Case* c) {
  if (c->out_dtype == DType::kS32) c->bias.reset();
  if (c->bias) c->bias_i32.reset();
  const auto channels = static_cast<size_t>(c->N);
  if (c->bias) c->bias->resize(channels, c->bias->empty() ? 0.0f : c->bias->back());
  if (c->bias_i32) c->bias_i32->resize(channels, c->bias_i32->empty() ? 0 : c->bias_i32->back());
  if (!IsCode(c->out_dtype) || c->bias) c->requant = Requant::kExact;
  const CodeRange range = RangeOf(c->out_dtype);
  c->out_min = std::clamp(c->out_min, range.min, range.max);
  c->out_max = std::clamp(c->out_max, range.min, range.max);
  if (c->out_min > c->out_max) std::swap(c->out_min, c->out_max);
  if (IsFloat(c->out_dtype)) OpenClamp(c);
}

// Brings values into the range that PyTorch can observe (docs/quantization.md): finite, no sums
// that overflow, and for histograms bins that are neither too narrow nor too many.
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
  static const Case usual;
  if (c->function != Function::kLeakyRelu) c->negative_slope = usual.negative_slope;
  c->negative_slope = std::fabs(c->negative_slope);
  if (!RowOf(c->op).qparams) return;
  Observer& o = c->observer;
  if (IsMx(c->rule) && RowOf(c->op).dynamic) c->rule = QParamsRule::kAten;
  if (IsMx(c->rule)) {
    const bool is_element = kMxElements.contains(o.dtype);
    o = {.dtype = is_element ? o.dtype : kMxElements.front()};
    return FitObservedValues(c);
  }
  if (!IsByteCode(o.dtype)) o.dtype = DType::kU8;
  c->codes = c->codes && c->rule != QParamsRule::kObserver;
  if (c->rule != QParamsRule::kObserver) {
    o = {.reduce_range = o.reduce_range && c->rule == QParamsRule::kAten};
  }
  const CodeRange range = RangeOf(o.dtype);
  o.quant_min = std::clamp(o.quant_min, range.min, 0);
  o.quant_max = std::clamp(o.quant_max, 0, range.max);
  if (o.quant_min == o.quant_max) o.quant_max = range.max;
  if ((o.symmetric && o.dtype == DType::kU8) || o.quant_min >> 1 == o.quant_max >> 1)
    o.reduce_range = false;
  if (RowOf(c->op).observer) FitObservedValues(c);
}

// Brings each parameter that is a number into its range; NaN becomes the lowest number.
void FitRanges(Case* c) {
  ForEachParameter(*c, []<class T>(const Field& field, T& value) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, int32_t>) {
      if (IsInRange(field, value)) return;
      value = static_cast<T>(value > field.highest ? field.highest : field.lowest);
    }
  });
}

}  // namespace

Sizes LimitsOf(Op op) {
  const OpRow& row = RowOf(op);
  switch (row.layout) {
    case Layout::kElements:
      return {kMaxM, HasChannelList(op) && !row.cast ? kMaxN : kMaxChannels, 0};
    case Layout::kProducts: return {kMaxM, kMaxN, kMaxK};
    case Layout::kConv: return row.depthwise ? Sizes{2, 3, 1} : Sizes{2, 40, kMaxChannels};
    case Layout::kPool: return {2, kMaxChannels, 0};
    case Layout::kColumns: return {kMaxM, kMaxChannels, kMaxChannels};
    case Layout::kBatches: return {kMaxM, kMaxN, 3};
  }
  QUALM_CHECK(!"unknown layout");
  return {};
}

Sizes SizesOf(const Case& c) {
  const Window& v = c.window;
  switch (RowOf(c.op).layout) {
    case Layout::kElements:
    case Layout::kProducts: return {c.M, c.N, c.K};
    case Layout::kConv: return {v.batch, c.N / v.groups, v.in_c / v.groups};
    case Layout::kPool: return {v.batch, c.N, 0};
    case Layout::kColumns: return {c.M, c.N, c.x.shape()[1]};
    case Layout::kBatches: return {c.M, c.N, c.x.shape()[0]};
  }
  QUALM_CHECK(!"unknown layout");
  return {};
}

int64_t MaxImage(Op op) { return Averages(op) ? 18 : 8; }

int64_t MaxKernel(Op op) {
  return Averages(op) && !RowOf(op).whole_image ? MaxImage(op) : kMaxKernel;
}

int64_t HighestOf(Op op, const Field& number) {
  if (number.name == "batch") return LimitsOf(op).m;
  if (number.name == "H" || number.name == "W") return MaxImage(op);
  if (number.name == "R" || number.name == "S") return MaxKernel(op);
  if (number.name == "stride" || number.name == "dilation") return kMaxStep;
  if (number.name == "pad") return kMaxPad;
  if (number.name == "groups") return kMaxChannels;
  QUALM_CHECK_EQ(number.name, "C");
  return kMaxGroups * kMaxChannels;
}

int64_t WorkOf(const Case& c) {
  int64_t work = c.M * c.N * std::max<int64_t>(c.K, 1);
  for (const std::vector<int64_t>& shape : {ShapeOfX(c), ShapeOfW(c)}) {
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
  ClearForeignParameters(c);
  if (!RowOf(c->op).dilation) c->window.dilation_h = c->window.dilation_w = 1;
  const auto fit = [c] {
    ForEachWindowNumber(*c, [c](const Field& field, int64_t& number) {
      number = std::clamp(number, field.least, HighestOf(c->op, field));
    });
    IsConv(c->op) ? FitConvChannels(c) : FitPool(c);
    DeriveSizes(c);
  };
  for (fit(); WorkOf(*c) > kMaxWork; fit()) Lessen(c);
}

bool IsSmall(const Case& c) {
  if (c.w_block > kMaxBlock || c.x_block > kMaxBlock) return false;
  if (HasWindow(c.op)) {
    Case fit = c;
    FitWindow(&fit);
    return fit.window == c.window && fit.N == c.N;
  }
  const Sizes sizes = SizesOf(c), limits = LimitsOf(c.op);
  return sizes.m <= limits.m && sizes.n <= limits.n && sizes.k <= limits.k;
}

Tensor Reshaped(const Tensor& from, DType dtype, const std::vector<int64_t>& shape) {
  if (from.dtype() == dtype && from.shape() == shape) return from;
  Tensor to(dtype, shape);
  const std::vector<int64_t>& old = from.shape();
  if (old.size() != shape.size() || (from.dtype() == DType::kF32) != (dtype == DType::kF32))
    return to;
  const CodeRange range = RangeOf(dtype);
  for (int64_t i = 0; i < to.size(); ++i) {
    // `place` of element i along every axis; `at`, the index of the same element in `from`.
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
  ClearForeignParameters(c);
  if (!HasWindow(c->op)) {
    const Sizes limits = LimitsOf(c->op);
    const Layout layout = RowOf(c->op).layout;
    const int64_t least = layout == Layout::kBatches ? 1 : 0;
    c->M = std::clamp(c->M, least, limits.m);
    c->N = std::clamp(c->N, least, limits.n);
    c->K = layout == Layout::kProducts ? std::clamp<int64_t>(c->K, 0, limits.k) : 0;
  }
  FitWindow(c);
  FitTypes(c);
  FitFunctionAndObserver(c);
  FitRanges(c);
  FitBlocks(c);
  FitFloatX(c);
  FitQParams(c);
  FitPostOp(c);
}

}  // namespace qualm::fuzz
