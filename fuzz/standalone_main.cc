// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without a fuzzing engine: under gcc, a debugger, valgrind, in the test suite.
//
//   NAME_replay PATH...                      every file, and every file in every folder, by every
//                                            property
//   NAME_replay --runs N [--seed S] PATH...  N random mutations of these (or of nothing)
//   NAME_replay --keep DIR [--seconds T] [--runs N] [--seed S] PATH...
//                                            mutations of these and of each input that came closer
//                                            to a hazard, which go into DIR (qualm fuzz)
//   NAME_replay --encode CASE.json OUT       a case as input of the op targets
//   NAME_replay --decode OP IN               the case that bytes stand for, as JSON
//   NAME_replay --list-ops                   the operations, a line each
// --op=OP is left to the target (op_fuzz.cc).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/content_name.h"
#include "core/io/case_json.h"
#include "core/io/text_file.h"
#include "core/op.h"
#include "core/rng.h"
#include "core/status.h"
#include "fuzz/case_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                                                size_t size_max, unsigned seed);
// The counters of fuzz/feedback.cc, as the linker bounds them; null in a target without any.
extern "C" __attribute__((weak)) volatile uint8_t __start___libfuzzer_extra_counters[];
extern "C" __attribute__((weak)) volatile uint8_t __stop___libfuzzer_extra_counters[];

namespace {

using namespace qualm;
using Bytes = std::vector<uint8_t>;

constexpr size_t kInputMax = 4096;

// Inputs are a few kB. A device without an end, or somebody's disk image, is refused.
constexpr size_t kFileMax = size_t{64} << 20;

Bytes ReadBytes(const std::string& path) {
  const std::string text = ReadTextFile(path, "fuzz input", kFileMax);
  CheckLength(text, path, "fuzz input", kFileMax);
  return Bytes(text.begin(), text.end());
}

// Sorted, so that a run is the same everywhere.
std::vector<std::string> FilesOf(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::exists(path)) {
      throw InputError(path + ": file: does not exist, expected an input or a folder of them");
    }
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.is_regular_file()) inside.push_back(entry.path().string());
    }
    std::ranges::sort(inside);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

// The input in hand, for the signal handler: whatever kills us, the bytes are on disk.
Bytes input;
std::array<char, 64> crash_path{};

void SaveInput(int signal_number) {
  const int fd = ::open(crash_path.data(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0) {
    const ssize_t written = ::write(fd, input.data(), input.size());
    ::close(fd);
    constexpr std::string_view kSaved = "\nqualm: the input is saved as ";
    if (written == static_cast<ssize_t>(input.size()) &&
        ::write(2, kSaved.data(), kSaved.size()) > 0 &&
        ::write(2, crash_path.data(), std::string_view(crash_path.data()).size()) > 0) {
      [[maybe_unused]] const ssize_t end = ::write(2, "\n", 1);
    }
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

// The mutation for a target that has no mutator of its own (the readers).
void MutateAnyBytes(Bytes& bytes, Rng& rng) {
  switch (rng.Below(4)) {
    case 0:
      bytes.insert(bytes.begin() + static_cast<int64_t>(rng.Below(bytes.size() + 1)),
                   static_cast<uint8_t>(rng.Next()));
      break;
    case 1:
      if (!bytes.empty()) {
        bytes.erase(bytes.begin() + static_cast<int64_t>(rng.Below(bytes.size())));
      }
      break;
    default:
      if (!bytes.empty()) bytes[rng.Below(bytes.size())] = static_cast<uint8_t>(rng.Next());
      break;
  }
  bytes.resize(std::min(bytes.size(), kInputMax));
}

Bytes Mutated(const Bytes& bytes, Rng& rng) {
  Bytes mutated = bytes;
  if (&LLVMFuzzerCustomMutator == nullptr) {
    for (uint64_t i = rng.Below(4); i < 4; ++i) MutateAnyBytes(mutated, rng);
    return mutated;
  }
  const size_t size = mutated.size();
  mutated.resize(std::max(kInputMax, size));
  mutated.resize(LLVMFuzzerCustomMutator(mutated.data(), size, mutated.size(),
                                         static_cast<unsigned>(rng.Next())));
  return mutated;
}

void Replay(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::fprintf(stderr, "%s\n", file.c_str());  // before it runs
    input = ReadBytes(file);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::fprintf(stderr, "%zu inputs\n", files.size());
}

// A random walk from the given inputs: each step goes on from one of them or from its last result.
void Run(const std::vector<std::string>& files, int64_t runs, uint64_t seed) {
  std::vector<Bytes> starts;
  for (const std::string& file : files) starts.push_back(ReadBytes(file));
  if (starts.empty()) starts.emplace_back();
  for (const int signal_number : {SIGSEGV, SIGABRT, SIGILL, SIGTRAP, SIGFPE, SIGBUS}) {
    std::signal(signal_number, SaveInput);
  }
  std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  for (int64_t run = 0; run < runs; ++run) {
    const bool restart = run == 0 || rng.Chance(1, 16);
    input = Mutated(restart ? starts[rng.Below(starts.size())] : input, rng);
    std::snprintf(crash_path.data(), crash_path.size(), "crash-%llu-%lld",
                  static_cast<unsigned long long>(seed), static_cast<long long>(run));
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::fprintf(stderr, "%lld runs\n", static_cast<long long>(runs));
}

// Which counters any input lit so far.
class Lit {
 public:
  // Runs the input; true if it lit a new counter.
  bool RunIsNew() {
    std::fill_n(counters_.begin(), counters_.size(), uint8_t{0});
    LLVMFuzzerTestOneInput(input.data(), input.size());
    bool is_new = false;
    for (size_t i = 0; i < counters_.size(); ++i) {
      is_new |= counters_[i] != 0 && !lit_[i];
      lit_[i] = lit_[i] || counters_[i] != 0;
    }
    return is_new;
  }

 private:
  std::span<volatile uint8_t> counters_{__start___libfuzzer_extra_counters,
                                        __stop___libfuzzer_extra_counters};
  std::vector<bool> lit_ = std::vector<bool>(counters_.size());
};

// A small engine for compilers that bring none: it keeps what libFuzzer would keep for the
// counters.
void Climb(const std::vector<std::string>& files, int64_t runs, double seconds, uint64_t seed,
           const std::string& folder) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  Lit lit;
  std::vector<Bytes> kept{{}};
  int64_t run = 0;
  const auto goes_on = [&] { return run < runs && Clock::now() < end; };
  for (size_t i = 0; i < files.size() && goes_on(); ++i, ++run) {
    input = ReadBytes(files[i]);
    if (lit.RunIsNew()) kept.push_back(input);
  }
  Rng rng(seed);
  for (; goes_on(); ++run) {
    input = kept[rng.Below(kept.size())];
    for (uint64_t times = rng.Between(1, 5); times > 0; --times) input = Mutated(input, rng);
    if (!lit.RunIsNew()) continue;
    kept.push_back(input);
    const std::string_view bytes(reinterpret_cast<const char*>(input.data()), input.size());
    WriteTextFile(folder + "/" + ContentName(bytes), bytes);
  }
}

void Encode(const std::string& from, const std::string& to) {
  const Case c = ReadCaseFile(from);
  const std::optional<Bytes> bytes = fuzz::EncodeCase(c);
  if (!bytes) {
    throw InputError(from + ": M, N, K: the case has no bytes, expected one within the limits of " +
                     std::string(Name(c.op)) + " (fuzz/fit.h)");
  }
  WriteTextFile(to, {reinterpret_cast<const char*>(bytes->data()), bytes->size()});
}

void Decode(const std::string& op_name, const std::string& from) {
  const std::optional<Op> op = ParseOp(op_name);
  if (!op) throw InputError("--decode: '" + op_name + "' is no operation, expected linear, ...");
  std::fputs(CaseToJson(fuzz::DecodeCase(*op, ReadBytes(from))).c_str(), stdout);
}

void ListOps() {
  for (const Op op : AllOps()) std::printf("%s\n", std::string(Name(op)).c_str());
}

template <class T>
T Number(const std::string& option, const std::string& text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || text.empty()) {
    throw InputError(option + ": '" + text + "' is no number, expected an integer");
  }
  return value;
}

void Main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "--encode")
    return Encode(arguments[1], arguments[2]);
  if (arguments.size() == 3 && arguments[0] == "--decode")
    return Decode(arguments[1], arguments[2]);
  if (arguments.size() == 1 && arguments[0] == "--list-ops") return ListOps();
  std::optional<int64_t> runs;
  double seconds = 1e9;
  std::string keep;
  uint64_t seed = 1;
  std::vector<std::string> paths;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--")) {
      paths.push_back(argument);
    } else if (argument.starts_with("--op=")) {
      continue;
    } else if (i + 1 < arguments.size() && argument == "--runs") {
      runs = Number<int64_t>(argument, arguments[++i]);
    } else if (i + 1 < arguments.size() && argument == "--seconds") {
      seconds = Number<double>(argument, arguments[++i]);
    } else if (i + 1 < arguments.size() && argument == "--keep") {
      keep = arguments[++i];
    } else if (i + 1 < arguments.size() && argument == "--seed") {
      seed = Number<uint64_t>(argument, arguments[++i]);
    } else {
      throw InputError(
          argument +
          ": unknown or incomplete, expected --runs N, --seed S, --keep DIR, "
          "--seconds T, --op=OP, --encode CASE.json OUT, --decode OP IN or --list-ops");
    }
  }
  if (paths.empty() && !runs && keep.empty())
    throw InputError("PATH: is missing, expected inputs to replay");
  const std::vector<std::string> files = FilesOf(paths);
  // Files are few, and what one of them once showed may be any property's.
  if (!runs) ::setenv("QUALM_FUZZ_EVERY", "yes", 0);
  if (&LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  if (!keep.empty()) {
    Climb(files, runs.value_or(INT64_MAX), seconds, seed, keep);
  } else if (runs) {
    Run(files, *runs, seed);
  } else {
    Replay(files);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Main(argc, argv);
  } catch (const InputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
