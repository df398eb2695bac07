// SPDX-License-Identifier: Apache-2.0
// Words and numbers as pages show them.
#ifndef QUALM_REPORT_WORDS_H_
#define QUALM_REPORT_WORDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/document.h"

namespace qualm::report {

std::string Number(int64_t value);                        // 3,521,522
std::string Count(int64_t count, std::string_view noun);  // "1 fault", "2 faults"
std::string List(const std::vector<std::string>& words);  // "a, b and c"
// "onednn" of "onednn@avx2"; "model:fbgemm" of "model:fbgemm@avx2+nofma".
std::string FamilyOf(const std::string& subject);
// Subjects by family: "onednn (avx2, sse41), gemmlowp".
std::string Subjects(const std::vector<std::string>& names);

// The text without folders of this machine: "/home/me/case.json" becomes "me/case.json".
std::string WithoutFolders(std::string_view text);
// The subject as a command in the folder `place` names it, where both that and a plugin's path are
// relative to the same folder: "plugin:./a.so" becomes "plugin:../a.so". Without other folders.
std::string SubjectFrom(const std::string& place, const std::string& subject);

// The text with decimal numbers in place of hex floats. The decimals give the same float32 back (of
// numbers that are none, the same float64): "0x1.8p+0" becomes "1.5".
std::string WithDecimals(const std::string& text);

// A kind of finding in words for somebody who meets it first: "two 8-bit products are added in
// ...".
std::string_view WordsOf(std::string_view kind);

// A sentence that names files and issues of other projects, with links to them.
Text WithUpstreamLinks(const std::string& reason);

}  // namespace qualm::report

#endif  // QUALM_REPORT_WORDS_H_
