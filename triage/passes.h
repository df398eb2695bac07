// SPDX-License-Identifier: Apache-2.0
// The steps that make a case simpler. Each pass offers candidates, boldest first, until one is
// taken.
#ifndef QUALM_TRIAGE_PASSES_H_
#define QUALM_TRIAGE_PASSES_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/case.h"
#include "core/slice.h"

namespace qualm::triage {

// Returns true to take the candidate: the pass then ends.
using Visit = std::function<bool(const Case&)>;

using Pass = void (*)(const Case& c, const Visit& visit);

// A case that holds nothing but parameters, each as simple as `c` allows: the defaults, and for an
// observer all codes of its type.
Case SimplestParameters(const Case& c);

// Nearly in the order of Complexity (triage/complexity.cc): the numbers that count most come first.
std::span<const Pass> AllPasses();

// ---- The passes over windows, of convolutions and pools (window_passes.cc).

// Less padding, stride, dilation and modes. Offers nothing for other operations.
void WindowParameters(const Case& c, const Visit& visit);
// Fewer images, channels and groups, one output pixel, less image around it.
void WindowOutputs(const Case& c, const Visit& visit);
// Fewer input channels, fewer taps of the kernel.
void WindowTerms(const Case& c, const Visit& visit);
// The taps of one output one below the other, and fewer of them: so the kernels 2x2 and 1x4 end
// alike.
void WindowLine(const Case& c, const Visit& visit);
// The case whose kernel and image are one column of the pixels under the only window of `c`, in
// row-major order; nullopt if there are more windows, or if a tap lies in the padding.
std::optional<Case> LineOf(const Case& c);
// Pixel and tap i of the result are number items[i] of the line.
Case LineTaps(const Case& line, slice::Places items);

// ---- Helpers of passes: the items to keep, of `count`, in the order of trying.

// Everything except [from, to).
inline std::vector<int64_t> Without(int64_t count, int64_t from, int64_t to) {
  std::vector<int64_t> list = slice::Range(0, from);
  for (int64_t i = to; i < count; ++i) list.push_back(i);
  return list;
}

// Offers each half, each quarter and so on to `keep`, down to about a 16th, or to one item. Then
// offers everything but each half, everything but each quarter and so on, down to everything but
// one item. Stops where keep(items) returns true, and returns whether it did.
template <class Keep>
bool Shrink(int64_t count, const Keep& keep) {
  for (int64_t block = (count + 1) / 2; block >= 1; block = (block + 1) / 2) {
    for (int64_t from = 0; from < count; from += block) {
      if (keep(slice::Range(from, std::min(count, from + block)))) return true;
    }
    if (block == 1) break;
    if (count / block > 16) break;  // drop blocks first; singles come when little is left
  }
  for (int64_t block = (count + 1) / 2; block >= 1; block = (block + 1) / 2) {
    for (int64_t from = 0; from < count; from += block) {
      if (block < count && keep(Without(count, from, std::min(count, from + block)))) return true;
    }
    if (block == 1) break;
  }
  return false;
}

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_PASSES_H_
