// SPDX-License-Identifier: Apache-2.0
#include "report/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <system_error>

namespace qualm::report {
namespace {

struct Kind {
  std::string_view name, words;
};
// A kind of FindingKind that is missing here gets the words of the last row.
constexpr std::array<Kind, 14> kKinds{{
    {"pair-saturation",
     "adds products of 8-bit numbers in pairs in 16 bits, where a sum that is too large is cut "
     "off"},
    {"int32-overflow", "keeps a sum in 32 bits that does not fit into them"},
    {"rounding", "rounds a number on the way, so that the last rounding starts from a wrong one"},
    {"tie",
     "rounds a value half way between two codes (or brought there by an earlier rounding) to "
     "the other side"},
    {"tail", "treats the last elements, which fill no whole vector, differently"},
    {"padding", "takes something else than real 0 for the padding around an image"},
    {"clamp", "cuts its output off at another bound"},
    {"zero-point", "treats a zero point (the code of real 0) differently"},
    {"index", "uses the number of another place"},
    {"memory", "reads or writes memory beside its own, or depends on where its data lies"},
    {"nondeterminism", "gives different answers to the same question"},
    {"crash", "crashes"},
    {"hang", "gives no answer"},
    {"unknown", "gives another number, for a reason that no known cause explains"},
}};

struct Project {
  std::string_view name, repository, revision;  // the name as reasons say it
};
// Longer names first: "pytorch/FBGEMM" is no PyTorch.
constexpr std::array<Project, 26> kProjects{{
    {"pytorch/FBGEMM", "pytorch/FBGEMM", "71d6f8b"},
    {"FBGEMM", "pytorch/FBGEMM", "71d6f8b"},
    {"oneDNN 2.6", "uxlfoundation/oneDNN", "v2.6"},
    {"oneDNN 3.7.2", "uxlfoundation/oneDNN", "v3.7.2"},
    {"oneDNN 3.12", "uxlfoundation/oneDNN", "v3.12"},
    {"oneDNN", "uxlfoundation/oneDNN", "v2.6"},
    {"ideep b2f8044", "intel/ideep", "b2f8044"},
    {"ONNX Runtime", "microsoft/onnxruntime", "HEAD"},
    {"QNNPACK", "pytorch/QNNPACK", "7d2a4e9"},
    {"XNNPACK 4ea82e5", "google/XNNPACK", "4ea82e5"},
    {"XNNPACK 75db3c0", "google/XNNPACK", "75db3c0"},
    {"XNNPACK", "google/XNNPACK", "ae108ef"},
    {"gemmlowp", "google/gemmlowp", "HEAD"},
    {"TFLite", "tensorflow/tensorflow", "HEAD"},
    {"LiteRT v2.2.0", "google-ai-edge/LiteRT", "v2.2.0"},
    {"ruy", "google/ruy", "HEAD"},
    {"StableHLO", "openxla/stablehlo", "3c9301c"},
    {"TVM", "apache/tvm", "HEAD"},
    {"MNN", "alibaba/MNN", "HEAD"},
    {"CTranslate2", "OpenNMT/CTranslate2", "v4.8.1"},
    {"tract", "sonos/tract", "38b383f"},
    {"OpenVINO", "openvinotoolkit/openvino", "2026.4.1"},
    {"ggml", "ggml-org/ggml", "HEAD"},
    {"torchao 0.18", "pytorch/ao", "v0.18.0"},
    {"PyTorch", "pytorch/pytorch", "v1.13.1"},
    {"pytorch", "pytorch/pytorch", "HEAD"},
}};

std::string_view WordAt(std::string_view text, size_t at) {
  const size_t end = text.find_first_of(" ,;)", at);
  return text.substr(at, end == std::string_view::npos ? end : end - at);
}

// "src/x.cc": a path from the root of a repository.
bool IsPath(std::string_view word) {
  const auto starts = [&](std::string_view root) { return word.starts_with(root); };
  return word.find('.') != std::string_view::npos &&
         (starts("src/") || starts("core/src/") || starts("include/") || starts("onnxruntime/"));
}

}  // namespace

std::string Number(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string Count(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", Number(count), noun, count == 1 ? "" : "s");
}

std::string List(const std::vector<std::string>& words) {
  if (words.size() < 2) return words.empty() ? "" : words.front();
  return fmt::format("{} and {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

std::string FamilyOf(const std::string& subject) { return subject.substr(0, subject.find('@')); }

std::string Subjects(const std::vector<std::string>& names) {
  std::vector<std::string> families;
  std::map<std::string, std::vector<std::string>> variants;
  for (const std::string& name : names) {
    const std::string family = FamilyOf(name);
    if (std::ranges::find(families, family) == families.end()) families.push_back(family);
    std::string variant = name == family ? "default" : name.substr(family.size() + 1);
    std::vector<std::string>& known = variants[family];
    if (std::ranges::find(known, variant) == known.end()) known.push_back(std::move(variant));
  }
  std::string text;
  for (const std::string& family : families) {
    const auto& of = variants[family];
    const bool plain = of.size() == 1 && of.front() == "default";
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", family,
                        plain ? "" : fmt::format(" ({})", fmt::join(of, ", ")));
  }
  return text;
}

std::string_view WordsOf(std::string_view kind) {
  const auto found = std::ranges::find(kKinds, kind, &Kind::name);
  return found == kKinds.end() ? kKinds.back().words : found->words;
}

std::string WithoutFolders(std::string_view text) {
  std::string shorter;
  for (size_t at = 0; at < text.size();) {
    const std::string_view path =
        text.substr(at, std::min(text.find_first_of(" '\"\n);,<>", at), text.size()) - at);
    const bool begins =
        text[at] == '/' &&
        (at == 0 || std::string_view(" :'\"(\n=").find(text[at - 1]) != std::string_view::npos);
    const size_t name = path.rfind('/');
    if (!begins || name == 0 || name == std::string_view::npos) {
      shorter += text[at++];
      continue;
    }
    shorter += path.substr(path.rfind('/', name - 1) + 1);
    at += path.size();
  }
  return shorter;
}

std::string SubjectFrom(const std::string& place, const std::string& subject) {
  constexpr std::string_view kPlugin = "plugin:";
  namespace fs = std::filesystem;
  const fs::path folder(place);
  if (subject.starts_with(kPlugin) && folder.is_relative()) {
    const fs::path file(subject.substr(kPlugin.size()));
    // A name alone is looked for in several folders: the current one comes first.
    std::error_code error;
    if (file.is_relative() && (file.has_parent_path() || fs::exists(file, error))) {
      const fs::path from =
          file.lexically_normal().lexically_relative((folder / "").lexically_normal());
      if (!from.empty()) return std::string(kPlugin) + from.string();
    }
  }
  return WithoutFolders(subject);
}

std::string WithDecimals(const std::string& text) {
  static const std::regex hex("-?0x[0-9a-f]+(\\.[0-9a-f]+)?p[+-][0-9]+");
  std::string plain;
  auto rest = text.begin();
  for (std::sregex_iterator at(text.begin(), text.end(), hex); at != std::sregex_iterator(); ++at) {
    plain.append(rest, text.begin() + at->position());
    const double number = std::strtod(at->str().c_str(), nullptr);
    const auto narrow = static_cast<float>(number);
    plain += static_cast<double>(narrow) == number ? fmt::format("{}", narrow)
                                                   : fmt::format("{}", number);
    rest = text.begin() + at->position() + at->length();
  }
  return plain.append(rest, text.end());
}

Text WithUpstreamLinks(const std::string& reason) {
  Text text;
  std::string plain;
  const auto link = [&](std::string words, std::string address) {
    text += Text(std::exchange(plain, ""));
    text += Link(std::move(words), "https://github.com/" + std::move(address));
  };
  const Project* project = nullptr;
  for (size_t at = 0; at < reason.size();) {
    const bool begins = at == 0 || std::isalnum(static_cast<unsigned char>(reason[at - 1])) == 0;
    const std::string_view rest = std::string_view(reason).substr(at);
    if (const std::string_view path = WordAt(reason, at);
        begins && (at == 0 || reason[at - 1] != '/') && project != nullptr && IsPath(path)) {
      link(std::string(path),
           fmt::format("{}/blob/{}/{}", project->repository, project->revision, path));
      at += path.size();
      continue;
    }
    const auto found = std::ranges::find_if(
        kProjects, [&](const Project& known) { return begins && rest.starts_with(known.name); });
    if (found == kProjects.end()) {
      plain += reason[at++];
      continue;
    }
    project = &*found;
    const std::string_view after = rest.substr(found->name.size());
    constexpr std::string_view kIssue = " issue ";
    const std::string_view number =
        after.starts_with(kIssue) ? WordAt(after, kIssue.size()) : std::string_view();
    if (!number.empty() &&
        std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; })) {
      link(fmt::format("{} issue {}", found->name, number),
           fmt::format("{}/issues/{}", found->repository, number));
      at += found->name.size() + kIssue.size() + number.size();
    } else {
      plain += found->name;
      at += found->name.size();
    }
  }
  return text += Text(plain);
}

}  // namespace qualm::report
