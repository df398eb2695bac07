// SPDX-License-Identifier: Apache-2.0
// The passes that know about windows: convolutions and pools.
#ifndef QUALM_TRIAGE_WINDOW_PASSES_H_
#define QUALM_TRIAGE_WINDOW_PASSES_H_

#include "core/case.h"
#include "triage/passes.h"

namespace qualm::triage {

// Less padding, stride, dilation and modes. Offers nothing for other operations.
void WindowParameters(const Case& c, const Visit& visit);
// Fewer images, channels and groups, one output pixel, less image around it.
void WindowOutputs(const Case& c, const Visit& visit);
// Fewer input channels, fewer taps of the kernel.
void WindowTerms(const Case& c, const Visit& visit);

}  // namespace qualm::triage

#endif  // QUALM_TRIAGE_WINDOW_PASSES_H_
