// SPDX-License-Identifier: Apache-2.0
// The table of the libraries under test. docs/hacking.md says what a new one needs.
#include "adapters/libraries/libraries.h"

#include <qualm_unusable.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>

#include "adapters/host/plugin_subjects.h"
#include "core/status.h"

namespace qualm {
namespace {

constexpr std::string_view kOnednnIsa = "ONEDNN_MAX_CPU_ISA";
constexpr std::string_view kAtenIsa = "ATEN_CPU_CAPABILITY";
constexpr std::string_view kFbgemmIsa = "FBGEMM_ENABLE_INSTRUCTIONS";
constexpr std::string_view kHaswell = "Haswell";
constexpr std::string_view kNehalem = "Nehalem";
constexpr std::string_view kOnednn = "qualm_onednn.so";
constexpr std::string_view kFbgemm = "qualm_fbgemm.so";
constexpr std::string_view kFbgemmAcc16 = "qualm_fbgemm_acc16.so";

// For each processor that ggml is built for, each format that the type of the weights does not tell
// and each that ggml repacks: its kernel, and its twin in plain C.
std::vector<LibraryName> GgmlNames() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> formats{""};
    for (const WeightFormat* format : kNamedFormats)
      formats.push_back("+" + std::string(format->name));
    for (const WeightFormat* format : kRepackedFormats) {
      for (const char* kernel : {"+gemm", "+gemv"})
        formats.push_back("+" + std::string(format->name) + kernel);
    }
    std::vector<std::string> list;
    for (const char* set :
         {"alderlake", "cannonlake", "cascadelake", "cooperlake", "haswell", "icelake", "ivybridge",
          "piledriver", "sandybridge", "sapphirerapids", "skylakex", "sse42", "x64", "zen4"}) {
      for (const std::string& format : formats) {
        for (const char* kernels : {"", "+generic"})
          list.push_back(std::string("ggml@") + set + format + kernels);
      }
    }
    return list;
  }();
  std::vector<LibraryName> names;
  for (const std::string& text : all) {
    const std::string_view value = std::string_view(text).substr(text.find('@') + 1);
    names.push_back({.name = text,
                     .option = "qualm_ggml.so",
                     .instruction_set = value.substr(0, value.find('+')),
                     .environment = {{"QUALM_GGML", value}}});
  }
  return names;
}

std::vector<Library> Libraries() {
  return {
      {.kind = "onednn",
       .library = "oneDNN",
       .help = "onednn[@sse41|@avx2|@avx2vnni|@avx512core|@vnni|@amx]  oneDNN, as PyTorch calls "
               "it",
       .names = {{"onednn", kOnednn},
                 {"onednn@sse41", kOnednn, "sse41", {{kOnednnIsa, "SSE41"}}},
                 {"onednn@avx2", kOnednn, "avx2", {{kOnednnIsa, "AVX2"}}},
                 {"onednn@avx2vnni", kOnednn, "avx2vnni", {{kOnednnIsa, "AVX2_VNNI"}}},
                 {"onednn@avx512core", kOnednn, "avx512core", {{kOnednnIsa, "AVX512_CORE"}}},
                 {"onednn@vnni", kOnednn, "vnni", {{kOnednnIsa, "AVX512_CORE_VNNI"}}},
                 {"onednn@amx", kOnednn, "amx", {{kOnednnIsa, "AVX512_CORE_AMX"}}}},
       .install = "oneDNN 2.x or 3.7 (libdnnl-dev)"},
      {.kind = "xnnpack",
       .library = "XNNPACK",
       .help = "xnnpack  XNNPACK's quantized operators",
       .names = {{"xnnpack", "qualm_xnnpack.so"}},
       .install = "XNNPACK of 2022 or 2024 (libxnnpack-dev)"},
      {.kind = "gemmlowp",
       .library = "gemmlowp",
       .help = "gemmlowp[@sse4]  gemmlowp's GEMM and its output pipeline",
       .names = {{"gemmlowp", "qualm_gemmlowp.so"}, {"gemmlowp@sse4", "qualm_gemmlowp_sse4.so"}},
       .install = "gemmlowp (libgemmlowp-dev)"},
      {.kind = "ruy",
       .library = "ruy",
       .help = "ruy  ruy::Mul, TensorFlow Lite's matrix product",
       .names = {{"ruy", "qualm_ruy.so"}},
       .install = "ruy (libruy-dev of Debian 13, or from its CMake)",
       .by_bootstrap = false},
      {.kind = "fbgemm",
       .library = "FBGEMM",
       .help = "fbgemm[@avx2|@avx512|@vnni], fbgemm@acc16, fbgemm@avx2+acc16, ...  FBGEMM, as "
               "PyTorch calls it",
       .names = {{"fbgemm", kFbgemm},
                 {"fbgemm@avx2", kFbgemm, "avx2", {{kFbgemmIsa, "AVX2"}}},
                 {"fbgemm@avx512", kFbgemm, "avx512", {{kFbgemmIsa, "AVX512"}}},
                 {"fbgemm@vnni", kFbgemm, "vnni", {{kFbgemmIsa, "AVX512_E1"}}},
                 {"fbgemm@acc16", kFbgemmAcc16},
                 {"fbgemm@avx2+acc16", kFbgemmAcc16, "avx2", {{kFbgemmIsa, "AVX2"}}},
                 {"fbgemm@avx512+acc16", kFbgemmAcc16, "avx512", {{kFbgemmIsa, "AVX512"}}},
                 {"fbgemm@vnni+acc16", kFbgemmAcc16, "vnni", {{kFbgemmIsa, "AVX512_E1"}}}},
       .install = "FBGEMM from its CMake, so that find_package sees it",
       .by_bootstrap = false},
      {.kind = "ggml",
       .library = "ggml",
       .help = "ggml@x64|@sse42|@haswell|@zen4|...[+q5_0|+q6_k|...][+gemm|+gemv][+generic]  ggml's "
               "products of blocks (llama.cpp), for each processor that it is built for; gemm: of "
               "eight rows in turn; generic: in plain C",
       .names = GgmlNames(),
       .why_absent = WhyNoGgml,
       .when_listed = "a shared object of ggml for each instruction set, loaded when it is asked",
       .told = GgmlEnvironment},
      {.kind = "onnxruntime",
       .library = "ONNX Runtime",
       .help = "onnxruntime[@constant|@avx2[+constant]|@sse41]  ONNX Runtime's QLinear operators, "
               "through Node",
       // "constant": all inputs but the first are part of the model, as in models that people
       // deploy. ONNX Runtime then packs weights ahead, and has convolutions of its own for
       // symmetric ones (MlasConvSym).
       .names = {{"onnxruntime", ""},
                 {"onnxruntime@constant", "constant"},
                 {"onnxruntime@avx2", "", "avx2", {}, kHaswell},
                 {"onnxruntime@avx2+constant", "constant", "avx2", {}, kHaswell},
                 {"onnxruntime@sse41", "", "sse41", {}, kNehalem}},
       .why_absent = WhyNoOnnxruntime,
       .child = OnnxruntimeChild,
       .when_listed = "ONNX Runtime through Node, started when it is asked"},
      {.kind = "onnxruntime-web",
       .library = "ONNX Runtime",
       .help = "onnxruntime-web[@constant][@nbits|@constant+nbits]  the same in WebAssembly, as "
               "browsers run it, through Node",
       .names = {{"onnxruntime-web", ""},
                 {"onnxruntime-web@constant", "constant"},
                 {"onnxruntime-web@nbits", "nbits"},
                 {"onnxruntime-web@constant+nbits", "constant+nbits"}},
       .why_absent = WhyNoOnnxruntimeWeb,
       .child = OnnxruntimeWebChild,
       .when_listed = "ONNX Runtime in WebAssembly through Node, started when it is asked"},
      {.kind = "onnxruntime-py",
       .library = "ONNX Runtime",
       .help =
           "onnxruntime-py[@constant|@avx2[+constant]|@sse41]  the same of ONNX Runtime's wheel, "
           "through Python; [@nbits|@constant+nbits|@avx2+constant+nbits][+level4]: MatMulNBits; "
           "@fused|@constant+fused|@avx2+constant+fused: DynamicQuantizeMatMul",
       .names = {{"onnxruntime-py", ""},
                 {"onnxruntime-py@constant", "constant"},
                 {"onnxruntime-py@fused", "fused"},
                 {"onnxruntime-py@constant+fused", "constant+fused"},
                 {"onnxruntime-py@avx2+constant+fused", "constant+fused", "avx2", {}, kHaswell},
                 {"onnxruntime-py@nbits", "nbits"},
                 {"onnxruntime-py@constant+nbits", "constant+nbits"},
                 {"onnxruntime-py@avx2+constant+nbits", "constant+nbits", "avx2", {}, kHaswell},
                 {.name = "onnxruntime-py@nbits+level4",
                  .option = "nbits+level4",
                  .cannot_run = WhyNotAtLevel4},
                 {.name = "onnxruntime-py@constant+nbits+level4",
                  .option = "constant+nbits+level4",
                  .cannot_run = WhyNotAtLevel4},
                 {.name = "onnxruntime-py@avx2+constant+nbits+level4",
                  .option = "constant+nbits+level4",
                  .instruction_set = "avx2",
                  .processor = kHaswell,
                  .cannot_run = WhyNotAtLevel4},
                 {"onnxruntime-py@avx2", "", "avx2", {}, kHaswell},
                 {"onnxruntime-py@avx2+constant", "constant", "avx2", {}, kHaswell},
                 {"onnxruntime-py@sse41", "", "sse41", {}, kNehalem}},
       .when_listed = "ONNX Runtime through Python, started when it is asked",
       .wheel = "onnxruntime"},
      {.kind = "jax",
       .library = "XLA",
       .help = "jax  XLA's CPU compiler on StableHLO's quantized types, through JAX",
       .names = {{"jax", ""}},
       .when_listed = "XLA through Python, started when it is asked",
       .wheel = "jax"},
      {.kind = "iree",
       .library = "IREE",
       .help = "iree  IREE's CPU compiler on StableHLO's quantized types",
       .names = {{"iree", ""}},
       .when_listed = "IREE through Python, started when it is asked",
       .wheel = "iree"},
      {.kind = "ncnn",
       .library = "ncnn",
       .help = "ncnn[@winograd]  ncnn's int8 layers",
       .names = {{"ncnn", ""}, {"ncnn@winograd", "winograd"}},
       .when_listed = "ncnn through Python, started when it is asked",
       .wheel = "ncnn"},
      {.kind = "mnn",
       .library = "MNN",
       .help = "mnn  MNN's FloatToInt8 and Int8ToFloat",
       .names = {{"mnn", ""}},
       .when_listed = "MNN through Python, started when it is asked",
       .wheel = "mnn"},
      {.kind = "ctranslate2",
       .library = "CTranslate2",
       .help = "ctranslate2  CTranslate2's int8 layers",
       .names = {{"ctranslate2", ""}},
       .when_listed = "CTranslate2 through Python, started when it is asked",
       .wheel = "ctranslate2"},
      {.kind = "tvm",
       .library = "TVM",
       .help = "tvm  Apache TVM's Relax, compiled for the CPU",
       .names = {{"tvm", ""}},
       .when_listed = "TVM through Python, started when it is asked",
       .wheel = "tvm"},
      {.kind = "tract",
       .library = "tract",
       .help = "tract  tract's quantized operators of ONNX",
       .names = {{"tract", ""}},
       .when_listed = "tract through Python, started when it is asked",
       .wheel = "tract"},
      {.kind = "openvino",
       .library = "OpenVINO",
       .help = "openvino  OpenVINO's CPU plugin on ONNX models that quantize",
       .names = {{"openvino", ""}},
       .when_listed = "OpenVINO through Python, started when it is asked",
       .wheel = "openvino"},
      {.kind = "torchao",
       .library = "torchao",
       .help = "torchao  the shared scales and elements of microscaling (MX)",
       .names = {{"torchao", ""}},
       .when_listed = "torchao through Python, started when it is asked",
       .wheel = "torchao"},
      {.kind = "torch",
       .library = "PyTorch",
       .help =
           "torch@fbgemm, torch@x86 [+avx2|+avx512|+vnni], torch@onednn[+sse41|+avx2|+avx2vnni|"
           "+avx512core|+vnni|+amx], torch@qnnpack, each [+kept], torch@decomposed  PyTorch's "
           "quantized operators; kept: layers stay packed from case to case; decomposed: PT2E's",
       // ATen of 1.13 takes AVX2 wherever the processor has it, so AVX2 goes with newer sets.
       .names =
           {{"torch@decomposed", "decomposed"},
            {"torch@fbgemm", "fbgemm"},
            {"torch@fbgemm+kept", "fbgemm+kept"},
            {"torch@fbgemm+avx2", "fbgemm", "avx2", {{kFbgemmIsa, "AVX2"}, {kAtenIsa, "avx2"}}},
            {"torch@fbgemm+avx512", "fbgemm", "avx512", {{kFbgemmIsa, "AVX512"}}},
            {"torch@fbgemm+vnni", "fbgemm", "vnni", {{kFbgemmIsa, "AVX512_E1"}}},
            {"torch@x86", "x86"},
            {"torch@x86+kept", "x86+kept"},
            {"torch@x86+avx2",
             "x86",
             "avx2",
             {{kFbgemmIsa, "AVX2"}, {kOnednnIsa, "AVX2"}, {kAtenIsa, "avx2"}}},
            {"torch@x86+avx512",
             "x86",
             "avx512",
             {{kFbgemmIsa, "AVX512"}, {kOnednnIsa, "AVX512_CORE"}}},
            {"torch@x86+vnni",
             "x86",
             "vnni",
             {{kFbgemmIsa, "AVX512_E1"}, {kOnednnIsa, "AVX512_CORE_VNNI"}}},
            {"torch@qnnpack", "qnnpack"},
            {"torch@qnnpack+kept", "qnnpack+kept"},
            {"torch@onednn", "onednn"},
            {"torch@onednn+kept", "onednn+kept"},
            {"torch@onednn+sse41",
             "onednn",
             "sse41",
             {{kOnednnIsa, "SSE41"}, {kAtenIsa, "default"}}},
            {"torch@onednn+avx2", "onednn", "avx2", {{kOnednnIsa, "AVX2"}, {kAtenIsa, "avx2"}}},
            {"torch@onednn+avx2vnni",
             "onednn",
             "avx2vnni",
             {{kOnednnIsa, "AVX2_VNNI"}, {kAtenIsa, "avx2"}}},
            {"torch@onednn+avx512core",
             "onednn",
             "avx512core",
             {{kOnednnIsa, "AVX512_CORE"}, {kAtenIsa, "avx2"}}},
            {"torch@onednn+vnni",
             "onednn",
             "vnni",
             {{kOnednnIsa, "AVX512_CORE_VNNI"}, {kAtenIsa, "avx2"}}},
            {"torch@onednn+amx",
             "onednn",
             "amx",
             {{kOnednnIsa, "AVX512_CORE_AMX"}, {kAtenIsa, "avx2"}}}},
       .why_absent = WhyNoTorch,
       .child = TorchChild,
       .when_listed = "PyTorch through Python, started when it is asked"},
      {.kind = "tflite",
       .library = "TensorFlow Lite",
       .help = "tflite[@builtin|@reference]  TensorFlow Lite (LiteRT): its delegate XNNPACK, its "
               "optimized kernels, its reference kernels",
       .names = {{"tflite", "xnnpack"},
                 {"tflite@builtin", "builtin"},
                 {"tflite@reference", "reference"}},
       .when_listed = "TensorFlow Lite through Python, started when it is asked",
       .wheel = "litert"},
  };
}

std::string WhyAbsent(const Library& library) {
  if (library.why_absent != nullptr) return library.why_absent();
  if (!library.wheel.empty()) return WhyNoWheel(library.wheel);
  const std::string first(library.names.front().option);
  if (!FindModule(first).empty()) return "";
  // Found when this was configured, but not of a version that its plugin fits.
  static const std::map<std::string_view, std::string> kUnusable QUALM_UNUSABLE;
  if (const auto at = kUnusable.find(library.kind); at != kUnusable.end()) return at->second;
  return first + " not found: install " + std::string(library.install) +
         (library.by_bootstrap ? " with scripts/bootstrap" : "") +
         " and rebuild, or set QUALM_PLUGIN_DIR to its folder";
}

EnvironmentChanges EnvironmentOf(const LibraryName& name) {
  return {name.environment.begin(), name.environment.end()};
}

// A subject whose library may lack cases that no capability can name.
template <class Base>
class Limited : public Base {
 public:
  template <class Options>
  Limited(const LibraryName& name, Options options)
      : Base(std::string(name.name), std::move(options)), cannot_run_(name.cannot_run) {}

  std::string CannotRun(const Case& c) const override {
    std::string why = Base::CannotRun(c);
    return why.empty() && cannot_run_ ? cannot_run_(c) : why;
  }

 private:
  std::function<std::string(const Case& c)> cannot_run_;
};

std::unique_ptr<ForeignSubject> Start(const Library& library, const LibraryName& name) {
  if (library.child != nullptr || !library.wheel.empty()) {
    PipeOptions options =
        library.child != nullptr ? library.child(name) : WheelChild(library.wheel, name);
    if (!name.processor.empty()) Emulate(name, options);
    options.environment = EnvironmentOf(name);
    return std::make_unique<Limited<PipeSubject>>(name, std::move(options));
  }
  WorkerOptions options;
  options.time_limit_ms = TimeLimitMs(options.time_limit_ms);
  options.memory_limit_bytes = MemoryLimitBytes(options.memory_limit_bytes);
  options.plugin = FindModule(std::string(name.option));
  if (options.plugin.empty()) {
    throw Unavailable("subject '" + std::string(name.name) + "': " + std::string(name.option) +
                      " not found");
  }
  options.environment = EnvironmentOf(name);
  if (library.told != nullptr)
    std::ranges::copy(library.told(), std::back_inserter(options.environment));
  return std::make_unique<Limited<PluginSubject>>(name, std::move(options));
}

}  // namespace

std::string CacheFolder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string folder = variable("QUALM_CACHE_DIR"); !folder.empty()) return folder;
  const std::string xdg = variable("XDG_CACHE_HOME");
  return (xdg.empty() ? variable("HOME") + "/.cache" : xdg) + "/qualm";
}

bool CanRun(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

void RegisterLibraries() {
  for (Library& library : Libraries()) {
    SubjectKind kind;
    kind.kind = std::string(library.kind);
    kind.help = std::string(library.help);
    kind.why_absent = WhyAbsent(library);
    kind.when_listed = std::string(library.when_listed);
    SetVariants(kind, library.names);
    kind.make = [library = std::move(library)](const std::string& wanted) {
      for (const LibraryName& name : library.names) {
        if (name.name != wanted) continue;
        std::unique_ptr<ForeignSubject> subject = Start(library, name);
        const bool forced = !name.environment.empty();
        subject->RequireInstructionSet(name.instruction_set, library.library,
                                       forced ? name.environment.front().second : "");
        return subject;
      }
      return std::unique_ptr<ForeignSubject>();
    };
    SubjectRegistry::Get().Add(std::move(kind));
  }
}

}  // namespace qualm
