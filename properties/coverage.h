// SPDX-License-Identifier: Apache-2.0
// Hazard coverage: the share of the judged cases that reached the places where kernels go
// wrong, per operation and per executed instruction set. It makes a suite that tests nothing
// visible.
#ifndef QUALM_PROPERTIES_COVERAGE_H_
#define QUALM_PROPERTIES_COVERAGE_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/case.h"

namespace qualm {

enum class Hazard : uint8_t {
  kPairSaturates,
  kInt32Overflows,
  kExactTie,
  kNearTie,
  kClampLow,
  kClampHigh,
  kMinCodeRun,
  kKTail,
  kNTail,
  kMTail,
  kZeroPointPair,
  kEmpty,
  kSpecialFloat,
  kPerChannel,
  kPadding,
  kPaddingOffCode,
  kGroups,
  kAllDistinct,
  kLongWindow,
  kMultiplierAboveOne,
  kBlocksOfK,
  kLargeLayer,
  kLongM,
  kWideN,
  kBlockEdges,
  kDeepChannels,
  kManyGroups,
  kWideImage,
  kManyPlanes,
  kLongRun,
  kBeyond16Bits,
  kLongRow,
  kPowerOfTwo,
  kShiftEdge,
  kTermAtEdge,
};
struct HazardRow {
  Hazard hazard;
  std::string_view name;
  std::string_view sentence;  // which cases reach it
  bool (*about)(Op);          // operations whose cases can
  // The least share of an operation's drawn cases that reaches it, if any of its cases do.
  double least;
};
// In the order of the enumeration.
std::span<const HazardRow> AllHazards();
std::string_view Name(Hazard hazard);

// The hazards one case reaches. Computed once per case, whatever the number of subjects.
std::vector<Hazard> HazardsOf(const Case& c);

class HazardCoverage {
 public:
  void Add(Op op, std::string_view instruction_set, std::span<const Hazard> hazards);
  void Merge(const HazardCoverage& other);
  struct Row {
    int64_t cases = 0;
    std::map<Hazard, int64_t> reached;
  };
  const std::map<std::pair<Op, std::string>, Row>& rows() const { return rows_; }

 private:
  std::map<std::pair<Op, std::string>, Row> rows_;
};

}  // namespace qualm

#endif  // QUALM_PROPERTIES_COVERAGE_H_
