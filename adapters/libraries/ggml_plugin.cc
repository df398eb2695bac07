// SPDX-License-Identifier: Apache-2.0
// ggml's CPU kernels (llama.cpp) as a plugin: linear with weights and activations in blocks, each
// output one call of ggml_vec_dot_FORMAT_X; quantize and dequantize of rows in blocks, each row one
// call of quantize_row_FORMAT, dequantize_row_FORMAT. s8 codes are q8_0, u4 codes are q4_0, x of
// linear is q8_0.
//
// QUALM_GGML_FOLDER holds one shared object for each instruction set, libggml-cpu-ISA.so, and
// QUALM_GGML names the one to load: "haswell". "+q5_0", "+q6_k" and so on behind it: the weights
// are codes of that format, which core/weight_formats.h lists. With "+generic" at the end the
// kernels are their twins in plain C, which the same object has where there are others.
#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
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

using Quantize = void (*)(const float* x, void* blocks, int64_t n);
using Dequantize = void (*)(const void* blocks, float* y, int64_t n);

struct Library {
  std::string instruction_set;  // "" where nothing could be loaded
  std::string version;
  bool avx = false;
  struct Kernel {
    const qualm::WeightFormat* format = nullptr;
    VecDot dot = nullptr;
    Quantize quantize = nullptr;
    Dequantize dequantize = nullptr;
  };
  std::vector<Kernel> kernels;  // of different types of weights
  const Kernel& Named(std::string_view format) const {
    return *std::ranges::find(kernels, format,
                              [](const Kernel& each) { return each.format->name; });
  }
};

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <class Function>
Function Symbol(void* object, const std::string& name) {
  return reinterpret_cast<Function>(dlsym(object, name.c_str()));
}

// The formats whose scale is a quotient of the ends of a block. Others search for theirs.
bool Quantizes(const qualm::WeightFormat& format) {
  constexpr std::string_view kThese[] = {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1"};
  return std::ranges::find(kThese, format.name) != std::end(kThese);
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
    Library::Kernel kernel{.format = format, .dot = Symbol<VecDot>(object, name)};
    if (kernel.dot == nullptr) return {};
    if (Quantizes(*format)) {
      const auto twin = Symbol<Quantize>(object, "quantize_row_" + of + "_generic");
      kernel.quantize = generic && twin ? twin : Symbol<Quantize>(object, "quantize_row_" + of);
    }
    kernel.dequantize = Symbol<Dequantize>(object, "dequantize_row_" + of);
    library.kernels.push_back(kernel);
  }
  library.instruction_set = wanted;
  // quantize_row_q8_0 has code of its own where there is AVX (ggml-cpu/arch/x86/quants.c).
  library.avx = !generic && wanted != "x64" && wanted != "sse42";
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
  const Library::Kernel& kernel = TheLibrary().Named(p.w_format);
  for (int64_t m = 0; m < p.y->dims[0]; ++m) {
    auto* const y = static_cast<float*>(p.y->data) + m * p.y->strides[0];
    const auto* const x = static_cast<const uint8_t*>(p.x_packed) + m * p.x_row_bytes;
    for (int64_t n = 0; n < p.y->dims[1]; ++n)
      kernel.dot(static_cast<int>(p.k_packed), y + n, 0,
                 static_cast<const uint8_t*>(p.w_packed) + n * p.w_row_bytes, 0, x, 0, 1);
  }
}

// What a block of the formats of Quantizes has.
struct Block {
  float scale = 0, minimum = 0;
  std::vector<int32_t> codes;
};

float ValueOfHalf(const uint8_t* bytes) {
  const int bits = bytes[0] | bytes[1] << 8;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                     : exponent == 31
                         ? HUGE_VALF
                         : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

Block ReadBlock(const qualm::WeightFormat& format, const uint8_t*& bytes) {
  Block block;
  block.codes.resize(static_cast<size_t>(format.block));
  for (const qualm::BlockPart& part : format.parts) {
    if (part.of != qualm::BlockPart::Of::kCodeBits) {
      (part.of == qualm::BlockPart::Of::kScale ? block.scale : block.minimum) = ValueOfHalf(bytes);
      bytes += 2;
      continue;
    }
    for (int i = 0; i < format.block; ++i)
      block.codes[static_cast<size_t>(i)] |=
          (bytes[part.Byte(i)] >> part.Shift(i) & ((1 << part.bits) - 1)) << part.from;
    bytes += format.block * part.bits / 8;
  }
  if (format.name == "q8_0")
    for (int32_t& code : block.codes) code = static_cast<int8_t>(code);
  return block;
}

// To the nearest f16.
float RoundedToHalf(float value) {
  const int unit = value == 0 ? 0 : std::max(std::ilogb(value) - 10, -24);
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

// The case has the scale and the minimum that ggml chooses. What is stored is tested too, but where
// the caller rounds in another way.
void RequireStored(const qualm::WeightFormat& format, const Block& block, float scale,
                   float minimum, const float* x) {
  if (std::fegetround() != FE_TONEAREST) return;
  const auto [least, largest] = std::minmax_element(x, x + format.block);
  const bool none = *least == *largest && (format.minima || *least == 0);
  const float expected = none ? 0 : RoundedToHalf(scale);
  if (block.scale == expected && block.minimum == RoundedToHalf(minimum)) return;
  throw Refusal{QUALM_FAILED, "stored the scale " + std::to_string(block.scale) +
                                  " and the minimum " + std::to_string(block.minimum) +
                                  ", expected " + std::to_string(expected) + " and " +
                                  std::to_string(RoundedToHalf(minimum))};
}

void SetCode(const qualm_tensor& y, int64_t row, int64_t column, int32_t code) {
  const int64_t at = row * y.strides[0] + column;
  if (y.dtype != QUALM_U4) {
    static_cast<uint8_t*>(y.data)[at] = static_cast<uint8_t>(code);
    return;
  }
  uint8_t& byte = static_cast<uint8_t*>(y.data)[at / 2];
  byte = static_cast<uint8_t>(at % 2 == 0 ? (byte & 0xF0) | code : (byte & 0x0F) | code << 4);
}

void RunQuantize(const qualm_problem& p) {
  const Library::Kernel& kernel = TheLibrary().Named(p.w_format);
  const qualm::WeightFormat& format = *kernel.format;
  const int64_t rows = p.x->dims[0], columns = p.x->dims[1], size = format.block;
  std::vector<float> filled(static_cast<size_t>(p.k_packed));
  std::vector<uint8_t> stored(filled.size() * 2);
  size_t entry = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = static_cast<const float*>(p.x->data) + row * p.x->strides[0];
    if (columns < p.k_packed) {  // with what changes no end of a block
      std::copy(x, x + columns, filled.begin());
      std::fill(filled.begin() + columns, filled.end(), x[columns - 1 - (columns - 1) % size]);
      x = filled.data();
    }
    kernel.quantize(x, stored.data(), p.k_packed);
    const uint8_t* bytes = stored.data();
    for (int64_t first = 0; first < p.k_packed; first += size, ++entry) {
      const Block block = ReadBlock(format, bytes);
      const float scale = p.out_q.scale[entry];
      const float minimum =
          format.minima ? -scale * static_cast<float>(p.out_q.zero_point[entry]) : 0;
      RequireStored(format, block, scale, minimum, x + first);
      for (int64_t n = first; n < std::min(first + size, columns); ++n)
        SetCode(*p.y, row, n, block.codes[static_cast<size_t>(n - first)]);
    }
  }
}

void RunDequantize(const qualm_problem& p) {
  const Library::Kernel& kernel = TheLibrary().Named(p.w_format);
  const int64_t rows = p.y->dims[0], columns = p.y->dims[1];
  std::vector<float> filled(static_cast<size_t>(p.k_packed));
  for (int64_t row = 0; row < rows; ++row) {
    float* const y = static_cast<float*>(p.y->data) + row * p.y->strides[0];
    float* const whole = columns < p.k_packed ? filled.data() : y;
    kernel.dequantize(static_cast<const uint8_t*>(p.w_packed) + row * p.w_row_bytes, whole,
                      p.k_packed);
    if (whole != y) std::copy(whole, whole + columns, y);
  }
}

int32_t Run(const qualm_problem* problem) {
  return qualm::plugin::Answer([&] {
    switch (problem->op) {
      case QUALM_QUANTIZE: return RunQuantize(*problem);
      case QUALM_DEQUANTIZE: return RunDequantize(*problem);
      default: return RunLinear(*problem);
    }
  });
}

// Of an operation that the kernels of all formats have, or of none.
const qualm_capability* CapabilityOf(bool (*has)(const Library::Kernel&)) {
  const auto& kernels = TheLibrary().kernels;
  if (!std::ranges::all_of(kernels, has)) return nullptr;
  static const std::string formats = [&] {
    std::string names;
    for (const Library::Kernel& kernel : kernels) names += std::string(kernel.format->name) + " ";
    return names;
  }();
  static const qualm_capability capability = [] {
    qualm_capability c{};
    c.size = sizeof c;
    if (!formats.empty()) c.w_formats = formats.c_str();
    c.features = QUALM_CAN_EMPTY | QUALM_CAN_STRIDES;
    return c;
  }();
  return &capability;
}

const qualm_capability* Capability(int32_t op) {
  switch (op) {
    case QUALM_LINEAR:
      return CapabilityOf([](const Library::Kernel& kernel) { return kernel.dot != nullptr; });
    case QUALM_QUANTIZE:
      return CapabilityOf([](const Library::Kernel& kernel) { return kernel.quantize != nullptr; });
    case QUALM_DEQUANTIZE:
      return CapabilityOf(
          [](const Library::Kernel& kernel) { return kernel.dequantize != nullptr; });
    default: return nullptr;
  }
}

}  // namespace

extern "C" const qualm_plugin* qualm_plugin_entry(void) {
  const Library& library = TheLibrary();
  const bool apart = !library.kernels.empty() && library.kernels.front().format->offsets_apart;
  static const std::string contract = std::string(apart ? "sum+offsets" : "sum") +
                                      ",quantize=model:ggml@" + (library.avx ? "avx" : "c") +
                                      ",dequantize=exact";
  static const qualm_plugin plugin = {
      .size = sizeof(qualm_plugin),
      .abi_version = QUALM_ABI_VERSION,
      .reserved = 0,
      .name = "ggml",
      .version = library.version.c_str(),
      .contract = contract.c_str(),
      .instruction_set = library.instruction_set.empty() ? "none" : library.instruction_set.c_str(),
      .capability = Capability,
      .run = Run,
      .last_error = qualm::plugin::LastErrorText};
  return &plugin;
}
