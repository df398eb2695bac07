// SPDX-License-Identifier: Apache-2.0
#include "report/copies.h"

#include <fmt/format.h>

#include "core/finding.h"
#include "core/finding_kind.h"
#include "core/io/case_json.h"
#include "core/io/shell_word.h"
#include "core/status.h"
#include "exporters/exporter.h"
#include "report/words.h"

namespace qualm::report {
namespace {

constexpr size_t kMostOfACase = size_t{24} << 10;

// The texts that exporters make of the case; none if the case has no answer.
Blocks ExportsOf(const RecordedFinding& recorded, const Case& c, const RunFacts& run) {
  Finding finding(c, recorded.claim, WithoutFolders(recorded.subject), Verdict::Failed(""));
  finding.kind = ParseFindingKind(recorded.kind).value_or(FindingKind::kUnknown);
  finding.explanation = WithoutFolders(recorded.explanation);
  const exporters::Environment environment{
      .qualm = run.version,
      .processor = run.processor,
      .command = "qualm explain case.json --subject " + ShellWord(finding.subject)};
  Blocks exports;
  for (const exporters::Exporter& exporter : exporters::AllExporters()) {
    if (exporter.folder) continue;
    try {
      const NamedTexts files = exporters::Export(exporter.kind, c, finding, environment);
      exports.push_back(
          Fold{Code(std::string(exporter.kind)) + (": " + std::string(exporter.sentence)),
               "",
               {Verbatim{files.front().second, "copy " + files.front().first}}});
    } catch (const InputError&) {
      continue;  // the exporter cannot express this case
    }
  }
  return exports;
}

}  // namespace

Blocks CopiesOf(const RecordedFinding& finding, const std::optional<Case>& c,
                const std::string& file, const RunFacts& run, const std::string& place) {
  const std::string subject = ShellWord(file.empty() ? WithoutFolders(finding.subject)
                                                     : SubjectFrom(place, finding.subject));
  const bool whole = c && CaseToJson(*c).size() <= kMostOfACase;
  const std::string path = !file.empty() ? file : whole ? "case.json" : "CASE";
  Blocks copies{
      Paragraph{Text(!file.empty() ? "What to type, in the folder of this page:"
                     : whole       ? "What to type, beside a file case.json with the case:"
                                   : "What to type, with the file of the case:")},
      Verbatim{fmt::format("qualm explain {0} --subject {1}\nqualm replay {0} --subject {1}",
                           ShellWord(path), subject),
               "copy the commands"}};
  // The exporters begin with the case file; they need an answer.
  if (whole && c->observed) Append(copies, ExportsOf(finding, *c, run));
  if (whole && !c->observed)
    copies.push_back(
        Fold{Text("The case, case.json"), "", {Verbatim{CaseToJson(*c), "copy case.json"}}});
  copies.push_back(
      Paragraph{Text(whole ? "The evidence of this run: " : "The case is large; it lies in ") +
                Code(WithoutFolders(finding.case_file.empty() ? "findings/" + finding.fingerprint
                                                              : finding.case_file)) +
                ", fingerprint " + Code(finding.fingerprint) + "."});
  return copies;
}

}  // namespace qualm::report
