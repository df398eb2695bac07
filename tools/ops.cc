// SPDX-License-Identifier: Apache-2.0
#include "tools/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/nearest.h"
#include "core/status.h"

namespace qualm::tools {
namespace {

void AddNamed(const std::string& words, const std::string& where, std::vector<Op>& ops) {
  for (size_t at = 0; at <= words.size();) {
    const size_t end = std::min(words.find(',', at), words.size());
    const Op op = OpNamed(words.substr(at, end - at), where);
    if (std::ranges::find(ops, op) == ops.end()) ops.push_back(op);
    at = end + 1;
  }
}

}  // namespace

VerbOption AddOpOption(Verb& verb, OpWords& words, const std::string& about) {
  return verb.Texts("--op", words.option, about + " (OP or OP,OP; repeatable)").Called("OP");
}

void AddOps(Verb& verb, OpWords& words, const std::string& about) {
  verb.Texts("OP", words.positional, "the same as --op");
  AddOpOption(verb, words, about);
}

std::vector<Op> OpsOf(const OpWords& words) {
  std::vector<Op> ops;
  for (const std::string& word : words.positional) AddNamed(word, "OP", ops);
  for (const std::string& word : words.option) AddNamed(word, "--op", ops);
  return ops;
}

Op OpNamed(const std::string& name, const std::string& where) {
  if (const std::optional<Op> op = ParseOp(name)) return *op;
  if (std::error_code ignored; std::filesystem::is_regular_file(name, ignored)) {
    throw InputError(fmt::format(
        "{}: {} is a file, expected an operation; qualm replay reads a case file, qualm explain a "
        "case file or a model",
        where, name));
  }
  std::vector<std::string_view> known;
  for (const Op op : AllOps()) known.push_back(Name(op));
  throw InputError(fmt::format("{}: unknown operation '{}'{} (see qualm list ops)", where, name,
                               NearestText(name, known, name.size())));
}

}  // namespace qualm::tools
