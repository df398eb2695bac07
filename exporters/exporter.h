// SPDX-License-Identifier: Apache-2.0
// A case that fails as something its reader can run without qualm: a program, a test, a model, the
// text of an issue. One file per kind; the table in exporter.cc is what `--emit` knows.
#ifndef QUALM_EXPORTERS_EXPORTER_H_
#define QUALM_EXPORTERS_EXPORTER_H_

#include <span>
#include <string>
#include <string_view>

#include "core/case.h"
#include "core/finding.h"
#include "core/io/text_file.h"

namespace qualm::exporters {

// The machine and versions of a finding. Empty members are left out of the text.
struct Environment {
  std::string qualm = {};            // version
  std::string library = {};          // version of the subject
  std::string instruction_set = {};  // that the subject used
  std::string processor = {};
  std::string command = {};  // that shows the finding again, with the case in case.json
};

struct Exporter {
  std::string_view kind;      // "cpp"
  std::string_view sentence;  // what is written, and what runs it
  bool folder = false;        // several files, not one text
};
std::span<const Exporter> AllExporters();

// The files, by their names; one unless the exporter writes a folder. The case carries the answer
// in `observed`. The finding says who gave the answer, and why it is wrong. Throws InputError
// "KIND: what the kind lacks" where it cannot express the case or the case has too many numbers.
NamedTexts Export(std::string_view kind, const Case& c, const Finding& finding,
                  const Environment& environment = {});

}  // namespace qualm::exporters

#endif  // QUALM_EXPORTERS_EXPORTER_H_
