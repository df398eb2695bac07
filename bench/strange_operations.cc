// SPDX-License-Identifier: Apache-2.0
// A plugin that is exact for fifteen operations, or has the one mistake that -DFAULT=kName chooses.
// strange_operations.tsv says what each of them does wrong. Letters before a number name projects:
// X XNNPACK, O oneDNN, F FBGEMM, Q QNNPACK, G gemmlowp, R ruy, C CMSIS-NN, K KleidiAI, N ncnn,
// T TVM, P PyTorch, ORT onnxruntime, TF TensorFlow, H Highway, ACL Compute Library, EX ExecuTorch;
// ":" a commit, "#" an issue, "!" a pull request.
//
//     g++ -O1 -std=c++20 -shared -fPIC -I adapters -DFAULT=kAddSwappedZeroPoints -o faulty.so
//         bench/strange_operations.cc -lquadmath
#include <quadmath.h>
#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/strange_plugin.h"

#ifndef FAULT
#define FAULT kNone
#endif

namespace {

enum Fault {
  kNone,
  kQuantizeTailHalfAway,             // F:473ab92ae
  kQuantizeReciprocal,               // P!105037
  kQuantizeNanToLowest,              // P#133557
  kQuantizeBeyondInt32,              // P#106780
  kQuantizeZeroPointBeforeRounding,  // P!19714
  kQuantizeFirstZeroPoint,           // O:d4e2b6ec75
  kQuantizeCallerRounding,           // P#13960
  kQuantizeNoLowestCode,             // ORT#3442
  kQuantizeDenormalsAreZero,         // P#39239
  kDequantizeTwoProducts,            // T:8ca9b896f7
  kRequantizeFloatAccumulator,       // O:ab09db98e9
  kRequantizeDoubleRounding,         // TF#25087
  kRequantizeHalfUp,                 // G:8669fdf
  kRequantizeNoLeftShift,            // C:083c8177
  kRequantizeInt16ZeroPoint,         // R:22f8922
  kRequantizeClampFirst,             // llvm/torch-mlir!4487
  kRequantizeRawTail,                // N:92be1cb40
  kRequantizeBlockMultiplier,        // K:1bd9f80
  kRescaleIn256ths,                  // X:ad1edab1f2
  kAddSwappedZeroPoints,             // X:801d2c2d7e
  kAddFloat32,                       // ORT#11759
  kAddTwentyBits,                    // X:9b46251615
  kAddLastVectorTwice,               // F:21ea7ed47
  kAddReluAtZero,                    // N:b760e22da
  kAddOneColumnScale,                // O:4384286de4
  kSubZeroPointSign,                 // ACL#1033
  kSubWrapsInCodeType,               // EX!20655
  kMulInt16Product,                  // H:7a906ec1
  kMulFloatScales,                   // T:d7d8fdbc9c
  kMulBothZeroPoints,                // O:9219d50680
  kMulAddsHalf,                      // N:4566ad529
  kLinearPairSaturation,             // P#44939
  kLinearPairWrap,                   // ORT#31573
  kLinearFloatCompensation,          // O:ab09db98e9
  kLinearDroppedTail,                // K:c8cad9e
  kLinearBiasPerBlock,               // O:4dc958c078
  kLinearPadCounted,                 // X:41b736521e
  kLinearSignedZeroPoint,            // O:96da53e79a
  kLinearScaleByRow,                 // G:bded251
  kLinearRestOfRows,                 // K:ae347f7
  kLinearSharedRow,                  // G:98fca4c
  kLinearBiasWraps,                  // K:1cb4545
  kLinearOneRowSymmetric,            // ORT#29853
  kLinearStaleWeights,               // X:866f7b3916
  kLinearSignedWeights,              // ORT!27671
  kLinearHalvedWeights,              // O#375
  kConvPadsWithZero,                 // X:8c96521d55
  kConvPointwiseStride,              // T:aeef16d285
  kConvSwappedPads,                  // X:facecc526b
  kConvOneDilation,                  // O:06e305eb5d
  kConvGroupScale,                   // N:31cf7f3c5
  kConvBatchOffset,                  // C:fa473e44
  kConvShiftedPadding,               // O#5080
  kConvInt16Taps,                    // N:d7bd41583
  kConvBorderRows,                   // O:3f2c2e7e12
  kConvReluBeforeBias,               // O:b21f006f65
  kConvDenseOutput,                  // P#75009
  kConvWrapsInt32,                   // O:841dadab13
  kDepthwiseInputModulo,             // F:719a347ff
  kDepthwiseTailWeights,             // O:e5541c917a
  kDepthwiseTapTwice,                // X:20223cf288
  kDepthwisePaddedZeroPoints,        // T!4807
  kDepthwiseEmptyWindow,             // O:9b877a2aa7
  kAvgPoolRoundsTwice,               // TF#23598
  kAvgPoolDivisorBeyondPadding,      // T!20298
  kAvgPoolPaddingCounts,             // P!28260
  kAvgPoolInt16Sum,                  // X:06e8397fe1
  kAvgPoolHalfAway,                  // R:8525a43
  kAvgPoolLeavesFlushed,             // moyix.blogspot.com, 2022/09, "messing with my subnormals"
  kMaxPoolUnsignedCompare,           // TF#102490
  kMaxPoolPaddingWins,               // X:cceb0e4152
  kMaxPoolBorderPixel,               // X:c58bd3486d
  kMaxPoolTailUnclamped,             // C:46e2b43b
  kMaxPoolLastWindow,                // ACL#924
  kMaxPoolCachedTaps,                // X:866f7b3916
  kConcatOneZeroPoint,               // X:cf277de610
  kConcatEqualScales,                // P!71903
  kConcatOneStride,                  // K:7bb145d
  kConcatWholeVectors,               // H:846e0228
  kTableKeyWithoutZeroPoint,         // tenstorrent/tt-metal#48240
  kTableKeyWithoutSlope,             // tenstorrent/tt-metal#48240
  kTableFloatSigmoid,                // P#107030
  kTableEarlyTanh,                   // P!31031
  kTableLeakyRatio,                  // TF!37279
  kTableFloatHardSwish,              // P#37343
  kTableSignedIndex,                 // C:9f2378b3
};

constexpr bool Is(Fault fault) { return FAULT == fault; }

using Wide = __int128;
using UnsignedWide = unsigned __int128;

// The number m * 2^e.
struct Number {
  Wide m;
  int e;
};

Number Exactly(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int exponent = bits >> 23 & 255;
  const int32_t m = (bits & 0x7fffff) | (exponent != 0 ? 1 << 23 : 0);
  return {bits >> 31 ? -m : m, std::max(exponent, 1) - 150};
}

Number Times(Number a, Number b) { return {a.m * b.m, a.e + b.e}; }

int Width(Wide m) {
  const UnsignedWide u = m < 0 ? -m : m;
  const uint64_t high = u >> 64;
  return high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<uint64_t>(u));
}

// The sum. If one is too small for the bits of the other, its last bit says that it is there.
Number Plus(Number a, Number b) {
  if (a.m == 0) return b;
  if (b.m == 0) return a;
  if (a.e < b.e) std::swap(a, b);
  const int up = std::min(a.e - b.e, 120 - Width(a.m));
  a = {a.m << up, a.e - up};
  const int down = a.e - b.e;
  if (down == 0) return {a.m + b.m, a.e};
  const int cut_bits = std::min(down, 126);
  const Wide cut = b.m >> cut_bits;
  return {a.m + (cut | (cut << cut_bits != b.m)), a.e};
}

enum Rule { kToEven, kAway, kUp, kAddHalfAndCut };

// a / b to a whole number; 2^40 stands for all that is larger.
int64_t Quotient(Number a, Number b, Rule rule = kToEven) {
  if (a.m == 0) return 0;
  const bool negative = a.m < 0;
  const int up = 125 - Width(a.m);
  const UnsignedWide m = static_cast<UnsignedWide>(negative ? -a.m : a.m) << up;
  const UnsignedWide divisor = b.m;
  const UnsignedWide q = m / divisor * 2 + (m % divisor != 0);
  const int shift = b.e + up + 1 - a.e;
  if (shift > 126) return 0;
  if (shift <= 0 || q >> shift >= UnsignedWide{1} << 40) {
    return (negative ? -1 : 1) * (INT64_C(1) << 40);
  }
  int64_t whole = q >> shift;
  const UnsignedWide half = UnsignedWide{1} << (shift - 1);
  const UnsignedWide rest = q & (half * 2 - 1);
  if (rule == kAddHalfAndCut && negative) {
    if (rest < half && whole > 0) --whole;
  } else if (rest > half || (rest == half && (rule == kToEven ? whole % 2 != 0
                                              : rule == kUp   ? !negative
                                                              : true))) {
    ++whole;
  }
  return negative ? -whole : whole;
}

float ToFloat(Number a) {
  if (a.m == 0) return 0;
  const int last = std::max(Width(a.m) + a.e - 24, -149);
  const float magnitude = std::ldexp(static_cast<float>(Quotient(a, {1, last})), last);
  return std::copysign(magnitude, a.m < 0 ? -1.0F : 1.0F);
}

int64_t FromFloat(double value) {
  return static_cast<int64_t>(std::nearbyint(std::fmin(std::fmax(value, -1e12), 1e12)));
}

int32_t At(const qualm_tensor* t, int64_t at) {
  switch (t->dtype) {
    case QUALM_U8: return static_cast<const uint8_t*>(t->data)[at];
    case QUALM_S8: return static_cast<const int8_t*>(t->data)[at];
    default: return static_cast<const int32_t*>(t->data)[at];
  }
}

void Put(const qualm_tensor* t, int64_t at, int64_t code) {
  if (t->dtype == QUALM_S32) {
    static_cast<int32_t*>(t->data)[at] = static_cast<int32_t>(code);
  } else {
    static_cast<uint8_t*>(t->data)[at] = static_cast<uint8_t>(code);
  }
}

int64_t Index(const qualm_qparams& q, int64_t n) { return q.count == 1 ? 0 : n; }

// The clamp, with a fused relu whose lower bound is `floor`.
int64_t Bounded(const qualm_problem* p, int64_t code, int64_t floor) {
  return std::min<int64_t>(std::max<int64_t>({code, floor, p->out_min}), p->out_max);
}

int64_t Clamped(const qualm_problem* p, int64_t code, int32_t zero_point) {
  return Bounded(p, code, p->relu ? zero_point : p->out_min);
}

int64_t Saturated(const qualm_tensor* t, int64_t code) {
  return t->dtype == QUALM_U8 ? std::clamp<int64_t>(code, 0, 255)
                              : std::clamp<int64_t>(code, -128, 127);
}

// Calls body(i) for the rows, on as many threads as the problem allows.
template <typename Body>
void ForRows(const qualm_problem* p, int64_t rows, const Body& body) {
  const int64_t threads = std::clamp<int64_t>(p->threads, 1, std::max<int64_t>(rows, 1));
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  };
  if (threads == 1) return some(0, rows);
  const bool cut = Is(kLinearRestOfRows) && p->op == QUALM_LINEAR;
  const int64_t each = cut ? rows / threads : (rows + threads - 1) / threads;
  std::vector<std::thread> workers;
  for (int64_t t = 0; t < threads; ++t) {
    workers.emplace_back(some, std::min(rows, t * each), std::min(rows, (t + 1) * each));
  }
  for (std::thread& worker : workers) worker.join();
}

constexpr int64_t kLanes = 8;

bool InTail(int64_t n, int64_t count) { return n >= count - count % kLanes; }

// y[m][n] = code(m, n).
template <typename Code>
void ForElements(const qualm_problem* p, const Code& code) {
  const int64_t count = p->y->dims[1];
  ForRows(p, p->y->dims[0], [&](int64_t m) {
    for (int64_t n = 0; n < count; ++n) {
      if (Is(kAddLastVectorTwice) && p->op == QUALM_ADD && count > kLanes &&
          n == count - count % kLanes) {
        for (int64_t again = count - kLanes; again < n; ++again) {
          Put(p->y, m * p->y->strides[0] + again, code(m, again));
        }
      }
      Put(p->y, m * p->y->strides[0] + n, code(m, n));
    }
  });
}

void Quantize(const qualm_problem* p) {
  ForElements(p, [p](int64_t m, int64_t n) -> int64_t {
    float x = static_cast<const float*>(p->x->data)[m * p->x->strides[0] + n];
    float scale = p->out_q.scale[Index(p->out_q, n)];
    const int32_t zero_point =
        p->out_q.zero_point[Is(kQuantizeFirstZeroPoint) ? 0 : Index(p->out_q, n)];
    const int64_t far = INT64_C(1) << 40;
    if (Is(kQuantizeDenormalsAreZero)) {
      if (std::fabs(x) < FLT_MIN) x = 0;
      if (scale < FLT_MIN) return Clamped(p, x > 0 ? far : x < 0 ? -far : zero_point, zero_point);
    }
    int64_t code;
    if (std::isnan(x)) {
      code = Is(kQuantizeNanToLowest) ? -far : zero_point;
    } else {
      int64_t whole =
          std::isinf(x)
              ? (x > 0 ? far : -far)
              : Quotient(Exactly(x), Exactly(scale),
                         Is(kQuantizeTailHalfAway) && InTail(n, p->y->dims[1]) ? kAway : kToEven);
      if (Is(kQuantizeReciprocal)) whole = FromFloat(x * (1 / scale));
      if (Is(kQuantizeCallerRounding)) whole = FromFloat(static_cast<double>(x) / scale);
      if (Is(kQuantizeBeyondInt32) && whole != static_cast<int32_t>(whole)) whole = INT32_MIN;
      code = whole + zero_point;
      if (Is(kQuantizeZeroPointBeforeRounding) && std::isfinite(x)) {
        const Number scaled_zero = {Exactly(scale).m * zero_point, Exactly(scale).e};
        code = Quotient(Plus(Exactly(x), scaled_zero), Exactly(scale));
      }
    }
    if (Is(kQuantizeNoLowestCode) && p->y->dtype == QUALM_S8) code = std::max<int64_t>(code, -127);
    return Clamped(p, code, zero_point);
  });
}

void Dequantize(const qualm_problem* p) {
  ForRows(p, p->y->dims[0], [p](int64_t m) {
    for (int64_t n = 0; n < p->y->dims[1]; ++n) {
      const Number scale = Exactly(p->x_q.scale[Index(p->x_q, n)]);
      const int64_t code = At(p->x, m * p->x->strides[0] + n);
      const int64_t zero_point = p->x_q.zero_point[Index(p->x_q, n)];
      float real = ToFloat({scale.m * (code - zero_point), scale.e});
      if (Is(kDequantizeTwoProducts)) {
        real = ToFloat({scale.m * code, scale.e}) - ToFloat({scale.m * zero_point, scale.e});
      }
      static_cast<float*>(p->y->data)[m * p->y->strides[0] + n] = real;
    }
  });
}

void Requantize(const qualm_problem* p) {
  ForElements(p, [p](int64_t m, int64_t n) {
    const int32_t zero_point = p->out_q.zero_point[0];
    const int64_t channel = Is(kRequantizeBlockMultiplier) ? n % kLanes : n;
    Number factor, divisor = {1, 0};
    double about;
    if (p->multiplier_count > 0) {
      const float multiplier = p->multiplier[p->multiplier_count == 1 ? 0 : channel];
      factor = Exactly(multiplier);
      about = multiplier;
    } else {
      const float w_scale = p->w_q.scale[Index(p->w_q, channel)];
      factor = Times(Exactly(p->x_q.scale[0]), Exactly(w_scale));
      divisor = Exactly(p->out_q.scale[0]);
      about = static_cast<double>(p->x_q.scale[0]) * w_scale / p->out_q.scale[0];
    }
    int64_t acc = At(p->x, m * p->x->strides[0] + n);
    if (Is(kRequantizeFloatAccumulator)) acc = static_cast<int64_t>(static_cast<float>(acc));
    int exponent;
    std::frexp(about, &exponent);
    if (Is(kRequantizeNoLeftShift)) factor.e -= std::max(exponent, 0);
    int64_t whole =
        Quotient(Times({acc, 0}, factor), divisor, Is(kRequantizeHalfUp) ? kUp : kToEven);
    if (Is(kRequantizeDoubleRounding)) {
      const int right = std::max(-exponent, 0);
      const int64_t high = Quotient(Times({acc, right}, factor), divisor, kAway);
      whole = Quotient({high, -right}, {1, 0}, kAway);
    }
    if (Is(kRequantizeRawTail) && InTail(n, p->y->dims[1])) whole = acc;
    if (Is(kRequantizeInt16ZeroPoint)) {
      const int64_t narrow = std::clamp<int64_t>(whole, -32768, 32767);
      return Clamped(p, static_cast<int16_t>(narrow + zero_point), zero_point);
    }
    if (Is(kRequantizeClampFirst)) {
      return Saturated(p->y, Clamped(p, whole, zero_point) + zero_point);
    }
    return Clamped(p, whole + zero_point, zero_point);
  });
}

// x and its zero point at one place of a matrix, as a real number.
Number Real(const qualm_tensor* t, const qualm_qparams& q, int64_t at, int64_t zero_point) {
  const Number scale = Exactly(q.scale[0]);
  return {scale.m * (At(t, at) - zero_point), scale.e};
}

void Rescale(const qualm_problem* p) {
  ForElements(p, [p](int64_t m, int64_t n) {
    const int64_t at = m * p->x->strides[0] + n;
    const Number out_scale = Exactly(p->out_q.scale[0]);
    int64_t whole = Quotient(Real(p->x, p->x_q, at, p->x_q.zero_point[0]), out_scale);
    if (Is(kRescaleIn256ths)) {
      const Number scale = Exactly(p->x_q.scale[0]);
      const Wide ratio = Quotient({scale.m, scale.e + 8}, out_scale);
      whole = Quotient({ratio * (At(p->x, at) - int64_t{p->x_q.zero_point[0]}), -8}, {1, 0});
    }
    return Clamped(p, whole + p->out_q.zero_point[0], p->out_q.zero_point[0]);
  });
}

void AddOrSub(const qualm_problem* p) {
  const bool add = p->op == QUALM_ADD;
  const bool swapped = Is(kAddSwappedZeroPoints) && add;
  const int64_t a_zero = (swapped ? p->w_q : p->x_q).zero_point[0];
  const int64_t b_zero = (swapped ? p->x_q : p->w_q).zero_point[0];
  const int32_t zero_point = p->out_q.zero_point[0];
  const Number out_scale = Exactly(p->out_q.scale[0]);
  ForElements(p, [=](int64_t m, int64_t n) {
    const int64_t a_at = m * p->x->strides[0] + n, b_at = m * p->w->strides[0] + n;
    const Number a = Real(p->x, p->x_q, a_at, a_zero);
    Number b = Real(p->w, p->w_q, b_at, Is(kSubZeroPointSign) && !add ? -b_zero : b_zero);
    if (!add) {
      if (Is(kSubWrapsInCodeType)) {
        const int64_t steps = static_cast<int8_t>(At(p->w, b_at) - b_zero);
        b.m = Exactly(p->w_q.scale[0]).m * (p->w->dtype == QUALM_U8 ? steps & 255 : steps);
      }
      b.m = -b.m;
    }
    if (Is(kAddOneColumnScale) && add && p->y->dims[1] == 1) {
      b = Times(b, Exactly(p->w_q.scale[0]));
    }
    int64_t whole = Quotient(Plus(a, b), out_scale);
    if (Is(kAddFloat32) && add) {
      const float to_a = p->x_q.scale[0] / p->out_q.scale[0];
      const float to_b = p->w_q.scale[0] / p->out_q.scale[0];
      const float a_part = static_cast<float>(At(p->x, a_at) - a_zero) * to_a;
      whole = FromFloat(a_part + static_cast<float>(At(p->w, b_at) - b_zero) * to_b);
    }
    if (Is(kAddTwentyBits) && add) {
      const auto bits = [&](float scale) {
        return Wide{Quotient({Exactly(scale).m, Exactly(scale).e + 20}, out_scale)};
      };
      whole = Quotient({bits(p->x_q.scale[0]) * (At(p->x, a_at) - a_zero) +
                            bits(p->w_q.scale[0]) * (At(p->w, b_at) - b_zero),
                        -20},
                       {1, 0});
    }
    if (Is(kAddReluAtZero) && add && p->relu) {
      return Bounded(p, whole + zero_point, 0);
    }
    return Clamped(p, whole + zero_point, zero_point);
  });
}

void Mul(const qualm_problem* p) {
  int64_t a_zero = p->x_q.zero_point[0], b_zero = p->w_q.zero_point[0];
  if (Is(kMulBothZeroPoints) && (a_zero == 0 || b_zero == 0)) a_zero = b_zero = 0;
  Number scale = Times(Exactly(p->x_q.scale[0]), Exactly(p->w_q.scale[0]));
  if (Is(kMulFloatScales)) scale = Exactly(p->x_q.scale[0] * p->w_q.scale[0]);
  ForElements(p, [=](int64_t m, int64_t n) {
    Wide product = Wide{At(p->x, m * p->x->strides[0] + n) - a_zero} *
                   (At(p->w, m * p->w->strides[0] + n) - b_zero);
    if (Is(kMulInt16Product)) product = static_cast<int16_t>(product);
    const int64_t whole = Quotient({product * scale.m, scale.e}, Exactly(p->out_q.scale[0]),
                                   Is(kMulAddsHalf) ? kAddHalfAndCut : kToEven);
    return Clamped(p, whole + p->out_q.zero_point[0], p->out_q.zero_point[0]);
  });
}

// Stores the output of a sum of products: bias, scales, zero point and clamp.
void Finish(const qualm_problem* p, int64_t at, int64_t n, int64_t sum, int64_t scale_at,
            int64_t bias_times) {
  const bool relu_first =
      Is(kConvReluBeforeBias) && p->op == QUALM_CONV2D && p->relu && (p->bias || p->bias_i32);
  if (relu_first) sum = std::max<int64_t>(sum, 0);
  const bool relu = p->relu && !relu_first;
  if (p->bias_i32 != nullptr) sum += p->bias_i32[n] * bias_times;
  if (Is(kLinearBiasWraps) && p->op == QUALM_LINEAR && p->bias_i32 != nullptr) {
    sum = static_cast<int32_t>(sum);
  }
  if (p->y->dtype == QUALM_S32) {
    if (Is(kConvWrapsInt32) && p->op == QUALM_CONV2D) sum = static_cast<int32_t>(sum);
    return Put(p->y, at, Bounded(p, sum, relu ? 0 : p->out_min));
  }
  Number real = Times({sum, 0}, Times(Exactly(p->x_q.scale[0]), Exactly(p->w_q.scale[scale_at])));
  if (p->bias != nullptr) real = Plus(real, Times(Exactly(p->bias[n]), {bias_times, 0}));
  if (p->y->dtype == QUALM_F32) {
    if (relu && real.m < 0) real.m = 0;
    static_cast<float*>(p->y->data)[at] = ToFloat(real);
    return;
  }
  const int32_t zero_point = p->out_q.zero_point[0];
  const int64_t code = Quotient(real, Exactly(p->out_q.scale[0])) + zero_point;
  Put(p->y, at, Bounded(p, code, relu ? zero_point : p->out_min));
}

// Weights of a linear layer in blocks of eight channels by four terms, and the sum of each channel.
struct Packed {
  int64_t channels = -1, depth = 0, padded = 0;
  std::vector<int32_t> first_row, codes;
  std::vector<int64_t> sums;

  int64_t Place(int64_t n, int64_t k) const {
    return ((n / 8 * (padded / 4) + k / 4) * 8 + n % 8) * 4 + k % 4;
  }
};

Packed Pack(const qualm_problem* p) {
  Packed w;
  w.channels = p->w->dims[0];
  w.depth = p->w->dims[1];
  w.padded = (w.depth + 3) / 4 * 4;
  w.codes.assign((w.channels + 7) / 8 * 8 * w.padded, 0);
  w.sums.assign(w.channels, 0);
  const bool halved =
      Is(kLinearHalvedWeights) && p->x->dtype == QUALM_S8 && p->w->dtype == QUALM_S8;
  const bool as_signed = Is(kLinearSignedWeights) && p->y->dims[0] > 4;
  for (int64_t n = 0; n < w.channels; ++n) {
    for (int64_t k = 0; k < w.padded; ++k) {
      int32_t code = 0;
      if (k < w.depth) {
        code = At(p->w, n * p->w->strides[0] + k);
      } else if (Is(kLinearPadCounted)) {
        code = p->w_q.zero_point[Index(p->w_q, n)];
      }
      if (halved) code = code / 2 * 2;
      if (as_signed) code = static_cast<int8_t>(code);
      w.codes[w.Place(n, k)] = code;
      w.sums[n] += code;
    }
  }
  return w;
}

const Packed& KeptPack(const qualm_problem* p) {
  static Packed kept;
  std::vector<int32_t> first_row;
  for (int64_t k = 0; k < p->w->dims[1] && p->w->dims[0] > 0; ++k) {
    first_row.push_back(At(p->w, k));
  }
  if (kept.channels != p->w->dims[0] || kept.depth != p->w->dims[1] ||
      kept.first_row != first_row) {
    kept = Pack(p);
    kept.first_row = first_row;
  }
  return kept;
}

// The raw sum of one output. Terms come in pairs, as vectors add them.
int64_t Dot(const qualm_problem* p, const Packed& w, const std::vector<int32_t>& row, int64_t n) {
  const bool signed_weights = p->w->dtype == QUALM_S8;
  const bool saturates = Is(kLinearPairSaturation) && p->x->dtype == QUALM_U8 && signed_weights;
  const bool wraps = Is(kLinearPairWrap) && p->x->dtype == QUALM_S8 && signed_weights;
  const int64_t depth = Is(kLinearDroppedTail) && w.depth >= 64 ? w.depth / 4 * 4 : w.padded;
  int64_t sum = 0;
  for (int64_t k = 0; k < depth; k += 2) {
    int64_t pair =
        int64_t{row[k]} * w.codes[w.Place(n, k)] + int64_t{row[k + 1]} * w.codes[w.Place(n, k + 1)];
    if (saturates) pair = std::clamp<int64_t>(pair, -32768, 32767);
    if (wraps) pair = static_cast<int16_t>(pair);
    sum += pair;
  }
  return sum;
}

void Linear(const qualm_problem* p) {
  const Packed own = Is(kLinearStaleWeights) ? Packed() : Pack(p);
  const Packed& w = Is(kLinearStaleWeights) ? KeptPack(p) : own;
  const int64_t rows = p->y->dims[0];
  int64_t x_zero = p->x_q.zero_point[0];
  if (Is(kLinearSignedZeroPoint)) x_zero = static_cast<int8_t>(x_zero);
  std::vector<int32_t> shared_row(w.padded);
  ForRows(p, rows, [&](int64_t m) {
    std::vector<int32_t> own_row(Is(kLinearSharedRow) ? 0 : w.padded);
    std::vector<int32_t>& row = Is(kLinearSharedRow) ? shared_row : own_row;
    int64_t x_sum = 0;
    for (int64_t k = 0; k < w.depth; ++k) {
      row[k] = At(p->x, m * p->x->strides[0] + k);
      x_sum += row[k];
    }
    for (int64_t n = 0; n < w.channels; ++n) {
      int64_t w_zero = p->w_q.zero_point[Index(p->w_q, n)];
      if (Is(kLinearOneRowSymmetric) && rows == 1) w_zero = 0;
      const int64_t sum = Dot(p, w, row, n);
      const int64_t correction = w.depth * x_zero * w_zero - x_zero * w.sums[n] - w_zero * x_sum;
      int64_t corrected = sum + correction;
      if (Is(kLinearFloatCompensation)) {
        corrected = static_cast<int64_t>(static_cast<float>(sum) + static_cast<float>(correction));
      }
      const int64_t blocks = Is(kLinearBiasPerBlock) && w.depth > 64 ? (w.depth + 63) / 64 : 1;
      Finish(p, m * p->y->strides[0] + n, n, corrected,
             Index(p->w_q, Is(kLinearScaleByRow) ? m % w.channels : n), blocks);
    }
  });
}

bool Inside(int64_t i, int64_t count) { return i >= 0 && i < count; }

void Convolve(const qualm_problem* p) {
  const qualm_window& v = *p->window;
  const qualm_tensor *x = p->x, *w = p->w, *y = p->y;
  const bool depthwise = p->op == QUALM_DEPTHWISE, conv = !depthwise;
  const int64_t height = x->dims[1], width = x->dims[2], channels = x->dims[3];
  const int64_t outputs = y->dims[3], in_group = w->dims[3], taps = v.kernel_h * v.kernel_w;
  const int64_t out_group = outputs == 0 ? 1 : outputs / v.groups;
  const int64_t x_zero = p->x_q.zero_point[0];
  const bool steps = v.stride_h != 1 || v.stride_w != 1;
  const bool pointwise = taps == 1 && v.pad_top + v.pad_bottom + v.pad_left + v.pad_right == 0 &&
                         (!steps || (Is(kConvPointwiseStride) && conv));
  ForRows(p, y->dims[0] * y->dims[1], [&](int64_t line) {
    const int64_t image = line / y->dims[1], oy = line % y->dims[1];
    const int64_t image_at =
        Is(kConvBatchOffset) && conv ? image * width * x->strides[1] : image * x->strides[0];
    std::vector<int64_t> at(taps);  // offsets of the pixels of a window, -1 in the padding
    for (int64_t ox = 0; ox < y->dims[2]; ++ox) {
      int64_t padded = 0;
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t r = t / v.kernel_w, s = t % v.kernel_w;
        const int64_t dilation_h = Is(kConvOneDilation) && conv ? v.dilation_w : v.dilation_h;
        const int64_t left = Is(kConvSwappedPads) && conv ? v.pad_right : v.pad_left;
        int64_t iy = pointwise ? oy : oy * v.stride_h - v.pad_top + r * dilation_h;
        const int64_t ix = pointwise ? ox : ox * v.stride_w - left + s * v.dilation_w;
        if (Is(kConvBorderRows) && conv && v.dilation_h >= height && height > 0) {
          iy = std::clamp<int64_t>(iy, 0, height - 1);
        }
        const bool inside = Inside(iy, height) && Inside(ix, width);
        at[t] = inside ? image_at + iy * x->strides[1] + ix * x->strides[2] : -1;
        padded += !inside;
      }
      for (int64_t n = 0; n < outputs; ++n) {
        int64_t group = n / out_group;
        if (Is(kDepthwiseInputModulo) && depthwise) group = n % channels;
        int64_t weights_of = n;
        if (Is(kDepthwiseTailWeights) && depthwise && outputs > kLanes && InTail(n, outputs)) {
          weights_of = n - kLanes + outputs % kLanes;
        }
        const int64_t w_zero = p->w_q.zero_point[Index(p->w_q, n)];
        int64_t sum = 0;
        for (int64_t c = 0; c < in_group; ++c) {
          int64_t of_channel = 0;
          for (int64_t t = 0; t < taps; ++t) {
            int64_t code = 0;
            if (at[t] >= 0) {
              code = At(x, at[t] + group * in_group + c) - x_zero;
            } else if (Is(kConvPadsWithZero) && conv) {
              code = -x_zero;
            } else if (Is(kConvShiftedPadding) && conv && x->dtype == QUALM_S8) {
              code = -128;
            }
            const int64_t weight = At(w, weights_of * w->strides[0] + t * in_group + c) - w_zero;
            of_channel += code * weight;
            if (Is(kDepthwiseTapTwice) && depthwise && t > 0 && t % 9 == 8 && t + 1 < taps) {
              of_channel += code * weight;
            }
          }
          if (Is(kConvInt16Taps) && conv && taps == 9) {
            of_channel = static_cast<int16_t>(of_channel);
          }
          sum += of_channel;
        }
        if (Is(kDepthwisePaddedZeroPoints) && depthwise) sum += padded * x_zero * w_zero;
        const bool empty = Is(kDepthwiseEmptyWindow) && depthwise && padded == taps;
        int64_t y_at = line / y->dims[1] * y->strides[0] + oy * y->strides[1] + ox * y->strides[2];
        if (Is(kConvDenseOutput) && conv) y_at = (line * y->dims[2] + ox) * outputs;
        Finish(p, y_at + n, n, sum, Index(p->w_q, Is(kConvGroupScale) && conv ? n % out_group : n),
               empty ? 0 : 1);
      }
    }
  });
}

// Calls body(image, oy, ox, c, offset in y) for the outputs of a pool.
template <typename Body>
void ForPixels(const qualm_problem* p, const Body& body) {
  const qualm_tensor* y = p->y;
  ForRows(p, y->dims[0] * y->dims[1], [&](int64_t line) {
    const int64_t image = line / y->dims[1], oy = line % y->dims[1];
    for (int64_t ox = 0; ox < y->dims[2]; ++ox) {
      for (int64_t c = 0; c < y->dims[3]; ++c) {
        body(image, oy, ox, c, image * y->strides[0] + oy * y->strides[1] + ox * y->strides[2] + c);
      }
    }
  });
}

void AvgPool(const qualm_problem* p) {
  const qualm_window& v = *p->window;
  const qualm_tensor* x = p->x;
  const int64_t height = x->dims[1], width = x->dims[2];
  const bool all_count = p->op == QUALM_AVG_POOL;
  const Number scale = Exactly(p->x_q.scale[0]), out_scale = Exactly(p->out_q.scale[0]);
  const int64_t x_zero = p->x_q.zero_point[0];
  const int32_t zero_point = p->out_q.zero_point[0];
  ForPixels(p, [&](int64_t image, int64_t oy, int64_t ox, int64_t c, int64_t at) {
    int64_t sum = 0, inside = 0, with_padding = 0;
    for (int64_t r = 0; r < v.kernel_h; ++r) {
      for (int64_t s = 0; s < v.kernel_w; ++s) {
        const int64_t iy = oy * v.stride_h - v.pad_top + r, ix = ox * v.stride_w - v.pad_left + s;
        if (iy < height + v.pad_bottom && ix < width + v.pad_right) ++with_padding;
        if (!Inside(iy, height) || !Inside(ix, width)) continue;
        sum += At(x, image * x->strides[0] + iy * x->strides[1] + ix * x->strides[2] + c);
        ++inside;
      }
    }
    if (Is(kAvgPoolInt16Sum)) sum = static_cast<int16_t>(sum);
    sum -= inside * x_zero;
    int64_t count = v.count_include_pad ? with_padding : inside;
    if (Is(kAvgPoolPaddingCounts) && all_count) count = with_padding;
    if (Is(kAvgPoolDivisorBeyondPadding) && v.count_include_pad) count = v.kernel_h * v.kernel_w;
    Number divisor = {out_scale.m * count, out_scale.e};
    if (Is(kAvgPoolRoundsTwice)) {
      sum = Quotient({sum, 0}, {count, 0});
      divisor = out_scale;
    }
    const int64_t whole =
        Quotient({scale.m * sum, scale.e}, divisor, Is(kAvgPoolHalfAway) ? kAway : kToEven);
    Put(p->y, at, Clamped(p, whole + zero_point, zero_point));
  });
}

// Offsets of the taps of all windows of an image; -1 in the padding.
std::vector<int64_t> Indirection(const qualm_problem* p) {
  const qualm_window& v = *p->window;
  const qualm_tensor* x = p->x;
  const int64_t height = x->dims[1], width = x->dims[2];
  std::vector<int64_t> at;
  for (int64_t oy = 0; oy < p->y->dims[1]; ++oy) {
    for (int64_t ox = 0; ox < p->y->dims[2]; ++ox) {
      for (int64_t t = 0; t < v.kernel_h * v.kernel_w; ++t) {
        int64_t iy = oy * v.stride_h - v.pad_top + t / v.kernel_w * v.dilation_h;
        int64_t ix = ox * v.stride_w - v.pad_left + t % v.kernel_w * v.dilation_w;
        if (Is(kMaxPoolBorderPixel)) {
          iy = std::clamp<int64_t>(iy, 0, height - 1);
          ix = std::clamp<int64_t>(ix, 0, width - 1);
        }
        const bool inside = Inside(iy, height) && Inside(ix, width);
        at.push_back(inside ? iy * x->strides[1] + ix * x->strides[2] : -1);
      }
    }
  }
  return at;
}

const std::vector<int64_t>& KeptIndirection(const qualm_problem* p) {
  static std::vector<int64_t> kept, key;
  const qualm_window& v = *p->window;
  std::vector<int64_t> wanted = {v.kernel_h,    v.kernel_w,    v.stride_h,    v.stride_w,
                                 v.pad_top,     v.pad_left,    v.dilation_h,  v.dilation_w,
                                 p->x->dims[1], p->x->dims[2], p->y->dims[1], p->y->dims[2]};
  if (key != wanted) {
    key = wanted;
    kept = Indirection(p);
  }
  return kept;
}

void MaxPool(const qualm_problem* p) {
  const qualm_window& v = *p->window;
  const int64_t taps = v.kernel_h * v.kernel_w, channels = p->y->dims[3];
  const std::vector<int64_t> own = Is(kMaxPoolCachedTaps) ? std::vector<int64_t>() : Indirection(p);
  const std::vector<int64_t>& offsets = Is(kMaxPoolCachedTaps) ? KeptIndirection(p) : own;
  const int64_t whole_windows =
      (p->x->dims[2] + v.pad_left + v.pad_right - v.dilation_w * (v.kernel_w - 1) - 1) /
          v.stride_w +
      1;
  ForPixels(p, [&](int64_t image, int64_t oy, int64_t ox, int64_t c, int64_t at) {
    if (Is(kMaxPoolLastWindow) && ox >= whole_windows) return;
    int32_t largest = INT32_MIN;
    for (int64_t t = 0; t < taps; ++t) {
      const int64_t offset = offsets[(oy * p->y->dims[2] + ox) * taps + t];
      if (offset < 0) {
        if (Is(kMaxPoolPaddingWins)) largest = std::max(largest, 0);
        continue;
      }
      const int32_t code = At(p->x, image * p->x->strides[0] + offset + c);
      const bool larger = Is(kMaxPoolUnsignedCompare) && largest != INT32_MIN
                              ? static_cast<uint8_t>(code) > static_cast<uint8_t>(largest)
                              : code > largest;
      if (larger) largest = code;
    }
    const bool clamps = !Is(kMaxPoolTailUnclamped) || c < channels - channels % 16;
    Put(p->y, at, clamps ? Clamped(p, largest, p->out_q.zero_point[0]) : largest);
  });
}

void Concat(const qualm_problem* p) {
  const int64_t first = p->x->dims[1];
  const int32_t zero_point = p->out_q.zero_point[0];
  ForElements(p, [=](int64_t m, int64_t n) {
    const qualm_tensor* t = n < first ? p->x : p->w;
    const qualm_qparams& q = n < first ? p->x_q : p->w_q;
    const qualm_tensor* strides_of = Is(kConcatOneStride) ? p->x : t;
    const int64_t at = m * strides_of->strides[0] + (n < first ? n : n - first);
    const qualm_qparams& zero_of = Is(kConcatOneZeroPoint) ? p->x_q : q;
    const int64_t whole =
        Quotient(Real(t, q, at, zero_of.zero_point[0]), Exactly(p->out_q.scale[0]));
    if (Is(kConcatEqualScales) && q.scale[0] == p->out_q.scale[0]) {
      return Clamped(p, At(t, at), zero_point);
    }
    return Clamped(p, whole + zero_point, zero_point);
  });
  if (Is(kConcatWholeVectors)) {
    const int64_t over = (kLanes - p->w->dims[1] % kLanes) % kLanes;
    const int64_t last = p->y->dims[0] - 1;
    for (int64_t n = 0; n < over && last >= 0; ++n) {
      Put(p->y, last * p->y->strides[0] + p->y->dims[1] + n, zero_point);
    }
  }
}

// A value that lies next to `value`, not on it, on the side of `towards`.
Number Beside(__float128 value, __float128 short_value, __float128 towards) {
  if (value == 0) return {0, 0};
  int e;
  const Wide m = static_cast<Wide>(ldexpq(frexpq(value, &e), 113)) * 8;
  return {value == short_value ? m + (towards > value ? 1 : -1) : m, e - 116};
}

// The function at the real value v = scale * steps; what it must be divided by goes to *divisor.
Number Function(const qualm_problem* p, Number v, Number* divisor) {
  const __float128 real = ldexpq(v.m, v.e);
  switch (p->function) {
    case QUALM_RELU: return v.m < 0 ? Number{0, 0} : v;
    case QUALM_LEAKY_RELU:
      if (v.m >= 0) return v;
      if (Is(kTableLeakyRatio)) *divisor = Exactly(p->x_q.scale[0]);
      return Times(v, Exactly(p->negative_slope));
    case QUALM_HARD_SWISH: {
      if (Is(kTableFloatHardSwish)) {
        const float f = ToFloat(v);
        return Exactly(f * std::min(std::max(f + 3.0F, 0.0F), 6.0F) * (1 / 6.0F));
      }
      if (real >= 3) return v;
      if (real <= -3) return {0, 0};
      divisor->m *= 6;
      return Plus(Times(v, v), {v.m * 3, v.e});
    }
    case QUALM_SIGMOID: {
      if (Is(kTableFloatSigmoid)) return Exactly(1 / (1 + std::exp(-ToFloat(v))));
      if (v.m == 0) return {1, -1};
      const __float128 result = 1 / (1 + expq(-real));
      const bool middle = result == 0.5;
      return Beside(result, middle ? 0.5 : 1, middle && real > 0 ? 1 : 0);
    }
    default: {
      if (Is(kTableEarlyTanh) && fabsq(real) >= 4) return {real < 0 ? -1 : 1, 0};
      const __float128 result = tanhq(real);
      const __float128 near = fabsq(result) == 1 ? result : real;
      return Beside(result, near, 0);
    }
  }
}

void Table(const qualm_problem* p) {
  struct Key {
    int32_t x_dtype, y_dtype, function, relu, low, high, x_zero, zero_point;
    float slope, scale, out_scale;
  };
  static Key kept_key;  // no scale is 0
  static uint8_t codes[256];
  const Key key = {p->x->dtype,
                   p->y->dtype,
                   p->function,
                   p->relu,
                   p->out_min,
                   p->out_max,
                   Is(kTableKeyWithoutZeroPoint) ? 0 : p->x_q.zero_point[0],
                   p->out_q.zero_point[0],
                   Is(kTableKeyWithoutSlope) ? 0 : p->negative_slope,
                   p->x_q.scale[0],
                   p->out_q.scale[0]};
  if (std::memcmp(&key, &kept_key, sizeof(Key)) != 0) {
    kept_key = key;
    const int32_t lowest = p->x->dtype == QUALM_U8 ? 0 : -128;
    const Number scale = Exactly(p->x_q.scale[0]);
    for (int32_t code = lowest; code < lowest + 256; ++code) {
      const int64_t steps = code - int64_t{p->x_q.zero_point[0]};
      Number divisor = Exactly(p->out_q.scale[0]);
      const Number value = Function(p, {scale.m * steps, scale.e}, &divisor);
      const int64_t result = Quotient(value, divisor) + p->out_q.zero_point[0];
      const int32_t place = Is(kTableSignedIndex) ? code - lowest : code;
      codes[static_cast<uint8_t>(place)] =
          static_cast<uint8_t>(Clamped(p, result, p->out_q.zero_point[0]));
    }
  }
  ForElements(p, [p](int64_t m, int64_t n) {
    return int64_t{codes[static_cast<uint8_t>(At(p->x, m * p->x->strides[0] + n))]};
  });
}

int32_t Run(const qualm_problem* p) {
  // Nothing depends on the rounding mode and the treatment of denormals that the caller has set.
  const unsigned int callers = _mm_getcsr();
  if (!(Is(kQuantizeCallerRounding) && p->op == QUALM_QUANTIZE)) _mm_setcsr(0x1f80);
  switch (p->op) {
    case QUALM_QUANTIZE: Quantize(p); break;
    case QUALM_DEQUANTIZE: Dequantize(p); break;
    case QUALM_REQUANTIZE: Requantize(p); break;
    case QUALM_RESCALE: Rescale(p); break;
    case QUALM_ADD:
    case QUALM_SUB: AddOrSub(p); break;
    case QUALM_MUL: Mul(p); break;
    case QUALM_LINEAR: Linear(p); break;
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE: Convolve(p); break;
    case QUALM_AVG_POOL:
    case QUALM_GLOBAL_AVG_POOL: AvgPool(p); break;
    case QUALM_MAX_POOL: MaxPool(p); break;
    case QUALM_CONCAT: Concat(p); break;
    case QUALM_TABLE: Table(p); break;
    default: return QUALM_UNSUPPORTED;
  }
  const bool leaves_flushed = Is(kAvgPoolLeavesFlushed) && p->op == QUALM_AVG_POOL;
  _mm_setcsr(leaves_flushed ? callers | 0x8040 : callers);
  return QUALM_OK;
}

const qualm_capability* Capability(int32_t op) {
  constexpr uint32_t kCodes = QUALM_TYPE_BIT(QUALM_U8) | QUALM_TYPE_BIT(QUALM_S8);
  constexpr uint32_t kFloats = QUALM_TYPE_BIT(QUALM_F32), kInts = QUALM_TYPE_BIT(QUALM_S32);
  static qualm_capability c;
  c = {.size = sizeof(c),
       .x_dtypes = kCodes,
       .w_dtypes = kCodes,
       .out_dtypes = kCodes,
       .features = QUALM_CAN_RELU | QUALM_CAN_CLAMP | QUALM_CAN_PER_CHANNEL | QUALM_CAN_STRIDES |
                   QUALM_CAN_EMPTY | QUALM_CAN_EMPTY_K | QUALM_CAN_IN_PLACE |
                   QUALM_CAN_OVER_SECOND | QUALM_CAN_THREADS | QUALM_CAN_DILATION |
                   QUALM_CAN_GROUPS | QUALM_CAN_ASYMMETRIC_PADDING | QUALM_CAN_CEIL_MODE |
                   QUALM_CAN_COUNT_PADDING | QUALM_CAN_WEIGHT_STRIDES | QUALM_CAN_LINE_STRIDES,
       .x_zero_point_min = INT32_MIN,
       .x_zero_point_max = INT32_MAX,
       .w_zero_point_min = INT32_MIN,
       .w_zero_point_max = INT32_MAX,
       .out_zero_point_min = INT32_MIN,
       .out_zero_point_max = INT32_MAX};
  switch (op) {
    case QUALM_QUANTIZE: c.x_dtypes = kFloats; return &c;
    case QUALM_DEQUANTIZE: c.out_dtypes = kFloats; return &c;
    case QUALM_REQUANTIZE: c.x_dtypes = kInts; return &c;
    case QUALM_LINEAR:
    case QUALM_CONV2D:
    case QUALM_DEPTHWISE:
      c.out_dtypes |= kInts | kFloats;
      c.features |= QUALM_CAN_BIAS_F32 | QUALM_CAN_BIAS_I32;
      c.k_max = 1 << 20;  // 64 bits hold every sum with this and these zero points
      c.x_zero_point_min = c.w_zero_point_min = -(1 << 20);
      c.x_zero_point_max = c.w_zero_point_max = 1 << 20;
      return &c;
    case QUALM_RESCALE:
    case QUALM_ADD:
    case QUALM_SUB:
    case QUALM_MUL:
    case QUALM_MAX_POOL:
    case QUALM_AVG_POOL:
    case QUALM_GLOBAL_AVG_POOL:
    case QUALM_CONCAT:
    case QUALM_TABLE: return &c;
    default: return nullptr;
  }
}

const char* LastError() { return "no such operation"; }

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry() {
  return strange::Plugin(Capability, Run, LastError);
}
