// SPDX-License-Identifier: Apache-2.0
// A plain, exact implementation of every operation with planted faults, or none. It is shaped
// like a real kernel - blocks of four k, vectors of eight columns, raw sums corrected for zero
// points afterwards - so that every fault has the place that it has in real code.
#ifndef QUALM_ADAPTERS_FAULTY_REFERENCE_H_
#define QUALM_ADAPTERS_FAULTY_REFERENCE_H_

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "adapters/faulty/dyadic.h"
#include "adapters/host/in_process.h"
#include "core/case.h"

namespace qualm::faulty {

// One planted change each. The table of faults.cc says what the change does. The reference asks
// Has() where a fault acts.
enum class Fault : uint8_t {
  // Dot products.
  kPairSaturation,
  kS8PairWraps,
  kInt32Wraps,
  kU8AsS8,
  kKTail,
  kKZero,
  kKOverRead,
  // Zero points and bias.
  kZeroPointTermFloat,
  kPaddedKZeroPoints,
  kNegatedZeroPointInt8,
  kWeightZeroPointInt8,
  kRowSumOfRow0,
  kStaleColumnSums,
  kBiasWraps,
  // Scale, rounding, conversion, clamp.
  kScaleInFloat,
  kMultiplierInDouble,
  kZeroPointBeforeRounding,
  kTiesAway,
  kOneTie,
  kReciprocal,
  kTailRoundsAway,
  kAlignmentHead,
  kCallerRounding,
  kClampAfterConversion,
  kNanOrder,
  kDifferenceInt8,
  kTruncatingNarrow,
  kReluClampZero,
  // Places of results, and other memory that is touched.
  kScaleIndex,
  kGroupScaleIndex,
  kOverlappedTail,
  kHalfTail,
  kStoreOrder,
  kStrideIgnored,
  kOutputNotCleared,
  kInputShiftedInPlace,
  kOverlappedTailInPlace,
  // Windows.
  kTapsInt16,
  kPaddingIsCodeZero,
  kRowBound,
  kKernelWidthBound,
  kMaxPoolStart,
  kAverageSumsU16,
  kDivisorUnclipped,
  // Two operands.
  kProductInt16,
  kLeftShiftDropped,
  // Tables and rows.
  kConcatFirstParameters,
  kTableTiesAway,
  kTableIndexOffset,
  kSoftmaxNoHalf,
  kSoftmaxMaxNotSubtracted,
  kSoftmaxDistanceInt8,
  // Observers.
  kReduceRangeIgnored,
  kNoScaleFloor,
  kRangeWithoutZero,
  kAveragingInDouble,
  // dynamic_linear.
  kScaleOfRow0,
  kZeroPointOfRow0,
  // Sizes of real layers.
  kBiasPerBlockOfK,
  kChannelIndexU8,
  kRowIndexU8,
  kDeepChannelTap,
  kGroupBlockScale,
  kElementIndexU16,
  kChunkEdge,
  kSoftmaxRowBlock,
  kImageRowBuffer,
  kObserverFirstBlock,
  // State that is kept between calls, shared by them, or left behind.
  kStaleScales,
  kStaleBias,
  kStaleClamp,
  kStaleScratch,
  kSharedScratch,
  kLeavesRounding,
  kBlocksSignals,
  kLeaksPerCall,
  // Operands that share memory, strides of layers.
  kSharedFirstParameters,
  kSecondReadAgain,
  kWeightStrideIgnored,
  kLineStrideIgnored,
  kRowOffsetU32,
  // Edges of parameters.
  kPowerShiftWraps,
  kNegatedTermInt32,
  kCodeSumLanes,
};

// The faults of one implementation: none, one, or several, as a real kernel may have.
class Faults {
 public:
  void Add(Fault fault) { has_.set(static_cast<size_t>(fault)); }
  bool Has(Fault fault) const { return has_.test(static_cast<size_t>(fault)); }

 private:
  std::bitset<static_cast<size_t>(Fault::kCodeSumLanes) + 1> has_;
};

// The reason why 128-bit arithmetic (for real functions: long double) may be too narrow for an
// output of the case; "" if it is wide enough. Histograms are not computed here.
std::string CannotCompute(const Case& c);
// The same for tables and for softmax (reference_tables.cc).
std::string CannotTabulate(const Case& c);
std::string CannotSoftmax(const Case& c);

// Where an output pixel lies and what its window covers: row-major over batch, out_h, out_w.
struct OutputPixel {
  int64_t image = 0;
  int64_t top = 0, left = 0;  // of the window in the image, may be negative
};

// Without faults, results are exact for every case that CannotCompute accepts. Only
// kCallerRounding makes them depend on the caller's floating-point environment.
class Reference {
 public:
  explicit Reference(const Faults& faults) : faults_(faults) {}

  // `again`: the layer was packed by the call before.
  void Run(const Placed& placed, bool again = false);

 private:
  bool Has(Fault fault) const { return faults_.Has(fault); }

  void Quantize(const Placed& p);
  void Dequantize(const Placed& p);
  void Requantize(const Placed& p);
  void Linear(const Placed& p);
  void Rescale(const Placed& p);
  void TwoOperands(const Placed& p);
  void Concat(const Placed& p);
  void Table(const Placed& p);
  void Softmax(const Placed& p);
  void Pool(const Placed& p);
  void Conv(const Placed& p);
  void ChooseQParams(const Placed& p);
  void DynamicLinear(const Placed& p);
  void Compute(const Placed& placed);
  // The problem with values that a fault keeps of the last layer of equal weights, in `changed`.
  Placed WithKept(const Placed& p, Case& changed);

  struct Chosen {
    double scale = 1, zero_point = 0;
  };
  // Chooses from the smallest and the largest value.
  Chosen Choose(const Observer& o, double low, double high) const;

  uint8_t RescaleOne(const Case& c, const QParams& q, int32_t code) const;
  uint8_t TwoOperandsOne(const Case& c, int32_t a, int32_t b) const;
  uint8_t PoolOne(const Placed& p, const OutputPixel& at, int64_t channel) const;
  // patch_ = x under the window, [R,S,C/groups] of one group; the padding as its zero point.
  void FillPatch(const Placed& p, const OutputPixel& at, int64_t group);
  __int128 ConvSum(const Placed& p, int64_t pixel, int64_t n) const;
  // The entry of the lists per channel that channel n takes.
  int64_t ParametersOf(const Case& c, int64_t n) const;

  int64_t QuantizeOne(float x, float scale, int32_t zero_point, RoundTo rule, const Case& c) const;
  int64_t CodeSum(const Case& c, const uint8_t* codes, DType dtype) const;
  int64_t RawSum(const Placed& p, const uint8_t* x, const uint8_t* w) const;
  __int128 CorrectedSum(const Placed& p, int64_t m, int64_t n);
  void StoreLinear(const Placed& p, __int128 sum, int64_t n, uint8_t* to) const;
  // Real code -> clamped code: adds the zero point (rounded is +-kHuge at most), clamps.
  int64_t Finish(const Case& c, int64_t rounded, int32_t zero_point) const;
  // RoundQuotient, except for the fault kOneTie.
  int64_t Nearest(const Dyadic& value, const Dyadic& per, RoundTo rule, bool odd = false) const;
  RoundTo RequantizeRule() const {
    return Has(Fault::kTiesAway) ? RoundTo::kNearestAway : RoundTo::kNearestEven;
  }
  // Calls `one(j)` for the columns of a row, a vector at a time, the tail as an overlapped vector.
  template <class One>
  void ForColumns(int64_t columns, const One& one) const;

  Faults faults_;
  // The column sums that a kernel which packs weights would keep between calls.
  std::vector<int64_t> column_sums_;
  int64_t column_sums_of_k_ = -1;
  // The layer of the call before, for the faults that keep a part of it while the weights are the
  // same.
  Case kept_;
  std::vector<float> kept_scale_, kept_bias_;
  std::vector<int32_t> kept_bias_i32_;
  std::vector<uint8_t> kept_weights_;
  bool ran_ = false;  // whether the layer of this call has run
  int64_t scratch_ = 0;
  std::vector<uint8_t> codes_;  // dynamic_linear: x quantized
  Case sums_of_;                // dynamic_linear: the linear over codes_
  std::vector<int64_t> patch_;  // a member: reading x may end in a signal, and locals would leak
};

}  // namespace qualm::faulty

#endif  // QUALM_ADAPTERS_FAULTY_REFERENCE_H_
