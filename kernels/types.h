// SPDX-License-Identifier: Apache-2.0
// The vocabulary of the public kernel interface: plain C++, no SIMD types, nothing of the harness.
#ifndef QUALM_KERNELS_TYPES_H_
#define QUALM_KERNELS_TYPES_H_

#include <cstdint>
#include <span>
#include <string>

namespace qualm::kernels {

enum class ElementType : uint8_t { kU8, kS8, kS32, kF32 };

// "" is success; otherwise one sentence: which argument, what is wrong, what was expected.
// A bad argument is returned, never undefined behaviour, and nothing has been written.
struct [[nodiscard]] Status {
  std::string error;
  bool ok() const { return error.empty(); }
};

// Rows of a matrix: element (i, j) at data[i * row_stride + j]; stride in elements, >= columns.
// data is a multiple of the element's size, and is not looked at where there are no elements.
struct ConstMatrix {
  const void* data = nullptr;
  ElementType type = ElementType::kU8;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
};
struct MutableMatrix {
  void* data = nullptr;
  ElementType type = ElementType::kU8;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
};

// How codes stand for real numbers: scale * (code - zero_point). 0 < scale < inf, any zero point.
struct Quantization {
  float scale = 1.0f;
  int32_t zero_point = 0;
};

// The real multiplier numerator_a * numerator_b / (denominator * divisor), exactly. A plain float32
// m is {m}. `divisor` is the number of elements of a mean: 1..2^53.
struct Multiplier {
  float numerator_a = 1.0f;
  float numerator_b = 1.0f;
  float denominator = 1.0f;
  int64_t divisor = 1;
};

// Clamp of integer outputs. relu raises the lower bound to the output zero point (0 for s32, f32).
struct OutputRange {
  int32_t min = INT32_MIN;  // intersected with the type's range
  int32_t max = INT32_MAX;
  bool relu = false;
};

// How an integer sum becomes a code. kExact is the contract of this library. Each other mode
// reproduces another library's arithmetic, bit for bit, for networks that were calibrated with that
// library; it takes the sum clamped to int32, and gives the same bits on all instruction sets too.
// common/backend_requantize.cc has the formulas, docs/quantization.md the distance to kExact.
enum class Requantization : uint8_t {
  kExact,
  kFloat32,   // FBGEMM, QNNPACK on x86: float32 product, half to even, 2^31 and more give INT32_MIN
  kFixedQ31,  // gemmlowp, TFLite: 31-bit multiplier, two roundings, half away from zero
  kFixedRndnu,  // XNNPACK on NEON: 24-bit multiplier, truncated product, half up
};

// The caller's threads. Only how long a call takes depends on it, never a bit of the result.
struct ThreadPool {
  virtual ~ThreadPool() = default;
  // The largest number of tasks that can run at the same time. Scratch grows with it.
  virtual int64_t Threads() const = 0;
  // Calls fn(arg, i) once for every i in [0, tasks), in any order and on any threads, and returns
  // when all calls have. fn does not throw.
  virtual void Run(int64_t tasks, void (*fn)(void* arg, int64_t task), void* arg) = 0;
};

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_TYPES_H_
