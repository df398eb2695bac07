// SPDX-License-Identifier: Apache-2.0
// qualm report: the page of an output folder, made again from what lies in it.
#include "tools/report.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "core/executable.h"
#include "report/forum.h"
#include "report/page.h"
#include "tools/command.h"

namespace qualm::tools {

std::string CorpusFolder() { return InstalledData("corpus", QUALM_CORPUS_DIR); }

void AddReport(CLI::App& app, Run* run) {
  auto folder = std::make_shared<std::string>();
  auto forum = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("report", "rebuild the HTML report of an output folder");
  verb->footer("Example: qualm report build/report");
  verb->add_option("DIR", *folder, "output folder of qualm audit, check or fuzz")->required();
  verb->add_flag("--forum", *forum, "write the answers to forum threads into DIR/forum.md instead");
  verb->callback([folder, forum, run] {
    *run = [folder, forum] {
      if (*forum) {
        report::WriteForumPage(CorpusFolder(), *folder);
        return static_cast<int>(kClean);
      }
      Out(report::BuildReport(*folder, CorpusFolder()).path + "\n");
      return static_cast<int>(kClean);
    };
  });
}

}  // namespace qualm::tools
