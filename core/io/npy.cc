// SPDX-License-Identifier: Apache-2.0
#include "core/io/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/io/arrays.h"
#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm {
namespace {

static_assert(std::endian::native == std::endian::little, "'<' stands for the machine's order");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeader = 4096;  // three short entries and padding
constexpr size_t kMaxRank = 8;

struct TypeName {
  DType dtype;
  std::string_view descr;
};
constexpr std::array<TypeName, 6> kTypes{{{DType::kS8, "|i1"},
                                          {DType::kU8, "|u1"},
                                          {DType::kS32, "<i4"},
                                          {DType::kF32, "<f4"},
                                          {DType::kS16, "<i2"},
                                          {DType::kU16, "<u2"}}};

// The header: a Python dictionary of three entries.
class Header {
 public:
  Header(std::string_view text, std::string_view name) : text_(text), name_(name) { Read(); }

  std::string_view descr;
  std::string_view fortran_order;
  std::vector<int64_t> shape;

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw InputError(OneLine(name_) + ": header: " + what);
  }
  void SkipSpace() { at_ = std::min(text_.find_first_not_of(" \n", at_), text_.size()); }
  bool Take(char ch) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != ch) return false;
    ++at_;
    return true;
  }
  void Expect(char ch) {
    if (!Take(ch)) Fail(std::string("lacks '") + ch + "', expected what numpy.save writes");
  }
  std::string_view Until(std::string_view ends) {
    SkipSpace();
    const size_t begin = at_;
    at_ = std::min(text_.find_first_of(ends, begin), text_.size());
    return text_.substr(begin, at_ - begin);
  }
  std::string_view Quoted() {
    Expect('\'');
    const std::string_view word = Until("'");
    Expect('\'');
    return word;
  }
  int64_t Dimension() {
    const std::string_view digits = Until(", )");
    int64_t value = -1;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
    if (error != std::errc() || end != digits.end() || value < 0) {
      Fail("has the dimension " + Shown(digits) + ", expected an integer from 0 on");
    }
    return value;
  }
  void ReadShape() {
    Expect('(');
    while (!Take(')')) {
      if (shape.size() == kMaxRank) Fail("has too many dimensions, expected at most 8");
      shape.push_back(Dimension());
      if (!Take(',')) {
        Expect(')');
        return;
      }
    }
  }
  void Read() {
    Expect('{');
    while (!Take('}')) {
      const std::string_view key = Quoted();
      Expect(':');
      if (key == "descr" && descr.empty()) {
        descr = Quoted();
      } else if (key == "fortran_order" && fortran_order.empty()) {
        fortran_order = Until(",} ");
      } else if (key == "shape" && !has_shape_) {
        ReadShape();
        has_shape_ = true;
      } else {
        Fail("has the entry " + Shown(key) + ", expected descr, fortran_order and shape once each");
      }
      Take(',');
    }
    SkipSpace();
    if (descr.empty() || fortran_order.empty() || !has_shape_ || at_ != text_.size()) {
      Fail("is incomplete, expected descr, fortran_order and shape");
    }
  }

  std::string_view text_;
  std::string_view name_;
  size_t at_ = 0;
  bool has_shape_ = false;
};

// The same elements with the last index running fastest; in `columns` the first one does.
Tensor RowMajor(const Tensor& columns) {
  const std::vector<int64_t>& shape = columns.shape();
  Tensor rows(columns.dtype(), shape);
  const size_t size = SizeOf(columns.dtype());
  std::vector<int64_t> index(shape.size());
  for (int64_t to = 0; to < rows.size(); ++to) {
    int64_t from = 0;
    for (size_t axis = shape.size(); axis-- > 0;) from = from * shape[axis] + index[axis];
    std::memcpy(rows.bytes().data() + static_cast<size_t>(to) * size,
                columns.bytes().data() + static_cast<size_t>(from) * size, size);
    for (size_t axis = shape.size(); axis-- > 0 && ++index[axis] == shape[axis];) index[axis] = 0;
  }
  return rows;
}

}  // namespace

Tensor ParseNpy(std::string_view bytes, std::string_view name) {
  const auto fail = [&](const std::string& what) { throw InputError(OneLine(name) + ": " + what); };
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(bytes[at])); };
  if (!bytes.starts_with(kMagic) || bytes.size() < 12) {
    fail("file: is no .npy file, expected what numpy.save writes");
  }
  const size_t version = byte(6);
  if (version < 1 || version > 3) {
    fail("version: is " + std::to_string(version) + ", expected 1, 2 or 3");
  }
  const size_t begin = version == 1 ? 10 : 12;
  const size_t length =
      byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (length > kMaxHeader || length > bytes.size() - begin) {
    fail("header: claims " + std::to_string(length) +
         " bytes, expected at most 4096 that are there");
  }
  const Header header(bytes.substr(begin, length), name);
  const auto* const type = std::ranges::find_if(kTypes, [&](const TypeName& row) {
    return row.descr.substr(1) == header.descr.substr(header.descr.find_first_not_of("|<="));
  });
  if (type == kTypes.end()) {
    fail("descr: is " + Shown(header.descr) +
         ", expected int8, uint8, int16, uint16, int32 or float32");
  }
  if (header.fortran_order != "False" && header.fortran_order != "True") {
    fail("fortran_order: is " + Shown(header.fortran_order) + ", expected False or True");
  }
  Tensor tensor = TensorOfBytes(type->dtype, header.shape, bytes.substr(begin + length), name);
  return header.fortran_order == "True" ? RowMajor(tensor) : tensor;
}

std::string NpyOf(const Tensor& tensor) {
  std::string shape;
  for (const int64_t dimension : tensor.shape()) shape += std::to_string(dimension) + ", ";
  std::string_view descr;
  for (const TypeName& row : kTypes) {
    if (row.dtype == tensor.dtype()) descr = row.descr;
  }
  QUALM_CHECK(!descr.empty());
  std::string header =
      "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  // The data begins at a multiple of 64 bytes, behind the newline that ends the header.
  header.resize((kMagic.size() + 4 + header.size() + 1 + 63) / 64 * 64 - kMagic.size() - 5, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes +=
      {'\1', '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size());
  return bytes;
}

}  // namespace qualm
