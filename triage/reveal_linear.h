// SPDX-License-Identifier: Apache-2.0
// In which order a linear adds in float32 whose operands lie in blocks with scales of their own:
// FPRev's masks (triage/reveal.h) set by the scales, because codes of 8 bits are too small for
// them.
#ifndef QUALM_TRIAGE_REVEAL_LINEAR_H_
#define QUALM_TRIAGE_REVEAL_LINEAR_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "core/case.h"
#include "oracles/conventions/linear_forms.h"
#include "triage/reveal.h"

namespace qualm::triage {

using conventions::LinearForm;
using conventions::LinearForms;
// Throws InputError with the nearest name.
const LinearForm& FindLinearForm(std::string_view name);

// A case of the form with one output and so many products, all of them zero.
Case CaseOf(const LinearForm& form, int64_t products);
// The same of three (super-)blocks with the lowest and the highest weight and those between, as
// many as there is room for: who takes it has the codes of the form.
Case ProbeOf(const LinearForm& form);
// Whether `wide` has every code and every scale of `narrow`, and more.
bool Covers(const LinearForm& wide, const LinearForm& narrow);

// The one output, f32. It may throw, and RevealLinear lets that pass.
using AskLinear = std::function<float(const Case& c)>;

// Throws InputError unless there are at least three (super-)blocks, none of them shorter.
void RequireBlocks(const LinearForm& form, int64_t products);

// options.products: as RequireBlocks says. Codes of x below -127 are not
// asked: some kernels take them for others (docs/ggml.md).
RevealedSum RevealLinear(const LinearForm& form, const AskLinear& ask,
                         const RevealOptions& options);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_REVEAL_LINEAR_H_
