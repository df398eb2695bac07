// SPDX-License-Identifier: Apache-2.0
// Every convention computes, refuses and explains as it did when it was last held against its
// library. The libraries are not on every machine, and a recording shows few of the refusals and
// traces; so digests of all three are kept, a row for each convention and operation. A row that
// changes without intent is a convention that has come away from its library.
//
// After an intended change of a convention, run `qualm check` on its library. Then the failing
// tests print the rows as they are now; each replaces the one of its name:
//   convention_digests_test | sed -n 's/^now //p'
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "core/float_format.h"
#include "core/kept_rows_test_util.h"
#include "core/random_case_test_util.h"
#include "core/rng.h"
#include "oracles/conventions/accumulation.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/test_util.h"
#include "properties/gen/library.h"
#include "properties/list.h"

namespace qualm {
namespace {

// "CONVENTION OPERATION" and "CONVENTION facts" to the rest of the line.
using Rows = test::KeptRows;

// Sizes at which libraries choose among kernels: whole and broken blocks of channels, depthwise and
// pointwise convolutions, windows with strides and one-sided padding, one row or many.
class LayerCases {
 public:
  explicit LayerCases(uint64_t seed) : rng_(seed) {}

  Case Draw(Op op) {
    Case c;
    c.op = op;
    if (IsConv(op)) {
      DrawWindow(&c);
    } else {
      c.M = rng_.Pick(kRows);
      c.N = rng_.Pick(kColumns);
      c.K = rng_.Pick(kTerms);
    }
    return Filled(std::move(c));
  }

  // Types, values and parameters for a shape: M, N and K, or a window and N.
  Case Filled(Case c) {
    const Op op = c.op;
    const bool is_signed = rng_.Chance(1, 2);
    c.x = Tensor(is_signed ? DType::kS8 : DType::kU8, ShapeOfX(WithRank(c)));
    c.w = Tensor(rng_.Chance(1, 8) ? DType::kU8 : DType::kS8, ShapeOfW(c));
    if (IsConv(op)) DeriveSizes(&c);
    c.out_dtype = rng_.Chance(1, 8) ? DType::kS32 : rng_.Chance(1, 8) ? DType::kF32 : c.x.dtype();
    OpenClamp(&c);
    c.relu = rng_.Chance(1, 5);
    Fill(&c.x);
    Fill(&c.w);
    DrawParams(&c);
    DrawBias(&c);
    return c;
  }

 private:
  static constexpr std::array<int64_t, 6> kRows{1, 1, 2, 5, 32, 33};
  static constexpr std::array<int64_t, 8> kColumns{1, 3, 4, 8, 16, 17, 32, 64};
  static constexpr std::array<int64_t, 11> kTerms{1, 2, 4, 7, 16, 17, 31, 32, 64, 256, 257};
  static constexpr std::array<int64_t, 8> kGroups{1, 2, 3, 4, 8, 8, 16, 24};

  // ShapeOfX wants the rank of x.
  static Case WithRank(Case c) {
    if (IsConv(c.op)) return c;
    c.x = Tensor(DType::kU8, {0, 0});
    return c;
  }

  void DrawWindow(Case* c) {
    Window& v = c->window;
    const bool depthwise = RowOf(c->op).depthwise || rng_.Chance(1, 3);
    v.groups = depthwise || rng_.Chance(1, 3) ? rng_.Pick(kGroups) : 1;
    v.in_c = v.groups * (depthwise ? 1 : rng_.Pick(kGroups));
    c->N = v.groups * (depthwise ? (rng_.Chance(1, 5) ? 2 : 1) : rng_.Pick(kGroups));
    const auto any = [&](int64_t usual, int64_t most) {
      return rng_.Chance(1, 5) ? rng_.Between(1, most) : usual;
    };
    const int64_t size = rng_.Chance(1, 2) ? 3 : rng_.Chance(1, 2) ? 1 : rng_.Between(1, 7);
    v.kernel_h = any(size, 4);
    v.kernel_w = any(size, 4);
    const int64_t stride = rng_.Chance(2, 3) ? 1 : rng_.Between(2, 3);
    v.stride_h = any(stride, 3);
    v.stride_w = any(stride, 3);
    if (rng_.Chance(1, 6)) v.dilation_h = rng_.Between(1, 2);
    if (rng_.Chance(1, 6)) v.dilation_w = rng_.Between(1, 2);
    const int64_t pad = rng_.Chance(2, 3) ? size / 2 : 0;
    for (int64_t* side : {&v.pad_top, &v.pad_bottom, &v.pad_left, &v.pad_right}) {
      *side = rng_.Chance(1, 8) ? rng_.Between(0, 2) : pad;
    }
    v.batch = rng_.Chance(1, 4) ? 2 : 1;
    v.in_h = std::max<int64_t>(rng_.Between(1, 6), v.dilation_h * (v.kernel_h - 1) + 1 - 2 * pad);
    v.in_w = std::max<int64_t>(rng_.Between(1, 6), v.dilation_w * (v.kernel_w - 1) + 1 - 2 * pad);
  }

  void Fill(Tensor* tensor) {
    const CodeRange range = RangeOf(tensor->dtype());
    const bool loud = rng_.Chance(1, 3);
    for (int64_t i = 0; i < tensor->size(); ++i) {
      tensor->SetInt(i, static_cast<int32_t>(loud ? rng_.Between(range.max - 8, range.max)
                                                  : rng_.Between(range.min, range.max)));
    }
  }

  int32_t Code(DType dtype) {
    if (!IsCode(dtype)) return 0;
    return static_cast<int32_t>(rng_.Between(RangeOf(dtype).min, RangeOf(dtype).max));
  }

  float Scale(int least, int most) {
    const float scale = std::ldexp(1.0f, static_cast<int>(rng_.Between(least, most)));
    return rng_.Chance(1, 3) ? scale : scale * static_cast<float>(1 + rng_.Unit());
  }

  void DrawParams(Case* c) {
    c->per_channel = RowOf(c->op).per_channel == PerChannel::kW && rng_.Chance(1, 3);
    c->x_q = {{Scale(-8, -2)}, {rng_.Chance(1, 3) ? 0 : Code(c->x.dtype())}};
    const auto channels = static_cast<size_t>(c->per_channel ? c->N : 1);
    c->w_q = {std::vector<float>(channels), std::vector<int32_t>(channels)};
    for (float& scale : c->w_q.scale) scale = Scale(-10, -5);
    if (rng_.Chance(1, 3)) {
      for (int32_t& zero_point : c->w_q.zero_point) zero_point = Code(c->w.dtype());
    }
    if (IsCode(c->out_dtype)) c->out_q = {{Scale(-5, 1)}, {Code(c->out_dtype)}};
  }

  void DrawBias(Case* c) {
    const auto channels = static_cast<size_t>(c->N);
    const double unit = static_cast<double>(c->x_q.scale[0]) * c->w_q.scale[0];
    if (rng_.Chance(1, 3)) {
      c->bias_i32.emplace(channels);
      for (int32_t& b : *c->bias_i32) b = static_cast<int32_t>(rng_.Between(-30000, 30000));
    } else if (c->out_dtype != DType::kS32 && rng_.Chance(1, 2)) {
      c->bias.emplace(channels);
      for (float& b : *c->bias) b = static_cast<float>((rng_.Unit() - 0.5) * 40000 * unit);
    }
  }

  Rng rng_;
};

// What most libraries take: codes as zero points, the whole clamp, no relu, one type; the parts
// that only some of them take are drawn.
Case IntoDomain(Case c, Rng& rng) {
  const bool moved = HasSums(c) || HasTwoOperands(c.op) || c.op == Op::kQuantize ||
                     c.op == Op::kDequantize || c.op == Op::kRequantize;
  if (moved) c = gen::IntoLibraryDomain(std::move(c), rng);
  const auto codes = [&](QParams& q, DType dtype) {
    if (!IsCode(dtype)) return;
    const CodeRange range = RangeOf(dtype);
    const bool none = rng.Chance(1, 4);
    for (int32_t& z : q.zero_point)
      z = none ? 0 : range.min + static_cast<int32_t>(static_cast<uint32_t>(z) % 200);
  };
  const auto scales = [&](QParams& q) {
    for (float& scale : q.scale) {
      if (!(scale > 0x1p-20f && scale < 0x1p10f)) scale = 0.03f;
    }
  };
  if (!HasSums(c)) {
    codes(c.x_q, c.x.dtype());
    if (HasTwoInputs(c.op)) codes(c.w_q, c.w.dtype());
    if (RowOf(c.op).out_q == OutQParams::kOwn) codes(c.out_q, c.out_dtype);
  }
  if (rng.Chance(3, 4)) {
    scales(c.x_q);
    scales(c.w_q);
    if (RowOf(c.op).out_q != OutQParams::kFixed) scales(c.out_q);
  }
  if (RowOf(c.op).out_q == OutQParams::kOfInput) c.out_q = c.x_q;
  if (IsPool(c.op) && rng.Chance(1, 2)) {
    c.out_dtype = c.x.dtype();
    c.out_q = c.x_q;
  }
  Window& v = c.window;
  if (IsPool(c.op) && rng.Chance(1, 2) && c.op != Op::kGlobalAvgPool) {
    v.pad_bottom = v.pad_top = std::min(v.pad_top, v.kernel_h / 2);
    v.pad_right = v.pad_left = std::min(v.pad_left, v.kernel_w / 2);
    DeriveSizes(&c);
  }
  if (RowOf(c.op).function && rng.Chance(3, 4)) {
    const int32_t low = RangeOf(c.out_dtype).min;
    switch (c.function) {
      case Function::kSigmoid: c.out_q = {{0x1p-8f}, {low}}; break;
      case Function::kTanh: c.out_q = {{0x1p-7f}, {low + 128}}; break;
      case Function::kRelu: c.out_q = c.x_q; break;
      case Function::kLeakyRelu: c.negative_slope = rng.Chance(1, 2) ? 0.25f : 0.01f; break;
      case Function::kHardSwish: break;
    }
  }
  if (RowOf(c.op).dynamic && rng.Chance(3, 4)) {
    for (float& x : c.x.as<float>()) x = std::isfinite(x) ? x : 1.0f;
    std::ranges::fill(c.w_q.zero_point, 0);
    if (rng.Chance(3, 4)) c.x_gran = Granularity::kTensor;
  }
  if (rng.Chance(3, 4)) c.relu = false;
  OpenClamp(&c);
  return c;
}

// The case with one thing changed, in each way that leaves it valid: what lies just outside the
// domain of a convention that takes the case, or just inside.
std::vector<Case> OneThingChanged(const Case& c) {
  std::vector<Case> changed;
  const auto add = [&](auto change) {
    Case other = c;
    change(other);
    if (other != c && Validate(other).empty()) changed.push_back(std::move(other));
  };
  add([](Case& o) { o.relu = !o.relu; });
  add([](Case& o) { ++o.out_min; });
  add([](Case& o) { --o.out_max; });
  add([](Case& o) { o.out_max = o.out_min; });
  for (const DType dtype : {DType::kU8, DType::kS8, DType::kS32, DType::kF32}) {
    add([&](Case& o) {
      o.out_dtype = dtype;
      OpenClamp(&o);
    });
    const auto retyped = [&](Tensor& t) {
      if (!IsCode(dtype) || !IsCode(t.dtype())) return;
      Tensor other(dtype, t.shape());
      for (int64_t i = 0; i < t.size(); ++i) other.SetInt(i, t.IntAt(i) & 127);
      t = std::move(other);
    };
    add([&](Case& o) { retyped(o.x); });
    add([&](Case& o) { retyped(o.w); });
    add([&](Case& o) {
      retyped(o.x);
      if (HasTwoInputs(o.op)) retyped(o.w);
      if (IsCode(o.out_dtype)) o.out_dtype = dtype;
      OpenClamp(&o);
    });
  }
  for (QParams Case::* q : {&Case::x_q, &Case::w_q, &Case::out_q}) {
    if ((c.*q).zero_point.empty()) continue;
    for (const int32_t z : {-129, -128, -1, 0, 1, 127, 128, 255, 256}) {
      add([&](Case& o) { (o.*q).zero_point[0] = z; });
      add([&](Case& o) {
        (o.*q).zero_point[0] = z;
        if (KeepsType(o.op)) o.out_q = o.x_q;
      });
    }
    for (const float scale :
         {0x1p-149f, 0x1p-127f, 0x1p-126f, 0x1p-33f, 0x1p-32f, 0x1p-17f, 0x1p-16f,
          0x1p-15f,  0x1p-10f,  0x1p-9f,   0x1p-8f,  0x1p-7f,  0.25f,    0x1.fffffep-1f,
          1.0f,      2.0f,      128.0f,    256.0f,   0x1p30f,  0x1p127f}) {
      add([&](Case& o) { (o.*q).scale[0] = scale; });
      add([&](Case& o) {
        (o.*q).scale[0] = scale;
        o.out_q = o.x_q;
      });
    }
  }
  for (const float m : {0x1p-33f, 0x1p-32f, 0x1p-16f, 0x1.fffffep-1f, 1.0f, 2.0f, 255.5f, 256.0f})
    add([&](Case& o) { o.multiplier = {m}; });
  add([](Case& o) { o.bias.reset(); });
  add([](Case& o) { o.bias_i32.reset(); });
  add([](Case& o) { o.bias.emplace(static_cast<size_t>(o.N), 0.75f); });
  add([](Case& o) { o.bias_i32.emplace(static_cast<size_t>(o.N), 77); });
  add([](Case& o) {
    o.per_channel = !o.per_channel;
    QParams& q = RowOf(o.op).per_channel == PerChannel::kW   ? o.w_q
                 : RowOf(o.op).per_channel == PerChannel::kX ? o.x_q
                                                             : o.out_q;
    const size_t entries = o.per_channel ? static_cast<size_t>(o.N) : 1;
    q.scale.resize(entries, 0.11f);
    q.zero_point.resize(entries, q.zero_point.empty() ? 0 : q.zero_point[0]);
  });
  for (int64_t Window::* number :
       {&Window::pad_top, &Window::pad_bottom, &Window::pad_left, &Window::pad_right,
        &Window::dilation_h, &Window::dilation_w, &Window::stride_h, &Window::stride_w}) {
    add([&](Case& o) {
      if (!HasWindow(o.op)) return;
      ++(o.window.*number);
      DeriveSizes(&o);
    });
  }
  add([](Case& o) {
    o.window.ceil_mode = !o.window.ceil_mode;
    DeriveSizes(&o);
  });
  add([](Case& o) { o.window.count_include_pad = !o.window.count_include_pad; });
  for (size_t f = 0; f < CountOf<Function>(); ++f)
    add([&](Case& o) { o.function = static_cast<Function>(f); });
  for (const float slope : {0.0f, 0x1p-149f, 0.5f, 1.0f, 1.5f})
    add([&](Case& o) { o.negative_slope = slope; });
  for (size_t kind = 0; kind < CountOf<Observer::Kind>(); ++kind)
    add([&](Case& o) { o.observer.kind = static_cast<Observer::Kind>(kind); });
  add([](Case& o) { o.observer.symmetric = !o.observer.symmetric; });
  add([](Case& o) { o.observer.reduce_range = !o.observer.reduce_range; });
  add([](Case& o) { ++o.observer.quant_min; });
  add([](Case& o) { --o.observer.quant_max; });
  for (size_t rule = 0; rule < CountOf<QParamsRule>(); ++rule)
    add([&](Case& o) {
      o.rule = static_cast<QParamsRule>(rule);
      if (!IsMx(o.rule)) return;
      o.observer = {.dtype = *(kMxElements.begin() + rule % kMxElements.count)};
      o.codes = true;
    });
  for (size_t gran = 0; gran < CountOf<Granularity>(); ++gran)
    add([&](Case& o) { o.x_gran = static_cast<Granularity>(gran); });
  for (const float x : {0.0f, -0.0f, NAN, INFINITY, -INFINITY, FLT_MAX, -1.0f, 3.0f}) {
    add([&](Case& o) {
      if (o.x.dtype() == DType::kF32 && !o.x.empty()) o.x.as<float>()[0] = x;
    });
    add([&](Case& o) {
      if (o.x.dtype() == DType::kF32) std::ranges::fill(o.x.as<float>(), x);
    });
  }
  return changed;
}

// The shapes on both sides of each bound by which a library chooses a kernel: depthwise, pointwise,
// grouped and dense windows with one number changed, and products of a block, less and more.
std::vector<Case> Shapes(Op op) {
  std::vector<Case> shapes;
  Case c;
  c.op = op;
  if (op == Op::kLinear) {
    for (const auto& [M, N, K] : std::vector<std::array<int64_t, 3>>{
             {1, 300, 256}, {1, 300, 255}, {2, 300, 256}, {2, 300, 16}, {2, 300, 17}, {32, 8, 64},
             {32, 9, 64},   {33, 7, 64},   {1, 256, 64},  {1, 257, 64}, {40, 40, 16}, {40, 40, 15},
             {40, 40, 17},  {1, 1, 256},   {2, 3, 256},   {2, 3, 257},  {2, 3, 384},  {2, 3, 385},
             {2, 3, 511},   {2, 3, 512},   {2, 3, 513},   {2, 3, 767},  {2, 3, 768},  {2, 3, 769},
             {1, 2, 1535},  {1, 2, 1536},  {5, 1, 257}}) {
      c.M = M;
      c.N = N;
      c.K = K;
      shapes.push_back(c);
    }
    return shapes;
  }
  const auto window = [](int64_t groups, int64_t in_c, int64_t kernel, int64_t pad) {
    Window v;
    v.batch = 1;
    v.in_h = v.in_w = 5;
    v.groups = groups;
    v.in_c = in_c;
    v.kernel_h = v.kernel_w = kernel;
    v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = pad;
    return v;
  };
  const auto add = [&](const Window& v, int64_t N) {
    Case shape = c;
    shape.window = v;
    shape.N = N;
    if (RowOf(op).depthwise && v.groups != v.in_c) return;
    if (v.in_h + v.pad_top + v.pad_bottom < v.dilation_h * (v.kernel_h - 1) + 1) return;
    if (v.in_w + v.pad_left + v.pad_right < v.dilation_w * (v.kernel_w - 1) + 1) return;
    shapes.push_back(shape);
  };
  for (const auto& [v, N] : std::vector<std::pair<Window, int64_t>>{{window(8, 8, 3, 1), 8},
                                                                    {window(1, 8, 1, 0), 8},
                                                                    {window(2, 8, 1, 0), 8},
                                                                    {window(1, 3, 3, 1), 4},
                                                                    {window(1, 1500, 1, 0), 3}}) {
    add(v, N);
    add(v, 2 * N);
    for (int64_t Window::* number :
         {&Window::kernel_h, &Window::kernel_w, &Window::stride_h, &Window::stride_w,
          &Window::dilation_h, &Window::dilation_w, &Window::pad_top, &Window::pad_bottom,
          &Window::pad_left, &Window::pad_right, &Window::in_h, &Window::in_w, &Window::batch}) {
      for (const int64_t by : {-1, 1, 2}) {
        Window other = v;
        other.*number += by;
        if (other.*number < (number == &Window::pad_top || number == &Window::pad_bottom ||
                                     number == &Window::pad_left || number == &Window::pad_right
                                 ? 0
                                 : 1)) {
          continue;
        }
        add(other, N);
      }
    }
  }
  for (const int64_t groups : {1, 2, 4, 7, 8, 9, 16, 24}) {
    for (const int64_t kernel : {3, 5, 7, 9})
      add(window(groups, groups, kernel, kernel / 2), groups);
    for (const int64_t each : {2, 3, 4, 8}) {
      add(window(groups, groups * each, 1, 0), groups * 4);
      add(window(groups, groups * 4, 1, 0), groups * each);
      add(window(groups, groups * each, 3, 1), groups * 4);
    }
  }
  // Eight taps of eight channels, and fewer.
  for (const auto& [height, width] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 4}, {4, 2}, {8, 1}, {1, 8}, {2, 3}}) {
    Window v = window(8, 8, 1, 1);
    v.in_h = v.in_w = 7;
    v.kernel_h = height;
    v.kernel_w = width;
    for (const int64_t groups : {8, 16, 4}) {
      v.groups = v.in_c = groups;
      add(v, groups);
    }
    v.in_c = 16;
    add(v, 16);
  }
  // Windows wholly in a padding.
  for (int64_t Window::* side :
       {&Window::pad_top, &Window::pad_bottom, &Window::pad_left, &Window::pad_right}) {
    for (const int64_t pad : {2, 3, 4}) {
      Window v = window(1, 4, 3, 1);
      v.*side = pad;
      add(v, 4);
    }
  }
  return shapes;
}

// Numbers at which float and integer steps turn: the ends of int16, int32 and int64, of 24 bits,
// ties, denormals and what is not finite.
std::vector<float> Edges() {
  std::vector<float> edges{0.0f, 0x1p-149f, 0x1p-126f, 0.25f, 0.5f, 1.0f, 1.5f, 2.5f, 126.5f,
                           127.5f, 128.5f, 254.5f, 255.5f, 256.0f, 32767.5f, FLT_MAX, INFINITY,
                           // Times 255 * 255 it is 2^31 in float32.
                           33025.5078125f};
  for (const int exponent : {15, 16, 22, 23, 24, 25, 30, 31, 32, 62, 63, 64, 126, 127}) {
    const float power = std::ldexp(1.0f, exponent);
    for (const float edge : {std::nextafter(power, 0.0f), power, std::nextafter(power, INFINITY)})
      edges.push_back(edge);
  }
  std::ranges::sort(edges);
  std::vector<float> all;
  for (const float edge : edges | std::views::reverse) all.push_back(-edge);
  all.insert(all.end(), edges.begin(), edges.end());
  all.push_back(NAN);
  return all;
}

std::vector<float> FiniteEdges() {
  std::vector<float> edges = Edges();
  std::erase_if(edges, [](float edge) { return !std::isfinite(edge); });
  return edges;
}

std::vector<int32_t> IntegerEdges() {
  std::vector<int32_t> edges;
  for (const float edge : FiniteEdges())
    edges.push_back(
        static_cast<int32_t>(std::clamp(static_cast<double>(edge), -0x1p31, 0x1p31 - 1)));
  return edges;
}

template <class T>
void SetRow(Case* c, const std::vector<T>& x) {
  c->N = static_cast<int64_t>(x.size());
  c->x = Tensor::Of<T>({1, c->N}, x);
}

// The steps of a product or of a convolution of one or two taps, with these numbers as biases
// beside small sums.
std::vector<Case> BiasEdges(Case c, float scale, int32_t zero_point) {
  const std::vector<float> biases = FiniteEdges();
  c.N = static_cast<int64_t>(biases.size());
  c.K = 2;
  if (c.op == Op::kConv2d) {
    // Of one tap, which some libraries take for a product of matrices, and of two.
    const int64_t height = zero_point == 0 ? 1 : 2;
    c.window.batch = c.window.in_w = 1;
    c.window.in_h = c.window.kernel_h = height;
    c.window.in_c = 2;
    c.x = Tensor(DType::kU8, {1, height, 1, 2});
  } else {
    // Rows and columns beside whole blocks of 4, sums that a multiplier above 1 takes out of int32.
    c.M = zero_point == 0 ? 1 : 5;
    if (IsCode(c.out_dtype) && zero_point != 0) c.out_q.scale = {0x1p-8f};
    c.x = Tensor(DType::kU8, {c.M, 2});
  }
  // Weights of either type.
  c.w = Tensor(c.relu ? DType::kU8 : DType::kS8, ShapeOfW(c));
  if (c.op == Op::kConv2d) DeriveSizes(&c);
  c.x.SetInt(0, 3);
  c.x.SetInt(1, 1);
  for (int64_t i = 0; i < c.w.size(); ++i)
    c.w.SetInt(i, static_cast<int32_t>(i % 7 - (c.relu ? 0 : 3)));
  c.x_q = {{scale}, {zero_point}};
  c.w_q = {{1.0f}, {0}};
  std::vector<Case> cases(3, c);
  cases[1].bias = biases;
  cases[2].bias_i32 = IntegerEdges();
  return cases;
}

// Cases whose steps meet these numbers: as inputs, as a bias beside a small sum.
std::vector<Case> EdgesThroughSteps(Case c, float scale, int32_t zero_point) {
  if (c.op == Op::kLinear || c.op == Op::kConv2d) return BiasEdges(c, scale, zero_point);
  if (c.op == Op::kQuantize) {
    SetRow(&c, Edges());
    c.out_q.scale = {scale};
    return {c};
  }
  if (c.op != Op::kRequantize) return {};
  SetRow(&c, IntegerEdges());
  std::vector<Case> cases;
  for (const float multiplier : {0x1p-24f, 0x1p-8f, 0.5f, 0.75f, 1.0f, 1.5f, 40.0f}) {
    c.multiplier = {multiplier};
    cases.push_back(c);
  }
  return cases;
}

// Cases whose steps meet these numbers, and cases with scales of these sizes.
std::vector<Case> EdgeCases(Op op) {
  std::vector<Case> cases;
  const auto add = [&](Case c) {
    OpenClamp(&c);
    if (Validate(c).empty()) cases.push_back(std::move(c));
  };
  for (const DType out : {DType::kU8, DType::kS8, DType::kF32, DType::kS32}) {
    for (const float scale : {1.0f, 0x1p-31f}) {
      for (const auto& [zero_point, relu] :
           std::array<std::pair<int32_t, bool>, 3>{{{0, false}, {7, false}, {7, true}}}) {
        Case c;
        c.op = op;
        c.M = 1;
        c.relu = relu;
        c.out_dtype = out;
        if (IsCode(out)) c.out_q = {{1.0f}, {zero_point}};
        for (Case& one : EdgesThroughSteps(c, scale, zero_point)) add(std::move(one));
      }
    }
  }
  const bool scaled = HasTwoInputs(op) || RowOf(op).out_q == OutQParams::kOwn;
  if (!scaled || HasSums(op) || RowOf(op).observer || RowOf(op).dynamic) return cases;
  // The same codes under scales of every size; more of them than the body of a vector loop takes.
  auto random = test::RandomCase::OfBytes(27, 120);
  for (const bool relu : {false, true}) {
    if (relu && !RowOf(op).relu) continue;
    Rng rng(28);
    Case c;
    do c = IntoDomain(random.Draw(op), rng);
    while (c.x.size() < (HasWindow(op) ? 1 : 100));
    c.relu = relu;
    for (const float edge : FiniteEdges()) {
      if (edge <= 0) continue;
      // 255 * 2 * edge is 2^30 output units where `edge` is a power of two.
      const float limit = 255 * (edge * 0x1p-29f);
      for (const auto& [first, second, out] :
           std::vector<std::array<float, 3>>{{edge, edge, edge},
                                             {edge, 1.0f, 1.0f},
                                             {edge, edge, 1.0f},
                                             {1.0f, edge, edge},
                                             {edge, edge, limit},
                                             {1.0f, 1.0f, edge},
                                             {edge, 0x1p-126f, 0x1p-126f}}) {
        if (!(out > 0) || !std::isfinite(out)) continue;
        Case o = c;
        if (!o.x_q.scale.empty()) o.x_q.scale[0] = first;
        if (HasTwoInputs(op)) o.w_q.scale[0] = second;
        if (RowOf(op).out_q == OutQParams::kOwn) o.out_q.scale[0] = out;
        add(std::move(o));
      }
    }
  }
  return cases;
}

// The cases that every convention is asked for. They are drawn by random_case_test_util.h and
// properties/gen/library.h alone: the generators of `qualm check` change more often.
// From each wide type to each type by each policy, what lies at and between its values, at its ends
// and beyond; and every code of a small type to f32.
std::vector<Case> Casts() {
  std::vector<Case> casts;
  const DTypeList& types = RowOf(Op::kCast).out_types;
  for (const DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType to : types) {
      std::vector<double> values{0,     1,        1.5,        480,      496,
                                 61440, 0x1p-127, 0x1.4p-127, 0x1p-130, 0x1p127};
      const uint32_t largest = LargestCode(to);
      for (const uint32_t code : {0u, 1u, 2u, largest / 2, largest - 1, largest}) {
        const double value = DecodeFloat(to, code);
        for (const double part : {1.0, 1.0625, 1.125, 1.5, 2.0}) values.push_back(value * part);
      }
      Tensor x(from, {2, static_cast<int64_t>(values.size()) + 2});
      for (int64_t i = 0; i < x.size(); ++i) {
        const auto at = static_cast<size_t>(i % x.shape()[1]);
        const uint32_t code = at < values.size()
                                  ? EncodeFloat(from, values[at])
                                  : NanCode(from) - static_cast<uint32_t>(at - values.size());
        x.SetBits(i, code | (i < x.shape()[1] ? 0 : SignOf(from)));
      }
      for (int policy = 0; policy < 9; ++policy) {
        casts.push_back(CaseOver(Op::kCast, x, to));
        casts.back().rounding = static_cast<FloatRounding>(policy / 3);
        casts.back().overflow = static_cast<FloatOverflow>(policy % 3);
      }
    }
  }
  for (const DType from : types) {
    if (BitsOf(from) > 8) continue;
    Tensor codes(from, {1, int64_t{RangeOf(from).max} + 1});
    for (int64_t i = 0; i < codes.size(); ++i) codes.SetBits(i, static_cast<uint32_t>(i));
    casts.push_back(CaseOver(Op::kCast, codes, DType::kF32));
  }
  return casts;
}

const std::vector<Case>& CasesOf(Op op) {
  static std::map<Op, std::vector<Case>> drawn;
  std::vector<Case>& cases = drawn[op];
  if (!cases.empty()) return cases;
  const int each = RowOf(op).observer ? 10 : 40;
  const uint64_t seed = MixSeed(26, static_cast<uint64_t>(op));
  auto few = test::RandomCase::OfBytes(seed);
  auto many = test::RandomCase::OfBytes(seed + 1, HasWindow(op) || HasSums(op) ? 20 : 90);
  LayerCases layers(seed + 2);
  Rng rng(seed + 3);
  for (int i = 0; i < each; ++i) {
    cases.push_back(few.Draw(op));
    cases.push_back(IntoDomain(few.Draw(op), rng));
    cases.push_back(IntoDomain(many.Draw(op), rng));
    if (op == Op::kLinear || IsConv(op)) cases.push_back(layers.Draw(op));
  }
  if (op == Op::kLinear || IsConv(op)) {
    for (const Case& shape : Shapes(op)) {
      for (int i = 0; i < 3; ++i) cases.push_back(layers.Filled(shape));
    }
  }
  for (Case& c : EdgeCases(op)) cases.push_back(std::move(c));
  if (op == Op::kCast) {
    for (Case& c : Casts()) cases.push_back(std::move(c));
  }
  if (HasTwoOperands(op)) {
    // oneDNN's binary primitives have no zero points, and three of three are seldom drawn as 0.
    auto plain = test::RandomCase::OfBytes(seed + 4);
    for (int i = 0; i < each / 2; ++i) {
      cases.push_back(IntoDomain(plain.Draw(op), rng));
      Case& c = cases.back();
      for (QParams* q : {&c.x_q, &c.w_q, &c.out_q}) std::ranges::fill(q->zero_point, 0);
    }
  }
  if (op == Op::kLinear) {
    // ncnn takes s8 without zero points, and gives float32.
    LayerCases plain(seed + 5);
    for (int i = 0; i < each; ++i) {
      Case c = plain.Draw(op);
      for (Tensor* codes : {&c.x, &c.w}) {
        Tensor signed_codes(DType::kS8, codes->shape());
        for (int64_t k = 0; k < codes->size(); ++k)
          signed_codes.as<int8_t>()[static_cast<size_t>(k)] = static_cast<int8_t>(codes->IntAt(k));
        *codes = std::move(signed_codes);
      }
      for (QParams* q : {&c.x_q, &c.w_q}) std::ranges::fill(q->zero_point, 0);
      c.out_dtype = DType::kF32;
      c.out_q = {};
      c.bias_i32.reset();
      OpenClamp(&c);
      cases.push_back(std::move(c));
    }
  }
  if (RowOf(op).dynamic) {
    // TensorFlow Lite quantizes rows to s8, and has s8 weights without zero points.
    auto rows = test::RandomCase::OfBytes(seed + 6);
    for (int i = 0; i < each; ++i) {
      Case c = rows.Draw(op);
      for (float& x : c.x.as<float>())
        x = static_cast<float>(rng.Between(-400, 400)) * (rng.Chance(1, 2) ? 0.25f : 0.37f);
      Tensor w(DType::kS8, c.w.shape());
      for (int64_t k = 0; k < w.size(); ++k)
        w.SetInt(k, static_cast<int32_t>(rng.Between(-128, 127)));
      c.w = std::move(w);
      std::ranges::fill(c.w_q.zero_point, 0);
      for (float& scale : c.w_q.scale) scale = static_cast<float>(1 + rng.Unit());
      if (c.bias) std::ranges::fill(*c.bias, 0.75f);
      const bool symmetric = rng.Chance(1, 2);
      c.rule = QParamsRule::kObserver;
      c.x_gran = Granularity::kRow;
      c.observer = {.symmetric = symmetric,
                    .dtype = DType::kS8,
                    .quant_min = symmetric ? -127 : -128,
                    .quant_max = 127};
      OpenClamp(&c);
      cases.push_back(std::move(c));
    }
  }
  if (RowOf(op).observer) {
    auto blocks = test::RandomCase::OfBytes(seed + 7);
    for (int i = 0; i < each; ++i) {
      Case c = blocks.Draw(op);
      c.observer = {.dtype = *(kMxElements.begin() + rng.Below(kMxElements.count))};
      c.rule = static_cast<QParamsRule>(rng.Between(static_cast<int>(QParamsRule::kMxFloor),
                                                    static_cast<int>(QParamsRule::kMxNearest)));
      c.codes = true;
      for (float& x : c.x.as<float>()) x = std::isfinite(x) ? x : 1.0f;
      cases.push_back(std::move(c));
    }
  }
  for (const Case& c : cases) EXPECT_EQ(Validate(c), "") << Name(op);
  return cases;
}

// The bits of all elements; NaNs are one, because compilers make different ones.
std::string Bits(Tensor y) {
  if (y.dtype() == DType::kF32) {
    for (float& v : y.as<float>()) {
      if (std::isnan(v)) v = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return {y.bytes().begin(), y.bytes().end()};
}

std::string Text(const Trace& trace) {
  std::string text;
  for (const TraceStep& step : trace) {
    text += std::string(Name(step.stage)) + "|" + step.text + "|" + step.value +
            (step.lossy ? "|lossy\n" : "|\n");
  }
  // The bits of a NaN ("nan:7fc00000") are the compiler's.
  constexpr std::string_view kNaN = "nan:";
  for (size_t at = 0; (at = text.find(kNaN, at)) != std::string::npos; ++at)
    text.erase(at + kNaN.size() - 1, 9);
  return text;
}

// The codes that enclose those between two neighbours of x, of all and of the first and last:
// "MIN..MAX MIN..MAX".
std::string Enclosed(const Convention& convention, const Case& c) {
  if (c.op != Op::kQuantize && c.op != Op::kRequantize) return "";
  if (c.per_channel || c.bias || c.bias_i32) return "";
  std::string text;
  Case ends = c;
  ends.M = 1;
  ends.N = 2;
  const auto enclose = [&](int64_t i, int64_t k) {
    if (c.op == Op::kQuantize) {
      const float first = c.x.FloatAt(i), second = c.x.FloatAt(k);
      if (std::isnan(first) != std::isnan(second)) return;
      ends.x = Tensor::Of<float>(
          {1, 2}, std::vector<float>{std::min(first, second), std::max(first, second)});
    } else {
      const auto [least, most] = std::minmax({c.x.IntAt(i), c.x.IntAt(k)});
      ends.x = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{least, most});
    }
    if (!convention.cannot_run(ends).empty()) return;
    const std::optional<CodeRange> codes = EncloseBy(convention, ends);
    text += codes ? std::to_string(codes->min) + ".." + std::to_string(codes->max) + " " : "? ";
  };
  for (int64_t i = 0; i < c.x.size(); ++i) enclose(i, (i + 1) % c.x.size());
  for (int64_t i = 0; i + 3 < c.x.size(); ++i) enclose(i, i + 3);
  return text;
}

// Quantize of x that lie between the ends of blocks, near ties among them: ggml takes no others.
std::vector<Case> WithinTheirBlocks() {
  Rng rng(27);
  std::vector<Case> cases;
  for (int i = 0; i < 60; ++i) {
    const DType dtype =
        std::array{DType::kS8, DType::kU4, DType::kU8}.at(static_cast<size_t>(i % 3));
    const int32_t highest = dtype == DType::kS8 ? 127 : dtype == DType::kU4 ? 15 : 31;
    const int32_t middle = dtype == DType::kS8 ? 0 : (highest + 1) / 2;
    const bool minima = dtype != DType::kS8 && rng.Chance(1, 2);
    const auto zero_point = minima ? static_cast<int32_t>(rng.Between(0, 7)) : middle;
    const int32_t least = dtype == DType::kS8 ? -highest : -zero_point;
    Case c = CaseOver(Op::kQuantize, Tensor(DType::kF32, {2, 20}), dtype);
    if (dtype == DType::kU8) c.out_max = highest;
    c.out_q = {{std::ldexp(static_cast<float>(rng.Between(1 << 16, 1 << 17)), -20)}, {zero_point}};
    for (float& x : c.x.as<float>())
      x = static_cast<float>(rng.Between(2 * least, 2 * (highest - zero_point))) / 2 *
          c.out_q.scale[0];
    cases.push_back(std::move(c));
  }
  return cases;
}

// What a convention does with cases of one operation.
class Digests {
 public:
  static constexpr int kChanged = 4;  // cases of which one thing is changed

  Digests(const Convention& convention, Op op) : convention_(convention) {
    int changed = 0;
    for (const Case& c : CasesOf(op)) {
      if (!Ask(c) || c.output_shape()[0] == 0 || ++changed > (RowOf(op).observer ? 1 : kChanged))
        continue;
      for (const Case& other : OneThingChanged(c)) Ask(other);
    }
    if (convention.name.starts_with("ggml@"))
      for (const Case& c : WithinTheirBlocks()) Ask(c);
  }

  bool HasOutputs() const { return !traces_.empty(); }
  // "ANSWERED of ASKED, answers DIGEST, traces DIGEST, refusals DIGEST"
  std::string Row() const {
    return std::to_string(answered_) + " of " + std::to_string(asked_) + ", answers " +
           test::RowDigest(answers_) + ", traces " + test::RowDigest(traces_) + ", refusals " +
           test::RowDigest(refusals_);
  }

 private:
  // Whether it answers.
  bool Ask(const Case& c) {
    ++asked_;
    const std::string reason = convention_.cannot_run(c);
    refusals_ += reason + "\n";
    if (!reason.empty()) return false;
    ++answered_;
    const ConventionOutput output = convention_.run(c);
    if (convention_.accumulation && HasSums(c)) {
      const conventions::Accumulation how = convention_.accumulation(c);
      traces_ += std::string(how.kernel) + std::to_string(static_cast<int>(how.kind)) +
                 std::to_string(how.first_block);
    }
    answers_ +=
        Bits(output.y) + (output.acc ? Bits(*output.acc) : "none") + Enclosed(convention_, c);
    for (const int64_t i : {int64_t{0}, output.y.size() / 2, output.y.size() - 1}) {
      if (i >= 0 && i < output.y.size()) traces_ += Text(convention_.trace(c, i));
    }
    return true;
  }

  const Convention& convention_;
  int asked_ = 0, answered_ = 0;
  std::string answers_, traces_, refusals_;
};

// What it says of itself: where it comes from, what it claims and how it may differ.
std::string Facts(const Convention& convention) {
  std::string text = convention.family + "\n" + convention.description + "\n" + convention.source +
                     (convention.pair_saturates ? "\npairs\n" : "\n");
  for (const std::string& id : convention.variations) text += id + " ";
  for (const Op op : convention.ops) {
    text += std::string(Name(op)) + ":";
    for (const Property& property : AllProperties()) {
      if (property.about(op) && Satisfies(convention, op, property.claim))
        text += " " + std::string(property.claim);
    }
  }
  return test::RowDigest(text);
}

const Rows& Kept() {
  static const Rows kept =
      test::ReadKeptRows(QUALM_SOURCE_DIR "/properties/convention_digests.txt");
  return kept;
}

// "CONVENTION OPERATION"
std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Convention& convention : AllConventions()) {
    for (const Op op : convention.ops)
      names.push_back(convention.name + " " + std::string(Name(op)));
  }
  return names;
}

void ExpectKept(const std::string& name, const std::string& row) {
  const auto kept = Kept().find(name);
  EXPECT_EQ(row, kept == Kept().end() ? "no row" : kept->second) << name;
  if (testing::Test::HasFailure()) std::cout << "now " << name << ": " << row << "\n";
}

class ConventionDigestsTest : public testing::TestWithParam<std::string> {};

TEST_P(ConventionDigestsTest, AreAsKept) {
  const size_t space = GetParam().find(' ');
  const Convention& convention = *FindConvention(GetParam().substr(0, space));
  const Op op = *ParseOp(GetParam().substr(space + 1));
  const Digests digests(convention, op);
  EXPECT_TRUE(digests.HasOutputs()) << "no case has an output that the convention makes";
  ExpectKept(GetParam(), digests.Row());
}

INSTANTIATE_TEST_SUITE_P(All, ConventionDigestsTest, testing::ValuesIn(Names()), TestName);

TEST(ConventionDigests, FactsAreAsKept) {
  for (const Convention& convention : AllConventions())
    ExpectKept(convention.name + " facts", Facts(convention));
}

TEST(ConventionDigests, AreOfConventionsThatExist) {
  std::vector<std::string> names = Names();
  for (const std::string& name : NamesOfConventions()) names.push_back(name + " facts");
  for (const auto& [name, row] : Kept())
    EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
}

TEST(ConventionDigests, WhatAConventionLacksItRefuses) {
  for (const Convention& convention : AllConventions()) {
    for (const Op op : AllOps()) {
      for (Case c : CasesOf(op) | std::views::take(4)) {
        if (!Has(convention, op)) {
          EXPECT_NE(convention.cannot_run(c), "") << convention.name << " " << Name(op);
        }
        if (!RowOf(op).requant) continue;
        c.requant = Requant::kFixedQ31;
        EXPECT_NE(convention.cannot_run(c), "") << convention.name << " " << Name(op);
      }
    }
  }
}

}  // namespace
}  // namespace qualm
