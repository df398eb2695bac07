// SPDX-License-Identifier: Apache-2.0
// The base class of plugins and of programs behind a pipe as subjects: both declare limits, promise
// a contract, and are given up after three hangs.
#ifndef QUALM_ADAPTERS_HOST_FOREIGN_H_
#define QUALM_ADAPTERS_HOST_FOREIGN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/host/plugin_limits.h"
#include "adapters/host/worker_message.h"
#include "core/case.h"
#include "core/declared_domain.h"
#include "core/subject.h"

namespace qualm {

// The environment variable QUALM_TIME_LIMIT_MS, or `standard` where it is not set. Throws
// InputError where its value is no time limit.
int TimeLimitMs(int standard);
// The environment variable QUALM_MEMORY_LIMIT in bytes, or `standard`. Throws alike.
uint64_t MemoryLimitBytes(uint64_t standard);

// Gives a kind its names, and KIND@all as the name of them all. Requires kind.kind, and of each
// variant a member `name`.
void SetNames(SubjectKind& kind, std::vector<std::string> names);
template <class Variants>
void SetVariants(SubjectKind& kind, const Variants& variants) {
  std::vector<std::string> names;
  for (const auto& variant : variants) names.emplace_back(variant.name);
  SetNames(kind, std::move(names));
}

class ForeignSubject : public BasicSubject, public DeclaredDomain {
 public:
  std::string_view name() const override { return name_; }
  std::string CannotRun(const Case& c) const override;
  Case Inside(const Case& c) const override;
  bool Offers(Op op) const override { return info().limits[static_cast<size_t>(op)].has_value(); }
  Outcome Run(const Case& c, const RunContext& context) override;
  std::string InstructionSet() const override;
  std::string Version() const override;
  std::string domain_text() const override;

  // Whether a hang was reported while the machine was so busy that it may have been no hang.
  virtual bool machine_was_busy() const = 0;
  // Whether the last run ended a process that had taken most of the memory that it may have.
  virtual bool took_its_memory() const = 0;
  // The name, contract and limits that the plugin or program gave when it started.
  virtual const PluginInfo& info() const = 0;
  // Throws Unavailable where the process reports another instruction set than `wanted` ("" takes
  // any). The sentence names the library, and the value that should have forced the set.
  void RequireInstructionSet(std::string_view wanted, std::string_view library,
                             std::string_view forced) const;

 protected:
  explicit ForeignSubject(std::string name) : name_(std::move(name)) {}

  // Takes the contracts of info(). Throws Unavailable where info() names none.
  void AdoptContract();
  // Why the process cannot be given the case, for reasons beyond the declared limits. "" if it can.
  virtual std::string CannotSend(const Case& c) const = 0;
  // One run of a case that CannotRun let pass.
  virtual Outcome RunRaw(const Case& c, const RunContext& context) = 0;
  // The outcome of RunRaw, but a case that hung on a busy machine is asked again, alone. Counts the
  // hangs of all instances of this name, how often one took all its memory, and the files that were
  // filled. After 3, 10 or 3 CannotRun refuses every case: each costs seconds, or gigabytes.
  Outcome Confirmed(Outcome outcome, const Case& c, const RunContext& context);

 private:
  std::string name_;
};

Outcome Skipped(std::string why);

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_FOREIGN_H_
