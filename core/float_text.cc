// SPDX-License-Identifier: Apache-2.0
#include "core/float_text.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <system_error>

namespace qualm {
namespace {

// std::from_chars takes neither a leading '+' nor "0x"; the sign is handled here.
struct Split {
  bool negative = false;
  bool hex = false;
  std::string_view digits;
};

std::optional<Split> SplitNumber(std::string_view text) {
  Split split;
  if (text.starts_with('-')) {
    split.negative = true;
    text.remove_prefix(1);
  }
  if (text.starts_with("0x") || text.starts_with("0X")) {
    split.hex = true;
    text.remove_prefix(2);
  }
  if (text.empty() || text.front() == '-' || text.front() == '+') return std::nullopt;
  const char first = text.front();
  const bool digit =
      (first >= '0' && first <= '9') ||
      (split.hex && ((first >= 'a' && first <= 'f') || (first >= 'A' && first <= 'F')));
  if (!digit) return std::nullopt;  // no "nan", "infinity" through the number parser
  split.digits = text;
  return split;
}

template <class T>
std::optional<T> FromChars(const Split& split) {
  T value{};
  const char* end = split.digits.data() + split.digits.size();
  const auto [stop, error] =
      std::from_chars(split.digits.data(), end, value,
                      split.hex ? std::chars_format::hex : std::chars_format::general);
  if (stop != end) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // Underflow is a legal rounding to zero or a denormal; overflow is not a value.
    const std::string copy(split.digits);
    const double wide = std::strtod(((split.hex ? "0x" : "") + copy).c_str(), nullptr);
    if (!(wide < 1.0)) return std::nullopt;
    value = static_cast<T>(wide);
  } else if (error != std::errc()) {
    return std::nullopt;
  }
  return split.negative ? -value : value;
}

}  // namespace

std::string FloatText(float value) {
  if (std::isnan(value)) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "nan:%08x", std::bit_cast<uint32_t>(value));
    return buffer;
  }
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%a", static_cast<double>(value));
  return buffer;
}

std::optional<float> ParseFloatText(std::string_view text) {
  if (text == "inf") return std::numeric_limits<float>::infinity();
  if (text == "-inf") return -std::numeric_limits<float>::infinity();
  if (text.starts_with("nan:")) {
    const std::string_view hex = text.substr(4);
    uint32_t bits = 0;
    const auto [stop, error] = std::from_chars(hex.data(), hex.data() + hex.size(), bits, 16);
    if (hex.size() != 8 || error != std::errc() || stop != hex.data() + 8) return std::nullopt;
    const float value = std::bit_cast<float>(bits);
    return std::isnan(value) ? std::optional<float>(value) : std::nullopt;
  }
  const std::optional<Split> split = SplitNumber(text);
  if (!split) return std::nullopt;
  if (!split->hex) return FromChars<float>(*split);
  // Exact hex only: what was written down is what is read. Every float32 is a float64.
  const std::optional<double> wide = FromChars<double>(*split);
  if (!wide) return std::nullopt;
  const auto value = static_cast<float>(*wide);
  return static_cast<double>(value) == *wide ? std::optional<float>(value) : std::nullopt;
}

std::optional<double> ParseDoubleText(std::string_view text) {
  const std::optional<Split> split = SplitNumber(text);
  return split ? FromChars<double>(*split) : std::nullopt;
}

}  // namespace qualm
