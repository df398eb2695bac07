// SPDX-License-Identifier: Apache-2.0
// A child that answers cases over stdin and stdout, in any language: docs/pipe.md is the protocol.
// The child is watched, and replaced when it dies, stalls or babbles.
#ifndef QUALM_ADAPTERS_HOST_PIPE_CHILD_H_
#define QUALM_ADAPTERS_HOST_PIPE_CHILD_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/host/child_process.h"
#include "core/case.h"
#include "core/io/pipe_json.h"
#include "core/patience.h"
#include "core/subject.h"
#include "core/weight_formats.h"

namespace qualm {

struct PipeOptions {
  // The program and its arguments; the first is looked for in PATH unless it has a '/'.
  std::vector<std::string> command;
  EnvironmentChanges environment;  // see ChildOptions
  int start_limit_ms = 60'000;     // until it has answered the hello: interpreters load libraries
  int time_limit_ms = 10'000;      // for each answer, from the one before it on
  uint64_t memory_limit_bytes = kMemoryLimitBytes;  // that it, and each process it starts, may have
};

// Runs `text` by /bin/sh.
std::vector<std::string> ShellCommand(const std::string& text);

// Not thread-safe: one per thread. Each has its own process.
class PipeChild {
 public:
  // Starts the child and reads its first answer. Throws Unavailable with a sentence if the child
  // says nothing, or something else.
  explicit PipeChild(PipeOptions options);
  // Closes the child's stdin; a child that has not left after two seconds is killed.
  ~PipeChild();
  PipeChild(const PipeChild&) = delete;
  PipeChild& operator=(const PipeChild&) = delete;

  const PipeHello& hello() const { return hello_; }
  // The last hang may be the machine's, not the child's.
  bool machine_was_busy() const { return patience_.machine_was_busy(); }

  // The last answer is the end of a child that had taken most of the memory that it may have.
  bool took_its_memory() const { return took_its_memory_; }

  // 0 if none is running.
  pid_t pid() const { return process_ ? process_->pid() : 0; }

  struct Question {
    const Case* problem = nullptr;
    bool want_acc = false;
    // The format in which the child also gets the operands, if any.
    const WeightFormat* format = nullptr;
    // Of a sum of products instead, whose problem is DotAnswer.
    std::span<const float> a = {}, b = {};
  };
  // Asks the questions, several at a time, and gives the answers in order. A crash, a hang or
  // garbage is the last answer: the questions behind it stay unanswered, and the next call starts a
  // new child. Never throws for what the child does.
  std::vector<Outcome> Ask(std::span<const Question> questions);

 private:
  enum class Event : uint8_t { kLine, kClosed, kDeaf, kTimeout, kTooLong, kGreedy };

  void Start();
  void Spawn();
  // Waits for the next line of the child's stdout, valid until the next call, or for another event,
  // at most `limit_ms` of the child's time. Writes to the child and drains stderr meanwhile.
  Event NextLine(int limit_ms, size_t bytes_max, std::string_view* line);
  // Throws InputError if the child has already said more.
  void RequireSilence() const;
  void Write();
  void ReadSome();
  void DrainErrors();
  // Ends the child, and gives its failure as an outcome.
  Outcome Failed(Event event, size_t bytes_max);
  Outcome Garbage(const std::string& what);
  std::string EndAndReap(bool dying);
  void Forget();
  // "; its stderr ends in ...", or "".
  std::string LastWords() const;

  PipeOptions options_;
  Patience patience_;
  PipeHello hello_;
  bool introduced_ = false;
  std::optional<ChildProcess> process_;
  FileDescriptor stdin_, stdout_, stderr_;
  uint64_t next_id_ = 1;

  std::string to_write_;
  size_t written_ = 0;
  bool deaf_ = false;  // it closed its stdin
  std::string read_;
  size_t line_begin_ = 0;
  size_t searched_ = 0;  // read_ has no line end between line_begin_ and here
  bool at_end_ = false;  // the child's stdout has ended
  bool took_its_memory_ = false;
  std::string taken_;   // of which it had too much: see kGreedy
  std::string errors_;  // the last bytes of the child's stderr
};

}  // namespace qualm

#endif  // QUALM_ADAPTERS_HOST_PIPE_CHILD_H_
