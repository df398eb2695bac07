// SPDX-License-Identifier: Apache-2.0
// Everything a plugin can do wrong is survived, called by its name, and does not disturb the next
// case.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "adapters/host/plugin_subjects.h"
#include "adapters/host/worker.h"
#include "adapters/host/worker_message.h"
#include "adapters/qualm_plugin.h"
#include "core/sanitized.h"
#include "core/status.h"
#include "core/text_test_util.h"

namespace qualm {
namespace {

std::string Module(const std::string& name) { return QUALM_BINARY_DIR "/lib/" + name + ".so"; }

// x [2,3] u8, w [2,3] s8, y [2,2] s32; exact result {-1, 11, 17, 29} with zero points 1 and 0.
Case SmallCase() {
  Case c;
  c.op = Op::kLinear;
  c.M = 2;
  c.N = 2;
  c.K = 3;
  c.x = Tensor::Of<uint8_t>({2, 3}, std::vector<uint8_t>{1, 2, 3, 4, 5, 6});
  c.w = Tensor::Of<int8_t>({2, 3}, std::vector<int8_t>{5, 3, -2, 0, 1, 5});
  c.x_q.zero_point = {1};
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  return c;
}

WorkerOptions Broken(const std::string& how) {
  return {.plugin = Module("qualm_broken"),
          .environment = {{"QUALM_BROKEN", how}},
          .time_limit_ms = 10'000};
}

std::string LoadError(WorkerOptions options) {
  return Refusal<Unavailable>([&] { const Worker worker(std::move(options)); });
}

// A new folder for files by which plugins remember.
std::string FileOf(const std::string& name) {
  const std::string file = testing::TempDir() + "qualm-" + std::to_string(getpid()) + name;
  std::filesystem::remove(file);
  return file;
}

struct Misbehaviour {
  const char* how;
  RunStatus status;
  const char* detail;  // part of the sentence
};

void PrintTo(const Misbehaviour& m, std::ostream* out) { *out << m.how; }

class Misbehaves : public testing::TestWithParam<Misbehaviour> {};

// Reported as exactly that, and twice, so that the worker was replaced or is unharmed.
TEST_P(Misbehaves, IsSurvivedAndNamed) {
  Worker worker(Broken(GetParam().how));
  for (int round = 0; round < 2; ++round) {
    const Outcome outcome = worker.Run(SmallCase(), {});
    EXPECT_EQ(Name(outcome.status), Name(GetParam().status)) << outcome.detail;
    EXPECT_NE(outcome.detail.find(GetParam().detail), std::string::npos) << outcome.detail;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plugin, Misbehaves,
    testing::Values(
        Misbehaviour{"crash", RunStatus::kCrashed, "SIGSEGV: wrote address 0x10"},
#if defined(__x86_64__)
        Misbehaviour{"misaligned", RunStatus::kCrashed, "misaligned or non-canonical address"},
#endif
        Misbehaviour{"abort", RunStatus::kCrashed, "SIGABRT"},
        Misbehaviour{"kill", RunStatus::kCrashed, "SIGKILL"},
        Misbehaviour{"exit", RunStatus::kCrashed, "exit status 17"},
        Misbehaviour{"exit-0", RunStatus::kCrashed, "exit status 0"},
        Misbehaviour{"throw", RunStatus::kCrashed, "thrown on purpose"},
        Misbehaviour{"write-past", RunStatus::kTouchedOutside, "past the end of y (SIGSEGV)"},
        Misbehaviour{"read-past", RunStatus::kTouchedOutside, "read 1 byte past the end of x"},
        // Of several buffers that are near, the nearest.
        Misbehaviour{"read-past-near-another", RunStatus::kTouchedOutside,
                     "read 1 byte past the end of "},
        Misbehaviour{"write-far-past", RunStatus::kTouchedOutside,
                     "wrote 5 bytes past the end of y"},
        Misbehaviour{"bus", RunStatus::kCrashed, "killed by SIGBUS: accessed address 0x"},
        Misbehaviour{"bus-past", RunStatus::kTouchedOutside,
                     "accessed 1 byte past the end of y (SIGBUS)"},
        Misbehaviour{"write-slack", RunStatus::kTouchedOutside, "wrote outside y"},
        Misbehaviour{"modify-x", RunStatus::kModifiedInput, "input x at byte 1"},
        Misbehaviour{"modify-scale", RunStatus::kModifiedInput, "w_scale"},
        Misbehaviour{"garbage-answer", RunStatus::kGarbage, "answered 1234"},
        Misbehaviour{"garbage-message", RunStatus::kGarbage, "no answer in the worker's protocol"},
        Misbehaviour{"huge-message", RunStatus::kGarbage, "no answer in the worker's protocol"},
        // A message like any of a worker's, but no answer to what was asked.
        Misbehaviour{"answer-as-another-kind", RunStatus::kGarbage, "no answer in the"},
        Misbehaviour{"answer-another-question", RunStatus::kGarbage, "no answer in the"},
        // Whatever the plugin has done to the handler of the signal.
        Misbehaviour{"ignore-segv", RunStatus::kCrashed, "killed by SIGSEGV"},
        Misbehaviour{"entry-ignore-segv", RunStatus::kTouchedOutside,
                     "past the end of y (SIGSEGV)"},
        Misbehaviour{"descriptors", RunStatus::kLeftBehind,
                     "kept every file that its process may open, then refused: said no"},
        // Though the connection stays open.
        Misbehaviour{"leave-a-child-and-exit", RunStatus::kCrashed, "exit status 17"},
        Misbehaviour{"close-socket", RunStatus::kCrashed, "closed the connection to qualm, as a"},
        Misbehaviour{"close-all", RunStatus::kCrashed, "closed the connection to qualm, as a"},
        Misbehaviour{"jump", RunStatus::kCrashed, "killed by SIG"},
        Misbehaviour{"close-and-stay", RunStatus::kCrashed, "closed its connection"},
        Misbehaviour{"refuse", RunStatus::kRefused, "said no [31m"},
        Misbehaviour{"refuse-silently", RunStatus::kRefused, "gave no reason"},
        Misbehaviour{"unsupported", RunStatus::kSkipped, "said no [31m"}),
    [](const testing::TestParamInfo<Misbehaviour>& instance) {
      std::string name = instance.param.how;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// UBSan and ASan end these themselves, before the signal: what matters is that it is a crash.
TEST(Plugin, ArithmeticFaultsAndDeepRecursionAreCrashes) {
  for (const char* how : {"divide", "recurse"}) {
    Worker worker(Broken(how));
    EXPECT_EQ(Name(worker.Run(SmallCase(), {}).status), "crashed") << how;
    EXPECT_EQ(Name(worker.Run(SmallCase(), {}).status), "crashed") << how;
  }
  // The handler has a stack of its own, or it could not say where the other one ended.
  if (kSanitized) return;
  EXPECT_EQ(Worker(Broken("divide")).Run(SmallCase(), {}).detail, "killed by SIGFPE");
  const Outcome deep = Worker(Broken("recurse")).Run(SmallCase(), {});
  EXPECT_NE(deep.detail.find(" address 0x"), std::string::npos) << deep.detail;
}

// Crashes are expected: files of memory would fill the disk, and writing them takes seconds.
TEST(Plugin, WorkersHaveTheirMemoryLimitAndDumpNoCore) {
  WorkerOptions options = Broken("nothing");
  options.memory_limit_bytes = int64_t{3} << 30;
  rlimit core{};
  getrlimit(RLIMIT_CORE, &core);
  core.rlim_cur = core.rlim_max;  // what the worker would have from here
  setrlimit(RLIMIT_CORE, &core);
  const Worker worker(options);
  std::ifstream file("/proc/" + std::to_string(worker.pid()) + "/limits");
  const std::string limits{std::istreambuf_iterator<char>(file), {}};
  const auto limit = [&](const std::string& name) {
    std::istringstream line(limits.substr(std::min(limits.find(name), limits.size())));
    line.ignore(static_cast<std::streamsize>(name.size()));
    std::string soft;
    line >> soft;
    return soft;
  };
  EXPECT_EQ(limit("Max core file size"), "0");
  if (!kSanitized) {
    EXPECT_EQ(limit("Max data size"), "3221225472");
  }
}

TEST(Plugin, AnAlarmDoesNotDisturbAWorkerThatHasItsParent) {
  Worker worker(Broken("nothing"));
  const pid_t before = worker.pid();
  kill(before, SIGALRM);
  EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
  EXPECT_EQ(worker.pid(), before);
}

// Of a worker that hangs in a process of its own, which is killed.
class Orphan {
 public:
  explicit Orphan(const std::string& how, int time_limit_ms) {
    const std::string fifo = testing::TempDir() + "qualm-fifo-" + std::to_string(getpid()) + how;
    EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    WorkerOptions options = Broken(how);
    options.environment.emplace_back("QUALM_FIFO", fifo);
    options.time_limit_ms = time_limit_ms;
    parent_ = fork();
    if (parent_ == 0) {
      Worker(options).Run(SmallCase(), {});
      _exit(0);
    }
    const int told = open(fifo.c_str(), O_RDONLY);  // until it hangs
    EXPECT_EQ(read(told, &worker_, sizeof worker_), static_cast<ssize_t>(sizeof worker_));
    close(told);
    unlink(fifo.c_str());
    end_ = static_cast<int>(syscall(SYS_pidfd_open, worker_, 0));
  }
  ~Orphan() {
    if (!Ends(0)) kill(worker_, SIGKILL);
    close(end_);
  }
  Orphan(const Orphan&) = delete;
  Orphan& operator=(const Orphan&) = delete;

  pid_t worker() const { return worker_; }
  void KillParent() const {
    kill(parent_, SIGKILL);
    waitpid(parent_, nullptr, 0);
  }
  bool Ends(int within_ms) const {
    pollfd waiting{.fd = end_, .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, within_ms) == 1;
  }

 private:
  pid_t parent_ = 0, worker_ = 0;
  int end_ = -1;
};

// It would hang for ever: nobody else ends it.
TEST(Plugin, AWorkerThatHangsEndsSoonAfterItsParent) {
  const Orphan loading("entry-hang", 900), running("hang", 900);
  loading.KillParent();
  running.KillParent();
  const Orphan later("hang-again", 60'000);
  kill(later.worker(), SIGALRM);  // it sees its parent, and looks again
  EXPECT_FALSE(later.Ends(100));
  later.KillParent();
  EXPECT_TRUE(loading.Ends(9'000));
  EXPECT_TRUE(running.Ends(9'000));
  EXPECT_TRUE(later.Ends(9'000));
}

TEST(Plugin, WorkersAreNotStartedByHand) {
  const std::string worker =
      "'" + ExecutableFolder() + "qualm-worker'";  // a folder may have spaces
  for (const char* arguments : {"", " x.so 1000 1000000000", " x.so"}) {
    FILE* const pipe = popen((worker + arguments + " 3<&- 4<&- 2>&1").c_str(), "r");
    std::array<char, 200> said{};
    EXPECT_GT(std::fread(said.data(), 1, said.size() - 1, pipe), 0u);
    EXPECT_EQ(pclose(pipe), 2 << 8) << arguments;
    EXPECT_TRUE(std::string(said.data()).starts_with("qualm-worker is started by qualm"));
  }
}

TEST(Plugin, HangIsEndedAtTheTimeLimit) {
  WorkerOptions options = Broken("hang");
  options.time_limit_ms = 300;
  Worker worker(options);
  const pid_t hung = worker.pid();
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = worker.Run(SmallCase(), {});
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(Name(outcome.status), "hung");
  EXPECT_EQ(outcome.detail, "gave no answer within 300 ms");
  EXPECT_GE(took, std::chrono::milliseconds(300));
  EXPECT_LT(took, std::chrono::seconds(10));
  EXPECT_EQ(kill(hung, 0), -1) << "the hung worker is still there";
}

// The plugin's own handler returns to the access that faults, for ever.
TEST(Plugin, ASwallowedSignalIsAHang) {
  WorkerOptions options = Broken("swallow-segv");
  options.time_limit_ms = 300;
  Worker worker(options);
  EXPECT_EQ(Name(worker.Run(SmallCase(), {}).status), "hung");
}

TEST(Plugin, AProcessThatStopsItselfIsAHang) {
  WorkerOptions options = Broken("stop");
  options.time_limit_ms = 300;
  Worker worker(options);
  EXPECT_EQ(Name(worker.Run(SmallCase(), {}).status), "hung");
}

// Whatever a plugin takes without end, there is a limit that ends it, and the next case is asked.
TEST(Plugin, WhatItTakesIsLimited) {
  for (const auto& [how, detail] : std::vector<std::pair<const char*, const char*>>{
           {"fill-file", "wrote a file longer than 128 MiB (see --memory)"},
           {"share-memory", "took more than 160 MiB (see --memory) of memory"},
           {"start-processes", "started more than 1000 processes"}}) {
    WorkerOptions options = Broken(how);
    options.memory_limit_bytes = int64_t{128} << 20;
    if (kSanitized && std::string_view(how) == "share-memory") continue;  // which take much more
    Worker worker(options);
    for (int round = 0; round < 2; ++round) {
      const Outcome outcome = worker.Run(SmallCase(), {});
      EXPECT_EQ(Name(outcome.status), "crashed") << how;
      EXPECT_EQ(outcome.detail, detail) << how;
    }
  }
}

// What makes a case fail is then what was kept, and not the case.
TEST(Plugin, ARefusalForWantOfMemoryIsNamed) {
  if (kSanitized) GTEST_SKIP() << "no memory limit under sanitizers";
  Worker worker(Broken("keep-memory-and-refuse"));
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
    EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
    const Outcome outcome = worker.Run(SmallCase(), {});
    EXPECT_EQ(Name(outcome.status), "left-behind") << outcome.detail;
    EXPECT_TRUE(std::regex_match(
        outcome.detail,
        std::regex(
            "kept [0-9]+ MiB of the 2048 that its process may have, then refused: said no.*")))
        << outcome.detail;
  }
}

// Each time costs as long as it takes to touch all that memory.
TEST(Plugin, OneThatTakesAllItsMemoryIsToldSoAndGivenUp) {
  if (kSanitized) GTEST_SKIP() << "no memory limit under sanitizers";
  WorkerOptions options = Broken("use-memory-and-crash");
  options.memory_limit_bytes = int64_t{512} << 20;  // more than this process has
  PluginSubject subject("plugin:takes-all", options);
  Case c = SmallCase();
  c.x_q.zero_point = {0};
  for (int i = 0; i < 10; ++i) {
    const Outcome outcome = subject.Run(c, {});
    EXPECT_EQ(Name(outcome.status), "crashed");
    EXPECT_TRUE(outcome.detail.starts_with("killed by SIGSEGV")) << outcome.detail;
    EXPECT_NE(outcome.detail.find("had taken most of the memory"), std::string::npos)
        << outcome.detail;
  }
  EXPECT_EQ(subject.Run(c, {}).detail, "given up: it took all its memory 10 times in this run");
}

TEST(Plugin, OneThatFillsFilesIsGivenUp) {
  WorkerOptions options = Broken("fill-file");
  options.memory_limit_bytes = int64_t{64} << 20;
  PluginSubject subject("plugin:fills-files", options);
  Case c = SmallCase();
  c.x_q.zero_point = {0};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Name(subject.Run(c, {}).status), "crashed");
  EXPECT_EQ(subject.Run(c, {}).detail, "given up: it filled a file 3 times in this run");
}

// A daemon leaves the group of processes that ends with the worker.
TEST(Plugin, ADaemonEndsSoonAfterTheWorker) {
  const std::string fifo = FileOf("fifo-of-a-daemon");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int told = open(fifo.c_str(), O_RDWR);
  WorkerOptions options = Broken("leave-daemon");
  options.environment.emplace_back("QUALM_FIFO", fifo);
  pid_t daemon = 0;
  {
    Worker worker(options);
    EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
    ASSERT_EQ(read(told, &daemon, sizeof daemon), static_cast<ssize_t>(sizeof daemon));
  }
  close(told);
  unlink(fifo.c_str());
  const int end = static_cast<int>(syscall(SYS_pidfd_open, daemon, 0));
  const auto ended = [&] {
    pollfd waiting{.fd = end, .events = POLLIN, .revents = 0};
    return end < 0 || poll(&waiting, 1, 0) == 1;
  };
  // Others are looked for once a second at most, when a worker ends.
  for (int i = 0; i < 100 && !ended(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const Worker another(Broken("nothing"));
  }
  EXPECT_TRUE(ended());
  if (end >= 0) close(end);
}

TEST(Plugin, AProcessLeftBehindEndsWithTheWorker) {
  std::set<pid_t> left;
  {
    Worker worker(Broken("leave-a-child"));
    EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
    std::ifstream children("/proc/" + std::to_string(worker.pid()) + "/task/" +
                           std::to_string(worker.pid()) + "/children");
    for (pid_t child = 0; children >> child;) left.insert(child);
    ASSERT_EQ(left.size(), 1u);
  }
  // Killing takes a moment; the process that adopted the child may not have reaped it yet.
  const auto state = [&] {
    std::ifstream status("/proc/" + std::to_string(*left.begin()) + "/stat");
    std::string number, name, letter = "gone";
    status >> number >> name >> letter;
    return letter;
  };
  for (int i = 0; i < 1000 && state() != "gone" && state() != "Z" && state() != "X"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(state() == "gone" || state() == "Z" || state() == "X") << state();
}

// Memory that a plugin keeps makes no case too large: that would hide it behind skips.
TEST(Plugin, MemoryThatItKeepsIsNamed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer ends the process where memory is short";
  Case larger = SmallCase();
  larger.M = larger.N = 300;
  larger.x = Tensor(DType::kU8, {300, 3});
  larger.w = Tensor(DType::kS8, {300, 3});
  Worker keeps(Broken("keep-memory-later"));
  EXPECT_TRUE(keeps.Run(SmallCase(), {}).ok());
  EXPECT_TRUE(keeps.Run(SmallCase(), {}).ok());
  const Outcome later = keeps.Run(larger, {});
  EXPECT_EQ(Name(later.status), "crashed") << later.detail;
  EXPECT_EQ(later.detail, "uses up the memory of its process from call to call");
  const Outcome at_once = Worker(Broken("keep-memory")).Run(larger, {});
  EXPECT_EQ(Name(at_once.status), "left-behind") << at_once.detail;
  EXPECT_NE(at_once.detail.find("took all the memory"), std::string::npos) << at_once.detail;
}

TEST(Plugin, ACaseThatIsTooLargeIsSkipped) {
  if (kSanitized) GTEST_SKIP() << "no memory limit under sanitizers";
  WorkerOptions options = Broken("nothing");
  options.memory_limit_bytes = int64_t{1} << 29;
  Worker worker(options);
  Case large = SmallCase();
  large.M = large.N = 20'000;  // 1.6 GB of output
  large.x = Tensor(DType::kU8, {large.M, 3});
  large.w = Tensor(DType::kS8, {large.N, 3});
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
    const Outcome outcome = worker.Run(large, {});
    EXPECT_EQ(Name(outcome.status), "skipped") << outcome.detail;
    EXPECT_EQ(outcome.detail, kNoMemoryLeft);
  }
}

// The worker itself keeps buffers as large as the largest question. That is not the plugin's doing.
TEST(Plugin, MemoryThatTheWorkerKeepsIsNotThePlugins) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer ends the process where memory is short";
  Case larger = SmallCase();
  larger.M = larger.N = 300;
  larger.x = Tensor(DType::kU8, {300, 3});
  larger.w = Tensor(DType::kS8, {300, 3});
  Case question = SmallCase();
  question.M = question.N = 1;
  question.K = 40 << 20;
  question.x = Tensor(DType::kU8, {1, question.K});
  question.w = Tensor(DType::kS8, {1, question.K});
  Worker keeps(Broken("keep-memory-later"));
  EXPECT_TRUE(keeps.Run(question, {}).ok());
  EXPECT_TRUE(keeps.Run(SmallCase(), {}).ok());
  const Outcome excused = keeps.Run(larger, {});
  EXPECT_TRUE(excused.ok()) << excused.detail;
  // The worker is a new one now, and has room for what it was asked.
  EXPECT_TRUE(keeps.Run(SmallCase(), {}).ok());
  larger.M = 600;
  larger.x = Tensor(DType::kU8, {600, 3});
  EXPECT_EQ(keeps.Run(larger, {}).detail, "uses up the memory of its process from call to call");
}

// Nobody can tell it from the worker's. So the two messages above are refused for nothing else than
// their kind and their number.
TEST(Plugin, AnAnswerToTheQuestionIsTaken) {
  EXPECT_EQ(Name(Worker(Broken("answer-by-itself")).Run(SmallCase(), {}).status), "refused");
}

// One of them is as long as the message of a trap.
TEST(Plugin, ARefusalOfAnyLengthIsARefusal) {
  Worker worker(Broken("say-qparams"));
  std::vector<uint8_t> payload;
  bool as_long_as_a_trap = false;
  for (int32_t zero = 1; zero < 1'000'000'000; zero *= 10) {
    Case c = SmallCase();
    c.x_q.zero_point = {zero};
    const Outcome outcome = worker.Run(c, {});
    EXPECT_EQ(Name(outcome.status), "refused") << outcome.detail;
    EncodeOutcome(outcome, payload);
    as_long_as_a_trap |= payload.size() == sizeof(Trap);
  }
  EXPECT_TRUE(as_long_as_a_trap);
}

TEST(Plugin, AWorkerThatSendsGarbageIsAskedNothingMore) {
  Worker worker(Broken("garbage-message"));
  const pid_t before = worker.pid();
  EXPECT_EQ(Name(worker.Run(SmallCase(), {}).status), "garbage");
  EXPECT_EQ(Name(worker.Run(SmallCase(), {}).status), "garbage");
  EXPECT_NE(worker.pid(), before);
}

TEST(Plugin, ASkippedCaseEndsNoWorker) {
  Worker worker(Broken("unsupported"));
  const pid_t before = worker.pid();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Name(worker.Run(SmallCase(), {}).status), "skipped");
    EXPECT_EQ(worker.pid(), before);
  }
}

TEST(Plugin, AWorkerThatDoesNotStartAgainIsReportedEachTime) {
  for (const auto& [how, part] : std::vector<std::pair<const char*, const char*>>{
           {"entry-hang", "could not be loaded within 400 ms"},
           {"entry-null", "returned NULL"},
           {"entry-garbage", "no message of this protocol"}}) {
    WorkerOptions options = Broken("exit");
    options.environment.emplace_back("QUALM_FILE", FileOf("again"));
    options.environment.emplace_back("QUALM_AGAIN", how);
    options.time_limit_ms = 400;
    Worker worker(options);
    EXPECT_EQ(worker.Run(SmallCase(), {}).detail, "ended the process with exit status 17");
    for (int i = 0; i < 2; ++i) {
      const Outcome outcome = worker.Run(SmallCase(), {});
      EXPECT_EQ(Name(outcome.status), "crashed");
      EXPECT_TRUE(outcome.detail.starts_with("the worker could not be started again: "))
          << outcome.detail;
      EXPECT_NE(outcome.detail.find(part), std::string::npos) << outcome.detail;
    }
  }
}

// What a plugin does at its end, such as writing which lines were covered, is done.
TEST(Plugin, IsAskedToLeaveBeforeItIsKilled) {
  const std::string file = FileOf("unloaded");
  WorkerOptions options = Broken("unload");
  options.environment.emplace_back("QUALM_UNLOADED", file);
  EXPECT_TRUE(Worker(options).Run(SmallCase(), {}).ok());
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST(Plugin, WriteBeforeTheOutputIsSeen) {
  // At the guard page, and, where the buffer ends at one, in the pattern before it.
  for (const bool end_at_guard : {false, true}) {
    Worker worker(Broken("write-before"));
    RunContext context;
    context.end_at_guard = end_at_guard;
    const Outcome outcome = worker.Run(SmallCase(), context);
    EXPECT_EQ(Name(outcome.status), "touched-outside") << end_at_guard << outcome.detail;
    EXPECT_NE(outcome.detail.find(end_at_guard ? "wrote outside y" : "before the start of y"),
              std::string::npos)
        << outcome.detail;
  }
}

// A buffer of the call before is none that this call could have left.
TEST(Plugin, AnOldBufferIsNotNamed) {
  Worker worker(Broken("write-past-old-accumulators"));
  const Outcome with = worker.Run(SmallCase(), {.want_acc = true});
  EXPECT_TRUE(with.ok()) << with.detail;
  const Outcome without = worker.Run(SmallCase(), {});
  EXPECT_EQ(without.detail.find("of acc"), std::string::npos) << without.detail;
  EXPECT_NE(without.detail.find("SIGSEGV"), std::string::npos) << without.detail;
}

TEST(Plugin, WriteIntoARowGapIsSeen) {
  Worker worker(Broken("write-gap"));
  RunContext context;
  context.y_row_gap = 3;
  const Outcome outcome = worker.Run(SmallCase(), context);
  EXPECT_EQ(Name(outcome.status), "touched-outside");
  EXPECT_NE(outcome.detail.find("gap between two rows of y"), std::string::npos) << outcome.detail;
}

TEST(Plugin, DeclaredSlackMayBeReadOnly) {
  Worker worker(Broken("read-slack"));
  const Outcome outcome = worker.Run(SmallCase(), {});
  EXPECT_TRUE(outcome.ok()) << outcome.detail;
}

TEST(Plugin, DeclaredAlignmentIsKept) {
  for (const bool end_at_guard : {false, true}) {
    RunContext context;
    context.end_at_guard = end_at_guard;
    context.align_offset = 3;
    Worker needs_it(Broken("need-alignment"));
    EXPECT_TRUE(needs_it.Run(SmallCase(), context).ok());
    Worker does_not_say_so(Broken("need-alignment-silently"));
    EXPECT_EQ(Name(does_not_say_so.Run(SmallCase(), context).status), "refused");
    context.callers = 9;  // each with an output of its own
    EXPECT_TRUE(needs_it.Run(SmallCase(), context).ok());
  }
}

// The property of equal bits under another poison finds it; here: the poison arrives unchanged.
TEST(Plugin, OutputLeftUnwrittenShowsThePoison) {
  Worker worker(Broken("leave-output"));
  for (const uint8_t poison : {0xA5, 0x3C}) {
    RunContext context;
    context.poison = poison;
    const Outcome outcome = worker.Run(SmallCase(), context);
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    for (const uint8_t byte : outcome.y.bytes()) EXPECT_EQ(byte, poison);
  }
}

TEST(Plugin, RowGapsAreSkippedWhereThePluginTakesDenseRowsOnly) {
  Worker worker(Broken("dense-only"));
  RunContext context;
  context.x_row_gap = 1;
  const Outcome outcome = worker.Run(SmallCase(), context);
  EXPECT_EQ(Name(outcome.status), "skipped");
  EXPECT_NE(outcome.detail.find("dense rows"), std::string::npos) << outcome.detail;
}

Case AddCase() {
  Case c;
  c.op = Op::kAdd;
  c.M = 2;
  c.N = 2;
  c.x = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{1, 2, 3, 4});
  c.w = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{10, 20, 30, 40});
  return c;
}

TEST(Plugin, TheSecondOperandArrivesAndIsWatched) {
  const Tensor sum = Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{11, 22, 33, 44});
  for (const int64_t gap : {0, 3}) {
    Worker worker(Broken("nothing"));
    const Outcome outcome = worker.Run(AddCase(), {.x_row_gap = gap, .y_row_gap = 2 * gap});
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    EXPECT_EQ(outcome.y, sum);
  }
  Worker harm(Broken("modify-w"));
  const Outcome outcome = harm.Run(AddCase(), {});
  EXPECT_EQ(Name(outcome.status), "modified-input");
  EXPECT_EQ(outcome.detail, "changed its input w at byte 0");
}

TEST(Plugin, WhatItLeavesBehindIsNamed) {
  for (const auto& [how, detail] : std::vector<std::pair<const char*, const char*>>{
           {"leave-rounding", "left another floating-point control word"},
           {"block-signal", "left another signal mask: signal 10"},
           {"leave-folder", "left another working directory"},
           {"leave-mask", "left another mask of new files (umask)"},
           {"leave-locale", "left another locale"},
           {"leave-handler", "left another handler of signal 12"},
           {"leave-thread", "kept 1 threads for each call"},
           {"leave-a-child", "kept 1 processes for each call"},
           {"leave-daemon", "kept 1 processes for each call"},
           {"leave-file", "kept 1 open files for each call"},
           {"leak", "bytes of memory for each call"}}) {
    if (std::string_view(how) == "leak" && kSanitized) continue;
    Worker worker(Broken(how));
    EXPECT_TRUE(worker.Run(SmallCase(), {}).ok()) << how;
    const Outcome outcome = worker.Run(SmallCase(), {.watch = true});
    EXPECT_EQ(Name(outcome.status), "left-behind") << how;
    EXPECT_NE(outcome.detail.find(detail), std::string::npos) << outcome.detail;
  }
  Worker clean(Broken("nothing"));
  EXPECT_TRUE(clean.Run(SmallCase(), {.watch = true}).ok());
}

TEST(Plugin, ThreadsGapsAndCallersOnlyWhereTheyAreOffered) {
  Worker plain(Broken("nothing"));
  for (const RunContext& context :
       {RunContext{.w_row_gap = 2}, RunContext{.callers = 3}, RunContext{.threads = 3}}) {
    EXPECT_EQ(Name(plain.Run(SmallCase(), context).status), "skipped");
  }
  EXPECT_EQ(Name(plain.Run(AddCase(), {.over_w = true}).status), "skipped");
  // This plugin answers what it was told to answer.
  Worker told(Broken("layers"));
  const auto answer = [](const Outcome& outcome) {
    EXPECT_TRUE(outcome.ok()) << outcome.detail;
    return outcome.ok() ? outcome.y.IntAt(0) : -1;
  };
  EXPECT_EQ(answer(told.Run(SmallCase(), {})), 0);
  EXPECT_EQ(answer(told.Run(SmallCase(), {.w_row_gap = 2})), 2);
  EXPECT_EQ(answer(told.Run(SmallCase(), {.threads = 3})), 300);
  EXPECT_EQ(told.Run(AddCase(), {.over_w = true}).y, told.Run(AddCase(), {}).y);
  Case twice = AddCase();
  twice.w = twice.x;
  EXPECT_EQ(told.Run(twice, {.shared_inputs = true}).y, told.Run(twice, {}).y);
  // Each call of this one gives another answer: several callers show it.
  Worker counts(Broken("count-calls"));
  EXPECT_EQ(answer(counts.Run(SmallCase(), {})), 1);
  EXPECT_EQ(answer(counts.Run(SmallCase(), {.calls = 3})), 4);
  const int32_t last = answer(counts.Run(SmallCase(), {.callers = 3}));
  EXPECT_GE(last, 6);  // 5 is the call before the three
  EXPECT_LE(last, 8);
  EXPECT_EQ(answer(counts.Run(SmallCase(), {})), 9) << "a call before the three, and no other";
}

// Of several calls each has to succeed, whoever makes it.
TEST(Plugin, AFailureOfOneCallOfManyIsAFailure) {
  for (const RunContext& context :
       {RunContext{.calls = 2}, RunContext{.watch = true}, RunContext{.callers = 3}}) {
    EXPECT_EQ(Name(Worker(Broken("refuse-first-call")).Run(SmallCase(), context).status),
              "refused");
  }
  for (const char* how : {"refuse-others", "refuse-second-call"}) {
    Worker worker(Broken(how));
    EXPECT_EQ(Name(worker.Run(SmallCase(), {.callers = 3}).status), "refused") << how;
  }
}

// One answer of nine calls at once that differs is seen, whichever it is.
TEST(Plugin, AnAnswerThatDiffersFromTheFirstIsTheAnswer) {
  for (const char* how : {"first-other-differs", "last-other-differs"}) {
    const Outcome outcome = Worker(Broken(how)).Run(SmallCase(), {.callers = 9});
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    EXPECT_EQ(outcome.y.IntAt(0), 9) << how;
  }
}

// Callers of one problem would fill what they share with the same numbers: some ask for another.
TEST(Plugin, WhatCallersShareIsSeenBesideOtherInputs) {
  for (const auto& [how, alone, beside] :
       {std::tuple{"share-a-code", 1, 6}, std::tuple{"share-a-size", 2, 1}}) {
    Worker worker(Broken(how));
    EXPECT_EQ(worker.Run(SmallCase(), {}).y.IntAt(0), alone) << how;
    const Outcome outcome = worker.Run(SmallCase(), {.callers = 2});
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    EXPECT_EQ(outcome.y.IntAt(0), beside) << how;
  }
}

// Callers at once would write over each other's accumulators: one is asked for them.
TEST(Plugin, AccumulatorsAreAskedOfOneCaller) {
  Worker worker(Broken("count-accumulators"));
  EXPECT_TRUE(worker.Run(SmallCase(), {.callers = 3, .want_acc = true}).ok());
  const Outcome outcome = worker.Run(SmallCase(), {});
  ASSERT_TRUE(outcome.ok()) << outcome.detail;
  EXPECT_EQ(outcome.y.IntAt(0), 2);  // a call before the three, and one of them
}

TEST(Plugin, InPlaceOnlyWhereItIsOffered) {
  Worker worker(Broken("in-place"));
  for (const int64_t gap : {0, 3}) {
    const Outcome outcome = worker.Run(AddCase(), {.x_row_gap = gap, .in_place = true});
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    EXPECT_EQ(outcome.y, Tensor::Of<uint8_t>({2, 2}, std::vector<uint8_t>{11, 22, 33, 44}));
  }
  const auto skipped = [](const char* how, const Case& c, const RunContext& context) {
    Worker other(Broken(how));
    const Outcome outcome = other.Run(c, context);
    EXPECT_EQ(Name(outcome.status), "skipped");
    return outcome.detail;
  };
  EXPECT_EQ(skipped("nothing", AddCase(), {.in_place = true}),
            "does not run in place (no QUALM_CAN_IN_PLACE)");
  EXPECT_EQ(skipped("in-place", SmallCase(), {.in_place = true}), "linear does not run in place");
  EXPECT_EQ(skipped("nothing", SmallCase(), {.threads = 2}),
            "is not told how many threads to use (no QUALM_CAN_THREADS)");
}

TEST(Plugin, MemoryIsLimited) {
  if (kSanitized) GTEST_SKIP() << "no address space limit under sanitizers";
  Worker worker(Broken("memory"));
  const Outcome outcome = worker.Run(SmallCase(), {});
  EXPECT_EQ(Name(outcome.status), "crashed");
  EXPECT_NE(outcome.detail.find("bad_alloc"), std::string::npos) << outcome.detail;
}

TEST(Plugin, PrintingDoesNotDisturbTheProtocol) {
  Worker worker(Broken("print"));
  EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
}

TEST(Plugin, CrashOnOneCaseLeavesTheOthersRunning) {
  Worker worker(Broken("crash-on-9"));
  Case bad = SmallCase();
  bad.x.SetInt(0, 9);
  const pid_t first = worker.pid();
  EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
  EXPECT_EQ(worker.pid(), first) << "one worker serves many cases";
  EXPECT_EQ(Name(worker.Run(bad, {}).status), "crashed");
  EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
  EXPECT_NE(worker.pid(), first);
  EXPECT_EQ(Name(worker.Run(bad, {}).status), "crashed");
}

TEST(Plugin, WorkerKilledBetweenTwoRunsIsReportedNotFatal) {
  // The write to its socket would raise SIGPIPE here.
  Worker worker(Broken("nothing"));
  ASSERT_TRUE(worker.Run(SmallCase(), {}).ok());
  kill(worker.pid(), SIGKILL);
  siginfo_t gone{};  // wait for its end, and so for that of its socket, without reaping it
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(worker.pid()), &gone, WEXITED | WNOWAIT), 0);
  const Outcome outcome = worker.Run(SmallCase(), {});
  EXPECT_EQ(Name(outcome.status), "crashed");
  EXPECT_NE(outcome.detail.find("SIGKILL"), std::string::npos) << outcome.detail;
  EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
}

TEST(Plugin, WhatIsNoPluginIsTurnedAwayWithASentence) {
  const auto expect = [](WorkerOptions options, const std::string& part) {
    options.time_limit_ms = part.find("within") == std::string::npos ? 10'000 : 400;
    const std::string error = LoadError(options);
    EXPECT_NE(error.find(part), std::string::npos) << part << " <- " << error;
    EXPECT_NE(error.find(options.plugin), std::string::npos) << "names no file: " << error;
  };
  expect(Broken("wrong-version"),
         "built for version 99 of the plugin interface, this is version 1");
  expect(Broken("wrong-size"), "qualm_plugin.size is 40");
  // The number of a version is read where the size says that there is one.
  expect(Broken("least-of-another-version"), "built for version 99");
  expect(Broken("less-of-another-version"), "qualm_plugin.size is ");
  expect(Broken("largest-of-another-version"), "built for version 99");
  expect(Broken("huge-of-another-version"), "qualm_plugin.size is 4097");
  expect(Broken("capability-size"), "capability of linear: size is 8");
  expect(Broken("capability-huge"), "capability of linear: size is 4097");
  expect(Broken("capability-alignment"), "alignment_bytes is 3");
  expect(Broken("newer-asks"),
         "capability of linear: byte 112 is not 0: it was built with a newer");
  expect(Broken("domain-of-2001"), "capability of linear: domain has more than 2000 bytes");
  expect(Broken("format"),
         "capability of linear: w_formats is 'q4_0 q9_9', expected names "
         "between spaces of q8_0, q4_0, ");
  expect(Broken("entry-null"), "returned NULL");
  expect(Broken("entry-wild"), "crashed while it was loaded: killed by SIGSEGV");
  expect(Broken("entry-exit"), "exit status 5");
  expect(Broken("entry-hang"), "could not be loaded within 400 ms");
  expect(Broken("entry-garbage"), "no message of this protocol");
  expect(Broken("entry-half-a-message"), "no message of this protocol");
  expect(Broken("no-capability"), "qualm_plugin.capability is NULL");
  expect(Broken("null-function"), "qualm_plugin.run is NULL");
  expect(Broken("no-last-error"), "qualm_plugin.last_error is NULL");
  expect(Broken("no-name"), "name is empty");
  expect({.plugin = Module("qualm_no_entry"), .environment = {}}, "exports no qualm_plugin_entry");
  expect({.plugin = "/nowhere/at-all.so", .environment = {}}, "cannot be loaded");
  const std::string text = testing::TempDir() + "qualm-not-a-library.so";
  std::ofstream(text) << "This is not a shared object.\n";
  expect({.plugin = text, .environment = {}}, "cannot be loaded");
}

TEST(Plugin, ContractThatIsNoneIsTurnedAway) {
  try {
    const PluginSubject subject("plugin:broken", Broken("wrong-contract"));
    FAIL();
  } catch (const Unavailable& error) {
    EXPECT_STREQ(error.what(),
                 "subject 'plugin:broken': its contract 'mostly right' is none, expected exact, "
                 "sum, sum+offsets, tree:{...}, model:NAME or within:V1,V8, and OP=CONTRACT for "
                 "one operation");
  }
}

// Whatever instance hangs: each thread and each step of triage has its own.
TEST(Plugin, AfterThreeHangsTheSubjectIsGivenUp) {
  Case c = SmallCase();
  c.x_q.zero_point = {0};  // all that it offers
  WorkerOptions options = Broken("hang");
  options.time_limit_ms = 100;
  PluginSubject first("plugin:hangs", options), second("plugin:hangs", options);
  EXPECT_EQ(Name(first.Run(c, {}).status), "hung");
  EXPECT_EQ(Name(second.Run(c, {}).status), "hung");
  EXPECT_EQ(first.CannotRun(c), "");
  EXPECT_EQ(Name(first.Run(c, {}).status), "hung");
  for (PluginSubject* subject : {&first, &second}) {
    const Outcome outcome = subject->Run(c, {});
    EXPECT_EQ(Name(outcome.status), "skipped");
    EXPECT_EQ(outcome.detail, "given up: it hung 3 times in this run");
    EXPECT_EQ(subject->CannotRun(c), outcome.detail);
  }
  PluginSubject other("plugin:other", Broken("nothing"));
  EXPECT_TRUE(other.Run(c, {}).ok());
}

TEST(Plugin, MissingWorkerIsUnavailableNotACrash) {
  setenv("QUALM_WORKER", "/nowhere/qualm-worker", 1);
  const std::string error = LoadError(Broken("nothing"));
  unsetenv("QUALM_WORKER");
  EXPECT_NE(error.find("QUALM_WORKER"), std::string::npos) << error;
  EXPECT_EQ(LoadError(Broken("nothing")), "");
}

// In a copy of this program that lies alone in a folder.
TEST(Plugin, AMissingWorkerBesideTheProgramIsNamed) {
  const char* const kAlone = "QUALM_TEST_ALONE";
  if (std::getenv(kAlone) != nullptr) {
    EXPECT_EQ(LoadError(Broken("nothing")), "no qualm-worker in " + ExecutableFolder() +
                                                " (build it, or set QUALM_WORKER to its path)");
    return;
  }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("qualm-alone-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const std::string copy = folder / "plugin_test";
  std::filesystem::copy_file("/proc/self/exe", copy);
  setenv(kAlone, "1", 1);
  EXPECT_EQ(
      std::system(("'" + copy + "' --gtest_filter='*AMissingWorkerBeside*' >/dev/null").c_str()),
      0);
  unsetenv(kAlone);
  std::filesystem::remove_all(folder);
}

TEST(Plugin, NoDescriptorForAWorkerIsUnavailableNotACrash) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit full = before;
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(next);
  full.rlim_cur = static_cast<rlim_t>(next);
  setrlimit(RLIMIT_NOFILE, &full);
  const std::string error = LoadError(Broken("nothing"));
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(error, "qualm-worker: no socket: Too many open files");
}

TEST(Plugin, TheWorkerOfTheEnvironmentIsTaken) {
  setenv("QUALM_WORKER", "/bin/false", 1);
  const std::string error = LoadError(Broken("nothing"));
  unsetenv("QUALM_WORKER");
  EXPECT_NE(error.find("ended the process with exit status 1"), std::string::npos) << error;
}

TEST(Plugin, SaysWhatItOffers) {
  EXPECT_EQ(Worker(Broken("no-contract")).info().contract, "exact");
  constexpr auto kLinear = static_cast<size_t>(Op::kLinear);
  EXPECT_EQ(Worker(Broken("no-contract")).info().domains[kLinear], "");
  EXPECT_EQ(Worker(Broken("domain")).info().domains[kLinear], "x_scale 0.5 2; K 1 64");
  // A plugin that is older than the member, whose size ends before it.
  EXPECT_EQ(Worker(Broken("domain-beyond")).info().domains[kLinear], "");
  // Longer than other texts may be, and not cut off where it is too long.
  EXPECT_EQ(Worker(Broken("contract-of-2000")).info().contract, "model:" + std::string(1994, 'm'));
  EXPECT_THROW(PluginSubject("plugin:broken", Broken("contract-of-2001")), Unavailable);
  // All that it was asked for: an observer is nothing that a plugin could be asked for.
  const Worker everything(Broken("say-numbers"));
  for (const Op op : AllOps()) {
    EXPECT_EQ(everything.info().limits[static_cast<size_t>(op)].has_value(),
              op != Op::kChooseQParams)
        << Name(op);
  }
  Worker worker(Broken("nothing"));
  const Outcome outcome =
      worker.Run(CaseOver(Op::kRescale, Tensor(DType::kU8, {1, 1}), DType::kU8), {});
  EXPECT_EQ(Name(outcome.status), "skipped");
  EXPECT_EQ(outcome.detail, "operation not offered");
}

// Whatever of a problem does not arrive is computed wrongly by somebody who did nothing wrong.
std::string Said(const std::string& what, const Case& c, const RunContext& context = {}) {
  EXPECT_EQ(Validate(c), "");
  Worker worker(Broken("say-" + what));
  return worker.Run(c, context).detail;
}

TEST(Plugin, IsToldWhereTensorsLie) {
  EXPECT_EQ(Said("tensors", SmallCase()),
            "x 0 2x3 by 3x1. w 1 2x3 by 3x1. y 2 2x2 by 2x1. acc none. ");
  const RunContext gaps{.x_row_gap = 1, .y_row_gap = 2, .w_row_gap = 4, .want_acc = true};
  EXPECT_EQ(Said("tensors", SmallCase(), gaps),
            "x 0 2x3 by 4x1. w 1 2x3 by 7x1. y 2 2x2 by 4x1. acc 2 2x2 by 2x1. ");
  Case conv;
  conv.op = Op::kConv2d;
  conv.window = {.batch = 1, .in_h = 3, .in_w = 3, .in_c = 2, .kernel_h = 2, .kernel_w = 2};
  conv.N = 2;
  conv.x = Tensor(DType::kU8, {1, 3, 3, 2});
  conv.w = Tensor(DType::kS8, {2, 2, 2, 2});
  DeriveSizes(&conv);
  EXPECT_EQ(Said("tensors", conv),
            "x 0 1x3x3x2 by 18x6x2x1. w 1 2x2x2x2 by 8x4x2x1. y 0 1x2x2x2 by 8x4x2x1. acc none. ");
  EXPECT_EQ(
      Said("tensors", conv, {.x_row_gap = 1, .y_row_gap = 3, .w_row_gap = 5}),
      "x 0 1x3x3x2 by 27x9x3x1. w 1 2x2x2x2 by 13x4x2x1. y 0 1x2x2x2 by 20x10x5x1. acc none. ");
  EXPECT_EQ(Said("tensors", conv, {.x_line_gap = 4}).substr(0, 25), "x 0 1x3x3x2 by 30x10x2x1.");
  const Case rescale = CaseOver(Op::kRescale, Tensor(DType::kU8, {1, 2}), DType::kU8);
  EXPECT_EQ(Said("tensors", rescale), "x 0 1x2 by 2x1. w none. y 0 1x2 by 2x1. acc none. ");
  EXPECT_EQ(Said("tensors", rescale, {.want_acc = true}),
            "x 0 1x2 by 2x1. w none. y 0 1x2 by 2x1. acc none. ")
      << "which has no sums";
  // What cannot be laid is not asked for, whatever the plugin offers.
  EXPECT_EQ(Said("tensors", rescale, {.x_line_gap = 1}), "has no images of dense pixels");
  EXPECT_EQ(Said("tensors", rescale, {.over_w = true}), "has no second operand");
}

TEST(Plugin, IsToldTheParametersOfQuantization) {
  Case c = SmallCase();
  c.x_q = {{0.5f}, {3}};
  c.w_q = {{2, 4}, {5, -6}};
  c.per_channel = true;
  c.bias_i32 = {{7, 8}};
  EXPECT_EQ(Said("qparams", c), "x 1: 0.5 3. w 2: 2 5 4 -6. out 1: 1 0. bias_i32 7 8. ");
  c.out_dtype = DType::kU8;
  OpenClamp(&c);
  c.out_q = {{8}, {9}};
  c.bias_i32.reset();
  c.bias = {{1.5f, 2}};
  EXPECT_EQ(Said("qparams", c), "x 1: 0.5 3. w 2: 2 5 4 -6. out 1: 8 9. bias 1.5 2. ");
  Case requantize = CaseOver(Op::kRequantize, Tensor(DType::kS32, {1, 2}), DType::kU8);
  requantize.per_channel = true;
  requantize.multiplier = {0.25f, 0.5f};
  EXPECT_EQ(Said("qparams", requantize).substr(Said("qparams", requantize).find("multiplier")),
            "multiplier 0.25 0.5. ");
}

TEST(Plugin, IsToldTheWindow) {
  EXPECT_EQ(Said("window", SmallCase()), "none. ");
  Case c;
  c.op = Op::kMaxPool;
  c.window = {.batch = 1, .in_h = 20, .in_w = 20, .in_c = 1, .kernel_h = 3, .kernel_w = 4};
  c.window.stride_h = 2, c.window.stride_w = 5;
  c.window.pad_top = 1, c.window.pad_bottom = 2, c.window.pad_left = 3, c.window.pad_right = 0;
  c.window.dilation_h = 6, c.window.dilation_w = 4;
  c.x = Tensor(DType::kU8, {1, 20, 20, 1});
  DeriveSizes(&c);
  EXPECT_EQ(Said("window", c), "3 4 2 5 1 2 3 0 6 4 1 ceil 0 count 0. ");
  c.window.ceil_mode = true;
  DeriveSizes(&c);
  EXPECT_EQ(Said("window", c), "3 4 2 5 1 2 3 0 6 4 1 ceil 1 count 0. ");
  c.window.ceil_mode = false;
  c.window.dilation_h = c.window.dilation_w = 1;
  c.op = Op::kAvgPool;
  c.window.count_include_pad = true;
  DeriveSizes(&c);
  EXPECT_EQ(Said("window", c), "3 4 2 5 1 2 3 0 1 1 1 ceil 0 count 1. ");
}

TEST(Plugin, IsToldTheNumbersOfAProblem) {
  Case c = SmallCase();
  EXPECT_EQ(Said("numbers", c),
            "op 3 relu 0 function 0 slope 0.01 per_channel 0 threads 0 min -2147483648 "
            "max 2147483647. ");
  c.relu = true;
  c.per_channel = true;
  c.w_q = {{1, 1}, {0, 0}};
  c.out_min = -5;
  c.out_max = 6;
  EXPECT_EQ(Said("numbers", c, {.threads = 2}),
            "op 3 relu 1 function 0 slope 0.01 per_channel 1 threads 2 min -5 max 6. ");
  Case blocks = SmallCase();
  blocks.per_channel = true;
  blocks.w_block = 1;
  blocks.w_q = {std::vector<float>(static_cast<size_t>(blocks.N * blocks.K), 1),
                std::vector<int32_t>(static_cast<size_t>(blocks.N * blocks.K), 0)};
  blocks.out_dtype = DType::kU8;
  OpenClamp(&blocks);
  ASSERT_EQ(Validate(blocks), "");
  EXPECT_NE(Said("numbers", blocks).find("granularity 3 1 1. "), std::string::npos);
  blocks.x_block = 1;
  blocks.x_q = {std::vector<float>(static_cast<size_t>(blocks.M * blocks.K), 1),
                std::vector<int32_t>(static_cast<size_t>(blocks.M * blocks.K), 0)};
  blocks.out_dtype = DType::kF32;
  blocks.out_q = QParams{};
  OpenClamp(&blocks);
  ASSERT_EQ(Validate(blocks), "");
  EXPECT_NE(Said("numbers", blocks).find("granularity 3 1 1. granularity 3 1 1. "),
            std::string::npos);
  Case cast = CaseOver(Op::kCast, Tensor(DType::kF32, {1, 4}), DType::kF8E4M3FN);
  cast.x_block = 2;  // of both scales
  cast.x_q = cast.out_q = {{1, 2}, {0, 0}};
  EXPECT_TRUE(Said("numbers", cast).ends_with("granularity 3 1 2. granularity 3 1 2. "));
  Case table = CaseOver(Op::kTable, Tensor(DType::kU8, {1, 1}), DType::kU8);
  table.function = Function::kLeakyRelu;
  table.negative_slope = 0.5f;
  EXPECT_EQ(Said("numbers", table),
            "op 13 relu 0 function 1 slope 0.5 per_channel 0 threads 0 min 0 max 255. ");
  Case dynamic = CaseOver(Op::kDynamicLinear, Tensor(DType::kF32, {1, 1}), DType::kF32);
  dynamic.K = 1;
  dynamic.w = Tensor(DType::kS8, {1, 1});
  dynamic.observer.symmetric = true;
  dynamic.observer.dtype = DType::kS8;
  dynamic.observer.quant_min = -8;
  dynamic.observer.quant_max = 7;
  const auto choice = [&] {
    const std::string said = Said("numbers", dynamic);
    return said.substr(said.find("choice"));
  };
  EXPECT_EQ(choice(), "choice 0 1 0 1 -8 7. ");
  dynamic.observer.symmetric = false;
  dynamic.observer.reduce_range = true;
  dynamic.x_gran = Granularity::kRow;
  EXPECT_EQ(choice(), "choice 0 0 1 1 -8 7. granularity 2 0 0. ");
  dynamic.observer = {};
  dynamic.rule = QParamsRule::kOnnx;
  EXPECT_EQ(choice().substr(0, 11), "choice 2 0 ");
}

TEST(Plugin, ANewerHeaderThatAsksForNothingNewIsTaken) {
  Worker worker(Broken("newer"));
  EXPECT_TRUE(worker.Run(SmallCase(), {}).ok());
}

// The C header numbers element types, operations and functions as core does. An enumerator is
// found by its name in lower case without '_'.
TEST(Plugin, TheHeaderNumbersWhatCoreNames) {
  std::ifstream file(QUALM_SOURCE_DIR "/adapters/qualm_plugin.h");
  const std::string header{std::istreambuf_iterator<char>(file), {}};
  const auto plain = [](std::string text) {
    std::erase(text, '_');
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
  };
  std::map<std::string, int> numbers;
  const std::regex enumerator("QUALM_([A-Z0-9_]+) = ([0-9]+)");
  for (std::sregex_iterator at(header.begin(), header.end(), enumerator), end; at != end; ++at)
    numbers[plain((*at)[1])] = std::stoi((*at)[2]);
  const auto expect = [&](std::string_view name, int number) {
    const auto found = numbers.find(plain(std::string(name)));
    ASSERT_NE(found, numbers.end()) << name << " has no number in qualm_plugin.h";
    EXPECT_EQ(found->second, number) << name;
  };
  for (const DTypeRow& type : kDTypeRows) expect(type.name, static_cast<int>(type.dtype));
  for (size_t i = 0; i < kFunctionNames.size(); ++i) expect(kFunctionNames[i], static_cast<int>(i));
  for (const OpRow& row : kOpRows) {
    if (!row.observer) expect(row.name, static_cast<int>(row.op));  // plugins get no observers
  }
}

TEST(Plugin, AFieldIsThereWhereItsWriterKnewIt) {
  qualm_problem problem{};
  problem.size = offsetof(qualm_problem, per_channel);
  EXPECT_TRUE(QUALM_HAS(&problem, negative_slope));
  EXPECT_FALSE(QUALM_HAS(&problem, per_channel));
  problem.size = sizeof problem;
  EXPECT_TRUE(QUALM_HAS(&problem, out_granularity));
}

// Built with the header of today, and with one in which the structs are smaller.
class ExamplePlugin : public testing::TestWithParam<const char*> {
 protected:
  ExamplePlugin() {
    RegisterPluginSubjects();
    subject_ = SubjectRegistry::Get().Make("plugin:" + Module(GetParam()));
  }
  std::unique_ptr<Subject> subject_;
};

TEST_P(ExamplePlugin, ComputesTheExactResult) {
  EXPECT_TRUE(subject_->contract().exact());
  EXPECT_EQ(subject_->Version(), "example 1");
  for (const int64_t gap : {0, 5}) {
    for (const bool end_at_guard : {true, false}) {
      RunContext context;
      context.x_row_gap = gap;
      context.y_row_gap = gap;
      context.end_at_guard = end_at_guard;
      context.align_offset = 12;
      const Outcome outcome = subject_->Run(SmallCase(), context);
      ASSERT_TRUE(outcome.ok()) << outcome.detail;
      EXPECT_EQ(outcome.y, Tensor::Of<int32_t>({2, 2}, std::vector<int32_t>{-1, 11, 17, 29}));
      EXPECT_FALSE(outcome.acc.has_value());
    }
  }
}

Case PoolCase() {
  Case c;
  c.op = Op::kMaxPool;
  c.window = {.batch = 2,
              .in_h = 2,
              .in_w = 3,
              .in_c = 2,
              .kernel_h = 1,
              .kernel_w = 2,
              .stride_h = 1,
              .stride_w = 3,
              .pad_top = 0,
              .pad_bottom = 0,
              .pad_left = 1,
              .pad_right = 1,
              .dilation_h = 1,
              .dilation_w = 2};
  DeriveSizes(&c);
  c.x = Tensor(DType::kS8, {2, 2, 3, 2});
  for (int i = 0; i < 24; ++i) c.x.SetInt(i, i % 2 == 0 ? i : -i);
  c.out_dtype = DType::kS8;
  c.out_min = -128;
  c.out_max = 20;
  return c;
}

TEST_P(ExamplePlugin, SeesImagesAndTheirWindow) {
  const Case c = PoolCase();
  ASSERT_EQ(Validate(c), "");
  // One output per row: the second pixel; the other tap is padding on the left.
  const std::vector<int8_t> expected{2, -3, 8, -9, 14, -15, 20, -21};
  for (const int64_t gap : {0, 3}) {
    const Outcome outcome = subject_->Run(c, {.x_row_gap = gap, .y_row_gap = gap});
    ASSERT_TRUE(outcome.ok()) << outcome.detail;
    EXPECT_EQ(outcome.y, Tensor::Of<int8_t>({2, 2, 1, 2}, expected));
  }
  Case ceil = c;
  ceil.window.ceil_mode = true;
  DeriveSizes(&ceil);
  EXPECT_EQ(subject_->CannotRun(ceil), "example does not offer ceil mode");
}

TEST_P(ExamplePlugin, EmptyProblemsRun) {
  Case c = SmallCase();
  c.K = 0;
  c.x = Tensor(DType::kU8, {2, 0});
  c.w = Tensor(DType::kS8, {2, 0});
  EXPECT_EQ(subject_->Run(c, {}).y, Tensor(DType::kS32, {2, 2}));
  c.M = 0;
  c.x = Tensor(DType::kU8, {0, 0});
  EXPECT_EQ(subject_->Run(c, {}).y, Tensor(DType::kS32, {0, 2}));
}

TEST_P(ExamplePlugin, ProblemLargerThanOneSocketBufferRuns) {
  Case c = SmallCase();
  c.M = 300;
  c.N = 500;
  c.K = 800;
  c.x = Tensor(DType::kU8, {c.M, c.K});
  c.w = Tensor(DType::kS8, {c.N, c.K});
  c.x.SetInt(c.x.size() - 1, 201);
  c.w.SetInt(c.w.size() - 1, -3);
  c.x_q.zero_point = {0};
  const Outcome outcome = subject_->Run(c, {});
  ASSERT_TRUE(outcome.ok()) << outcome.detail;
  EXPECT_EQ(outcome.y.IntAt(outcome.y.size() - 1), -603);
  EXPECT_EQ(outcome.y.IntAt(0), 0);
}

TEST_P(ExamplePlugin, WhatItDoesNotOfferIsSkippedWithTheReason) {
  const auto reason = [&](auto change) {
    Case c = SmallCase();
    change(c);
    const std::string why = subject_->CannotRun(c);
    EXPECT_EQ(subject_->Run(c, {}).detail, why);
    return why;
  };
  EXPECT_EQ(subject_->CannotRun(SmallCase()), "");
  EXPECT_EQ(reason([](Case& c) { c.op = Op::kQuantize; }), "example does not offer quantize");
  EXPECT_EQ(reason([](Case& c) { c.w = Tensor(DType::kU8, {2, 3}); }),
            "example does not offer w of type u8");
  EXPECT_EQ(reason([](Case& c) { c.out_max = 5; }),
            "example does not offer clamp other than the range of the output type");
  EXPECT_EQ(reason([](Case& c) { c.x_q.zero_point = {70000}; }),
            "example does not offer x: zero point 70000 is outside -65536 to 65536");
  EXPECT_EQ(reason([](Case& c) {
              c.out_dtype = DType::kF32;
              c.bias = std::vector<float>{1, 2};
            }),
            "example does not offer output of type f32");
}

TEST_P(ExamplePlugin, RegistryKnowsTheKindAndMissesNothingSilently) {
  EXPECT_THROW(SubjectRegistry::Get().Make("plugin:"), InputError);
  EXPECT_THROW(SubjectRegistry::Get().Make("plugin:/nowhere/at-all.so"), Unavailable);
  EXPECT_EQ(FindPlugin("qualm_example.so"), ExecutableFolder() + "../lib/qualm_example.so");
}

// A file that happens to lie where qualm is run is not loaded for a library of ours.
TEST_P(ExamplePlugin, ModulesAreNotLookedForInTheCurrentFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("qualm-module-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "qualm_example.so") << "no shared object";
  std::filesystem::current_path(folder);
  EXPECT_EQ(FindPlugin("qualm_example.so"), "./qualm_example.so");
  EXPECT_EQ(FindModule("qualm_example.so"), ExecutableFolder() + "../lib/qualm_example.so");
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Headers, ExamplePlugin,
                         testing::Values("qualm_example", "qualm_example_old"),
                         [](const auto& instance) { return std::string(instance.param); });

// A parameter that is new is told to somebody else's code on purpose or refused on purpose: here it
// is said which, after qualm_plugin.h and plugin_host.cc, or docs/pipe.md.
TEST(Plugin, EveryParameterIsToldOrRefused) {
  const Case c;
  ForEachParameter(c, [](const Field& field, const auto& /*value*/) {
    const auto in = [&](const auto& told) {
      return std::find(told.begin(), told.end(), field.name) != told.end();
    };
    const bool of_observers = field.has == &OpRow::observer;
    EXPECT_EQ(in(kToldWithCases), field.name != "requant") << field.name;
    EXPECT_EQ(in(kToldToPlugins), in(kToldWithCases) && !of_observers) << field.name;
  });
  Case set;
  set.relu = true;
  set.requant = Requant::kFloat32;
  EXPECT_EQ(NotTold(std::array<std::string_view, 0>{}, set), "relu");
  EXPECT_EQ(NotTold(kToldWithCases, set), "requantization float32");
  set.requant = Requant::kExact;
  EXPECT_EQ(NotTold(kToldToPlugins, set), "");
}

// One subject per thread, each with its own worker; workers crash while others are being started.
TEST(Plugin, ThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (size_t i = 0; i < right.size(); ++i) {
    threads.emplace_back([i, &right] {
      WorkerOptions good{.plugin = Module("qualm_example"), .environment = {}};
      Worker crashing(Broken("abort"));
      Worker working(i % 2 == 0 ? good : Broken("nothing"));
      for (int round = 0; round < 5; ++round) {
        const bool crashed = crashing.Run(SmallCase(), {}).status == RunStatus::kCrashed;
        const Outcome outcome = working.Run(SmallCase(), {});
        const int32_t want = i % 2 == 0 ? 11 : 7;
        if (crashed && outcome.ok() && outcome.y.IntAt(1) == want) ++right[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 5));
}

}  // namespace
}  // namespace qualm
