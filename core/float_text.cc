// SPDX-License-Identifier: Apache-2.0
#include "core/float_text.h"

#include <algorithm>
#include <array>
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
  const char* const begin = split.digits.data();
  const char* const end = begin + split.digits.size();
  const auto [stop, error] = std::from_chars(
      begin, end, value, split.hex ? std::chars_format::hex : std::chars_format::general);
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

int HexDigit(char ch) {
  if (ch >= '0' && ch <= '9') return ch - '0';
  if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
  if (ch >= 'A' && ch <= 'F') return ch - 'A' + 10;
  return -1;
}

// Exact or nothing. from_chars would round digits past the 53rd bit away without a word.
std::optional<float> ExactHexFloat(const Split& split) {
  constexpr int64_t kFar = 1 << 20;  // far past any float32 exponent
  uint64_t mantissa = 0;
  int64_t exponent = 0;
  bool fraction = false, digits = false;
  size_t at = 0;
  for (; at < split.digits.size(); ++at) {
    const char ch = split.digits[at];
    if (ch == '.' && !fraction) {
      fraction = true;
      continue;
    }
    const int digit = HexDigit(ch);
    if (digit < 0) break;
    digits = true;
    if (mantissa >> 60 == 0) {
      mantissa = mantissa * 16 + static_cast<uint64_t>(digit);
      if (fraction) exponent -= 4;
    } else {
      if (digit != 0) return std::nullopt;  // more than 24 bits apart
      if (!fraction) exponent += 4;
    }
  }
  if (!digits) return std::nullopt;
  if (at < split.digits.size()) {
    if (split.digits[at] != 'p' && split.digits[at] != 'P') return std::nullopt;
    std::string_view text = split.digits.substr(at + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    if (text.starts_with('+') || text.empty()) return std::nullopt;
    int32_t power = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), power);
    if (stop != text.data() + text.size() || error == std::errc::invalid_argument) {
      return std::nullopt;
    }
    if (mantissa != 0 && (error != std::errc() || power > kFar || power < -kFar)) {
      return std::nullopt;
    }
    exponent += power;
  }
  if (mantissa == 0) return split.negative ? -0.0f : 0.0f;
  const int zeros = std::countr_zero(mantissa);
  mantissa >>= zeros;
  exponent += zeros;
  const int bits = std::bit_width(mantissa);
  if (bits > 24 || exponent < -149 || exponent + bits > 128) return std::nullopt;
  const float value = std::ldexp(static_cast<float>(mantissa), static_cast<int>(exponent));
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

std::string ShortestDecimal(float value) {
  if (!std::isfinite(value)) return FloatText(value);
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

std::string WithDecimals(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t at = std::min(text.find("0x"), text.size());
    result += text.substr(0, at);
    text.remove_prefix(at);
    // A hex float has digits and a point, then its exponent.
    const size_t power = std::min(text.find_first_not_of("0123456789abcdefx."), text.size());
    size_t end = power;
    if (power + 1 < text.size() && text[power] == 'p' &&
        (text[power + 1] == '+' || text[power + 1] == '-')) {
      end = std::min(text.find_first_not_of("0123456789", power + 2), text.size());
    }
    const std::string_view word = text.substr(0, end);
    result += word;
    text.remove_prefix(end);
    if (end == power) continue;
    const bool negative = result.ends_with("-" + std::string(word));
    const std::string sign = negative ? "-" : "";
    std::string decimal;
    if (const std::optional<float> value = ParseFloatText(word)) {
      decimal = " (" + sign + ShortestDecimal(*value) + ")";
    } else if (const std::optional<double> wide = ParseDoubleText(word)) {
      char buffer[32];
      char* const stop = std::to_chars(buffer, buffer + sizeof buffer, *wide).ptr;
      decimal = " (" + sign + std::string(buffer, stop) + ")";
    }
    if (!text.starts_with(decimal)) result += decimal;
  }
  return result;
}

std::optional<Decimal> ParseDecimal(std::string_view text) {
  constexpr size_t kMost = 40;
  if (text.size() > kMost) return std::nullopt;
  Decimal decimal;
  decimal.negative = text.starts_with('-');
  if (decimal.negative) text.remove_prefix(1);
  const auto take_digits = [&text] {
    const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view digits = text.substr(0, count);
    text.remove_prefix(count);
    return digits;
  };
  decimal.digits = take_digits();
  if (decimal.digits.empty()) return std::nullopt;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const std::string_view fraction = take_digits();
    if (fraction.empty()) return std::nullopt;
    decimal.digits += fraction;
    decimal.exponent = -static_cast<int>(fraction.size());
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    const bool down = text.starts_with('-');
    if (down || text.starts_with('+')) text.remove_prefix(1);
    const std::string_view power = take_digits();
    if (power.empty() || power.size() > 2) return std::nullopt;
    int value = 0;
    std::from_chars(power.begin(), power.end(), value);
    decimal.exponent += down ? -value : value;
  }
  return text.empty() ? std::optional(decimal) : std::nullopt;
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
  return split->hex ? ExactHexFloat(*split) : FromChars<float>(*split);
}

std::optional<double> ParseDoubleText(std::string_view text) {
  const std::optional<Split> split = SplitNumber(text);
  return split ? FromChars<double>(*split) : std::nullopt;
}

std::string DoubleText(double value) {
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), "%a", value);
  return text.data();
}

}  // namespace qualm
