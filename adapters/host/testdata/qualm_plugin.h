/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters/qualm_plugin.h as it once was, without the comments: qualm_problem ended at
 * negative_slope, and some numbers were missing. plugin_test runs the example built with this
 * header. Never edit it: plugins of that time are never built again. */
#ifndef QUALM_ADAPTERS_QUALM_PLUGIN_H_
#define QUALM_ADAPTERS_QUALM_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUALM_ABI_VERSION 1u

enum { QUALM_U8 = 0, QUALM_S8 = 1, QUALM_S32 = 2, QUALM_F32 = 3 };

#define QUALM_TYPE_BIT(dtype) (UINT32_C(1) << (dtype))

enum {
  QUALM_QUANTIZE = 0,
  QUALM_DEQUANTIZE = 1,
  QUALM_REQUANTIZE = 2,
  QUALM_LINEAR = 3,
  QUALM_CONV2D = 4,
  QUALM_DEPTHWISE = 5,
  QUALM_ADD = 6,
  QUALM_MUL = 7,
  QUALM_MAX_POOL = 8,
  QUALM_AVG_POOL = 9,
  QUALM_GLOBAL_AVG_POOL = 10,
  QUALM_RESCALE = 11,
  QUALM_CONCAT = 12,
  QUALM_TABLE = 13,
  QUALM_SOFTMAX = 14
};

enum {
  QUALM_RELU = 0,
  QUALM_LEAKY_RELU = 1,
  QUALM_HARD_SWISH = 2,
  QUALM_SIGMOID = 3,
  QUALM_TANH = 4
};

enum { QUALM_OK = 0, QUALM_UNSUPPORTED = 1, QUALM_FAILED = 2 };

#define QUALM_MAX_RANK 6

typedef struct qualm_tensor {
  size_t size;
  int32_t dtype;
  int32_t rank;
  int64_t dims[QUALM_MAX_RANK];
  int64_t strides[QUALM_MAX_RANK];
  void* data;
} qualm_tensor;

typedef struct qualm_qparams {
  size_t size;
  int64_t count;
  const float* scale;
  const int32_t* zero_point;
} qualm_qparams;

typedef struct qualm_window {
  size_t size;
  int64_t kernel_h, kernel_w;
  int64_t stride_h, stride_w;
  int64_t pad_top, pad_bottom, pad_left, pad_right;
  int64_t dilation_h, dilation_w;
  int64_t groups;
  int32_t ceil_mode;
  int32_t count_include_pad;
} qualm_window;

typedef struct qualm_problem {
  size_t size;
  int32_t op;
  int32_t relu;
  const qualm_tensor* x;
  const qualm_tensor* w;
  const qualm_tensor* y;
  const qualm_tensor* acc;
  qualm_qparams x_q;
  qualm_qparams w_q;
  qualm_qparams out_q;
  const float* multiplier;
  int64_t multiplier_count;
  const float* bias;
  const int32_t* bias_i32;
  int32_t out_min;
  int32_t out_max;
  const qualm_window* window;
  int32_t function;
  float negative_slope;
} qualm_problem;

#define QUALM_CAN_BIAS_F32 UINT32_C(1)
#define QUALM_CAN_BIAS_I32 UINT32_C(2)
#define QUALM_CAN_RELU UINT32_C(4)
#define QUALM_CAN_CLAMP UINT32_C(8)
#define QUALM_CAN_PER_CHANNEL UINT32_C(16)

#define QUALM_CAN_STRIDES UINT32_C(32)
#define QUALM_CAN_EMPTY UINT32_C(64)
#define QUALM_CAN_EMPTY_K UINT32_C(128)
#define QUALM_CAN_ACC UINT32_C(256)
#define QUALM_CAN_IN_PLACE UINT32_C(512)
#define QUALM_CAN_DILATION UINT32_C(1024)
#define QUALM_CAN_GROUPS UINT32_C(2048)
#define QUALM_CAN_ASYMMETRIC_PADDING UINT32_C(4096)
#define QUALM_CAN_CEIL_MODE UINT32_C(8192)
#define QUALM_CAN_COUNT_PADDING UINT32_C(16384)

typedef struct qualm_capability {
  size_t size;
  uint32_t x_dtypes;
  uint32_t w_dtypes;
  uint32_t out_dtypes;
  uint32_t features;
  int64_t m_max;
  int64_t n_max;
  int64_t k_max;
  int64_t n_multiple;
  int64_t k_multiple;
  int32_t x_zero_point_min, x_zero_point_max;
  int32_t w_zero_point_min, w_zero_point_max;
  int32_t out_zero_point_min, out_zero_point_max;
  int32_t read_slack_bytes;
  int32_t alignment_bytes;
} qualm_capability;

typedef struct qualm_plugin {
  size_t size;
  uint32_t abi_version;
  uint32_t reserved;
  const char* name;
  const char* version;
  const char* contract;
  const char* instruction_set;
  const qualm_capability* (*capability)(int32_t op);
  int32_t (*run)(const qualm_problem* problem);
  const char* (*last_error)(void);
} qualm_plugin;

#if defined(__GNUC__) || defined(__clang__)
#define QUALM_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define QUALM_PLUGIN_EXPORT
#endif

QUALM_PLUGIN_EXPORT const qualm_plugin* qualm_plugin_entry(void);

#ifdef __cplusplus
}
#endif

#endif
