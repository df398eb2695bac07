// SPDX-License-Identifier: Apache-2.0
#include "core/own_subject.h"

#include <map>
#include <utility>
#include <vector>

#include "core/status.h"

namespace qualm {
namespace {

std::map<std::string, MakeOwnSubject>& Own() {
  static std::map<std::string, MakeOwnSubject> own;
  return own;
}

std::string KindOf(const std::string& name) { return name.substr(0, name.find_first_of(":@")); }

}  // namespace

std::string AddOwnSubject(const MakeOwnSubject& make) {
  std::string name(make()->name());
  if (Own().contains(name)) return name;
  const std::string kind_name = KindOf(name);
  bool known = false;
  for (const auto& [other, unused] : Own()) known = known || KindOf(other) == kind_name;
  if (!known) {
    for (const SubjectKind& kind : SubjectRegistry::Get().kinds()) {
      if (kind.kind != kind_name) continue;
      throw InputError("subject '" + name + "': '" + kind_name +
                       "' is a kind of subject that qualm has, expected another name");
    }
    SubjectKind kind;
    kind.kind = kind_name;
    kind.help = "added by this program";
    kind.names = [kind_name] {
      std::vector<std::string> names;
      for (const auto& [own, unused] : Own()) {
        if (KindOf(own) == kind_name) names.push_back(own);
      }
      return names;
    };
    kind.make = [](const std::string& asked) -> std::unique_ptr<Subject> {
      const auto at = Own().find(asked);
      return at == Own().end() ? nullptr : at->second();
    };
    SubjectRegistry::Get().Add(std::move(kind));
  }
  Own().emplace(name, make);
  return name;
}

}  // namespace qualm
