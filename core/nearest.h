// SPDX-License-Identifier: Apache-2.0
// "did you mean": which known name a mistyped one is closest to.
#ifndef QUALM_CORE_NEAREST_H_
#define QUALM_CORE_NEAREST_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace qualm {

// Levenshtein distance in half steps: 2 for an insertion, a deletion or a substitution, 1 where
// only the case of a letter differs (so that "m" is closer to "M" than to "w").
size_t EditDistance(std::string_view a, std::string_view b);

// The first of the closest names; "" if there are none.
std::string_view NearestName(std::string_view name, std::span<const std::string_view> known);
// ", nearest is 'NAME'"; "" where nothing was mistyped, because most of the `letters` differ.
std::string NearestText(std::string_view name, std::span<const std::string_view> known,
                        size_t letters);

}  // namespace qualm

#endif  // QUALM_CORE_NEAREST_H_
