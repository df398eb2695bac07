// SPDX-License-Identifier: Apache-2.0
// Faults of kernels on the bytes of llama.cpp's blocks (bench/strange_formats.tsv), of one format
// each. bench/strangers builds one plugin for each: FAULT is its name; `none_Q4_0` and so on are
// right. How a block lies in memory: ggml src/ggml-common.h at 0ad4a86.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "bench/strange_plugin.h"
#include "bench/strange_state.h"

namespace {

enum Format { kQ8_0, kQ4_0, kQ5_0, kMxfp4, kQ4_1, kQ4_K, kQ6_K };
constexpr const char* kNames[] = {"q8_0", "q4_0", "q5_0", "mxfp4", "q4_1", "q4_k", "q6_k"};
constexpr int64_t kBytes[] = {34, 18, 22, 17, 20, 144, 210};

// Each fault and its format.
#define FAULTS(X)                  \
  X(none_q8_0, kQ8_0)              \
  X(none_q4_0, kQ4_0)              \
  X(none_q5_0, kQ5_0)              \
  X(none_mxfp4, kMxfp4)            \
  X(none_q4_1, kQ4_1)              \
  X(none_q4_k, kQ4_K)              \
  X(none_q6_k, kQ6_K)              \
  X(fmt_nibbles_swapped, kQ4_0)    \
  X(fmt_nibbles_in_turn, kQ4_0)    \
  X(fmt_offset_of_7, kQ4_0)        \
  X(fmt_nibbles_signed, kQ4_0)     \
  X(fmt_w_scale_of_pair, kQ4_0)    \
  X(fmt_x_scale_of_pair, kQ4_0)    \
  X(fmt_x_scale_of_row_0, kQ8_0)   \
  X(fmt_scale_flushed, kQ4_0)      \
  X(fmt_product_in_f16, kQ8_0)     \
  X(fmt_sum_in_f16, kQ8_0)         \
  X(fmt_block_in_int16, kQ8_0)     \
  X(fmt_lanes_in_int16, kQ8_0)     \
  X(fmt_lowest_sign, kQ8_0)        \
  X(fmt_lowest_as_127, kQ8_0)      \
  X(fmt_odd_block_cut, kQ8_0)      \
  X(fmt_last_code_cut, kQ4_0)      \
  X(fmt_blocks_of_row_0, kQ4_0)    \
  X(fmt_fifth_bit, kQ5_0)          \
  X(fmt_fifth_bits_swapped, kQ5_0) \
  X(fmt_fifth_bits_late, kQ5_0)    \
  X(fmt_e8m0_not_halved, kMxfp4)   \
  X(fmt_e8m0_low, kMxfp4)          \
  X(fmt_e2m1_without_6, kMxfp4)    \
  X(fmt_minimum, kQ4_1)            \
  X(fmt_minimum_sign, kQ4_1)       \
  X(fmt_minimum_of_pair, kQ4_1)    \
  X(fmt_six_bits_high, kQ4_K)      \
  X(fmt_minima_first_4, kQ4_K)     \
  X(fmt_minima_of_16, kQ4_K)       \
  X(fmt_q6_offset, kQ6_K)          \
  X(fmt_q6_scale_sign, kQ6_K)      \
  X(fmt_q6_high_bits, kQ6_K)
#define NAME(fault, format) fault,
enum Fault { FAULTS(NAME) };
#undef NAME
#define FORMAT_OF(fault, format) format,
constexpr Format kFormats[] = {FAULTS(FORMAT_OF)};
#undef FORMAT_OF
constexpr Format kFormat = kFormats[FAULT];
constexpr bool Is(Fault fault) { return fault == FAULT; }
constexpr bool kIsSuper = kFormat == kQ4_K || kFormat == kQ6_K;

template <class T>
T Read(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float Half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, digits = bits & 1023;
  const float value = exponent == 0 ? std::ldexp(static_cast<float>(digits), -24)
                      : exponent == 31
                          ? INFINITY
                          : std::ldexp(static_cast<float>(digits + 1024), exponent - 25);
  if (Is(fmt_scale_flushed) && exponent == 0) return 0;
  return (bits & 0x8000) != 0 ? -value : value;
}
float ScaleAt(const uint8_t* from) { return Half(Read<uint16_t>(from)); }

// To 11 bits, half to even, as a float16 between 2^-14 and 65504 would be.
float InHalf(float value) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  exponent = std::max(exponent, -13);
  const float units = std::nearbyint(std::ldexp(value, 11 - exponent));
  (void)fraction;
  const float kept = std::ldexp(units, exponent - 11);
  return std::fabs(kept) > 65504 ? std::copysign(INFINITY, value) : kept;
}

// Code k of a block of 32 of weights, as the number that its scale multiplies.
int32_t Weight(const uint8_t* w, int k) {
  constexpr int8_t kE2M1[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  if (kFormat == kQ8_0) return static_cast<int8_t>(w[2 + k]);
  const uint8_t* const nibbles = w + kBytes[kFormat] - 16;
  int byte = k % 16, shift = k / 16 * 4;
  if (Is(fmt_nibbles_swapped)) shift ^= 4;
  if (Is(fmt_nibbles_in_turn)) byte = k / 2, shift = k % 2 * 4;
  if (Is(fmt_last_code_cut) && k == 31) return 0;
  int32_t code = nibbles[byte] >> shift & 15;
  if (kFormat == kMxfp4) {
    if (Is(fmt_e2m1_without_6) && (code & 7) == 7) code -= 1;
    return kE2M1[code];
  }
  if (kFormat == kQ5_0) {
    int bit = k;
    if (Is(fmt_fifth_bits_swapped)) bit ^= 16;
    if (Is(fmt_fifth_bits_late)) bit = k / 16 * 16 + std::min(k % 16 + 1, 15);
    const auto high = static_cast<int32_t>(Read<uint32_t>(w + 2) >> bit & 1);
    if (!Is(fmt_fifth_bit)) code |= high << 4;
    return code - 16;
  }
  if (kFormat == kQ4_1) return code;
  if (Is(fmt_nibbles_signed)) return code >= 8 ? code - 16 : code;
  return code - (Is(fmt_offset_of_7) ? 7 : 8);
}

float WeightScale(const uint8_t* w) {
  if (kFormat != kMxfp4) return ScaleAt(w);
  const int exponent = w[0] - (Is(fmt_e8m0_low) ? 1 : 0);
  return std::ldexp(1.0f, exponent - (Is(fmt_e8m0_not_halved) ? 127 : 128));
}

int32_t Product(int32_t w, int32_t x) {
  if (Is(fmt_lowest_sign) && x == -128 && w < 0) return x * -w;
  if (Is(fmt_lowest_as_127) && x == -128) x = -127;
  return w * x;
}

// Blocks of 32, by q8_0 or q8_1.
float DotOfBlocks(int64_t blocks, const uint8_t* w, const uint8_t* x, const uint8_t* first_x) {
  const int64_t w_bytes = kBytes[kFormat], x_bytes = kFormat == kQ4_1 ? 36 : 34;
  float sum = 0, minima = 0;
  if (Is(fmt_odd_block_cut)) blocks = blocks / 2 * 2;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t *wb = w + b * w_bytes, *xb = x + b * x_bytes;
    const int64_t pair = (b ^ 1) < blocks ? b ^ 1 : b;
    const uint8_t* const codes = xb + x_bytes - 32;
    int32_t products = 0;
    int32_t lanes[16] = {};
    for (int k = 0; k < 32; ++k) {
      const int32_t product = Product(Weight(wb, k), static_cast<int8_t>(codes[k]));
      products += product;
      lanes[k % 16] = static_cast<int16_t>(lanes[k % 16] + product);
    }
    if (Is(fmt_block_in_int16)) products = static_cast<int16_t>(products);
    if (Is(fmt_lanes_in_int16)) {
      products = 0;
      for (const int32_t lane : lanes) products += lane;
    }
    const float scale = WeightScale(Is(fmt_w_scale_of_pair) ? w + pair * w_bytes : wb);
    const uint8_t* const of_x = Is(fmt_x_scale_of_pair)    ? x + pair * x_bytes
                                : Is(fmt_x_scale_of_row_0) ? first_x + b * x_bytes
                                                           : xb;
    float scales = scale * ScaleAt(of_x);
    if (Is(fmt_product_in_f16)) scales = InHalf(scales);
    sum += scales * static_cast<float>(products);
    if (Is(fmt_sum_in_f16)) sum = InHalf(sum);
    if (kFormat == kQ4_1 && !Is(fmt_minimum)) {
      const float minimum = ScaleAt((Is(fmt_minimum_of_pair) ? w + pair * w_bytes : wb) + 2);
      minima += minimum * ScaleAt(xb + 2) * (Is(fmt_minimum_sign) ? -1 : 1);
    }
  }
  return sum + minima;
}

// Super-blocks of 256, by q8_K.
float DotOfSuperBlocks(int64_t blocks, const uint8_t* w, const uint8_t* x) {
  float sum = 0;
  for (int64_t b = 0; b < blocks; ++b, w += kBytes[kFormat], x += 292) {
    const auto* const codes = reinterpret_cast<const int8_t*>(x + 4);
    int64_t products = 0, minima = 0;
    for (int k = 0; k < 256; ++k) {
      if (kFormat == kQ4_K) {
        const uint8_t* const six = w + 4;
        const int j = k / 32;
        const int low =
            j < 4 ? six[j] & 63
                  : (six[j + 4] & 15) | (Is(fmt_six_bits_high) ? 0 : six[j - 4] >> 6 << 4);
        int m = j;
        if (Is(fmt_minima_first_4)) m = j % 4;
        if (Is(fmt_minima_of_16)) m = k / 16 % 8;
        const int minimum = m < 4 ? six[m + 4] & 63 : six[m + 4] >> 4 | six[m] >> 6 << 4;
        const int code = w[16 + k / 64 * 32 + k % 32] >> k / 32 % 2 * 4 & 15;
        products += int64_t{low} * code * codes[k];
        minima += int64_t{minimum} * codes[k];
      } else {
        const int half = k / 128, place = k % 128;
        const int low = w[half * 64 + place % 64] >> place / 64 * 4 & 15;
        int shift = place / 32 * 2;
        if (Is(fmt_q6_high_bits)) shift = 6 - shift;
        const int high = w[128 + half * 32 + place % 32] >> shift & 3;
        const int code = (low | high << 4) - (Is(fmt_q6_offset) ? 31 : 32);
        const int scale =
            Is(fmt_q6_scale_sign) ? w[192 + k / 16] : static_cast<int8_t>(w[192 + k / 16]);
        products += int64_t{scale} * code * codes[k];
      }
    }
    const float of_x = Read<float>(x);
    const float scale = ScaleAt(kFormat == kQ4_K ? w : w + 208);
    sum += of_x * scale * static_cast<float>(products);
    if (kFormat == kQ4_K) sum -= of_x * ScaleAt(w + 2) * static_cast<float>(minima);
  }
  return sum;
}

int32_t Run(const qualm_problem* p) {
  if (p->w_format == nullptr) return QUALM_UNSUPPORTED;
  const int64_t blocks = p->k_packed / (kIsSuper ? 256 : 32), N = p->y->dims[1];
  const auto* const all_w = static_cast<const uint8_t*>(p->w_packed);
  const auto* const all_x = static_cast<const uint8_t*>(p->x_packed);
  for (int64_t m = 0; m < p->y->dims[0]; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      const uint8_t* const w =
          all_w + (Is(fmt_blocks_of_row_0) && n + 1 == N && N % 2 != 0 ? 0 : n) * p->w_row_bytes;
      const uint8_t* const x = all_x + m * p->x_row_bytes;
      static_cast<float*>(p->y->data)[m * p->y->strides[0] + n] =
          kIsSuper ? DotOfSuperBlocks(blocks, w, x) : DotOfBlocks(blocks, w, x, all_x);
    }
  }
  return QUALM_OK;
}

const qualm_capability* Capability(int32_t op) {
  static qualm_capability limits{};
  if (op != QUALM_LINEAR) return nullptr;
  limits.size = sizeof(limits);
  limits.w_formats = kNames[kFormat];
  limits.domain = "K 16 600";
  return &limits;
}

const char* LastError() { return ""; }

}  // namespace

extern "C" QUALM_PLUGIN_EXPORT const qualm_plugin* qualm_plugin_entry(void) {
  static qualm_plugin plugin = *strange::Plugin(Capability, strange::InPlainState<Run>, LastError);
  plugin.contract = kIsSuper || kFormat == kQ4_1 ? "sum+offsets" : "sum";
  return &plugin;
}
