// SPDX-License-Identifier: Apache-2.0
// detection FEEDER SUBJECT OP SEED CASES SECONDS [--diagnose]: how many cases a feeder needs until
// a property fails on a subject. bench/detection runs it on the planted faults. It prints one line
// of JSON:
//
//   {"cases": 12, "seconds": 0.03, "property": "matches_exact", "free_cases": 40,
//    "free_property": "k_order", "searched": 40, "kind": "tail", "cause": "last term dropped",
//    "codes": 5}
//
// `cases` and `seconds`: up to the first failure; 0 cases: none in the `searched` ones, which end
// at CASES or when SECONDS are over. `free`: the first failure of a property that compares with no
// oracle; only the feeder "drawn" goes on after the first failure to find it. With --diagnose the
// failing case is triaged and minimized as `qualm check` does it; `codes` counts the codes left.
//
// The feeders:
//   drawn      gen::Draw, as `qualm check` does
//   uniform    the same shapes and parameters, every code uniform: the theme "uniform" alone
//   blind      drawn cases that our mutations change, without feedback
//   distances  the same with the distances to saturation, overflow, ties and clamp as feedback
// Which of the dear properties judge a case is decided as in `qualm check` for the first two, and
// as in a fuzz target for the others.
//
// detection --list: a line of JSON for each planted fault: its operations, and the kind and the
// cause that are the right diagnosis.
//
// Exit status: 0, or 2 for bad usage.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/registry.h"
#include "core/case.h"
#include "core/finding.h"
#include "core/op.h"
#include "core/subject.h"
#include "fuzz/climber.h"
#include "fuzz/feedback.h"
#include "properties/adapt.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "tools/command.h"
#include "triage/causes.h"
#include "triage/triaged.h"

namespace {

using namespace qualm;

struct Question {
  Op op;
  uint64_t seed;
  int64_t cases;
  double seconds;
  bool diagnose;
};

struct Fed {
  Case c;
  std::optional<uint64_t> drawn;  // the seed of a drawn case
};
using Next = std::function<Fed()>;

Next Drawn(const Question& asked) {
  return [asked, i = int64_t{0}]() mutable {
    const uint64_t seed = CaseSeed(asked.seed, asked.op, i++);
    return Fed{gen::Draw(asked.op, seed), seed};
  };
}

Next Uniform(const Question& asked) {
  return [asked, i = int64_t{0}]() mutable {
    const uint64_t seed = CaseSeed(asked.seed, asked.op, i++);
    return Fed{gen::Draw(asked.op, gen::Theme::kUniform, seed), seed};
  };
}

Next Climb(const Question& asked, fuzz::Climber::Light light) {
  return [climber = fuzz::Climber(asked.op, asked.seed, light)]() mutable {
    return Fed{climber(), std::nullopt};
  };
}

const std::map<std::string_view, Next (*)(const Question&)>& Feeders() {
  static const std::map<std::string_view, Next (*)(const Question&)> feeders{
      {"drawn", Drawn},
      {"uniform", Uniform},
      {"blind", [](const Question& asked) { return Climb(asked, nullptr); }},
      {"distances", [](const Question& asked) { return Climb(asked, fuzz::ReportDistances); }},
  };
  return feeders;
}

bool AsksAnOracle(const Property& property) { return property.claim.starts_with("matches_"); }

struct Found {
  int64_t cases = 0;
  double seconds = 0;
  std::string property;
};

class Search {
 public:
  Search(Subject& subject, const Question& asked) : subject_(subject), asked_(asked) {}

  nlohmann::json Run(const Next& next, bool free_too) {
    int64_t searched = 0;
    while (searched < asked_.cases && Seconds() < asked_.seconds && !Done(free_too)) {
      Fed fed = next();
      if (std::optional<Case> taken = TakenBy(subject_, fed.c);
          taken && (taken->w_block != 0 || HasWideCodes(*taken)))
        fed.c = std::move(*taken);
      const bool before = any_.cases == 0;
      Judge(fed, ++searched);
      if (before && any_.cases != 0) failing_ = fed.c;
    }
    nlohmann::json result;
    result["cases"] = any_.cases;
    result["seconds"] = any_.seconds;
    result["property"] = any_.property;
    result["free_cases"] = free_.cases;
    result["free_property"] = free_.property;
    result["searched"] = searched;
    if (asked_.diagnose && any_.cases != 0) Diagnose(result);
    return result;
  }

 private:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  bool Done(bool free_too) const { return any_.cases != 0 && (free_.cases != 0 || !free_too); }

  void Judge(const Fed& fed, int64_t number) {
    MemoSubject memo(subject_);
    const auto told = [&](const Property& property, const Verdict& verdict) {
      if (!verdict.failed()) return true;
      const Found found{number, Seconds(), std::string(property.claim)};
      if (any_.cases == 0) any_ = found, verdict_ = verdict;
      if (free_.cases == 0 && !AsksAnOracle(property)) free_ = found;
      return free_.cases == 0;
    };
    if (fed.drawn) {
      JudgeAll(fed.c, memo, "*", told, fed.drawn);
    } else {
      JudgeInTurn(fed.c, memo, "*", told);
    }
  }

  void Diagnose(nlohmann::json& result) {
    triage::Triaged triaged(Finding(*failing_, any_.property, subject_.name(), verdict_), subject_);
    triaged.Minimize();
    result["kind"] = Name(triaged.finding().kind);
    result["cause"] = triage::NamesOf(triaged.causes(), asked_.op);
    if (!triaged.small()) return;
    const Case& least = triaged.small()->minimized;
    result["codes"] = least.x.size() + least.w.size();
  }

  Subject& subject_;
  Question asked_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Found any_, free_;
  Verdict verdict_;
  std::optional<Case> failing_;
};

int List() {
  for (const FaultInfo& fault : ListFaults()) {
    std::vector<std::string_view> ops;
    for (const Op op : fault.ops) ops.push_back(Name(op));
    const nlohmann::json line{
        {"fault", fault.id}, {"ops", ops}, {"kind", Name(fault.kind)}, {"cause", fault.cause}};
    fmt::print("{}\n", line.dump());
  }
  return 0;
}

int Run(int argc, char** argv) {
  RegisterAllSubjects();
  if (argc == 2 && argv[1] == std::string_view("--list")) return List();
  const bool diagnose = argc == 8 && argv[7] == std::string_view("--diagnose");
  if (argc == 7 || diagnose) {
    const auto feeder = Feeders().find(argv[1]);
    const std::optional<Op> op = ParseOp(argv[3]);
    const auto seed = tools::ParseInteger<uint64_t>(argv[4]);
    const auto cases = tools::ParseInteger<int64_t>(argv[5]);
    const auto seconds = tools::ParseInteger<int64_t>(argv[6]);
    if (feeder != Feeders().end() && op && seed && cases && seconds && *cases > 0 && *seconds > 0) {
      const auto subject = SubjectRegistry::Get().Make(argv[2]);
      const Question asked{*op, *seed, *cases, static_cast<double>(*seconds), diagnose};
      Search search(*subject, asked);
      fmt::print("{}\n", search.Run(feeder->second(asked), feeder->first == "drawn").dump());
      return 0;
    }
  }
  fmt::print(stderr,
             "usage: detection drawn|uniform|blind|distances SUBJECT OP SEED CASES SECONDS "
             "[--diagnose], or detection --list\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "detection: {}\n", error.what());
    return 2;
  }
}
