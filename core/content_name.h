// SPDX-License-Identifier: Apache-2.0
// File names made of the contents: equal contents have one name on every machine, so folders of
// such files merge by copying.
#ifndef QUALM_CORE_CONTENT_NAME_H_
#define QUALM_CORE_CONTENT_NAME_H_

#include <string>
#include <string_view>

namespace qualm {

// 32 hexadecimal digits: FNV-1a with 128 bits.
std::string ContentName(std::string_view bytes);
// 16 hexadecimal digits: FNV-1a with 64 bits, for checks and for the end of a longer name.
std::string ShortContentName(std::string_view bytes);

}  // namespace qualm

#endif  // QUALM_CORE_CONTENT_NAME_H_
