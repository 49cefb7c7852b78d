#include "bench/driver/moving_node.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "bench/driver/tier_node.h"
#include "poolserver/arena.h"
#include "poolserver/nvme/nvme_tier.h"

namespace engram::bench {
namespace {

using poolserver::ClientSaid;
using poolserver::ControllerSaid;

constexpr Incarnation kMovingIncarnation{1};
constexpr FencingToken kMovingToken{1};
constexpr poolserver::StreamId kMovingStream{1};
constexpr Duration kMovingPatience = std::chrono::seconds(120);
constexpr auto kMovingPause = std::chrono::milliseconds(5);
constexpr std::uint64_t kRoomBeside = std::uint64_t{512} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<MovingNode>> MovingNode::Start(const TableRecord& table,
                                                              const std::string& directory) {
  std::unique_ptr<MovingNode> node(new MovingNode(table));
  if (absl::Status ok = node->Open(directory); !ok.ok()) return ok;
  return node;
}

MovingNode::~MovingNode() {
  fabric_.reset();
  if (loop_ != nullptr) loop_->Stop();
  if (exposure_ != nullptr) exposure_->Stop();
}

absl::Status MovingNode::Open(const std::string& directory) {
  std::uint64_t bytes = kRoomBeside;
  for (std::uint32_t i = 0; i < layout_.shards(); ++i) bytes += layout_.StoredBytes(ShardIndex(i));
  regions_.resize(layout_.shards());
  poolserver::Arena::Options dram;
  dram.capacity_bytes = bytes;
  tiers_.Add(std::make_unique<poolserver::Arena>(dram));
  poolserver::nvme::NvmeStore::Options nvme;
  nvme.owner = {"bench"};
  nvme.directory = directory;
  nvme.capacity_bytes = bytes;
  auto store = poolserver::nvme::NvmeStore::Open(std::move(nvme));
  if (!store.ok()) return store.status();
  tiers_.Add(std::make_unique<poolserver::nvme::NvmeTier>(*std::move(store)));
  auto stream = fabric::stream::StreamTarget::Open({});
  if (!stream.ok()) return stream.status();
  fabric::stream::StreamTarget* const target = stream->get();
  std::vector<std::unique_ptr<fabric::Target>> targets;
  targets.push_back(*std::move(stream));
  exposure_ = std::make_unique<poolserver::Exposure>(std::move(targets), target);
  poolserver::NodeOptions options;
  options.node = {"bench"};
  options.process_nonce = "bench";
  options.paths = exposure_->paths();
  options.tiers = tiers_.capacity();
  loop_ = std::make_unique<poolserver::NodeLoop>(options, poolserver::Loader::Options(), &tiers_,
                                                 exposure_.get(), &SystemClock::Get(), &random_,
                                                 nullptr, Outlets());
  loop_->Post(poolserver::ControllerConnected{});
  loop_->Post(ControllerSaid{NodeWelcome{kMovingIncarnation, kMovingToken,
                                         std::chrono::milliseconds(100), kMovingPatience}});
  MoveTo(Tier::kDram);
  absl::Status serves = Await([this] { return ServesFrom(Tier::kDram); });
  return serves.ok() ? OpenSessionThere() : serves;
}

absl::Status MovingNode::OpenSessionThere() {
  OpenSession open;
  open.client = "bench";
  open.request_id = "bench";
  open.node = {"bench"};
  open.incarnation = kMovingIncarnation;
  open.tables = {table_.uid};
  loop_->Post(ClientSaid{kMovingStream, std::move(open)});
  return Await([this]() -> absl::StatusOr<bool> {
    if (absl::Status ok = Renew(); !ok.ok()) return ok;
    return std::all_of(regions_.begin(), regions_.end(),
                       [](const fabric::RemoteRegion& one) { return one.length != 0; });
  });
}

poolserver::NodeOutlets MovingNode::Outlets() {
  poolserver::NodeOutlets outlets;
  outlets.to_client = [this](poolserver::StreamId, const NodeMessage& message) {
    MutexLock lock(&mutex_);
    heard_.push_back(message);
  };
  outlets.close_stream = [](poolserver::StreamId) {};
  outlets.to_controller = [this](const NodeToController& message) {
    const auto* beat = std::get_if<NodeHeartbeat>(&message);
    if (beat == nullptr) return;
    loop_->Post(ControllerSaid{HeartbeatSeen{beat->sequence, Epoch(1)}});
    MutexLock lock(&mutex_);
    for (const ReplicaReport& report : beat->changed) {
      if (!report.error.ok()) failed_ = report.error;
      if (report.state == ReplicaState::kServing) serving_[report.shard.shard] = report.tier;
    }
  };
  outlets.exit = [this](const absl::Status& why) {
    MutexLock lock(&mutex_);
    failed_ = why;
  };
  outlets.say = [](const std::string&) {};
  return outlets;
}

void MovingNode::MoveTo(Tier tier) {
  Command command;
  command.id = ++commands_;
  command.incarnation = kMovingIncarnation;
  command.token = kMovingToken;
  auto& load = command.body.emplace<LoadReplicas>();
  load.table = table_;
  load.tier = tier;
  for (std::uint32_t i = 0; i < layout_.shards(); ++i) load.shards.push_back(ShardIndex(i));
  loop_->Post(ControllerSaid{std::move(command)});
}

absl::StatusOr<bool> MovingNode::ServesFrom(Tier tier) {
  MutexLock lock(&mutex_);
  if (!failed_.ok()) return failed_;
  std::size_t there = 0;
  for (const auto& [shard, from] : serving_) there += from == tier;
  return there == layout_.shards();
}

bool MovingNode::HasLeft(Tier tier) const {
  for (const TierCapacity& one : tiers_.capacity()) {
    if (one.tier == tier) return one.allocated_bytes == 0;
  }
  return true;
}

absl::Status MovingNode::Await(const std::function<absl::StatusOr<bool>()>& condition) {
  const Instant deadline = SystemClock::Get().Now() + kMovingPatience;
  while (true) {
    const absl::StatusOr<bool> met = condition();
    if (!met.ok()) return met.status();
    if (*met) return absl::OkStatus();
    if (SystemClock::Get().Now() > deadline)
      return absl::DeadlineExceededError("the node does not serve its table");
    std::this_thread::sleep_for(kMovingPause);
  }
}

absl::Status MovingNode::Renew() {
  std::vector<NodeMessage> heard;
  {
    MutexLock lock(&mutex_);
    heard.swap(heard_);
  }
  for (const NodeMessage& message : heard) {
    absl::Status status;
    if (const auto* opened = std::get_if<SessionOpened>(&message)) status = Connect(*opened);
    if (const auto* update = std::get_if<GrantUpdate>(&message)) status = Apply(*update);
    if (const auto* refused = std::get_if<SessionRefused>(&message)) status = refused->status;
    if (!status.ok()) return status;
  }
  loop_->Post(ClientSaid{kMovingStream, RenewLease{++renewals_, applied_}});
  return absl::OkStatus();
}

absl::Status MovingNode::Connect(const SessionOpened& opened) {
  auto fabric = fabric::stream::StreamFabric::Open({});
  if (!fabric.ok()) return fabric.status();
  fabric_ = *std::move(fabric);
  auto peer = fabric_->AddPeer({opened.paths.at(0), opened.token, {"bench"}, kMovingIncarnation},
                               SystemClock::Get().Now() + kMovingPatience);
  if (!peer.ok()) return peer.status();
  peer_ = *peer;
  return absl::OkStatus();
}

// No read is outstanding: what it withdraws is not read any more.
absl::Status MovingNode::Apply(const GrantUpdate& update) {
  for (const Grant& grant : update.granted) {
    fabric::RemoteRegion& region = regions_.at(grant.shard.shard.value());
    if (region.length != 0) fabric_->Release(region);
    const GrantPath& path = grant.paths.at(0);
    auto imported = fabric_->Import({peer_, path.address, path.length, path.key});
    if (!imported.ok()) return imported.status();
    region = *imported;
  }
  applied_ = update.revision;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ReadPath>> MovingNode::Path(std::uint32_t max_rows) {
  auto queue = fabric_->OpenQueue({std::max(8192u, max_rows), {}});
  if (!queue.ok()) return queue.status();
  return TierReads("moving", layout_, regions_, *std::move(queue), max_rows, 1);
}

}  // namespace engram::bench
