// SPDX-License-Identifier: Apache-2.0
// Eighty-two faults of fourteen operations, planted by somebody who had seen neither the table of
// causes nor the generators (bench/strange_everyday.tsv). bench/strangers builds one plugin for
// each: FAULT is its name; any other is exact.
#include <fenv.h>

#include <algorithm>
#include <cmath>
#include <qualm_plugin.hpp>
#include <string_view>
#include <vector>

using namespace qualm::plugin;
typedef __float128 Q;
typedef int64_t i64;

#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)
#define F(n) (std::string_view(TEXT_OF(FAULT)) == (n))

static int Code(const qualm_tensor& t, i64 at) {
  return t.dtype == QUALM_U8 ? ((const uint8_t*)t.data)[at] : ((const int8_t*)t.data)[at];
}
static void Put(const qualm_tensor& t, i64 at, i64 v) { ((uint8_t*)t.data)[at] = (uint8_t)v; }
static i64 Rnd(Q p, Q d) {  // p/d half to even
  Q r = p / d;
  if (r > 1e15) return (i64)1e15;
  if (r < -1e15) return (i64)-1e15;
  i64 f = (i64)r;
  while ((Q)f * d > p) --f;
  while ((Q)(f + 1) * d <= p) ++f;
  Q c = 2 * p - (Q)(2 * f + 1) * d;
  if (c > 0) return f + 1;
  if (c < 0) return f;
  return f & 1 ? f + 1 : f;
}
static i64 Clamp(const qualm_problem& p, i64 v) {
  i64 lo = p.out_min;
  if (p.relu) {
    i64 z = p.out_q.zero_point[0];
    if (F("lin_relu_zero")) z = 0;
    lo = std::max<i64>(lo, z);
  }
  return std::min<i64>(std::max(v, lo), p.out_max);
}
static i64 Sat(i64 v, i64 lo, i64 hi) { return std::min(std::max(v, lo), hi); }

// One output of a linear or a convolution: acc is the sum without bias.
static void Finish(const qualm_problem& p, i64 at, i64 n, i64 acc, bool bias, i64 bn, i64 sn) {
  const Q sx = p.x_q.scale[0];
  Q sw = Scale(p.w_q, sn);
  if (F("lin_scale_half")) {
    int e;
    double f = frexp((double)sw, &e);
    sw = ldexp(nearbyint(f * 2048), e - 11);
  }
  if (bias && p.bias_i32) acc += F("lin_bias16") ? (int16_t)p.bias_i32[bn] : p.bias_i32[bn];
  if (p.y->dtype == QUALM_S32) {
    if (p.relu && acc < 0) acc = 0;
    ((int32_t*)p.y->data)[at] = (int32_t)Sat(acc, p.out_min, p.out_max);
    return;
  }
  Q v = (Q)acc * sx * sw;
  if (bias && p.bias) {
    Q b = p.bias[bn];
    if (F("lin_biasf_int")) b = (Q)Sat(Rnd(b, sx * sw), INT32_MIN, INT32_MAX) * sx * sw;
    Q s = v + b, bb = s - v;
    if ((v - (s - bb)) + (b - bb) != 0) throw Unsupported("bias too far from the sum");
    v = s;
  }
  if (p.y->dtype == QUALM_F32) {
    if (p.relu && v < 0) v = 0;
    float f = (float)v;
    if (v == 0) f = 0.f;
    ((float*)p.y->data)[at] = f;
    return;
  }
  i64 c = Rnd(v, (Q)p.out_q.scale[0]);
  if (F("lin_neg_trunc") && v < 0) {
    Q t = v / (Q)p.out_q.scale[0];
    c = t < -1e12 ? (i64)-1e12 : (i64)t;
  }
  if (F("lin_mult15")) {
    int e;
    Q m = sx * sw / (Q)p.out_q.scale[0];
    double f = frexp((double)m, &e);
    c = Rnd(v * (Q)ldexp(std::floor(f * 32768), e - 15), sx * sw);
  }
  if (F("lin_sat8_before_zp")) c = Sat(c, -128, 127);
  c = Sat(c, -1000000000, 1000000000) + p.out_q.zero_point[0];
  if (F("lin_mr_relu") && p.relu && p.op == QUALM_LINEAR &&
      at / std::max<i64>(p.y->strides[0], 1) >= p.y->dims[0] / 4 * 4)
    c = Sat(c, p.out_min, p.out_max);
  else
    c = Clamp(p, c);
  Put(*p.y, at, c);
  (void)n;
}

static void Linear(const qualm_problem& p) {
  const i64 M = p.y->dims[0], N = p.y->dims[1], K = p.x->dims[1];
  i64 zx = p.x_q.zero_point[0];
  if (F("lin_zx_u8")) zx = p.x->dtype == QUALM_U8 ? (i64)(uint8_t)zx : (i64)(int8_t)zx;
  std::vector<i64> row(N);
  for (i64 m = 0; m < M; ++m) {
    i64 xm = m;
    if (F("lin_odd_row") && M % 2 == 1 && M > 1 && m == M - 1) xm = m - 1;
    for (i64 n = 0; n < N; ++n) {
      i64 zw = ZeroPoint(p.w_q, F("lin_wzp_first") ? 0 : n);
      if (F("lin_n1_wzp0") && N == 1) zw = 0;
      const i64 xr = xm * p.x->strides[0], wr = n * p.w->strides[0];
      i64 acc = 0;
      if (F("lin_kblk64") || F("lin_wsum16")) {
        i64 sx = 0, sw = 0;
        for (i64 k = 0; k < K; ++k) {
          int a = Code(*p.x, xr + k), b = Code(*p.w, wr + k);
          if (!F("lin_kblk64") || k < 64) sx += a;
          sw += b;
          acc += a * b;
        }
        if (F("lin_wsum16")) sw = (int16_t)sw;
        acc += -zx * sw - zw * sx + K * zx * zw;
      } else if (F("lin_acc_f32")) {
        float a = 0;
        for (i64 k = 0; k < K; ++k)
          a += (float)((Code(*p.x, xr + k) - zx) * (Code(*p.w, wr + k) - zw));
        acc = (i64)a;
      } else if (F("lin_acc16_blk")) {
        i64 sx = 0, sw = 0;
        int16_t part = 0;
        for (i64 k = 0; k < K; ++k) {
          int a = Code(*p.x, xr + k), b = Code(*p.w, wr + k);
          sx += a;
          sw += b;
          part = (int16_t)(part + a * b);
          if (k % 8 == 7 || k == K - 1) {
            acc += part;
            part = 0;
          }
        }
        acc += -zx * sw - zw * sx + K * zx * zw;
      } else if (F("lin_zpcorr_kpad")) {
        i64 sx = 0, sw = 0;
        for (i64 k = 0; k < K; ++k) {
          int a = Code(*p.x, xr + k), b = Code(*p.w, wr + k);
          sx += a;
          sw += b;
          acc += a * b;
        }
        acc += -zx * sw - zw * sx + (K + 3) / 4 * 4 * zx * zw;
      } else {
        i64 end = K;
        if (F("lin_tail_k8")) end = K / 8 * 8;
        for (i64 k = 0; k < end; ++k) {
          i64 kw = k;
          if (F("lin_tail_w") && K > 4 && k >= K / 4 * 4) kw = k - 4;
          i64 a = Code(*p.x, xr + k);
          if (F("lin_s8x_nocomp") && p.x->dtype == QUALM_S8) a += 128;
          acc += (a - zx) * (Code(*p.w, wr + kw) - zw);
        }
      }
      if (F("lin_stale_acc") && n >= 16) acc += row[n - 16];
      row[n] = acc;
      i64 bn = n, sn = n;
      if (F("lin_bias_blk4") && n >= N / 4 * 4) bn = n / 4 * 4;
      if (F("lin_scale_pair_swap") && (n ^ 1) < N) sn = n ^ 1;
      Finish(p, m * p.y->strides[0] + n, n, acc, !(F("lin_m1_nobias") && M == 1), bn, sn);
    }
  }
}

static void Conv(const qualm_problem& p) {
  const qualm_window& v = *p.window;
  const i64 *yd = p.y->dims, *xd = p.x->dims, *wd = p.w->dims;
  const i64 zx = p.x_q.zero_point[0], N = yd[3], C = xd[3],
            G = p.op == QUALM_DEPTHWISE ? C : v.groups, Cg = wd[3], Ng = G ? N / G : N;
  const bool dw = p.op == QUALM_DEPTHWISE;
  i64 pt = v.pad_top, pl = v.pad_left, sh = v.stride_h, sw = v.stride_w, dh = v.dilation_h,
      dwi = v.dilation_w;
  if (F("conv_pad_bottom")) {
    pt = v.pad_bottom;
    pl = v.pad_right;
  }
  if (F("conv_dil_swap")) std::swap(dh, dwi);
  if (F("conv_stride_hw")) sw = sh;
  if (F("conv_stride_dil") && (sh > 1 || sw > 1)) dh = dwi = 1;
  if (F("conv_1x1_stride") && v.kernel_h == 1 && v.kernel_w == 1 && pt == 0 && pl == 0) sh = sw = 1;
  for (i64 b = 0; b < yd[0]; ++b)
    for (i64 oy = 0; oy < yd[1]; ++oy)
      for (i64 ox = 0; ox < yd[2]; ++ox)
        for (i64 n = 0; n < N; ++n) {
          i64 wn = n, g = n / Ng, zn = n, sn = n, bn = n;
          if (F("dw_mult_order") && dw && Ng > 1) wn = n % C * Ng + n / C;
          if (F("conv_group_mod")) g = n % G;
          if (F("conv_group_bias")) bn = n % Ng;
          if (F("dw_scale_c") && dw) sn = n / Ng;
          if (F("conv_bias_tail") && n >= N / 4 * 4 && n > 0) bn = n - 1;
          if (F("dw_wzp_c8") && n >= 8) zn = n - 8;
          const i64 zw = ZeroPoint(p.w_q, zn);
          i64 acc = 0;
          i64 cox = ox;
          if (F("conv_col_tail") && yd[2] > 4 && ox >= yd[2] / 4 * 4) cox = ox - 1;
          for (i64 r = 0; r < v.kernel_h; ++r)
            for (i64 s = 0; s < v.kernel_w; ++s) {
              i64 ss = s;
              if (F("dw_3x3_s2") && dw && v.kernel_h == 3 && v.kernel_w == 3 && sw == 2 && s == 2)
                ss = 1;
              const i64 iy = oy * sh - pt + r * dh, ix = cox * sw - pl + ss * dwi;
              bool in = iy >= 0 && iy < xd[1] && ix >= 0 && ix < xd[2];
              if (F("conv_row_wrap") && iy >= 0 && iy < xd[1] && !in) {
                i64 f = iy * xd[2] + ix;
                in = f >= 0 && f < xd[1] * xd[2] && xd[2] > 0;
              }
              if (F("conv_bottom_skip") && r > 0 && oy * sh - pt + (v.kernel_h - 1) * dh >= xd[1] &&
                  iy < xd[1] && iy + dh >= xd[1])
                in = false;
              i64 wr = r, ws = s;
              if (F("conv_flip")) {
                wr = v.kernel_h - 1 - r;
                ws = v.kernel_w - 1 - s;
              }
              i64 xb = F("conv_batch0") ? 0 : b;
              i64 cend = Cg;
              if (F("conv_c_tail4") && Cg > 4) cend = Cg / 4 * 4;
              for (i64 c = 0; c < cend; ++c) {
                i64 w = Code(*p.w, wn * p.w->strides[0] + wr * p.w->strides[1] +
                                       ws * p.w->strides[2] + c) -
                        zw;
                if (in) {
                  i64 yy = iy, xx = ix;
                  if (xx < 0 || xx >= xd[2]) {
                    i64 f = iy * xd[2] + ix;
                    yy = f / xd[2];
                    xx = f % xd[2];
                  }
                  acc += (Code(*p.x, xb * p.x->strides[0] + yy * p.x->strides[1] +
                                         xx * p.x->strides[2] + g * Cg + c) -
                          zx) *
                         w;
                  if (F("dw_acc_s16")) acc = Sat(acc, -32768, 32767);
                } else if (F("conv_pad_zero"))
                  acc += (0 - zx) * w;
              }
            }
          if (F("conv_b_bias2") && b > 0 && p.bias_i32) acc += p.bias_i32[bn];
          Finish(p, b * p.y->strides[0] + oy * p.y->strides[1] + ox * p.y->strides[2] + n, n, acc,
                 true, bn, sn);
        }
}

static void Near(float a, float b) {
  if (std::abs(std::ilogb(a) - std::ilogb(b)) > 45) throw Unsupported("scales too far apart");
}

static void AddMul(const qualm_problem& p) {
  const i64 M = p.y->dims[0], N = p.y->dims[1];
  const Q sa = p.x_q.scale[0], sb = p.w_q.scale[0], sy = p.out_q.scale[0];
  i64 za = p.x_q.zero_point[0], zb = p.w_q.zero_point[0], zy = p.out_q.zero_point[0];
  if (p.op == QUALM_ADD) Near(p.x_q.scale[0], p.w_q.scale[0]);
  if (F("add_za_both")) zb = za;
  for (i64 m = 0; m < M; ++m)
    for (i64 n = 0; n < N; ++n) {
      i64 a = Code(*p.x, m * p.x->strides[0] + n) - za,
          b = Code(*p.w, (F("add_row0") ? 0 : m) * p.w->strides[0] + n) - zb;
      i64 r;
      if (p.op == QUALM_ADD) {
        if (F("add_two_round"))
          r = Rnd(sa * a, sy) + Rnd(sb * b, sy);
        else if (F("add_q10"))
          r = Rnd((Q)(Rnd(sa * 1024, sy) * a + Rnd(sb * 1024, sy) * b), 1024);
        else
          r = Rnd(sa * a + sb * b, sy);
      } else {
        if (F("mul_s8_plus") && p.x->dtype == QUALM_S8) b = b + 2 * zb;
        i64 prod = a * b;
        if (F("mul_s16")) prod = Sat(prod, -32768, 32767);
        r = Rnd((Q)prod * sa * sb, sy);
      }
      r += zy;
      bool tail = n >= N / 16 * 16;
      if (F("add_tail_noclamp") && tail)
        r = p.y->dtype == QUALM_U8 ? Sat(r, 0, 255) : Sat(r, -128, 127);
      else
        r = Clamp(p, r);
      Put(*p.y, m * p.y->strides[0] + n, r);
    }
}

static void Quantize(const qualm_problem& p) {
  const i64 M = p.y->dims[0], N = p.y->dims[1];
  for (i64 m = 0; m < M; ++m)
    for (i64 n = 0; n < N; ++n) {
      float x = ((const float*)p.x->data)[m * p.x->strides[0] + n],
            s = Scale(p.out_q, F("q_chan8") && n >= 8 ? n - 8 : n);
      i64 z = ZeroPoint(p.out_q, n), r;
      if (std::isnan(x))
        r = 0;
      else if (std::isinf(x))
        r = x > 0 ? (i64)1e12 : (i64)-1e12;
      else if (F("q_recip")) {
        volatile float rc = 1.0f / s, t = x * rc;
        r = std::isinf(t) ? (t > 0 ? (i64)1e12 : (i64)-1e12) : std::isnan(t) ? 0 : Rnd(t, 1);
      } else if (F("q_half_trunc")) {
        Q t = (Q)x / (Q)s + (Q)0.5;
        r = t > 1e12 ? (i64)1e12 : t < -1e12 ? (i64)-1e12 : (i64)t;
      } else
        r = Rnd(x, s);
      if (F("q_cvt_overflow") && (r > INT32_MAX || r < INT32_MIN)) r = INT32_MIN;
      i64 c = r + z;
      i64 lo = p.out_min;
      if (p.relu) lo = std::max(lo, z);
      Put(*p.y, m * p.y->strides[0] + n, Sat(c, lo, p.out_max));
    }
}

static void Dequantize(const qualm_problem& p) {
  const i64 M = p.y->dims[0], N = p.y->dims[1];
  for (i64 m = 0; m < M; ++m)
    for (i64 n = 0; n < N; ++n) {
      i64 q = Code(*p.x, m * p.x->strides[0] + n);
      float s = Scale(p.x_q, n);
      i64 z = ZeroPoint(p.x_q, n);
      if (F("deq_tail_zp") && n >= N / 8 * 8) z = 0;
      float f = (float)((Q)s * (Q)(q - z));
      if (F("deq_fold")) {
        volatile float t = s * (float)z;
        volatile float u = s * (float)q;
        f = u - t;
      }
      if (q == z) f = 0.f;
      ((float*)p.y->data)[m * p.y->strides[0] + n] = f;
    }
}

static void Requantize(const qualm_problem& p) {
  const i64 M = p.y->dims[0], N = p.y->dims[1];
  for (i64 m = 0; m < M; ++m)
    for (i64 n = 0; n < N; ++n) {
      i64 a = ((const int32_t*)p.x->data)[m * p.x->strides[0] + n], ns = n;
      if (F("rq_tail_mult0") && n >= N / 8 * 8) ns = 0;
      i64 r;
      if (p.multiplier_count)
        r = Rnd((Q)a * (Q)p.multiplier[p.multiplier_count == 1 ? 0 : ns], 1);
      else
        r = Rnd((Q)a * (Q)p.x_q.scale[0] * (Q)Scale(p.w_q, ns), (Q)p.out_q.scale[0]);
      if (F("rq_half_down")) {
        Q q = p.multiplier_count ? (Q)a * (Q)p.multiplier[p.multiplier_count == 1 ? 0 : ns]
                                 : (Q)a * (Q)p.x_q.scale[0] * (Q)Scale(p.w_q, ns),
          d = p.multiplier_count ? (Q)1 : (Q)p.out_q.scale[0];
        if (r > -1000000 && r < 1000000 && 2 * q == (Q)(2 * r - 1) * d) --r;
      }
      if (F("rq_wrap16")) r = (int16_t)r;
      Put(*p.y, m * p.y->strides[0] + n, Clamp(p, r + p.out_q.zero_point[0]));
    }
}

static i64 Resc(const qualm_problem& p, const qualm_qparams& q, i64 z, i64 code) {
  return Rnd((Q)q.scale[0] * (code - z), (Q)p.out_q.scale[0]) + p.out_q.zero_point[0];
}
static void Rescale(const qualm_problem& p) {
  const i64 M = p.y->dims[0], N = p.y->dims[1];
  for (i64 m = 0; m < M; ++m)
    for (i64 n = 0; n < N; ++n) {
      i64 c = Code(*p.x, m * p.x->strides[0] + n), z = p.x_q.zero_point[0], r;
      if (F("rs_zp_round")) {
        Q s = p.x_q.scale[0], d = p.out_q.scale[0];
        r = Rnd(s * c, d) - Rnd(s * z, d) + p.out_q.zero_point[0];
      } else if (F("rs_xor") && p.x->dtype == QUALM_S8 && p.y->dtype == QUALM_U8)
        r = Resc(p, p.x_q, z, c) + 128;
      else if (F("rs_copy") && p.x_q.scale[0] == p.out_q.scale[0])
        r = c;
      else
        r = Resc(p, p.x_q, z, c);
      Put(*p.y, m * p.y->strides[0] + n, Clamp(p, r));
    }
}
static void Concat(const qualm_problem& p) {
  const i64 M = p.y->dims[0], N = p.y->dims[1], A = p.x->dims[1];
  for (i64 m = 0; m < M; ++m)
    for (i64 n = 0; n < N; ++n) {
      i64 r;
      const bool same = p.x_q.zero_point[0] == p.out_q.zero_point[0] &&
                        p.w_q.zero_point[0] == p.out_q.zero_point[0];
      if (F("cat_copy") && same)
        r = n < A ? Code(*p.x, m * p.x->strides[0] + n) : Code(*p.w, m * p.w->strides[0] + n - A);
      else if (n < A)
        r = Resc(p, p.x_q, p.x_q.zero_point[0], Code(*p.x, m * p.x->strides[0] + n));
      else
        r = Resc(p, p.w_q, F("cat_second_zp") ? p.x_q.zero_point[0] : p.w_q.zero_point[0],
                 Code(*p.w, m * p.w->strides[0] + n - A));
      Put(*p.y, m * p.y->strides[0] + n, Clamp(p, r));
    }
}

static void Pool(const qualm_problem& p) {
  const qualm_window& v = *p.window;
  const i64 *yd = p.y->dims, *xd = p.x->dims;
  const bool mx = p.op == QUALM_MAX_POOL;
  for (i64 b = 0; b < yd[0]; ++b)
    for (i64 oy = 0; oy < yd[1]; ++oy)
      for (i64 ox = 0; ox < yd[2]; ++ox)
        for (i64 c = 0; c < yd[3]; ++c) {
          i64 best = F("max_init0") ? 0 : INT32_MIN, sum = 0, cnt = 0, taps = 0;
          for (i64 r = 0; r < v.kernel_h; ++r)
            for (i64 s = 0; s < v.kernel_w; ++s, ++taps) {
              const i64 iy = oy * v.stride_h - v.pad_top +
                             r * (F("max_dil_ignored") ? 1 : v.dilation_h),
                        ix = ox * v.stride_w - v.pad_left +
                             s * (F("max_dil_ignored") ? 1 : v.dilation_w);
              if (iy < 0 || iy >= xd[1] || ix < 0 || ix >= xd[2]) {
                if (F("max_pad_zero")) best = std::max<i64>(best, 0);
                if (v.count_include_pad && iy < xd[1] + v.pad_bottom && ix < xd[2] + v.pad_right) {
                  ++cnt;
                  if (F("avg_pad0")) sum -= p.x_q.zero_point[0];
                }
                continue;
              }
              ++cnt;
              if (F("max_lastcol") && v.kernel_w > 2 && s == v.kernel_w - 1) continue;
              if (F("avg_9taps") && taps >= 9) continue;
              i64 q =
                  Code(*p.x, b * p.x->strides[0] + iy * p.x->strides[1] + ix * p.x->strides[2] + c);
              best = std::max(best, q);
              sum += q - p.x_q.zero_point[0];
            }
          i64 r;
          if (mx)
            r = best;
          else {
            if (F("avg_int_div") && cnt) {
              sum = sum / cnt;
              cnt = 1;
            }
            if (F("avg_count_full")) cnt = v.kernel_h * v.kernel_w;
            r = Rnd((Q)sum * (Q)p.x_q.scale[0], (Q)cnt * (Q)p.out_q.scale[0]) +
                p.out_q.zero_point[0];
          }
          Put(*p.y, b * p.y->strides[0] + oy * p.y->strides[1] + ox * p.y->strides[2] + c,
              Clamp(p, r));
        }
}

static void Softmax(const qualm_problem& p) {
  const i64 M = p.y->dims[0], N = p.y->dims[1];
  if (!N) return;
  const long double q = std::min(4294967295.0 / (double)N, 8388607.0), s = p.x_q.scale[0];
  std::vector<unsigned __int128> t(N);
  for (i64 m = 0; m < M; ++m) {
    i64 max = INT32_MIN;
    i64 nm = N;
    if (F("sm_max16") && N > 16) nm = N / 16 * 16;
    for (i64 n = 0; n < nm; ++n) max = std::max<i64>(max, Code(*p.x, m * p.x->strides[0] + n));
    unsigned __int128 sum = 0;
    for (i64 n = 0; n < N; ++n) {
      i64 d = max - Code(*p.x, m * p.x->strides[0] + n);
      if (d < 0) d = 0;
      t[n] = (uint64_t)rintl(q * expl(-s * d));
      if (!(F("sm_tail4") && N > 4 && n >= N / 4 * 4)) sum += t[n];
    }
    for (i64 n = 0; n < N; ++n) {
      i64 y = (i64)((256 * t[n] + (F("sm_floor") ? 0 : sum / 2)) / sum);
      y = std::min<i64>(y, 255);
      if (p.y->dtype == QUALM_S8) y -= 128;
      Put(*p.y, m * p.y->strides[0] + n, Sat(y, p.out_min, p.out_max));
    }
  }
}

static i64 Table1(const qualm_problem& p, i64 c) {
  const Q s = p.x_q.scale[0], sy = p.out_q.scale[0], v = s * (c - p.x_q.zero_point[0]);
  const i64 z = p.out_q.zero_point[0];
  switch (p.function) {
    case QUALM_RELU: return Rnd(v > 0 ? v : 0, sy) + z;
    case QUALM_LEAKY_RELU: {
      bool neg = F("tab_leaky_code0") ? c < 0 : v < 0;
      return Rnd(neg ? v * (Q)p.negative_slope : v, sy) + z;
    }
    case QUALM_HARD_SWISH: {
      if (p.x_q.scale[0] < 0x1p-20f || p.x_q.scale[0] > 0x1p20f) throw Unsupported("scale");
      Q u = v + 3;
      if (u < 0) u = 0;
      if (u > 6 && !F("tab_no6")) u = 6;
      return Rnd(v * u, 6 * sy) + z;
    }
    case QUALM_SIGMOID:
      if (F("tab_sig_sat") && (v > 4 || v < -4)) return Rnd(v > 0 ? 1 : 0, sy) + z;
      return v == 0 ? Rnd((Q)0.5, sy) + z : Rnd((Q)(1.0L / (1.0L + expl(-(long double)v))), sy) + z;
    case QUALM_TANH: return Rnd((Q)tanhl((long double)v), sy) + z;
  }
  throw Unsupported("function");
}
static void Table(const qualm_problem& p) {
  const i64 M = p.y->dims[0], N = p.y->dims[1], lo = p.x->dtype == QUALM_U8 ? 0 : -128;
  i64 t[256];
  for (int i = 0; i < 256; ++i) t[i] = Clamp(p, Table1(p, lo + i));
  if (F("tab_interp"))
    for (int i = 0; i < 252; ++i) {
      int b = i / 4 * 4, f = i % 4;
      if (f) t[i] = t[b] + (t[b + 4] - t[b]) * f / 4;
    }
  for (i64 m = 0; m < M; ++m)
    for (i64 n = 0; n < N; ++n)
      Put(*p.y, m * p.y->strides[0] + n,
          t[F("tab_off1") && lo < 0 ? std::max<i64>(0, Code(*p.x, m * p.x->strides[0] + n) - lo - 1)
                                    : Code(*p.x, m * p.x->strides[0] + n) - lo]);
}

static qualm_capability Cap(int32_t op) {
  qualm_capability c{};
  const uint32_t codes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8);
  c.x_dtypes = c.w_dtypes = c.out_dtypes = codes;
  c.features = QUALM_CAN_RELU | QUALM_CAN_CLAMP | QUALM_CAN_PER_CHANNEL | QUALM_CAN_STRIDES |
               QUALM_CAN_EMPTY | QUALM_CAN_EMPTY_K;
  int z = 65536;
  if (op == QUALM_TABLE) z = 1000;
  if (op == QUALM_LINEAR || op == QUALM_CONV2D || op == QUALM_DEPTHWISE) {
    z = 1000;
    c.features |= QUALM_CAN_BIAS_F32 | QUALM_CAN_BIAS_I32 | QUALM_CAN_DILATION | QUALM_CAN_GROUPS |
                  QUALM_CAN_ASYMMETRIC_PADDING;
    c.out_dtypes |= QUALM_TYPE_BIT(QUALM_S32) | QUALM_TYPE_BIT(QUALM_F32);
  }
  if (op == QUALM_MAX_POOL || op == QUALM_AVG_POOL)
    c.features |= QUALM_CAN_DILATION | QUALM_CAN_ASYMMETRIC_PADDING | QUALM_CAN_CEIL_MODE |
                  QUALM_CAN_COUNT_PADDING;
  if (op == QUALM_QUANTIZE) c.x_dtypes = QUALM_TYPE_BIT(QUALM_F32);
  if (op == QUALM_REQUANTIZE) c.x_dtypes = QUALM_TYPE_BIT(QUALM_S32);
  if (op == QUALM_DEQUANTIZE) c.out_dtypes = QUALM_TYPE_BIT(QUALM_F32);
  c.x_zero_point_min = c.w_zero_point_min = c.out_zero_point_min = -z;
  c.x_zero_point_max = c.w_zero_point_max = c.out_zero_point_max = z;
  return c;
}
struct Env {
  fenv_t e;
  Env() {
    fegetenv(&e);
    fesetenv(FE_DFL_ENV);
  }
  ~Env() { fesetenv(&e); }
};
template <void (*K)(const qualm_problem&)>
static void Wrapped(const qualm_problem& p) {
  Env env;
  K(p);
}
#define H(op, f) .Has(op, Cap(op), Wrapped<f>)
QUALM_PLUGIN(Kernels("strange", "1") H(QUALM_LINEAR, Linear) H(QUALM_CONV2D, Conv)
                 H(QUALM_DEPTHWISE, Conv) H(QUALM_ADD, AddMul) H(QUALM_MUL, AddMul)
                     H(QUALM_QUANTIZE, Quantize) H(QUALM_DEQUANTIZE, Dequantize)
                         H(QUALM_REQUANTIZE, Requantize) H(QUALM_RESCALE, Rescale)
                             H(QUALM_CONCAT, Concat) H(QUALM_MAX_POOL, Pool) H(QUALM_AVG_POOL, Pool)
                                 H(QUALM_SOFTMAX, Softmax) H(QUALM_TABLE, Table))
