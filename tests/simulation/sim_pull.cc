#include "tests/simulation/sim_pull.h"

#include "absl/strings/str_cat.h"
#include "tests/simulation/sim_node.h"

namespace engram::simulation {

using namespace std::chrono_literals;  // NOLINT: durations of a scenario

namespace {

poolserver::PullSession::Options SessionOptions(Cluster* cluster, const Process* process,
                                                const TableUid& table, const Successor& from) {
  poolserver::PullSession::Options options;
  options.client = process->name();
  options.request_id = absl::StrCat("pull-", cluster->world->random().Next());
  options.node = from.node;
  options.incarnation = from.incarnation;
  options.table = table;
  options.open_timeout = 2s;
  return options;
}

}  // namespace

SimPull::SimPull(Cluster* cluster, Process* process, const TableRecord& table, ShardIndex shard,
                 const Successor& from, std::byte* out, Ended ended)
    : cluster_(cluster),
      process_(process),
      table_(table),
      layout_(table.spec, table.options),
      key_{table.uid, shard},
      from_(from),
      out_(out),
      ended_(std::move(ended)),
      session_(SessionOptions(cluster, process, table.uid, from), process->Now()) {}

SimPull::~SimPull() = default;

void SimPull::Start() {
  const auto node = cluster_->by_endpoint.find(from_.endpoint);
  auto accepted =
      node == cluster_->by_endpoint.end()
          ? std::nullopt
          : node->second->Accept(process_, [self = weak_from_this()](const NodeMessage& message) {
              const auto pull = self.lock();
              if (pull == nullptr || pull->over_) return;
              pull->session_.Hear(pull->process_->Now(), message);
              pull->Advance();
            });
  if (!accepted) {
    process_->After(5ms, [self = shared_from_this()] {
      self->End(absl::UnavailableError("nobody listens there"));
    });
    return;
  }
  node_ = node->second;
  stream_ = accepted->stream;
  stream_id_ = accepted->id.value();
  stream_->OnLost(process_, [self = weak_from_this()] {
    const auto pull = self.lock();
    if (pull == nullptr || pull->over_) return;
    pull->session_.Lost(absl::UnavailableError("the stream broke"));
    pull->Advance();
  });
  Flush();
  Tick();
}

void SimPull::Tick() {
  process_->After(50ms, [self = weak_from_this()] {
    const auto pull = self.lock();
    if (pull == nullptr || pull->over_) return;
    pull->session_.Timer(pull->process_->Now());
    pull->Advance();
    pull->Tick();
  });
}

void SimPull::Say(const ClientMessage& message) {
  if (!stream_) return;
  stream_->Send(process_, [node = node_, id = stream_id_, message] {
    node->Hear(poolserver::StreamId(id), message);
  });
}

void SimPull::Flush() {
  for (const ClientMessage& message : session_.TakeMessages()) Say(message);
}

void SimPull::Connect() {
  const SessionOpened& opened = *session_.opened();
  fabric_ = std::make_unique<SimFabric>(
      FabricKind::kOfi, process_, &cluster_->machines,
      [self = weak_from_this()] {
        const auto pull = self.lock();
        if (pull == nullptr) return;
        pull->process_->After(0ms, [self] {
          if (const auto later = self.lock(); later != nullptr && !later->over_) later->Advance();
        });
      },
      SimFabric::Broken{});
  const auto peer =
      fabric_->AddPeer({opened.paths.at(1), opened.token, opened.node, opened.incarnation}, {});
  if (!peer.ok()) return End(peer.status());
  peer_ = *peer;
  queue_ = *fabric_->OpenQueue({});
  deadline_ = process_->Now() + 4s;
}

void SimPull::Advance() {
  if (over_) return;
  if (!session_.status().ok()) return End(session_.status());
  if (!session_.opened()) return Flush();
  if (!peer_) Connect();
  if (over_) return;
  if (!region_) {
    const auto grant = session_.StartRead(process_->Now(), key_);
    if (grant) {
      const GrantPath& path = grant->paths.at(1);
      region_ = *fabric_->Import({*peer_, path.address, path.length, path.key});
      const ShardRange range = layout_.Range(key_.shard);
      ops_ = poolserver::PullOps(layout_, key_.shard, {range.first, range.rows, out_, nullptr},
                                 *region_);
    }
  }
  posted_ += queue_->Submit(std::span(ops_).subspan(posted_));
  fabric::ReadCompletion done[16];
  while (const std::size_t count = queue_->Poll(done)) {
    completed_ += count;
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i].status == ReadStatus::kOk) continue;
      return End(absl::UnavailableError("a read failed"));
    }
  }
  if (region_ && completed_ == ops_.size()) {
    const ShardRange range = layout_.Range(key_.shard);
    std::vector<std::uint32_t> crcs((range.rows + kBlockRows - 1) / kBlockRows);
    const absl::Status sound =
        poolserver::RowPacker(table_).Verify({range.first, range.rows, out_, crcs.data()});
    return End(sound.ok() ? absl::StatusOr<std::vector<std::uint32_t>>(crcs) : sound);
  }
  if (deadline_ && process_->Now() >= *deadline_) {
    return End(absl::UnavailableError("the other node is silent"));
  }
  Flush();
}

void SimPull::End(absl::StatusOr<std::vector<std::uint32_t>> result) {
  if (std::exchange(over_, true)) return;
  const auto self = shared_from_this();
  if (queue_) queue_->Close();
  if (region_) {
    fabric_->Release(*region_);
    session_.FinishRead(process_->Now(), key_);
  }
  session_.Close();
  Flush();
  if (stream_) stream_->Close(process_);
  cluster_->results.pulled += result.ok();
  ended_(std::move(result));
}

}  // namespace engram::simulation
