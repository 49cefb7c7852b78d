#include "tests/conformance/rig.h"

#include <map>
#include <utility>

namespace engram::fabric::conformance {
namespace {

std::map<std::string, std::unique_ptr<Rig>>& Rigs() {
  static std::map<std::string, std::unique_ptr<Rig>> rigs;
  return rigs;
}

}  // namespace

bool RegisterRig(std::unique_ptr<Rig> rig) {
  std::string name = rig->name();
  return Rigs().emplace(std::move(name), std::move(rig)).second;
}

std::vector<const Rig*> AllRigs() {
  std::vector<const Rig*> all;
  for (const auto& [name, rig] : Rigs()) all.push_back(rig.get());
  return all;
}

const Rig* FindRig(const std::string& name) {
  const auto found = Rigs().find(name);
  return found == Rigs().end() ? nullptr : found->second.get();
}

}  // namespace engram::fabric::conformance
