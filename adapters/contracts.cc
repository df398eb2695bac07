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
constexpr const char* kOnednnTie =
    "oneDNN 2 adds the zero point in float32 before it rounds: an odd one turns a tie the other "
    "way, and low bits are lost (post-op sum of destination scale and zero point)";
constexpr const char* kOnednnScale =
    "oneDNN 2 rounds the sum, its bias and the multiplier to float32 before the result is "
    "(post-op sum of destination scale and zero point)";
constexpr const char* kOnednnEnvironment =
    "oneDNN 2 adds, multiplies and converts in the caller's rounding mode and flushing, as its own "
    "math::mxcsr_cvt says (oneDNN src/cpu/x64/jit_gemm_inner_product_utils.cpp, "
    "brgemm/jit_brgemm_kernel.cpp)";
constexpr const char* kOnednnStride =
    "brgemm takes dense rows only; others go to the gemm, which sums u8 codes as signed bytes "
    "where a zero point is no code and does not round s32 outputs to float32 (oneDNN "
    "src/cpu/matmul/gemm_x8s8s32x_matmul.cpp, post_process_src_and_weights_zero_points)";

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

// A row that names a convention holds for every subject under that contract, whatever CPU "onednn"
// finds itself on, and `audit` does not insist on seeing it.
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
  for (const char* subject : {"model:onednn2@sse41", "model:onednn2@avx2", "model:onednn2@avx2vnni",
                              "model:onednn2@avx512core", "model:onednn2@vnni"}) {
    rows.Add(subject, "matches_exact", FindingKind::kTie, kOnednnTie);
    rows.Add(subject, "matches_exact", FindingKind::kRounding, kOnednnScale);
    rows.Add(subject, "environment", FindingKind::kRounding, kOnednnEnvironment);
  }
  rows.Add("model:onednn2@vnni", "alignment_and_stride", FindingKind::kMemory, kOnednnStride);
  return rows.Take();
}

}  // namespace qualm
