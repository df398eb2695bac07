// SPDX-License-Identifier: Apache-2.0
// Integer sums times a rational scale, plus an optional bias, to codes or float32, rounded once.
// The arithmetic behind requantize, the epilogue of sums, pools, tables, mul and rescale. Internal.
#ifndef QUALM_KERNELS_COMMON_RESCALE_H_
#define QUALM_KERNELS_COMMON_RESCALE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/common/unsigned_codes.h"
#include "kernels/common/validate.h"

namespace qualm::kernels::internal {

// One value for all channels, or one each. One value needs no memory.
template <typename T>
class ChannelList {
 public:
  ChannelList() = default;
  explicit ChannelList(std::span<const T> values) : size_(values.size()) {
    if (size_ == 1) one_ = values[0];
    if (size_ > 1) many_.assign(values.begin(), values.end());
  }
  void reserve(size_t size) {
    if (size > 1) many_.reserve(size);
  }
  void push_back(const T& value) {
    if (size_ == 0) one_ = value;
    if (size_ == 1) many_.push_back(one_);
    if (size_ != 0) many_.push_back(value);
    ++size_;
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* data() const { return size_ > 1 ? many_.data() : &one_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  const T& operator[](size_t i) const { return data()[i]; }

 private:
  size_t size_ = 0;
  T one_ = {};
  std::vector<T> many_;
};

// How the rounding of a code is decided. Every path gives the same codes; see rescale.cc for the
// proofs.
enum class RescalePath : uint8_t {
  kFloat32,   // one float32 fused multiply-add per element
  kFloat64,   // one double fused multiply-add per element
  kInterval,  // double with an error bound; elements next to a tie are compared exactly
};

// A multiplier as streams of codes take it (code_stream-inl.h).
struct StreamMultiplier {
  StreamMultiplier() = default;
  // Arguments as those of Rescale.
  StreamMultiplier(const Multiplier& scale, int32_t zero_point, Bounds bounds);

  bool streams = false;
  bool is_float = false;      // as RescalePath::kFloat32
  bool power_of_two = false;  // and is_float
  float multiplier = 1;       // rounded; if it streams
  // How many roundings, of 2^-24 each, part a value next to a code from the exact one: that of the
  // multiplier, and that of a sum wider than 24 bits to float32 unless such values are beyond the
  // codes.
  int parts() const { return multiplier >= 256.5f * 0x1p-24f ? 1 : 2; }
  UnsignedCodes codes;  // if it streams
};

// value = (sum * numerator_a * numerator_b + bias) / (denominator * divisor). Immutable after
// construction and independent of the instruction set. Arguments are valid (validate.h).
class Rescale {
 public:
  // One scale, or one per channel. `bias` is empty or has one finite value per channel, and then
  // there is one scale per channel too. Codes are clamp(RNE(value) + zero_point).
  Rescale(std::span<const Multiplier> scales, std::span<const float> bias, int32_t zero_point,
          Bounds bounds);

  // Codes (u8 or s8: the low byte) of channels [first, first + count). Nothing else is read or
  // written. Must run in a ScopedFpEnvironment.
  void CodesFromSums(const int32_t* sums, size_t first, size_t count, uint8_t* y) const;
  // The same codes, faster if many sums are at or next to ties. Requires plan().streams.
  void CodesNearTies(const int32_t* sums, size_t count, uint8_t* y) const;
  // The float32 values sum * factor * numerator_b + bias of the channels; `factor` is finite and >
  // 0. Requires numerator_a = denominator = divisor = 1.
  void FloatsFromSums(const int32_t* sums, size_t first, size_t count, float factor, bool relu,
                      float* y) const;

  // The code and the float32 value of one sum of any width.
  int32_t CodeFromSum(__int128 sum, size_t channel) const;
  float FloatFromSum(__int128 sum, size_t channel, float factor, bool relu) const;

  static constexpr int kNoDistance = 1 << 20;
  // The constants that the vector code reads. Arrays have one element, or one per channel.
  struct Plan {
    ChannelList<float> multiplier32;  // kFloat32, or if it streams
    ChannelList<double> numerator;    // numerator_a * numerator_b: 48 bits, exact
    ChannelList<double> denominator;  // times the divisor, rounded
    ChannelList<double> multiplier;   // numerator / denominator, rounded
    ChannelList<double> offset;       // bias / denominator, rounded; empty without bias
    ChannelList<double> bias;         // exact; empty without bias
    double lo = 0;                    // bounds minus zero_point: of RNE(value)
    double hi = 0;
    double zero_point = 0;
    RescalePath path = RescalePath::kInterval;
    bool short_multiplier = false;  // multiplier exact with <= 22 significant bits
    bool power_of_two = false;      // kFloat32, and the multipliers are powers of two
    bool streams = false;           // one multiplier, no bias: the codes of code_stream-inl.h
    // A value that is no tie is further than 2^-tie_distance from all ties; kNoDistance if unknown.
    int tie_distance = kNoDistance;
    bool on_grid = false;     // tie_distance is short enough for doubles without a test
    bool exact_ties = false;  // denominator and (n + 1/2)*denominator, lo <= n < hi, are exact
    bool per_channel = false;
    UnsignedCodes codes;  // if it streams
  };
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
  ChannelList<Multiplier> scales_;
  ChannelList<float> bias_;
};

// A Rescale of one multiplier without a bias. It is made when an element first needs it: that takes
// as long as a call of a hundred elements, and most calls have no such element.
class OneRescale {
 public:
  OneRescale(const Multiplier& scale, int32_t zero_point, Bounds bounds)
      : stream_(scale, zero_point, bounds),
        scale_(scale),
        zero_point_(zero_point),
        bounds_(bounds) {}
  // Uses one that is there, whose plan streams.
  explicit OneRescale(const Rescale& made);
  OneRescale(const OneRescale&) = delete;
  OneRescale& operator=(const OneRescale&) = delete;

  // As Rescale::CodesFromSums.
  void CodesFromSums(const int32_t* sums, size_t count, uint8_t* y);

  const StreamMultiplier& stream() const { return stream_; }
  const Rescale& rescale();

 private:
  StreamMultiplier stream_;
  Multiplier scale_;
  int32_t zero_point_ = 0;
  Bounds bounds_;
  const Rescale* made_ = nullptr;
  std::optional<Rescale> own_;
};

}  // namespace qualm::kernels::internal

#endif  // QUALM_KERNELS_COMMON_RESCALE_H_
