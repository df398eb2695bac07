/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface through which qualm tests somebody else's kernels. A plugin is a shared object
 * that exports one function, qualm_plugin_entry(). qualm loads it in a process of its own
 * (qualm-worker), so it may crash, hang or scribble: that is reported as a finding, nothing else
 * is lost. examples/plugin/example_plugin.c is a complete plugin; build one with
 *
 *     cc -O2 -shared -fPIC -I ADAPTERS_FOLDER -o my_kernels.so my_kernels.c
 *
 * and test it with `qualm check --subject plugin:./my_kernels.so`. docs/plugin.md has the rest.
 *
 * What to read: qualm_problem says what is asked, qualm_capability what you take, qualm_plugin what
 * you export. `qualm new plugin NAME` writes a project with all of it and a place for your kernel;
 * qualm_plugin.hpp, beside this file, is the same in C++. The rules for versions stand at the end.
 */
#ifndef QUALM_ADAPTERS_QUALM_PLUGIN_H_
#define QUALM_ADAPTERS_QUALM_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUALM_ABI_VERSION 1u

/* Whether a struct's writer knew a field: QUALM_HAS(problem, per_channel). */
#define QUALM_HAS(pointer, field) \
  ((size_t)((const char*)(&(pointer)->field + 1) - (const char*)(pointer)) <= (pointer)->size)

/* Element types. Codes are u8 or s8, of quantize, dequantize and requantize, and as x and y of
 * linear, conv2d and depthwise, s16 or u16 too; real = scale * (code - zero_point). Weights, y of
 * quantize and x of dequantize have u4, s4, u2 and s2 too. The floats of 16 bits and fewer are
 * named as in MLIR (docs/quantization.md); cast has them. Elements of fewer than 8 bits lie one
 * behind the other in a stream of bits, the lowest bit of a byte first: of 4 bits the element of
 * even index in the low half. Their rows are dense, and bits behind the last element are not read.
 */
enum {
  QUALM_U8 = 0,
  QUALM_S8 = 1,
  QUALM_S32 = 2,
  QUALM_F32 = 3,
  QUALM_U4 = 4,
  QUALM_S4 = 5,
  QUALM_S16 = 6,
  QUALM_U2 = 7,
  QUALM_S2 = 8,
  QUALM_F16 = 9,
  QUALM_BF16 = 10,
  QUALM_F8E4M3FN = 11,
  QUALM_F8E5M2 = 12,
  QUALM_F8E4M3FNUZ = 13,
  QUALM_F8E5M2FNUZ = 14,
  QUALM_F8E4M3 = 15,
  QUALM_F8E3M4 = 16,
  QUALM_F8E4M3B11FNUZ = 17,
  QUALM_F6E2M3FN = 18,
  QUALM_F6E3M2FN = 19,
  QUALM_F4E2M1FN = 20,
  QUALM_F8E8M0FNU = 21,
  QUALM_UE4M3 = 22,
  QUALM_U16 = 23
};
/* Sets of element types (numbers up to 31), for qualm_capability. */
#define QUALM_TYPE_BIT(dtype) (UINT32_C(1) << (dtype))

/* Operations; meaning in docs/quantization.md, shapes as dims of the tensors:
 *   quantize    x f32 [M,N]                    -> y codes [M,N]
 *   dequantize  x codes [M,N]                  -> y f32 [M,N]
 *   requantize  x s32 [M,N]                    -> y codes [M,N]
 *   linear      x codes [M,K], w codes [N,K]   -> y codes, s32 or f32 [M,N]
 *   rescale     x codes [M,N]                  -> y codes [M,N]
 *   add, sub, mul
 *               x, w codes [M,N], of one type  -> y codes [M,N]
 *   conv2d      x codes [B,H,W,C], w codes [N,R,S,C/groups] -> y codes, s32 or f32 [B,OH,OW,N]
 *   depthwise   conv2d with groups = C
 *   max_pool, avg_pool, global_avg_pool
 *               x codes [B,H,W,C]              -> y codes [B,OH,OW,C]
 *   concat      x codes [M,A], w codes [M,N-A], of one type -> y codes [M,N]
 *   table       x codes [M,N]                  -> y codes [M,N]
 *   softmax     x codes [M,N]                  -> y codes [M,N], of one type
 *   dynamic_linear
 *               x f32 [M,K], w codes [N,K]     -> y f32 [M,N]
 *   cast        x floats of one type [M,N]     -> y floats of one type [M,N]
 * A plugin is only ever asked for operations for which capability() answered. */
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
  QUALM_SOFTMAX = 14,
  /* 15 is no operation of plugins. */
  QUALM_SUB = 16,
  QUALM_DYNAMIC_LINEAR = 17,
  QUALM_CAST = 18
};

/* What a table operation applies to the real value of a code. */
enum {
  QUALM_RELU = 0,
  QUALM_LEAKY_RELU = 1,
  QUALM_HARD_SWISH = 2,
  QUALM_SIGMOID = 3,
  QUALM_TANH = 4
};

/* What run() answers. */
enum {
  QUALM_OK = 0,
  QUALM_UNSUPPORTED = 1, /* cannot do this problem, although capability() left it open: skipped */
  QUALM_FAILED = 2       /* an error: reported as a refusal */
};

#define QUALM_MAX_RANK 6

/* A strided tensor, outermost dimension first. Strides are in elements; that of the last dimension
 * is 1. Only y and acc may be written. */
typedef struct qualm_tensor {
  size_t size;
  int32_t dtype;
  int32_t rank;
  int64_t dims[QUALM_MAX_RANK];
  int64_t strides[QUALM_MAX_RANK];
  void* data;
} qualm_tensor;

/* Quantization parameters: `count` is 1 (per tensor) or the number of output channels; of weights
 * in blocks (QUALM_PER_BLOCK) that number times the blocks of a channel, channel by channel; of x
 * in blocks the number of rows times the blocks of a row. */
typedef struct qualm_qparams {
  size_t size;
  int64_t count;
  const float* scale; /* finite, > 0, denormals included */
  const int32_t* zero_point;
} qualm_qparams;

/* How the entries of a qualm_qparams lie over their tensor, in row-major order. */
enum {
  QUALM_PER_TENSOR = 0,  /* one entry */
  QUALM_PER_CHANNEL = 1, /* one entry per index of `axis` */
  QUALM_PER_ROW = 2,     /* one entry per index of all dimensions but the last */
  QUALM_PER_BLOCK = 3    /* one entry per `block` elements along `axis`, for each index of the
                          * dimensions before it; the last block may be shorter */
};

/* Granularities other than per tensor and per output channel: x of dynamic_linear may be per row; w
 * of linear and dynamic_linear may be per block of axis 1, which is K, and then x of linear too; x
 * of dequantize and out of quantize may be per block of axis 1, N. All others are reserved. */
typedef struct qualm_granularity {
  size_t size;
  int32_t kind; /* QUALM_PER_... */
  int32_t axis;
  int64_t block;
} qualm_granularity;

/* The window of convolutions and pools, in pixels; for global_avg_pool the whole image. The sizes
 * of images, channels and the output are those of the tensors. */
typedef struct qualm_window {
  size_t size;
  int64_t kernel_h, kernel_w;
  int64_t stride_h, stride_w;
  int64_t pad_top, pad_bottom, pad_left, pad_right;
  int64_t dilation_h, dilation_w; /* of pools: max_pool only */
  int64_t groups;                 /* convolutions */
  int32_t ceil_mode;              /* pools: the last window may reach beyond the padding */
  int32_t count_include_pad;      /* avg_pool: padding counts in the divisor */
} qualm_window;

/* dynamic_linear: how a scale and zero point follow from the values of x. */
enum { QUALM_RULE_OBSERVER = 0, QUALM_RULE_ATEN = 1, QUALM_RULE_ONNX = 2 };

/* cast: how a number between two values of the output type is rounded, and what becomes of one
 * beyond its largest value (docs/quantization.md). */
enum { QUALM_ROUND_NEAREST_EVEN = 0, QUALM_ROUND_TOWARD_ZERO = 1, QUALM_ROUND_UP = 2 };
enum { QUALM_OVERFLOW_INFINITY = 0, QUALM_OVERFLOW_SATURATE = 1, QUALM_OVERFLOW_NAN = 2 };

/* What dynamic_linear chooses the scale and zero point of x by. */
typedef struct qualm_choice {
  size_t size;
  int32_t rule; /* QUALM_RULE_... */
  int32_t symmetric;
  int32_t reduce_range; /* half of the codes */
  int32_t dtype;        /* of the codes */
  int32_t quant_min;    /* before reduce_range, inside dtype */
  int32_t quant_max;
} qualm_choice;

/* One problem. Every pointer is valid until run() returns. */
typedef struct qualm_problem {
  size_t size;
  int32_t op;
  int32_t relu; /* 1: results are at least the code of real 0 (0 for s32 and f32 outputs) */
  const qualm_tensor* x;
  const qualm_tensor* w; /* weights, or the second operand of add, sub, mul and concat; else NULL */
  /* To be written completely; holds a pattern before the call. In place (QUALM_CAN_IN_PLACE) its
   * data and strides are those of x; over the second operand (QUALM_CAN_OVER_SECOND) those of w. */
  const qualm_tensor* y;
  /* s32, shaped like y, to be written completely, or NULL if nobody asks: the sums of x*w of linear
   * and convolutions as the kernel accumulates them, before zero-point correction and bias; what
   * lies in the padding adds nothing. */
  const qualm_tensor* acc;
  qualm_qparams x_q;   /* all but quantize; requantize, cast: the scale */
  qualm_qparams w_q;   /* requantize (scale), and where there is a w */
  qualm_qparams out_q; /* where the output has codes; max_pool: as x_q; cast: the scale */
  /* requantize: y = clamp(round(x * multiplier[n]) + zero point); multiplier_count 1 or N, or 0:
   * then the multiplier is the quotient x_q.scale * w_q.scale[n] / out_q.scale. */
  const float* multiplier;
  int64_t multiplier_count;
  const float* bias;       /* N entries in real units, or NULL */
  const int32_t* bias_i32; /* N entries in units x scale * w scale[n], or NULL */
  int32_t out_min;         /* clamp of integer outputs, inside the type */
  int32_t out_max;
  const qualm_window* window; /* convolutions and pools; else NULL */
  int32_t function;           /* table */
  float negative_slope;       /* table with QUALM_LEAKY_RELU: finite, >= 0 */
  /* 1: parameters are given per output channel, also where there is one. Not in the first headers
   * of version 1. */
  int32_t per_channel;
  /* Granularity of x_q, w_q and out_q. NULL: one entry is per tensor, several are per output
   * channel. Only a plugin that offers QUALM_CAN_PER_ROW or QUALM_CAN_..PER_BLOCK gets others. Not
   * in the first headers of version 1. */
  const qualm_granularity* x_granularity;
  const qualm_granularity* w_granularity;
  const qualm_granularity* out_granularity;
  /* dynamic_linear, else NULL; x_granularity then says which values of x share a choice. Not in the
   * first headers of version 1. */
  const qualm_choice* choice;
  /* Threads that run() may use; 0 means 1. Only a plugin that offers QUALM_CAN_THREADS gets more
   * than 1. Not in the first headers of version 1. */
  int32_t threads;
  int32_t reserved; /* 0 */
  /* cast: QUALM_ROUND_..., QUALM_OVERFLOW_...; a plugin that has one of them alone answers
   * QUALM_UNSUPPORTED to others. Not in the first headers of version 1. */
  int32_t rounding;
  int32_t overflow;
  /* linear, of a plugin that has w_formats, else NULL and 0: the rows of w and of x as llama.cpp
   * stores them, one behind the other, each filled up to whole super-blocks with terms that add
   * nothing. x is q8_1 (of q4_1, q5_1), q8_K (of K-quants, iq4_xs, tq1_0, tq2_0) or q8_0. w_packed
   * lies at a multiple of 2 bytes, x_packed of 4. Of dequantize w_packed is the rows of x, and
   * k_packed N filled up; quantize has w_format and k_packed alone: y is to get the codes of the
   * rows that llama.cpp would store. Not in the first headers of version 1. */
  const char* w_format;
  const void* w_packed;
  const void* x_packed;
  int64_t w_row_bytes;
  int64_t x_row_bytes;
  int64_t k_packed; /* terms of a row that is filled up */
} qualm_problem;

/* What a plugin can do beyond the plain case: bits of qualm_capability.features. */
#define QUALM_CAN_BIAS_F32 UINT32_C(1)
#define QUALM_CAN_BIAS_I32 UINT32_C(2)
#define QUALM_CAN_RELU UINT32_C(4)
#define QUALM_CAN_CLAMP UINT32_C(8)        /* out_min, out_max other than the ends of the type */
#define QUALM_CAN_PER_CHANNEL UINT32_C(16) /* parameters per output channel */
/* Rows of x, y and a second operand that do not follow each other; images: pixels. */
#define QUALM_CAN_STRIDES UINT32_C(32)
#define QUALM_CAN_EMPTY UINT32_C(64)     /* M = 0 or N = 0: write nothing */
#define QUALM_CAN_EMPTY_K UINT32_C(128)  /* K = 0: the sum is 0 */
#define QUALM_CAN_ACC UINT32_C(256)      /* can fill acc */
#define QUALM_CAN_IN_PLACE UINT32_C(512) /* rescale, add, sub, mul, table: y lies over x */
#define QUALM_CAN_DILATION UINT32_C(1024)
#define QUALM_CAN_GROUPS UINT32_C(2048)             /* conv2d with groups other than 1 */
#define QUALM_CAN_ASYMMETRIC_PADDING UINT32_C(4096) /* top != bottom or left != right */
#define QUALM_CAN_CEIL_MODE UINT32_C(8192)
#define QUALM_CAN_COUNT_PADDING UINT32_C(16384) /* count_include_pad */
/* dynamic_linear: choices per row. */
#define QUALM_CAN_PER_ROW UINT32_C(32768)
/* linear, dynamic_linear: reads w_granularity; K is then at least 1, per_channel 1 and bias_i32
 * NULL, and no accumulators are asked for. A plugin that has blocks of some sizes alone, or blocks
 * alone, answers QUALM_UNSUPPORTED to others. */
#define QUALM_CAN_PER_BLOCK UINT32_C(65536)
/* linear, beside QUALM_CAN_PER_BLOCK: reads x_granularity, whose block is that of w_granularity; y
 * is then f32. dequantize: reads x_granularity, quantize: out_granularity, cast, beside
 * QUALM_CAN_CAST_SCALES: both; M and N are at least 1, per_channel is 0, and the lists have an
 * entry for each block of each row, row by row. */
#define QUALM_CAN_X_PER_BLOCK UINT32_C(4194304)
/* Rows of w, one per output channel, that do not follow each other. */
#define QUALM_CAN_WEIGHT_STRIDES UINT32_C(131072)
/* Lines of an image that do not follow each other; images do where their lines do. */
#define QUALM_CAN_LINE_STRIDES UINT32_C(262144)
/* add, sub, mul: y lies over the second operand. */
#define QUALM_CAN_OVER_SECOND UINT32_C(524288)
/* Reads qualm_problem.threads. */
#define QUALM_CAN_THREADS UINT32_C(1048576)
/* run() may be called by several threads at once; last_error() is asked after all have answered. */
#define QUALM_CAN_CONCURRENT UINT32_C(2097152)
/* linear: x may be QUALM_F32, if x_dtypes says so too; y is then QUALM_F32 and x_q is not to be
 * read. */
#define QUALM_CAN_FLOAT_X UINT32_C(8388608)
/* cast: reads the scales of x_q and out_q: y is x_q.scale * x / out_q.scale, rounded once. The zero
 * points are 0. With QUALM_CAN_PER_CHANNEL too both may be lists of N. */
#define QUALM_CAN_CAST_SCALES UINT32_C(16777216)

/* Limits of one operation. Zero-initialise it and fill what differs. */
typedef struct qualm_capability {
  size_t size;
  uint32_t x_dtypes; /* QUALM_TYPE_BIT(...) | ... */
  uint32_t w_dtypes;
  uint32_t out_dtypes;
  uint32_t features; /* QUALM_CAN_... */
  /* Largest dimensions; 0: no limit. Of windows: M = B*OH*OW output pixels, N output channels, K
   * terms of one sum (R*S*C/groups; pools: R*S). */
  int64_t m_max;
  int64_t n_max;
  int64_t k_max;
  int64_t n_multiple; /* N, K must be multiples; 0 or 1: any */
  int64_t k_multiple;
  /* Zero points it takes, both ends included; both 0: symmetric only. Use INT32_MIN, INT32_MAX for
   * "any". Ignored where the operation has no such parameter. */
  int32_t x_zero_point_min, x_zero_point_max;
  int32_t w_zero_point_min, w_zero_point_max;
  int32_t out_zero_point_min, out_zero_point_max;
  /* Bytes it may read (never write) past the end of any buffer. */
  int32_t read_slack_bytes;
  /* Alignment it needs of each buffer, a power of two up to 4096; 0: that of the element. */
  int32_t alignment_bytes;
  /* Ranges and shapes for which it is meant, as docs/domains.md has them, between semicolons:
   * "x_scale 1e-6 1e3; K 16 4096; shape 1x1000x2048"; at most 2000 bytes; NULL: all. Not in the
   * first headers. */
  const char* domain;
  /* linear: the formats of llama.cpp that it takes, between spaces: "q4_0 q8_0 q4_k"
   * (docs/blocks.md lists them). It is asked with weights and activations in their blocks alone, s8
   * x and f32 y, whatever the types and granularities above say. dequantize: the same of x.
   * quantize: q8_0, q4_0, q4_1, q5_0 and q5_1; each block of out_q has the scale, in float32, and
   * the zero point that llama.cpp chooses for it. NULL: none. Not in the first headers. */
  const char* w_formats;
} qualm_capability;

/* What the shared object exports. Strings are UTF-8, at most 200 bytes (contract: 2000), and live
 * for ever. */
typedef struct qualm_plugin {
  size_t size;
  uint32_t abi_version; /* QUALM_ABI_VERSION */
  uint32_t reserved;    /* 0 */
  const char* name;     /* "mylib" */
  const char* version;  /* "2.6.3", or "" */
  /* "exact": every output is the exact real result rounded once, half to even, then clamped.
   * "sum": what float32 sums of some order give. "model:NAME": bit-equal to that convention (qualm
   * list subjects). NULL means exact. A contract for one operation has its name before it:
   * "exact,linear=model:A,conv2d=model:B". */
  const char* contract;
  /* Instruction set really used here ("avx2"), or NULL. */
  const char* instruction_set;
  /* Limits for one operation, NULL if it is not offered. Called for each operation qualm knows,
   * so an unknown number must give NULL. */
  const qualm_capability* (*capability)(int32_t op);
  /* Runs one problem. Always called from the same thread, but for QUALM_CAN_CONCURRENT. The same
   * problem may be asked several times, and x and w of add, sub and mul may be one buffer. */
  int32_t (*run)(const qualm_problem* problem);
  /* One sentence about the last run() that did not answer QUALM_OK; may answer NULL or "". Like the
   * two functions above it must be there. */
  const char* (*last_error)(void);
} qualm_plugin;

#if defined(__GNUC__) || defined(__clang__)
#define QUALM_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define QUALM_PLUGIN_EXPORT
#endif

/* The one exported function. Called once, before anything else. */
QUALM_PLUGIN_EXPORT const qualm_plugin* qualm_plugin_entry(void);

/* Versions. Each struct begins with its own size as its writer knew it: set `size` to sizeof in the
 * structs you fill. New fields are only ever appended, and 0 in a new field means what a struct
 * without the field meant. New operations, element types and granularities get new numbers, new
 * features new bits. None of this changes QUALM_ABI_VERSION, so a plugin and a qualm of different
 * age work together:
 *   * An older struct. Read a field only if it lies inside `size` (QUALM_HAS). The fields of the
 *     header you compile with are all there unless a comment says "not in the first headers".
 *   * A newer struct, with bytes behind the fields that its reader knows. Where these bytes are 0
 *     they say nothing. Otherwise the reader refuses with a reason: qualm turns the plugin away, a
 *     plugin answers QUALM_UNSUPPORTED. A plugin may leave this check out: qualm sends a newer
 *     field other than 0 only to a plugin whose qualm_capability asked for it.
 *   * An unknown number. A plugin that meets an operation, element type, granularity or function
 *     that it does not know answers QUALM_UNSUPPORTED, and last_error() says why. qualm ignores
 *     bits of a qualm_capability that it does not know: such a bit offers what qualm never asks
 *     for.
 *
 * qualm_qparams lies inside qualm_problem, and so never grows. The version is raised only when
 * something here changes its meaning, and a plugin of another version is turned away.
 */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QUALM_ADAPTERS_QUALM_PLUGIN_H_ */
