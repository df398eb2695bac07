// SPDX-License-Identifier: Apache-2.0
// detection FEEDER SUBJECT OP SEED CASES: how many cases a feeder needs until a property fails on a
// subject. bench/detection runs it on the planted faults, which detection --list prints with the
// operations that they were planted in. It prints one line of JSON:
//
//   {"cases": 12, "seconds": 0.03, "property": "matches_exact", "free_cases": 40,
//    "free_property": "k_order", "kind": "tail", "diagnosis": "...", "codes": 5}
//
// `free` is the first failure of a property that compares with no oracle; 0 cases: not found within
// CASES. The failing case is minimized where SEED is 1; `codes` then counts the codes left in it.
//
// The feeders:
//   drawn      gen::Draw, as `qualm check` does
//   uniform    the same shapes and parameters, every code uniform: the theme "uniform" alone
//   blind      our mutations from nothing, without feedback
//   distances  with the distances to saturation, overflow, ties and clamp as feedback
//   guided     with these and with the novelty of forms (fuzz/feedback.h)
//
// Exit status: 0, or 2 for bad usage.
#include <fmt/format.h>

#include <array>
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

#include "adapters/registry.h"
#include "core/case.h"
#include "core/op.h"
#include "core/subject.h"
#include "fuzz/climber.h"
#include "fuzz/feedback.h"
#include "oracles/headroom/headroom.h"
#include "properties/engine.h"
#include "properties/gen/gen.h"
#include "properties/property.h"
#include "tools/command.h"
#include "triage/triage.h"

namespace {

using namespace qualm;
using Next = std::function<Case()>;

struct Question {
  Op op;
  uint64_t seed;
  int64_t cases;
};

Next Drawn(const Question& asked) {
  return [asked, i = int64_t{0}]() mutable {
    return gen::Draw(asked.op, CaseSeed(asked.seed, asked.op, i++));
  };
}

Next Uniform(const Question& asked) {
  return [asked, i = int64_t{0}]() mutable {
    return gen::Draw(asked.op, gen::Theme::kUniform, CaseSeed(asked.seed, asked.op, i++));
  };
}

Next Climb(const Question& asked, fuzz::Climber::Light light) {
  return fuzz::Climber(asked.op, asked.seed, light);
}

void LightDistances(const Case& c) {
  fuzz::LightCounters(headroom::Measure(c), fuzz::DistanceCounters());
}

const std::map<std::string_view, Next (*)(const Question&)>& Feeders() {
  static const std::map<std::string_view, Next (*)(const Question&)> feeders{
      {"drawn", Drawn},
      {"uniform", Uniform},
      {"blind", [](const Question& asked) { return Climb(asked, nullptr); }},
      {"distances", [](const Question& asked) { return Climb(asked, LightDistances); }},
      {"guided", [](const Question& asked) { return Climb(asked, fuzz::ReportDistances); }},
  };
  return feeders;
}

bool AsksAnOracle(const Property& property) { return property.claim.starts_with("matches_"); }

struct Found {
  int64_t cases = 0;
  std::string property;
};

// Up to the first failure of any property, and on to the first of one without an oracle.
class Search {
 public:
  Search(Subject& subject, const Question& asked) : subject_(subject), asked_(asked) {}

  nlohmann::json Run(const Next& next) {
    const auto start = std::chrono::steady_clock::now();
    double seconds = 0;
    for (int64_t i = 1; i <= asked_.cases && free_.cases == 0; ++i) {
      const Case c = next();
      const bool before = any_.cases == 0;
      Judge(c, i);
      if (before && any_.cases != 0) {
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (asked_.seed == 1) Explain(c);
      }
    }
    result_["cases"] = any_.cases;
    result_["seconds"] = seconds;
    result_["property"] = any_.property;
    result_["free_cases"] = free_.cases;
    result_["free_property"] = free_.property;
    return result_;
  }

 private:
  void Judge(const Case& c, int64_t number) {
    MemoSubject memo(subject_);
    JudgeAll(c, memo, "*", [&](const Property& property, const Verdict& verdict) {
      if (!verdict.failed()) return true;
      if (any_.cases == 0) any_ = {number, std::string(property.claim)};
      if (free_.cases == 0 && !AsksAnOracle(property))
        free_ = {number, std::string(property.claim)};
      return free_.cases == 0;
    });
  }

  void Explain(const Case& c) {
    const triage::MinimizeResult least =
        triage::Minimize(c, subject_, *FindProperty(any_.property));
    result_["kind"] = Name(least.attribution.kind);
    result_["diagnosis"] = least.attribution.diagnosis;
    result_["codes"] = least.minimized.x.size() + least.minimized.w.size();
  }

  Subject& subject_;
  Question asked_;
  Found any_, free_;
  nlohmann::json result_;
};

int List() {
  for (const FaultInfo& fault : ListFaults()) {
    for (const Op op : fault.ops) fmt::print("faulty:{} {}\n", fault.id, Name(op));
  }
  return 0;
}

int Run(int argc, char** argv) {
  RegisterAllSubjects();
  if (argc == 2 && argv[1] == std::string_view("--list")) return List();
  if (argc == 6) {
    const auto feeder = Feeders().find(argv[1]);
    const std::optional<Op> op = ParseOp(argv[3]);
    const auto seed = tools::ParseInteger<uint64_t>(argv[4]);
    const auto cases = tools::ParseInteger<int64_t>(argv[5]);
    if (feeder != Feeders().end() && op && seed && cases && *cases > 0) {
      const auto subject = SubjectRegistry::Get().Make(argv[2]);
      const Question asked{*op, *seed, *cases};
      fmt::print("{}\n", Search(*subject, asked).Run(feeder->second(asked)).dump());
      return 0;
    }
  }
  fmt::print(stderr,
             "usage: detection drawn|uniform|blind|distances|guided SUBJECT OP SEED CASES\n");
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
