// SPDX-License-Identifier: Apache-2.0
// Fifty faults of seventeen operations, planted by somebody who had seen neither the table of
// causes nor the generators, each after a public report (bench/strange_modes.tsv). bench/strangers
// builds one plugin for each: FAULT is its name; `none` is exact.
#include <immintrin.h>

#include <atomic>
#include <cfenv>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/strange_plugin.h"

namespace {

using i64 = int64_t;
using u64 = uint64_t;
using i128 = __int128;
using u128 = unsigned __int128;

// clang-format off: it breaks these lines otherwise each time.
#define MODES(X)                                                                                  \
  X(none)                                                                                         \
  X(lin_pair16_wrap) X(lin_ksum_tail) X(lin_bias_float_s32) X(lin_rcp_outscale) X(lin_relu_zero)  \
      X(lin_stale_colsum) X(lin_thread_bias) X(lin_k_overread) X(lin_race_scratch) X(             \
          lin_gemv_unwritten) X(conv_pad_zero_stride2) X(conv_group_qparam) X(conv_im2col_stale)  \
          X(conv_1x1_stride_h) X(conv_s8_border_comp) X(dw_acc16_wrap) X(dw_multiplier_index)     \
              X(dw_bias_each_pass) X(add_sat_before_zp) X(add_over_second_alias) X(               \
                  add_tail_scale_swap) X(sub_half_up) X(sub_equal_scale_sat_u8) X(mul_cross_term) \
                  X(mul_no_left_shift) X(maxpool_s8_init0) X(maxpool_tail_unclamped)              \
                      X(avgpool_ceil_divisor) X(avgpool_zp_full_window) X(gap_group7_zero_fill)   \
                          X(gap_acc_not_cleared) X(softmax_s8_wrap) X(softmax_diff_sat127)        \
                              X(softmax_stale_max) X(quant_tail_away) X(quant_zp_in_float)        \
                                  X(quant_huge_int_min) X(deq_ftz) X(deq_axis_row)                \
                                      X(req_mantissa_mask) X(req_left_shift_wrap)                 \
                                          X(req_caller_rounding) X(rescale_same_scale_copy)       \
                                              X(concat_float_bias) X(concat_second_stride)        \
                                                  X(table_s8_index) X(leaky_slope_only)           \
                                                      X(table_cache_key) X(dyn_zp_trunc)          \
                                                          X(dyn_minmax_tail)
// clang-format on
enum Mode {
#define X(name) name,
  MODES(X)
#undef X
      mode_count
};
#ifndef FAULT
#define FAULT none
#endif
int g_mode = FAULT;
inline bool is(Mode m) { return g_mode == m; }

// ---------------------------------------------------------------- exact arithmetic

struct Dyadic {  // m * 2^e
  i128 m = 0;
  int e = 0;
};

Dyadic decode(float f) {  // finite
  uint32_t b;
  std::memcpy(&b, &f, 4);
  const int exp = int((b >> 23) & 255);
  i64 m = b & 0x7fffff;
  if (exp != 0) m |= 0x800000;
  if (b >> 31) m = -m;
  return {m, (exp == 0 ? 1 : exp) - 150};
}
Dyadic operator*(Dyadic a, Dyadic b) { return {a.m * b.m, a.e + b.e}; }
Dyadic operator*(i128 a, Dyadic b) { return {a * b.m, b.e}; }

struct Big {  // unsigned, 768 bits
  static constexpr int kWords = 12;
  u64 w[kWords] = {};
  static Big shifted(u128 v, int n) {
    Big r;
    const int word = n / 64, bit = n % 64;
    const u64 lo = u64(v), hi = u64(v >> 64);
    auto put = [&](int at, u64 x) {
      if (at < kWords) r.w[at] |= x;
    };
    put(word, lo << bit);
    put(word + 1, hi << bit);
    if (bit != 0) {
      put(word + 1, lo >> (64 - bit));
      put(word + 2, hi >> (64 - bit));
    }
    return r;
  }
  int bits() const {
    for (int i = kWords - 1; i >= 0; --i) {
      if (w[i] != 0) return i * 64 + 64 - __builtin_clzll(w[i]);
    }
    return 0;
  }
  int compare(const Big& o) const {
    for (int i = kWords - 1; i >= 0; --i) {
      if (w[i] != o.w[i]) return w[i] < o.w[i] ? -1 : 1;
    }
    return 0;
  }
  void add(const Big& o) {
    u64 carry = 0;
    for (int i = 0; i < kWords; ++i) {
      const u128 s = u128(w[i]) + o.w[i] + carry;
      w[i] = u64(s);
      carry = u64(s >> 64);
    }
  }
  void sub(const Big& o) {  // o <= *this
    u64 borrow = 0;
    for (int i = 0; i < kWords; ++i) {
      const u128 s = u128(w[i]) - o.w[i] - borrow;
      w[i] = u64(s);
      borrow = u64(s >> 64) & 1;
    }
  }
  void left(int n) {
    const int word = n / 64, bit = n % 64;
    for (int i = kWords - 1; i >= 0; --i) {
      u64 v = 0;
      if (i - word >= 0) v = w[i - word] << bit;
      if (bit != 0 && i - word - 1 >= 0) v |= w[i - word - 1] >> (64 - bit);
      w[i] = v;
    }
  }
  void right1() {
    for (int i = 0; i < kWords; ++i) w[i] = (w[i] >> 1) | (i + 1 < kWords ? w[i + 1] << 63 : 0);
  }
  bool bit(int n) const { return (w[n / 64] >> (n % 64)) & 1; }
};

u128 magnitude(i128 v) { return v < 0 ? u128(0) - u128(v) : u128(v); }

struct Signed {
  bool negative = false;
  Big big;
};

// a + b in units of 2^e
Signed sum_of(Dyadic a, Dyadic b, int e) {
  Signed r;
  Big x, y;
  if (a.m != 0) x = Big::shifted(magnitude(a.m), a.e - e);
  if (b.m != 0) y = Big::shifted(magnitude(b.m), b.e - e);
  const bool na = a.m < 0, nb = b.m < 0;
  if (b.m == 0) {
    r.negative = na;
    r.big = x;
  } else if (a.m == 0) {
    r.negative = nb;
    r.big = y;
  } else if (na == nb) {
    r.negative = na;
    x.add(y);
    r.big = x;
  } else if (x.compare(y) >= 0) {
    r.negative = na;
    x.sub(y);
    r.big = x;
  } else {
    r.negative = nb;
    y.sub(x);
    r.big = y;
  }
  return r;
}

enum class Tie { even, up, away, toward_zero, down_dir, up_dir, zero_dir };

constexpr i64 kHuge = i64(1) << 45;

// (a + b) / d rounded to an integer; beyond +-2^45 that bound.
i64 divide(Dyadic a, Dyadic b, Dyadic d, Tie tie = Tie::even) {
  int e = d.e;
  if (a.m != 0 && a.e < e) e = a.e;
  if (b.m != 0 && b.e < e) e = b.e;
  Signed n = sum_of(a, b, e);
  const int nb = n.big.bits();
  if (nb == 0) return 0;
  Big den = Big::shifted(magnitude(d.m), d.e - e);
  const int db = den.bits();
  if (nb - db > 44) return n.negative ? -kHuge : kHuge;
  i64 q = 0;
  int steps = nb - db;
  if (steps >= 0) {
    Big t = den;
    t.left(steps);
    for (int i = steps; i >= 0; --i) {
      if (n.big.compare(t) >= 0) {
        n.big.sub(t);
        q |= i64(1) << i;
      }
      t.right1();
    }
  }
  const bool rest = n.big.bits() != 0;
  Big twice = n.big;
  twice.left(1);
  const int c = twice.compare(den);
  bool up = c > 0;  // the magnitude
  if (c == 0) {
    switch (tie) {
      case Tie::up: up = !n.negative; break;
      case Tie::away: up = true; break;
      case Tie::toward_zero: up = false; break;
      default: up = (q & 1) != 0;
    }
  }
  if (tie == Tie::down_dir) up = rest && n.negative;
  if (tie == Tie::up_dir) up = rest && !n.negative;
  if (tie == Tie::zero_dir) up = false;
  if (up) ++q;
  return n.negative ? -q : q;
}
i64 divide(Dyadic a, Dyadic d, Tie tie = Tie::even) { return divide(a, Dyadic{}, d, tie); }

float from_bits(uint32_t b) {
  float f;
  std::memcpy(&f, &b, 4);
  return f;
}
uint32_t to_bits(float f) {
  uint32_t b;
  std::memcpy(&b, &f, 4);
  return b;
}

// a + b rounded once to float32
uint32_t to_float_bits(Dyadic a, Dyadic b) {
  int e = 1000;
  if (a.m != 0 && a.e < e) e = a.e;
  if (b.m != 0 && b.e < e) e = b.e;
  if (e == 1000) return 0;
  const Signed n = sum_of(a, b, e);
  const int bits = n.big.bits();
  if (bits == 0) return 0;
  const uint32_t sign = n.negative ? 0x80000000u : 0;
  int top = bits + e;   // value in [2^(top-1), 2^top)
  int unit = top - 24;  // exponent of the last place kept
  if (unit < -149) unit = -149;
  const int drop = unit - e;  // bits to drop
  u64 m = 0;
  bool half = false, sticky = false;
  if (drop <= 0) {
    for (int i = 0; i < bits; ++i) {
      if (n.big.bit(i)) m |= u64(1) << (i - drop);
    }
  } else {
    for (int i = drop; i < bits && i < drop + 64; ++i) {
      if (n.big.bit(i)) m |= u64(1) << (i - drop);
    }
    if (drop - 1 < Big::kWords * 64) half = n.big.bit(drop - 1);
    for (int i = 0; i < drop - 1 && i < bits; ++i) sticky |= n.big.bit(i);
  }
  if (half && (sticky || (m & 1))) ++m;
  if (m == 0) return sign == 0 ? 0 : sign;
  if (m == (u64(1) << 24)) {
    m >>= 1;
    ++unit;
  }
  if (m < 0x800000) return sign | uint32_t(m);  // denormal
  const int field = unit + 150;
  if (field >= 255) return sign | 0x7f800000u;
  return sign | (uint32_t(field) << 23) | uint32_t(m & 0x7fffff);
}

// ---------------------------------------------------------------- tensors

inline i64 code(const qualm_tensor* t, i64 at) {
  return t->dtype == QUALM_U8 ? i64(static_cast<const uint8_t*>(t->data)[at])
                              : i64(static_cast<const int8_t*>(t->data)[at]);
}
inline void put_code(const qualm_tensor* t, i64 at, i64 v) {
  static_cast<uint8_t*>(t->data)[at] = uint8_t(v);
}
inline i64 pick(const qualm_qparams& q, i64 n) { return q.count > 1 ? n : 0; }
inline float scale_of(const qualm_qparams& q, i64 n = 0) { return q.scale[pick(q, n)]; }
inline i64 zero_of(const qualm_qparams& q, i64 n = 0) { return q.zero_point[pick(q, n)]; }

i64 clamp_code(const qualm_problem* p, i64 v, i64 z) {
  i64 low = p->out_min;
  if (p->relu) {
    const i64 floor = is(lin_relu_zero) && p->op == QUALM_LINEAR ? 0 : z;
    if (floor > low) low = floor;
  }
  if (v < low) v = low;
  if (v > p->out_max) v = p->out_max;
  return v;
}

// Threads: body(first, last, index) over [0, count)
template <class Body>
void parallel(i64 count, int threads, Body body) {
  if (threads < 1) threads = 1;
  if (threads > 16) threads = 16;
  if (threads > count) threads = int(count);
  if (threads <= 1) {
    if (count > 0) body(i64(0), count);
    return;
  }
  std::atomic<int> ready{0};
  auto part = [&](int t) {
    ready.fetch_add(1);
    for (int spin = 0; ready.load() < threads && spin < 500; ++spin) std::this_thread::yield();
    body(count * t / threads, count * (t + 1) / threads);
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(part, t);
  part(0);
  for (auto& t : pool) t.join();
}

int threads_of(const qualm_problem* p) { return QUALM_HAS(p, threads) ? p->threads : 1; }

// ---------------------------------------------------------------- the epilogue of sums

float fl_clamp_round(float v, float low, float high) {
  v = std::fmax(v, low);
  v = std::fmin(v, high);
  return std::nearbyint(v);
}

struct Bias {
  i64 i = 0;
  bool has_i = false;
  float f = 0;
  bool has_f = false;
};

Bias bias_of(const qualm_problem* p, i64 n) {
  Bias b;
  if (p->bias_i32 != nullptr) {
    b.i = p->bias_i32[n];
    b.has_i = true;
  }
  if (p->bias != nullptr) {
    b.f = p->bias[n];
    b.has_f = true;
  }
  return b;
}

// sum: of (x - zx)(w - zw), without the bias. sn: index of the weight scale.
void finish(const qualm_problem* p, i128 sum, Bias b, i64 sn, i64 at) {
  const float sx = scale_of(p->x_q), sw = scale_of(p->w_q, sn);
  const int out = p->y->dtype;
  if (out == QUALM_S32) {
    i128 total = sum + b.i;
    if (is(lin_bias_float_s32) && p->op == QUALM_LINEAR && b.has_i) {
      const float f = float(i64(sum)) + float(b.i);
      total = i128(i64(f));
    }
    if (p->relu && total < 0) total = 0;
    if (total < p->out_min) total = p->out_min;
    if (total > p->out_max) total = p->out_max;
    static_cast<int32_t*>(p->y->data)[at] = int32_t(total);
    return;
  }
  sum += b.i;
  const Dyadic product = sum * (decode(sx) * decode(sw));
  const Dyadic fb = b.has_f ? decode(b.f) : Dyadic{};
  if (out == QUALM_F32) {
    uint32_t bits = to_float_bits(product, fb);
    if (p->relu && (bits >> 31)) bits = 0;
    static_cast<uint32_t*>(p->y->data)[at] = bits;
    return;
  }
  const float sy = scale_of(p->out_q);
  const i64 z = zero_of(p->out_q);
  i64 v;
  if (is(lin_rcp_outscale) && p->op == QUALM_LINEAR) {
    const float inverse = 1.0f / sy;
    const float multiplier = (sx * sw) * inverse;
    float f = float(i64(sum)) * multiplier;
    if (b.has_f) f += b.f * inverse;
    v = i64(fl_clamp_round(f, -16777216.0f, 16777216.0f));
    if (v == -16777216) v = -kHuge;
    if (v == 16777216) v = kHuge;
  } else {
    v = divide(product, fb, decode(sy));
  }
  put_code(p->y, at, clamp_code(p, v + z, z));
}

// ---------------------------------------------------------------- linear

i64 dot(const qualm_problem* p, i64 m, i64 n) {
  const i64 depth = p->x->dims[1];
  const i64 xr = m * p->x->strides[0], wr = n * p->w->strides[0];
  const i64 zx = zero_of(p->x_q), zw = zero_of(p->w_q, n);
  i64 sum = 0;
  for (i64 k = 0; k < depth; ++k) sum += (code(p->x, xr + k) - zx) * (code(p->w, wr + k) - zw);
  if (is(lin_pair16_wrap) && p->x->dtype == QUALM_S8 && p->w->dtype == QUALM_S8) {
    for (i64 k = 0; k + 1 < depth; k += 2) {
      const i64 pair =
          code(p->x, xr + k) * code(p->w, wr + k) + code(p->x, xr + k + 1) * code(p->w, wr + k + 1);
      sum += int16_t(pair) - pair;
    }
  }
  if (is(lin_ksum_tail)) {
    for (i64 k = depth & ~i64(3); k < depth; ++k) sum += zx * (code(p->w, wr + k) - zw);
  }
  if (is(lin_k_overread)) {
    const volatile uint8_t* row = static_cast<const uint8_t*>(p->x->data) + xr;
    unsigned keep = 0;
    const i64 end = (depth + 15) & ~i64(15);
    for (i64 k = depth; k < end; ++k) keep += row[k];
    if (keep == 0xffffffffu) ++sum;  // never
  }
  return sum;
}

std::mutex g_lock;
std::vector<i64> g_column_sums;
i64 g_cached_n = -1, g_cached_k = -1;
i64 g_scratch[4096];

int32_t linear(const qualm_problem* p) {
  const i64 rows = p->y->dims[0], columns = p->y->dims[1], depth = p->x->dims[1];
  const i64 zx = zero_of(p->x_q);
  if (is(lin_stale_colsum)) {
    std::lock_guard<std::mutex> hold(g_lock);
    if (g_cached_n != columns || g_cached_k != depth) {
      g_column_sums.assign(size_t(columns), 0);
      for (i64 n = 0; n < columns; ++n) {
        const i64 zw = zero_of(p->w_q, n);
        for (i64 k = 0; k < depth; ++k) {
          g_column_sums[size_t(n)] += code(p->w, n * p->w->strides[0] + k) - zw;
        }
      }
      g_cached_n = columns;
      g_cached_k = depth;
    }
    for (i64 m = 0; m < rows; ++m) {
      for (i64 n = 0; n < columns; ++n) {
        const i64 zw = zero_of(p->w_q, n);
        i64 sum = 0;
        for (i64 k = 0; k < depth; ++k) {
          sum += code(p->x, m * p->x->strides[0] + k) * (code(p->w, n * p->w->strides[0] + k) - zw);
        }
        finish(p, sum - zx * g_column_sums[size_t(n)], bias_of(p, n), n, m * p->y->strides[0] + n);
      }
    }
    return QUALM_OK;
  }
  if (is(lin_thread_bias)) {
    parallel(columns, threads_of(p), [&](i64 first, i64 last) {
      for (i64 m = 0; m < rows; ++m) {
        for (i64 n = first; n < last; ++n) {
          finish(p, dot(p, m, n), bias_of(p, n - first), n, m * p->y->strides[0] + n);
        }
      }
    });
    return QUALM_OK;
  }
  if (is(lin_race_scratch) && columns <= 4096) {
    parallel(rows, threads_of(p), [&](i64 first, i64 last) {
      for (i64 m = first; m < last; ++m) {
        volatile i64* sums = g_scratch;
        for (i64 n = 0; n < columns; ++n) sums[n] = dot(p, m, n);
        for (i64 n = 0; n < columns; ++n) {
          finish(p, sums[n], bias_of(p, n), n, m * p->y->strides[0] + n);
        }
      }
    });
    return QUALM_OK;
  }
  i64 end = rows;
  if (is(lin_gemv_unwritten) && columns == 1 && rows > 2) end = rows & ~i64(1);
  parallel(end, threads_of(p), [&](i64 first, i64 last) {
    for (i64 m = first; m < last; ++m) {
      for (i64 n = 0; n < columns; ++n) {
        finish(p, dot(p, m, n), bias_of(p, n), n, m * p->y->strides[0] + n);
      }
    }
  });
  return QUALM_OK;
}

// ---------------------------------------------------------------- convolutions

int32_t convolution(const qualm_problem* p) {
  const qualm_window* v = p->window;
  const qualm_tensor *x = p->x, *w = p->w, *y = p->y;
  const i64 height = x->dims[1], width = x->dims[2], channels = x->dims[3];
  const i64 outputs = y->dims[3], out_h = y->dims[1], out_w = y->dims[2];
  const i64 groups = v->groups < 1 ? 1 : v->groups;
  const i64 per_group = outputs / groups, depth = channels / groups;
  const i64 zx = zero_of(p->x_q);
  const bool conv = p->op == QUALM_CONV2D, dw = p->op == QUALM_DEPTHWISE;
  const i64 taps = v->kernel_h * v->kernel_w;
  if (y->dims[0] * out_h * out_w * outputs == 0) return QUALM_OK;
  const bool flat_1x1 = is(conv_1x1_stride_h) && conv && taps == 1 && v->stride_w == 1 &&
                        v->pad_top == 0 && v->pad_left == 0 && v->pad_bottom == 0 &&
                        v->pad_right == 0;
  const bool stale = is(conv_im2col_stale) && conv;
  const bool im2col = stale;

  auto work = [&](i64 first, i64 last) {
    std::vector<i64> columns;  // im2col of one pixel: x - zx for each tap and channel
    if (im2col) columns.assign(size_t(taps * channels), 0);
    for (i64 line = first; line < last; ++line) {
      const i64 image = line / out_h, oy = line % out_h;
      for (i64 ox = 0; ox < out_w; ++ox) {
        if (im2col) {
          for (i64 r = 0; r < v->kernel_h; ++r) {
            for (i64 s = 0; s < v->kernel_w; ++s) {
              const i64 iy = oy * v->stride_h - v->pad_top + r * v->dilation_h;
              const i64 ix = ox * v->stride_w - v->pad_left + s * v->dilation_w;
              if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
              for (i64 c = 0; c < channels; ++c) {
                columns[size_t((r * v->kernel_w + s) * channels + c)] =
                    code(x, image * x->strides[0] + iy * x->strides[1] + ix * x->strides[2] + c) -
                    zx;
              }
            }
          }
        }
        for (i64 n = 0; n < outputs; ++n) {
          const i64 group = n / per_group;
          const i64 zw = zero_of(p->w_q, n);
          i64 base = group * depth;
          if (is(dw_multiplier_index) && dw && per_group > 1) base = n % channels;
          i64 sum = 0;
          for (i64 r = 0; r < v->kernel_h; ++r) {
            i64 raw = 0;
            for (i64 s = 0; s < v->kernel_w; ++s) {
              const i64 wt = n * w->strides[0] + r * w->strides[1] + s * w->strides[2];
              if (im2col) {
                for (i64 c = 0; c < depth; ++c) {
                  sum += columns[size_t((r * v->kernel_w + s) * channels + base + c)] *
                         (code(w, wt + c) - zw);
                }
                continue;
              }
              i64 iy = oy * v->stride_h - v->pad_top + r * v->dilation_h;
              const i64 ix = ox * v->stride_w - v->pad_left + s * v->dilation_w;
              if (flat_1x1) iy = oy;
              const bool inside = iy >= 0 && iy < height && ix >= 0 && ix < width;
              if (!inside) {
                if (is(conv_pad_zero_stride2) && conv && v->stride_w == 2) {
                  for (i64 c = 0; c < depth; ++c) sum += -zx * (code(w, wt + c) - zw);
                }
                if (is(conv_s8_border_comp) && conv && x->dtype == QUALM_S8) {
                  for (i64 c = 0; c < depth; ++c) sum -= 128 * (code(w, wt + c) - zw);
                }
                continue;
              }
              const i64 at = image * x->strides[0] + iy * x->strides[1] + ix * x->strides[2] + base;
              for (i64 c = 0; c < depth; ++c) {
                const i64 xc = code(x, at + c), wc = code(w, wt + c);
                sum += (xc - zx) * (wc - zw);
                raw += xc * wc;
              }
            }
            if (is(dw_acc16_wrap) && dw && w->dtype == QUALM_S8) sum += int16_t(raw) - raw;
          }
          Bias b = bias_of(p, n);
          if (is(dw_bias_each_pass) && dw && b.has_i) b.i *= (taps + 8) / 9;
          i64 sn = n;
          if (is(conv_group_qparam) && conv && groups > 1) sn = n % per_group;
          finish(p, sum, b, sn,
                 image * y->strides[0] + oy * y->strides[1] + ox * y->strides[2] + n);
        }
      }
    }
  };
  parallel(y->dims[0] * out_h, threads_of(p), work);
  return QUALM_OK;
}

// ---------------------------------------------------------------- add, sub, mul

int32_t binary(const qualm_problem* p) {
  const i64 rows = p->y->dims[0], columns = p->y->dims[1];
  const i64 za = zero_of(p->x_q), zb = zero_of(p->w_q), zy = zero_of(p->out_q);
  const float sa = scale_of(p->x_q), sb = scale_of(p->w_q), sy = scale_of(p->out_q);
  const Dyadic da = decode(sa), db = decode(sb), dy = decode(sy);
  const bool over_second = p->y->data == p->w->data;
  const bool one_row_scales = to_bits(sa) == to_bits(sb) && za == zb;
  int shift = 0;
  if (p->op == QUALM_MUL) std::frexp(double(sa) * double(sb) / double(sy), &shift);
  parallel(rows, threads_of(p), [&](i64 first, i64 last) {
    for (i64 m = first; m < last; ++m) {
      for (i64 n = 0; n < columns; ++n) {
        const i64 ca = code(p->x, m * p->x->strides[0] + n);
        i64 cb = code(p->w, m * p->w->strides[0] + n);
        i64 v;
        if (p->op == QUALM_MUL) {
          i128 product = i128(ca - za) * (cb - zb);
          if (is(mul_cross_term)) product -= i128(za) * zb;
          Dyadic d = product * (da * db);
          if (is(mul_no_left_shift) && shift > 0) d.e -= shift;
          v = divide(d, dy);
        } else if (p->op == QUALM_ADD) {
          if (is(add_over_second_alias) && over_second) cb = ca;
          Dyadic ua = da, ub = db;
          if (is(add_tail_scale_swap) && n >= (columns & ~i64(15))) std::swap(ua, ub);
          v = divide(i128(ca - za) * ua, i128(cb - zb) * ub, dy);
          if (is(add_sat_before_zp)) v = v < -128 ? -128 : v > 127 ? 127 : v;
        } else {
          if (is(sub_equal_scale_sat_u8) && one_row_scales && p->x->dtype == QUALM_U8) {
            v = divide(i128(ca > cb ? ca - cb : 0) * da, dy);
          } else {
            v = divide(i128(ca - za) * da, i128(zb - cb) * db, dy,
                       is(sub_half_up) ? Tie::up : Tie::even);
          }
        }
        put_code(p->y, m * p->y->strides[0] + n, clamp_code(p, v + zy, zy));
      }
    }
  });
  return QUALM_OK;
}

// ---------------------------------------------------------------- pools

int32_t max_pool(const qualm_problem* p) {
  const qualm_window* v = p->window;
  const qualm_tensor *x = p->x, *y = p->y;
  const i64 zy = zero_of(p->out_q);
  const i64 channels = y->dims[3];
  parallel(y->dims[0] * y->dims[1], threads_of(p), [&](i64 first, i64 last) {
    for (i64 line = first; line < last; ++line) {
      const i64 image = line / y->dims[1], oy = line % y->dims[1];
      for (i64 ox = 0; ox < y->dims[2]; ++ox) {
        for (i64 c = 0; c < channels; ++c) {
          i64 best = is(maxpool_s8_init0) ? 0 : -1000;
          for (i64 r = 0; r < v->kernel_h; ++r) {
            for (i64 s = 0; s < v->kernel_w; ++s) {
              const i64 iy = oy * v->stride_h - v->pad_top + r * v->dilation_h;
              const i64 ix = ox * v->stride_w - v->pad_left + s * v->dilation_w;
              if (iy < 0 || iy >= x->dims[1] || ix < 0 || ix >= x->dims[2]) continue;
              const i64 q =
                  code(x, image * x->strides[0] + iy * x->strides[1] + ix * x->strides[2] + c);
              if (q > best) best = q;
            }
          }
          if (!(is(maxpool_tail_unclamped) && c >= (channels & ~i64(7)))) {
            best = clamp_code(p, best, zy);
          }
          put_code(y, image * y->strides[0] + oy * y->strides[1] + ox * y->strides[2] + c, best);
        }
      }
    }
  });
  return QUALM_OK;
}

int32_t avg_pool(const qualm_problem* p) {
  const qualm_window* v = p->window;
  const qualm_tensor *x = p->x, *y = p->y;
  const i64 zx = zero_of(p->x_q), zy = zero_of(p->out_q);
  const Dyadic dx = decode(scale_of(p->x_q)), dy = decode(scale_of(p->out_q));
  const i64 height = x->dims[1], width = x->dims[2];
  parallel(y->dims[0] * y->dims[1], threads_of(p), [&](i64 first, i64 last) {
    for (i64 line = first; line < last; ++line) {
      const i64 image = line / y->dims[1], oy = line % y->dims[1];
      for (i64 ox = 0; ox < y->dims[2]; ++ox) {
        for (i64 c = 0; c < y->dims[3]; ++c) {
          i64 sum = 0, inside = 0, padded = 0;
          for (i64 r = 0; r < v->kernel_h; ++r) {
            for (i64 s = 0; s < v->kernel_w; ++s) {
              const i64 iy = oy * v->stride_h - v->pad_top + r;
              const i64 ix = ox * v->stride_w - v->pad_left + s;
              if (iy < height + v->pad_bottom && ix < width + v->pad_right) ++padded;
              if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
              ++inside;
              sum +=
                  code(x, image * x->strides[0] + iy * x->strides[1] + ix * x->strides[2] + c) - zx;
            }
          }
          i64 count = v->count_include_pad ? padded : inside;
          if (is(avgpool_ceil_divisor) && v->count_include_pad && v->ceil_mode) {
            count = v->kernel_h * v->kernel_w;
          }
          if (is(avgpool_zp_full_window) && !v->count_include_pad) {
            sum -= zx * (v->kernel_h * v->kernel_w - inside);
          }
          const i64 q = count == 0 ? 0 : divide(i128(sum) * dx, i128(count) * dy);
          put_code(y, image * y->strides[0] + oy * y->strides[1] + ox * y->strides[2] + c,
                   clamp_code(p, q + zy, zy));
        }
      }
    }
  });
  return QUALM_OK;
}

int32_t global_avg_pool(const qualm_problem* p) {
  const qualm_tensor *x = p->x, *y = p->y;
  const i64 zx = zero_of(p->x_q), zy = zero_of(p->out_q);
  const Dyadic dx = decode(scale_of(p->x_q)), dy = decode(scale_of(p->out_q));
  const i64 pixels = x->dims[1] * x->dims[2];
  if (y->dims[1] * y->dims[2] == 0) return QUALM_OK;
  std::vector<i64> sums(size_t(y->dims[3]), 0);
  for (i64 image = 0; image < y->dims[0]; ++image) {
    if (!is(gap_acc_not_cleared)) sums.assign(sums.size(), 0);
    for (i64 iy = 0; iy < x->dims[1]; ++iy) {
      for (i64 ix = 0; ix < x->dims[2]; ++ix) {
        for (i64 c = 0; c < y->dims[3]; ++c) {
          sums[size_t(c)] +=
              code(x, image * x->strides[0] + iy * x->strides[1] + ix * x->strides[2] + c) - zx;
        }
      }
    }
    for (i64 c = 0; c < y->dims[3]; ++c) {
      i64 sum = sums[size_t(c)];
      if (is(gap_group7_zero_fill) && pixels > 7) sum -= zx * ((pixels + 6) / 7 * 7 - pixels);
      const i64 q = pixels == 0 ? 0 : divide(i128(sum) * dx, i128(pixels) * dy);
      put_code(y, image * y->strides[0] + c, clamp_code(p, q + zy, zy));
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- quantize and its kin

bool is_nan(uint32_t b) { return (b & 0x7fffffff) > 0x7f800000; }
bool is_inf(uint32_t b) { return (b & 0x7fffffff) == 0x7f800000; }

int32_t quantize(const qualm_problem* p) {
  const i64 rows = p->y->dims[0], columns = p->y->dims[1];
  parallel(rows, threads_of(p), [&](i64 first, i64 last) {
    for (i64 m = first; m < last; ++m) {
      for (i64 n = 0; n < columns; ++n) {
        const uint32_t b = static_cast<const uint32_t*>(p->x->data)[m * p->x->strides[0] + n];
        const float s = scale_of(p->out_q, n);
        const i64 z = zero_of(p->out_q, n);
        i64 v;
        if (is_nan(b)) {
          v = 0;
        } else if (is_inf(b)) {
          v = b >> 31 ? -kHuge : kHuge;
        } else {
          const bool tail = is(quant_tail_away) && n >= (columns & ~i64(7));
          v = divide(decode(from_bits(b)), decode(s), tail ? Tie::away : Tie::even);
        }
        if (is(quant_huge_int_min) && v >= (i64(1) << 31)) v = -kHuge;
        i64 q = v + z;
        if (is(quant_zp_in_float) && !is_nan(b)) {
          const float shifted = from_bits(b) / s + float(z);
          q = i64(fl_clamp_round(shifted, -1e9f, 1e9f));
        }
        put_code(p->y, m * p->y->strides[0] + n, clamp_code(p, q, z));
      }
    }
  });
  return QUALM_OK;
}

int32_t dequantize(const qualm_problem* p) {
  const i64 rows = p->y->dims[0], columns = p->y->dims[1];
  parallel(rows, threads_of(p), [&](i64 first, i64 last) {
    for (i64 m = first; m < last; ++m) {
      for (i64 n = 0; n < columns; ++n) {
        i64 channel = n;
        if (is(deq_axis_row) && p->x_q.count > 1) channel = m % p->x_q.count;
        const float s = scale_of(p->x_q, channel);
        const i64 z = zero_of(p->x_q, channel);
        const i64 q = code(p->x, m * p->x->strides[0] + n);
        uint32_t bits = to_float_bits(i128(q - z) * decode(s), Dyadic{});
        if (is(deq_ftz)) {
          if ((bits & 0x7f800000) == 0 || (to_bits(s) & 0x7f800000) == 0) bits &= 0x80000000;
        }
        static_cast<uint32_t*>(p->y->data)[m * p->y->strides[0] + n] = bits;
      }
    }
  });
  return QUALM_OK;
}

int32_t requantize(const qualm_problem* p, int caller_rounding) {
  const i64 rows = p->y->dims[0], columns = p->y->dims[1];
  Tie tie = Tie::even;
  if (is(req_caller_rounding)) {
    if (caller_rounding == FE_DOWNWARD) tie = Tie::down_dir;
    if (caller_rounding == FE_UPWARD) tie = Tie::up_dir;
    if (caller_rounding == FE_TOWARDZERO) tie = Tie::zero_dir;
  }
  parallel(rows, threads_of(p), [&](i64 first, i64 last) {
    for (i64 m = first; m < last; ++m) {
      for (i64 n = 0; n < columns; ++n) {
        i64 acc = static_cast<const int32_t*>(p->x->data)[m * p->x->strides[0] + n];
        const i64 z = zero_of(p->out_q, n);
        Dyadic up{1, 0}, down{1, 0};
        double real;
        if (p->multiplier_count > 0) {
          const float f = p->multiplier[p->multiplier_count > 1 ? n : 0];
          up = decode(f);
          real = double(f);
        } else {
          const float sx = scale_of(p->x_q), sw = scale_of(p->w_q, n), sy = scale_of(p->out_q);
          up = decode(sx) * decode(sw);
          down = decode(sy);
          real = double(sx) * double(sw) / double(sy);
        }
        if (is(req_mantissa_mask)) {
          int e;
          const double mantissa = std::frexp(real, &e);  // in [1/2, 1)
          up = {i128(i64(std::ldexp(mantissa, 24))) & ~i128(15), e - 24};
          down = {1, 0};
        }
        if (is(req_left_shift_wrap)) {
          int shift;
          std::frexp(real, &shift);
          if (shift > 0) {
            acc = shift > 31 ? 0 : i64(int32_t(uint32_t(acc) << shift));
            up.e -= shift;
          }
        }
        const i64 v = divide(i128(acc) * up, down, tie);
        put_code(p->y, m * p->y->strides[0] + n, clamp_code(p, v + z, z));
      }
    }
  });
  return QUALM_OK;
}

int32_t rescale(const qualm_problem* p) {
  const i64 rows = p->y->dims[0], columns = p->y->dims[1];
  const float sx = scale_of(p->x_q), sy = scale_of(p->out_q);
  const i64 zx = zero_of(p->x_q), zy = zero_of(p->out_q);
  const bool copy =
      is(rescale_same_scale_copy) && to_bits(sx) == to_bits(sy) && p->x->dtype == p->y->dtype;
  parallel(rows, threads_of(p), [&](i64 first, i64 last) {
    for (i64 m = first; m < last; ++m) {
      for (i64 n = 0; n < columns; ++n) {
        const i64 q = code(p->x, m * p->x->strides[0] + n);
        const i64 r = copy ? q : divide(i128(q - zx) * decode(sx), decode(sy)) + zy;
        put_code(p->y, m * p->y->strides[0] + n, clamp_code(p, r, zy));
      }
    }
  });
  return QUALM_OK;
}

int32_t concat(const qualm_problem* p) {
  const i64 rows = p->y->dims[0], columns = p->y->dims[1];
  const float sy = scale_of(p->out_q);
  const i64 zy = zero_of(p->out_q);
  i64 offset = 0;
  for (int part = 0; part < 2; ++part) {
    const qualm_tensor* t = part == 0 ? p->x : p->w;
    const qualm_qparams& q = part == 0 ? p->x_q : p->w_q;
    const float s = scale_of(q);
    const i64 z = zero_of(q);
    const float scale = s * (1.0f / sy);
    const float bias = -float(z) * scale;
    const bool same = to_bits(s) == to_bits(sy) && z == zy;
    for (i64 m = 0; m < rows; ++m) {
      for (i64 n = 0; n < t->dims[1]; ++n) {
        const i64 c = code(t, m * t->strides[0] + n);
        i64 v;
        if (is(concat_float_bias) && !same) {
          float f = std::round(float(c) * scale + bias);
          f = std::fmin(std::fmax(f, -1e9f), 1e9f);
          v = i64(f);
        } else {
          v = divide(i128(c - z) * decode(s), decode(sy));
        }
        i64 at = m * p->y->strides[0] + offset + n;
        if (is(concat_second_stride) && part == 1) at = m * columns + offset + n;
        put_code(p->y, at, clamp_code(p, v + zy, zy));
      }
    }
    offset += t->dims[1];
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- table

i64 round_real(long double v) {
  if (v > 1e12L) return kHuge;
  if (v < -1e12L) return -kHuge;
  return i64(std::nearbyint(v));
}

i64 function_of(const qualm_problem* p, i64 c) {
  const float sx = scale_of(p->x_q), sy = scale_of(p->out_q);
  const Dyadic dy = decode(sy);
  const Dyadic v = i128(c - zero_of(p->x_q)) * decode(sx);
  const long double real = std::ldexp((long double)(i64(v.m)), v.e);
  switch (p->function) {
    case QUALM_RELU: return v.m <= 0 ? 0 : divide(v, dy);
    case QUALM_LEAKY_RELU:
      if (v.m >= 0) return divide(v, dy);
      if (is(leaky_slope_only)) {
        return divide(i128(c - zero_of(p->x_q)) * decode(p->negative_slope), Dyadic{1, 0});
      }
      return divide(v * decode(p->negative_slope), dy);
    case QUALM_HARD_SWISH:
      if (real <= -3) return 0;
      if (real >= 3) return divide(v, dy);
      return divide(v * v, 3 * v, 6 * dy);
    case QUALM_SIGMOID: {
      const Tie against = v.m > 0 ? Tie::toward_zero : Tie::away;  // the sum is positive
      if (v.m == 0) return divide(Dyadic{1, -1}, dy);
      if (std::fabs(real) < 0x1p-21L) return divide(Dyadic{1, -1}, {v.m, v.e - 2}, dy, against);
      if (real > 30) return divide(Dyadic{1, 0}, dy, Tie::toward_zero);
      return round_real(1 / (1 + std::exp(-real)) / (long double)sy);
    }
    default: {  // tanh
      if (v.m == 0) return 0;
      if (std::fabs(real) < 0x1p-24L) return divide(v, dy, Tie::toward_zero);
      if (std::fabs(real) > 16) return divide(Dyadic{v.m < 0 ? -1 : 1, 0}, dy, Tie::toward_zero);
      return round_real(std::tanh(real) / (long double)sy);
    }
  }
}

struct TableKey {
  int32_t function, x_dtype, y_dtype, relu, out_min, out_max;
  uint32_t sx, sy, slope;
};
TableKey g_key;
bool g_key_valid = false;
uint8_t g_table[256];

int32_t table(const qualm_problem* p) {
  if (p->function < QUALM_RELU || p->function > QUALM_TANH) return QUALM_UNSUPPORTED;
  const i64 rows = p->y->dims[0], columns = p->y->dims[1];
  const i64 zy = zero_of(p->out_q);
  const i64 lowest = p->x->dtype == QUALM_U8 ? 0 : -128;
  uint8_t local[256];
  uint8_t* entries = local;
  bool build = true;
  std::unique_lock<std::mutex> hold;
  if (is(table_cache_key)) {
    hold = std::unique_lock<std::mutex>(g_lock);
    entries = g_table;
    TableKey key;
    std::memset(&key, 0, sizeof key);
    key = {p->function,
           p->x->dtype,
           p->y->dtype,
           p->relu,
           p->out_min,
           p->out_max,
           to_bits(scale_of(p->x_q)),
           to_bits(scale_of(p->out_q)),
           to_bits(p->negative_slope)};
    build = !g_key_valid || std::memcmp(&key, &g_key, sizeof key) != 0;
    g_key = key;
    g_key_valid = true;
  }
  if (build) {
    for (i64 i = 0; i < 256; ++i) {
      entries[i] = uint8_t(clamp_code(p, function_of(p, lowest + i) + zy, zy));
    }
  }
  for (i64 m = 0; m < rows; ++m) {
    for (i64 n = 0; n < columns; ++n) {
      i64 index = code(p->x, m * p->x->strides[0] + n) - lowest;
      if (is(table_s8_index)) index = static_cast<uint8_t*>(p->x->data)[m * p->x->strides[0] + n];
      put_code(p->y, m * p->y->strides[0] + n, entries[index]);
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- softmax

int32_t softmax(const qualm_problem* p) {
  const i64 rows = p->y->dims[0], columns = p->y->dims[1];
  if (columns == 0) return QUALM_OK;
  const i64 lowest = p->y->dtype == QUALM_U8 ? 0 : -128;
  const float s = scale_of(p->x_q);
  const long double real_s = s;
  const u64 all = 0xffffffffull;
  const bool capped = all >= u64(columns) * 0x7fffffull;  // (2^32 - 1)/N >= 2^23 - 1
  std::vector<u64> t(static_cast<size_t>(columns));
  i64 largest = -1000;
  for (i64 m = 0; m < rows; ++m) {
    if (!is(softmax_stale_max)) largest = -1000;
    for (i64 n = 0; n < columns; ++n) {
      const i64 c = code(p->x, m * p->x->strides[0] + n);
      if (c > largest) largest = c;
    }
    u128 total = 0;
    for (i64 n = 0; n < columns; ++n) {
      i64 d = largest - code(p->x, m * p->x->strides[0] + n);
      if (is(softmax_diff_sat127) && d > 127) d = 127;
      const long double exponent = real_s * d;
      u64 value;
      if (exponent < 0x1p-40L) {
        value = capped ? 0x7fffffull
                       : u64(divide(Dyadic{i128(all), 0}, Dyadic{columns, 0},
                                    d == 0 ? Tie::even : Tie::toward_zero));
      } else {
        const long double q = capped ? 8388607.0L : 4294967295.0L / columns;
        value = u64(std::nearbyint(q * std::exp(-exponent)));
      }
      t[size_t(n)] = value;
      total += value;
    }
    for (i64 n = 0; n < columns; ++n) {
      u64 v = total == 0 ? 0 : u64((u128(256) * t[size_t(n)] + total / 2) / total);
      i64 q;
      if (is(softmax_s8_wrap) && lowest != 0) {
        q = int8_t(i64(v > 256 ? 256 : v) - 128);
      } else {
        q = i64(v > 255 ? 255 : v) + lowest;
      }
      put_code(p->y, m * p->y->strides[0] + n, clamp_code(p, q, lowest));
    }
  }
  return QUALM_OK;
}

// ---------------------------------------------------------------- dynamic_linear

float nearest(float v) { return std::nearbyint(v); }

void choose(const qualm_choice* c, float lo, float hi, float* scale, i64* zero) {
  if (c->rule == QUALM_RULE_OBSERVER) {
    i64 a = c->quant_min, b = c->quant_max;
    if (c->reduce_range) {
      a = a >> 1;
      b = b >> 1;
    }
    if (c->symmetric) {
      const float reach = -lo > hi ? -lo : hi;
      float s = reach / (float(b - a) / 2.0f);
      if (s < 0x1p-23f) s = 0x1p-23f;
      *scale = s;
      const bool whole = c->quant_min == 0 && c->quant_max == 255;
      *zero = c->dtype == QUALM_S8 ? 0 : whole ? 128 : (c->quant_min + c->quant_max) >> 1;
    } else {
      float s = (hi - lo) / float(b - a);
      if (s < 0x1p-23f) s = 0x1p-23f;
      *scale = s;
      const float r = is(dyn_zp_trunc) ? std::trunc(lo / s) : nearest(lo / s);
      i64 z = a - i64(r);
      *zero = z < a ? a : z > b ? b : z;
    }
  } else if (c->rule == QUALM_RULE_ATEN) {
    const double b = c->reduce_range ? 127 : 255;
    double s = (double(hi) - double(lo)) / b;
    if (float(s) == 0.0f || std::isinf(1.0f / float(s))) s = 0.1;
    if (s < double(6.1e-5f)) {
      const float before = float(s);
      s = double(6.1e-5f);
      const float amplifier = 6.1e-5f / before;
      lo = lo * amplifier;
    }
    double z = -double(lo) / s;
    if (!(z > 0)) z = 0;
    if (z > b) z = b;
    *zero = i64(is(dyn_zp_trunc) ? std::trunc(z) : std::nearbyint(z));
    *scale = float(s);
  } else {
    float s = (hi - lo) / 255.0f;
    if (hi == lo) {
      s = 1.0f;
    } else if (s == 0.0f) {
      s = 0x1p-149f;
    }
    float z = 0.0f - lo / s;
    if (!(z > 0)) z = 0;
    if (z > 255.0f) z = 255.0f;
    *zero = i64(is(dyn_zp_trunc) ? std::trunc(z) : nearest(z));
    *scale = s;
  }
  if (std::isinf(*scale)) *scale = FLT_MAX;
}

int32_t dynamic_linear(const qualm_problem* p) {
  if (p->choice == nullptr) return QUALM_UNSUPPORTED;
  const i64 rows = p->y->dims[0], columns = p->y->dims[1], depth = p->x->dims[1];
  const bool per_row = p->x_granularity != nullptr && p->x_granularity->kind == QUALM_PER_ROW;
  std::vector<float> scales(static_cast<size_t>(rows));
  std::vector<i64> zeros(static_cast<size_t>(rows));
  i64 scanned = depth;
  if (is(dyn_minmax_tail) && depth > 8) scanned = depth & ~i64(7);
  float lo = 0, hi = 0;
  for (i64 m = 0; m < rows; ++m) {
    if (per_row) lo = hi = 0;
    for (i64 k = 0; k < scanned; ++k) {
      const float v = static_cast<const float*>(p->x->data)[m * p->x->strides[0] + k];
      if (!std::isfinite(v)) continue;
      if (v < lo) lo = v;
      if (v > hi) hi = v;
    }
    if (per_row) choose(p->choice, lo, hi, &scales[size_t(m)], &zeros[size_t(m)]);
  }
  if (!per_row && rows > 0) {
    choose(p->choice, lo, hi, &scales[0], &zeros[0]);
    for (i64 m = 1; m < rows; ++m) {
      scales[size_t(m)] = scales[0];
      zeros[size_t(m)] = zeros[0];
    }
  }
  const i64 least = p->choice->dtype == QUALM_S8 ? -128 : 0, most = least + 255;
  parallel(rows, threads_of(p), [&](i64 first, i64 last) {
    std::vector<i64> q(static_cast<size_t>(depth));
    for (i64 m = first; m < last; ++m) {
      const float s = scales[size_t(m)];
      const i64 z = zeros[size_t(m)];
      for (i64 k = 0; k < depth; ++k) {
        const uint32_t b = static_cast<const uint32_t*>(p->x->data)[m * p->x->strides[0] + k];
        i64 v;
        if (is_nan(b)) {
          v = 0;
        } else if (is_inf(b)) {
          v = b >> 31 ? -kHuge : kHuge;
        } else {
          v = divide(decode(from_bits(b)), decode(s));
        }
        v += z;
        q[size_t(k)] = (v < least ? least : v > most ? most : v) - z;
      }
      for (i64 n = 0; n < columns; ++n) {
        const i64 zw = zero_of(p->w_q, n);
        i64 sum = 0;
        for (i64 k = 0; k < depth; ++k) {
          sum += q[size_t(k)] * (code(p->w, n * p->w->strides[0] + k) - zw);
        }
        const Dyadic fb = p->bias != nullptr ? decode(p->bias[n]) : Dyadic{};
        uint32_t bits = to_float_bits(i128(sum) * (decode(s) * decode(scale_of(p->w_q, n))), fb);
        if (p->relu && (bits >> 31)) bits = 0;
        static_cast<uint32_t*>(p->y->data)[m * p->y->strides[0] + n] = bits;
      }
    }
  });
  return QUALM_OK;
}

// ---------------------------------------------------------------- the plugin

__attribute__((noinline)) int32_t dispatch(const qualm_problem* p, int rounding) {
  switch (p->op) {
    case QUALM_LINEAR: return linear(p);
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: return convolution(p);
    case QUALM_ADD:
    case QUALM_SUB:
    case QUALM_MUL: return binary(p);
    case QUALM_MAX_POOL: return max_pool(p);
    case QUALM_AVG_POOL: return avg_pool(p);
    case QUALM_GLOBAL_AVG_POOL: return global_avg_pool(p);
    case QUALM_QUANTIZE: return quantize(p);
    case QUALM_DEQUANTIZE: return dequantize(p);
    case QUALM_REQUANTIZE: return requantize(p, rounding);
    case QUALM_RESCALE: return rescale(p);
    case QUALM_CONCAT: return concat(p);
    case QUALM_TABLE: return table(p);
    case QUALM_SOFTMAX: return softmax(p);
    case QUALM_DYNAMIC_LINEAR: return dynamic_linear(p);
    default: return QUALM_UNSUPPORTED;
  }
}

// The arithmetic below is for round to nearest and gradual underflow, whatever the caller has set.
int32_t run(const qualm_problem* p) {
  std::fenv_t saved;
  std::fegetenv(&saved);
  const unsigned mxcsr = _mm_getcsr();
  const int rounding = std::fegetround();
  std::fesetenv(FE_DFL_ENV);
  _mm_setcsr(0x1f80);
  const int32_t answer = dispatch(p, rounding);
  std::fesetenv(&saved);
  _mm_setcsr(mxcsr);
  return answer;
}

const char* last_error() { return "strange3: no such operation"; }

constexpr uint32_t kCodes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8);

qualm_capability make(int32_t op) {
  qualm_capability c;
  std::memset(&c, 0, sizeof c);
  c.size = sizeof c;
  c.x_dtypes = c.w_dtypes = c.out_dtypes = kCodes;
  c.features = QUALM_CAN_RELU | QUALM_CAN_CLAMP | QUALM_CAN_STRIDES | QUALM_CAN_EMPTY |
               QUALM_CAN_THREADS | QUALM_CAN_CONCURRENT;
  const int32_t any_low = INT32_MIN, any_high = INT32_MAX;
  c.x_zero_point_min = c.w_zero_point_min = c.out_zero_point_min = any_low;
  c.x_zero_point_max = c.w_zero_point_max = c.out_zero_point_max = any_high;
  const uint32_t sums = QUALM_CAN_BIAS_F32 | QUALM_CAN_BIAS_I32 | QUALM_CAN_PER_CHANNEL |
                        QUALM_CAN_EMPTY_K | QUALM_CAN_WEIGHT_STRIDES;
  auto narrow = [&](int32_t z) {
    c.x_zero_point_min = c.w_zero_point_min = -z;
    c.x_zero_point_max = c.w_zero_point_max = z;
  };
  switch (op) {
    case QUALM_LINEAR:
      c.features |= sums;
      c.out_dtypes |= QUALM_TYPE_BIT(QUALM_S32) | QUALM_TYPE_BIT(QUALM_F32);
      narrow(1 << 20);
      break;
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE:
      c.features |= sums | QUALM_CAN_DILATION | QUALM_CAN_GROUPS | QUALM_CAN_ASYMMETRIC_PADDING |
                    QUALM_CAN_LINE_STRIDES;
      c.out_dtypes |= QUALM_TYPE_BIT(QUALM_S32) | QUALM_TYPE_BIT(QUALM_F32);
      narrow(1 << 20);
      break;
    case QUALM_DYNAMIC_LINEAR:
      c.features |= sums | QUALM_CAN_PER_ROW;
      c.features &= ~QUALM_CAN_BIAS_I32;
      c.x_dtypes = c.out_dtypes = QUALM_TYPE_BIT(QUALM_F32);
      narrow(1 << 20);
      break;
    case QUALM_ADD:
    case QUALM_SUB:
    case QUALM_MUL: c.features |= QUALM_CAN_IN_PLACE | QUALM_CAN_OVER_SECOND; break;
    case QUALM_MAX_POOL:
      c.features |= QUALM_CAN_DILATION | QUALM_CAN_ASYMMETRIC_PADDING | QUALM_CAN_CEIL_MODE |
                    QUALM_CAN_LINE_STRIDES;
      break;
    case QUALM_AVG_POOL:
      c.features |= QUALM_CAN_ASYMMETRIC_PADDING | QUALM_CAN_CEIL_MODE | QUALM_CAN_COUNT_PADDING |
                    QUALM_CAN_LINE_STRIDES;
      break;
    case QUALM_GLOBAL_AVG_POOL: c.features |= QUALM_CAN_LINE_STRIDES; break;
    case QUALM_QUANTIZE:
      c.x_dtypes = QUALM_TYPE_BIT(QUALM_F32);
      c.features |= QUALM_CAN_PER_CHANNEL;
      break;
    case QUALM_DEQUANTIZE:
      c.out_dtypes = QUALM_TYPE_BIT(QUALM_F32);
      c.features |= QUALM_CAN_PER_CHANNEL;
      break;
    case QUALM_REQUANTIZE:
      c.x_dtypes = QUALM_TYPE_BIT(QUALM_S32);
      c.features |= QUALM_CAN_PER_CHANNEL;
      break;
    case QUALM_RESCALE: c.features |= QUALM_CAN_IN_PLACE; break;
    case QUALM_TABLE:
      c.features |= QUALM_CAN_IN_PLACE;
      narrow(65536);
      break;
    default: break;
  }
  return c;
}

const qualm_capability* capability(int32_t op) {
  static qualm_capability all[QUALM_DYNAMIC_LINEAR + 1];
  static bool made = false;
  if (op < 0 || op > QUALM_DYNAMIC_LINEAR || op == 15) return nullptr;
  if (!made) {
    for (int32_t i = 0; i <= QUALM_DYNAMIC_LINEAR; ++i) all[i] = make(i);
    made = true;
  }
  return &all[op];
}

}  // namespace

extern "C" QUALM_PLUGIN_EXPORT const qualm_plugin* qualm_plugin_entry(void) {
  g_mode = FAULT;
  return strange::Plugin(capability, run, last_error);
}
