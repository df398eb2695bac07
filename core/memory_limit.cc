// SPDX-License-Identifier: Apache-2.0
#include "core/memory_limit.h"

#include <charconv>
#include <string>
#include <system_error>

#include "core/status.h"

namespace qualm {

uint64_t ParseMemoryLimit(std::string_view text, const std::string& where) {
  constexpr uint64_t kLeast = uint64_t{64} << 20, kMost = uint64_t{1} << 40;
  uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string_view unit(end, static_cast<size_t>(last - end));
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit.empty() ? 0 : -1;
  const bool is_one = error == std::errc() && shift >= 0 && number <= kMost >> shift;
  if (!is_one || number << shift < kLeast) {
    throw InputError(where + ": '" + std::string(text) +
                     "' is no size of memory, expected 64M to 1024G, as 512M or 4G");
  }
  return number << shift;
}

}  // namespace qualm
