// SPDX-License-Identifier: Apache-2.0
// The codes of a kernel for an interval of inputs: runs the kernel on each way through its branches
// and joins the codes. Encloses all codes because the Highway that it runs over does so in each
// operation. Compiled once for each of the two arithmetics, like the kernels that it calls:
// CMakeLists.txt gives their namespace another name, so that they live beside the real ones.
#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>

#include "kernels/common/dispatch.h"
#include "kernels/common/fp_environment.h"
#include "kernels/common/rescale.h"
#include "kernels/common/validate.h"
#include "kernels/elementwise.h"
#include "kernels/intervals/intervals.h"
#include "kernels/intervals/memory.h"
#include "kernels/intervals/ways.h"

namespace qualm::kernels::internal {

size_t TargetIndex() { return 0; }

}  // namespace qualm::kernels::internal

namespace qualm::intervals {
namespace {

// The numbers of elements: one whole block of a stream, and less than a vector.
constexpr std::array<int64_t, 2> kCounts{8, 1};

// Runs the kernel on `count` elements of the interval, on one way through its branches.
void RunKernel(const Problem& problem, int64_t count) {
  const kernels::ScopedFpEnvironment environment;
  const kernels::ElementType type =
      problem.signed_codes ? kernels::ElementType::kS8 : kernels::ElementType::kU8;
  const kernels::OutputRange range{problem.out_min, problem.out_max, problem.relu};
  const std::array<int32_t, 1> zero_point{problem.zero_point};
  if (problem.quantize) {
    const kernels::ConstMatrix x{memory.x.data(), kernels::ElementType::kF32, 1, count, count};
    const kernels::MutableMatrix y{memory.y.data(), type, 1, count, count};
    const std::array<float, 1> scale{problem.denominator};
    if (!kernels::Quantize(x, scale, zero_point, range, y).ok()) std::abort();
    return;
  }
  // The calls that kernels::Requantize makes in mode exact.
  const std::array<kernels::Multiplier, 1> multiplier{
      {{problem.numerator_a, problem.numerator_b, problem.denominator}}};
  const kernels::internal::Rescale rescale(
      multiplier, {}, problem.zero_point,
      kernels::internal::OutputBounds(type, range, problem.zero_point));
  rescale.CodesFromSums(reinterpret_cast<const int32_t*>(memory.x.data()), 0,
                        static_cast<size_t>(count), memory.y.data());
}

int32_t CodeOf(const Problem& problem, uint8_t byte) {
  return problem.signed_codes ? static_cast<int8_t>(byte) : byte;
}

}  // namespace

#if QUALM_INTERVALS_FUSED
std::optional<Codes> FusedCodesBetween(
#else
std::optional<Codes> PlainCodesBetween(
#endif
    const Problem& problem, uint32_t first, uint32_t last) {
  for (size_t i = 0; i < Memory::kBytes; i += sizeof first) {
    std::memcpy(&memory.x[i], &first, sizeof first);
    std::memcpy(&memory.x[i + Memory::kBytes], &last, sizeof last);
  }
  Codes all{INT32_MAX, INT32_MIN};
  for (const int64_t count : kCounts) {
    ways = Ways();
    do {
      memory.stored.fill(false);
      RunKernel(problem, count);
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        // Scalar code, which stored this byte, has read the first input only.
        if (!memory.stored[i] && first != last) return std::nullopt;
        const uint8_t lo = memory.y[i];
        const uint8_t hi = memory.stored[i] ? memory.y[i + Memory::kBytes] : lo;
        const int32_t from = CodeOf(problem, lo), to = CodeOf(problem, hi);
        // Bytes that cross from 127 to 128 are codes from both ends of the signed range.
        all.lo = std::min(all.lo, from <= to ? from : INT8_MIN);
        all.hi = std::max(all.hi, from <= to ? to : INT8_MAX);
      }
    } while (ways.Next());
  }
  return all;
}

}  // namespace qualm::intervals
