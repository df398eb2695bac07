// SPDX-License-Identifier: Apache-2.0
// The instruction sets that this processor and its operating system can run, asked without Highway:
// a second opinion on the list that the native kernels offer.
#ifndef QUALM_PROPERTIES_PROCESSOR_TEST_UTIL_H_
#define QUALM_PROPERTIES_PROCESSOR_TEST_UTIL_H_

#include <string>
#include <string_view>

namespace qualm::test {

// Why the code that Highway generates for `target` ("AVX3_DL") cannot run here, e.g. "this
// processor has no avx512_vnni"; "" if it can. Sources: Intel SDM volume 2, CPUID; Linux,
// Documentation/arch/arm64/elf_hwcaps.rst; which features a target needs: Highway 1.2,
// hwy/detect_targets.h. Throws std::invalid_argument for a target that it does not know.
std::string WhyCannotRun(std::string_view target);

}  // namespace qualm::test

#endif  // QUALM_PROPERTIES_PROCESSOR_TEST_UTIL_H_
