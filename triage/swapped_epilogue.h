// SPDX-License-Identifier: Apache-2.0
// Rounding, zero point and clamp with swaps. Internal to triage.
#ifndef QUALM_TRIAGE_SWAPPED_EPILOGUE_H_
#define QUALM_TRIAGE_SWAPPED_EPILOGUE_H_

#include <cstdint>
#include <optional>
#include <span>

#include "core/case.h"
#include "triage/counterfactual.h"

namespace qualm::triage {

bool Has(std::span<const Swap> swaps, Swap swap);

double RoundHalfEven(double value);

// Code of one output before the clamp: rounded as the swaps say and moved by the zero point.
// `float_value` is the value as float32 arithmetic gives it. Doubles are enough: the result only
// counts if it equals the subject's bits.
double Rounded(double exact_value, float float_value, int32_t zero_point,
               std::span<const Swap> swaps);

// The clamp, after which it is a code.
int32_t Narrow(const Case& c, int64_t channel, double value, std::span<const Swap> swaps);

// Done in doubles, on codes; everything else stays exact.
bool ChangesEpilogue(Swap swap);

// Swaps of rescale, add, mul and pools, which have no sums over K; those that are nothing but
// another case have been made.
bool ChangesElements(Swap swap);
bool MeansSomethingForElements(const Case& c, Swap swap);
std::optional<Tensor> ElementCounterfactual(const Case& c, std::span<const Swap> swaps);

// The same of concat, table, softmax and choose_qparams, which know only some swaps.
bool HasOtherCounterfactual(Op op);
bool OnlyForOthers(Swap swap);
bool MeansSomethingForOthers(const Case& c, Swap swap);
std::optional<Tensor> OtherCounterfactual(const Case& c, std::span<const Swap> swaps);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_SWAPPED_EPILOGUE_H_
