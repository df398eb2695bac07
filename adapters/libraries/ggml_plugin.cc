// SPDX-License-Identifier: Apache-2.0
// ggml's CPU kernels (llama.cpp) as a plugin: linear with weights and activations in blocks, each
// output one call of ggml_vec_dot_FORMAT_X. s8 weights are q8_0, u4 weights are q4_0, x is q8_0.
//
// QUALM_GGML_FOLDER holds one shared object for each instruction set, libggml-cpu-ISA.so, and
// QUALM_GGML names the one to load: "haswell". "+q5_0", "+q6_k" and so on behind it: the weights
// are codes of that format, which core/weight_formats.h lists. With "+generic" at the end the
// kernels are their twins in plain C, which the same object has.
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/libraries/plugin_answer.h"
#include "adapters/qualm_plugin.h"
#include "core/weight_formats.h"

namespace {

using qualm::plugin::Refusal;

using VecDot = void (*)(int n, float* s, size_t bs, const void* x, size_t bx, const void* y,
                        size_t by, int nrc);

struct Library {
  std::string instruction_set;  // "" where nothing could be loaded
  std::string version;
  struct Kernel {
    const qualm::WeightFormat* format = nullptr;
    VecDot dot = nullptr;
  };
  std::vector<Kernel> kernels;  // of different types of weights
};

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <class Function>
Function Symbol(void* object, const std::string& name) {
  return reinterpret_cast<Function>(dlsym(object, name.c_str()));
}

Library Load() {
  constexpr std::string_view kGeneric = "+generic";
  std::string wanted = Variable("QUALM_GGML");
  const bool generic = wanted.ends_with(kGeneric);
  if (generic) wanted.resize(wanted.size() - kGeneric.size());
  std::vector<const qualm::WeightFormat*> formats{&qualm::kQ8_0, &qualm::kQ4_0};
  if (const size_t plus = wanted.find('+'); plus != std::string::npos) {
    const auto named =
        std::ranges::find(qualm::kNamedFormats, std::string_view(wanted).substr(plus + 1),
                          &qualm::WeightFormat::name);
    if (named == qualm::kNamedFormats.end()) return {};
    formats = {*named};
    wanted.resize(plus);
  }
  const std::string path = Variable("QUALM_GGML_FOLDER") + "/libggml-cpu-" + wanted + ".so";
  void* const object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) return {};
  // 0 where the processor lacks something that the object was compiled for (ggml-cpu/arch/x86/
  // cpu-feats.cpp). The object for every processor has no such function.
  if (const auto score = Symbol<int (*)()>(object, "ggml_backend_score"); score && score() == 0)
    return {};
  const auto init = Symbol<void (*)()>(object, "ggml_cpu_init");
  if (init == nullptr) return {};
  init();  // makes the tables of f16
  const std::string end = generic ? "_generic" : "";
  Library library;
  for (const qualm::WeightFormat* format : formats) {
    std::string of(format->name);
    if (of.ends_with('k')) of.back() = 'K';
    const std::string name =
        "ggml_vec_dot_" + of + "_" + std::string(qualm::NameOfActivations(*format)) + end;
    library.kernels.push_back({format, Symbol<VecDot>(object, name)});
    if (library.kernels.back().dot == nullptr) return {};
  }
  library.instruction_set = wanted;
  const auto text = [&](const char* name) -> std::string {
    const auto tell = Symbol<const char* (*)()>(object, name);
    return tell == nullptr ? "" : tell();
  };
  library.version = text("ggml_version");
  if (const std::string commit = text("ggml_commit"); !commit.empty())
    library.version += " (" + commit + ")";
  return library;
}

const Library& TheLibrary() {
  static const auto* const library = new Library(Load());
  return *library;
}

void RunLinear(const qualm_problem& p) {
  const auto& kernels = TheLibrary().kernels;
  const auto kernel =
      std::ranges::find(kernels, std::string_view(p.w_format),
                        [](const Library::Kernel& each) { return each.format->name; });
  for (int64_t m = 0; m < p.y->dims[0]; ++m) {
    auto* const y = static_cast<float*>(p.y->data) + m * p.y->strides[0];
    const auto* const x = static_cast<const uint8_t*>(p.x_packed) + m * p.x_row_bytes;
    for (int64_t n = 0; n < p.y->dims[1]; ++n)
      kernel->dot(static_cast<int>(p.k_packed), y + n, 0,
                  static_cast<const uint8_t*>(p.w_packed) + n * p.w_row_bytes, 0, x, 0, 1);
  }
}

int32_t Run(const qualm_problem* problem) {
  return qualm::plugin::Answer([&] { RunLinear(*problem); });
}

const qualm_capability* Capability(int32_t op) {
  static const qualm_capability linear = [] {
    qualm_capability c{};
    c.size = sizeof c;
    static std::string formats;
    for (const Library::Kernel& kernel : TheLibrary().kernels)
      formats += std::string(kernel.format->name) + " ";
    if (!formats.empty()) c.w_formats = formats.c_str();
    c.features = QUALM_CAN_EMPTY | QUALM_CAN_STRIDES;
    return c;
  }();
  return op == QUALM_LINEAR ? &linear : nullptr;
}

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  const Library& library = TheLibrary();
  const bool apart = !library.kernels.empty() && library.kernels.front().format->offsets_apart;
  static const qualm_plugin plugin = {
      .size = sizeof(qualm_plugin),
      .abi_version = QUALM_ABI_VERSION,
      .reserved = 0,
      .name = "ggml",
      .version = library.version.c_str(),
      .contract = apart ? "sum+offsets" : "sum",
      .instruction_set = library.instruction_set.empty() ? "none" : library.instruction_set.c_str(),
      .capability = Capability,
      .run = Run,
      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
