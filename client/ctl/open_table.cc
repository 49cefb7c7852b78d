#include "client/ctl/open_table.h"

#include "client/ctl/endpoint.h"
#include "client/ctl/outcome.h"
#include "proto/controllers.h"

namespace engram::ctl {

absl::StatusOr<OpenTable> OpenForReading(const Invocation& invocation, const TableName& name,
                                         const std::string& fabric) {
  const auto endpoint = ResolveEndpoint(invocation.endpoint);
  if (!endpoint.ok()) return endpoint.status();
  const auto limit = invocation.Timeout(std::chrono::seconds(10));
  if (!limit.ok()) return limit.status();
  client::PoolOptions options;
  options.endpoints = wire::Controllers::Split(*endpoint);
  options.client_name = "engramctl";
  options.connect_timeout = *limit;
  client::TakeFabricEnvironment(&options);
  options.tls_cert = invocation.tls.cert;
  options.tls_key = invocation.tls.key;
  options.tls_ca = invocation.tls.ca;
  if (!fabric.empty() && fabric != "auto") {
    const auto kind = ParseFabricKind(fabric);
    if (!kind.ok()) return UsageError("--fabric: " + std::string(kind.status().message()));
    options.fabric = *kind;
  }
  auto pool = client::Pool::Open(options);
  if (!pool.ok()) return pool.status();
  client::OpenTableOptions how;
  how.open_timeout = *limit;
  auto table = (*pool)->OpenTable(name.Full(), how);
  if (!table.ok()) return table.status();
  return OpenTable{*std::move(pool), *std::move(table)};
}

}  // namespace engram::ctl
