// What the services' calls share: answering at once, and reading who asks. Free functions:
// Thread-safe.
#pragma once

#include "absl/status/status.h"
#include "engram/v1/common.pb.h"
#include "grpcpp/grpcpp.h"
#include "placement/ops/controller.h"
#include "proto/convert.h"

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

}  // namespace engram::placement
