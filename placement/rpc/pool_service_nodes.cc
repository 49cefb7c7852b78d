// Nodes and moves: see pool_service.h.
#include <utility>

#include "placement/rpc/calls.h"
#include "placement/rpc/pool_service.h"
#include "proto/convert.h"

namespace engram::placement {
namespace {

v1::Node ToWireNode(const ClusterState& state, const NodeRecord& node) {
  v1::Node out;
  out.set_node(node.id.name);
  out.set_incarnation(node.incarnation.value());
  out.set_endpoint(node.endpoint);
  out.set_failure_domain(node.failure_domain);
  out.set_version(node.version);
  out.set_alive(node.alive);
  out.set_joined_unix_ms(node.joined_unix_ms);
  for (const TierCapacity& tier : state.TiersOf(node)) *out.add_tiers() = wire::ToWire(tier);
  out.set_cordoned(node.cordoned);
  out.set_draining(node.draining);
  if (const auto live = state.live.find(node.id); live != state.live.end()) {
    out.set_note(live->second->note);
    out.set_sessions(live->second->sessions);
    out.set_retirements_pending(live->second->retirements_pending);
    out.set_last_seen_unix_ms(live->second->last_seen_unix_ms);
  }
  return out;
}

v1::MoveKind ToWireKind(MoveKind kind) {
  switch (kind) {
    case MoveKind::kBalance: return v1::MOVE_KIND_BALANCE;
    case MoveKind::kDrain: return v1::MOVE_KIND_DRAIN;
    case MoveKind::kRepair: return v1::MOVE_KIND_REPAIR;
    case MoveKind::kManual: return v1::MOVE_KIND_MANUAL;
  }
  return v1::MOVE_KIND_UNSPECIFIED;
}

v1::MoveState ToWireStep(MoveStep step) {
  switch (step) {
    case MoveStep::kWaiting: return v1::MOVE_STATE_WAITING;
    case MoveStep::kPulling: return v1::MOVE_STATE_PULLING;
    case MoveStep::kServing: return v1::MOVE_STATE_SERVING;
    case MoveStep::kRetiring: return v1::MOVE_STATE_RETIRING;
  }
  return v1::MOVE_STATE_UNSPECIFIED;
}

v1::Move ToWireMove(const ClusterState& state, const MoveRecord& move) {
  v1::Move out;
  out.set_table(wire::ToWire(move.shard.table));
  out.set_shard(move.shard.shard.value());
  if (const TableEntry* table = state.FindTable(move.shard.table)) {
    out.set_table_name(table->record.name.Full());
    out.set_bytes(table->layout->StoredBytes(move.shard.shard));
  }
  out.set_from(move.from.name);
  out.set_to(move.to.name);
  if (const MapReplica* from = state.FindReplica(move.shard, move.from)) {
    out.set_from_tier(wire::ToWire(from->tier));
  }
  if (!move.to.name.empty()) out.set_to_tier(wire::ToWire(move.to_tier));
  out.set_kind(ToWireKind(move.kind));
  out.set_reason(move.reason);
  out.set_state(ToWireStep(StepOf(state, move)));
  out.set_created_unix_ms(move.created_unix_ms);
  const auto note = state.move_notes.find(move.shard);
  if (note != state.move_notes.end()) out.set_note(note->second);
  return out;
}

void Fill(const ClusterState&, const IntentReply&, v1::CordonNodeResponse*) {}
void Fill(const ClusterState&, const IntentReply&, v1::UncordonNodeResponse*) {}
void Fill(const ClusterState&, const IntentReply&, v1::DeleteNodeResponse*) {}
void Fill(const ClusterState& state, const IntentReply& reply, v1::DrainNodeResponse* response) {
  for (const MoveRecord& move : reply.moves) *response->add_moves() = ToWireMove(state, move);
  response->set_moves_total(reply.moves.size() + reply.moves_more);
}

template <class Request, class Response>
grpc::ServerUnaryReactor* SetIntent(ControllerLoop* loop, grpc::CallbackServerContext* context,
                                    const Request& request, NodeIntent intent, Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop->SetNodeIntent(
      {CallerOf(request.caller()), NodeId{request.node()}, intent, request.dry_run()},
      [loop, reactor, response](absl::StatusOr<IntentReply> reply) {
        if (reply.ok()) {
          const std::shared_ptr<const ClusterState> state = loop->snapshot();
          *response->mutable_node() = ToWireNode(*state, reply->node);
          Fill(*state, *reply, response);
        }
        reactor->Finish(wire::ToGrpc(reply.status()));
      });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* PoolService::ListNodes(grpc::CallbackServerContext* context,
                                                 const v1::ListNodesRequest*,
                                                 v1::ListNodesResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  std::map<NodeId, ReplicaCounts> replicas;
  for (const auto& [uid, table] : state->tables) {
    for (const auto& chunk : table->chunks) {
      for (const auto& shard : chunk->map.shards) {
        for (const MapReplica& replica : shard) {
          replicas[replica.node].serving += replica.state == ReplicaState::kServing;
          replicas[replica.node].loading += replica.state == ReplicaState::kLoading;
          replicas[replica.node].draining += replica.state == ReplicaState::kDraining;
        }
      }
    }
  }
  for (const auto& [id, node] : state->nodes) {
    auto* to = response->add_nodes();
    *to = ToWireNode(*state, *node);
    to->set_replicas_serving(replicas[id].serving);
    to->set_replicas_loading(replicas[id].loading);
    to->set_replicas_draining(replicas[id].draining);
  }
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PoolService::CordonNode(grpc::CallbackServerContext* context,
                                                  const v1::CordonNodeRequest* request,
                                                  v1::CordonNodeResponse* response) {
  return SetIntent(loop_, context, *request, NodeIntent::kCordon, response);
}

grpc::ServerUnaryReactor* PoolService::UncordonNode(grpc::CallbackServerContext* context,
                                                    const v1::UncordonNodeRequest* request,
                                                    v1::UncordonNodeResponse* response) {
  return SetIntent(loop_, context, *request, NodeIntent::kUncordon, response);
}

grpc::ServerUnaryReactor* PoolService::DrainNode(grpc::CallbackServerContext* context,
                                                 const v1::DrainNodeRequest* request,
                                                 v1::DrainNodeResponse* response) {
  return SetIntent(loop_, context, *request, NodeIntent::kDrain, response);
}

grpc::ServerUnaryReactor* PoolService::DeleteNode(grpc::CallbackServerContext* context,
                                                  const v1::DeleteNodeRequest* request,
                                                  v1::DeleteNodeResponse* response) {
  return SetIntent(loop_, context, *request, NodeIntent::kDelete, response);
}

grpc::ServerUnaryReactor* PoolService::MoveShard(grpc::CallbackServerContext* context,
                                                 const v1::MoveShardRequest* request,
                                                 v1::MoveShardResponse* response) {
  absl::StatusOr<TableName> table = TableName::Parse(request->name() + "@" + request->version());
  if (!table.ok()) return Finish(context, table.status());
  if (request->to().empty()) {
    return Finish(context, absl::InvalidArgumentError("MoveShard names no node to move to"));
  }
  std::optional<Tier> tier;
  if (request->tier() != v1::TIER_UNSPECIFIED) {
    const absl::StatusOr<Tier> wanted = wire::FromWire(request->tier());
    if (!wanted.ok()) return Finish(context, wanted.status());
    tier = *wanted;
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->MoveShard({CallerOf(request->caller()), *std::move(table), ShardIndex(request->shard()),
                    NodeId{request->from()}, NodeId{request->to()}, request->dry_run(), tier},
                   [this, reactor, response](absl::StatusOr<MoveRecord> move) {
                     if (move.ok()) {
                       *response->mutable_move() = ToWireMove(*loop_->snapshot(), *move);
                     }
                     reactor->Finish(wire::ToGrpc(move.status()));
                   });
  return reactor;
}

grpc::ServerUnaryReactor* PoolService::ListMoves(grpc::CallbackServerContext* context,
                                                 const v1::ListMovesRequest*,
                                                 v1::ListMovesResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  for (const auto& [shard, move] : state->moves) {
    *response->add_moves() = ToWireMove(*state, *move);
  }
  return Finish(context, absl::OkStatus());
}

}  // namespace engram::placement
