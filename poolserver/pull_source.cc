#include "poolserver/pull_source.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/settings/units.h"

namespace engram::poolserver {
namespace {

constexpr std::uint64_t kRowsPerOp = 16;
// Reads that are posted, and taken from the rate, together.
constexpr std::size_t kOpsPerBatch = 64;
constexpr std::size_t kOpsOutstanding = 1024;
constexpr int kWaitMs = 1;

}  // namespace

std::vector<fabric::ReadOp> PullOps(const ShardLayout& layout, ShardIndex shard, const RowRun& run,
                                    const fabric::RemoteRegion& region) {
  const std::uint64_t stride = layout.stride();
  const std::uint64_t slot = run.first.value() - layout.Range(shard).first.value();
  std::vector<fabric::ReadOp> ops;
  for (std::uint64_t row = 0; row < run.rows; row += kRowsPerOp) {
    const std::uint64_t rows = std::min(kRowsPerOp, run.rows - row);
    fabric::ReadOp op;
    op.region = region;
    op.offset = (slot + row) * stride;
    op.length = static_cast<std::uint32_t>(rows * stride);
    op.lane = fabric::Lane::kBulk;
    op.local[0] = {run.out + row * stride, op.length, nullptr};
    ops.push_back(op);
  }
  return ops;
}

class PullSource::Puller {
 public:
  Puller(const TableRecord& table, Successor from, PullMeans means)
      : table_(table),
        layout_(table.spec, table.options),
        packer_(table),
        from_(std::move(from)),
        means_(std::move(means)) {}

  ~Puller() { Disconnect(); }

  absl::Status Fill(std::span<const RowRun> runs) {
    MutexLock lock(&fill_mutex_);
    for (const RowRun& run : runs) {
      absl::Status pulled = Pull(run);
      if (!pulled.ok()) return pulled;
      if (absl::Status sound = packer_.Verify({run.first, run.rows, run.out, run.block_crcs});
          !sound.ok()) {
        return absl::Status(sound.code(),
                            absl::StrCat("node ", from_.node.name, " sent rows of table ",
                                         table_.name.Full(), " that are wrong: ", sound.message()));
      }
    }
    return absl::OkStatus();
  }

 private:
  // What the stream's threads and the filling one share.
  struct Session {
    explicit Session(PullSession::Options options, Instant now) : state(std::move(options), now) {}
    Mutex mutex;
    PullSession state ABSL_GUARDED_BY(mutex);
  };

  absl::Status Pull(const RowRun& run) {
    if (absl::Status connected = Connect(); !connected.ok()) return connected;
    const ShardIndex shard = layout_.Locate(run.first).shard;
    absl::StatusOr<Grant> grant = AwaitGrant({table_.uid, shard});
    if (!grant.ok()) {
      if (!SessionStatus().ok()) Disconnect();
      return grant.status();
    }
    absl::Status read = Read(run, shard, *grant);
    {
      MutexLock lock(&session_->mutex);
      session_->state.FinishRead(means_.clock->Now(), {table_.uid, shard});
    }
    Flush();
    if (!read.ok()) Disconnect();
    return read;
  }

  // A node that could not be reached once is not tried again: the controller names another source.
  absl::Status Connect() {
    if (!unreachable_.ok()) return unreachable_;
    if (session_ != nullptr && SessionStatus().ok()) return absl::OkStatus();
    Disconnect();
    PullSession::Options options{absl::StrCat("node ", means_.client),
                                 means_.random->Bits<struct PullRequestTag>().Hex(),
                                 from_.node,
                                 from_.incarnation,
                                 table_.uid,
                                 means_.patience};
    session_ = std::make_shared<Session>(std::move(options), means_.clock->Now());
    link_ = means_.open_link(
        from_.endpoint, {[session = session_, clock = means_.clock](const NodeMessage& message) {
                           MutexLock lock(&session->mutex);
                           session->state.Hear(clock->Now(), message);
                         },
                         [session = session_](const absl::Status& why) {
                           MutexLock lock(&session->mutex);
                           session->state.Lost(why);
                         }});
    Flush();
    const Instant deadline = means_.clock->Now() + means_.patience;
    absl::Status reached = Reach(deadline);
    if (!reached.ok()) Disconnect();
    unreachable_ = reached;
    return reached;
  }

  // Waits for the session and connects the fabric.
  absl::Status Reach(Instant deadline) {
    std::optional<SessionOpened> opened;
    while (!opened) {
      if (absl::Status why = SessionStatus(); !why.ok()) return why;
      if (Instant now = means_.clock->Now(); now >= deadline) return Silent();
      if (means_.stopping->load()) return absl::CancelledError("the node is stopping");
      Wait(nullptr);
      MutexLock lock(&session_->mutex);
      opened = session_->state.opened();
    }
    for (std::uint32_t i = 0; i < opened->paths.size(); ++i) {
      if (opened->paths[i].fabric != means_.kind) continue;
      auto peer = means_.fabric->AddPeer(
          {opened->paths[i], opened->token, opened->node, opened->incarnation}, deadline);
      if (!peer.ok()) return peer.status();
      peer_ = *peer;
      path_ = i;
      auto queue = means_.fabric->OpenQueue({kOpsOutstanding, {}});
      if (!queue.ok()) return queue.status();
      queue_ = *std::move(queue);
      return absl::OkStatus();
    }
    return absl::UnavailableError(absl::StrCat("node ", from_.node.name, " does not serve on ",
                                               std::string(Name(means_.kind)),
                                               "; add it to its --fabrics"));
  }

  absl::StatusOr<Grant> AwaitGrant(const ShardKey& shard) {
    const Instant deadline = means_.clock->Now() + means_.patience / 2;
    while (true) {
      const Instant now = means_.clock->Now();
      {
        MutexLock lock(&session_->mutex);
        if (!session_->state.status().ok()) return session_->state.status();
        if (std::optional<Grant> grant = session_->state.StartRead(now, shard)) return *grant;
      }
      if (now >= deadline) {
        return absl::UnavailableError(absl::StrCat("node ", from_.node.name,
                                                   " does not serve shard ", shard.shard.value(),
                                                   " of table ", table_.name.Full()));
      }
      if (means_.stopping->load()) return absl::CancelledError("the node is stopping");
      Wait(nullptr);
    }
  }

  // Every read that was posted is over when this returns.
  absl::Status Read(const RowRun& run, ShardIndex shard, const Grant& grant) {
    const auto path = std::find_if(grant.paths.begin(), grant.paths.end(),
                                   [&](const GrantPath& one) { return one.path == path_; });
    if (path == grant.paths.end()) return absl::UnavailableError("the grant has no such path");
    auto region = means_.fabric->Import({peer_, path->address, path->length, path->key});
    if (!region.ok()) return region.status();
    const std::vector<fabric::ReadOp> ops = PullOps(layout_, shard, run, *region);
    absl::Status read = Transfer(ops);
    means_.fabric->Release(*region);
    return read;
  }

  absl::Status Transfer(const std::vector<fabric::ReadOp>& ops) {
    std::array<fabric::ReadCompletion, 256> done;
    std::size_t posted = 0, completed = 0, paid = 0;
    Instant heard = means_.clock->Now();
    absl::Status why;
    while (completed < ops.size()) {
      const Instant now = means_.clock->Now();
      if (why = SessionStatus(); !why.ok()) break;
      if (means_.stopping->load()) why = absl::CancelledError("the node is stopping");
      if (now - heard >= means_.patience && posted > completed) why = Silent();
      if (!why.ok()) break;
      posted += PostSome(ops, posted, completed, &paid, now);
      const std::size_t count = queue_->Poll(done);
      if (posted == completed) heard = now;  // it was this side that waited
      for (std::size_t i = 0; i < count; ++i) {
        heard = now;
        if (done[i].status != ReadStatus::kOk) {
          why =
              absl::UnavailableError(absl::StrCat("a read from node ", from_.node.name,
                                                  " ended as ", std::string(Name(done[i].status))));
        }
      }
      completed += count;
      if (!why.ok()) break;
      if (count == 0) Wait(queue_.get());
    }
    if (completed < posted) queue_->Abandon(peer_);
    while (completed < posted) completed += queue_->Poll(done);
    return why;
  }

  std::size_t PostSome(const std::vector<fabric::ReadOp>& ops, std::size_t posted,
                       std::size_t completed, std::size_t* paid, Instant now) {
    std::size_t more = 0;
    while (posted + more < ops.size() && posted + more - completed < kOpsOutstanding) {
      if (posted + more == *paid) {
        const std::size_t end = std::min(ops.size(), *paid + kOpsPerBatch);
        std::uint64_t bytes = 0;
        for (std::size_t i = *paid; i < end; ++i) bytes += ops[i].length;
        if (!means_.rate->Take(now, bytes)) break;
        *paid = end;
      }
      const std::size_t at = posted + more;
      const std::size_t accepted = queue_->Submit(std::span(ops).subspan(at, *paid - at));
      if (accepted == 0) break;
      more += accepted;
    }
    return more;
  }

  // A millisecond, or until the queue has something; keeps the session alive meanwhile.
  void Wait(fabric::ReadQueue* queue) {
    const Instant now = means_.clock->Now();
    {
      MutexLock lock(&session_->mutex);
      if (now >= session_->state.NextTimer()) session_->state.Timer(now);
    }
    Flush();
    const int fd = queue == nullptr ? -1 : queue->ArmWait();
    pollfd readable{fd, POLLIN, 0};
    poll(&readable, fd < 0 ? 0 : 1, kWaitMs);
  }

  void Flush() {
    std::vector<ClientMessage> messages;
    {
      MutexLock lock(&session_->mutex);
      messages = session_->state.TakeMessages();
    }
    for (const ClientMessage& message : messages) link_->Send(message);
  }

  void Disconnect() {
    if (session_ != nullptr) {
      {
        MutexLock lock(&session_->mutex);
        session_->state.Close();
      }
      if (link_ != nullptr) Flush();
    }
    queue_.reset();
    if (peer_ != fabric::PeerId()) means_.fabric->RemovePeer(peer_);
    peer_ = fabric::PeerId();
    link_.reset();
    session_.reset();
  }

  absl::Status SessionStatus() const {
    MutexLock lock(&session_->mutex);
    return session_->state.status();
  }
  absl::Status Silent() const {
    return absl::UnavailableError(absl::StrCat("node ", from_.node.name, " at ", from_.endpoint,
                                               " has been silent for ",
                                               FormatDuration(means_.patience)));
  }

  const TableRecord table_;
  const ShardLayout layout_;
  const RowPacker packer_;
  const Successor from_;
  const PullMeans means_;

  Mutex fill_mutex_;  // held while filling: everything below belongs to the one who fills
  std::shared_ptr<Session> session_;
  std::unique_ptr<PullLink> link_;
  std::unique_ptr<fabric::ReadQueue> queue_;
  fabric::PeerId peer_;
  absl::Status unreachable_;
  std::uint32_t path_ = 0;
};

PullSource::PullSource(const TableRecord& table, Successor from, PullMeans means)
    : puller_(std::make_unique<Puller>(table, std::move(from), std::move(means))) {}

PullSource::~PullSource() = default;

absl::Status PullSource::Fill(std::span<const RowRun> runs, Scratch*) const {
  return puller_->Fill(runs);
}

}  // namespace engram::poolserver
