// A small pool for tests of what reads rows: nodes on the loopback fabric that hold every row of
// one table (two layers of two columns), golden bytes, and a queue that holds reads back until the
// test lets them go. Thread-confined: call from the owner thread only.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/row_reader.h"
#include "engram/addressing.h"
#include "engram/poison.h"
#include "engram/random.h"
#include "fabric/loopback/loopback.h"
#include "fabric/memory.h"

namespace engram::client {

inline constexpr std::uint32_t kRowBytes = 40;

inline TableSpec SmallSpec() {
  TableSpec spec;
  for (std::uint32_t i = 0; i < 4; ++i) spec.columns.push_back({i / 2, 2, i % 2, 1000 + i});
  spec.planes = {{"values", DType::kE4M3, 32}, {"scales", DType::kUE8M0, 8}};
  return spec;
}

// Two layers of four columns (two heads of orders 2 and 3) that an address function reaches.
inline TableSpec TokenSpec() {
  EngramGeometry geometry;
  geometry.max_order = 3;
  geometry.heads = 2;
  geometry.base_rows = 400;
  geometry.raw_vocab = geometry.compressed_vocab = 50;
  TableSpec spec = *MakeEngramSpec(geometry);
  spec.planes = SmallSpec().planes;
  return spec;
}

inline TableOptions SmallOptions(SealKind seal) {
  TableOptions options;
  options.shard_bytes = 256 * 48;  // one block a shard
  options.seal = seal;
  return options;
}

inline std::byte Golden(RowId row, std::uint32_t at) {
  return static_cast<std::byte>(row.value() * 131 + at * 7 + 3);
}

// Holds what is submitted until Release, so that a test can decide when reads complete.
class HeldQueue final : public fabric::ReadQueue {
 public:
  explicit HeldQueue(std::unique_ptr<fabric::ReadQueue> inner) : inner_(std::move(inner)) {}
  std::size_t Submit(std::span<const fabric::ReadOp> ops) override {
    if (!hold) return inner_->Submit(ops);
    for (const fabric::ReadOp& op : ops) {
      if (hold_only && op.region.peer != *hold_only) {
        inner_->Submit({&op, 1});
      } else {
        held_.push_back(op);
      }
    }
    return ops.size();
  }
  std::size_t Poll(std::span<fabric::ReadCompletion> out) override {
    std::size_t count = 0;
    while (count < out.size() && !flushed_.empty()) {
      out[count++] = {flushed_.back(), ReadStatus::kFlushed};
      flushed_.pop_back();
    }
    return count > 0 ? count : inner_->Poll(out);
  }
  int ArmWait() override { return -1; }
  void Abandon(fabric::PeerId peer) override {
    abandoned.push_back(peer);
    for (const fabric::ReadOp& op : held_) {
      if (op.region.peer == peer) flushed_.push_back(op.cookie);
    }
    std::erase_if(held_, [&](const fabric::ReadOp& op) { return op.region.peer == peer; });
  }
  void Close() override { inner_->Close(); }
  void Release() {
    inner_->Submit(held_);
    held_.clear();
  }
  void ReleaseSome(std::size_t count) {
    inner_->Submit({held_.data(), count});
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  void ReleaseFrom(fabric::PeerId peer) {
    for (const fabric::ReadOp& op : held_) {
      if (op.region.peer == peer) inner_->Submit({&op, 1});
    }
    std::erase_if(held_, [&](const fabric::ReadOp& op) { return op.region.peer == peer; });
  }
  std::size_t held() const { return held_.size(); }
  const fabric::ReadOp& held_op(std::size_t at) const { return held_[at]; }

  bool hold = false;
  // Holds only what is asked of this peer.
  std::optional<fabric::PeerId> hold_only;
  std::vector<fabric::PeerId> abandoned;

 private:
  std::unique_ptr<fabric::ReadQueue> inner_;
  std::vector<fabric::ReadOp> held_;
  std::vector<std::uint64_t> flushed_;
};

class HeldFabric final : public fabric::Fabric {
 public:
  const fabric::FabricInfo& info() const override { return inner_->info(); }
  absl::StatusOr<fabric::PeerId> AddPeer(const fabric::PeerAddress& address,
                                         Instant deadline) override {
    return inner_->AddPeer(address, deadline);
  }
  void RemovePeer(fabric::PeerId peer) override { inner_->RemovePeer(peer); }
  absl::StatusOr<fabric::RemoteRegion> Import(const fabric::RemoteRegion& granted) override {
    return inner_->Import(granted);
  }
  void Release(const fabric::RemoteRegion& imported) override { inner_->Release(imported); }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> Register(std::span<std::byte> memory,
                                                                 fabric::MemoryKind kind) override {
    return inner_->Register(memory, kind);
  }
  absl::StatusOr<std::unique_ptr<fabric::ReadQueue>> OpenQueue(
      const QueueOptions& options) override {
    auto opened = inner_->OpenQueue(options);
    if (!opened.ok()) return opened.status();
    auto held = std::make_unique<HeldQueue>(*std::move(opened));
    queue = held.get();
    return held;
  }
  HeldQueue* queue = nullptr;

 private:
  std::unique_ptr<fabric::Fabric> inner_ = fabric::OpenLoopbackFabric();
};

// One node that holds every shard of the table.
struct Holder {
  std::unique_ptr<fabric::Slab> slab;
  std::unique_ptr<fabric::Target> target;
  fabric::PeerId peer;
  std::vector<fabric::RemoteRegion> shards;
  std::shared_ptr<ReadLease> lease;
  std::string name;
};

class HeldPool {
 public:
  explicit HeldPool(SealKind seal, const TableSpec& spec = SmallSpec())
      : spec_(spec),
        table_(std::make_shared<ReadTable>(TableUid{{9}}, spec_, SmallOptions(seal))),
        board_(&quiescence_, Routes::Builder({}).Build()) {}

  std::byte* Stored(Holder& holder, RowId row) {
    const ShardSlot place = table_->layout.Locate(row);
    std::uint64_t at = 0;
    for (std::uint32_t i = 0; i < place.shard.value(); ++i)
      at += table_->layout.StoredBytes(ShardIndex(i));
    return holder.slab->data() + at + std::uint64_t{place.slot} * table_->layout.stride();
  }

  void Store(Holder& holder, RowId row) {
    std::byte* to = Stored(holder, row);
    for (std::uint32_t i = 0; i < kRowBytes; ++i) to[i] = Golden(row, i);
    if (table_->layout.seal() == SealKind::kNone) return;
    const std::uint64_t seal = table_->sealer.Seal(row, to);
    std::memcpy(to + kRowBytes, &seal, sizeof seal);
  }

  Holder& AddHolder(const std::string& name) {
    auto holder = std::make_unique<Holder>();
    holder->name = name;
    holder->lease = std::make_shared<ReadLease>(clock_.Now() + std::chrono::seconds(100));
    const ShardLayout& layout = table_->layout;
    fabric::SlabOptions slab;
    slab.pages = fabric::PageSize::k4KiB;
    slab.bytes = layout.rows() * layout.stride();
    holder->slab = *fabric::Slab::Create(slab);
    for (std::uint64_t row = 0; row < layout.rows(); ++row) Store(*holder, RowId(row));
    holder->target = *fabric::OpenLoopbackTarget({{name}, Incarnation(1), ""});
    const SessionToken token{{1}};
    holder->target->Admit(token);
    holder->peer = *fabric_.AddPeer({holder->target->address(), token, {name}, Incarnation(1)},
                                    Instant::max());
    std::uint64_t at = 0;
    for (std::uint32_t shard = 0; shard < layout.shards(); ++shard) {
      const std::uint64_t bytes = layout.StoredBytes(ShardIndex(shard));
      const auto exposed =
          *holder->target->Expose({holder->slab.get(), at, bytes, layout.stride()});
      holder->target->Allow(token, exposed.key);
      holder->shards.push_back(
          *fabric_.Import({holder->peer, exposed.address, exposed.length, exposed.key}));
      at += bytes;
    }
    holders_.push_back(std::move(holder));
    return *holders_.back();
  }
  // A reader of this pool's table, routes, fabric and clock.
  RowReader::Options ReaderOptions(std::uint32_t hedge_rows) {
    RowReader::Options options;
    options.table = table_;
    options.board = &board_;
    options.fabrics = {&fabric_};
    options.clock = &clock_;
    options.hedge_rows = hedge_rows;
    return options;
  }

  // Routes to every holder in `names`, in the order in which holders were added.
  void Publish(std::vector<std::string> names, FabricKind kind = FabricKind::kLoopback,
               bool incomplete = false) {
    Routes::Builder::Options options;
    options.shards = table_->layout.shards();
    options.incomplete = incomplete;
    Routes::Builder builder(options);
    PathAddress path;
    path.fabric = kind;
    for (const auto& holder : holders_) {
      if (std::find(names.begin(), names.end(), holder->name) == names.end()) continue;
      const auto session =
          builder.AddSession({{holder->name}, Incarnation(1), GrantRevision(1), holder->lease});
      for (std::uint32_t shard = 0; shard < options.shards; ++shard)
        builder.Add(ShardIndex(shard), session, 0, path, holder->shards[shard]);
    }
    board_.Publish(builder.Build());
  }

  bool IsGolden(const std::byte* bytes, RowId row) {
    for (std::uint32_t i = 0; i < kRowBytes; ++i) {
      if (bytes[i] != Golden(row, i)) return false;
    }
    return true;
  }
  bool IsPoison(const std::byte* bytes) {
    return std::memcmp(bytes, table_->poison.data(), kRowBytes) == 0;
  }

  std::vector<RowId> SomeRows(std::size_t count) {
    std::vector<RowId> ids;
    SeededRandom random(3);
    for (std::size_t i = 0; i < count; ++i) ids.push_back(RowId(random.Below(spec_.Rows())));
    return ids;
  }

  FakeClock clock_;
  TableSpec spec_;
  std::shared_ptr<const ReadTable> table_;
  HeldFabric fabric_;
  Quiescence quiescence_;
  RouteBoard board_;
  std::vector<std::unique_ptr<Holder>> holders_;
};

}  // namespace engram::client
