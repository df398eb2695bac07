// SPDX-License-Identifier: Apache-2.0
// Constant-input sweeps: every row of x is one code, all other things fixed. The curve of each
// output must be monotone in the direction of sum(w - zw) and lie on a stabbing line; a kernel that
// saturates pairs bends at kinks that can be predicted from the weights alone.
#ifndef QUALM_PROPERTIES_SWEEP_H_
#define QUALM_PROPERTIES_SWEEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/subject.h"
#include "core/verdict.h"
#include "oracles/headroom/headroom.h"

namespace qualm::sweep {

// The case that a sweep starts from: linear unchanged; of a convolution the output pixel whose
// window holds most of the image, because its curves look like those of linear.
Case OneRow(const Case& c);
// The case whose row i (for convolutions: image i) is constantly codes[i]; weights, qparams and
// bias of `base`, which must have one output pixel per image. With real 0 in the padding an output
// stays an affine function of the code.
Case Expand(const Case& base, const std::vector<int32_t>& codes);
// The codes from, from+step, ... up to `to`, which is included if a step reaches it.
std::vector<int32_t> Codes(const Case& base, int32_t from, int32_t to, int32_t step);
// The step that reaches both ends of the type in 256 codes.
constexpr int32_t StepOf(DType codes) { return IsWideCode(codes) ? 257 : 1; }
// The codes from one end of the type to the other at that step: the rows of a sweep of all 65,536
// codes of 16 bits would take gigabytes.
std::vector<int32_t> Codes(const Case& base);

// Exact rational feasibility: are there a, b with y-1/2 <= a*x+b <= y+1/2 wherever lo < y < hi,
// only a*x+b <= lo+1/2 where y = lo, and only >= hi-1/2 where y = hi? Integer arithmetic only. The
// values of x are codes: less than 2^20.
bool HasStabbingLine(const std::vector<int32_t>& x, const std::vector<int32_t>& y, int32_t lo,
                     int32_t hi);
// +1, -1 or 0: sign of sum_k (w - zw_n) over the taps that lie in the image.
int Direction(const Case& base, int64_t n);
// The exact outputs of channel n at the codes, one after another: what exact::Evaluate gives for
// that channel of Expand(base, codes). Every term of a sum has the same factor, so this is fast.
Tensor ExactCurve(const Case& base, int64_t n, const std::vector<int32_t>& codes);

struct KinkReport {
  headroom::Kink kink;
  // The output departs from the exact curve because of the kink. Otherwise the kink is latent:
  // predicted, but rounding or the clamp hides it at every swept code.
  bool visible = false;
  std::string_view state() const { return visible ? "visible" : "latent"; }
};

// The verdicts of the properties sweep_is_monotone and sweep_is_linear on the curve `y` of output
// channel n: passed, or failed at a code. `base` is one row, `y` its outputs at `codes`. See
// sweep_properties.cc.
Verdict JudgeMonotone(const Case& base, int64_t n, const std::vector<int32_t>& codes,
                      const std::vector<int32_t>& y);
Verdict JudgeLinear(const Case& base, int64_t n, const std::vector<int32_t>& codes,
                    const std::vector<int32_t>& y);
// Why the claim is no theorem for the case, "" if it is one. `expanded` is what Expand gives.
std::string WhyNotMonotone(const Case& expanded);
std::string WhyNotLinear(const Case& expanded);

struct Curve {
  int64_t n = 0;
  std::vector<int32_t> y;  // one per code
  std::vector<int32_t> exact;
  bool monotone = true;  // JudgeMonotone passes
  bool linear = true;    // JudgeLinear passes
  int direction = 0;
  std::optional<int32_t> last_exact_code;  // the one before y first departs from exact
  std::vector<KinkReport> kinks;  // for subjects that are or may be pair-saturating: all predicted
  // Codes at which y departs from exact although no predicted kink explains it.
  std::vector<int32_t> unexplained;
};

struct Result {
  std::string subject;
  std::vector<int32_t> codes;
  std::vector<Curve> curves;  // one per output channel
  std::string skipped;        // reason, if the subject cannot run it
};

// Runs the sweep of OneRow(c) on one subject.
Result Run(const Case& c, Subject& subject, const std::vector<int32_t>& codes);

}  // namespace qualm::sweep

#endif  // QUALM_PROPERTIES_SWEEP_H_
