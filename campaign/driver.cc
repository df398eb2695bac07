// SPDX-License-Identifier: Apache-2.0
#include "campaign/driver.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "campaign/investigate.h"
#include "campaign/rehearsal.h"
#include "campaign/shrink.h"
#include "core/io/fault_row.h"
#include "core/io/text_file.h"
#include "core/patience.h"
#include "core/process.h"
#include "core/rng.h"
#include "core/status.h"
#include "properties/engine.h"
#include "properties/property.h"

namespace qualm::campaign {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Looks into failures and makes cases smaller, one at a time, in a fork of this process: a subject
// or a judge that dies there ends nothing else.
class Investigator {
 public:
  Investigator(State& state, const CampaignOptions& options) : state_(state), options_(options) {}

  bool busy() const { return process_.has_value(); }

  // Takes the next piece of work, or checks the current one. False if there is no work.
  bool Step() {
    if (!busy()) return Begin();
    if (const std::optional<int> status = process_->Ended()) {
      const bool killed = WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL;
      if (killed && ++kills_ < kMostKills) {
        process_.reset();  // killed by somebody else: once more
        return true;
      }
      End(*status == 0 ? "" : HowItEnded(*status), FindingKind::kCrash);
    } else if (patience_.MillisecondsLeft() == 0) {
      process_->Stop();
      const std::string took = "it took more than " + std::to_string(kMostSeconds) + " s";
      if (patience_.machine_was_busy()) {
        End(took + " on a machine that had no time for it", std::nullopt);
      } else {
        End(took, FindingKind::kHang);
      }
    }
    return true;
  }

 private:
  static constexpr int kMostSeconds = 120;  // of its own time
  static constexpr double kMinimizeSeconds = 30;
  static constexpr int kMostKills = 100;

  bool Begin() {
    minimizes_ = false;
    for (const std::string& name : state_.Inbox()) {
      if (!given_up_.contains(name)) return Start(name);
    }
    minimizes_ = true;
    for (const FaultRow& row : state_.Rows()) {
      const std::string name = row.fingerprint();
      if (!row.minimized && !given_up_.contains(name)) return Start(name);
    }
    return false;
  }

  bool Start(const std::string& name) {
    name_ = name;
    const std::string contract = options_.aims.front().contract;
    process_ = Process::Fork(
        [&] {
          state_.LeaveLock();
          if (minimizes_) {
            Minimize(state_, name, contract, kMinimizeSeconds);
          } else {
            Investigate(state_, name, contract);
          }
        },
        Log());
    patience_.Begin(process_->id(), 1000 * kMostSeconds);
    return true;
  }

  // `how`: how the work went wrong, "" if it did not. Without a kind it says nothing about the
  // subject: the fault waits in the inbox for the next run.
  void End(const std::string& how, std::optional<FindingKind> kind) {
    process_.reset();
    if (minimizes_) given_up_.insert(name_);  // this fault is finished, or is given up
    if (how.empty()) return;
    if (!minimizes_ && ++failures_[name_] < 2) return;
    given_up_.insert(name_);
    options_.say(name_ + " could not be looked into (" + how + "): " + LastWords(Log()));
    if (!minimizes_ && kind && how != HowItEnded(kThrew))
      TakeUnexplained(state_, name_, *kind, how);
  }

  std::string Log() const { return (state_.root() / "jobs" / "desk").string(); }

  static constexpr int kThrew = 1 << 8;  // exit status 1: Process::Fork
  State& state_;
  const CampaignOptions& options_;
  std::optional<Process> process_;
  Patience patience_;  // with it
  bool minimizes_ = false;
  std::string name_;
  int kills_ = 0;
  std::set<std::string> given_up_;
  std::map<std::string, int> failures_;
};

class Campaign {
 public:
  Campaign(const Engine& engine, State& state, const CampaignOptions& options)
      : engine_(engine), state_(state), options_(options), investigator_(state, options) {
    jobs_.resize(static_cast<size_t>(options.jobs));
    deaths_.resize(options.aims.size());
  }

  Progress Run() {
    ShrinkCorpora();
    for (int64_t tick = 0; !Over(); ++tick) {
      bool any = false;
      for (size_t i = 0; i < jobs_.size(); ++i) any |= Tend(i);
      if (investigator_.busy() || tick % 10 == 0)
        investigator_.Step();  // looking for work reads folders
      if (!any) break;
      Tell();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    for (auto& job : jobs_) {
      if (!job) continue;
      job->running->Stop();
      Close(job);
    }
    if (next_aim_ < options_.aims.size()) {
      options_.say(
          "the campaign was too short: " + std::to_string(options_.aims.size() - next_aim_) +
          " of " + std::to_string(options_.aims.size()) +
          " pairs of operation and subject were not fuzzed");
    }
    LookIntoTheRest();
    Tell(true);
    RemoveFolder((state_.root() / "jobs").string());
    return progress_;
  }

 private:
  struct Slot {
    size_t aim = 0;
    std::unique_ptr<Job> running;
    Clock::time_point start = Clock::now();
    double seconds = 0;
    int64_t runs = 0;
  };

  // Before anything is fuzzed: an engine at work reads its corpus. It takes no more than a
  // twentieth of the campaign, and a minute for each operation.
  void ShrinkCorpora() {
    constexpr double kShare = 0.05, kMostSeconds = 60;
    std::set<Op> seen;
    for (const Aim& aim : options_.aims) {
      if (!seen.insert(aim.op).second || state_.CorpusSize(aim.op) < options_.large_corpus)
        continue;
      const double left = options_.seconds * kShare - Since(start_);
      const double most = options_.seconds == 0 ? kMostSeconds : std::min(kMostSeconds, left);
      if (most <= 0 || Stopped()) return;
      const std::optional<Shrunk> shrunk =
          ShrinkCorpus(engine_, state_, aim.op, most, options_.stop);
      if (!shrunk || shrunk->after == shrunk->before) continue;
      options_.say("corpus of " + std::string(Name(aim.op)) + ": " + std::to_string(shrunk->after) +
                   " of " + std::to_string(shrunk->before) +
                   " inputs light as much; the others are deleted");
    }
  }

  bool Stopped() const { return options_.stop && options_.stop(); }
  double SecondsLeft() const {
    return options_.seconds == 0 ? 1e9 : options_.seconds - Since(start_);
  }
  bool Over() const { return Stopped() || SecondsLeft() <= 0; }

  // Every aim comes up several times: each stretch starts from the inputs of the one before.
  double StretchSeconds() const {
    constexpr double kLeast = 1, kMost = 300, kTimes = 4;
    const double share =
        options_.seconds * options_.jobs / (kTimes * static_cast<double>(options_.aims.size()));
    return std::min(SecondsLeft(), options_.seconds == 0 ? 60.0 : std::clamp(share, kLeast, kMost));
  }
  int64_t StretchRuns() const {
    if (options_.runs == 0) return 0;
    const auto pieces = static_cast<int64_t>(std::max(options_.aims.size(), jobs_.size()));
    return std::min((options_.runs + pieces - 1) / pieces, options_.runs - runs_given_);
  }

  // Checks job i, and ends it when its time is over. False if the job has nothing left to do.
  bool Tend(size_t i) {
    std::optional<Slot>& job = jobs_[i];
    if (!job) return Begin(i);
    const std::optional<int> status = job->running->Ended();
    constexpr double kGrace = 15;  // for an engine that does not see that its time is over
    if (!status && Since(job->start) < job->seconds + kGrace) return true;
    if (status) {
      SeeHowItEnded(*job, *status);
    } else {
      job->running->Stop();
    }
    Close(job);
    return true;
  }

  bool Begin(size_t i) {
    Slot slot;
    slot.seconds = StretchSeconds();
    slot.runs = StretchRuns();
    if (options_.runs > 0 && slot.runs <= 0) return false;
    if (std::ranges::all_of(deaths_, [](int deaths) { return deaths >= kMostDeaths; }))
      return false;
    do {
      slot.aim = next_aim_++ % options_.aims.size();
    } while (deaths_[slot.aim] >= kMostDeaths);
    runs_given_ += slot.runs;
    const Aim& aim = options_.aims[slot.aim];
    Stretch stretch;
    stretch.seconds = slot.seconds;
    stretch.runs = slot.runs;
    stretch.seed = MixSeed(options_.seed, state_.NextStretch());
    stretch.inputs = {state_.Corpus(aim.op).string()};
    const std::string given = options_.inputs ? options_.inputs(aim.op) : "";
    if (!given.empty()) stretch.inputs.push_back(given);
    const fs::path folder = state_.root() / "jobs" / std::to_string(i);
    RemoveFolder(folder.string());
    fs::create_directories(folder);
    slot.running = std::make_unique<Job>(engine_, aim, stretch, folder, state_.root(), false);
    jobs_[i] = std::move(slot);
    return true;
  }

  // A fuzz target that dies is a finding, except by SIGKILL, which somebody else sent.
  void SeeHowItEnded(const Slot& job, int status) {
    const bool idle = job.running->page().executions == 0;
    const bool good = !idle && WIFEXITED(status) && engine_.is_good_end(WEXITSTATUS(status));
    int& deaths = deaths_[job.aim];
    if (good) {
      deaths = 0;
      return;
    }
    const Aim& aim = job.running->aim();
    const std::string who = std::string(Name(aim.op)) + " on " + aim.subject;
    const std::string how = "the fuzz target of " + who + " ended with " + HowItEnded(status);
    options_.say(how + "; it is started again");
    ++progress_.deaths;
    if (++deaths == kMostDeaths) options_.say("the fuzz target of " + who + " is given up");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return;
    if (idle) {
      throw Unavailable(how + " before its first input: " + job.running->LastWords());
    }
    if (deaths <= kDeathsHandedOver) HandOver(job, how);
  }

  void HandOver(const Slot& job, const std::string& how) {
    const Aim& aim = job.running->aim();
    const std::string name = SubjectRegistry::Get().Expand(aim.subject).front();
    const auto subject = std::move(MakeSubjects({name}, aim.contract).front());
    FaultRow row;
    row.subject = name;
    row.identity = IdentityOf(*subject);
    row.op = aim.op;
    row.kind = FindingKind::kCrash;
    const Contract& contract = subject->contract(aim.op);
    row.properties = {contract.exact() ? "matches_exact" : "matches_model"};
    row.explanation = how + ": " + job.running->LastWords();
    row.found = UtcNow();
    Case c = job.running->LastCase();
    c.property = std::string(Name(aim.op)) + "." + *row.properties.begin();
    c.contract = contract.text();
    HandOverDeath(state_, row, c);
  }

  // The engine has ended: its counts go to the progress, its inputs to the state.
  void Close(std::optional<Slot>& job) {
    AddTo(done_, job->running->page());
    // The next engine gets the runs that this one was given and did not make.
    runs_given_ -= std::max<int64_t>(0, job->runs - job->running->page().executions);
    state_.TakeInputs(job->running->kept(), job->running->aim().op);
    job.reset();
    // The engine may have been stopped while it looked at a failure, or an engine of an earlier
    // campaign that was killed may have gone on a little longer.
    state_.TakeHeld();
  }

  static void AddTo(Progress& progress, const fuzz::WatchPage& page) {
    progress.executions += page.executions;
    for (size_t i = 0; i < progress.verdicts.size(); ++i) progress.verdicts[i] += page.verdicts[i];
    progress.pair = std::min<int64_t>(progress.pair, page.pair);
    progress.sum = std::min<int64_t>(progress.sum, page.sum);
    progress.tie = std::min<double>(progress.tie, page.tie);
  }

  // Folders are counted only now and then, because they may be large.
  void Tell(bool last = false) {
    const int64_t before = progress_.executions;
    Progress now = done_;
    now.deaths = progress_.deaths;
    for (const auto& job : jobs_) {
      if (job) AddTo(now, job->running->page());
    }
    now.seconds = Since(start_);
    now.corpus = progress_.corpus;
    now.waiting = progress_.waiting;
    now.rows = std::move(progress_.rows);
    now.per_second = progress_.per_second;
    if (last || now.seconds >= counted_ + 1) {
      const double passed = now.seconds - counted_;
      if (!last) now.per_second = static_cast<double>(now.executions - counted_runs_) / passed;
      counted_ = now.seconds;
      counted_runs_ = now.executions;
      now.corpus = state_.CorpusSize();
      now.waiting = static_cast<int64_t>(state_.Inbox().size());
      now.rows = state_.Rows();
    }
    progress_ = std::move(now);
    if (options_.tell && (last || progress_.executions != before)) options_.tell(progress_);
  }

  // Takes as long again as the campaign was to take, but no less than two minutes.
  void LookIntoTheRest() {
    const double most = std::max(120.0, options_.seconds);
    const Clock::time_point start = Clock::now();
    while (!Stopped() && Since(start) < most && investigator_.Step()) {
      Tell();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  static constexpr int kMostDeaths = 20, kDeathsHandedOver = 3;

  const Engine& engine_;
  State& state_;
  const CampaignOptions& options_;
  Investigator investigator_;
  std::vector<std::optional<Slot>> jobs_;
  std::vector<int> deaths_;  // in a row, by aim
  size_t next_aim_ = 0;
  int64_t runs_given_ = 0;
  Clock::time_point start_ = Clock::now();
  Progress done_;      // of ended jobs
  Progress progress_;  // of all
  double counted_ = 0;
  int64_t counted_runs_ = 0;
};

}  // namespace

void RequireCanaries(const Engine& engine, const State& state, const CampaignOptions& options) {
  for (const Aim& aim : options.aims) {
    const std::string inputs = options.inputs ? options.inputs(aim.op) : "";
    const CanaryResult canary =
        RunCanary(engine, aim, inputs, state.root() / "jobs" / "canary", options.stop);
    if (canary.stopped) return;
    if (canary.found) continue;
    throw Unavailable("canary: " + std::string(engine.name) + " did not find a planted fault in " +
                      std::string(Name(aim.op)) + " on " + aim.subject + " within " +
                      std::to_string(static_cast<int>(std::ceil(canary.seconds))) + " s, " +
                      std::to_string(canary.executions) +
                      " executions: this configuration is broken: " + canary.last_words);
  }
}

Progress RunCampaign(const Engine& engine, State& state, const CampaignOptions& options) {
  return Campaign(engine, state, options).Run();
}

}  // namespace qualm::campaign
