// SPDX-License-Identifier: Apache-2.0
#include "core/io/arrays.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/io/json_text.h"
#include "core/io/strict_json.h"
#include "core/status.h"

namespace qualm {
namespace {

static_assert(std::endian::native == std::endian::little, "these files are little-endian");

constexpr size_t kMaxHeader = size_t{1} << 26;
constexpr size_t kMaxRank = 8;

struct TypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<TypeName, 6> kTypes{{{DType::kS8, "I8"},
                                          {DType::kU8, "U8"},
                                          {DType::kS32, "I32"},
                                          {DType::kF32, "F32"},
                                          {DType::kS16, "I16"},
                                          {DType::kU16, "U16"}}};

[[noreturn]] void Fail(std::string_view name, const std::string& what) {
  throw InputError(OneLine(name) + ": " + what);
}

// One entry of the header of a .safetensors file.
struct Entry {
  std::string_view dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // of its bytes, behind the header
};

Entry EntryOf(const JsonNode& node, int64_t data) {
  node.RequireKeys({"dtype", "shape", "data_offsets"});
  Entry entry;
  entry.dtype = node.At("dtype", "a type").Text();
  const JsonNode shape = node.At("shape", "a list of dimensions");
  if (shape.SizeOfList() > kMaxRank) shape.Fail("has too many dimensions, expected at most 8");
  for (size_t i = 0; i < shape.SizeOfList(); ++i) {
    entry.shape.push_back(shape.At(i).Integer(0, INT64_MAX));
  }
  const JsonNode offsets = node.At("data_offsets", "[begin, end]");
  if (offsets.SizeOfList() != 2) offsets.Fail("has another length, expected [begin, end]");
  entry.end = offsets.At(1).Integer(0, data);
  entry.begin = offsets.At(0).Integer(0, entry.end);
  return entry;
}

// Floats of 16 bits, which float32 holds exactly.
float OfHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F, mantissa = bits & 0x3FF;
  const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
  if (exponent == 0x1F)
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  const int normal = exponent == 0 ? 0 : 0x400;
  return sign * std::ldexp(static_cast<float>(mantissa + normal), std::max(exponent, 1) - 25);
}
float OfBfloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// The same numbers as bytes of float32.
std::string Widened(std::string_view bytes, float (*convert)(uint16_t), std::string_view name) {
  if (bytes.size() % 2 != 0)
    Fail(name, "shape: has elements of 2 bytes, expected an even number of bytes");
  std::string wide;
  wide.reserve(2 * bytes.size());
  for (size_t i = 0; i < bytes.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i, sizeof bits);
    const float value = convert(bits);
    wide.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return wide;
}

}  // namespace

Tensor TensorOfBytes(DType dtype, const std::vector<int64_t>& shape, std::string_view bytes,
                     std::string_view name) {
  const int64_t count = ElementCount(shape, kMaxArray);
  if (count < 0 || std::ranges::any_of(shape, [](int64_t d) { return d < 0; })) {
    Fail(name, "shape: has a negative dimension or more than 2^28 elements, expected fewer");
  }
  if (bytes.size() != BytesFor(dtype, static_cast<size_t>(count))) {
    Fail(name, "shape: asks for " + std::to_string(BytesFor(dtype, static_cast<size_t>(count))) +
                   " bytes, expected the " + std::to_string(bytes.size()) + " that are there");
  }
  Tensor tensor(dtype, shape);
  if (!bytes.empty()) std::memcpy(tensor.bytes().data(), bytes.data(), bytes.size());
  return tensor;
}

std::string ReadBinaryFile(const std::string& path, size_t most) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > most) Fail(path, "file: is too long, expected a shorter one");
  return ReadPartOfFile(path, 0, std::nullopt);
}

std::string ReadPartOfFile(const std::string& path, uint64_t offset,
                           std::optional<uint64_t> length) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    Fail(path, "file: is no regular file, expected a readable one");
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) Fail(path, "file: has no size, expected a readable one");
  if (offset > size || length.value_or(0) > size - offset) {
    Fail(path, "file: has " + std::to_string(size) + " bytes, expected more");
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) Fail(path, std::string("file: cannot be opened (") + std::strerror(errno) + ")");
  std::string bytes(static_cast<size_t>(length.value_or(size - offset)), '\0');
  if (fseeko(file.get(), static_cast<off_t>(offset), SEEK_SET) != 0 ||
      std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) {
    Fail(path, "file: cannot be read to its end, expected a readable one");
  }
  return bytes;
}

std::vector<NamedArray> ParseSafetensors(std::string_view bytes, std::string_view name) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length) Fail(name, "file: is no .safetensors file, expected a header");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeader || length > bytes.size() - sizeof length) {
    Fail(name, "header: claims " + std::to_string(length) +
                   " bytes, expected at most 2^26 that are there");
  }
  const std::string_view data = bytes.substr(sizeof length + length);
  const nlohmann::json tree = ParseStrictJson(bytes.substr(sizeof length, length), name);
  const JsonNode top(tree, name);
  std::vector<std::pair<int64_t, NamedArray>> found;
  for (const std::string& key : top.Keys()) {
    if (key == "__metadata__") continue;
    Entry entry = EntryOf(top.At(key, "a tensor"), static_cast<int64_t>(data.size()));
    std::string_view content =
        data.substr(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.end - entry.begin));
    const std::string where = std::string(name) + ": " + (key.size() <= 80 ? key : Shown(key));
    std::string wide;
    const bool half = entry.dtype == "F16" || entry.dtype == "BF16";
    if (half) {
      content = wide = Widened(content, entry.dtype == "F16" ? OfHalf : OfBfloat, where);
      entry.dtype = "F32";
    }
    const auto* const type = std::ranges::find(kTypes, entry.dtype, &TypeName::name);
    if (type == kTypes.end()) continue;
    found.emplace_back(
        entry.begin,
        NamedArray{key, TensorOfBytes(type->dtype, entry.shape, content, where), half});
  }
  std::ranges::sort(found, [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.name) < std::tie(b.first, b.second.name);
  });
  std::vector<NamedArray> arrays;
  for (auto& [begin, array] : found) arrays.push_back(std::move(array));
  return arrays;
}

}  // namespace qualm
