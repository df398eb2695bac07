// SPDX-License-Identifier: Apache-2.0
// The one list of conventions. To add a convention: write a file with a function that makes it,
// name the file in CMakeLists.txt, add a row here, and run `scripts/tables`; what else it takes is
// in docs/hacking.md.
#ifndef QUALM_ORACLES_CONVENTIONS_FAMILIES_H_
#define QUALM_ORACLES_CONVENTIONS_FAMILIES_H_

#include <vector>

#include "oracles/conventions/convention.h"

// ROW(heading in docs/backends.md, function), in the order of that page. Neighbours may share a
// heading.
#define QUALM_CONVENTIONS(ROW)                         \
  ROW("FBGEMM", FbgemmConventions)                     \
  ROW("ATen", AtenConventions)                         \
  ROW("QNNPACK", QnnpackConventions)                   \
  ROW("PyTorch engines", TorchConventions)             \
  ROW("PyTorch engines", TorchDecomposedConventions)   \
  ROW("oneDNN", OneDnn2Conventions)                    \
  ROW("oneDNN", OneDnn3Conventions)                    \
  ROW("XNNPACK", XnnpackConventions)                   \
  ROW("XNNPACK", Xnnpack2024Conventions)               \
  ROW("gemmlowp, ruy and TFLite", GemmlowpConventions) \
  ROW("gemmlowp, ruy and TFLite", RuyConventions)      \
  ROW("gemmlowp, ruy and TFLite", TfliteConventions)   \
  ROW("gemmlowp, ruy and TFLite", LitertConventions)   \
  ROW("ONNX Runtime", OnnxRuntimeConventions)          \
  ROW("ONNX reference", OnnxConventions)               \
  ROW("StableHLO", StablehloConventions)               \
  ROW("ncnn", NcnnConventions)                         \
  ROW("MNN", MnnConventions)                           \
  ROW("ggml", GgmlConventions)                         \
  ROW("CTranslate2", Ctranslate2Conventions)           \
  ROW("TVM", TvmConventions)                           \
  ROW("tract", TractConventions)                       \
  ROW("OpenVINO", OpenvinoConventions)                 \
  ROW("Observers", ObserverConventions)                \
  ROW("Casts", CastConventions)                        \
  ROW("NumPy by hand", NumpyConventions)               \
  ROW("Textbook", PlainConventions)

namespace qualm::conventions {

#define QUALM_DECLARE(heading, function) std::vector<Convention> function();
QUALM_CONVENTIONS(QUALM_DECLARE)
#undef QUALM_DECLARE

}  // namespace qualm::conventions

#endif  // QUALM_ORACLES_CONVENTIONS_FAMILIES_H_
