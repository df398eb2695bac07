// SPDX-License-Identifier: Apache-2.0
// A verb of the command and its options. Every option refuses an empty value, and one that is
// repeatable takes one value each time, so that a mistake in a script is never taken for a missing
// option. CLI11 reads the command line; its templates are compiled in verb.cc alone, since each
// file that includes them takes seconds more.
#ifndef QUALM_TOOLS_VERB_H_
#define QUALM_TOOLS_VERB_H_

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace qualm::tools {

// The work of the verb that was asked for; its exit status.
using Run = std::function<int()>;

// One option or positional argument of a verb.
class VerbOption {
 public:
  explicit VerbOption(CLI::Option* option) : option_(option) {}

  VerbOption Required();
  VerbOption OneOf(const std::vector<std::string>& values);
  VerbOption Excludes(VerbOption other);
  VerbOption Needs(VerbOption other);
  // The word that stands for the value in the help, e.g. "FILE".
  VerbOption Called(const std::string& value);
  // A list whose values follow its name once: --merge A B C. `count` 0: any number from one on.
  VerbOption TakesMany(int count = 0);
  // A text that may be given again: the values stand between commas.
  VerbOption Joined();

 private:
  CLI::Option* option_;
};

class Verb {
 public:
  // Adds a verb to `app`. `examples` stands below the options in its help.
  Verb(CLI::App& app, Run* run, const std::string& name, const std::string& about,
       const std::string& examples);

  // `names` is "--long,-s", or a word in capitals for a positional argument. Values are stored
  // while the command line is read.
  VerbOption Text(const std::string& names, std::string& value, const std::string& about);
  VerbOption Text(const std::string& names, std::function<void(const std::string&)> store,
                  const std::string& about);
  // Of "--long": repeatable, one value each time.
  VerbOption Texts(const std::string& names, std::vector<std::string>& values,
                   const std::string& about);
  // "--name" sets it; "--name,!--no-name" sets and clears it.
  VerbOption Flag(const std::string& names, bool& value, const std::string& about);
  VerbOption Flag(const std::string& names, std::function<void()> set, const std::string& about);
  // An integer in least..most. CLI11 alone reads 010 as 8, and wraps numbers that are too large.
  VerbOption Integer(const std::string& names, std::function<void(int64_t)> store, int64_t least,
                     int64_t most, const std::string& about);
  template <class T>
  VerbOption Integer(const std::string& names, T& value, int64_t least, int64_t most,
                     const std::string& about) {
    return Integer(
        names, [&value](int64_t read) { value = static_cast<T>(read); }, least, most, about);
  }
  // "60s", "10m", "8h", "2d", or plain seconds; more than 0.
  VerbOption Duration(const std::string& names, double& seconds, const std::string& about);
  // --seed, an integer in 0..2^64-1.
  VerbOption Seed(uint64_t& seed);

  // Called once all options are read; throws InputError where they contradict each other.
  void Checks(std::function<void()> check);
  // The work, once the verb is chosen.
  void Does(Run work);

 private:
  CLI::App* app_;
  Run* run_;
};

// Decimal digits, with '-' before them where T has a sign; nullopt for any other text and for
// numbers that T does not hold.
template <class T>
std::optional<T> ParseInteger(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_VERB_H_
