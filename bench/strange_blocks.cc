// SPDX-License-Identifier: Apache-2.0
// Faults of kernels for weights in blocks that keep two numbers for each, as K-quants do: the scale
// of the codes, and scale times zero point (bench/strange_blocks.tsv). bench/strangers builds one
// plugin for each: FAULT is its name; `none` is right.
#include <cstdint>

#include "bench/strange_plugin.h"
#include "bench/strange_state.h"

namespace {

enum Fault {
  none,
  kq_scale_behind,
  kq_scale_of_pair,
  kq_minimum_before,
  kq_minimum_of_first,
  kq_minima_rotated,
  kq_minimum_dropped,
};
constexpr bool Is(Fault fault) { return fault == FAULT; }

int32_t Code(const qualm_tensor& t, int64_t at) {
  const auto* bytes = static_cast<const uint8_t*>(t.data);
  switch (t.dtype) {
    case QUALM_U8: return bytes[at];
    case QUALM_S8: return static_cast<int8_t>(bytes[at]);
    case QUALM_U4: return bytes[at / 2] >> at % 2 * 4 & 15;
    default: return bytes[at / 4] >> at % 4 * 2 & 3;
  }
}

int32_t Run(const qualm_problem* p) {
  if (p->w_granularity == nullptr || p->w_granularity->kind != QUALM_PER_BLOCK)
    return QUALM_UNSUPPORTED;
  const int64_t size = p->w_granularity->block, K = p->x->dims[1], N = p->y->dims[1];
  if (size != 16 && size != 32) return QUALM_UNSUPPORTED;
  const int64_t blocks = (K + size - 1) / size, together = 256 / size;
  const bool x_blocks = p->x_granularity != nullptr && p->x_granularity->kind == QUALM_PER_BLOCK;
  for (int64_t m = 0; m < p->y->dims[0]; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      float sum = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t first = b / together * together;
        const int64_t here = blocks - first < together ? blocks - first : together;
        int64_t of_codes = b, of_minimum = b;
        if (Is(kq_scale_behind) && b + 1 < first + here) of_codes = b + 1;
        if (Is(kq_scale_of_pair) && (b ^ 1) < first + here) of_codes = b ^ 1;
        if (Is(kq_minimum_before) && b > first) of_minimum = b - 1;
        if (Is(kq_minimum_of_first)) of_minimum = first;
        if (Is(kq_minima_rotated)) of_minimum = first + (b - first + 1) % here;
        const int64_t x_entry = x_blocks ? m * blocks + b : 0;
        int32_t products = 0, codes = 0;
        for (int64_t k = b * size; k < K && k < (b + 1) * size; ++k) {
          const int32_t x = Code(*p->x, m * p->x->strides[0] + k) - p->x_q.zero_point[x_entry];
          products += x * Code(*p->w, n * K + k);
          codes += x;
        }
        const float* scale = p->w_q.scale + n * blocks;
        const float minimum =
            scale[of_minimum] * static_cast<float>(p->w_q.zero_point[n * blocks + of_minimum]);
        float block = scale[of_codes] * static_cast<float>(products);
        if (!Is(kq_minimum_dropped)) block -= minimum * static_cast<float>(codes);
        sum += p->x_q.scale[x_entry] * block;
      }
      static_cast<float*>(p->y->data)[m * p->y->strides[0] + n] = sum;
    }
  }
  return QUALM_OK;
}

const qualm_capability* Capability(int32_t op) {
  static qualm_capability limits{};
  if (op != QUALM_LINEAR) return nullptr;
  limits.size = sizeof(limits);
  limits.x_dtypes = QUALM_TYPE_BIT(QUALM_S8);
  limits.w_dtypes = QUALM_TYPE_BIT(QUALM_U4) | QUALM_TYPE_BIT(QUALM_U2) | QUALM_TYPE_BIT(QUALM_S8);
  limits.out_dtypes = QUALM_TYPE_BIT(QUALM_F32);
  limits.features = QUALM_CAN_PER_CHANNEL | QUALM_CAN_PER_BLOCK | QUALM_CAN_X_PER_BLOCK;
  limits.w_zero_point_max = 15;
  limits.domain = "K 16 600";
  return &limits;
}

const char* LastError() { return ""; }

}  // namespace

extern "C" QUALM_PLUGIN_EXPORT const qualm_plugin* qualm_plugin_entry(void) {
  static qualm_plugin plugin = *strange::Plugin(Capability, strange::InPlainState<Run>, LastError);
  plugin.contract = "sum+offsets";
  return &plugin;
}
