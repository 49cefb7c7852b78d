#include "placement/rpc/pool_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/rpc/calls.h"
#include "placement/rpc/map_watcher.h"
#include "placement/rpc/streams.h"
#include "proto/convert.h"

namespace engram::placement {
namespace {

constexpr std::size_t kTokenPieceEntries = 256 << 10;  // 1 MiB

absl::StatusOr<TableName> NameOf(const std::string& name, const std::string& version) {
  return TableName::Parse(name + "@" + version);
}

absl::StatusOr<LoadRequest> LoadFromWire(const v1::LoadTableRequest& request) {
  LoadRequest out;
  out.caller = CallerOf(request.caller());
  auto name = NameOf(request.name(), request.version());
  if (!name.ok()) return name.status();
  out.name = *std::move(name);
  auto source = wire::FromWire(request.source());
  if (!source.ok()) return source.status();
  out.source = *std::move(source);
  auto options = wire::FromWire(request.options());
  if (!options.ok()) return options.status();
  out.options = *options;
  if (request.has_spec()) {
    auto spec = wire::FromWire(request.spec());
    if (!spec.ok()) return spec.status();
    out.spec = *std::move(spec);
  }
  auto map = wire::TokenMapFromWire(request.token_map());
  if (!map.ok()) return map.status();
  out.token_map = *std::move(map);
  out.dry_run = request.dry_run();
  return out;
}

absl::Status UnknownTable(const TableName& name) {
  return absl::NotFoundError(absl::StrCat(
      "table ", name.Full(), " is unknown; `engramctl get tables` lists those there are"));
}

// Also finds what an alias names, and a table that is being deleted, when there is no other.
const TableEntry* FindAny(const ClusterState& state, const TableName& name) {
  if (const TableEntry* table = state.FindTable(name)) return table;
  if (const TableEntry* table = state.FindAlias(name)) return table;
  for (const auto& [uid, table] : state.tables) {
    if (table->record.name == name) return table.get();
  }
  return nullptr;
}

// GetTableResponse and ListTablesResponse::Entry.
template <class Message>
void Describe(const ClusterState& state, const TableEntry& table, Message* to) {
  const Served served = state.ServedOf(table);
  *to->mutable_table() = wire::ToWire(table.record);
  to->set_shards_serving(served.shards);
  to->set_shards_total(table.layout->shards());
  to->set_copies_missing(served.copies_missing);
  const auto note = state.table_notes.find(table.record.uid);
  if (served.copies_missing > 0 && note != state.table_notes.end()) to->set_note(note->second);
}

v1::ListShardsResponse ToWireShards(const TableEntry& table, std::size_t chunk) {
  v1::ListShardsResponse out;
  const MapChunk& map = table.chunks[chunk]->map;
  for (std::size_t i = 0; i < map.shards.size(); ++i) {
    const ShardIndex shard(static_cast<std::uint32_t>(chunk * kChunkShards + i));
    const ShardRange range = table.layout->Range(shard);
    auto* to = out.add_shards();
    to->set_table(wire::ToWire(table.record.uid));
    to->set_table_name(table.record.name.Full());
    to->set_shard(shard.value());
    to->set_first_row(range.first.value());
    to->set_rows(range.rows);
    to->set_stored_bytes(table.layout->StoredBytes(shard));
    to->set_column(range.column);
    for (const MapReplica& replica : map.shards[i]) {
      auto* one = to->add_replicas();
      one->set_node(replica.node.name);
      one->set_tier(wire::ToWire(replica.tier));
      one->set_state(wire::ToWire(replica.state));
    }
  }
  return out;
}

template <class Message>
PieceStream<Message>* Failed(const absl::Status& why) {
  return new PieceStream<Message>(
      [why]() -> absl::StatusOr<std::optional<Message>> { return why; });
}

}  // namespace

grpc::ServerUnaryReactor* PoolService::LoadTable(grpc::CallbackServerContext* context,
                                                 const v1::LoadTableRequest* request,
                                                 v1::LoadTableResponse* response) {
  absl::StatusOr<LoadRequest> load = LoadFromWire(*request);
  if (!load.ok()) return Finish(context, load.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Load(*std::move(load), [reactor, response](absl::StatusOr<TableRecord> table) {
    if (table.ok()) *response->mutable_table() = wire::ToWire(*table);
    reactor->Finish(wire::ToGrpc(table.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* PoolService::DeleteTable(grpc::CallbackServerContext* context,
                                                   const v1::DeleteTableRequest* request,
                                                   v1::DeleteTableResponse* response) {
  absl::StatusOr<TableName> name = NameOf(request->name(), request->version());
  if (!name.ok()) return Finish(context, name.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->Delete(
      {CallerOf(request->caller()), *std::move(name), request->dry_run(), request->force()},
      [reactor, response](absl::StatusOr<TableRecord> table) {
        if (table.ok()) *response->mutable_table() = wire::ToWire(*table);
        reactor->Finish(wire::ToGrpc(table.status()));
      });
  return reactor;
}

grpc::ServerUnaryReactor* PoolService::SetAlias(grpc::CallbackServerContext* context,
                                                const v1::SetAliasRequest* request,
                                                v1::SetAliasResponse* response) {
  absl::StatusOr<TableName> alias = NameOf(request->name(), request->alias());
  if (!alias.ok()) return Finish(context, alias.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_->SetAlias({CallerOf(request->caller()), *std::move(alias), request->version(),
                   request->dry_run(), request->rollback()},
                  [reactor, response](absl::StatusOr<TableRecord> table) {
                    if (table.ok()) *response->mutable_table() = wire::ToWire(*table);
                    reactor->Finish(wire::ToGrpc(table.status()));
                  });
  return reactor;
}

grpc::ServerUnaryReactor* PoolService::GetTable(grpc::CallbackServerContext* context,
                                                const v1::GetTableRequest* request,
                                                v1::GetTableResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  absl::StatusOr<TableName> name = NameOf(request->name(), request->version());
  if (!name.ok()) return Finish(context, name.status());
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  const TableEntry* table = FindAny(*state, *name);
  const std::optional<std::string> only = ClientTenant(*context);
  if (table == nullptr || (only && !state->MayRead(*only, table->record))) {
    return Finish(context, UnknownTable(*name));
  }
  Describe(*state, *table, response);
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PoolService::ListTables(grpc::CallbackServerContext* context,
                                                  const v1::ListTablesRequest*,
                                                  v1::ListTablesResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  std::map<std::pair<TableName, TableUid>, const TableEntry*> sorted;
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  const std::optional<std::string> only = ClientTenant(*context);
  for (const auto& [uid, table] : state->tables) {
    if (only && !state->MayRead(*only, table->record)) continue;
    sorted[{table->record.name, uid}] = table.get();
  }
  for (const auto& [key, table] : sorted) Describe(*state, *table, response->add_tables());
  return Finish(context, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::ListShardsResponse>* PoolService::ListShards(
    grpc::CallbackServerContext*, const v1::ListShardsRequest* request) {
  using Message = v1::ListShardsResponse;
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Failed<Message>(refused);
  std::vector<std::pair<std::shared_ptr<const TableEntry>, std::size_t>> pieces;
  std::optional<TableName> wanted;
  if (!request->name().empty()) {
    absl::StatusOr<TableName> name = NameOf(request->name(), request->version());
    if (!name.ok()) return Failed<Message>(name.status());
    wanted = *std::move(name);
  }
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  if (const TableEntry* named = wanted ? state->FindAlias(*wanted) : nullptr) {
    wanted = named->record.name;
  }
  bool found = false;
  for (const auto& [uid, table] : state->tables) {
    if (wanted && table->record.name != *wanted) continue;
    found = true;
    for (std::size_t chunk = 0; chunk < table->chunks.size(); ++chunk) {
      pieces.emplace_back(table, chunk);
    }
  }
  if (wanted && !found) return Failed<Message>(UnknownTable(*wanted));
  return new PieceStream<Message>(
      [pieces = std::move(pieces),
       at = std::size_t{0}]() mutable -> absl::StatusOr<std::optional<Message>> {
        if (at == pieces.size()) return std::optional<Message>();
        const auto& [table, chunk] = pieces[at++];
        return std::optional<Message>(ToWireShards(*table, chunk));
      });
}

grpc::ServerWriteReactor<v1::GetTokenMapResponse>* PoolService::GetTokenMap(
    grpc::CallbackServerContext*, const v1::GetTokenMapRequest* request) {
  using Message = v1::GetTokenMapResponse;
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Failed<Message>(refused);
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  const auto it = state->token_maps.find(request->digest());
  if (it == state->token_maps.end()) {
    return Failed<Message>(absl::NotFoundError(
        absl::StrCat("token map ", request->digest(), " is unknown; no table here uses it")));
  }
  return new PieceStream<Message>(
      [map = it->second, at = std::size_t{0}]() mutable -> absl::StatusOr<std::optional<Message>> {
        if (at >= map->size()) return std::optional<Message>();
        const std::size_t end = std::min(map->size(), at + kTokenPieceEntries);
        const TokenMap part(map->begin() + static_cast<std::ptrdiff_t>(at),
                            map->begin() + static_cast<std::ptrdiff_t>(end));
        at = end;
        Message piece;
        piece.set_piece(wire::ToWire(part));
        return std::optional<Message>(std::move(piece));
      });
}

grpc::ServerWriteReactor<v1::WatchMapResponse>* PoolService::WatchMap(
    grpc::CallbackServerContext* context, const v1::WatchMapRequest* request) {
  const auto watcher = std::make_shared<MapWatcher>(this, loop_, Epoch(request->from_epoch()),
                                                    wire::CallerIdentity(*context));
  absl::Status refused;
  {
    MutexLock lock(&mutex_);
    watchers_[watcher.get()] = watcher;
    if (closed_) refused = absl::UnavailableError("the controller is stopping");
  }
  // Asked once the watcher can be found: whoever steps down after that ends it.
  if (refused.ok()) refused = loop_->Refusal();
  if (!refused.ok()) {
    watcher->Close(wire::ToGrpc(refused));
  } else {
    watcher->Advance();
  }
  return watcher.get();
}

grpc::ServerUnaryReactor* PoolService::GetPoolInfo(grpc::CallbackServerContext* context,
                                                   const v1::GetPoolInfoRequest*,
                                                   v1::GetPoolInfoResponse* response) {
  if (absl::Status refused = loop_->Refusal(); !refused.ok()) return Finish(context, refused);
  const std::shared_ptr<const ClusterState> state = loop_->snapshot();
  response->set_version(options_.version);
  response->set_epoch(state->epoch.value());
  response->set_fencing_token(state->token.value());
  std::uint32_t alive = 0;
  for (const auto& [id, node] : state->nodes) alive += node->alive;
  response->set_nodes_alive(alive);
  response->set_nodes_total(static_cast<std::uint32_t>(state->nodes.size()));
  response->set_state_store(loop_->store_name());
  return Finish(context, absl::OkStatus());
}

void PoolService::MapChanged() {
  std::vector<std::shared_ptr<MapWatcher>> all;
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, watcher] : watchers_) all.push_back(watcher);
  }
  for (const auto& watcher : all) watcher->Advance();
}

void PoolService::CloseAll() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  EndAll(absl::UnavailableError("the controller is stopping"));
}

void PoolService::EndAll(const absl::Status& why) {
  std::vector<std::shared_ptr<MapWatcher>> all;
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, watcher] : watchers_) all.push_back(watcher);
  }
  for (const auto& watcher : all) watcher->Close(wire::ToGrpc(why));
}

void PoolService::Forget(MapWatcher* watcher) {
  std::shared_ptr<MapWatcher> last;  // destroyed after the lock
  MutexLock lock(&mutex_);
  const auto it = watchers_.find(watcher);
  if (it == watchers_.end()) return;
  last = std::move(it->second);
  watchers_.erase(it);
}

}  // namespace engram::placement
