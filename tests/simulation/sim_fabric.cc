#include "tests/simulation/sim_fabric.h"

#include <algorithm>
#include <cstring>

#include "engram/check.h"

namespace engram::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint64_t kLine = 64;

class PlainRegion final : public fabric::MemoryRegion {
 public:
  explicit PlainRegion(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() const override { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace

SimFabric::SimFabric(FabricKind kind, Process* process, Machines* machines,
                     std::function<void()> completed, Broken broken)
    : process_(process), machines_(machines), completed_(std::move(completed)), broken_(broken) {
  info_.kind = kind;
  info_.provider = "simulated";
  info_.one_sided = true;
  info_.offloaded = true;
  info_.max_op_bytes = 1 << 20;
  info_.max_outstanding = 64;
  info_.wrong_key = mapped() ? fabric::WrongKey::kUndetected : fabric::WrongKey::kFailsRead;
}

absl::StatusOr<fabric::PeerId> SimFabric::AddPeer(const fabric::PeerAddress& address, Instant) {
  const auto it = machines_->find(address.path.address);
  if (it == machines_->end() || !it->second->alive) {
    return absl::UnavailableError("the node is gone");
  }
  if (!it->second->admitted.contains(address.token)) {
    return absl::PermissionDeniedError("the session is not admitted");
  }
  const fabric::PeerId peer(++last_peer_);
  peers_[peer] = {it->second, address.path.address};
  return peer;
}

void SimFabric::RemovePeer(fabric::PeerId peer) {
  for (const auto& [import, count] : imports_) ENGRAM_CHECK(std::get<0>(import) != peer);
  for (const SimQueue* queue : queues_) ENGRAM_CHECK(broken_.releases || !queue->Reads(peer));
  peers_.erase(peer);
}

absl::StatusOr<fabric::RemoteRegion> SimFabric::Import(const fabric::RemoteRegion& granted) {
  ENGRAM_CHECK(peers_.contains(granted.peer));
  ++imports_[Name(granted)];
  return granted;
}

void SimFabric::Release(const fabric::RemoteRegion& imported) {
  const auto it = imports_.find(Name(imported));
  ENGRAM_CHECK(it != imports_.end());
  if (--it->second > 0) return;
  imports_.erase(it);
  for (const SimQueue* queue : queues_) {
    if (!broken_.releases && queue->Reads(imported)) {
      process_->world().Fail(process_->name() + " released a region that is being read");
    }
  }
}

absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> SimFabric::Register(
    std::span<std::byte> memory, fabric::MemoryKind) {
  return std::make_unique<PlainRegion>(memory);
}

absl::StatusOr<std::unique_ptr<fabric::ReadQueue>> SimFabric::OpenQueue(const QueueOptions&) {
  return std::make_unique<SimQueue>(this);
}

SimQueue::SimQueue(SimFabric* fabric) : fabric_(fabric) { fabric_->queues_.insert(this); }

SimQueue::~SimQueue() {
  Close();
  fabric_->queues_.erase(this);
}

std::size_t SimQueue::Submit(std::span<const fabric::ReadOp> ops) {
  if (closed_) return 0;
  World& world = fabric_->process_->world();
  std::size_t room = fabric_->info_.max_outstanding - reads_.size();
  if (world.Chance(5)) room = world.Below(room + 1);
  const std::size_t accepted = std::min(room, ops.size());
  for (std::size_t i = 0; i < accepted; ++i) {
    const std::uint64_t id = ++last_;
    Read& read = reads_[id];
    read.op = ops[i];
    read.posted = world.now();
    const auto peer = fabric_->peers_.find(ops[i].region.peer);
    ENGRAM_CHECK(peer != fabric_->peers_.end());
    read.memory = peer->second.memory;
    const std::uint64_t kind = world.Below(100);
    const Duration length = kind < 80   ? world.Between(microseconds(5), microseconds(200))
                            : kind < 95 ? world.Between(milliseconds(1), milliseconds(30))
                                        : world.Between(milliseconds(50), milliseconds(900));
    read.at = read.op.region.address + read.op.offset;
    const std::uint64_t lines = (read.at + read.op.length - 1) / kLine - read.at / kLine + 1;
    read.times.push_back(length);
    for (std::uint64_t line = 0; line < lines; ++line) {
      read.times.push_back(world.Between(Duration(0), length));
    }
    std::sort(read.times.begin(), read.times.end(), std::greater<>());
    Next(id);
  }
  return accepted;
}

void SimQueue::Next(std::uint64_t id) {
  Process* process = fabric_->process_;
  const Read& read = reads_.at(id);
  const Instant when = read.posted + read.times.back();
  auto step = [self = std::weak_ptr<SimQueue*>(self_), id] {
    if (const auto queue = self.lock()) (*queue)->Step(id);
  };
  // The processor that loads the lines is the client's, or nobody's.
  if (fabric_->mapped()) {
    process->world().At(when, [process, life = process->life(), step = std::move(step)] {
      process->Run(life, step);
    });
  } else {
    process->world().At(when, std::move(step));
  }
}

ReadStatus SimQueue::Begin(Read& read) {
  const auto peer = fabric_->peers_.find(read.op.region.peer);
  if (fabric_->broken_.queues && !fabric_->mapped() && peer != fabric_->peers_.end()) {
    read.memory = fabric_->machines_->at(peer->second.address);
  }
  const NodeMemory& memory = *read.memory;
  if (read.op.offset + read.op.length > read.op.region.length) return ReadStatus::kRefused;
  if (fabric_->mapped()) {
    // A slab is unmapped as a whole, so every line is looked at in Land.
    return read.at + read.op.length <= memory.bytes.size() ? ReadStatus::kOk : ReadStatus::kRefused;
  }
  if (!memory.alive) return ReadStatus::kUnreachable;
  const auto key = memory.keys.find(read.op.region.key);
  // What a key names is counted from its own beginning then, as many providers do.
  if (fabric_->broken_.queues && key != memory.keys.end()) {
    read.at = key->second.offset + read.op.offset;
  }
  const bool inside = key != memory.keys.end() && read.at >= key->second.offset &&
                      read.at + read.op.length <= key->second.offset + key->second.length;
  return inside ? ReadStatus::kOk : ReadStatus::kRefused;
}

void SimQueue::Step(std::uint64_t id) {
  const auto it = reads_.find(id);
  if (it == reads_.end()) return;
  Read& read = it->second;
  read.times.pop_back();
  if (read.times.empty()) return Complete(id, ReadStatus::kOk);
  if (read.done == 0) {
    const ReadStatus begun = Begin(read);
    if (begun != ReadStatus::kOk) return Complete(id, begun);
  } else if (!fabric_->mapped() && !read.memory->alive) {
    return Complete(id, ReadStatus::kUnreachable);
  }
  Land(read);
  Next(id);
}

void SimQueue::Land(Read& read) {
  const auto import = fabric_->imports_.find(SimFabric::Name(read.op.region));
  if (import == fabric_->imports_.end() && !fabric_->broken_.releases) {
    fabric_->process_->world().Fail(fabric_->process_->name() + " read an unmapped region");
    return;
  }
  const std::uint64_t from = read.at + read.done;
  const std::uint64_t line_end = (from / kLine + 1) * kLine;
  std::uint64_t left = std::min<std::uint64_t>(line_end - from, read.op.length - read.done);
  while (left > 0) {
    std::uint32_t before = 0;
    for (std::uint8_t i = 0; i < read.op.segments; ++i) {
      const fabric::LocalSegment& segment = read.op.local[i];
      const std::uint32_t end = before + segment.bytes;
      if (read.done < end) {
        const std::uint32_t bytes =
            std::min<std::uint32_t>(end - read.done, static_cast<std::uint32_t>(left));
        std::memcpy(segment.data + (read.done - before), &read.memory->bytes[read.at + read.done],
                    bytes);
        read.done += bytes;
        left -= bytes;
        break;
      }
      before = end;
    }
  }
}

void SimQueue::Complete(std::uint64_t id, ReadStatus status) {
  completions_.push_back({reads_.at(id).op.cookie, status});
  reads_.erase(id);
  fabric_->completed_();
}

std::size_t SimQueue::Poll(std::span<fabric::ReadCompletion> out) {
  const std::size_t count = std::min(out.size(), completions_.size());
  for (std::size_t i = 0; i < count; ++i) {
    // In any order.
    const std::size_t pick = fabric_->process_->world().Below(completions_.size());
    out[i] = completions_[pick];
    completions_.erase(completions_.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  return count;
}

void SimQueue::Abandon(fabric::PeerId peer) {
  std::vector<std::uint64_t> ended;
  for (const auto& [id, read] : reads_) {
    if (read.op.region.peer == peer) ended.push_back(id);
  }
  for (std::uint64_t id : ended) Complete(id, ReadStatus::kFlushed);
}

void SimQueue::Close() {
  closed_ = true;
  reads_.clear();
}

bool SimQueue::Reads(const fabric::RemoteRegion& region) const {
  return std::any_of(reads_.begin(), reads_.end(), [&](const auto& entry) {
    return SimFabric::Name(entry.second.op.region) == SimFabric::Name(region);
  });
}

bool SimQueue::Reads(fabric::PeerId peer) const {
  return std::any_of(reads_.begin(), reads_.end(),
                     [&](const auto& entry) { return entry.second.op.region.peer == peer; });
}

}  // namespace engram::simulation
