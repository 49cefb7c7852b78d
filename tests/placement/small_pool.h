// A controller on a memory store, driven by a fake clock, with nodes that follow the protocol of
// engram/node_protocol.h and keep no bytes. For the tests of placement/.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "placement/ops/controller.h"
#include "placement/store/memory_store.h"

namespace engram::placement {

// One layer of two columns; shards of 1 MiB hold 3,855 rows of 272 bytes, whole blocks: 3,840.
inline TableSpec SmallSpec(std::uint64_t rows_per_column = 10'000) {
  TableSpec spec;
  spec.columns = {{1, 2, 0, rows_per_column}, {1, 2, 1, rows_per_column}};
  spec.planes = {{"row", DType::kBytes, 264}};
  spec.addressing.function = "test";
  spec.addressing.layers = {1};
  return spec;
}

inline LoadRequest SmallLoad(const std::string& request_id = "r1", std::uint32_t replicas = 1) {
  LoadRequest request;
  request.caller = {"test", "tenant", request_id};
  request.name = {"small", "1"};
  request.source.seed = 7;
  request.options.shard_bytes = kMinShardBytes;
  request.options.replicas = replicas;
  request.spec = SmallSpec();
  return request;
}

// The checksums that every honest node computes for a shard of a source.
inline std::vector<std::uint32_t> CrcsOf(const TableRecord& table, ShardIndex shard) {
  const std::uint64_t rows = ShardLayout(table.spec, table.options).Range(shard).rows;
  std::vector<std::uint32_t> crcs((rows + kBlockRows - 1) / kBlockRows);
  for (std::size_t i = 0; i < crcs.size(); ++i) {
    crcs[i] = static_cast<std::uint32_t>(table.source.seed * 1'000'003 + shard.value() * 1'009 + i);
  }
  return crcs;
}

// One process of a node.
struct FakeNode {
  explicit FakeNode(std::string name, std::uint64_t capacity = std::uint64_t{1} << 30,
                    std::string domain = "", std::string nonce = "1") {
    hello.node = {std::move(name)};
    hello.process_nonce = std::move(nonce);
    hello.endpoint = hello.node.name + ":1";
    hello.failure_domain = std::move(domain);
    hello.tiers = {{Tier::kDram, capacity, 0, 0}};
  }

  std::optional<std::vector<TenantPolicy>> policies;  // as the node was told last
  struct Held {
    TableRecord table;
    ReplicaState state = ReplicaState::kLoading;
    std::optional<Successor> source = std::nullopt;  // as it was commanded
    Tier tier = Tier::kDram;
  };

  void Receive(const ControllerToNode& message) {
    if (const auto* welcome = std::get_if<NodeWelcome>(&message)) {
      welcomed = *welcome;
      hello.incarnation = welcome->incarnation;
    } else if (const auto* refusal = std::get_if<NodeRefused>(&message)) {
      refused = refusal->status;
    } else if (const auto* seen = std::get_if<HeartbeatSeen>(&message)) {
      last_seen = seen->sequence;
    } else if (const auto* said = std::get_if<TenantPolicies>(&message)) {
      policies = said->tenants;
    } else {
      commands.push_back(std::get<Command>(message));
    }
  }

  ReplicaReport Report(const ShardKey& key, bool with_crcs) const {
    const Held& one = held.at(key);
    ReplicaReport report{key, one.tier, one.state, {}, absl::OkStatus()};
    if (with_crcs && one.state == ReplicaState::kServing) {
      report.block_crcs = CrcsOf(one.table, key.shard);
      if (corrupt) report.block_crcs[0] ^= 1;
    }
    return report;
  }

  // Obeys the commands received; `finish` = loads end at once.
  void Obey(bool finish = true) {
    for (const Command& command : std::exchange(commands, {})) {
      EXPECT_EQ(command.incarnation, hello.incarnation);
      EXPECT_EQ(command.token, welcomed->token);
      if (const auto* load = std::get_if<LoadReplicas>(&command.body)) {
        for (ShardIndex shard : load->shards) {
          const ShardKey key{load->table.uid, shard};
          if (!load_error.ok() && held.contains(key)) {
            changed.push_back(Report(key, true));
            changed.back().error = load_error;
            continue;
          }
          const bool full = held.size() >= most_held && !held.contains(key);
          if (!load_error.ok() || full) {
            changed.push_back({key,
                               Tier::kDram,
                               ReplicaState::kRetired,
                               {},
                               full ? absl::ResourceExhaustedError("arena is full") : load_error});
            continue;
          }
          Held& one = held[key];
          one.table = load->table;
          one.source = load->source;
          one.tier = load->tier;
          if (finish) one.state = ReplicaState::kServing;
          changed.push_back(Report(key, true));
        }
        done.push_back({command.id, absl::OkStatus(), {}});
      } else if (const auto* retire = std::get_if<RetireReplicas>(&command.body)) {
        for (ShardIndex shard : retire->shards) {
          successors[{retire->table, shard}] = retire->successors;
          held.erase({retire->table, shard});
          changed.push_back(
              {{retire->table, shard}, Tier::kDram, ReplicaState::kRetired, {}, absl::OkStatus()});
        }
        done.push_back({command.id, absl::OkStatus(), {}});
      } else {
        CommandDone answer{command.id, inspect_error, {}};
        if (inspect_error.ok()) answer.inspection.push_back({SmallSpec(), {}, 1});
        done.push_back(answer);
      }
    }
  }
  void FinishLoads() {
    for (auto& [key, one] : held) {
      if (one.state == ReplicaState::kServing) continue;
      one.state = ReplicaState::kServing;
      changed.push_back(Report(key, true));
    }
  }

  NodeHello hello;
  std::optional<LinkId> link;
  std::optional<NodeWelcome> welcomed;
  absl::Status refused;
  std::uint64_t last_seen = 0;
  std::uint64_t sequence = 0;
  std::vector<Command> commands;
  std::vector<CommandDone> done;
  std::vector<ReplicaReport> changed;
  std::map<ShardKey, Held> held;
  std::map<ShardKey, std::vector<Successor>> successors;  // of what was retired
  bool corrupt = false;
  absl::Status load_error;
  std::size_t most_held = ~std::size_t{0};  // beyond it has no room, whatever it says
  absl::Status inspect_error;
};

class SmallPool {
 public:
  explicit SmallPool(std::uint64_t seed = 1, ControllerOptions options = {})
      : options_(std::move(options)), random_(seed) {
    Restart();
  }

  // The controller dies and another opens the same store; every link is gone.
  void Restart() {
    for (auto& [link, node] : by_link_) node->link.reset();
    by_link_.clear();
    controller_.reset();
    auto opened = Controller::Open(clock_.Now(), options_, &store_, &random_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    controller_ = *std::move(opened);
  }

  void Feed(Event event) {
    for (Action& action : controller_->OnEvent(clock_.Now(), std::move(event))) Take(action);
  }

  void Join(FakeNode& node) {
    node.commands.clear();  // of an earlier stream
    node.done.clear();
    node.hello.replicas.clear();
    for (const auto& [key, held] : node.held)
      node.hello.replicas.push_back(node.Report(key, false));
    node.link = LinkId(++last_id_);
    by_link_[*node.link] = &node;
    Feed(NodeSaid{*node.link, node.hello});
  }
  void Break(FakeNode& node) {
    const LinkId link = *node.link;
    node.link.reset();
    by_link_.erase(link);
    Feed(LinkBroke{link});
  }
  // The node's done commands, then a heartbeat with what changed.
  void Beat(FakeNode& node) {
    if (!node.link) return;
    for (CommandDone& done : std::exchange(node.done, {})) Feed(NodeSaid{*node.link, done});
    NodeHeartbeat beat{node.hello.incarnation,
                       node.welcomed ? node.welcomed->token : FencingToken(),
                       node.hello.tiers,
                       std::exchange(node.changed, {}),
                       ++node.sequence,
                       0,
                       0};
    Feed(NodeSaid{*node.link, beat});
  }
  // Some rounds in which every node obeys and speaks and the clock moves by `each`.
  void Settle(std::vector<FakeNode*> nodes, int rounds = 6,
              Duration each = std::chrono::milliseconds(500)) {
    for (int round = 0; round < rounds; ++round) {
      for (FakeNode* node : nodes) node->Obey();
      for (FakeNode* node : nodes) Beat(*node);
      clock_.Advance(each);
      Feed(Tick{});
    }
  }
  std::optional<absl::StatusOr<TableRecord>> Load(LoadRequest request) {
    const CallId call(++last_id_);
    Feed(LoadAsked{call, std::move(request)});
    return TakeAnswer(call);
  }
  std::optional<absl::StatusOr<TableRecord>> Delete(const TableName& name,
                                                    const std::string& request_id = "d1") {
    const CallId call(++last_id_);
    Feed(DeleteAsked{call, {{"test", "tenant", request_id}, name, false}});
    return TakeAnswer(call);
  }
  std::optional<absl::StatusOr<TableRecord>> DeleteForced(const TableName& name) {
    const CallId call(++last_id_);
    Feed(DeleteAsked{call, {{"test", "tenant", ""}, name, false, true}});
    return TakeAnswer(call);
  }
  std::optional<absl::StatusOr<TableRecord>> Rollback(const TableName& alias) {
    const CallId call(++last_id_);
    Feed(AliasAsked{call, {{"test", "tenant", ""}, alias, "", false, true}});
    return TakeAnswer(call);
  }
  std::optional<absl::StatusOr<TableRecord>> SetAlias(const TableName& alias,
                                                      const std::string& version,
                                                      bool dry_run = false) {
    const CallId call(++last_id_);
    Feed(AliasAsked{call, {{"test", "tenant", ""}, alias, version, dry_run}});
    return TakeAnswer(call);
  }
  absl::StatusOr<IntentReply> SetIntent(const FakeNode& node, NodeIntent intent,
                                        bool dry_run = false) {
    Feed(IntentAsked{CallId(++last_id_), {{"test", "", ""}, node.hello.node, intent, dry_run}});
    return last_intent;
  }
  absl::StatusOr<MoveRecord> Move(std::uint32_t shard, const std::string& from,
                                  const std::string& to, bool dry_run = false,
                                  std::optional<Tier> tier = std::nullopt) {
    Feed(MoveAsked{
        CallId(++last_id_),
        {{"test", "", ""}, {"small", "1"}, ShardIndex(shard), {from}, {to}, dry_run, tier}});
    return last_move;
  }
  // Nodes with a replica of the shard in this state.
  std::vector<std::string> Holders(std::uint32_t shard,
                                   ReplicaState state = ReplicaState::kServing) const {
    std::vector<std::string> names;
    for (const MapReplica& one : Find({"small", "1"})->Replicas(ShardIndex(shard))) {
      if (one.state == state) names.push_back(one.node.name);
    }
    return names;
  }
  std::optional<absl::StatusOr<TableRecord>> TakeAnswer(CallId call) {
    const auto it = answers.find(call);
    if (it == answers.end()) return std::nullopt;
    auto answer = std::move(it->second);
    answers.erase(it);
    return answer;
  }
  CallId last_call() const { return CallId(last_id_); }

  const TableEntry* Find(const TableName& name) const {
    return controller_->state().FindTable(name);
  }
  TableState StateOf(const TableName& name) const { return Find(name)->record.state; }
  Controller& controller() { return *controller_; }
  const ClusterState& state() const { return controller_->state(); }
  MemoryStore& store() { return store_; }
  FakeClock& clock() { return clock_; }
  // What a reader that follows the deltas knows.
  const ShardMap& map() const { return *map_; }

  std::map<CallId, absl::StatusOr<TableRecord>> answers;
  absl::StatusOr<TenantRecord> SetTenant(TenantRequest request) {
    Feed(TenantAsked{CallId(++last_id_), std::move(request)});
    return last_tenant;
  }
  absl::StatusOr<TenantRecord> last_tenant = absl::UnknownError("nothing was answered");
  absl::StatusOr<IntentReply> last_intent = absl::UnknownError("nothing was answered");
  absl::StatusOr<MoveRecord> last_move = absl::UnknownError("nothing was answered");
  std::map<LinkId, absl::Status> closed;
  std::vector<std::string> said;
  bool deposed = false;

 private:
  void Take(Action& action) {
    if (auto* send = std::get_if<SendToNode>(&action)) {
      const auto it = by_link_.find(send->link);
      if (it != by_link_.end()) it->second->Receive(send->message);
    } else if (auto* close = std::get_if<CloseLink>(&action)) {
      closed[close->link] = close->why;
      const auto it = by_link_.find(close->link);
      if (it == by_link_.end()) return;
      it->second->link.reset();
      by_link_.erase(it);
    } else if (auto* answer = std::get_if<Answer>(&action)) {
      answers.emplace(answer->call, std::move(answer->table));
    } else if (auto* intent = std::get_if<IntentAnswer>(&action)) {
      last_intent = std::move(intent->node);
    } else if (auto* move = std::get_if<MoveAnswer>(&action)) {
      last_move = std::move(move->move);
    } else if (auto* tenant = std::get_if<TenantAnswer>(&action)) {
      last_tenant = std::move(tenant->tenant);
    } else if (auto* changed = std::get_if<MapChanged>(&action)) {
      auto next = map_->Apply(*changed->delta);
      if (!next.ok()) next = map_->Apply(controller_->state().Snapshot());
      map_ = *next;
    } else if (auto* say = std::get_if<Say>(&action)) {
      said.push_back(say->text);
    } else {
      deposed = true;
    }
  }

  const ControllerOptions options_;
  FakeClock clock_;
  MemoryStore store_;
  SeededRandom random_;
  std::unique_ptr<Controller> controller_;
  std::map<LinkId, FakeNode*> by_link_;
  std::shared_ptr<const ShardMap> map_ = ShardMap::Empty();
  std::uint64_t last_id_ = 0;
};

}  // namespace engram::placement
