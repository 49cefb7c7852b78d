#include "client/ctl/endpoint.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/ctl/outcome.h"
#include "proto/controllers.h"

namespace engram::ctl {
namespace {

namespace fs = std::filesystem;

// One, or several with commas.
absl::Status CheckEndpoint(const std::string& endpoints, const std::string& from) {
  const absl::Status good = wire::Controllers::Check(endpoints);
  return good.ok() ? good : UsageError(absl::StrCat(from, " ", good.message()));
}

}  // namespace

std::string EnvironmentOr(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

std::string ContextPath() {
  const std::string config =
      EnvironmentOr("XDG_CONFIG_HOME", EnvironmentOr("HOME", "/tmp") + "/.config");
  return EnvironmentOr("ENGRAM_CONTEXT", config + "/engram/context.yaml");
}

absl::StatusOr<CurrentPool> ReadContext() {
  const std::string path = ContextPath();
  if (!fs::exists(path)) return absl::NotFoundError("there is no context file " + path);
  try {
    const YAML::Node file = YAML::LoadFile(path);
    CurrentPool pool;
    pool.endpoint = file["endpoint"].as<std::string>();
    if (file["data_dir"]) pool.data_dir = file["data_dir"].as<std::string>();
    return pool;
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the context file ", path, " does not read as `endpoint: HOST:PORT` (",
                     error.what(), "); delete it, or run `engramctl local up` again"));
  }
}

absl::Status WriteContext(const CurrentPool& pool) {
  const std::string path = ContextPath();
  std::error_code ignored;
  fs::create_directories(fs::path(path).parent_path(), ignored);
  YAML::Emitter yaml;
  yaml << YAML::Comment("The pool that engramctl and the client libraries use by default.")
       << YAML::BeginMap << YAML::Key << "endpoint" << YAML::Value << pool.endpoint;
  if (!pool.data_dir.empty()) yaml << YAML::Key << "data_dir" << YAML::Value << pool.data_dir;
  yaml << YAML::EndMap;
  // Written beside and renamed, so that nobody ever reads half of it.
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::trunc);
  file << yaml.c_str() << '\n';
  file.close();
  if (!file || std::rename(fresh.c_str(), path.c_str()) != 0) {
    return absl::InternalError(absl::StrCat("cannot write the context file ", path, ": ",
                                            std::strerror(errno), "; set ENGRAM_CONTEXT"));
  }
  return absl::OkStatus();
}

void ForgetContext(const std::string& data_dir) {
  const auto pool = ReadContext();
  std::error_code ignored;
  if (pool.ok() && pool->data_dir == data_dir) fs::remove(ContextPath(), ignored);
}

absl::StatusOr<std::string> ResolveEndpoint(const std::string& given) {
  if (!given.empty()) {
    const absl::Status valid = CheckEndpoint(given, "the endpoint");
    return valid.ok() ? absl::StatusOr<std::string>(given) : valid;
  }
  const auto pool = ReadContext();
  if (absl::IsNotFound(pool.status())) {
    return UsageError(
        "no pool is named: give --endpoint HOST:PORT, set ENGRAM_ENDPOINT, or start a pool on this "
        "machine with `engramctl local up`");
  }
  if (!pool.ok()) return pool.status();
  const absl::Status valid = CheckEndpoint(pool->endpoint, "`endpoint` in " + ContextPath());
  return valid.ok() ? absl::StatusOr<std::string>(pool->endpoint) : valid;
}

}  // namespace engram::ctl
