// SPDX-License-Identifier: Apache-2.0
#include "core/io/packed_array.h"

#include <zlib.h>

#include <algorithm>
#include <boost/archive/iterators/binary_from_base64.hpp>
#include <boost/archive/iterators/dataflow_exception.hpp>
#include <boost/archive/iterators/transform_width.hpp>

#include "core/status.h"

namespace qualm {
namespace {

// No stream of deflate's is longer than so many times its bytes (RFC 1951: 258 bytes in 2 bits).
constexpr size_t kMostPerByte = 1032;

std::string FromBase64(std::string_view text) {
  using boost::archive::iterators::binary_from_base64;
  using boost::archive::iterators::transform_width;
  const size_t whole = text.find_last_not_of('=') + 1;  // 0 if there is nothing else
  if (text.size() % 4 != 0 || text.size() - whole > 2 || whole % 4 == 1 ||
      std::ranges::find(text.substr(0, whole), '=') != text.substr(0, whole).end())
    throw InputError("not base64");
  std::string bytes(whole * 6 / 8, '\0');
  try {
    transform_width<binary_from_base64<const char*>, 8, 6> from(text.data());
    for (char& byte : bytes) byte = static_cast<char>(*from++);
  } catch (const boost::archive::iterators::dataflow_exception&) {
    throw InputError("not base64");
  }
  return bytes;
}

}  // namespace

std::string ToBase64(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < count ? bytes[at + i] : 0u);
    for (size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string Unpack(std::string_view text, size_t size) {
  const std::string packed = FromBase64(text);
  const InputError other("holds another number of bytes than dtype and shape say");
  if (size / kMostPerByte > packed.size()) throw InputError(other);
  std::string bytes(size + 1, '\0');  // one more, so that a longer stream is seen
  uLongf length = bytes.size();
  const int rc =
      uncompress(reinterpret_cast<Bytef*>(bytes.data()), &length,
                 reinterpret_cast<const Bytef*>(packed.data()), static_cast<uLong>(packed.size()));
  // zlib says Z_BUF_ERROR of a stream that is too long and of one that ends too early.
  if (rc == Z_BUF_ERROR || (rc == Z_OK && length != size)) throw InputError(other);
  if (rc != Z_OK) throw InputError("not zlib");
  bytes.resize(size);
  return bytes;
}

}  // namespace qualm
