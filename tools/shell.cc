// SPDX-License-Identifier: Apache-2.0
// qualm completion SHELL, qualm man.
#include "tools/shell.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "triage/identify.h"

namespace qualm::tools {
namespace {

struct OptionText {
  std::vector<std::string> names;  // "-s", "--subject"; none of a positional
  std::string about;
  bool takes_value = false;
};

std::vector<OptionText> OptionsOf(const CLI::App& app) {
  std::vector<OptionText> options;
  for (const CLI::Option* option : app.get_options()) {
    OptionText text{{}, option->get_description(), option->get_items_expected_max() > 0};
    for (const std::string& name : option->get_snames()) text.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) text.names.push_back("--" + name);
    if (!text.names.empty()) options.push_back(std::move(text));
  }
  return options;
}

std::vector<const CLI::App*> VerbsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Options whose value is a name that `qualm list` prints.
struct Listed {
  std::string_view option, list;
};
constexpr std::array<Listed, 3> kListed{
    {{"-s", "subjects"}, {"--subject", "subjects"}, {"--op", "ops"}}};

std::string Joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> NamesOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const OptionText& option : OptionsOf(app))
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// In single quotes, for sh, zsh and fish alike: a quote ends them, and is escaped outside.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char ch : text) {
    if (ch == '\'') {
      quoted += "'\\''";
    } else {
      quoted += ch == '\n' ? ' ' : ch;
    }
  }
  return quoted + "'";
}

// zsh reads [, ] and : in a description itself.
std::string ZshText(const std::string& text) {
  std::string escaped;
  for (const char ch : text) {
    if (ch == '[' || ch == ']' || ch == ':' || ch == '\\') escaped += '\\';
    escaped += ch;
  }
  return escaped;
}

// roff: a line that begins with . or ' is a request, and \ begins an escape.
std::string RoffText(const std::string& text) {
  std::string escaped;
  bool at_begin = true;
  for (const char ch : text) {
    if (at_begin && (ch == '.' || ch == '\'')) escaped += "\\&";
    if (ch == '\\') {
      escaped += "\\e";
    } else if (ch == '-') {
      escaped += "\\-";
    } else {
      escaped += ch;
    }
    at_begin = ch == '\n';
  }
  return escaped;
}

std::string RoffOption(const OptionText& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ", ") + RoffText(name);
  return fmt::format(".TP\n.B {}\n{}\n", names + (option.takes_value ? " VALUE" : ""),
                     RoffText(option.about));
}

struct Shell {
  std::string_view name;
  std::string (*script)(const CLI::App&);
};
constexpr std::array<Shell, 3> kShells{
    {{"bash", BashCompletion}, {"zsh", ZshCompletion}, {"fish", FishCompletion}}};

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::vector<std::string> verbs;
  std::string options;
  for (const CLI::App* verb : VerbsOf(app)) {
    verbs.push_back(verb->get_name());
    options +=
        fmt::format("    {}) words={} ;;\n", verb->get_name(), Quoted(Joined(NamesOf(*verb))));
  }
  std::string listed;
  for (const Listed& row : kListed) {
    listed += fmt::format("    {}) words=$(\"$1\" list {} 2>/dev/null | cut -d' ' -f1) ;;\n",
                          row.option, row.list);
  }
  const std::vector<std::string> own = NamesOf(app);
  return fmt::format(
      R"(# qualm completion bash: for ~/.local/share/bash-completion/completions/qualm
_qualm() {{
  local cur prev words
  # Names of subjects hold ':', at which bash begins another word.
  if declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref -n : cur prev
  else
    cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {verbs} -- "$cur"))
    return
  fi
  case $prev in
{listed}    *) case ${{COMP_WORDS[1]}} in
{options}    esac
    [[ $cur == -* ]] || words= ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if declare -F __ltrim_colon_completions >/dev/null; then __ltrim_colon_completions "$cur"; fi
}}
complete -o default -F _qualm qualm
)",
      fmt::arg("verbs", Quoted(Joined(verbs) + " " + Joined(own))), fmt::arg("listed", listed),
      fmt::arg("options", options));
}

std::string ZshCompletion(const CLI::App& app) {
  std::string verbs, cases;
  for (const CLI::App* verb : VerbsOf(app)) {
    verbs += "    " + Quoted(verb->get_name() + ":" + ZshText(verb->get_description())) + "\n";
    cases += fmt::format("    {})\n      _arguments", verb->get_name());
    for (const OptionText& option : OptionsOf(*verb)) {
      for (const std::string& name : option.names) {
        const auto listed = std::ranges::find(kListed, std::string_view(name), &Listed::option);
        std::string value = option.takes_value ? ":value:_files" : "";
        if (listed != kListed.end())
          value =
              fmt::format(":name:($(qualm list {} 2>/dev/null | cut -d\" \" -f1))", listed->list);
        cases += " \\\n        " + Quoted("*" + name + "[" + ZshText(option.about) + "]" + value);
      }
    }
    cases += " \\\n        '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef qualm
# qualm completion zsh: as _qualm in a folder of $fpath
_qualm() {{
  local -a verbs=(
{verbs}  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{cases}  esac
}}
_qualm "$@"
)",
                     fmt::arg("verbs", verbs), fmt::arg("cases", cases));
}

std::string FishCompletion(const CLI::App& app) {
  std::string text = "# qualm completion fish: as ~/.config/fish/completions/qualm.fish\n";
  for (const CLI::App* verb : VerbsOf(app)) {
    text += fmt::format("complete -c qualm -n __fish_use_subcommand -a {} -d {}\n",
                        verb->get_name(), Quoted(verb->get_description()));
    for (const OptionText& option : OptionsOf(*verb)) {
      text +=
          fmt::format("complete -c qualm -n '__fish_seen_subcommand_from {}'", verb->get_name());
      std::string values = option.takes_value ? " -r" : "";
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
        const auto listed = std::ranges::find(kListed, std::string_view(name), &Listed::option);
        if (listed != kListed.end())
          values =
              fmt::format(" -x -a '(qualm list {} 2>/dev/null | cut -d\" \" -f1)'", listed->list);
      }
      text += values + " -d " + Quoted(option.about) + "\n";
    }
  }
  return text;
}

std::string ManPage(const CLI::App& app) {
  std::string text =
      ".TH QUALM 1\n.SH NAME\nqualm \\- exact oracles, properties and engines for "
      "quantized kernels\n.SH SYNOPSIS\n.B qualm\n.I VERB\n[options] [arguments]\n"
      ".SH DESCRIPTION\n" +
      RoffText(app.get_description()) + "\n.SH VERBS\n";
  for (const CLI::App* verb : VerbsOf(app)) {
    text += fmt::format(".SS qualm {}\n{}\n", RoffText(verb->get_name()),
                        RoffText(verb->get_description()));
    for (const OptionText& option : OptionsOf(*verb)) text += RoffOption(option);
    if (!verb->get_footer().empty()) text += ".PP\n" + RoffText(verb->get_footer()) + "\n";
  }
  text += ".SH OPTIONS\n";
  for (const OptionText& option : OptionsOf(app)) text += RoffOption(option);
  return text;
}

void AddShell(CLI::App& app, Run* run) {
  auto shell = std::make_shared<std::string>();
  Verb completion(
      app, run, "completion", "a script that completes this command",
      "Example: qualm completion bash > ~/.local/share/bash-completion/completions/qualm");
  completion.Text("SHELL", *shell, "bash, zsh or fish").Required().OneOf({"bash", "zsh", "fish"});
  completion.Does([&app, shell] {
    Out(std::ranges::find(kShells, std::string_view(*shell), &Shell::name)->script(app));
    return kClean;
  });
  Verb man(app, run, "man", "the manual page qualm(1)", "Example: qualm man | man -l -");
  man.Does([&app] {
    Out(ManPage(app));
    return kClean;
  });
}

}  // namespace qualm::tools
