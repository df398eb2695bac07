// SPDX-License-Identifier: Apache-2.0
// Five questions from PyTorch's forum (corpus/forum), answered: why does my quantized model compute
// that number? The numbers are computed while the page is made, from the cases and the named
// conventions alone, so they are the same on every machine. Only answers of libraries come from an
// audit.
#ifndef QUALM_REPORT_FORUM_H_
#define QUALM_REPORT_FORUM_H_

#include <string>
#include <vector>

#include "core/case.h"
#include "core/io/result_reader.h"
#include "report/document.h"

namespace qualm::report {

// Cases by their names in corpus/forum: "000-linear-sweep".
class ForumCases {
 public:
  explicit ForumCases(std::string corpus) : corpus_(std::move(corpus)) {}
  bool Has(const std::string& name) const;
  Case Read(const std::string& name) const;

 private:
  std::string PathOf(const std::string& name) const;
  std::string corpus_;
};

// One thread each: its question and the answer.
Blocks Thread000(const ForumCases& cases);
Blocks Thread001(const ForumCases& cases);
Blocks Thread002(const ForumCases& cases);
Blocks Thread003(const ForumCases& cases);
Blocks Thread004(const ForumCases& cases);

// The outputs of the subjects of a run on the layer of thread 003, as it was and repaired.
Blocks RepairedOnSubjects(const std::vector<RecordedRepair>& repairs);

// All threads whose cases are in the corpus, as folded sections of a page, with the repairs that
// the run tried.
Blocks ForumSections(const std::string& corpus, const ResultRecord& run);

// The same as a page of Markdown, and its pictures as files beside it: writes FOLDER/forum.md and
// FOLDER/forum/*.svg. Throws InputError where a case is missing.
void WriteForumPage(const std::string& corpus, const std::string& folder);

}  // namespace qualm::report

#endif  // QUALM_REPORT_FORUM_H_
