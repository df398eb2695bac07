// SPDX-License-Identifier: Apache-2.0
#include "properties/gen/library.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "properties/gen/gen.h"
#include "properties/gen/values.h"

namespace qualm::gen {
namespace {

using internal::DrawScale;
using internal::ToInt32;
using internal::ToScale;

void Retype(Tensor& tensor, DType dtype) {
  tensor = InBytes(tensor);
  if (tensor.dtype() == dtype) return;
  const int32_t by = dtype == DType::kS8 ? -128 : 128;
  Tensor moved(dtype, tensor.shape());
  for (int64_t i = 0; i < tensor.size(); ++i) moved.SetInt(i, tensor.IntAt(i) + by);
  tensor = std::move(moved);
}

void IntoCodes(QParams& q, DType dtype) {
  const CodeRange range = RangeOf(dtype);
  for (int32_t& z : q.zero_point) {
    if (z < range.min || z > range.max) {
      z = range.min + static_cast<int32_t>(static_cast<uint32_t>(z) % 256);
    }
  }
}

// Weights that most conventions take, and a bias in the form that more of them do.
void MoveSums(Case& c, Rng& rng) {
  Retype(c.w, rng.Chance(3, 4) ? DType::kS8 : c.x.dtype());
  IntoCodes(c.w_q, c.w.dtype());
  const bool symmetric = rng.Chance(2, 3);
  for (int32_t& z : c.w_q.zero_point) z = symmetric ? 0 : c.w_q.zero_point[0];
  switch (rng.Below(3)) {
    case 0:
      c.bias.reset();
      c.bias_i32.reset();
      break;
    case 1:
      if (!c.bias) break;
      c.bias_i32.emplace(c.bias->size());
      for (int32_t& b : *c.bias_i32) b = static_cast<int32_t>(rng.Between(-20000, 20000));
      c.bias.reset();
      break;
    default: break;
  }
  if (c.per_channel && c.N > 0 && rng.Chance(1, 2)) {
    c.per_channel = false;
    c.w_q.scale.resize(1);
    c.w_q.zero_point.resize(1);
  }
}

// The aim for which the sums of a case are solved.
enum class Aim : uint8_t { kPairs, kTies, kNearTies, kWideSums, kOverflow };

class SolvedSums {
 public:
  SolvedSums(Rng& rng, Op op) : rng_(rng) { c_.op = op; }

  Case Draw() {
    constexpr std::array<Aim, 9> kAims{Aim::kPairs,    Aim::kPairs,    Aim::kTies,
                                       Aim::kTies,     Aim::kNearTies, Aim::kNearTies,
                                       Aim::kNearTies, Aim::kWideSums, Aim::kOverflow};
    aim_ = rng_.Pick(kAims);
    bias_ = rng_.Below(3);
    DrawTypes();
    DrawShape();
    DrawZeroPoints();
    DrawInput();
    largest_ = static_cast<double>(c_.K) * (low_x_ ? 60 : 120) * 100;
    DrawScales();
    const auto channels = static_cast<size_t>(c_.N);
    switch (bias_) {
      case 0: break;
      case 1: c_.bias_i32.emplace(channels); break;
      default: c_.bias.emplace(channels);
    }
    for (int64_t n = 0; n < c_.N; ++n) DrawChannel(n);
    c_.relu = rng_.Chance(1, 8);
    return std::move(c_);
  }

 private:
  void DrawTypes() {
    constexpr std::array<std::pair<DType, DType>, 6> kTypes{{{DType::kU8, DType::kS8},
                                                             {DType::kU8, DType::kS8},
                                                             {DType::kU8, DType::kS8},
                                                             {DType::kS8, DType::kS8},
                                                             {DType::kS8, DType::kS8},
                                                             {DType::kU8, DType::kU8}}};
    const auto& [x, w] = rng_.Pick(kTypes);
    x_dtype_ = x;
    w_dtype_ = w;
    c_.out_dtype = x;
    OpenClamp(&c_);
  }

  // A row of linear is one pixel of a 1x1 convolution, or the one whole window of a depthwise one.
  void DrawShape() {
    constexpr std::array<int64_t, 12> kTerms{1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 300};
    c_.M = c_.op == Op::kDepthwise ? 1 : rng_.Between(1, 2);
    c_.N = rng_.Between(1, 3);
    c_.K = rng_.Pick(kTerms);
    if (aim_ == Aim::kPairs) c_.K = rng_.Between(2, 6);
    if (aim_ == Aim::kWideSums) c_.K = rng_.Chance(1, 2) ? 600 : c_.K;
    if (aim_ == Aim::kNearTies && bias_ == 0) {
      // Without a bias the terms alone must reach sums that come close enough to a tie.
      constexpr std::array<int64_t, 4> kManyTerms{17, 33, 64, 300};
      c_.K = rng_.Pick(kManyTerms);
    } else if (rng_.Chance(
                   1, 3)) {  // as small as can be: the bias makes up what the terms cannot reach
      c_.M = c_.N = 1;
      c_.K = rng_.Between(1, 2);
    }
    Window& v = c_.window;
    if (c_.op == Op::kLinear) {
      c_.x = Tensor(x_dtype_, {c_.M, c_.K});
      c_.w = Tensor(w_dtype_, {c_.N, c_.K});
      return;
    }
    v.batch = 1;
    if (c_.op == Op::kConv2d) {
      v.in_h = c_.M;
      v.in_w = 1;
      v.in_c = c_.K;
    } else {
      // Groups of 8 with a 3x3 kernel and padding 1 are what fast depthwise kernels look for.
      const bool fast = rng_.Chance(1, 2);
      v.kernel_h = v.in_h = fast ? 3 : rng_.Between(1, 3);
      v.kernel_w = v.in_w = fast ? 3 : rng_.Between(1, 4);
      if (fast) v.pad_top = v.pad_bottom = v.pad_left = v.pad_right = 1;
      v.in_c = v.groups = c_.N = fast ? 8 : rng_.Between(1, 4);
    }
    c_.x = Tensor(x_dtype_, {v.batch, v.in_h, v.in_w, v.in_c});
    c_.w = Tensor(w_dtype_, {c_.N, v.kernel_h, v.kernel_w, v.in_c / v.groups});
    DeriveSizes(&c_);
  }

  int32_t DrawCode(DType dtype) { return internal::UniformCode(rng_, dtype); }

  void DrawZeroPoints() {
    c_.x_q.zero_point = {rng_.Chance(1, 2) ? 0 : DrawCode(x_dtype_)};
    c_.w_q.zero_point = {rng_.Chance(3, 4) ? 0 : DrawCode(w_dtype_)};
    c_.out_q.zero_point = {rng_.Chance(1, 4) ? 0 : DrawCode(c_.out_dtype)};
  }

  // Large codes, all of one row with the same sign, because the weights are what is solved for. The
  // last code is a step of 1 from the zero point, so that any rest can be made up.
  void DrawInput() {
    low_x_ = rng_.Chance(1, 2);
    const CodeRange range = RangeOf(x_dtype_);
    const int32_t most = low_x_ && x_dtype_ == DType::kU8 ? 127 : range.max;
    terms_.resize(static_cast<size_t>(c_.K));
    for (int64_t k = 0; k < c_.K; ++k) {
      terms_[static_cast<size_t>(k)] = static_cast<int32_t>(rng_.Between(most - 60, most));
    }
    const int32_t zero = c_.x_q.zero_point[0];
    if (c_.K > 1 && aim_ != Aim::kPairs) terms_.back() = zero < most ? zero + 1 : zero - 1;
    const int64_t copies = c_.x.size() / std::max<int64_t>(c_.K, 1);
    for (int64_t i = 0; i < c_.x.size(); ++i) {
      // Depthwise: tap by tap, all channels of a pixel the same; else row by row.
      c_.x.SetInt(i, terms_[static_cast<size_t>(c_.op == Op::kDepthwise ? i / copies : i % c_.K)]);
    }
  }

  void DrawScales() {
    if (aim_ == Aim::kTies) {
      c_.x_q.scale = {std::ldexp(1.0f, static_cast<int>(rng_.Between(-9, 0)))};
      c_.w_q.scale = {std::ldexp(1.0f, static_cast<int>(rng_.Between(-9, 0)))};
      const auto down = static_cast<int>(rng_.Between(1, 9));
      c_.out_q.scale = {std::ldexp(c_.x_q.scale[0] * c_.w_q.scale[0], down)};
      return;
    }
    c_.x_q.scale = {DrawScale(rng_, -10, -3)};
    c_.w_q.scale = {DrawScale(rng_, -12, -3)};
    const double unit = static_cast<double>(c_.x_q.scale[0]) * c_.w_q.scale[0];
    double largest = largest_;
    if (aim_ == Aim::kWideSums) largest = 0x1p26;
    // Near ties the multiplier must be small against the last bits of the result, so that some sum
    // is close enough to a tie for the last bit of a multiplier to matter.
    double out = unit * largest / 127.0 * (0.25 + rng_.Unit());
    if (aim_ == Aim::kOverflow)
      out = unit * std::ldexp(1.0, -static_cast<int>(rng_.Between(14, 34)));
    c_.out_q.scale = {ToScale(out)};
    if (rng_.Chance(1, 4)) {
      c_.per_channel = true;
      c_.w_q.zero_point.assign(static_cast<size_t>(c_.N), c_.w_q.zero_point[0]);
      c_.w_q.scale.assign(static_cast<size_t>(c_.N), c_.w_q.scale[0]);
      for (float& scale : c_.w_q.scale) scale *= static_cast<float>(0.5 + rng_.Unit());
    }
  }

  // The accumulator that a channel aims at, in units of the scales.
  double Target(double multiplier) {
    const CodeRange range = RangeOf(c_.out_dtype);
    const double z = c_.out_q.zero_point[0];
    half_ = static_cast<double>(rng_.Between(range.min, range.max - 1)) - z + 0.5;
    switch (aim_) {
      case Aim::kPairs: return largest_ * (rng_.Chance(1, 2) ? 1.5 : -1.5);
      case Aim::kOverflow: return largest_ * (rng_.Unit() - 0.5);
      case Aim::kTies: return half_ / multiplier;
      case Aim::kNearTies:
      case Aim::kWideSums: break;
    }
    // Of some random ties, the one whose nearest sum is closest.
    double best = 0, closest = 1;
    for (int tries = 0; tries < 64; ++tries) {
      const double half = static_cast<double>(rng_.Between(range.min, range.max - 1)) - z + 0.5;
      const double acc = std::floor(half / multiplier + 0.5);
      const double off = std::abs(acc * multiplier - half);
      if (off >= closest || std::abs(half) < 8) continue;
      closest = off;
      best = acc;
      half_ = half;
    }
    return best;
  }

  void DrawChannel(int64_t n) {
    const double unit = static_cast<double>(c_.x_q.scale[0]) * c_.w_q.scale_at(n);
    const double multiplier = unit / c_.out_q.scale[0];
    const double target = std::clamp(Target(multiplier), -0x1p30, 0x1p30);
    const auto index = static_cast<size_t>(n);
    double solved = target;
    if (c_.bias_i32) {
      // A part of the target goes into the bias, with all that the terms cannot reach.
      const double reach = std::clamp(target, -largest_ / 2, largest_ / 2);
      solved = std::floor(reach * rng_.Unit());
    }
    if (c_.bias) {
      (*c_.bias)[index] = static_cast<float>(largest_ * unit * (rng_.Unit() - 0.5));
      solved = std::floor(target - (*c_.bias)[index] / unit + 0.5);
    }
    const double rest = Solve(n, solved);
    if (c_.bias_i32) (*c_.bias_i32)[index] = ToInt32(target - solved + rest);
    if (c_.bias && rng_.Chance(2, 3)) {
      // The bias leads to the tie itself, or to a last bit beside it.
      const double bias = half_ * c_.out_q.scale[0] - (solved - rest) * unit;
      const auto nearest = static_cast<float>(std::clamp(bias, -1e30, 1e30));
      const uint64_t side = rng_.Below(3);
      (*c_.bias)[index] = side == 0   ? nearest
                          : side == 1 ? std::nextafter(nearest, -INFINITY)
                                      : std::nextafter(nearest, INFINITY);
    }
  }

  // Sets the weights of channel n so that their sum with terms_ comes as near to `target` as it
  // can; returns the rest.
  double Solve(int64_t n, double target) {
    const CodeRange range = RangeOf(w_dtype_);
    const int32_t x_zero = c_.x_q.zero_point[0], w_zero = c_.w_q.zero_point_at(n);
    double rest = target;
    for (int64_t k = 0; k < c_.K; ++k) {
      const double x = terms_[static_cast<size_t>(k)] - x_zero;
      const double share =
          k + 1 < c_.K ? rest / static_cast<double>(std::min<int64_t>(c_.K - k, 4)) : rest;
      int64_t w = x == 0 ? 0 : std::llround(std::clamp(share / x, -1000.0, 1000.0));
      if (k + 2 < c_.K) w += rng_.Between(-3, 3);
      w = std::clamp<int64_t>(w + w_zero, range.min, range.max);
      c_.w.SetInt(n * c_.K + k, static_cast<int32_t>(w));
      rest -= x * static_cast<double>(w - w_zero);
    }
    return rest;
  }

  Rng& rng_;
  Case c_;
  Aim aim_ = Aim::kTies;
  uint64_t bias_ = 0;  // none, int32, float
  DType x_dtype_ = DType::kU8, w_dtype_ = DType::kS8;
  bool low_x_ = false;
  double half_ = 0;             // the tie that a channel is aimed at, in codes from the zero point
  double largest_ = 0;          // of the sums that K terms reach, roughly
  std::vector<int32_t> terms_;  // codes of x along k
};

}  // namespace

Case IntoLibraryDomain(Case c, Rng& rng) {
  if (rng.Chance(1, 8)) return c;
  if (rng.Chance(1, 2)) c.relu = false;
  if (IsWideCode(c.x.dtype()) || IsSmallCode(c.x.dtype())) IntoCodes(c.x_q, c.x.dtype());
  if (IsByteCode(c.x.dtype())) {
    const DType dtype = rng.Chance(1, 2) ? DType::kU8 : DType::kS8;
    Retype(c.x, dtype);
    IntoCodes(c.x_q, dtype);
    if (HasTwoOperands(c.op)) {
      Retype(c.w, dtype);
      IntoCodes(c.w_q, dtype);
    }
    if (HasSums(c)) MoveSums(c, rng);
    if (c.op != Op::kDequantize && rng.Chance(5, 6)) c.out_dtype = dtype;
  }
  if (IsCode(c.out_dtype)) IntoCodes(c.out_q, c.out_dtype);
  if (c.bias && c.out_dtype == DType::kS32) c.bias.reset();
  OpenClamp(&c);
  return c;
}

Case DrawForLibraries(Op op, uint64_t seed) {
  Rng rng(MixSeed(MixSeed(seed, static_cast<uint64_t>(op)), 2000));
  const bool is_convention_op = HasSums(op) || HasTwoOperands(op) || op == Op::kQuantize ||
                                op == Op::kDequantize || op == Op::kRequantize;
  if (!is_convention_op) return Draw(op, seed);
  Case c;
  if (seed % 2 == 1 && HasSums(op)) {
    c = SolvedSums(rng, op).Draw();
  } else if (seed % 2 == 1) {
    constexpr std::array<Theme, 3> kThemes{Theme::kTies, Theme::kNearTies, Theme::kSpecialFloats};
    const Theme theme = rng.Pick(kThemes);
    c = IntoLibraryDomain(Draw(op, theme, rng.Next()), rng);
  } else {
    c = IntoLibraryDomain(Draw(op, rng.Next()), rng);
  }
  c.requant = Requant::kExact;  // a convention has an arithmetic of its own
  return c;
}

}  // namespace qualm::gen
