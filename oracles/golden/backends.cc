// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string_view>

#include "oracles/golden/records.h"

namespace qualm::golden {
namespace {

std::string_view After(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : std::string_view();
}

std::string OneDnnName(std::string_view isa) {
  static const std::map<std::string_view, std::string> names = {
      {"sse41", "sse41"},  {"SSE41", "sse41"},           {"avx2", "avx2"},
      {"AVX2", "avx2"},    {"avx512core", "avx512core"}, {"AVX512_CORE", "avx512core"},
      {"default", "vnni"}, {"AVX512_CORE_VNNI", "vnni"}};
  const auto at = names.find(isa);
  return at == names.end() ? "" : at->second;
}

// PyTorch 2.11's official wheel on a processor with AMX; `label` says which switch was set.
std::string Torch211Name(const GoldenRecord& record, std::string_view label) {
  const std::string_view backend = record.backend;
  const std::string_view engine = backend.substr(backend.find('/') + 1);
  const bool sums = record.op == "linear" || record.op == "conv2d" || record.op == "linear_dynamic";
  if (engine == "qnnpack") return "torch2.11-qnnpack";
  // The capability decides nothing but how add is computed.
  if (!sums && label == "atendefault" && record.op == "add") return "aten@default+pt26";
  if (!sums) return "torch2.11-aten";
  const std::string_view onednn = After(label, "onednn");
  const std::string onednns = "onednn3.10@" + (onednn.empty() ? "amx" : OneDnnName(onednn));
  const std::string isa = label == "fbgemmAVX2"     ? "avx2"
                          : label == "fbgemmAVX512" ? "avx512"
                                                    : "vnni";
  const std::string fbgemms = record.op == "conv2d"
                                  ? "torch-fbgemm@" + isa + (isa == "vnni" ? "" : "+held")
                                  : "fbgemm@" + isa;
  if (engine == "onednn") return onednns;
  if (engine == "fbgemm") return fbgemms;
  if (engine != "x86") return "";
  if (label == "default") return "torch-x86@amx";
  // One switch was set, and no convention has the two instruction sets.
  const std::vector<int32_t> zero_points = Int32s(record, "w_zp");
  return std::ranges::all_of(zero_points, [](int32_t z) { return z == 0; }) ? onednns : fbgemms;
}

// The stack and, where it has several, the device of a cast. Another version may have other rules.
std::string CastName(const GoldenRecord& record) {
  static const std::map<std::string_view, std::string> names = {
      {"torch-2.11.0+cu130 cpu", "torch2.11-cast@cpu"},
      {"torch-2.11.0+cu130 cuda", "torch2.11-cast@cuda"},
      {"ml_dtypes-0.6.0 cpu", "ml_dtypes-cast"},
      {"jax-0.11.2 cpu", "jax-cast@cpu"},
      {"jax-0.11.2 gpu", "jax-cast@gpu"},
      {"cuda-13.0 cuda", "cuda-cast"},
      {"cuda-13.0 cuda-headers-host", "cuda-cast"},
      {"ptx-cvt.rn.satfinite cuda", "ptx-cast"},
      {"onnx-reference-1.23.1 cpu", "onnx-cast@reference"},
      {"onnxruntime-1.30.0 cpu", "onnxruntime1.30-cast"}};
  const auto at = names.find(record.backend + " " + record.Text("device"));
  return at == names.end() ? "" : at->second;
}

}  // namespace

std::string ConventionName(const GoldenRecord& record) {
  if (record.op == "cast" || record.op == "decode") return CastName(record);
  const std::string_view backend = record.backend;
  std::string_view isa = record.isa;
  if (backend.starts_with("fbgemm@")) {
    if (isa.empty()) return "fbgemm@avx2";       // element-wise: the vector code
    if (isa == "any-x86") return "fbgemm@avx2";  // every instruction set gives the same
    if (isa.ends_with("_ymm")) isa.remove_suffix(4);
    const std::string_view name = isa == "avx512_vnni" ? "vnni" : isa;
    std::string convention = "fbgemm@" + std::string(name);
    if (record.Has("acc_kind") && record.Text("acc_kind") == "acc16") convention += "+acc16";
    if (backend.ends_with("-nofma")) convention += "+nofma";
    return convention;
  }
  if (backend.starts_with("onednn-2")) return "onednn2@" + OneDnnName(isa);
  if (backend.starts_with("onnxruntime-") && isa.empty()) return "onnxruntime@vnni";
  if (backend.starts_with("onnxruntime-"))
    return "onnxruntime@" + std::string(isa.substr(0, isa.find('-')));
  if (backend.starts_with("xnnpack@")) {
    if (isa.starts_with("x86")) return "xnnpack@fp32";
    return isa.starts_with("aarch64") ? "xnnpack@rndnu" : "";
  }
  if (backend.starts_with("tflite-double") || backend.starts_with("tflite-reference"))
    return "tflite@double";
  if (backend.starts_with("tflite-single")) return "tflite@single";
  if (backend.starts_with("litert@")) {
    const auto ours = After(isa, "xnnpack@");
    return ours.empty() ? "tflite@" + std::string(isa) : "xnnpack2026@" + std::string(ours);
  }
  if (record.op.starts_with("decomposed.")) return "torch-decomposed";
  if (backend.starts_with("torchao-")) return "torchao@" + std::string(isa);
  if (const auto label = After(isa, "pt211-"); !label.empty()) return Torch211Name(record, label);
  if (isa == "qnnpack-x86" || isa == "pt26-qnnpack") return "qnnpack";
  if (const auto rest = After(isa, "pt26-onednn-"); !rest.empty())
    return "onednn3@" + OneDnnName(rest);
  if (const auto rest = After(isa, "onednn-"); !rest.empty()) return "onednn2@" + OneDnnName(rest);
  if (auto rest = After(isa, "aten-"); !rest.empty()) {
    const bool pt26 = rest.ends_with("-pt26");
    if (pt26) rest.remove_suffix(5);
    return "aten@" + std::string(rest) + (pt26 ? "+pt26" : "");
  }
  return "";
}

}  // namespace qualm::golden
