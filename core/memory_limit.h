// SPDX-License-Identifier: Apache-2.0
// How much memory a process with foreign code may have.
#ifndef QUALM_CORE_MEMORY_LIMIT_H_
#define QUALM_CORE_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace qualm {

// Says it to all processes of a run, those of a campaign's engines too.
inline constexpr const char* kMemoryLimitVariable = "QUALM_MEMORY_LIMIT";

// Bytes from "512M", "4G" or plain bytes. Throws InputError "WHERE: ..." where that is none, or
// where no plugin would load in it.
uint64_t ParseMemoryLimit(std::string_view text, const std::string& where);

}  // namespace qualm

#endif  // QUALM_CORE_MEMORY_LIMIT_H_
