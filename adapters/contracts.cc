// SPDX-License-Identifier: Apache-2.0
#include "adapters/contracts.h"

#include <array>
#include <string>
#include <utility>

#include "core/types.h"
#include "core/verdict.h"

namespace qualm {
namespace {

constexpr const char* kFbgemmPairs =
    "without VNNI, vpmaddubsw adds two u8*s8 products in a saturating int16 "
    "(FBGEMM src/GenerateKernelU8S8S32ACC32.cc; pytorch/FBGEMM issue 125, pytorch issue 44939)";
constexpr const char* kOnednnPairs =
    "without VNNI, vpmaddubsw adds two u8*s8 products in a saturating int16 "
    "(oneDNN developer guide, Nuances of int8 Computations; oneDNN issue 476)";
constexpr const char* kFbgemmScale =
    "sum and multiplier are rounded to float32 before the result is "
    "(FBGEMM src/QuantUtilsAvx2.cc, requantizeOutputProcessingAvx2)";
constexpr const char* kOnednnTie =
    "oneDNN 2 adds the zero point in float32 before it rounds: an odd one turns a tie the other "
    "way, and low bits are lost (post-op sum of destination scale and zero point)";
constexpr const char* kOnednnScale =
    "oneDNN 2 rounds the sum, its bias and the multiplier to float32 before the result is "
    "(post-op sum of destination scale and zero point)";

// A saturated pair changes the slope of a sweep, so every claim about numbers fails; one rounding
// early shows only against the exact answer.
constexpr std::array<const char*, 3> kNumbers{"matches_exact", "sweep_is_monotone",
                                              "sweep_is_linear"};

class Rows {
 public:
  void Add(const char* subject, const char* property, FindingKind kind, const char* reason) {
    rows_.push_back(
        {subject, std::string(Name(Op::kLinear)), property, std::string(Name(kind)), reason});
  }
  std::vector<ExpectedDivergence> Take() { return std::move(rows_); }

 private:
  std::vector<ExpectedDivergence> rows_;
};

}  // namespace

std::vector<ExpectedDivergence> DeclaredDivergences() {
  Rows rows;
  for (const char* property : kNumbers) {
    for (const char* subject : {"model:fbgemm@avx2", "model:fbgemm@avx512"}) {
      rows.Add(subject, property, FindingKind::kPairSaturation, kFbgemmPairs);
    }
    for (const char* subject :
         {"onednn@sse41", "onednn@avx2", "onednn@avx512core", "model:onednn2@sse41",
          "model:onednn2@avx2", "model:onednn2@avx512core"}) {
      rows.Add(subject, property, FindingKind::kPairSaturation, kOnednnPairs);
    }
  }
  for (const char* subject : {"model:fbgemm@avx2", "model:fbgemm@avx512"}) {
    rows.Add(subject, "matches_exact", FindingKind::kRounding, kFbgemmScale);
  }
  for (const char* subject :
       {"onednn", "onednn@sse41", "onednn@avx2", "onednn@avx512core", "model:onednn2@sse41",
        "model:onednn2@avx2", "model:onednn2@avx512core"}) {
    rows.Add(subject, "matches_exact", FindingKind::kTie, kOnednnTie);
    rows.Add(subject, "matches_exact", FindingKind::kRounding, kOnednnScale);
  }
  return rows.Take();
}

}  // namespace qualm
