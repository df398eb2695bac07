// SPDX-License-Identifier: Apache-2.0
// The inner loop of linear and conv2d: u8 activations times packed s8 weights, summed in int32.
// Where possible the sums become codes while they are in the L1 cache. Internal to kernels/.
#ifndef QUALM_KERNELS_SUMS_ACCUMULATE_H_
#define QUALM_KERNELS_SUMS_ACCUMULATE_H_

#include <cstdint>

#include "kernels/common/quad_sum.h"
#include "kernels/sums/codes.h"
#include "kernels/sums/split.h"
#include "kernels/types.h"

namespace qualm::kernels {

struct AccumulateArgs;

// The facts about the target instruction set on which packing depends.
struct AccumulateTraits {
  int64_t target = 0;       // internal::TargetId()
  int64_t lanes = 0;        // channels per vector
  int64_t panel_width = 0;  // channels per panel; the last one may have fewer vectors
  internal::QuadSum quad_sum = internal::QuadSum::kHighway;
  bool has_saturating_path = false;                   // worth certifying for; has kWidened too
  bool makes_codes = false;                           // takes a CodePlan
  bool needs_environment = true;                      // a ScopedFpEnvironment, to make them
  void (*run)(const AccumulateArgs& args) = nullptr;  // AccumulatePanel, on this target
};

// The facts for the current thread's target.
AccumulateTraits CurrentAccumulateTraits();
// Panels are as wide as the vectors of the target they were packed for: no other can run them.
Status CheckPackedFor(int64_t target);

// The activations of a row lie in `rows` * `columns` pieces of `bytes` consecutive bytes. A piece
// is read in quads from its beginning. If bytes % 4 != 0, the last quad is the last 4 bytes, so
// that no byte outside is read. Some of these bytes belong to the quad before too: their weights in
// the last quad are 0.
struct Pieces {
  int64_t rows = 1;
  int64_t row_step = 0;  // bytes
  int64_t columns = 1;
  int64_t column_step = 0;
  int64_t bytes = 0;  // 0, or 4 and more

  int64_t Quads() const { return (bytes + 3) / 4; }
};

// One panel of channels times some rows. Sums are taken modulo 2^32: right whenever the true value
// fits int32, even if partial sums do not.
//
//   sums[r][c] = initial[c] + sum_k a[r][k] * w[k][c] - weight_zero[c] * row_sums[r]
//                + sum_i a[r][places[i]] * extra[i][c]
//
// where a is x, or x + 128 when x_is_signed, so that it is always unsigned.
struct AccumulateArgs {
  const uint8_t* x = nullptr;       // first row
  int64_t x_stride = 0;             // bytes
  bool x_is_signed = false;         // the bytes are s8
  int64_t rows = 0;                 //
  Pieces pieces;                    //
  int64_t vectors = 0;              // of the panel: lanes * vectors channels
  const int8_t* weights = nullptr;  // [pieces][quads][vectors * lanes][4], vector-aligned
  // Of the target, or kHighway. kPairs: no pair of these weights can leave int16. kWidened: x has
  // the u8 of WidenRows (arrange.h), and one piece of 4 bytes for each quad. kDot: `initial` has
  // 128 * sum_k w[k][c] more.
  internal::QuadSum quad_sum = internal::QuadSum::kHighway;
  const ExtraQuads* extra = nullptr;     // more quads of kPairs; or null
  const int32_t* initial = nullptr;      // [panel_width]
  const int32_t* weight_zero = nullptr;  // [panel_width], or null: no row sum term
  const int64_t* row_sums = nullptr;     // [rows], with weight_zero only
  int32_t* sums = nullptr;               // [rows][panel_width]; without codes only
  const CodePlan* plan = nullptr;        // turns sums into codes; or null
  CodesOut codes;                        // with a plan only
};
void AccumulatePanel(const AccumulateArgs& args);

}  // namespace qualm::kernels

#endif  // QUALM_KERNELS_SUMS_ACCUMULATE_H_
