// SPDX-License-Identifier: Apache-2.0
// Subjects in any language: a child process that reads cases and writes results, one JSON line
// each (docs/pipe.md). "pipe:COMMAND" is any command. The libraries behind a pipe
// (libraries/libraries.cc) are commands with names of their own.
#ifndef QUALM_ADAPTERS_HOST_PIPE_H_
#define QUALM_ADAPTERS_HOST_PIPE_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adapters/host/foreign.h"
#include "adapters/host/pipe_child.h"
#include "core/case.h"
#include "core/dot_subject.h"
#include "core/subject.h"

namespace qualm {

// Adds the kind "pipe" (pipe:COMMAND).
void RegisterPipeSubjects();

class PipeSubject : public ForeignSubject, public DotSubject {
 public:
  // Starts the child; its contract is the one it states. QUALM_TIME_LIMIT_MS overrides
  // options.time_limit_ms. Throws Unavailable "subject 'NAME': ..." where the child says nothing or
  // nonsense, InputError for a wrong QUALM_TIME_LIMIT_MS.
  PipeSubject(std::string name, PipeOptions options);

  const PluginInfo& info() const override { return info_; }
  bool machine_was_busy() const override { return child_->machine_was_busy(); }
  bool took_its_memory() const override { return child_->took_its_memory(); }
  // Keeps several cases in flight.
  std::vector<Outcome> RunMany(std::span<const Case> cases, const RunContext& context) override;
  std::string WhyNoDot() const override;
  Outcome Dot(std::span<const float> a, std::span<const float> b) override;

 protected:
  std::string CannotSend(const Case& c) const override;
  Outcome RunRaw(const Case& c, const RunContext& context) override;

 private:
  const PipeOp& Offered(Op op) const;
  PipeChild::Question QuestionOf(const Case& c, const RunContext& context) const;

  std::unique_ptr<PipeChild> child_;
  PluginInfo info_;
};

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PIPE_H_
