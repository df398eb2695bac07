// SPDX-License-Identifier: Apache-2.0
// A child behind a pipe may do anything wrong: the harness survives it, reports it by its name, and
// the next case runs undisturbed.
#include "adapters/host/pipe.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/processes_test_util.h"
#include "core/status.h"

namespace qualm {
namespace {

// x [2,3] u8, w [2,3] s8, y [2,2] s32.
Case SmallCase(int first_code = 1) {
  Case c;
  c.op = Op::kLinear;
  c.M = 2;
  c.N = 2;
  c.K = 3;
  c.x = Tensor::Of<uint8_t>({2, 3}, std::vector<uint8_t>{1, 2, 3, 4, 5, 6});
  c.x.SetInt(0, first_code);
  c.w = Tensor::Of<int8_t>({2, 3}, std::vector<int8_t>{5, 3, -2, 0, 1, 5});
  c.out_dtype = DType::kS32;
  c.out_min = INT32_MIN;
  c.out_max = INT32_MAX;
  return c;
}

Tensor Sevens() { return Tensor::Of<int32_t>({2, 2}, std::vector<int32_t>{7, 7, 7, 7}); }

// A child in shell. It answers 7 for everything; if the first code of x is 9 it does `bad` before.
std::string Shell(const std::string& bad, const std::string& op = "") {
  return R"(answer() { echo "{\"id\": $i, \"y\": [7, 7, 7, 7]}"; }
            read -r hello
            echo '{"qualm_pipe": 1, "name": "sh", "version": "1", "ops": {"linear": {)" +
         op + R"(}}}'
            i=0
            while read -r line; do
              i=$((i + 1))
              case $line in *'"x": [9,'*) )" +
         bad + R"( ;; esac
              answer
            done)";
}

PipeOptions Options(const std::string& text, int time_limit_ms = 30'000) {
  return {.command = ShellCommand(text),
          .environment = {},
          .start_limit_ms = 60'000,
          .time_limit_ms = time_limit_ms,
          .memory_limit_bytes = uint64_t{128} << 20};
}

Outcome AskOne(PipeChild& child, const Case& c, bool want_acc = false) {
  const PipeChild::Question question{.problem = &c, .want_acc = want_acc};
  std::vector<Outcome> answers = child.Ask({&question, 1});
  EXPECT_EQ(answers.size(), 1u);
  return std::move(answers.front());
}

struct Misbehaviour {
  const char* name;
  const char* how;
  RunStatus status;
  const char* detail;  // part of the sentence
};

void PrintTo(const Misbehaviour& m, std::ostream* out) { *out << m.name; }

class Misbehaves : public testing::TestWithParam<Misbehaviour> {};

// The misbehaviour is reported by its name, every time; the next case runs on a fresh child.
TEST_P(Misbehaves, IsSurvivedAndNamed) {
  const Misbehaviour& m = GetParam();
  const bool hangs = m.status == RunStatus::kHung;
  PipeChild child(Options(Shell(m.how), hangs ? 2000 : 30'000));
  for (int round = 0; round < (hangs ? 1 : 2); ++round) {
    const Outcome good = AskOne(child, SmallCase());
    ASSERT_TRUE(good.ok()) << good.detail;
    EXPECT_EQ(good.y, Sevens());
    const pid_t before = child.pid();
    const Outcome bad = AskOne(child, SmallCase(9));
    EXPECT_EQ(Name(bad.status), Name(m.status)) << bad.detail;
    EXPECT_NE(bad.detail.find(m.detail), std::string::npos) << bad.detail;
    EXPECT_EQ(bad.detail.find('\n'), std::string::npos) << bad.detail;
    EXPECT_LT(bad.detail.size(), 3000u);
    EXPECT_EQ(child.pid(), 0);
    EXPECT_EQ(kill(before, 0), -1) << "the child is still there";
  }
  EXPECT_TRUE(AskOne(child, SmallCase()).ok());
}

INSTANTIATE_TEST_SUITE_P(
    Pipe, Misbehaves,
    testing::Values(
        Misbehaviour{"exit", "exit 17", RunStatus::kCrashed,
                     "ended the process with exit status 17"},
        Misbehaviour{"exit_0", "exit 0", RunStatus::kCrashed, "exit status 0"},
        Misbehaviour{"segv", "kill -SEGV $$", RunStatus::kCrashed, "killed by SIGSEGV"},
        Misbehaviour{"kill", "kill -KILL $$", RunStatus::kCrashed, "killed by SIGKILL"},
        Misbehaviour{"last_words", "printf 'Traceback:\\n  no\\033 idea\\n' >&2; exit 1",
                     RunStatus::kCrashed,
                     "exit status 1; its stderr ends in: Traceback: |   no? idea"},
        Misbehaviour{"half_a_line", "printf '{\"id\":'; exit 0", RunStatus::kCrashed,
                     "exit status 0, in the middle of a line"},
        Misbehaviour{"grandchild_holds_stdout", "sleep 100 & exit 3", RunStatus::kCrashed,
                     "exit status 3"},
        Misbehaviour{"close_stdout_and_stay", "exec 1>&-; sleep 100", RunStatus::kCrashed,
                     "closed its connection to qualm and went on running"},
        Misbehaviour{"stall", "sleep 100", RunStatus::kHung, "gave no answer within 2000 ms"},
        Misbehaviour{"flood_stderr_and_stall", "cat /dev/zero >&2", RunStatus::kHung,
                     "gave no answer within 2000 ms; its stderr ends in: ???"},
        Misbehaviour{"half_an_answer_and_stall", "printf '{\"id\":'; sleep 100", RunStatus::kHung,
                     "gave no answer within 2000 ms"},
        Misbehaviour{"flood_stdout", "cat /dev/zero", RunStatus::kGarbage,
                     "sent a line of more than 65792 bytes"},
        // It looks for the end of a line, and keeps all it has read.
        Misbehaviour{"take_memory", "tail /dev/zero", RunStatus::kCrashed,
                     "took more than 128 MiB (see --memory) of memory"},
        Misbehaviour{"flood_lines", "yes", RunStatus::kGarbage,
                     "answered \"y\": byte 1: is not JSON"},
        Misbehaviour{"talk", "echo 'UserWarning: deprecated'; echo oops >&2; sleep 1",
                     RunStatus::kGarbage, "answered \"UserWarning: deprecated\": byte 1: is not"},
        Misbehaviour{"empty_line", "echo", RunStatus::kGarbage, "answered \"\": "},
        Misbehaviour{"wrong_id", "i=99", RunStatus::kGarbage, "id: is 99, expected 2"},
        Misbehaviour{"no_id", "echo '{\"y\": [7, 7, 7, 7]}'", RunStatus::kGarbage,
                     "id: is missing"},
        Misbehaviour{"too_short", "echo \"{\\\"id\\\": $i, \\\"y\\\": [7]}\"", RunStatus::kGarbage,
                     "y: has 1 values, expected 4"},
        Misbehaviour{"out_of_range", "echo \"{\\\"id\\\": $i, \\\"y\\\": [7, 7, 7, 2147483648]}\"",
                     RunStatus::kGarbage, "y[3]: is 2147483648, expected s32 values"},
        Misbehaviour{"invalid_utf8", "printf '\\377\\n'", RunStatus::kGarbage, "is invalid UTF-8"},
        // One write sends both lines, so that neither is seen alone.
        Misbehaviour{"a_line_too_many",
                     "printf '{\"id\": %d, \"y\": [7, 7, 7, 7]}\\nmore\\n' $i; sleep 100",
                     RunStatus::kGarbage, "then sent \"more\", a line that nobody asked for"}),
    [](const testing::TestParamInfo<Misbehaviour>& instance) { return instance.param.name; });

// A line after the answer is seen, at the latest, before the next answer.
TEST(Pipe, ALateLineIsTakenForTheNextAnswer) {
  PipeChild child(Options(Shell("answer; sleep 0.2; echo late; continue")));
  EXPECT_TRUE(AskOne(child, SmallCase(9)).ok());
  const Outcome next = AskOne(child, SmallCase());
  EXPECT_EQ(Name(next.status), "garbage");
  EXPECT_NE(next.detail.find("answered \"late\""), std::string::npos) << next.detail;
  EXPECT_TRUE(AskOne(child, SmallCase()).ok());
}

TEST(Pipe, ClosedStdinIsNamed) {
  // The child closes stdin before its hello, so that no request can slip in.
  PipeChild child(Options(R"(read -r hello; exec 0<&-
                             echo '{"qualm_pipe": 1, "name": "deaf", "ops": {"linear": {}}}'
                             sleep 100)"));
  const Outcome outcome = AskOne(child, SmallCase());
  EXPECT_EQ(Name(outcome.status), "crashed");
  EXPECT_EQ(outcome.detail, "closed its stdin and went on running");
}

TEST(Pipe, NoiseOnStderrDoesNotDisturb) {
  PipeChild child(Options(Shell("head -c 1000000 /dev/zero >&2")));
  for (int round = 0; round < 3; ++round) {
    const Outcome outcome = AskOne(child, SmallCase(9));
    EXPECT_TRUE(outcome.ok()) << outcome.detail;
  }
}

TEST(Pipe, SkipAndErrorAreTheChildsOwn) {
  PipeChild child(Options(Shell(R"(echo "{\"id\": $i, \"skip\": \"no such type\"}"; continue)")));
  Outcome outcome = AskOne(child, SmallCase(9));
  EXPECT_EQ(Name(outcome.status), "skipped");
  EXPECT_EQ(outcome.detail, "no such type");
  EXPECT_TRUE(AskOne(child, SmallCase()).ok());
  PipeSubject refuses("pipe:refuses",
                      Options(Shell(R"(printf '{"id": %d, "error": "a\\tb"}\n' $i; continue)")));
  outcome = refuses.Run(SmallCase(9), {});
  EXPECT_EQ(Name(outcome.status), "refused");
  EXPECT_EQ(outcome.detail, "a b");
}

TEST(Pipe, ChildKilledBetweenTwoCasesIsReportedNotFatal) {
  // Without protection the write to the dead child's stdin would raise SIGPIPE here.
  PipeChild child(Options(Shell("")));
  ASSERT_TRUE(AskOne(child, SmallCase()).ok());
  kill(child.pid(), SIGKILL);
  siginfo_t gone{};  // wait for its end, without reaping it
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &gone, WEXITED | WNOWAIT), 0);
  const Outcome outcome = AskOne(child, SmallCase());
  EXPECT_EQ(Name(outcome.status), "crashed");
  EXPECT_NE(outcome.detail.find("SIGKILL"), std::string::npos) << outcome.detail;
  EXPECT_TRUE(AskOne(child, SmallCase()).ok());
}

TEST(Pipe, EndOfInputIsTheEnd) {
  std::chrono::steady_clock::time_point start;
  {
    PipeChild child(Options(Shell("")));
    start = std::chrono::steady_clock::now();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  // A child that does not exit is killed, with the processes that it has started.
  const std::string file = testing::TempDir() + "qualm-pipe-stays-" + std::to_string(getpid());
  pid_t pid = 0;
  {
    PipeChild child(Options(Shell("") + "; sleep 100 & echo $! >" + file + "; sleep 100"));
    pid = child.pid();
    start = std::chrono::steady_clock::now();
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(kill(pid, 0), -1);
  pid_t started = 0;
  std::ifstream(file) >> started;
  std::filesystem::remove(file);
  ASSERT_GT(started, 0);
  // The process may be dead and wait for its new parent to reap it.
  const auto runs = [&] {
    std::ifstream stat("/proc/" + std::to_string(started) + "/stat");
    std::string number, name, state;
    return stat >> number >> name >> state && state != "Z" && state != "X";
  };
  for (int i = 0; i < 1000 && runs(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(runs()) << "what it has started is still there";
}

TEST(Pipe, RestartThatFailsIsACrash) {
  const std::string once = testing::TempDir() + "qualm-pipe-once-" + std::to_string(getpid());
  PipeChild child(
      Options("[ ! -e " + once + " ] || exit 4; touch " + once + "\n" + Shell("exit 1")));
  EXPECT_EQ(Name(AskOne(child, SmallCase(9)).status), "crashed");
  const Outcome outcome = AskOne(child, SmallCase());
  std::filesystem::remove(once);
  EXPECT_EQ(Name(outcome.status), "crashed");
  EXPECT_NE(outcome.detail.find("could not be started again: "), std::string::npos);
  EXPECT_NE(outcome.detail.find("exit status 4"), std::string::npos) << outcome.detail;
  EXPECT_TRUE(AskOne(child, SmallCase()).ok());
}

TEST(Pipe, AnotherChildAfterARestartIsNoted) {
  const std::string once = testing::TempDir() + "qualm-pipe-other-" + std::to_string(getpid());
  PipeChild child(Options("[ ! -e " + once + " ] || exec echo '" +
                          R"({"qualm_pipe": 1, "name": "other", "ops": {"add": {}}})" +
                          "'; touch " + once + "\n" + Shell("exit 1")));
  AskOne(child, SmallCase(9));
  const Outcome outcome = AskOne(child, SmallCase());
  std::filesystem::remove(once);
  EXPECT_NE(outcome.detail.find("is another child than before"), std::string::npos)
      << outcome.detail;
}

TEST(Pipe, WhatDoesNotIntroduceItselfIsUnavailable) {
  struct Start {
    const char* command;
    const char* says;
  };
  const std::vector<Start> table = {
      {"exit 5", "offers: ended the process with exit status 5"},
      {"kill -ABRT $$", "offers: killed by SIGABRT"},
      {"no-such-command-of-qualm", "exit status 127; its stderr ends in: /bin/sh: 1: no-such"},
      {"echo 'no module named numpy' >&2; exit 1", "exit status 1; its stderr ends in: no module"},
      {"sleep 100", "gave no answer within 700 ms"},
      {"echo hello", "answered \"hello\": top level: is no JSON at byte 1"},
      {"cat", "answered \"{\\\"qualm_pipe\\\": 1}\": name: is missing"},
      {"echo '{\"qualm_pipe\": 2}'", "qualm_pipe: is 2, expected version 1 of the protocol"},
      {"cat /dev/zero", "sent a line of more than 65536 bytes"},
      {"exec 1>&-; sleep 100", "closed its connection to qualm and went on running"},
      {"printf '{\"qualm_pipe\": 1, \"name\": \"n\", \"ops\": {\"add\": {}}}\\nready\\n'",
       "then sent \"ready\", a line that nobody asked for"},
  };
  for (const Start& row : table) {
    PipeOptions options = Options(row.command);
    if (std::string(row.says).find("within") != std::string::npos) options.start_limit_ms = 700;
    std::string error = "available";
    try {
      PipeSubject("pipe:it", options);
    } catch (const Unavailable& unavailable) {
      error = unavailable.what();
    }
    EXPECT_TRUE(error.starts_with("subject 'pipe:it': the child did not say what it offers: "))
        << error;
    EXPECT_NE(error.find(row.says), std::string::npos) << row.command << "\n  " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
  try {
    const PipeSubject subject("pipe:it", {.command = {"/nowhere/at-all"}, .environment = {}});
    FAIL();
  } catch (const Unavailable& error) {
    EXPECT_STREQ(error.what(),
                 "subject 'pipe:it': cannot start /nowhere/at-all: No such file or directory");
  }
  try {
    const PipeSubject subject("pipe:it",
                              Options("echo '"
                                      R"({"qualm_pipe": 1, "name": "n", "contract": "fine",)"
                                      R"( "ops": {"add": {}}})"
                                      "'"));
    FAIL();
  } catch (const Unavailable& error) {
    EXPECT_STREQ(error.what(),
                 "subject 'pipe:it': its contract 'fine' is none, expected exact, sum, "
                 "sum+offsets, tree:{...}, model:NAME or "
                 "within:V1,V8, "
                 "and OP=CONTRACT for one operation");
  }
  // Cut off it would be another one.
  EXPECT_THROW(
      PipeSubject("pipe:it", Options("echo '"
                                     R"({"qualm_pipe": 1, "name": "n", "contract": "model:)" +
                                     std::string(2000, 'm') + R"(", "ops": {"add": {}}}')")),
      Unavailable);
}

// A shell that stayed would say "exit status 139" of a child that died of SIGSEGV.
TEST(Pipe, OneProgramTakesThePlaceOfTheShell) {
  const auto line = [](const std::string& text) { return ShellCommand(text).back(); };
  EXPECT_EQ(line("sleep 5"), "exec sleep 5");
  EXPECT_EQ(line(" /bin/sh 'a b' $HOME"), "exec  /bin/sh 'a b' $HOME");
  for (const char* as_it_is : {"exit 3", "sleep 1; sleep 2", "A=1 sleep 1", "sleep 1 | cat", "",
                               "(sleep 1)", "no-such-program-of-qualm", "\"/bin/sh\" -c true"}) {
    EXPECT_EQ(line(as_it_is), as_it_is);
  }
}

TEST(Pipe, EnvironmentAndArgumentsArrive) {
  PipeOptions options;
  options.command = {"sh", "-c", Shell("i=\"$A:$0:$1:$OMP_NUM_THREADS\""), "zero", "one"};
  options.environment = {{"A", "a b"}};
  PipeChild child(options);
  Outcome outcome = AskOne(child, SmallCase(9));
  EXPECT_NE(outcome.detail.find("\"{\\\"id\\\": a b:zero:one:1, "), std::string::npos)
      << outcome.detail;
  options.environment.emplace_back("OMP_NUM_THREADS", "3");
  PipeChild threads(options);
  outcome = AskOne(threads, SmallCase(9));
  EXPECT_NE(outcome.detail.find("a b:zero:one:3, "), std::string::npos) << outcome.detail;
}

TEST(PipeSubject, SaysWhatTheChildSays) {
  const PipeSubject subject(
      "pipe:x", Options("printf '%s\\n' '"
                        R"({"qualm_pipe": 1, "name": "n\n", "version": "2.0",)"
                        R"( "contract": "model:m,add=exact", "instruction_set": "avx2",)"
                        R"( "ops": {"add": {}}})"
                        "'; cat >/dev/null"));
  EXPECT_EQ(subject.name(), "pipe:x");
  EXPECT_EQ(subject.Version(), "n  2.0");
  EXPECT_EQ(subject.InstructionSet(), "avx2");
  EXPECT_EQ(subject.contracts().text(), "model:m,add=exact");
  EXPECT_TRUE(subject.Offers(Op::kAdd));
  EXPECT_FALSE(subject.Offers(Op::kSub));
}

// The child answers with what it was asked, so that the question shows.
TEST(PipeSubject, SumsOfProductsAreAskedOfThoseWhoOfferThem) {
  PipeSubject subject("pipe:x", Options(R"(read -r hello
                                 echo '{"qualm_pipe": 1, "name": "sh", "ops": {}, "dot": true}'
                                 read -r one
                                 case $one in *'"a": ["0x1p+1"], "b": ["0x1.8p+1"]'*)
                                   echo '{"id": 1, "y": [6]}' ;; esac
                                 read -r two
                                 echo '{"id": 2, "error": "no more"}'
                                 cat >/dev/null)"));
  EXPECT_EQ(subject.WhyNoDot(), "");
  EXPECT_FALSE(subject.Offers(Op::kLinear));
  const std::vector<float> a{2}, b{3};
  const Outcome six = subject.Dot(a, b);
  ASSERT_TRUE(six.ok()) << six.detail;
  EXPECT_EQ(six.y.FloatAt(0), 6.0f);
  const Outcome refused = subject.Dot(a, b);
  EXPECT_EQ(refused.status, RunStatus::kRefused);
  EXPECT_EQ(refused.detail, "no more");
  const PipeSubject other("pipe:y", Options(Shell("")));
  EXPECT_EQ(other.WhyNoDot(), "sh does not offer dot (docs/pipe.md)");
}

TEST(PipeSubject, OnlyWhatIsOfferedIsAsked) {
  const PipeSubject subject(
      "pipe:x", Options(Shell("", R"("x": ["u8"], "out": ["s32", "u8"], "k_multiple": 3,)"
                                  R"( "m_max": 2, "w_zp": [0, 0], "features": ["relu"])")));
  const auto reason = [&](auto change) {
    Case c = SmallCase();
    change(c);
    return subject.CannotRun(c);
  };
  EXPECT_EQ(subject.CannotRun(SmallCase()), "");
  EXPECT_EQ(reason([](Case& c) { c.relu = true; }), "");
  EXPECT_EQ(reason([](Case& c) { c.x_q.zero_point = {255}; }), "");
  EXPECT_EQ(reason([](Case& c) { c.op = Op::kAdd; }), "sh does not offer add");
  EXPECT_EQ(reason([](Case& c) { c.x = Tensor(DType::kS8, {2, 3}); }),
            "sh does not offer x of type s8");
  EXPECT_EQ(reason([](Case& c) { c.w = Tensor(DType::kU8, {2, 3}); }), "");
  EXPECT_EQ(reason([](Case& c) { c.out_dtype = DType::kF32; }),
            "sh does not offer output of type f32");
  EXPECT_EQ(reason([](Case& c) { c.per_channel = true; }),
            "sh does not offer parameters per channel");
  EXPECT_EQ(reason([](Case& c) { c.M = 3; }), "sh does not offer M = 3 is more than 2");
  EXPECT_EQ(reason([](Case& c) { c.K = 4; }), "sh does not offer K = 4 is no multiple of 3");
  // A stated range, and a range that follows from the type.
  EXPECT_EQ(reason([](Case& c) { c.w_q.zero_point = {1}; }),
            "sh does not offer w: zero point 1 is outside 0");
  EXPECT_EQ(reason([](Case& c) { c.x_q.zero_point = {-1}; }),
            "sh does not offer x: zero point -1 is no u8 code");
  EXPECT_EQ(reason([](Case& c) {
              c.out_dtype = DType::kU8;
              c.out_min = 0;
              c.out_max = 255;
              c.out_q.zero_point = {256};
            }),
            "sh does not offer out: zero point 256 is no u8 code");
  EXPECT_EQ(reason([](Case& c) { c.requant = Requant::kFixedQ31; }),
            "pipes have no requantization fixed_q31");
  EXPECT_EQ(reason([](Case& c) {
              c.M = 1;
              c.K = 12'000'000;
              c.x = Tensor(DType::kU8, {1, c.K});
            }),
            "longer than a line of a pipe may be (64 MiB)");
}

TEST(PipeSubject, OnlyOfferedRulesAreAskedFor) {
  const PipeSubject subject("pipe:x", Options(R"(read -r hello
      echo '{"qualm_pipe": 1, "name": "sh", "ops": {"dynamic_linear": {"rules": ["onnx"]}}}'
      cat >/dev/null)"));
  Case c = CaseOver(Op::kDynamicLinear, Tensor(DType::kF32, {1, 1}), DType::kF32);
  c.K = 1;
  c.w = Tensor(DType::kS8, {1, 1});
  c.rule = QParamsRule::kOnnx;
  EXPECT_EQ(subject.CannotRun(c), "");
  for (const QParamsRule rule : {QParamsRule::kObserver, QParamsRule::kAten}) {
    c.rule = rule;
    EXPECT_EQ(subject.CannotRun(c), "sh does not offer qparams_rule " + std::string(Name(rule)));
  }
}

TEST(PipeSubject, CodesAreAskedOfWhoOffersThem) {
  for (const bool offers : {false, true}) {
    const PipeSubject subject("pipe:x",
                              Options(R"(read -r hello
      echo '{"qualm_pipe": 1, "name": "sh", "ops": {"choose_qparams": {"rules": ["onnx"])" +
                                      std::string(offers ? R"(, "features": ["codes"])" : "") +
                                      R"(}}}'
      cat >/dev/null)"));
    Case c;
    c.op = Op::kChooseQParams;
    c.M = c.N = 1;
    c.x = Tensor(DType::kF32, {1, 1, 1});
    c.w = Tensor(DType::kU8, {0});
    c.rule = QParamsRule::kOnnx;
    c.out_dtype = DType::kF32;
    OpenClamp(&c);
    EXPECT_EQ(subject.CannotRun(c), "");
    c.codes = true;
    EXPECT_EQ(subject.CannotRun(c),
              offers ? "" : "sh does not offer codes beside scales and zero points");
  }
}

TEST(PipeSubject, WhatAPipeCannotPassOnIsSkipped) {
  PipeSubject subject("pipe:x", Options(Shell("")));
  const auto skipped = [&](const RunContext& context) {
    const Outcome outcome = subject.Run(SmallCase(), context);
    EXPECT_EQ(Name(outcome.status), "skipped");
    return outcome.detail;
  };
  EXPECT_EQ(skipped({.x_row_gap = 1}), "a pipe has no strides");
  EXPECT_EQ(skipped({.y_row_gap = 1}), "a pipe has no strides");
  EXPECT_EQ(skipped({.in_place = true}), "nothing runs in place through a pipe");
  EXPECT_EQ(skipped({.threads = 2}), "is not told how many threads to use");
  EXPECT_EQ(skipped({.rounding = Rounding::kUp}), "has a floating-point environment of its own");
  EXPECT_EQ(skipped({.flush_denormals = true}), "has a floating-point environment of its own");
  EXPECT_TRUE(subject.Run(SmallCase(), {.align_offset = 5, .end_at_guard = false}).ok());
}

TEST(PipeSubject, AccumulatorsOnlyWhereTheyAreOffered) {
  const std::string acc = R"(case $line in *'"want": ["acc"]'*)
        echo "{\"id\": $i, \"y\": [1, 1, 1, 1], \"acc\": [1, 2, 3, 4]}"; continue ;; esac)";
  PipeSubject has("pipe:has", Options(Shell(acc, R"("features": ["acc"])")));
  const Outcome with = has.Run(SmallCase(9), {.want_acc = true});
  ASSERT_TRUE(with.ok()) << with.detail;
  EXPECT_EQ(with.acc, Tensor::Of<int32_t>({2, 2}, std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_FALSE(has.Run(SmallCase(9), {}).acc.has_value());
  PipeSubject has_not("pipe:has-not", Options(Shell(acc)));
  const Outcome without = has_not.Run(SmallCase(9), {.want_acc = true});
  ASSERT_TRUE(without.ok()) << without.detail;
  EXPECT_FALSE(without.acc.has_value());
}

// A child that needs time because others use its processor does not hang. A child that never ends
// does hang, there too.
TEST(PipeSubject, ASlowMachineMakesNoHangs) {
  if (!std::filesystem::exists("/proc/self/schedstat")) GTEST_SKIP() << "no /proc/self/schedstat";
  const std::string work = "n=0; while [ $n -lt 200000 ]; do n=$((n + 1)); done";
  const BusyProcessor busy(15);
  PipeSubject works("pipe:works", Options(Shell(work), 1000));
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = works.Run(SmallCase(9), {});
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE(outcome.ok()) << outcome.detail;
  EXPECT_GT(took, std::chrono::milliseconds(1000)) << "not slow enough to show anything";
  PipeSubject hangs("pipe:hangs for ever", Options(Shell("while :; do :; done"), 200));
  EXPECT_EQ(Name(hangs.Run(SmallCase(9), {}).status), "hung");
}

TEST(PipeSubject, AfterThreeHangsItIsGivenUp) {
  const auto options = Options(Shell("sleep 100"), 1000);
  PipeSubject first("pipe:hangs", options), second("pipe:hangs", options);
  EXPECT_EQ(Name(first.Run(SmallCase(9), {}).status), "hung");
  // The other two within one call; the good case between them runs.
  const std::vector<Case> cases{SmallCase(9), SmallCase(), SmallCase(9), SmallCase()};
  const std::vector<Outcome> outcomes = second.RunMany(cases, {});
  const std::vector<std::string_view> expected{"hung", "ok", "hung", "skipped"};
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(Name(outcomes[i].status), expected[i]) << i << outcomes[i].detail;
  }
  EXPECT_EQ(outcomes[3].detail, "given up: it hung 3 times in this run");
  EXPECT_EQ(first.CannotRun(SmallCase()), outcomes[3].detail);
}

TEST(PipeSubject, ManyCasesGetTheAnswersOfEach) {
  PipeSubject subject("pipe:x", Options(Shell("exit 3", R"("m_max": 2)")));
  Case too_many_rows = SmallCase();
  too_many_rows.M = 3;
  too_many_rows.x = Tensor(DType::kU8, {3, 3});
  std::vector<Case> cases;
  std::vector<std::string_view> expected;
  const auto add = [&](const Case& c, std::string_view status) {
    cases.push_back(c);
    expected.push_back(status);
  };
  for (int i = 0; i < 40; ++i) add(SmallCase(i % 8), "ok");
  add(SmallCase(9), "crashed");
  add(too_many_rows, "skipped");
  add(SmallCase(9), "crashed");
  for (int i = 0; i < 5; ++i) add(SmallCase(), "ok");
  add(SmallCase(9), "crashed");
  const std::vector<Outcome> outcomes = subject.RunMany(cases, {});
  ASSERT_EQ(outcomes.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(Name(outcomes[i].status), expected[i]) << i << " " << outcomes[i].detail;
  }
  for (const Outcome& outcome : subject.RunMany({cases.data(), 3}, {.in_place = true})) {
    EXPECT_EQ(Name(outcome.status), "skipped");
  }
  EXPECT_TRUE(subject.RunMany({}, {}).empty());
}

// A child that echoes x: requests and answers of 1 MiB each, several in flight. Neither side waits
// for the other to read.
TEST(PipeSubject, LargeCasesInFlightDoNotBlock) {
  if (std::system("command -v python3 >/dev/null") != 0) GTEST_SKIP() << "no python3";
  const char* const program = R"py(
import json, sys
sys.stdin.readline()
print(json.dumps({"qualm_pipe": 1, "name": "echo", "ops": {"rescale": {}}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"id": request["id"], "y": request["case"]["x"]}), flush=True)
)py";
  PipeSubject subject(
      "pipe:echo",
      {.command = {"python3", "-c", program}, .environment = {}, .time_limit_ms = 60'000});
  std::vector<Case> cases;
  for (int i = 0; i < 20; ++i) {
    Case c;
    c.op = Op::kRescale;
    c.M = 1;
    c.N = 200'000;
    c.x = Tensor(DType::kU8, {1, c.N});
    for (int64_t n = 0; n < c.N; ++n) c.x.SetInt(n, static_cast<int32_t>((n * 7 + i) % 256));
    cases.push_back(std::move(c));
  }
  const std::vector<Outcome> outcomes = subject.RunMany(cases, {});
  for (size_t i = 0; i < cases.size(); ++i) {
    ASSERT_TRUE(outcomes[i].ok()) << outcomes[i].detail;
    EXPECT_TRUE(outcomes[i].y == cases[i].x) << i;
  }
}

TEST(PipeSubject, TheRegistryKnowsTheKind) {
  RegisterPipeSubjects();
  const std::unique_ptr<Subject> subject = SubjectRegistry::Get().Make("pipe:" + Shell(""));
  EXPECT_EQ(subject->Version(), "sh 1");
  EXPECT_TRUE(subject->contract().exact());
  EXPECT_EQ(subject->Run(SmallCase(), {}).y, Sevens());
  // The line of `qualm list subjects`, without starting every other subject.
  const auto kinds = SubjectRegistry::Get().kinds();
  const auto kind = std::ranges::find(kinds, "pipe", &SubjectKind::kind);
  ASSERT_NE(kind, kinds.end());
  EXPECT_TRUE(kind->help.starts_with("pipe:COMMAND  ")) << kind->help;
  EXPECT_TRUE(kind->names().empty());
  EXPECT_THROW(SubjectRegistry::Get().Make("pipe:"), InputError);
  EXPECT_THROW(SubjectRegistry::Get().Make("pipe:exit 1"), Unavailable);
}

TEST(PipeSubject, NoDescriptorIsLeft) {
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = open();
  for (int i = 0; i < 3; ++i) {
    PipeSubject subject("pipe:x", Options(Shell("exit 3")));
    EXPECT_TRUE(subject.Run(SmallCase(), {}).ok());
    EXPECT_FALSE(subject.Run(SmallCase(9), {}).ok());
    EXPECT_THROW(PipeSubject("pipe:x", Options("exit 3")), Unavailable);
  }
  EXPECT_EQ(open(), before);
}

// One subject per thread, each with its own child; children die while others are being started.
TEST(PipeSubject, ThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (int& count : right) {
    threads.emplace_back([&count] {
      PipeSubject working("pipe:x", Options(Shell("")));
      PipeSubject crashing("pipe:y", Options(Shell("kill -KILL $$")));
      for (int round = 0; round < 5; ++round) {
        const bool crashed = crashing.Run(SmallCase(9), {}).status == RunStatus::kCrashed;
        if (crashed && working.Run(SmallCase(round), {}).y == Sevens()) ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 5));
}

}  // namespace
}  // namespace qualm
