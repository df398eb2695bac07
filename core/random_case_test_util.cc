// SPDX-License-Identifier: Apache-2.0
#include "core/random_case_test_util.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "core/float_text.h"
#include "core/slice.h"

namespace qualm::test {
namespace {

// A pool has no answer where a window meets no input element, unless padding counts.
bool LeavesImage(const Case& c) {
  for (int64_t m = 0; m < c.M && !c.window.count_include_pad; ++m) {
    const std::vector<Tap> taps = TapsOf(c.window, m);
    if (std::ranges::none_of(taps, [](const Tap& tap) { return tap.x_row >= 0; })) return true;
  }
  return false;
}

// The sum of (x - zx) * (w - zw) over the terms of one output.
double SumOf(const Case& one) {
  const auto term = [&](int64_t x, int64_t w) {
    return (static_cast<double>(one.x.IntAt(x)) - one.x_q.zero_point_at(0)) *
           (static_cast<double>(one.w.IntAt(w)) - one.w_q.zero_point_at(0));
  };
  double sum = 0;
  if (!HasWindow(one.op)) {
    for (int64_t k = 0; k < one.K; ++k) sum += term(k, k);
    return sum;
  }
  const int64_t depth = one.window.in_c;
  int64_t w = 0;
  for (const Tap& tap : TapsOf(one.window, 0)) {
    for (int64_t d = 0; d < depth && tap.x_row >= 0; ++d) sum += term(tap.x_row + d, w + d);
    w += depth;
  }
  return sum;
}

}  // namespace

Case RandomCase::Draw(Op op) {
  theme_ = static_cast<Theme>(rng_.Below(4));
  sum_bits_ = static_cast<int>(rng_.Between(8, theme_ == Theme::kTies ? 11 : 31));
  const OpRow& row = RowOf(op);
  Case c;
  c.op = op;
  c.per_channel = row.per_channel != PerChannel::kNone && !row.cast && rng_.Chance(1, 2);
  if (row.function) DrawFunction(&c);
  if (row.observer) DrawObserver(&c);
  if (row.dynamic) DrawRule(&c);
  if (row.cast) DrawCast(&c);
  DrawSizes(&c);
  DrawTypes(&c);
  DrawClamp(&c);
  DrawParams(&c);
  DrawX(&c);
  if (HasW(op)) c.w = Codes(c.w.dtype(), ShapeOfW(c));
  if (row.bias) DrawBias(&c);
  return c;
}

Case RandomCase::DrawInBlocks(Op op) {
  Case c = Draw(op);
  while (c.K == 0 || c.out_dtype == DType::kS32) c = Draw(op);
  c.bias_i32.reset();
  c.per_channel = true;
  c.w_block = static_cast<int32_t>(rng_.Between(1, c.K + 1));
  c.w_q = Params(c.N * RowBlocks(c), -7);
  if (SumsXInBlocks(op) && c.out_dtype == DType::kF32 && c.M > 0 && rng_.Chance(1, 2)) {
    c.x_block = c.w_block;
    c.x_q = Params(c.M * RowBlocks(c), -7);
  }
  return c;
}

Case RandomCase::DrawFloatX() {
  Case c = rng_.Chance(1, 2) ? Draw(Op::kLinear) : DrawInBlocks(Op::kLinear);
  c.bias_i32.reset();
  c.x_block = 0;
  c.x_q = c.out_q = QParams{};
  c.out_dtype = DType::kF32;
  OpenClamp(&c);
  c.x = Tensor(DType::kF32, {c.M, c.K});
  const bool any = rng_.Chance(1, 4);
  for (float& x : c.x.as<float>()) {
    const float bits = AnyBits();
    x = any ? (std::isfinite(bits) ? bits : -0.0f)
            : std::ldexp(static_cast<float>(rng_.Between(-255, 255)),
                         static_cast<int>(rng_.Between(-12, 4)));
  }
  return c;
}

Case RandomCase::DrawScaledCast() {
  Case c = Draw(Op::kCast);
  const int which = static_cast<int>(rng_.Between(1, 3));
  if ((which & 1) != 0) c.x_q.scale = {Scale(0)};
  if ((which & 2) != 0) c.out_q.scale = {Scale(0)};
  if (c.x.dtype() == DType::kF32) DrawX(&c);
  const int lists = static_cast<int>(rng_.Below(4));  // of channels, of blocks, or none
  if (lists > 1 || c.M * c.N == 0) return c;
  c.per_channel = lists == 0;
  c.x_block = lists == 0 ? 0 : static_cast<int32_t>(rng_.Between(1, c.N + 1));
  const int64_t count = lists == 0 ? c.N : c.M * ElementBlocks(c);
  for (QParams* q : {&c.x_q, &c.out_q}) {
    q->zero_point.assign(static_cast<size_t>(count), 0);
    const bool ones = q->scale == QParams{}.scale;
    q->scale.clear();
    for (int64_t i = 0; i < count; ++i) q->scale.push_back(ones ? 1.0f : Scale(0));
  }
  return c;
}

Case RandomCase::DrawWhole(Op op) {
  Case c = RowOf(op).cast && rng_.Chance(1, 2) ? DrawScaledCast() : Draw(op);
  if (RowOf(op).requant && IsCode(c.out_dtype) && !c.bias)
    c.requant = static_cast<Requant>(rng_.Below(CountOf<Requant>()));
  if (rng_.Chance(1, 3)) c.property = "matches_exact";
  if (rng_.Chance(1, 3)) c.contract = rng_.Chance(1, 2) ? "exact" : "model:fbgemm@avx2+nofma";
  c.note = Text();
  if (rng_.Chance(1, 3)) c.expected = AnyTensor(c.out_dtype, c.output_shape());
  if (rng_.Chance(1, 3)) {
    c.observed = Observed{Text(), AnyTensor(c.out_dtype, c.output_shape())};
    if (rng_.Chance(1, 2)) c.observed->why = {"tail", "of " + Text(), Text(), Text()};
  }
  using List = Printed::List;
  for (const List list :
       {List::kX, List::kXScale, List::kWScale, List::kOutScale, List::kMultiplier, List::kBias}) {
    const std::span<const float> values = ListOf(c, list);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i]) && rng_.Chance(1, 4))
        c.printed.push_back({list, static_cast<int64_t>(i), ShortestDecimal(values[i])});
    }
  }
  return c;
}

float RandomCase::AnyPositive() {
  return std::bit_cast<float>(static_cast<uint32_t>(rng_.Between(1, 0x7f7fffff)));
}

float RandomCase::AnyBits() { return std::bit_cast<float>(static_cast<uint32_t>(rng_.Next())); }

float RandomCase::Scale(int centre) {
  static constexpr std::array<float, 10> kEnds = {
      0x1p-149f, 0x1.8p-148f,     0x1.fffffcp-127f, FLT_MIN, 0x1p-100f,
      0x1p100f,  0x1.000002p126f, 0x1p127f,         FLT_MAX, 0x1.fffffep-1f};
  switch (theme_) {
    case Theme::kOrdinary: break;
    case Theme::kTies: return std::ldexp(1.0f, centre + static_cast<int>(rng_.Between(-2, 2)));
    case Theme::kExtreme: return rng_.Chance(1, 2) ? rng_.Pick(kEnds) : AnyPositive();
    case Theme::kMixed:
      if (rng_.Chance(1, 4)) return rng_.Chance(1, 2) ? rng_.Pick(kEnds) : AnyPositive();
      break;
  }
  const auto mantissa = static_cast<float>(rng_.Between(1 << 23, (1 << 24) - 1));
  return std::ldexp(mantissa, centre - 23 + static_cast<int>(rng_.Between(-3, 3)));
}

int32_t RandomCase::ZeroPoint() {
  static constexpr std::array<int32_t, 9> kEnds = {INT32_MIN, INT32_MIN + 1, INT32_MAX, -129, -128,
                                                   127,       128,           255,       256};
  if (rng_.Chance(1, 6)) return rng_.Pick(kEnds);
  if (rng_.Chance(1, 10)) return static_cast<int32_t>(rng_.Next());
  if (rng_.Chance(1, 3)) return 0;
  return static_cast<int32_t>(rng_.Between(-40, 200));
}

QParams RandomCase::Params(int64_t entries, int centre) {
  const auto count = static_cast<size_t>(entries);
  QParams q{std::vector<float>(count), std::vector<int32_t>(count)};
  for (float& scale : q.scale) scale = Scale(centre);
  for (int32_t& zero_point : q.zero_point) zero_point = ZeroPoint();
  return q;
}

std::string RandomCase::Text() {
  static constexpr std::array<const char*, 6> kPieces{"a",        "\"",       "\\",
                                                      "\n\t\x01", "\xC3\xA9", "//"};
  std::string text;
  for (uint64_t i = rng_.Below(6); i > 0; --i) text += rng_.Pick(kPieces);
  return text;
}

Tensor RandomCase::AnyTensor(DType dtype, std::vector<int64_t> shape) {
  // Some bits are no part of a code.
  if (BitsOf(dtype) < 8 || (IsFloat(dtype) && dtype != DType::kF32))
    return Codes(dtype, std::move(shape));
  Tensor tensor(dtype, std::move(shape));
  for (uint8_t& byte : tensor.bytes()) byte = static_cast<uint8_t>(rng_.Next());
  return tensor;
}

Tensor RandomCase::Codes(DType dtype, std::vector<int64_t> shape) {
  Tensor tensor(dtype, std::move(shape));
  const CodeRange range = RangeOf(dtype);
  const bool ends = rng_.Chance(1, 4);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.SetInt(i, ends ? (rng_.Chance(1, 2) ? range.min : range.max)
                          : static_cast<int32_t>(rng_.Between(range.min, range.max)));
  }
  return tensor;
}

// Draws the sizes, and the dimensions of x that no size gives.
void RandomCase::DrawSizes(Case* c) {
  static constexpr std::array<int64_t, 8> kLengths = {0, 1, 2, 3, 4, 7, 16, 33};
  c->M = rng_.Chance(1, 20) ? 0 : rng_.Between(1, 3);
  c->N = rng_.Chance(1, 20) ? 0 : rng_.Between(1, most_columns_);
  switch (RowOf(c->op).layout) {
    case Layout::kElements: break;
    case Layout::kProducts:
      c->K = rng_.Chance(1, 2) ? rng_.Pick(kLengths) : rng_.Between(0, 2 * most_columns_);
      break;
    case Layout::kConv: DrawConv(c); break;
    case Layout::kPool: DrawPool(c); break;
    case Layout::kColumns: c->x = Tensor(DType::kU8, {0, rng_.Between(0, c->N)}); break;
    case Layout::kBatches:
      c->M = std::max<int64_t>(c->M, 1);
      c->N = std::max<int64_t>(c->N, 1) * (rng_.Chance(1, 3) ? 5 : 1);
      c->x = Tensor(DType::kF32, {rng_.Between(1, 4), 0, 0});
      break;
  }
}

// Windows of all kinds: inside the image, across its border, beside it, and some that do not fit.
Window RandomCase::AnyWindow() {
  Window v;
  v.batch = rng_.Chance(1, 30) ? 0 : rng_.Between(1, 2);
  v.in_h = rng_.Chance(1, 40) ? 0 : rng_.Between(1, 5);
  v.in_w = rng_.Chance(1, 40) ? 0 : rng_.Between(1, 5);
  v.kernel_h = rng_.Between(1, 3);
  v.kernel_w = rng_.Between(1, 3);
  v.stride_h = rng_.Between(1, 3);
  v.stride_w = rng_.Between(1, 3);
  if (rng_.Chance(1, 3)) {
    v.dilation_h = rng_.Between(1, 3);
    v.dilation_w = rng_.Between(1, 3);
  }
  if (rng_.Chance(2, 3)) {
    for (int64_t* pad : {&v.pad_top, &v.pad_bottom, &v.pad_left, &v.pad_right}) {
      *pad = rng_.Between(0, rng_.Chance(1, 5) ? 4 : 2);
    }
  }
  return v;
}

void RandomCase::DrawConv(Case* c) {
  Window& v = c->window;
  v = AnyWindow();
  const bool depthwise = RowOf(c->op).depthwise;
  v.groups = depthwise           ? rng_.Between(1, most_columns_)
             : rng_.Chance(1, 3) ? rng_.Between(1, 4)
                                 : 1;
  v.in_c = v.groups;
  if (!depthwise) v.in_c *= rng_.Chance(1, 30) ? 0 : rng_.Between(1, most_columns_);
  c->N = v.groups * rng_.Between(1, depthwise ? 2 : most_columns_ / 2);
  if (rng_.Chance(1, 30)) c->N = 0;
  DeriveSizes(c);
}

void RandomCase::DrawPool(Case* c) {
  const OpRow& row = RowOf(c->op);
  Window& v = c->window;
  const int64_t channels = c->N;
  do {
    v = AnyWindow();
    v.in_c = channels;
    v.ceil_mode = row.ceil_mode && rng_.Chance(1, 3);
    v.count_include_pad = row.count_include_pad && rng_.Chance(1, 2);
    if (!row.dilation) v.dilation_h = v.dilation_w = 1;
    if (row.whole_image) {
      v.kernel_h = std::max<int64_t>(v.in_h, 1);
      v.kernel_w = std::max<int64_t>(v.in_w, 1);
      v.stride_h = v.stride_w = 1;
      v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = 0;
    }
    DeriveSizes(c);
  } while (LeavesImage(*c));
}

void RandomCase::DrawTypes(Case* c) {
  const OpRow& row = RowOf(c->op);
  const auto pick = [&](const DTypeList& types) {
    // Codes of more or fewer bits than 8 are the last.
    const auto others = std::ranges::count_if(
        types, [](DType dtype) { return IsWideCode(dtype) || IsSmallCode(dtype); });
    return types.list.at(rng_.Below(types.count - (wide_codes_ ? 0 : static_cast<size_t>(others))));
  };
  const DType x = pick(row.x_types);
  c->x = Tensor(x, ShapeOfX(*c));
  if (row.second == Second::kInput) c->w = Tensor(x, {0});
  if (row.second == Second::kWeights)
    c->w = Tensor(kWeightCodes.list.at(rng_.Below(weight_types_)), {0});
  c->out_dtype = KeepsType(c->op) ? x : pick(row.out_types);
  // Codes are the harder outputs.
  if (!IsCode(c->out_dtype) && !KeepsType(c->op) && rng_.Chance(1, 2))
    c->out_dtype = pick(row.out_types);
}

void RandomCase::DrawClamp(Case* c) {
  const CodeRange range = RangeOf(c->out_dtype);
  c->out_min = range.min;
  c->out_max = range.max;
  if (RowOf(c->op).clamp && c->out_dtype != DType::kF32 && rng_.Chance(1, 4)) {
    c->out_min = static_cast<int32_t>(rng_.Between(range.min, range.max));
    c->out_max = static_cast<int32_t>(rng_.Between(c->out_min, range.max));
  }
  c->relu = RowOf(c->op).relu && rng_.Chance(1, 4);
}

// Centres of scales such that most outputs lie between the ends of the clamp.
void RandomCase::DrawParams(Case* c) {
  const OpRow& row = RowOf(c->op);
  const auto draw = [&](PerChannel list, int centre) {
    return Params(c->per_channel && row.per_channel == list ? c->N : 1, centre);
  };
  if (row.multiplier && rng_.Chance(1, 2)) {
    c->multiplier = draw(PerChannel::kW, 7 - sum_bits_).scale;
  } else {
    if (row.x_qparams) c->x_q = draw(PerChannel::kX, -5);
    if (HasWeights(c->op)) c->w_q = draw(PerChannel::kW, -7);
    // A second input that is tiny beside the first turns ties into near ties.
    const bool tiny = theme_ == Theme::kTies && rng_.Chance(1, 8);
    if (HasTwoInputs(c->op)) c->w_q = draw(PerChannel::kW, tiny ? -35 : -5);
    if (row.multiplier) c->w_q = draw(PerChannel::kW, 7 - sum_bits_);
  }
  switch (row.out_q) {
    case OutQParams::kNone: return;
    case OutQParams::kOfInput: c->out_q = c->x_q; return;
    case OutQParams::kFixed: c->out_q = FixedOutQParams(c->out_dtype); return;
    case OutQParams::kOwn: break;
  }
  const int centre = HasSums(*c) ? -3 : HasTwoInputs(c->op) ? -4 : row.function ? -7 : -5;
  c->out_q = draw(PerChannel::kOut, centre);
  if (HasSums(*c) && theme_ == Theme::kTies && c->N > 0) {
    const auto bits = static_cast<int>(rng_.Between(1, 4));
    c->out_q.scale[0] = std::ldexp(c->x_q.scale_at(0) * c->w_q.scale_at(0), bits);
  }
}

void RandomCase::DrawFunction(Case* c) {
  static constexpr std::array<float, 6> kSlopes = {0.0f,      0.25f,   1.0f,
                                                   0x1p-149f, FLT_MAX, 0x1.99999ap-4f};
  c->function = static_cast<Function>(rng_.Below(CountOf<Function>()));
  if (c->function == Function::kLeakyRelu && rng_.Chance(2, 3))
    c->negative_slope = rng_.Pick(kSlopes);
}

void RandomCase::DrawObserver(Case* c) {
  Observer& o = c->observer;
  o.kind = static_cast<Observer::Kind>(rng_.Below(CountOf<Observer::Kind>()));
  if (o.kind == Observer::Kind::kHistogram) c->per_channel = false;
  o.dtype = rng_.Chance(1, 2) ? DType::kU8 : DType::kS8;
  o.symmetric = rng_.Chance(1, 2);
  o.reduce_range = rng_.Chance(1, 2) && !(o.symmetric && o.dtype == DType::kU8);
  const CodeRange range = RangeOf(o.dtype);
  o.quant_min = range.min;
  o.quant_max = range.max;
  if (rng_.Chance(1, 3)) {
    o.quant_min = static_cast<int32_t>(rng_.Between(range.min, 0));
    o.quant_max = static_cast<int32_t>(rng_.Between(3, range.max));  // more than a code if halved
  }
  static constexpr std::array<float, 5> kShares = {0.01f, 0.0f, 1.0f, 0.5f, 0x1p-149f};
  if (rng_.Chance(1, 3)) o.averaging_constant = rng_.Pick(kShares);
  // The rows of digests of conventions are of observers.
  if (!RowOf(c->op).observer || !wide_codes_ || o.kind != Observer::Kind::kMinMax) return;
  if (rng_.Chance(1, 2)) return;
  c->rule = rng_.Chance(1, 2) ? QParamsRule::kAten : QParamsRule::kOnnx;
  o = {.reduce_range = o.reduce_range && c->rule == QParamsRule::kAten};
  c->codes = rng_.Chance(1, 2);
  if (rng_.Chance(1, 2)) return;
  c->rule = static_cast<QParamsRule>(rng_.Between(static_cast<int>(QParamsRule::kMxFloor),
                                                  static_cast<int>(QParamsRule::kMxNearest)));
  o = {.dtype = *(kMxElements.begin() + rng_.Below(kMxElements.count))};
}

// Infinities and all other reals may stand in x (DrawX).
void RandomCase::DrawRule(Case* c) {
  DrawObserver(c);
  c->observer.kind = Observer{}.kind;
  c->observer.averaging_constant = Observer{}.averaging_constant;
  c->rule = static_cast<QParamsRule>(rng_.Below(static_cast<size_t>(QParamsRule::kMxFloor)));
  c->x_gran = static_cast<Granularity>(rng_.Below(CountOf<Granularity>()));
  if (c->rule == QParamsRule::kObserver) return;
  const bool reduce_range = c->observer.reduce_range && c->rule == QParamsRule::kAten;
  c->observer = Observer{};
  c->observer.reduce_range = reduce_range;
}

void RandomCase::DrawCast(Case* c) {
  c->rounding = static_cast<FloatRounding>(rng_.Below(CountOf<FloatRounding>()));
  c->overflow = static_cast<FloatOverflow>(rng_.Below(CountOf<FloatOverflow>()));
}

void RandomCase::DrawX(Case* c) {
  if (RowOf(c->op).observer) return DrawObserved(c);
  switch (c->x.dtype()) {
    case DType::kF32:
      for (int64_t i = 0; i < c->x.size(); ++i) {
        c->x.as<float>()[static_cast<size_t>(i)] =
            Real(c->out_q.scale_at(i % std::max<int64_t>(c->N, 1)));
      }
      return;
    case DType::kS32:
      for (int32_t& sum : c->x.as<int32_t>()) {
        const int64_t limit = int64_t{1} << sum_bits_;
        sum = static_cast<int32_t>(rng_.Between(-limit, limit - 1));
        if (rng_.Chance(1, 20)) sum = rng_.Chance(1, 2) ? INT32_MIN : INT32_MAX;
      }
      return;
    default: c->x = Codes(c->x.dtype(), c->x.shape());
  }
}

// To be divided by `scale`.
float RandomCase::Real(float scale) {
  float x = static_cast<float>(rng_.Between(-600, 600)) * (scale * 0.5f);
  if (rng_.Chance(1, 4)) x = std::nextafter(x, rng_.Chance(1, 2) ? 1e30f : -1e30f);
  if (rng_.Chance(1, 8)) x = AnyBits();
  if (rng_.Chance(1, 40)) x = std::numeric_limits<float>::quiet_NaN();
  if (rng_.Chance(1, 40)) x = std::numeric_limits<float>::infinity();
  if (rng_.Chance(1, 40)) x = -std::numeric_limits<float>::infinity();
  if (rng_.Chance(1, 40)) x = -0.0f;
  return x;
}

// Not every observer takes every value: again until this one takes all.
void RandomCase::DrawObserved(Case* c) {
  const bool histogram = c->observer.kind == Observer::Kind::kHistogram;
  do {
    const auto exponent = static_cast<int>(rng_.Between(-40, histogram ? 10 : 40));
    const bool one_sign = rng_.Chance(1, 3), any_bits = !histogram && rng_.Chance(1, 4);
    const auto shift = static_cast<float>(rng_.Between(-3, 3));
    for (float& x : c->x.as<float>()) {
      x = static_cast<float>(rng_.Unit() * 2 - 1);
      if (one_sign) x = std::abs(x) * (shift < 0 ? -1.0f : 1.0f);
      x = histogram && rng_.Chance(1, 2) ? x + shift : std::ldexp(x, exponent);
      if (any_bits) x = AnyBits();
      if (rng_.Chance(1, 12)) x = rng_.Chance(1, 2) ? 0.0f : -0.0f;
    }
  } while (!Validate(*c).empty());
}

void RandomCase::DrawBias(Case* c) {
  const auto channels = static_cast<size_t>(c->N);
  if (rng_.Chance(1, 3) && RowOf(c->op).bias_i32) {
    c->bias_i32.emplace(channels);
    for (int32_t& b : *c->bias_i32) {
      b = rng_.Chance(1, 4) ? static_cast<int32_t>(rng_.Next())
                            : static_cast<int32_t>(rng_.Between(-5000, 5000));
    }
  } else if (c->out_dtype != DType::kS32 && rng_.Chance(1, 2)) {
    std::vector<float> bias(channels);
    for (int64_t n = 0; n < c->N; ++n) bias[static_cast<size_t>(n)] = Bias(*c, n);
    c->bias = std::move(bias);
  }
}

float RandomCase::Bias(const Case& c, int64_t n) {
  switch (rng_.Below(5)) {
    case 0: {
      const float any = AnyBits();
      return std::isfinite(any) ? any : -FLT_MAX;
    }
    case 1: return rng_.Chance(1, 2) ? 0x1p-149f : -0x1p-149f;
    case 2: {  // nearly cancels the sum of the first row
      if (c.M == 0 || !HasSums(c)) return 1.0f;
      const double unit = double{c.x_q.scale_at(0)} * double{c.w_q.scale_at(n)};
      const double bias = -SumOf(slice::OneOutput(c, n)) * unit;
      return std::abs(bias) <= FLT_MAX ? static_cast<float>(bias) : 1.0f;
    }
    case 3: return static_cast<float>(rng_.Between(-64, 64)) * 0.5f;
    default: return static_cast<float>(rng_.Unit() * 8 - 4);
  }
}

}  // namespace qualm::test
