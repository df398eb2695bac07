// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/host/arena.h"
#include "adapters/kinds.h"
#include "core/enclosure.h"
#include "oracles/conventions/convention.h"
#include "oracles/conventions/openvino.h"

namespace qualm {
namespace {

constexpr std::string_view kPrefix = "model:";

class ConventionSubject final : public BasicSubject, public EnclosingSubject {
 public:
  ConventionSubject(std::string name, const Convention& convention)
      : name_(std::move(name)), convention_(convention) {
    set_contract({convention.name});
  }

  std::string_view name() const override { return name_; }
  std::string CannotRun(const Case& c) const override { return convention_.cannot_run(c); }
  bool Offers(Op op) const override { return std::ranges::count(convention_.ops, op) != 0; }
  std::string InstructionSet() const override { return "scalar"; }

  // A specification has no buffers to place and no caller's rounding mode: `context` matters only
  // in want_acc.
  Outcome Run(const Case& c, const RunContext& context) override {
    if (std::string reason = CannotRun(c); !reason.empty()) {
      return {RunStatus::kSkipped, std::move(reason), {}, std::nullopt};
    }
    const ScopedEnvironment normal(RunContext{});
    try {
      ConventionOutput output = convention_.run(c);
      if (!context.want_acc) output.acc.reset();
      return {RunStatus::kOk, "", std::move(output.y), std::move(output.acc)};
    } catch (const std::exception& exception) {
      return {RunStatus::kCrashed, std::string("exception: ") + exception.what(), {}, std::nullopt};
    }
  }

  std::string Evaluates(const Case& c) const override {
    const bool known = (c.op == Op::kQuantize || c.op == Op::kRequantize) && convention_.enclose;
    return known ? "the steps of the convention" : "";
  }
  std::optional<Codes> Enclose(const Case& c, uint32_t first, uint32_t last) override {
    const auto codes = EncloseBy(convention_, EndsOf(c, first, last));
    return codes ? std::optional(Codes{codes->min, codes->max}) : std::nullopt;
  }

 private:
  std::string name_;
  const Convention& convention_;
};

std::vector<std::string> NamesWithPrefix(std::string_view prefix) {
  std::vector<std::string> names;
  for (const Convention& convention : AllConventions()) {
    std::string name = std::string(kPrefix) + convention.name;
    if (name.starts_with(prefix)) names.push_back(std::move(name));
  }
  return names;
}

std::unique_ptr<Subject> Make(const std::string& name) {
  if (!name.starts_with(kPrefix)) return nullptr;
  const Convention* const convention =
      FindConvention(std::string_view(name).substr(kPrefix.size()));
  return convention == nullptr ? nullptr : std::make_unique<ConventionSubject>(name, *convention);
}

std::vector<std::string> Expand(const std::string& pattern) {
  if (pattern == "model@all") return NamesWithPrefix(kPrefix);
  if (!pattern.starts_with(kPrefix) || !pattern.ends_with('*')) return {};
  return NamesWithPrefix(std::string_view(pattern).substr(0, pattern.size() - 1));
}

}  // namespace

bool OpenvinoMultipliesByOne(const Case& c) { return conventions::OpenvinoMultipliesByOne(c); }

SubjectKind ConventionSubjects() {
  return {"model", "bit-exact arithmetic of a named backend, model:* all of them",
          "",      [] { return NamesWithPrefix(kPrefix); },
          Make,    Expand};
}

}  // namespace qualm
