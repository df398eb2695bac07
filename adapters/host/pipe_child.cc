// SPDX-License-Identifier: Apache-2.0
#include "adapters/host/pipe_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "adapters/host/block_formats.h"
#include "adapters/host/worker_message.h"
#include "core/io/json_text.h"
#include "core/status.h"

namespace qualm {
namespace {

// Most requests that are sent ahead of their answers: enough that a child never waits for qualm.
constexpr size_t kInFlight = 16;
// No request is added while more bytes than this wait to be written.
constexpr size_t kToWriteMax = size_t{1} << 20;
constexpr size_t kReadBytes = size_t{64} << 10;

std::string RequestLine(uint64_t id, const PipeChild::Question& question) {
  const Case& c = *question.problem;
  if (question.format == nullptr) return PipeRequestLine(id, c, question.want_acc);
  const PackedRows w = PackedWeights(*question.format, c);
  const PackedRows x = PackedActivations(*question.format, c);
  return PipeRequestLine(id, c, question.want_acc,
                         {question.format->name, w.bytes, x.bytes, w.row_bytes, x.row_bytes,
                          PackedDepth(*question.format, c.K)});
}
constexpr size_t kErrorBytesKept = size_t{2} << 10;
// A child that has stopped reading can still answer the cases that it has read.
constexpr int kDeafGraceMs = 2000;

// Longest answer to a case: many times what any float takes, and room for a sentence.
size_t AnswerBytesMax(const Case& c, bool want_acc) {
  constexpr size_t kBytesPerValue = 64;
  size_t values = want_acc ? 2 : 1;
  for (const int64_t dim : c.output_shape()) values *= static_cast<size_t>(dim);
  return std::min(kPipeLineBytesMax, kPipeHelloBytesMax + values * kBytesPerValue);
}

// Both ends close-on-exec at once: a child that another thread is starting must not inherit them.
// Not among 0 to 2, where a dup2 of the child could overwrite them.
std::array<FileDescriptor, 2> MakePipe() {
  std::array<int, 2> ends{};
  const auto fail = [] {
    throw Unavailable("no pipe to be had: " + std::string(std::strerror(errno)));
  };
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail();
  std::array<FileDescriptor, 2> low{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  std::array<FileDescriptor, 2> pipe;
  for (size_t i = 0; i < 2; ++i) {
    if (low[i].get() > STDERR_FILENO) {
      pipe[i] = std::move(low[i]);
      continue;
    }
    const int moved = fcntl(low[i].get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (moved < 0) fail();
    pipe[i] = FileDescriptor(moved);
  }
  return pipe;
}

void MakeNonBlocking(const FileDescriptor& fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// write() without SIGPIPE: qualm may be a library in a program that has its own mind about it.
ssize_t WriteQuietly(int fd, const char* from, size_t bytes) {
  sigset_t pipe_signal, before, pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t done = write(fd, from, bytes);
  const int error = errno;
  if (done < 0 && error == EPIPE && !was_pending) {
    const timespec now{};
    while (sigtimedwait(&pipe_signal, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return done;
}

// Text of the child as one line of a message.
std::string Printable(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  text = text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8Length(text, at);
    if (length == 0) {
      line += '?';
    } else if (text[at] == '\n') {
      line += " | ";
    } else {
      line += OneLine(text.substr(at, length));
    }
    at += std::max<size_t>(length, 1);
  }
  return line;
}

// Whether a shell would start a process for the word. Its own words (cd, exit) it runs itself.
bool IsProgram(const std::string& word) {
  if (word.find('/') != std::string::npos) return access(word.c_str(), X_OK) == 0;
  const char* const path = std::getenv("PATH");
  if (word.empty() || path == nullptr) return false;
  std::string_view folders = path;
  while (!folders.empty()) {
    const size_t end = std::min(folders.find(':'), folders.size());
    const std::string file = std::string(folders.substr(0, end)) + "/" + word;
    if (access(file.c_str(), X_OK) == 0) return true;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return false;
}

}  // namespace

std::vector<std::string> ShellCommand(const std::string& text) {
  // A shell that stays between qualm and the child hides how the child ends: the shell reports exit
  // status 139 instead of SIGSEGV, and lives on where the child has closed its stdout. So a single
  // program takes the shell's place (exec).
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  const std::string first = text.substr(begin, text.find_first_of(" \t", begin) - begin);
  const bool one_command = text.find_first_of("|&;<>(){}`\n") == std::string::npos &&
                           first.find_first_not_of(kPlain) == std::string::npos;
  return {"/bin/sh", "-c", (one_command && IsProgram(first) ? "exec " : "") + text};
}

PipeChild::PipeChild(PipeOptions options) : options_(std::move(options)) { Start(); }

PipeChild::~PipeChild() {
  if (process_) EndAndReap(/*dying=*/true);
}

void PipeChild::Spawn() {
  std::array<FileDescriptor, 2> in = MakePipe(), out = MakePipe(), err = MakePipe();
  ChildOptions child;
  child.arguments = options_.command;
  child.environment = options_.environment;
  child.memory_limit_bytes = options_.memory_limit_bytes;
  child.descriptors = {
      {in[0].get(), STDIN_FILENO}, {out[1].get(), STDOUT_FILENO}, {err[1].get(), STDERR_FILENO}};
  process_.emplace(child);
  stdin_ = std::move(in[1]);
  stdout_ = std::move(out[0]);
  stderr_ = std::move(err[0]);
  for (const FileDescriptor* fd : {&stdin_, &stdout_, &stderr_}) MakeNonBlocking(*fd);
}

void PipeChild::Start() {
  Forget();
  next_id_ = 1;
  Spawn();
  to_write_ = PipeHelloLine();
  std::string_view line;
  const Event event = NextLine(options_.start_limit_ms, kPipeHelloBytesMax, &line);
  const std::string who = "the child did not say what it offers: ";
  if (event == Event::kTimeout) {
    EndAndReap(/*dying=*/false);
    throw Unavailable(who + "gave no answer within " + std::to_string(options_.start_limit_ms) +
                      " ms" + LastWords());
  }
  if (event != Event::kLine) throw Unavailable(who + Failed(event, kPipeHelloBytesMax).detail);
  try {
    PipeHello hello = ParsePipeHello(line);
    RequireSilence();
    if (introduced_ && hello != hello_) {
      throw InputError("name: is another child than before, expected the same after a restart");
    }
    hello_ = std::move(hello);
    introduced_ = true;
  } catch (const InputError& error) {
    throw Unavailable(who + Garbage("answered " + Shown(line) + ": " + error.what()).detail);
  }
}

void PipeChild::RequireSilence() const {
  if (line_begin_ == read_.size()) return;
  const std::string_view more = std::string_view(read_).substr(line_begin_);
  throw InputError("then sent " + Shown(more.substr(0, more.find('\n'))) +
                   ", a line that nobody asked for");
}

void PipeChild::Write() {
  const ssize_t done =
      WriteQuietly(stdin_.get(), to_write_.data() + written_, to_write_.size() - written_);
  if (done >= 0) {
    written_ += static_cast<size_t>(done);
    if (written_ == to_write_.size()) {
      to_write_.clear();
      written_ = 0;
    }
  } else if (!WouldBlock(errno) && errno != EINTR) {
    deaf_ = true;
    to_write_.clear();
    written_ = 0;
  }
}

void PipeChild::ReadSome() {
  // Drops the lines that were read before.
  if (line_begin_ == read_.size() || line_begin_ > kReadBytes) {
    read_.erase(0, line_begin_);
    searched_ -= line_begin_;
    line_begin_ = 0;
  }
  std::array<char, kReadBytes> bytes;
  const ssize_t got = read(stdout_.get(), bytes.data(), bytes.size());
  if (got > 0) {
    read_.append(bytes.data(), static_cast<size_t>(got));
  } else if (got == 0 || (!WouldBlock(errno) && errno != EINTR)) {
    at_end_ = true;
  }
}

void PipeChild::DrainErrors() {
  std::array<char, kReadBytes> bytes;
  const ssize_t got = read(stderr_.get(), bytes.data(), bytes.size());
  if (got > 0) {
    const std::string_view text(bytes.data(), static_cast<size_t>(got));
    errors_ += text.substr(text.size() - std::min(text.size(), kErrorBytesKept));
    errors_.erase(0, errors_.size() - std::min(errors_.size(), kErrorBytesKept));
  } else if (got == 0 || (!WouldBlock(errno) && errno != EINTR)) {
    stderr_.Close();
  }
}

PipeChild::Event PipeChild::NextLine(int limit_ms, size_t bytes_max, std::string_view* line) {
  patience_.Begin(process_->pid(), limit_ms);
  if (deaf_) patience_.Limit(kDeafGraceMs);
  bool gone = false, last_look = false;
  for (;;) {
    const size_t end = read_.find('\n', searched_);
    const size_t length = std::min(end, read_.size()) - line_begin_;
    if (length >= bytes_max) return Event::kTooLong;
    if (end != std::string::npos) {
      *line = std::string_view(read_).substr(line_begin_, length);
      line_begin_ = searched_ = end + 1;
      return Event::kLine;
    }
    searched_ = read_.size();
    if (at_end_) return Event::kClosed;
    taken_ = process_->Taken();
    if (!taken_.empty()) return Event::kGreedy;

    if (last_look) {
      if (process_->Ended()) return Event::kClosed;
      return deaf_ ? Event::kDeaf : Event::kTimeout;
    }
    const int left = patience_.MillisecondsLeft();
    last_look = left == 0;
    std::array<pollfd, 3> polled{
        {{.fd = stdout_.get(), .events = POLLIN, .revents = 0},
         {.fd = stderr_.get(), .events = POLLIN, .revents = 0},
         {.fd = to_write_.empty() ? -1 : stdin_.get(), .events = POLLOUT, .revents = 0}}};
    const int events = poll(polled.data(), polled.size(), gone ? 0 : left);
    if (events < 0) continue;  // EINTR
    if (events == 0) {
      // A process that the child started may hold its stdout open after the child has ended. Then
      // this polls once more, for what the child wrote last.
      if (gone) return Event::kClosed;
      gone = process_->Ended();
      continue;
    }
    if (polled[2].revents != 0) {
      Write();
      if (deaf_) patience_.Limit(kDeafGraceMs);
    }
    if (polled[1].revents != 0) DrainErrors();
    if (polled[0].revents != 0) ReadSome();
  }
}

std::vector<Outcome> PipeChild::Ask(std::span<const Question> questions) {
  std::vector<Outcome> answers;
  if (questions.empty()) return answers;
  took_its_memory_ = false;
  if (!process_) {
    try {
      Start();
    } catch (const Unavailable& error) {
      answers.push_back(
          Bad(RunStatus::kCrashed, "could not be started again: " + std::string(error.what())));
      return answers;
    }
  }
  const uint64_t first_id = next_id_;
  size_t asked = 0;
  while (answers.size() < questions.size()) {
    const size_t at = answers.size();
    while (asked < questions.size() && asked - at < kInFlight && !deaf_ &&
           (asked == at || to_write_.size() < kToWriteMax)) {
      const Question& next = questions[asked++];
      const uint64_t id = next_id_++;
      to_write_ +=
          next.problem == &DotAnswer() ? PipeDotLine(id, next.a, next.b) : RequestLine(id, next);
    }
    const Question& question = questions[at];
    const size_t bytes_max = AnswerBytesMax(*question.problem, question.want_acc);
    std::string_view line;
    const Event event = NextLine(options_.time_limit_ms, bytes_max, &line);
    if (event != Event::kLine) {
      answers.push_back(Failed(event, bytes_max));
      return answers;
    }
    try {
      answers.push_back(ParsePipeAnswer(line, first_id + at, *question.problem, question.want_acc));
      // Only checked now: a line that comes later is taken for the next answer.
      if (asked == at + 1) RequireSilence();
    } catch (const InputError& error) {
      answers.resize(at);
      answers.push_back(Garbage("answered " + Shown(line) + ": " + error.what()));
      return answers;
    }
  }
  return answers;
}

Outcome PipeChild::Failed(Event event, size_t bytes_max) {
  switch (event) {
    case Event::kTimeout:
      EndAndReap(/*dying=*/false);
      return Bad(
          RunStatus::kHung,
          "gave no answer within " + std::to_string(options_.time_limit_ms) + " ms" + LastWords());
    case Event::kGreedy:
      EndAndReap(/*dying=*/false);
      return Bad(RunStatus::kCrashed, taken_ + LastWords());
    case Event::kTooLong: {
      return Garbage("sent a line of more than " + std::to_string(bytes_max) + " bytes");
    }
    case Event::kDeaf:
      EndAndReap(/*dying=*/false);
      return Bad(RunStatus::kCrashed, "closed its stdin and went on running" + LastWords());
    case Event::kLine:
    case Event::kClosed: break;
  }
  const bool cut = line_begin_ < read_.size();
  std::string how = EndAndReap(/*dying=*/true);
  if (cut) how += ", in the middle of a line";
  return Bad(RunStatus::kCrashed, how + LastWords());
}

Outcome PipeChild::Garbage(const std::string& what) {
  EndAndReap(/*dying=*/false);
  return Bad(RunStatus::kGarbage, what + LastWords());
}

std::string PipeChild::EndAndReap(bool dying) {
  // A child without pipes has nobody to talk to, and ends.
  stdin_.Close();
  stdout_.Close();
  const auto drain = [this] {
    if (stderr_.open()) DrainErrors();
  };
  std::string how = process_->EndAndReap(dying, drain);
  took_its_memory_ = process_->took_its_memory();
  process_.reset();
  // Reads what a full pipe still holds.
  for (int i = 0; i < 16 && stderr_.open(); ++i) drain();
  stderr_.Close();
  return how;
}

void PipeChild::Forget() {
  to_write_.clear();
  read_.clear();
  errors_.clear();
  written_ = line_begin_ = searched_ = 0;
  deaf_ = at_end_ = false;
}

std::string PipeChild::LastWords() const {
  const std::string words = Printable(errors_);
  return words.empty() ? "" : "; its stderr ends in: " + words;
}

}  // namespace qualm
