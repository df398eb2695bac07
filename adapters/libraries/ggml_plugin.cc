// SPDX-License-Identifier: Apache-2.0
// ggml's CPU kernels (llama.cpp) as a plugin: linear with weights and activations in blocks, each
// output one call of ggml_vec_dot_FORMAT_X; quantize and dequantize of rows in blocks, each row one
// call of quantize_row_FORMAT, dequantize_row_FORMAT. s8 codes are q8_0, u4 codes are q4_0, x of
// linear is q8_0.
//
// QUALM_GGML_FOLDER holds one shared object for each instruction set, libggml-cpu-ISA.so, and
// QUALM_GGML names the one to load: "haswell". "+q5_0", "+q6_k" and so on behind it: the weights
// are codes of that format, which core/weight_formats.h lists. "+gemm" or "+gemv" behind a format:
// linear is one call of ggml_gemm_FORMAT_8x8_X for all rows of x, or of ggml_gemv for each, with
// weights that ggml has repacked by eight rows. With "+generic" at the end the
// kernels are their twins in plain C, which the same object has where there are others.
#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
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

using Repacked = void (*)(int n, float* s, size_t bs, const void* w, const void* x, int rows,
                          int columns);
using Quantize = void (*)(const float* x, void* blocks, int64_t n);
using Dequantize = void (*)(const void* blocks, float* y, int64_t n);

// ggml.h, of which repack reads the type, the sizes and the place of the data.
struct Tensor {
  int type = 0;
  void* buffer = nullptr;
  int64_t sizes[4] = {0, 0, 1, 1};
  size_t strides[4] = {};
  int op = 0, parameters[16] = {}, flags = 0;
  void* sources[10] = {};
  void* view = nullptr;
  size_t view_offset = 0;
  void* data = nullptr;
  char rest[80] = {};
};
using Repack = int (*)(Tensor* to, const void* rows, size_t bytes);

// enum ggml_type of kRepackedFormats.
constexpr int kTypes[] = {2, 20, 39, 10, 12};

struct Library {
  std::string instruction_set;  // "" where nothing could be loaded
  std::string version;
  bool avx = false;
  struct Kernel {
    const qualm::WeightFormat* format = nullptr;
    VecDot dot = nullptr;
    Quantize quantize = nullptr;
    Dequantize dequantize = nullptr;
    Repacked gemm = nullptr, gemv = nullptr;  // one of the two in the place of `dot`
    Repack repack = nullptr;
    int type = 0;
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

bool Quantizes(const qualm::WeightFormat* format) {
  return std::ranges::find(qualm::kQuantizedFormats, format) != qualm::kQuantizedFormats.end();
}

// Cuts this end off; false if the text has another one.
bool Cut(std::string& text, std::string_view end) {
  const bool has = text.ends_with(end);
  if (has) text.resize(text.size() - end.size());
  return has;
}

Library Load() {
  std::string wanted = Variable("QUALM_GGML");
  const bool generic = Cut(wanted, "+generic"), gemm = Cut(wanted, "+gemm");
  const bool repacked = gemm || Cut(wanted, "+gemv");
  std::vector<const qualm::WeightFormat*> formats{&qualm::kQ8_0, &qualm::kQ4_0};
  if (const size_t plus = wanted.find('+'); plus != std::string::npos) {
    const auto named =
        std::ranges::find(qualm::kWeightFormats, std::string_view(wanted).substr(plus + 1),
                          &qualm::WeightFormat::name);
    if (named == qualm::kWeightFormats.end()) return {};
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
  // What has no twin is plain C itself.
  const auto kernel_of = [&]<class Function>(Function*& function, const std::string& name) {
    if (generic) function = Symbol<Function*>(object, name + "_generic");
    if (function == nullptr) function = Symbol<Function*>(object, name);
    return function != nullptr;
  };
  Library library;
  for (const qualm::WeightFormat* format : formats) {
    std::string of(format->name);
    if (of.ends_with('k')) of.back() = 'K';
    const std::string x(qualm::NameOfActivations(*format));
    Library::Kernel kernel{.format = format};
    if (repacked) {
      const auto* const row = std::ranges::find(qualm::kRepackedFormats, format);
      if (row == qualm::kRepackedFormats.end()) return {};
      kernel.type = kTypes[row - qualm::kRepackedFormats.begin()];
      // ggml::cpu::repack::repack<block_FORMAT, 8, 8>(ggml_tensor*, const void*, size_t)
      const std::string block = "block_" + of;
      kernel.repack =
          Symbol<Repack>(object, "_ZN4ggml3cpu6repack6repackI" + std::to_string(block.size()) +
                                     block + "Ll8ELl8EEEiP11ggml_tensorPKvm");
      const std::string name = std::string(gemm ? "ggml_gemm_" : "ggml_gemv_") + of + "_8x8_" + x;
      if (kernel.repack == nullptr || !kernel_of(gemm ? kernel.gemm : kernel.gemv, name)) return {};
    } else {
      if (!kernel_of(kernel.dot, "ggml_vec_dot_" + of + "_" + x)) return {};
      if (Quantizes(format)) kernel_of(kernel.quantize, "quantize_row_" + of);
      kernel.dequantize = Symbol<Dequantize>(object, "dequantize_row_" + of);
    }
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

struct alignas(64) Line {
  uint8_t bytes[64];
};
// Zeros, as ggml allocates them.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : lines_(static_cast<size_t>(bytes + 63) / 64) {}
  uint8_t* data() { return lines_.data()->bytes; }

 private:
  std::vector<Line> lines_;
};

int64_t UpTo(int64_t multiple, int64_t size) { return (size + multiple - 1) / multiple * multiple; }

// Four rows of x in turn: their scales, codes by eight, and of q8_K the sums of sixteen codes by
// four (ggml src/ggml-cpu/repack.cpp, ggml_quantize_mat_q8_0_4x8_generic and q8_K).
void AppendInTurn(const qualm::WeightFormat& format, const uint8_t* rows, int64_t row_bytes,
                  uint8_t*& to) {
  const bool super = format.x == qualm::BlockActivations::kQ8K;
  const int scale = super ? 4 : 2, codes = super ? 256 : 32, sums = super ? 16 : 0;
  const int64_t block_bytes = scale + codes + 2 * sums;
  for (const uint8_t* block = rows; block < rows + row_bytes; block += block_bytes) {
    const auto put = [&](int offset, int first, int count, int bytes) {
      for (int at = first; at < first + count; at += bytes) {
        for (int row = 0; row < 4; ++row)
          to = std::copy_n(block + row * row_bytes + offset + at, bytes, to);
      }
    };
    put(0, 0, scale, scale);
    put(scale, 0, codes, 8);
    put(scale + codes, 0, 2 * sums, 8);
  }
}

void RunRepacked(const qualm_problem& p, const Library::Kernel& kernel) {
  const int64_t rows = p.y->dims[0], columns = p.y->dims[1];
  if (rows == 0 || columns == 0) return;
  const int64_t all_rows = UpTo(4, rows), all_columns = UpTo(8, columns);
  const int64_t w_bytes = all_columns * p.w_row_bytes;
  Buffer w(w_bytes), w8(w_bytes), y(all_rows * all_columns * 4);
  std::copy_n(static_cast<const uint8_t*>(p.w_packed), columns * p.w_row_bytes, w.data());
  Tensor tensor{.type = kernel.type, .sizes = {p.k_packed, all_columns, 1, 1}, .data = w8.data()};
  if (kernel.repack(&tensor, w.data(), static_cast<size_t>(w_bytes)) != 0)
    throw Refusal{QUALM_FAILED, "repack does not take these sizes"};
  auto* const sums = reinterpret_cast<float*>(y.data());
  const int depth = static_cast<int>(p.k_packed), n = static_cast<int>(all_columns);
  const auto* const x = static_cast<const uint8_t*>(p.x_packed);
  const auto stride = static_cast<size_t>(all_columns);
  if (kernel.gemm != nullptr) {
    Buffer filled(all_rows * p.x_row_bytes), x4(all_rows * p.x_row_bytes);
    std::copy_n(x, rows * p.x_row_bytes, filled.data());
    uint8_t* to = x4.data();
    for (int64_t row = 0; row < all_rows; row += 4)
      AppendInTurn(*kernel.format, filled.data() + row * p.x_row_bytes, p.x_row_bytes, to);
    kernel.gemm(depth, sums, stride, w8.data(), x4.data(), static_cast<int>(all_rows), n);
  } else {
    for (int64_t row = 0; row < rows; ++row)
      kernel.gemv(depth, sums + row * all_columns, stride, w8.data(), x + row * p.x_row_bytes, 1,
                  n);
  }
  for (int64_t row = 0; row < rows; ++row)
    std::copy_n(sums + row * all_columns, columns,
                static_cast<float*>(p.y->data) + row * p.y->strides[0]);
}

void RunLinear(const qualm_problem& p) {
  const Library::Kernel& kernel = TheLibrary().Named(p.w_format);
  if (kernel.dot == nullptr) return RunRepacked(p, kernel);
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
      return CapabilityOf([](const Library::Kernel& kernel) {
        return kernel.dot != nullptr || kernel.repack != nullptr;
      });
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
