// SPDX-License-Identifier: Apache-2.0
#ifndef QUALM_ADAPTERS_LIBRARIES_TORCH_H_
#define QUALM_ADAPTERS_LIBRARIES_TORCH_H_

namespace qualm {

// Adds the kind "torch": torch@qnnpack, torch@onednn and the latter under older instruction sets.
// Absent, with the reason, where there is no PyTorch. Environment: QUALM_PYTHON, the Python to run,
// where it is not /usr/bin/python3.
void RegisterTorchSubjects();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_LIBRARIES_TORCH_H_
