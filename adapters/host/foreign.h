// SPDX-License-Identifier: Apache-2.0
// What subjects in a process of their own have in common, plugin or pipe: limits that they
// declared, a contract that they promised, patience that ends.
#ifndef QUALM_ADAPTERS_HOST_FOREIGN_H_
#define QUALM_ADAPTERS_HOST_FOREIGN_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/host/plugin_limits.h"
#include "adapters/host/worker_message.h"
#include "core/case.h"
#include "core/subject.h"

namespace qualm {

// QUALM_TIME_LIMIT_MS, for what is slow and for tests that wait for hangs; `standard` where it is
// not set. Throws InputError for what is no time limit.
int TimeLimitMs(int standard);

// The names of a kind, and KIND@all for all of them. `kind.kind` is set; each variant has a `name`.
void SetNames(SubjectKind& kind, std::vector<std::string> names);
template <class Variants>
void SetVariants(SubjectKind& kind, const Variants& variants) {
  std::vector<std::string> names;
  for (const auto& variant : variants) names.emplace_back(variant.name);
  SetNames(kind, std::move(names));
}

class ForeignSubject : public Subject {
 public:
  std::string_view name() const override { return name_; }
  std::string CannotRun(const Case& c) const override;
  Outcome Run(const Case& c, const RunContext& context) override;
  std::string InstructionSet() const override;
  std::string Version() const override;

  // What it said of itself. Hold it to that after construction, where a name asks for a version or
  // an instruction set.
  virtual const PluginInfo& info() const = 0;
  // Throws Unavailable where it runs another instruction set than `wanted` ("": any), which
  // `library` was asked for as `forced`.
  void RequireInstructionSet(std::string_view wanted, std::string_view library,
                             std::string_view forced) const;

 protected:
  explicit ForeignSubject(std::string name) : name_(std::move(name)) {}

  // Takes the contract of info(). Throws Unavailable if that is none.
  void AdoptContract();
  // Why its process cannot be given the case, "" if it can: what no declared limit says.
  virtual std::string CannotSend(const Case& c) const = 0;
  // One run of a case that CannotRun let pass.
  virtual Outcome Send(const Case& c, const RunContext& context) = 0;
  // After the third hang of subjects of this name, whatever the instance, CannotRun gives them up:
  // each costs seconds.
  void CountHang() const;

 private:
  std::string name_;
};

Outcome Skipped(std::string why);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_FOREIGN_H_
