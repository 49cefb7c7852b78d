// What the services' calls share: answering at once, and reading who asks. Free functions:
// Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engram/v1/common.pb.h"
#include "grpcpp/grpcpp.h"
#include "placement/ops/controller.h"
#include "proto/convert.h"
#include "proto/credentials.h"

namespace engram::placement {

inline grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                        const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(wire::ToGrpc(status));
  return reactor;
}

inline CallerId CallerOf(const v1::Caller& caller) {
  return {caller.client(), caller.tenant(), caller.request_id()};
}

// Whose client calls: what its certificate says, else what it says itself.
inline std::string TenantOfCall(const std::optional<Identity>& caller, const v1::Caller& says) {
  return std::string(
      TenantOr(caller && caller->role == Role::kClient ? caller->tenant : says.tenant()));
}

// The tenant that a call is confined to: that of an authenticated client.
inline std::optional<std::string> ClientTenant(const grpc::ServerContextBase& context) {
  const std::optional<Identity> caller = wire::CallerIdentity(context);
  if (!caller || caller->role != Role::kClient) return std::nullopt;
  return caller->tenant;
}

}  // namespace engram::placement
