// `version`: of this program, and of the pool if one is named.
#include <memory>
#include <nlohmann/json.hpp>

#include "client/ctl/documents.h"
#include "client/ctl/endpoint.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/verbs.h"
#include "engram/version.h"

namespace engram::ctl {
namespace {

absl::Status PrintVersion(bool client_only, const Invocation& invocation) {
  const auto format =
      ParseFormat(invocation.output, {Format::kTable, Format::kJson, Format::kYaml});
  if (!format.ok()) return format.status();
  nlohmann::ordered_json json = {{"client", std::string(Version())}};
  absl::Status status = absl::OkStatus();
  // Without a pool there is only one version to tell.
  if (!client_only && ResolveEndpoint(invocation.endpoint).ok()) {
    const auto pool = invocation.Pool();
    if (!pool.ok()) return pool.status();
    const auto info = pool->PoolInfo();
    status = info.status();
    if (info.ok()) json["pool"] = info->version();
  }
  if (*format == Format::kTable) {
    for (const auto& [key, value] : json.items()) {
      invocation.terminal.out << key << ": " << value.get<std::string>() << '\n';
    }
  } else {
    PrintDocument(invocation.terminal, *format, json.dump());
  }
  return status;
}

}  // namespace

Action DeclareVersion(Options app) {
  auto client_only = std::make_shared<bool>(false);
  app.Flag("--client", client_only.get(), "Only of this program; asks no pool");
  return [client_only](const Invocation& invocation) {
    return PrintVersion(*client_only, invocation);
  };
}

}  // namespace engram::ctl
