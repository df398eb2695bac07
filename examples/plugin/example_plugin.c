/* SPDX-License-Identifier: Apache-2.0
 *
 * A complete plugin in plain C: linear with u8 or s8 activations, s8 weights, raw int32 results;
 * and max_pool, to show images and windows.
 *
 *     cc -O2 -shared -fPIC -I adapters -o example_plugin.so examples/plugin/example_plugin.c
 *     qualm check --op linear --subject plugin:./example_plugin.so
 *
 * Sums are kept in 64 bits and clamped once, so that its contract is "exact".
 */
#include "qualm_plugin.h"

static int32_t clamp_to_s32(int64_t value) {
  if (value < INT32_MIN) return INT32_MIN;
  if (value > INT32_MAX) return INT32_MAX;
  return (int32_t)value;
}

static int32_t code_at(const qualm_tensor* t, int64_t row, int64_t column) {
  const int64_t at = row * t->strides[0] + column;
  return t->dtype == QUALM_U8 ? ((const uint8_t*)t->data)[at] : ((const int8_t*)t->data)[at];
}

static int32_t linear(const qualm_problem* p) {
  const int64_t depth = p->x->dims[1];
  for (int64_t m = 0; m < p->y->dims[0]; ++m) {
    for (int64_t n = 0; n < p->y->dims[1]; ++n) {
      const int32_t x_zero_point = p->x_q.zero_point[0];
      const int32_t w_zero_point = p->w_q.zero_point[p->w_q.count == 1 ? 0 : n];
      int64_t sum = p->bias_i32 != NULL ? p->bias_i32[n] : 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += (int64_t)(code_at(p->x, m, k) - x_zero_point) * (code_at(p->w, n, k) - w_zero_point);
      }
      if (p->relu && sum < 0) sum = 0;
      ((int32_t*)p->y->data)[m * p->y->strides[0] + n] = clamp_to_s32(sum);
    }
  }
  return QUALM_OK;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/* Largest code under the window at (y, x), the padding left out. */
static int32_t largest(const qualm_problem* p, int64_t image, int64_t y, int64_t x, int64_t c) {
  const qualm_window* v = p->window;
  const qualm_tensor* in = p->x;
  int32_t result = INT32_MIN;
  for (int64_t r = 0; r < v->kernel_h; ++r) {
    for (int64_t s = 0; s < v->kernel_w; ++s) {
      const int64_t iy = y * v->stride_h - v->pad_top + r * v->dilation_h;
      const int64_t ix = x * v->stride_w - v->pad_left + s * v->dilation_w;
      if (iy < 0 || iy >= in->dims[1] || ix < 0 || ix >= in->dims[2]) continue;
      const int64_t at = image * in->strides[0] + iy * in->strides[1] + ix * in->strides[2] + c;
      const int32_t code =
          in->dtype == QUALM_U8 ? ((const uint8_t*)in->data)[at] : ((const int8_t*)in->data)[at];
      result = larger(result, code);
    }
  }
  return result;
}

static int32_t max_pool(const qualm_problem* p) {
  const qualm_tensor* out = p->y;
  const int32_t floor =
      p->relu ? larger(p->out_min, p->out_q.zero_point[0]) : p->out_min; /* code of real 0 */
  for (int64_t image = 0; image < out->dims[0]; ++image) {
    for (int64_t y = 0; y < out->dims[1]; ++y) {
      for (int64_t x = 0; x < out->dims[2]; ++x) {
        for (int64_t c = 0; c < out->dims[3]; ++c) {
          const int32_t code = smaller(larger(largest(p, image, y, x, c), floor), p->out_max);
          const int64_t at =
              image * out->strides[0] + y * out->strides[1] + x * out->strides[2] + c;
          ((uint8_t*)out->data)[at] = (uint8_t)code; /* the low byte, of either type */
        }
      }
    }
  }
  return QUALM_OK;
}

static int32_t run(const qualm_problem* p) {
  return p->op == QUALM_LINEAR ? linear(p) : max_pool(p);
}

static const qualm_capability linear_limits = {
    .size = sizeof(qualm_capability),
    .x_dtypes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8),
    .w_dtypes = QUALM_TYPE_BIT(QUALM_S8),
    .out_dtypes = QUALM_TYPE_BIT(QUALM_S32),
    .features = QUALM_CAN_BIAS_I32 | QUALM_CAN_RELU | QUALM_CAN_PER_CHANNEL | QUALM_CAN_STRIDES |
                QUALM_CAN_EMPTY | QUALM_CAN_EMPTY_K,
    .x_zero_point_min = -65536, /* 64 bits hold every sum with these */
    .x_zero_point_max = 65536,
    .w_zero_point_min = -65536,
    .w_zero_point_max = 65536};

static const qualm_capability max_pool_limits = {
    .size = sizeof(qualm_capability),
    .x_dtypes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8),
    .out_dtypes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8),
    .features = QUALM_CAN_RELU | QUALM_CAN_CLAMP | QUALM_CAN_STRIDES | QUALM_CAN_EMPTY |
                QUALM_CAN_DILATION | QUALM_CAN_ASYMMETRIC_PADDING, /* but no ceil mode */
    .x_zero_point_min = INT32_MIN,
    .x_zero_point_max = INT32_MAX,
    .out_zero_point_min = INT32_MIN,
    .out_zero_point_max = INT32_MAX};

static const qualm_capability* capability(int32_t op) {
  switch (op) {
    case QUALM_LINEAR: return &linear_limits;
    case QUALM_MAX_POOL: return &max_pool_limits;
    default: return NULL;
  }
}

static const char* last_error(void) { return ""; }

static const qualm_plugin plugin = {.size = sizeof(qualm_plugin),
                                    .abi_version = QUALM_ABI_VERSION,
                                    .name = "example",
                                    .version = "1",
                                    .contract = "exact",
                                    .capability = capability,
                                    .run = run,
                                    .last_error = last_error};

const qualm_plugin* qualm_plugin_entry(void) { return &plugin; }
