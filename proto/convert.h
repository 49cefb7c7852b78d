// The one place where wire messages (package engram.v1) become domain values and back.
//
// ToWire never fails. FromWire returns InvalidArgument naming the message, the field, the value and
// the limit: ids of the wrong length, unknown enum numbers, empty oneofs, repeated fields beyond
// the bounds below. Pure functions: Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/node_protocol.h"
#include "engram/session.h"
#include "engram/shard_map.h"
#include "engram/table_spec.h"
#include "engram/v1/common.pb.h"
#include "engram/v1/placement.pb.h"
#include "engram/v1/pool_node.pb.h"
#include "grpcpp/support/status.h"

namespace engram::wire {

// Bounds on repeated fields of one message.
inline constexpr int kMaxTablesPerSession = 1024;
inline constexpr int kMaxGrantsPerUpdate = 1 << 17;
inline constexpr int kMaxPaths = 16;
inline constexpr std::uint32_t kMaxPathNumber = 4095;
inline constexpr int kMaxReplicasPerShard = 16;
inline constexpr int kMaxReportsPerMessage = 1 << 17;
inline constexpr int kMaxCrcsPerReport = 1 << 22;
inline constexpr int kMaxShardsPerCommand = 1 << 17;
inline constexpr int kMaxMapEntriesPerMessage = 1 << 17;
inline constexpr int kMaxTenants = 1 << 14;
inline constexpr int kMaxTokenMapBytes = 64 << 20;

// Statuses: canonical codes are the same in gRPC and abseil.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);
v1::Outcome ToWire(const absl::Status& status);
absl::Status FromWire(const v1::Outcome& outcome);

std::string ToWire(const TableUid& uid);
absl::StatusOr<TableUid> TableUidFromWire(std::string_view bytes);

v1::Tier ToWire(Tier tier);
v1::ReplicaState ToWire(ReplicaState state);
v1::TableState ToWire(TableState state);
v1::FabricKind ToWire(FabricKind kind);
absl::StatusOr<Tier> FromWire(v1::Tier tier);
absl::StatusOr<ReplicaState> FromWire(v1::ReplicaState state);
absl::StatusOr<TableState> FromWire(v1::TableState state);
absl::StatusOr<FabricKind> FromWire(v1::FabricKind kind);

v1::TableSpec ToWire(const TableSpec& spec);
absl::StatusOr<TableSpec> FromWire(const v1::TableSpec& spec);  // validated
v1::TableOptions ToWire(const TableOptions& options);
// Fields left at 0 take the defaults.
absl::StatusOr<TableOptions> FromWire(const v1::TableOptions& options);
v1::TableSource ToWire(const TableSource& source);
absl::StatusOr<TableSource> FromWire(const v1::TableSource& source);
v1::Table ToWire(const TableRecord& table);
absl::StatusOr<TableRecord> FromWire(const v1::Table& table);

// Little-endian int32.
std::string ToWire(const TokenMap& map);
absl::StatusOr<TokenMap> TokenMapFromWire(std::string_view bytes);

v1::ReadSessionRequest ToWire(const ClientMessage& message);
absl::StatusOr<ClientMessage> FromWire(const v1::ReadSessionRequest& message);
v1::ReadSessionResponse ToWire(const NodeMessage& message);
absl::StatusOr<NodeMessage> FromWire(const v1::ReadSessionResponse& message);
v1::Successor ToWire(const Successor& successor);
Successor FromWire(const v1::Successor& successor);
v1::PathAddress ToWire(const PathAddress& path);

v1::JoinRequest ToWire(const NodeToController& message);
absl::StatusOr<NodeToController> FromWire(const v1::JoinRequest& message);
v1::JoinResponse ToWire(const ControllerToNode& message);
absl::StatusOr<ControllerToNode> FromWire(const v1::JoinResponse& message);
v1::TierCapacity ToWire(const TierCapacity& capacity);
absl::StatusOr<TierCapacity> FromWire(const v1::TierCapacity& capacity);

// One delta may need several messages: the pieces in order, the last one marked.
std::vector<v1::WatchMapResponse> ToWire(const MapDelta& delta);
// Collects pieces until the delta is whole. Thread-compatible.
class MapDeltaAssembler {
 public:
  // True when `delta()` is whole and may be taken; call Take() before the next Add.
  absl::StatusOr<bool> Add(const v1::WatchMapResponse& piece);
  MapDelta Take();

 private:
  MapDelta delta_;
  bool started_ = false;
};

}  // namespace engram::wire
