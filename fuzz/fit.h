// SPDX-License-Identifier: Apache-2.0
// Only small cases have bytes, so that a target runs thousands of them per second. Fitting makes a
// small case of any other.
#ifndef QUALM_FUZZ_FIT_H_
#define QUALM_FUZZ_FIT_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/case.h"

namespace qualm::fuzz {

// Largest dimensions of operations without a window. K spans three 32-wide steps, N one 16-wide
// panel.
inline constexpr int64_t kMaxM = 8;
inline constexpr int64_t kMaxN = 16;
inline constexpr int64_t kMaxK = 96;

// The three sizes of a case that nothing else gives: M, N and K. Of convolutions and pools, m is
// the batch, and n and k are the output and input channels of one group (of a pool, k is 0). Where
// x and w share the columns of the output, k is the columns of x; where x comes in batches, k is
// the batches.
struct Sizes {
  int64_t m = kMaxM;
  int64_t n = kMaxN;
  int64_t k = 0;
};
// The largest sizes that a case of `op` may have.
Sizes LimitsOf(Op op);
Sizes SizesOf(const Case& c);

// The limits of each axis of a window; WorkOf bounds the axes together. Averages take images, and
// avg_pool takes kernels, of more than 257 codes: a uint16 does not hold the sum of so many.
inline constexpr int64_t kMaxKernel = 4;
int64_t MaxImage(Op op);
int64_t MaxKernel(Op op);
// The largest value of a number of the window (ForEachWindowNumber).
int64_t HighestOf(Op op, const Field& number);
inline constexpr int64_t kMaxStep = 3;  // stride and dilation
inline constexpr int64_t kMaxPad = 5;
inline constexpr int64_t kMaxGroups = 4;     // depthwise: kMaxChannels
inline constexpr int64_t kMaxChannels = 72;  // past the widest vector of bytes
inline constexpr int64_t kMaxWork = 3 * 1024;

// The products of a convolution, or the codes that a pool reads, plus the elements of x and w.
int64_t WorkOf(const Case& c);

// Changes the window of a convolution or pool, and N, until bytes can stand for them: the numbers
// are within the limits, parameters that the operation lacks are default, no window of a pool lies
// wholly in the padding, and the work is at most kMaxWork. Derives M and K. A window that bytes can
// stand for stays as it is.
void FitWindow(Case* c);

// The size of a block is one byte.
inline constexpr int32_t kMaxBlock = 255;

// Whether bytes can stand for the sizes, and for the window if there is one.
bool IsSmall(const Case& c);

// Calls visit(value) for each number, flag or choice among the parameters that c.op has, in the
// order of the fields of a case. So a new parameter gets bytes without another line, and FitCase
// brings a number into its range. A rule that ties it to another parameter is said in FitCase. The
// new bytes stand before x, so all inputs of the parameter's operations change their meaning. Four
// parameters are not visited, because the header of the bytes has bits for them: relu, requant,
// ceil_mode and count_include_pad. Nor are w_block and x_block, which stand at the end of the
// bytes.
template <class C, class Visit>
void ForEachOwnField(C& c, Visit&& visit) {
  ForEachParameter(c, [&](const Field& field, auto& value) {
    if constexpr (std::is_scalar_v<std::remove_reference_t<decltype(value)>>) {
      const void* const at = &value;
      if (RowOf(c.op).*field.has && at != &c.relu && at != &c.requant && at != &c.w_block &&
          at != &c.x_block && at != &c.window.ceil_mode && at != &c.window.count_include_pad) {
        visit(value);
      }
    }
  });
}

// A tensor of that type and shape: the elements that `from` has too, saturated to the type, else 0.
Tensor Reshaped(const Tensor& from, DType dtype, const std::vector<int64_t>& shape);

// Makes the case valid and small: shapes, types, lengths of lists and the clamp follow from the
// operation, the sizes, the window, per_channel and the types of x and the output; parameters that
// the operation lacks become default. A case that is already valid and small stays as it is.
void FitCase(Case* c);

}  // namespace qualm::fuzz

#endif  // QUALM_FUZZ_FIT_H_
