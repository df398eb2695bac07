// SPDX-License-Identifier: Apache-2.0
// The parts that all measured sides share: shapes, parameters, data, and how a side joins.
#ifndef QUALM_BENCH_BENCH_H_
#define QUALM_BENCH_BENCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace qualm::bench {

// One call of `who` on `work`, such as "linear/64x512x512", which handles `items` operations (two
// for each multiply-add) or elements. `run` owns its data; `prepare` makes it, when first measured.
using Run = std::function<void()>;
void Join(const std::string& work, const std::string& who, double items,
          std::function<Run()> prepare);
// The same by the clock on the wall, for what runs on several threads.
void JoinByWall(const std::string& work, const std::string& who, double items,
                std::function<Run()> prepare);

// If a library was found, its file defines one of these; bench.cc calls those that exist.
void JoinPeaks();
void JoinNative();
void JoinOneDnn();
void JoinXnnpack();
void JoinGemmlowp();
void JoinGgml();

// Activations u8 with a zero point, weights s8, a bias, a scale per channel, outputs u8 with a zero
// point. A side that cannot have one of these says so in its name.
// What decides whether pairs of products fit into 16 bits: all do (|w| <= 64), few do not
// (Gaussian, the largest of the layer or of its channel is 127), a part does not (uniform in
// -127..127), none does (all 127).
enum class WeightKind { kUniform, kSafe, kGaussian, kGaussianPerChannel, kWorst };
struct Linear {
  int64_t m, n, k;
  WeightKind weights = WeightKind::kUniform;
  std::string Name() const;
  double Items() const { return 2.0 * static_cast<double>(m * n * k); }
};
extern const std::vector<Linear> kLinear;
struct NamedLinear {
  std::string name;
  Linear shape;
};
// Sizes of one dimension around powers of two; the others are 256.
extern const std::vector<NamedLinear> kSweep;
// Layers with each kind of weights, for instruction sets that add pairs in 16 bits.
extern const std::vector<NamedLinear> kWeightKinds;

// Images and kernels are square.
struct Conv {
  const char* name;
  int64_t size, channels, outputs, kernel, stride, padding;
  bool depthwise;
  int64_t OutSize() const { return (size + 2 * padding - kernel) / stride + 1; }
  int64_t Depth() const { return kernel * kernel * (depthwise ? 1 : channels); }
  double Items() const {
    return 2.0 * static_cast<double>(OutSize() * OutSize() * outputs * Depth());
  }
};
extern const std::vector<Conv> kConv;

// Square too, of u8 codes. Each output handles `kernel` squared elements. The mean of a whole image
// has its size as kernel, and one output pixel.
struct Pool {
  const char* name;
  bool is_max;
  int64_t size, channels, kernel, stride, padding;
  int64_t OutSize() const { return (size + 2 * padding - kernel) / stride + 1; }
  double Items() const {
    return static_cast<double>(OutSize() * OutSize() * channels * kernel * kernel);
  }
};
extern const std::vector<Pool> kPool;

extern const std::vector<int64_t> kElements;

// Products of rows stored in blocks: weights q8_0 or q4_0 times activations q8_0, q4_k times q8_K
// (kernels/block_linear.h). Of one row and one channel one call of a dot product, else a matrix.
struct BlockWork {
  std::string format;  // "q8_0", "q4_0", "q4_k"
  Linear shape;
  bool IsDot() const { return shape.m * shape.n == 1; }
  std::string Name() const {
    return format + (IsDot() ? "-dot/" + std::to_string(shape.k) : "/" + shape.Name());
  }
  bool IsSuper() const { return format == "q4_k"; }
  int64_t Blocks() const { return shape.k / (IsSuper() ? 256 : 32); }  // of a row
  int64_t WeightBytes() const { return IsSuper() ? 144 : format == "q4_0" ? 18 : 34; }
  int64_t ActivationBytes() const { return IsSuper() ? 292 : 34; }
};
extern const std::vector<BlockWork> kBlockWork;
// Floats to blocks: "quantize-q8_0/65536".
extern const std::vector<int64_t> kBlockRows;
// So many blocks of so many bytes, a float16 of 2^-8 first, of q4_k two, and of q8_K a float32;
// without -128, where ggml is wrong.
std::shared_ptr<std::vector<uint8_t>> Blocks(int64_t count, int64_t bytes, uint32_t seed);

inline constexpr int32_t kXZero = 113, kYZero = 7, kBZero = 9;
inline constexpr float kXScale = 0.0473f, kBScale = 0.0291f, kYScale = 0.1137f;
// Sums of layers end among the codes: the scale of outputs grows with the depth.
float WeightScale(int64_t channel);
float LayerScale(int64_t depth);

template <typename T>
using Buffer = std::shared_ptr<std::vector<T>>;
Buffer<uint8_t> Codes(int64_t count, uint32_t seed);
Buffer<int8_t> Weights(int64_t count, uint32_t seed);
Buffer<int8_t> Weights(const Linear& shape, uint32_t seed);  // [n, k], of the kind of the shape
Buffer<int32_t> Sums(int64_t count, int32_t largest, uint32_t seed);
Buffer<float> Reals(int64_t count, uint32_t seed);
template <typename T>
Buffer<T> Zeros(int64_t count) {
  return std::make_shared<std::vector<T>>(static_cast<size_t>(count));
}

}  // namespace qualm::bench

#endif  // QUALM_BENCH_BENCH_H_
