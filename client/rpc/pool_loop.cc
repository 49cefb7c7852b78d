// PoolCore, on its loop: the map follower, the sessions and the route keeper, wired together.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rpc/pool_core.h"
#include "proto/convert.h"
#include "proto/grpc_server.h"

namespace engram::client {
namespace {

// Whoever closes the pool waits for those that are not done.
template <class Stream>
void EndLater(std::shared_ptr<Stream> stream, std::vector<std::shared_ptr<Stream>>* ending) {
  stream->Cancel();
  std::erase_if(*ending, [](const auto& old) { return old->IsDone(); });
  ending->push_back(std::move(stream));
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

std::optional<Instant> PoolCore::Tick(Instant now) {
  if (const auto timer = follower_.NextTimer(); timer && *timer <= now && !leaving_)
    FeedMap(MapFollower::Timer{});
  for (auto& [node, entry] : nodes_) {
    const auto timer = entry.session->NextTimer();
    if (timer && *timer <= now) pending_.emplace_back(node, session::Timer{});
  }
  Pump();
  std::optional<Instant> next = leaving_ ? std::nullopt : follower_.NextTimer();
  for (auto& [node, entry] : nodes_) {
    const auto timer = entry.session->NextTimer();
    if (timer && (!next || *timer < *next)) next = timer;
  }
  return next;
}

// ---- the map ----

void PoolCore::FeedMap(const MapFollower::Event& event) {
  for (MapFollower::Action& action : follower_.OnEvent(SystemClock::Get().Now(), event)) {
    if (const auto* subscribe = std::get_if<MapFollower::Subscribe>(&action)) {
      Subscribe(*subscribe);
    } else {
      UseMap(std::get<MapFollower::UseMap>(action).map);
    }
  }
  MutexLock lock(&mutex_);
  connected_ = follower_.connected();
}

void PoolCore::Subscribe(const MapFollower::Subscribe& subscribe) {
  if (leaving_) return;
  if (map_stream_ != nullptr) EndLater(std::move(map_stream_), &ending_maps_);
  v1::WatchMapRequest request;
  request.mutable_caller()->set_client(options_.client_name);
  request.mutable_caller()->set_tenant(options_.tenant);
  request.set_from_epoch(subscribe.from.value());
  MapStream::Outlets outlets;
  outlets.delta = [this, id = subscribe.subscription](MapDelta delta) {
    FeedMap(MapFollower::DeltaArrived{id, std::move(delta)});
    Pump();
  };
  const wire::Controllers::One controller = controllers_->Current();
  outlets.lost = [this, id = subscribe.subscription, controller](const absl::Status& why) {
    controllers_->Failed(controller, why);  // another controller may have taken over
    FeedMap(MapFollower::StreamLost{id});
  };
  map_stream_ = MapStream::Open(loop_, controller.channel, request, std::move(outlets));
}

void PoolCore::UseMap(const std::shared_ptr<const ShardMap>& map) {
  {
    MutexLock lock(&mutex_);
    map_ = map;
  }
  for (auto& [board, table] : tables_) {
    WantNodes(table);
    table.on_map(*map);
  }
}

void PoolCore::WantNodes(OpenTable& table) {
  const std::shared_ptr<const ShardMap> map = follower_.map();
  table.nodes = map->ReadableNodes(table.uid);
  for (const NodeId& id : table.nodes) {
    const MapNode* node = map->FindNode(id);
    if (node != nullptr && !node->endpoint.empty())
      WantSession(id, node->incarnation, node->endpoint, table.uid);
  }
}

void PoolCore::WantSession(const NodeId& node, Incarnation incarnation, const std::string& endpoint,
                           const TableUid& table) {
  if (leaving_) return;
  NodeEntry& entry = nodes_[node];
  if (entry.session == nullptr) {
    ClientSessionOptions options;
    options.client = options_.client_name;
    options.tenant = options_.tenant;
    options.node = node;
    options.incarnation = incarnation;
    options.endpoint = endpoint;
    options.tables = {table};
    entry.session = std::make_unique<ClientSession>(options, &quiescence_, &random_);
    entry.endpoint = endpoint;
    entry.tables = {table};
    pending_.emplace_back(node, session::Start{});
    return;
  }
  if (entry.tables.insert(table).second) pending_.emplace_back(node, session::WantTable{table});
  // Incarnations only grow: what a withdrawal says of a successor may be older than the map.
  const bool newer = incarnation > entry.session->incarnation();
  const bool elsewhere = incarnation == entry.session->incarnation() && endpoint != entry.endpoint;
  if (newer || elsewhere) {
    entry.endpoint = endpoint;
    pending_.emplace_back(node, session::NodeMoved{incarnation, endpoint});
  }
}

// ---- the sessions ----

void PoolCore::Feed(const NodeId& node, session::Event event) {
  pending_.emplace_back(node, std::move(event));
  Pump();
}

void PoolCore::Pump() {
  while (!pending_.empty()) {
    auto [node, event] = std::move(pending_.front());
    pending_.pop_front();
    const auto found = nodes_.find(node);
    if (found == nodes_.end()) continue;
    auto actions = found->second.session->OnEvent(SystemClock::Get().Now(), std::move(event));
    for (session::Action& action : actions) Carry(node, action);
    if (pending_.empty()) CheckSuccessors();
  }
  UpdateIncomplete();
  std::vector<ReachedNode> reached = ListNodes();
  if (options_.log) LogChanges(Nodes(), reached);
  MutexLock lock(&mutex_);
  reached_ = std::move(reached);
}

void PoolCore::LogChanges(const std::vector<ReachedNode>& before,
                          const std::vector<ReachedNode>& now) const {
  for (const ReachedNode& node : now) {
    const auto old = std::find_if(before.begin(), before.end(), [&](const ReachedNode& other) {
      return other.node == node.node;
    });
    const bool was_open = old != before.end() && old->open;
    if (node.open == was_open) continue;
    const std::string who = absl::StrCat("node ", node.node.name, " at ", node.endpoint);
    if (node.open) {
      options_.log(2, absl::StrCat(who, ": read session open"));
    } else if (!leaving_) {
      options_.log(1, absl::StrCat(who, ": read session lost: ", node.last_error.message()));
    }
  }
}

void PoolCore::Carry(const NodeId& node, session::Action& action) {
  NodeEntry& entry = nodes_[node];
  const auto answer = [&](session::Event event) { pending_.emplace_back(node, std::move(event)); };
  std::visit(
      Overloaded{
          [&](session::OpenStream& open) { OpenStream(node, open); },
          [&](session::SendToNode& send) {
            if (entry.stream != nullptr) entry.stream->Send(send.message);
          },
          [&](session::CloseStream&) {
            if (entry.stream != nullptr) entry.stream->Close();
          },
          [&](session::SessionStarted& started) {
            keeper_->Begin(node, started.opened, started.lease,
                           SystemClock::Get().Now() + options_.reach_timeout);
          },
          [&](session::ReachSuccessors& reach) {
            Reaching waiting{node, reach.session, reach.revision, {}};
            for (const Successor& successor : reach.successors) {
              waiting.successors.push_back(successor.node);
              for (const TableUid& table : entry.tables)
                WantSession(successor.node, successor.incarnation, successor.endpoint, table);
            }
            reaching_.push_back(std::move(waiting));
          },
          [&](session::StreamCut& cut) {
            keeper_->Cut(node);
            if (options_.log && !leaving_)
              options_.log(1, absl::StrCat("node ", node.name, " at ", entry.endpoint,
                                           ": the read session's stream broke, reads go on until "
                                           "its lease ends: ",
                                           cut.why.message()));
          },
          [&](session::ChangeRoutes& change) {
            keeper_->Reach(node, change.paths, SystemClock::Get().Now() + options_.reach_timeout);
            const RouteVersion version =
                keeper_->Change(node, change.revision, change.granted, change.withdrawn);
            answer(session::RoutesChanged{change.session, change.revision, version});
          },
          [&](session::ReleaseRegions& release) {
            keeper_->Release(node, release.revision);
            answer(session::RegionsReleased{release.session, release.revision});
          },
          [&](session::VoidRoutes& voided) {
            answer(session::RoutesVoided{voided.session, keeper_->Void(node)});
          },
          [&](session::ReleaseAll& release) {
            keeper_->ReleaseAll(node);
            answer(session::AllReleased{release.session});
          },
          [&](session::Stopped&) {},
      },
      action);
}

void PoolCore::OpenStream(const NodeId& node, const session::OpenStream& open) {
  if (leaving_) return;
  NodeEntry& entry = nodes_[node];
  if (entry.stream != nullptr) EndLater(std::move(entry.stream), &ending_sessions_);
  entry.endpoint = open.endpoint;
  SessionStream::Outlets outlets;
  outlets.heard = [this, node, opening = open.session](NodeMessage message) {
    Feed(node, session::NodeSaid{opening, std::move(message)});
  };
  outlets.lost = [this, node, opening = open.session](absl::Status why) {
    Feed(node, session::StreamLost{opening, std::move(why)});
  };
  entry.stream = SessionStream::Open(
      loop_, open.endpoint, wire::Connect(open.endpoint, credentials_, {Role::kNode, node.name}),
      std::move(outlets));
}

// A session waits for its successors until they are granted, or cannot be.
void PoolCore::CheckSuccessors() {
  std::erase_if(reaching_, [&](const Reaching& waiting) {
    const bool settled = std::all_of(
        waiting.successors.begin(), waiting.successors.end(), [&](const NodeId& successor) {
          const auto found = nodes_.find(successor);
          return found == nodes_.end() || IsReadable(successor) ||
                 found->second.session->state() == ClientSession::State::kBackoff ||
                 found->second.session->state() == ClientSession::State::kStopped;
        });
    if (settled)
      pending_.emplace_back(waiting.node,
                            session::SuccessorsReached{waiting.opening, waiting.revision});
    return settled;
  });
}

bool PoolCore::IsReadable(const NodeId& node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && found->second.session->state() == ClientSession::State::kOpen &&
         keeper_->Granted(node);
}

// A node that answers is there, even if the map does not know yet: its grants are about to come.
bool PoolCore::Answers(const NodeId& node) const {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return false;
  const ClientSession& session = *found->second.session;
  return session.state() == ClientSession::State::kVoiding ||
         (session.state() == ClientSession::State::kOpen && !session.cut());
}

// Readers wait for shards of nodes that are there but not open yet, or not any more; they fail at
// once when the map says that a node is gone.
void PoolCore::UpdateIncomplete() {
  const std::shared_ptr<const ShardMap> map = follower_.map();
  for (const auto& [board, table] : tables_) {
    const bool incomplete =
        map->epoch().value() == 0 ||
        std::any_of(table.nodes.begin(), table.nodes.end(), [&](const NodeId& id) {
          const MapNode* node = map->FindNode(id);
          return node != nullptr && (node->alive || Answers(id)) &&
                 (!IsReadable(id) || nodes_.at(id).session->cut());
        });
    keeper_->SetIncomplete(board, incomplete);
  }
}

std::vector<ReachedNode> PoolCore::ListNodes() const {
  std::vector<ReachedNode> out;
  for (const auto& [node, entry] : nodes_) {
    ReachedNode reached;
    reached.node = node;
    reached.incarnation = entry.session->incarnation();
    reached.endpoint = entry.endpoint;
    reached.open = IsReadable(node);
    reached.cut = entry.session->cut();
    reached.last_error = entry.session->last_error();
    reached.fabrics = keeper_->Fabrics(node);
    reached.unreachable = keeper_->Unreachable(node);
    out.push_back(std::move(reached));
  }
  return out;
}

}  // namespace engram::client
