// SPDX-License-Identifier: Apache-2.0
// Ninety-one faults of seventeen operations, planted by somebody who had seen neither the table of
// causes nor the generators (bench/strange_parts.tsv). bench/strangers builds one plugin for each:
// FAULT is its name; `none` is exact.
#include <fenv.h>
#include <gmp.h>
#include <math.h>
#include <quadmath.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bench/strange_plugin.h"

enum Fault {
  none,
  lin_ktail_u8_signed,
  lin_kpad_zpzp,
  lin_mtail_scale_block,
  lin_kblock_bias,
  lin_relu_before_bias,
  lin_s32_comp_float,
  lin_bias_f32_to_int,
  lin_out_zp_i16_wrap,
  lin_wsum_cache,
  lin_ntail_scale_restart,
  lin_s8_shift_mtail,
  lin_neg128_pair,
  lin_unroll_copy,
  lin_xsum_ktail,
  lin_threads_rows,
  conv_dilation_h_for_w,
  conv_pad_swap_lr,
  conv_pad_bottom_zero,
  conv_s8_shift_pad,
  conv_1x1_stride_xsum,
  conv_group_scale,
  conv_bias_ntail,
  conv_dil_rows_skipped,
  conv_ic_tail_tap0,
  conv_mult_20bits,
  conv_batch_gap,
  conv_clamp_before_zp,
  dw_mult_mod,
  dw_tail_transposed,
  dw_acc16,
  dw_last_odd_row,
  dw_multipass_bias,
  dyn_minmax_of_all,
  dyn_row_zp_first,
  dyn_zero_not_in_range,
  dyn_tail_trunc,
  dyn_relu_needs_bias,
  dyn_nan_lowest,
  add_tail_zpb,
  add_s8_diff_sat,
  add_inplace_overlap,
  add_same_buffer,
  sub_swap_sign,
  sub_ties_up,
  sub_u8_underflow_wrap,
  mul_i16,
  mul_left_shift_ignored,
  mul_relu_replaces_min,
  mul_tail_b_restart,
  mul_n1_broadcast,
  concat_copy_same_scale,
  concat_second_zp,
  concat_s8_lut_offset,
  concat_pitch,
  quant_tail_of_8,
  quant_zp_before_round,
  quant_big_min,
  quant_channel_flat_index,
  quant_caller_rounding,
  dequant_body_s8,
  dequant_two_roundings,
  dequant_zp_int8,
  dequant_overread,
  requant_acc_float,
  requant_shift0,
  requant_intmin,
  requant_tail_clamp,
  rescale_xor_same_scale,
  rescale_lut_key_clamp,
  rescale_last_unwritten,
  rescale_neg_trunc,
  avg_ceil_beyond_pad,
  avg_divisor_full,
  avg_pad_top_for_left,
  avg_leaves_ftz,
  max_init_zero,
  max_border_clamp,
  max_taps_pass_tail,
  max_full_store_gap,
  gap_i16,
  gap_zp_round7,
  gap_ctail_image0,
  tab_hswish_code_units,
  tab_leaky_raw_code,
  tab_sigmoid_symmetric,
  tab_lut_last_entry,
  tab_tanh_sat4,
  sm_s8_diff_sat,
  sm_sum_tail,
  sm_s8_wrap256,
  sm_floor
};
static const Fault F = FAULT;
#define IS(n) __builtin_expect(F == n, 0)

typedef int64_t i64;
typedef long double ld;
static const i64 kBig = i64(1) << 40;

// ---------------------------------------------------------------- exact rounding
enum Mode { kEven, kUp, kAway, kTruncHalf };

struct Q {  // a GMP rational
  mpq_t v;
  Q() { mpq_init(v); }
  ~Q() { mpq_clear(v); }
};

struct Term {  // c * a * b
  i64 c;
  float a, b;
};

static void to_q(mpq_t out, const Term* t, int n, float sy, i64 count) {
  Q sum, x, y;
  for (int i = 0; i < n; ++i) {
    mpq_set_si(x.v, t[i].c, 1);
    mpq_set_d(y.v, t[i].a);
    mpq_mul(x.v, x.v, y.v);
    mpq_set_d(y.v, t[i].b);
    mpq_mul(x.v, x.v, y.v);
    mpq_add(sum.v, sum.v, x.v);
  }
  mpq_set_d(y.v, sy);
  mpq_set_si(x.v, count, 1);
  mpq_mul(y.v, y.v, x.v);
  mpq_div(out, sum.v, y.v);
}

static i64 round_q(const mpq_t v, Mode mode) {
  mpz_t f, r, d;
  mpz_inits(f, r, d, nullptr);
  if (mode == kTruncHalf) {  // trunc(v + 1/2)
    Q h;
    mpq_set_si(h.v, 1, 2);
    mpq_add(h.v, h.v, v);
    mpz_tdiv_q(f, mpq_numref(h.v), mpq_denref(h.v));
  } else {
    mpz_fdiv_qr(f, r, mpq_numref(v), mpq_denref(v));
    mpz_mul_2exp(r, r, 1);
    const int c = mpz_cmp(r, mpq_denref(v));
    bool up = c > 0;
    if (c == 0) {
      up = mode == kEven ? mpz_odd_p(f) != 0 : mode == kUp ? true : mpz_sgn(f) >= 0;
    }
    if (up) mpz_add_ui(f, f, 1);
  }
  i64 result;
  if (mpz_cmp_si(f, kBig) > 0)
    result = kBig;
  else if (mpz_cmp_si(f, -kBig) < 0)
    result = -kBig;
  else
    result = mpz_get_si(f);
  mpz_clears(f, r, d, nullptr);
  return result;
}

static i64 rq(const Term* t, int n, float sy, i64 count = 1, Mode mode = kEven) {
  ld sum = 0, mag = 0;
  for (int i = 0; i < n; ++i) {
    const ld x = (ld)t[i].c * t[i].a * t[i].b;
    sum += x;
    mag += fabsl(x);
  }
  const ld den = (ld)sy * count;
  const ld v = sum / den;
  const ld err = mag / den * 0x1p-58L;
  if (mode != kTruncHalf && fabsl(v) < 0x1p39L) {
    const ld fr = v - floorl(v);
    if (fabsl(fr - 0.5L) > err + 0x1p-20L) return (i64)floorl(v + 0.5L);
  }
  if (fabsl(v) - err > 0x1p41L) return v > 0 ? kBig : -kBig;
  Q q;
  to_q(q.v, t, n, sy, count);
  return round_q(q.v, mode);
}

// Exact sum of terms, rounded once to float32.
static float rf(const Term* t, int n) {
  ld sum = 0, mag = 0;
  for (int i = 0; i < n; ++i) {
    const ld x = (ld)t[i].c * t[i].a * t[i].b;
    sum += x;
    mag += fabsl(x);
  }
  const ld err = mag * 0x1p-58L;
  const float lo = (float)(sum - err), hi = (float)(sum + err);
  if (mag == 0) return 0.0f;
  if (lo == hi && lo != 0) return lo;
  Q q;
  to_q(q.v, t, n, 1.0f, 1);
  if (mpq_sgn(q.v) == 0) return 0.0f;
  const bool negative = mpq_sgn(q.v) < 0;
  mpq_abs(q.v, q.v);
  int e = (int)mpz_sizeinbase(mpq_numref(q.v), 2) - (int)mpz_sizeinbase(mpq_denref(q.v), 2) - 24;
  if (e < -149) e = -149;
  for (;; ++e) {
    Q s;
    if (e >= 0)
      mpq_div_2exp(s.v, q.v, e);
    else
      mpq_mul_2exp(s.v, q.v, -e);
    mpz_t f;
    mpz_init(f);
    mpz_tdiv_q(f, mpq_numref(s.v), mpq_denref(s.v));
    const bool fits = mpz_sizeinbase(f, 2) <= 24;
    mpz_clear(f);
    if (!fits) continue;
    const i64 m = round_q(s.v, kEven);
    const double r = ldexp((double)m, e);
    const float out = r > 3.4028235677973366e38 ? INFINITY : (float)r;
    return negative ? -out : out;
  }
}

// ---------------------------------------------------------------- access
static inline int rd(const qualm_tensor* t, i64 at) {
  return t->dtype == QUALM_U8 ? ((const uint8_t*)t->data)[at] : ((const int8_t*)t->data)[at];
}
static inline void wr(const qualm_tensor* t, i64 at, i64 v) {
  ((uint8_t*)t->data)[at] = (uint8_t)v;
}
static inline float scale_of(const qualm_qparams& q, i64 n) {
  return q.scale[q.count == 1 ? 0 : n];
}
static inline int zp_of(const qualm_qparams& q, i64 n) {
  return q.zero_point[q.count == 1 ? 0 : n];
}
static inline i64 clampv(i64 v, i64 lo, i64 hi) { return std::min(std::max(v, lo), hi); }
static inline i64 low(const qualm_problem* p, int zy) {
  return p->relu ? std::max<i64>(p->out_min, zy) : p->out_min;
}
static i64 finish(const qualm_problem* p, i64 v, int zy) {
  return clampv(v + zy, low(p, zy), p->out_max);
}

// ---------------------------------------------------------------- linear, conv2d, depthwise
struct Where {
  i64 n;         // output channel
  i64 scale_at;  // index of its scale
  i64 bias_at;   // index of its bias
  i64 bias_times = 1;
};

// sum holds (x - zx)(w - zw); at is where the output goes.
static void epilogue(const qualm_problem* p, i64 sum, const Where& k, i64 at) {
  const float sx = p->x_q.scale[0], sw = scale_of(p->w_q, k.scale_at);
  const int out = p->y->dtype;
  if (IS(lin_relu_before_bias) && p->relu && sum < 0) sum = 0;
  const i64 bi = p->bias_i32 ? (i64)p->bias_i32[k.bias_at] * k.bias_times : 0;
  if (out == QUALM_S32) {
    i64 v = sum + bi;
    if (p->relu) v = std::max<i64>(v, 0);
    ((int32_t*)p->y->data)[at] = (int32_t)clampv(v, p->out_min, p->out_max);
    return;
  }
  Term t[2] = {{sum + bi, sx, sw}, {k.bias_times, p->bias ? p->bias[k.bias_at] : 0.0f, 1.0f}};
  int terms = p->bias ? 2 : 1;
  if (IS(lin_bias_f32_to_int) && p->bias) {
    ld b = rintl((ld)p->bias[k.bias_at] / ((ld)sx * sw));
    b = std::min(std::max(b, -2147483648.0L), 2147483647.0L);
    t[0].c += (i64)b;
    terms = 1;
  }
  if (out == QUALM_F32) {
    float v = rf(t, terms);
    if (p->relu && !(v > 0)) v = 0.0f;
    ((float*)p->y->data)[at] = v;
    return;
  }
  const float sy = p->out_q.scale[0];
  const int zy = p->out_q.zero_point[0];
  i64 v;
  if (IS(conv_mult_20bits) && !p->bias) {
    int e;
    ld m = frexpl((ld)sx * sw / sy, &e);
    m = ldexpl(floorl(m * 0x1p20L), e - 20);
    const ld r = rintl((ld)t[0].c * m);
    v = r > 0x1p40L ? kBig : r < -0x1p40L ? -kBig : (i64)r;
  } else {
    v = rq(t, terms, sy);
  }
  if (IS(lin_out_zp_i16_wrap)) {
    v = clampv(v, -32768, 32767);
    wr(p->y, at, clampv((int16_t)(v + zy), low(p, zy), p->out_max));
    return;
  }
  if (IS(conv_clamp_before_zp)) {
    v = std::min<i64>(v, p->out_max) + zy;
    const i64 top = out == QUALM_U8 ? 255 : 127;
    wr(p->y, at, clampv(v, low(p, zy), top));
    return;
  }
  wr(p->y, at, finish(p, v, zy));
}

static i64 g_sum_n = -1, g_sum_k = -1;
static i64 g_sums[4096];

static int linear(const qualm_problem* p) {
  const i64 M = p->y->dims[0], N = p->y->dims[1], K = p->x->dims[1];
  const qualm_tensor *x = p->x, *w = p->w;
  const i64 xs = x->strides[0], ws = w->strides[0];
  const int zx = p->x_q.zero_point[0];
  const bool xu8 = x->dtype == QUALM_U8, ws8 = w->dtype == QUALM_S8;
  i64 rows = M;
  if (IS(lin_threads_rows) && p->threads > 1) rows = M / p->threads * p->threads;
  if (IS(lin_wsum_cache) && N <= 4096 && (g_sum_n != N || g_sum_k != K)) {
    for (i64 n = 0; n < N; ++n) {
      i64 s = 0;
      for (i64 k = 0; k < K; ++k) s += rd(w, n * ws + k);
      g_sums[n] = s;
    }
    g_sum_n = N;
    g_sum_k = K;
  }
  for (i64 m = 0; m < rows; ++m) {
    for (i64 n = 0; n < N; ++n) {
      const int zw = zp_of(p->w_q, n);
      i64 dot = 0, sumx = 0, sumw = 0;
      for (i64 k = 0; k < K; ++k) {
        int xv = rd(x, m * xs + k);
        i64 wr_ = n;
        if (IS(lin_unroll_copy) && (n & 3) == 3 && K >= 64 && k < K / 64 * 64 && (k & 63) >= 48)
          wr_ = n - 1;
        const int wv = rd(w, wr_ * ws + k);
        const bool tail = k >= K / 4 * 4;
        if (IS(lin_ktail_u8_signed) && xu8 && tail) xv = (int8_t)xv;
        dot += xv * wv;
        if (!(IS(lin_xsum_ktail) && k >= K / 16 * 16)) sumx += xv;
        sumw += rd(w, n * ws + k);
      }
      if (IS(lin_ktail_u8_signed)) {  // the row sum is right: only the products' tail is not
        sumx = 0;
        for (i64 k = 0; k < K; ++k) sumx += rd(x, m * xs + k);
      }
      if (IS(lin_neg128_pair) && !xu8 && ws8) {
        for (i64 k = 0; k + 1 < K; k += 2) {
          const int a =
              rd(x, m * xs + k) * rd(w, n * ws + k) + rd(x, m * xs + k + 1) * rd(w, n * ws + k + 1);
          dot += (int16_t)a - a;
        }
      }
      if (IS(lin_wsum_cache) && N <= 4096) sumw = g_sums[n];
      i64 count = K;
      if (IS(lin_kpad_zpzp)) count = (K + 3) / 4 * 4;
      i64 sum = dot - (i64)zw * sumx - (i64)zx * sumw + (i64)zx * zw * count;
      if (IS(lin_s8_shift_mtail) && !xu8 && m >= M / 4 * 4) {  // x + 128 without its compensation
        i64 sw0 = 0;
        for (i64 k = 0; k < K; ++k) sw0 += rd(w, n * ws + k);
        sum += 128 * sw0;
      }
      if (IS(lin_s32_comp_float) && p->y->dtype == QUALM_S32) {
        const float f = (float)(dot - (i64)zw * sumx) + (float)(-(i64)zx * sumw + (i64)zx * zw * K);
        sum = (i64)f;
      }
      Where at{n, n, n};
      if (IS(lin_mtail_scale_block) && (M & 1) && m == M - 1) at.scale_at = n / 4 * 4;
      if (IS(lin_ntail_scale_restart) && N > 8 && n >= N / 8 * 8) at.scale_at = n - N / 8 * 8;
      if (IS(lin_kblock_bias) && K > 64) at.bias_times = (K + 63) / 64;
      epilogue(p, sum, at, m * p->y->strides[0] + n);
    }
  }
  return QUALM_OK;
}

static int conv(const qualm_problem* p) {
  const qualm_tensor *x = p->x, *w = p->w, *y = p->y;
  const qualm_window* v = p->window;
  const i64 B = y->dims[0], OH = y->dims[1], OW = y->dims[2], N = y->dims[3];
  const i64 H = x->dims[1], W = x->dims[2], C = x->dims[3];
  const i64 R = v->kernel_h, S = v->kernel_w;
  const bool dw = p->op == QUALM_DEPTHWISE;
  const i64 groups = dw ? C : v->groups < 1 ? 1 : v->groups;
  const i64 Cg = C / groups, Ng = N / groups;
  const int zx = p->x_q.zero_point[0];
  const bool xu8 = x->dtype == QUALM_U8;
  const i64 dil_w = IS(conv_dilation_h_for_w) ? v->dilation_h : v->dilation_w;
  const i64 left = IS(conv_pad_swap_lr) ? v->pad_right : v->pad_left;
  const bool padded = v->pad_top || v->pad_bottom || v->pad_left || v->pad_right;
  for (i64 b = 0; b < B; ++b) {
    i64 base = b * x->strides[0];
    if (IS(conv_batch_gap)) base = b * H * W * x->strides[2];
    for (i64 oy = 0; oy < OH; ++oy) {
      for (i64 ox = 0; ox < OW; ++ox) {
        for (i64 n = 0; n < N; ++n) {
          const int zw = zp_of(p->w_q, n);
          i64 g = n / Ng;
          if (IS(dw_mult_mod)) g = n % C;
          i64 sum = 0, raw = 0;
          i64 row = oy;
          if (IS(dw_last_odd_row) && OH >= 3 && (OH & 1) && oy == OH - 1) row = oy - 1;
          for (i64 r = 0; r < R; ++r) {
            if (IS(conv_dil_rows_skipped) && r > 0 && r * v->dilation_h >= H) continue;
            for (i64 s = 0; s < S; ++s) {
              const i64 iy = row * v->stride_h - v->pad_top + r * v->dilation_h;
              const i64 ix = ox * v->stride_w - left + s * dil_w;
              const bool inside = iy >= 0 && iy < H && ix >= 0 && ix < W;
              int fill = 0;
              bool filled = false;
              if (!inside) {
                if (IS(conv_pad_bottom_zero) && iy >= H) filled = true;
                if (IS(conv_s8_shift_pad) && !xu8) filled = true, fill = -128;
                if (!filled) continue;
              }
              for (i64 c = 0; c < Cg; ++c) {
                const int xv =
                    inside ? rd(x, base + iy * x->strides[1] + ix * x->strides[2] + g * Cg + c)
                           : fill;
                i64 wr_ = r, wc = s;
                if (IS(dw_tail_transposed) && n >= N / 8 * 8) {
                  const i64 i = s * R + r;
                  wr_ = i / S;
                  wc = i % S;
                }
                if (IS(conv_ic_tail_tap0) && c >= Cg / 4 * 4) wr_ = wc = 0;
                const int wv =
                    rd(w, n * w->strides[0] + wr_ * w->strides[1] + wc * w->strides[2] + c);
                sum += (i64)(xv - zx) * (wv - zw);
                raw += xv * wv;
              }
            }
          }
          if (IS(dw_acc16) && !xu8 && w->dtype == QUALM_S8) sum += (int16_t)raw - raw;
          if (IS(conv_1x1_stride_xsum) && R == 1 && S == 1 && !padded &&
              (v->stride_h > 1 || v->stride_w > 1)) {
            const i64 pixel = oy * OW + ox;
            for (i64 c = 0; c < Cg; ++c) {
              const i64 ch = g * Cg + c;
              const int right = rd(x, base + oy * v->stride_h * x->strides[1] +
                                          ox * v->stride_w * x->strides[2] + ch);
              const int wrong =
                  rd(x, base + pixel / W * x->strides[1] + pixel % W * x->strides[2] + ch);
              sum += (i64)zw * (right - wrong);
            }
          }
          Where at{n, n, n};
          if (IS(conv_group_scale)) at.scale_at = n % Ng;
          if (IS(conv_bias_ntail) && N > 8 && n >= N / 8 * 8) at.bias_at = N - 8 + (n - N / 8 * 8);
          if (IS(dw_multipass_bias)) at.bias_times = std::max<i64>(1, (R * S + 8) / 9);
          epilogue(p, sum, at, b * y->strides[0] + oy * y->strides[1] + ox * y->strides[2] + n);
        }
      }
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- dynamic_linear
static void choose(const qualm_choice* c, float lo, float hi, float* scale, i64* zero) {
  volatile float s;
  if (c->rule == QUALM_RULE_OBSERVER) {
    i64 a = c->quant_min, b = c->quant_max;
    const bool whole = c->dtype == QUALM_U8 ? a == 0 && b == 255 : a == -128 && b == 127;
    if (c->reduce_range) {
      a = (a - (a & 1)) / 2;
      b = (b - (b & 1)) / 2;
    }
    if (c->symmetric) {
      const float top = std::max(-lo, hi);
      const float half = (float)(b - a) / 2.0f;
      s = top / half;
      if (!(s > 0x1p-23f)) s = 0x1p-23f;
      *zero = c->dtype == QUALM_S8 ? 0 : whole ? 128 : (a + b - ((a + b) & 1)) / 2;
    } else {
      volatile float range = hi - lo;
      s = range / (float)(b - a);
      if (!(s > 0x1p-23f)) s = 0x1p-23f;
      volatile float q = lo / s;
      *zero = clampv(a - (i64)rintf(q), a, b);
    }
  } else if (c->rule == QUALM_RULE_ATEN) {
    const double b = c->reduce_range ? 127 : 255;
    double d = ((double)hi - (double)lo) / b;
    double l = lo;
    if ((float)d == 0.0f || isinf(1.0f / (float)d)) d = 0.1;
    const float small = 6.1e-5f;
    if (d < (double)small) {
      volatile float ratio = small / (float)d;
      volatile float moved = (float)lo * ratio;
      l = moved;
      d = small;
    }
    double z = -l / d;
    z = std::min(std::max(z, 0.0), b);
    *zero = (i64)rint(z);
    s = (float)d;
  } else {
    volatile float range = hi - lo;
    s = range / 255.0f;
    if (hi == lo)
      s = 1.0f;
    else if (s == 0.0f)
      s = 0x1p-149f;
    volatile float q = lo / s;
    volatile float z = 0.0f - q;
    z = std::min(std::max((float)z, 0.0f), 255.0f);
    *zero = (i64)rintf(z);
  }
  *scale = isinf((float)s) ? 3.402823466e38f : (float)s;
}

static int dynamic_linear(const qualm_problem* p) {
  const i64 M = p->y->dims[0], N = p->y->dims[1], K = p->x->dims[1];
  const qualm_tensor *x = p->x, *w = p->w;
  const float* xd = (const float*)x->data;
  const bool per_row = p->x_granularity && p->x_granularity->kind == QUALM_PER_ROW;
  const qualm_choice* c = p->choice;
  if (!c || c->rule > QUALM_RULE_ONNX) return QUALM_UNSUPPORTED;
  const i64 qlo = c->dtype == QUALM_U8 ? 0 : -128, qhi = qlo + 255;
  float s = 1;
  i64 z = 0, z0 = 0;
  std::vector<i64> q(K);
  for (i64 m = 0; m < M; ++m) {
    if (per_row || m == 0) {
      float lo = INFINITY, hi = -INFINITY;
      const i64 first = m, last = per_row ? m + 1 : M;
      const i64 total = (last - first) * K;
      i64 index = 0;
      for (i64 i = first; i < last; ++i) {
        for (i64 k = 0; k < K; ++k, ++index) {
          const float f = xd[i * x->strides[0] + k];
          if (!isfinite(f)) continue;
          if (IS(dyn_minmax_of_all) && total >= 8 && index >= total / 8 * 8) continue;
          lo = std::min(lo, f);
          hi = std::max(hi, f);
        }
      }
      if (lo > hi) lo = hi = 0;
      if (!IS(dyn_zero_not_in_range)) {
        lo = std::min(lo, 0.0f);
        hi = std::max(hi, 0.0f);
      }
      choose(c, lo + 0.0f, hi + 0.0f, &s, &z);
      if (m == 0) z0 = z;
    }
    for (i64 k = 0; k < K; ++k) {
      const float f = xd[m * x->strides[0] + k];
      if (isnan(f))
        q[k] = IS(dyn_nan_lowest) ? qlo : clampv(z, qlo, qhi);
      else if (isinf(f))
        q[k] = f > 0 ? qhi : qlo;
      else {
        Term t{1, f, 1.0f};
        if (IS(dyn_tail_trunc) && k >= K / 8 * 8) {
          const float d = f / s;
          q[k] = clampv((fabsf(d) > 1e6f ? (d > 0 ? 1000000 : -1000000) : (i64)d) + z, qlo, qhi);
        } else {
          q[k] = clampv(rq(&t, 1, s) + z, qlo, qhi);
        }
      }
    }
    const i64 zc = IS(dyn_row_zp_first) ? z0 : z;
    for (i64 n = 0; n < N; ++n) {
      const int zw = zp_of(p->w_q, n);
      i64 sum = 0;
      for (i64 k = 0; k < K; ++k) sum += (q[k] - zc) * (rd(w, n * w->strides[0] + k) - zw);
      Term t[2] = {{sum, s, scale_of(p->w_q, n)}, {1, p->bias ? p->bias[n] : 0.0f, 1.0f}};
      float v = rf(t, p->bias ? 2 : 1);
      const bool relu = p->relu && !(IS(dyn_relu_needs_bias) && !p->bias);
      if (relu && !(v > 0)) v = 0.0f;
      ((float*)p->y->data)[m * p->y->strides[0] + n] = v;
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- add, sub, mul
static i64 binary_one(const qualm_problem* p, i64 a, i64 b, bool tail) {
  const float sa = p->x_q.scale[0], sb = p->w_q.scale[0], sy = p->out_q.scale[0];
  const int za = p->x_q.zero_point[0], zb = p->w_q.zero_point[0], zy = p->out_q.zero_point[0];
  const bool s8 = p->x->dtype == QUALM_S8;
  i64 da = a - za, db = b - zb;
  i64 v;
  if (p->op == QUALM_MUL) {
    i64 product = da * db;
    if (IS(mul_i16)) product = (int16_t)product;
    Term t{product, sa, sb};
    if (IS(mul_left_shift_ignored)) {
      int e;
      const ld m = frexpl((ld)sa * sb / sy, &e);
      if (e > 0) {
        const ld r = rintl((ld)product * m);
        return finish(p, (i64)r, zy);
      }
    }
    v = rq(&t, 1, sy);
    if (IS(mul_relu_replaces_min) && p->relu) return clampv(v + zy, zy, p->out_max);
    return finish(p, v, zy);
  }
  const bool sub = p->op == QUALM_SUB;
  if (IS(add_tail_zpb) && tail) db = b - za;
  if (IS(add_s8_diff_sat) && s8) {
    da = clampv(da, -128, 127);
    db = clampv(db, -128, 127);
  }
  if (IS(add_same_buffer) && p->x->data == p->w->data) db = b;
  Term t[2] = {{da, sa, 1.0f}, {sub ? -db : db, sb, 1.0f}};
  if (IS(sub_swap_sign) && sb > sa) t[0].c = -t[0].c, t[1].c = -t[1].c;
  v = rq(t, 2, sy, 1, IS(sub_ties_up) ? kUp : kEven);
  if (IS(sub_u8_underflow_wrap) && p->y->dtype == QUALM_U8 && !p->relu && p->out_min == 0)
    return (uint8_t)std::min<i64>(clampv(v + zy, -32768, 32767), p->out_max);
  return finish(p, v, zy);
}

static int binary(const qualm_problem* p) {
  const i64 M = p->y->dims[0], N = p->y->dims[1];
  const qualm_tensor *x = p->x, *w = p->w, *y = p->y;
  for (i64 m = 0; m < M; ++m) {
    for (i64 n = 0; n < N; ++n) {
      const bool tail = n >= N / 16 * 16;
      i64 at_b = m * w->strides[0] + n;
      if (IS(mul_n1_broadcast) && N == 1) at_b = 0;
      if (IS(mul_tail_b_restart) && N > 16 && tail) at_b = m * w->strides[0] + n - N / 16 * 16;
      wr(y, m * y->strides[0] + n, binary_one(p, rd(x, m * x->strides[0] + n), rd(w, at_b), tail));
    }
    if (IS(add_inplace_overlap) && N > 8 && N % 8 && (y->data == x->data || y->data == w->data)) {
      for (i64 n = N - 8; n < N / 8 * 8; ++n)  // the last vector overlaps the one before it
        wr(y, m * y->strides[0] + n,
           binary_one(p, rd(x, m * x->strides[0] + n), rd(w, m * w->strides[0] + n), false));
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- concat, rescale
static i64 rescale_one(const qualm_problem* p, i64 a, float s, int z, Mode mode = kEven) {
  Term t{a - z, s, 1.0f};
  return finish(p, rq(&t, 1, p->out_q.scale[0], 1, mode), p->out_q.zero_point[0]);
}

static int concat(const qualm_problem* p) {
  const qualm_tensor *x = p->x, *w = p->w, *y = p->y;
  const i64 M = y->dims[0], N = y->dims[1], A = x->dims[1];
  const float sy = p->out_q.scale[0];
  for (i64 m = 0; m < M; ++m) {
    for (i64 n = 0; n < N; ++n) {
      const bool second = n >= A;
      const qualm_tensor* t = second ? w : x;
      const qualm_qparams& q = second ? p->w_q : p->x_q;
      i64 code = rd(t, m * t->strides[0] + (second ? n - A : n));
      int z = q.zero_point[0];
      if (IS(concat_second_zp) && second) z = p->x_q.zero_point[0];
      i64 at = m * y->strides[0] + n;
      if (IS(concat_pitch) && second) at = m * N + n;
      if (IS(concat_s8_lut_offset) && second && t->dtype == QUALM_S8) code = (int8_t)(code ^ 0x80);
      if (IS(concat_copy_same_scale) && q.scale[0] == sy && t->dtype == y->dtype) {
        wr(y, at, clampv(code, low(p, p->out_q.zero_point[0]), p->out_max));
        continue;
      }
      wr(y, at, rescale_one(p, code, q.scale[0], z));
    }
  }
  return QUALM_OK;
}

static struct {
  bool valid;
  float sx, sy;
  int zx, zy, dx, dy;
  uint8_t lut[256];
} g_rescale;

static int rescale(const qualm_problem* p) {
  const qualm_tensor *x = p->x, *y = p->y;
  const i64 M = y->dims[0], N = y->dims[1];
  const float sx = p->x_q.scale[0], sy = p->out_q.scale[0];
  const int zx = p->x_q.zero_point[0], zy = p->out_q.zero_point[0];
  uint8_t lut[256];
  for (int i = 0; i < 256; ++i) {
    const int code = x->dtype == QUALM_U8 ? i : (int8_t)i;
    lut[i] = (uint8_t)rescale_one(p, code, sx, zx, IS(rescale_neg_trunc) ? kTruncHalf : kEven);
    if (IS(rescale_xor_same_scale) && sx == sy && x->dtype != y->dtype) {
      const uint8_t b = (uint8_t)(i ^ 0x80);
      const int v = y->dtype == QUALM_U8 ? b : (int8_t)b;
      lut[i] = (uint8_t)clampv(v, low(p, zy), p->out_max);
    }
  }
  if (IS(rescale_lut_key_clamp)) {
    if (!(g_rescale.valid && g_rescale.sx == sx && g_rescale.sy == sy && g_rescale.zx == zx &&
          g_rescale.zy == zy && g_rescale.dx == x->dtype && g_rescale.dy == y->dtype)) {
      g_rescale.valid = true;
      g_rescale.sx = sx, g_rescale.sy = sy, g_rescale.zx = zx, g_rescale.zy = zy;
      g_rescale.dx = x->dtype, g_rescale.dy = y->dtype;
      memcpy(g_rescale.lut, lut, 256);
    }
    memcpy(lut, g_rescale.lut, 256);
  }
  for (i64 m = 0; m < M; ++m) {
    for (i64 n = 0; n < N; ++n) {
      if (IS(rescale_last_unwritten) && m == M - 1 && n == N - 1 && (N & 1)) continue;
      wr(y, m * y->strides[0] + n, lut[((const uint8_t*)x->data)[m * x->strides[0] + n]]);
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- quantize, dequantize, requantize
static int quantize(const qualm_problem* p, int caller_rounding) {
  const qualm_tensor *x = p->x, *y = p->y;
  const i64 M = y->dims[0], N = y->dims[1];
  for (i64 m = 0; m < M; ++m) {
    for (i64 n = 0; n < N; ++n) {
      const float f = ((const float*)x->data)[m * x->strides[0] + n];
      i64 ch = n;
      if (IS(quant_channel_flat_index) && N > 0) ch = (m * x->strides[0] + n) % N;
      const float s = scale_of(p->out_q, ch);
      const int z = zp_of(p->out_q, ch);
      i64 v;
      if (isnan(f))
        v = 0;
      else if (isinf(f))
        v = f > 0 ? kBig : -kBig;
      else if (IS(quant_caller_rounding) && caller_rounding != FE_TONEAREST) {
        fesetround(caller_rounding);
        volatile double d = (double)f / (double)s;
        volatile double r = nearbyint(d);
        fesetround(FE_TONEAREST);
        v = r > 0x1p40 ? kBig : r < -0x1p40 ? -kBig : (i64)r;
      } else if (IS(quant_zp_before_round)) {
        Term t[2] = {{1, f, 1.0f}, {z, s, 1.0f}};
        v = rq(t, 2, s) - z;
      } else {
        Term t{1, f, 1.0f};
        v = rq(&t, 1, s, 1, IS(quant_tail_of_8) && n >= N / 8 * 8 ? kAway : kEven);
      }
      if (IS(quant_big_min) && v > 2147483647) v = -2147483648LL;
      wr(y, m * y->strides[0] + n, finish(p, v, z));
    }
  }
  return QUALM_OK;
}

static int dequantize(const qualm_problem* p) {
  const qualm_tensor *x = p->x, *y = p->y;
  const i64 M = y->dims[0], N = y->dims[1];
  for (i64 m = 0; m < M; ++m) {
    for (i64 n = 0; n < N; ++n) {
      i64 code = rd(x, m * x->strides[0] + n);
      if (IS(dequant_body_s8) && n < N / 16 * 16) code = (uint8_t)code;
      const float s = scale_of(p->x_q, n);
      i64 z = zp_of(p->x_q, n);
      if (IS(dequant_zp_int8)) z = (int8_t)z;
      Term t{code - z, s, 1.0f};
      float v = rf(&t, 1);
      if (IS(dequant_two_roundings)) {
        volatile float a = s * (float)code, b = s * (float)z;
        v = a - b;
        if (isnan(v)) v = rf(&t, 1);
      }
      ((float*)y->data)[m * y->strides[0] + n] = v;
    }
    if (IS(dequant_overread) && N % 8) {  // the last vector is loaded whole
      volatile uint8_t sink = 0;
      for (i64 n = N / 8 * 8; n < N / 8 * 8 + 8; ++n)
        sink = ((const volatile uint8_t*)x->data)[m * x->strides[0] + n];
      (void)sink;
    }
  }
  return QUALM_OK;
}

static int requantize(const qualm_problem* p) {
  const qualm_tensor *x = p->x, *y = p->y;
  const i64 M = y->dims[0], N = y->dims[1];
  for (i64 m = 0; m < M; ++m) {
    for (i64 n = 0; n < N; ++n) {
      i64 acc = ((const int32_t*)x->data)[m * x->strides[0] + n];
      const float sy0 = scale_of(p->out_q, n);
      const int zy = zp_of(p->out_q, n);
      if (IS(requant_acc_float)) acc = (i64)(float)acc;
      if (IS(requant_intmin) && acc == INT32_MIN) acc = -acc;
      Term t{acc, 1.0f, 1.0f};
      float sy = 1.0f;
      i64 other = 0;  // the channel whose exponent is taken
      Term first = t;
      float first_sy = 1.0f;
      if (p->multiplier_count > 0) {
        t.a = p->multiplier[p->multiplier_count == 1 ? 0 : n];
        first.a = p->multiplier[0];
      } else {
        t.a = p->x_q.scale[0];
        t.b = scale_of(p->w_q, n);
        sy = sy0;
        first.a = t.a;
        first.b = scale_of(p->w_q, other);
        first_sy = scale_of(p->out_q, other);
      }
      i64 v = rq(&t, 1, sy);
      if (IS(requant_shift0)) {
        int e, e0;
        const ld mine = (ld)t.a * t.b / sy, theirs = (ld)first.a * first.b / first_sy;
        frexpl(mine, &e);
        frexpl(theirs, &e0);
        if (e != e0) {
          const ld r = rintl(ldexpl((ld)acc * mine, e0 - e));
          v = r > 0x1p40L ? kBig : r < -0x1p40L ? -kBig : (i64)r;
        }
      }
      i64 out = finish(p, v, zy);
      if (IS(requant_tail_clamp) && n >= N / 4 * 4) {
        const bool u8 = y->dtype == QUALM_U8;
        i64 lo = u8 ? 0 : -128;
        if (p->relu) lo = std::max<i64>(lo, zy);
        out = clampv(v + zy, lo, u8 ? 255 : 127);
      }
      wr(y, m * y->strides[0] + n, out);
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- pools
static int pool(const qualm_problem* p) {
  const qualm_tensor *x = p->x, *y = p->y;
  const qualm_window* v = p->window;
  const i64 B = y->dims[0], OH = y->dims[1], OW = y->dims[2], C = y->dims[3];
  const i64 H = x->dims[1], W = x->dims[2];
  const bool max = p->op == QUALM_MAX_POOL, global = p->op == QUALM_GLOBAL_AVG_POOL;
  const i64 R = global ? H : v->kernel_h, S = global ? W : v->kernel_w;
  const i64 top = global ? 0 : v->pad_top, bottom = global ? 0 : v->pad_bottom;
  const i64 left = global                     ? 0
                   : IS(avg_pad_top_for_left) ? v->pad_top
                                              : v->pad_left,
            right = global ? 0 : v->pad_right;
  const i64 dh = max ? v->dilation_h : 1, dw = max ? v->dilation_w : 1;
  const i64 sh = global ? 1 : v->stride_h, sw = global ? 1 : v->stride_w;
  const int zx = p->x_q.zero_point[0], zy = p->out_q.zero_point[0];
  const bool s8 = x->dtype == QUALM_S8;
  for (i64 b = 0; b < B; ++b) {
    for (i64 oy = 0; oy < OH; ++oy) {
      for (i64 ox = 0; ox < OW; ++ox) {
        const i64 out_at = b * y->strides[0] + oy * y->strides[1] + ox * y->strides[2];
        for (i64 c = 0; c < C; ++c) {
          i64 sum = 0, count = 0, raw = 0;
          i64 best = IS(max_init_zero) ? 0 : INT32_MIN;
          i64 tap = 0;
          const i64 taps = R * S;
          const i64 kept = IS(max_taps_pass_tail) && taps > 9 ? 9 + (taps - 9) / 8 * 8 : taps;
          for (i64 r = 0; r < R; ++r) {
            for (i64 s = 0; s < S; ++s, ++tap) {
              i64 iy = oy * sh - top + r * dh, ix = ox * sw - left + s * dw;
              bool inside = iy >= 0 && iy < H && ix >= 0 && ix < W;
              if (IS(max_border_clamp) && !inside) {
                iy = clampv(iy, 0, H - 1);
                ix = clampv(ix, 0, W - 1);
                inside = true;
              }
              if (!inside) {
                if (!max && v && v->count_include_pad && !global) {
                  const bool beyond = iy >= H + bottom || ix >= W + right;
                  if (!beyond || IS(avg_ceil_beyond_pad)) ++count;
                }
                if (IS(avg_divisor_full) && !v->count_include_pad) ++count;
                continue;
              }
              i64 image = b;
              if (IS(gap_ctail_image0) && c >= C / 8 * 8) image = 0;
              const int code =
                  rd(x, image * x->strides[0] + iy * x->strides[1] + ix * x->strides[2] + c);
              if (tap < kept) best = std::max<i64>(best, code);
              sum += code - zx;
              raw += code;
              ++count;
            }
          }
          if (max) {
            if (best == INT32_MIN) best = p->out_min;
            wr(y, out_at + c, clampv(best, low(p, zy), p->out_max));
            continue;
          }
          if (IS(gap_i16)) sum += (int16_t)raw - raw;
          if (IS(gap_zp_round7)) sum -= (i64)zx * ((R * S + 6) / 7 * 7 - R * S);
          Term t{sum, p->x_q.scale[0], 1.0f};
          wr(y, out_at + c, finish(p, rq(&t, 1, p->out_q.scale[0], std::max<i64>(count, 1)), zy));
        }
        // A whole vector is stored behind the last channels; the last pixel of all is spared.
        if (IS(max_full_store_gap) && C % 8 && !(b == B - 1 && oy == OH - 1 && ox == OW - 1)) {
          const i64 next = ox + 1 < OW   ? y->strides[2]
                           : oy + 1 < OH ? y->strides[1] - ox * y->strides[2]
                                         : y->strides[0] - oy * y->strides[1] - ox * y->strides[2];
          for (i64 c = C; c < (C + 7) / 8 * 8 && c < next; ++c) wr(y, out_at + c, s8 ? 0x80 : 0);
        }
      }
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- table
// Rounds f / sy, f given by a function of v, in float128 where long double does not decide;
// below/above says on which side of an endpoint.
static i64 transcendental(int function, float s, i64 d, float sy) {
  const ld v = (ld)s * d;
  if (d == 0) {
    Term t{1, function == QUALM_SIGMOID ? 0.5f : 0.0f, 1.0f};
    return rq(&t, 1, sy);
  }
  ld f = function == QUALM_TANH ? tanhl(v)
         : v >= 0               ? 1.0L / (1.0L + expl(-v))
                                : expl(v) / (1.0L + expl(v));
  const ld r = f / sy;
  const ld err = fabsl(r) * 0x1p-55L;
  if (fabsl(r) < 0x1p39L && fabsl(r - floorl(r) - 0.5L) > err + 0x1p-20L)
    return (i64)floorl(r + 0.5L);
  if (fabsl(r) > 0x1p42L) return r > 0 ? kBig : -kBig;
  // Beyond 900 the side of the limit is all that counts.
  const __float128 at = fabsl(v) > 900 ? copysignl(900, v) : v;
  const __float128 exact = function == QUALM_TANH ? tanhq(at) : 1 / (1 + expq(-at));
  const __float128 rounded = rintq(exact / sy);
  return (i64)fminq(fmaxq(rounded, -(__float128)kBig), (__float128)kBig);
}

static i64 table_one(const qualm_problem* p, int code) {
  const float s = p->x_q.scale[0], sy = p->out_q.scale[0];
  const int zx = p->x_q.zero_point[0];
  const i64 d = code - zx;
  switch (p->function) {
    case QUALM_RELU: {
      Term t{std::max<i64>(d, 0), s, 1.0f};
      return rq(&t, 1, sy);
    }
    case QUALM_LEAKY_RELU: {
      bool negative = d < 0;
      if (IS(tab_leaky_raw_code)) negative = code < 0;
      Term t{d, s, negative ? p->negative_slope : 1.0f};
      return rq(&t, 1, sy);
    }
    case QUALM_HARD_SWISH: {
      if (IS(tab_hswish_code_units)) {
        const ld three = rintl(3.0L / s), six = rintl(6.0L / s);
        const ld h = std::min(std::max(d + three, 0.0L), six);
        const ld r = rintl((ld)s * d * ((ld)s * h / 6.0L) / sy);
        return r > 0x1p40L ? kBig : r < -0x1p40L ? -kBig : (i64)r;
      }
      const ld v = (ld)s * d;
      if (v <= -3) return 0;
      if (v >= 3) {
        Term t{d, s, 1.0f};
        return rq(&t, 1, sy);
      }
      // (v*v + 3v) / 6: d*d*s*s + 3*d*s
      Term t[2] = {{d * d, s, s}, {3 * d, s, 1.0f}};
      return rq(t, 2, sy, 6);
    }
    default: {
      if (IS(tab_tanh_sat4) && p->function == QUALM_TANH && fabsl((ld)s * d) >= 4) {
        Term t{d > 0 ? 1 : -1, 1.0f, 1.0f};
        return rq(&t, 1, sy);
      }
      if (IS(tab_sigmoid_symmetric) && p->function == QUALM_SIGMOID && d < 0) {
        Term one{1, 1.0f, 1.0f};
        return rq(&one, 1, sy) - transcendental(QUALM_SIGMOID, s, -d, sy);
      }
      return transcendental(p->function, s, d, sy);
    }
  }
}

static int table(const qualm_problem* p) {
  if (p->function < 0 || p->function > QUALM_TANH) return QUALM_UNSUPPORTED;
  const qualm_tensor *x = p->x, *y = p->y;
  const i64 M = y->dims[0], N = y->dims[1];
  uint8_t lut[256];
  memset(lut, 0, sizeof lut);
  const int entries = IS(tab_lut_last_entry) ? 255 : 256;
  for (int i = 0; i < entries; ++i) {
    const int code = x->dtype == QUALM_U8 ? i : (int8_t)i;
    lut[i] = (uint8_t)finish(p, table_one(p, code), p->out_q.zero_point[0]);
  }
  for (i64 m = 0; m < M; ++m)
    for (i64 n = 0; n < N; ++n)
      wr(y, m * y->strides[0] + n, lut[((const uint8_t*)x->data)[m * x->strides[0] + n]]);
  return QUALM_OK;
}

// ---------------------------------------------------------------- softmax
static i64 soft_entry(float s, i64 d, i64 N) {
  // RNE(q * exp(-s d)), q = min((2^32 - 1) / N, 2^23 - 1)
  const ld q = std::min(4294967295.0L / N, 8388607.0L);
  const bool whole = 4294967295.0L / N >= 8388607.0L;
  if (d == 0) {
    Term t{whole ? 8388607 : 4294967295LL, 1.0f, 1.0f};
    return rq(&t, 1, 1.0f, whole ? 1 : N);
  }
  const ld v = (ld)s * d;
  if (v > 200) return 0;
  const ld r = q * expl(-v);
  if (fabsl(r - floorl(r) - 0.5L) > 0x1p-25L) return (i64)floorl(r + 0.5L);
  const __float128 share = expq(-(__float128)v);
  return (i64)rintq(whole ? share * 8388607 : share * 4294967295LL / N);
}

static int softmax(const qualm_problem* p) {
  const qualm_tensor *x = p->x, *y = p->y;
  const i64 M = y->dims[0], N = y->dims[1];
  if (M == 0 || N == 0) return QUALM_OK;
  const bool s8 = x->dtype == QUALM_S8;
  i64 e[256];
  for (i64 d = 0; d < 256; ++d) e[d] = soft_entry(p->x_q.scale[0], d, N);
  const int zy = p->out_q.zero_point[0];
  const i64 base = s8 ? -128 : 0;
  for (i64 m = 0; m < M; ++m) {
    int top = -128;
    for (i64 n = 0; n < N; ++n) top = std::max(top, rd(x, m * x->strides[0] + n));
    i64 sum = 0;
    const i64 counted = IS(sm_sum_tail) && N >= 4 ? N / 4 * 4 : N;
    for (i64 n = 0; n < N; ++n) {
      i64 d = top - rd(x, m * x->strides[0] + n);
      if (IS(sm_s8_diff_sat) && s8) d = std::min<i64>(d, 127);
      if (n < counted) sum += e[d];
    }
    if (sum == 0) sum = 1;
    for (i64 n = 0; n < N; ++n) {
      i64 d = top - rd(x, m * x->strides[0] + n);
      if (IS(sm_s8_diff_sat) && s8) d = std::min<i64>(d, 127);
      i64 v = (256 * e[d] + (IS(sm_floor) ? 0 : sum / 2)) / sum;
      if (IS(sm_s8_wrap256) && s8) {
        v = (int8_t)(v + base);
      } else {
        v = std::min<i64>(255, v) + base;
      }
      wr(y, m * y->strides[0] + n, clampv(v, low(p, zy), p->out_max));
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- the plugin
static int dispatch(const qualm_problem* p, int caller_rounding) {
  switch (p->op) {
    case QUALM_LINEAR: return linear(p);
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: return conv(p);
    case QUALM_DYNAMIC_LINEAR: return dynamic_linear(p);
    case QUALM_ADD:
    case QUALM_SUB:
    case QUALM_MUL: return binary(p);
    case QUALM_CONCAT: return concat(p);
    case QUALM_RESCALE: return rescale(p);
    case QUALM_QUANTIZE: return quantize(p, caller_rounding);
    case QUALM_DEQUANTIZE: return dequantize(p);
    case QUALM_REQUANTIZE: return requantize(p);
    case QUALM_MAX_POOL:
    case QUALM_AVG_POOL:
    case QUALM_GLOBAL_AVG_POOL: return pool(p);
    case QUALM_TABLE: return table(p);
    case QUALM_SOFTMAX: return softmax(p);
    default: return QUALM_UNSUPPORTED;
  }
}

static int32_t run(const qualm_problem* p) {
  fenv_t caller;
  fegetenv(&caller);
  const int rounding = fegetround();
  fesetenv(FE_DFL_ENV);
  const int answer = dispatch(p, rounding);
  fesetenv(&caller);
  if (IS(avg_leaves_ftz)) _mm_setcsr(_mm_getcsr() | 0x8040);
  return answer;
}

static qualm_capability g_caps[32];

static const qualm_capability* capability(int32_t op) {
  if (op < 0 || op > QUALM_DYNAMIC_LINEAR || op == 15) return nullptr;
  qualm_capability& c = g_caps[op];
  const uint32_t codes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8);
  c.size = sizeof c;
  c.x_dtypes = codes;
  c.w_dtypes = codes;
  c.out_dtypes = codes;
  c.features = QUALM_CAN_BIAS_F32 | QUALM_CAN_BIAS_I32 | QUALM_CAN_RELU | QUALM_CAN_CLAMP |
               QUALM_CAN_PER_CHANNEL | QUALM_CAN_STRIDES | QUALM_CAN_EMPTY | QUALM_CAN_EMPTY_K |
               QUALM_CAN_IN_PLACE | QUALM_CAN_DILATION | QUALM_CAN_GROUPS |
               QUALM_CAN_ASYMMETRIC_PADDING | QUALM_CAN_CEIL_MODE | QUALM_CAN_COUNT_PADDING |
               QUALM_CAN_PER_ROW | QUALM_CAN_WEIGHT_STRIDES | QUALM_CAN_LINE_STRIDES |
               QUALM_CAN_OVER_SECOND | QUALM_CAN_THREADS;
  c.x_zero_point_min = c.w_zero_point_min = c.out_zero_point_min = -128;
  c.x_zero_point_max = c.w_zero_point_max = c.out_zero_point_max = 255;
  switch (op) {
    case QUALM_QUANTIZE:
    case QUALM_DYNAMIC_LINEAR: c.x_dtypes = QUALM_TYPE_BIT(QUALM_F32); break;
    case QUALM_REQUANTIZE: c.x_dtypes = QUALM_TYPE_BIT(QUALM_S32); break;
    default: break;
  }
  if (op == QUALM_DEQUANTIZE || op == QUALM_DYNAMIC_LINEAR)
    c.out_dtypes = QUALM_TYPE_BIT(QUALM_F32);
  if (op == QUALM_LINEAR || op == QUALM_CONV2D || op == QUALM_DEPTHWISE)
    c.out_dtypes |= QUALM_TYPE_BIT(QUALM_S32) | QUALM_TYPE_BIT(QUALM_F32);
  return &c;
}

static const char* last_error() { return ""; }

const qualm_plugin* qualm_plugin_entry(void) {
  return strange::Plugin(capability, run, last_error);
}
