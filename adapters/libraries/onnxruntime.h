// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's quantized operators, through Node.
#ifndef QUALM_ADAPTERS_LIBRARIES_ONNXRUNTIME_H_
#define QUALM_ADAPTERS_LIBRARIES_ONNXRUNTIME_H_

namespace qualm {

// Adds the kind "onnxruntime" (onnxruntime, onnxruntime@avx2, ...). It is absent,
// with the reason and the command that installs it, where Node or the package is.
void RegisterOnnxruntimeSubjects();

}  // namespace qualm

#endif  // QUALM_ADAPTERS_LIBRARIES_ONNXRUNTIME_H_
