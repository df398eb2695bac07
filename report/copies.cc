// SPDX-License-Identifier: Apache-2.0
#include "report/copies.h"

#include <fmt/format.h>

#include "core/io/case_json.h"
#include "report/words.h"

namespace qualm::report {
namespace {

constexpr size_t kMostOfACase = size_t{24} << 10;

// 'a b' for a shell.
std::string Quoted(const std::string& word) {
  if (word.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_") ==
          std::string::npos &&
      !word.empty())
    return word;
  std::string quoted = "'";
  for (const char ch : word) quoted += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
  return quoted + "'";
}

}  // namespace

Blocks CopiesOf(const RecordedFinding& finding, const std::optional<Case>& c) {
  const std::string subject = Quoted(WithoutFolders(finding.subject));
  const bool whole = c && CaseToJson(*c).size() <= kMostOfACase;
  const std::string file = whole ? "small.case.json" : "CASE";
  Blocks copies{Verbatim{
      fmt::format("qualm explain {0} --subject {1}\nqualm replay {0} --subject {1}", file, subject),
      "copy the commands"}};
  if (whole)
    copies.push_back(
        Fold{Text("The case, small.case.json"), "", {Verbatim{CaseToJson(*c), "copy the case"}}});
  copies.push_back(
      Paragraph{Text(whole ? "The evidence of this run: " : "The case is large; it lies in ") +
                Code(WithoutFolders(finding.case_file.empty() ? "findings/" + finding.fingerprint
                                                              : finding.case_file)) +
                ", fingerprint " + Code(finding.fingerprint) + "."});
  return copies;
}

}  // namespace qualm::report
