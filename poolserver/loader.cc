#include "poolserver/loader.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engram/shard_layout.h"
#include "poolserver/duty.h"

namespace engram::poolserver {
namespace {

using Steady = std::chrono::steady_clock;

std::uint64_t Blocks(std::uint64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

}  // namespace

// One Start. What is under `mutex` is shared by the threads that fill it.
struct Loader::Load {
  struct Shard {
    std::uint64_t rows_left = 0;
    std::vector<std::uint32_t> block_crcs;  // each stripe writes its own entries
    absl::Status status;
  };

  Load(const TableRecord& record, std::vector<ShardIndex> wanted, Tier into, OpenSource open_source)
      : table(record),
        shards(std::move(wanted)),
        tier(into),
        open_it(std::move(open_source)),
        layout(table.spec, table.options),
        packer(table),
        unended(shards.begin(), shards.end()) {
    summary.table = table.name;
    summary.shards = shards.size();
  }

  const TableRecord table;
  const std::vector<ShardIndex> shards;
  const Tier tier;
  const OpenSource open_it;  // null: the table's source
  const ShardLayout layout;
  const RowPacker packer;
  TierStore* store = nullptr;
  std::unique_ptr<LoadSource> source;
  Steady::time_point started;

  Mutex mutex;
  std::map<ShardIndex, Shard> open ABSL_GUARDED_BY(mutex);
  std::set<ShardIndex> unended ABSL_GUARDED_BY(mutex);
  Summary summary ABSL_GUARDED_BY(mutex);
};

struct Loader::Stripe {
  // Where runs[i] goes. Without memory its rows are packed into scratch first, then written.
  struct Part {
    ShardIndex shard;
    std::uint64_t offset = 0;  // in the place
    bool in_memory = true;
  };
  std::shared_ptr<Load> load;
  std::vector<Part> parts;
  std::vector<RowRun> runs;
};

// Of one thread.
struct Loader::Scratch {
  LoadSource::Scratch planes;
  ReadBuffer rows;
};

Loader::Loader(Options options, const Tiers* tiers, Ended ended, Finished finished)
    : options_(std::move(options)),
      tiers_(tiers),
      ended_(std::move(ended)),
      finished_(std::move(finished)) {
  threads_.emplace_back([this] { RunLoads(); });
  pthread_setname_np(threads_.back().native_handle(), ("duty/" + options_.name).c_str());
  for (std::uint32_t i = 0; i < std::max(options_.threads, 1u); ++i) {
    threads_.emplace_back([this] { RunStripes(); });
    pthread_setname_np(threads_.back().native_handle(),
                       absl::StrCat(options_.name, "/", i).c_str());
  }
}

Loader::~Loader() { Stop(); }

void Loader::Start(const TableRecord& table, std::vector<ShardIndex> shards, Tier tier,
                   OpenSource open) {
  std::sort(shards.begin(), shards.end());
  auto load = std::make_shared<Load>(table, std::move(shards), tier, std::move(open));
  MutexLock lock(&mutex_);
  for (ShardIndex shard : load->shards) active_.insert({table.uid, shard});
  loads_.push_back(std::move(load));
}

void Loader::Cancel(const ShardKey& shard) {
  MutexLock lock(&mutex_);
  if (active_.count(shard) != 0) given_up_.insert(shard);
}

void Loader::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Loader::RunLoads() {
  StandBehindReads();
  while (true) {
    std::shared_ptr<Load> load;
    {
      MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !loads_.empty();
      };
      mutex_.Await(ready);
      if (stopping_) return;
      load = std::move(loads_.front());
      loads_.pop_front();
    }
    Prepare(load);
  }
}

void Loader::Prepare(const std::shared_ptr<Load>& load) {
  load->started = Steady::now();
  auto claim = Reserve(load);
  if (!claim.ok()) return FailRest(load, claim.status());
  while (true) {
    auto taken = (*claim)->Next();
    if (!taken.ok()) return FailRest(load, taken.status());
    if (taken->empty()) return;
    {
      MutexLock lock(&load->mutex);
      load->summary.granted = (*claim)->Granted();
    }
    for (TierStore::Taken& one : *taken) {
      if (one.whole) End(load, one.shard, *std::move(one.whole));
    }
    std::erase_if(*taken, [](const TierStore::Taken& one) { return one.whole.has_value(); });
    Queue(load, *taken);
  }
}

absl::StatusOr<std::unique_ptr<TierStore::Claim>> Loader::Reserve(
    const std::shared_ptr<Load>& load) {
  const TableRecord& table = load->table;
  auto store = tiers_->Find(load->tier);
  if (!store.ok()) return store.status();
  load->store = *store;
  if (load->store->demands_seals() && table.options.seal == SealKind::kNone) {
    return absl::FailedPreconditionError(
        absl::StrCat("table ", table.name.Full(), " is not sealed, and in this node's ",
                     std::string(Name(load->tier)),
                     " tier, which outlives its owner, rows must be: load it with --seal crc32c"));
  }
  auto source =
      load->open_it ? load->open_it() : LoadSource::Open(table, options_.checkpoints.get());
  if (!source.ok()) return source.status();
  load->source = *std::move(source);
  std::vector<TierStore::Wanted> wanted;
  for (ShardIndex shard : load->shards) {
    if (shard.value() >= load->layout.shards()) {
      return absl::InvalidArgumentError(absl::StrCat("table ", table.name.Full(), " has ",
                                                     load->layout.shards(),
                                                     " shards; there is no shard ", shard.value()));
    }
    if (GivenUp({table.uid, shard})) {
      End(load, shard, absl::CancelledError("the load was given up"));
      continue;
    }
    wanted.push_back({shard, load->layout.StoredBytes(shard)});
  }
  return load->store->Reserve(
      {table.uid, table.name.Full(), load->layout.stride(), table.spec_digest}, wanted);
}

void Loader::Queue(const std::shared_ptr<Load>& load, std::span<const TierStore::Taken> taken) {
  const std::uint64_t row_bytes = load->layout.row_bytes();
  const std::uint64_t stripe_rows =
      std::max(options_.stripe_bytes / row_bytes / kBlockRows, std::uint64_t{1}) * kBlockRows;
  std::vector<Stripe> stripes;
  RowId end;                // of the last run
  std::uint32_t layer = 0;  // of the last run
  std::uint64_t rows = 0;   // in the last stripe
  for (const TierStore::Taken& one : taken) {
    const ShardRange range = load->layout.Range(one.shard);
    Load::Shard shard;
    shard.rows_left = range.rows;
    shard.block_crcs.resize(Blocks(range.rows));
    std::uint32_t* const crcs = shard.block_crcs.data();
    {
      MutexLock lock(&load->mutex);
      load->open[one.shard] = std::move(shard);
    }
    for (std::uint64_t slot = 0; slot < range.rows;) {
      const RowId first(range.first.value() + slot);
      const std::uint32_t in_layer = load->table.spec.columns[range.column].layer;
      if (stripes.empty() || rows >= stripe_rows || first != end || in_layer != layer) {
        stripes.push_back({load, {}, {}});
        rows = 0;
      }
      // Cut at blocks, counted from the shard's start: another stripe has the next block.
      const std::uint64_t room = std::max((stripe_rows - rows) / kBlockRows, std::uint64_t{1});
      const std::uint64_t count = std::min(range.rows - slot, room * kBlockRows);
      const std::uint64_t offset = slot * load->layout.stride();
      std::byte* const memory = one.place.data();
      stripes.back().parts.push_back({one.shard, offset, memory != nullptr});
      stripes.back().runs.push_back(
          {first, count, memory == nullptr ? nullptr : memory + offset, crcs + slot / kBlockRows});
      rows += count;
      slot += count;
      end = RowId(first.value() + count);
      layer = in_layer;
    }
  }
  MutexLock lock(&mutex_);
  for (Stripe& stripe : stripes) stripes_.push_back(std::move(stripe));
}

void Loader::RunStripes() {
  StandBehindReads();
  Scratch scratch;
  while (true) {
    Stripe stripe;
    {
      MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !stripes_.empty();
      };
      mutex_.Await(ready);
      if (stopping_) return;
      stripe = std::move(stripes_.front());
      stripes_.pop_front();
    }
    Work(&stripe, &scratch);
  }
}

void Loader::Work(Stripe* stripe, Scratch* scratch) {
  const Load& load = *stripe->load;
  const bool wanted =
      std::any_of(stripe->parts.begin(), stripe->parts.end(), [&](const Stripe::Part& part) {
        return !GivenUp({load.table.uid, part.shard}) && !HasFailed(stripe->load.get(), part.shard);
      });
  const absl::Status status =
      wanted ? Fill(stripe, scratch) : absl::CancelledError("the load was given up");
  for (std::size_t i = 0; i < stripe->runs.size(); ++i) {
    EndPart(stripe->load, stripe->parts[i].shard, stripe->runs[i].rows, status);
  }
}

absl::Status Loader::Fill(Stripe* stripe, Scratch* scratch) {
  const Load& load = *stripe->load;
  const std::uint64_t stride = load.layout.stride();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < stripe->runs.size(); ++i) {
    if (!stripe->parts[i].in_memory) bytes += stripe->runs[i].rows * stride;
  }
  if (bytes == 0) return load.source->Fill(stripe->runs, &scratch->planes);
  std::byte* to = scratch->rows.Ensure(bytes);
  for (std::size_t i = 0; i < stripe->runs.size(); ++i) {
    if (stripe->parts[i].in_memory) continue;
    stripe->runs[i].out = to;
    to += stripe->runs[i].rows * stride;
  }
  absl::Status status = load.source->Fill(stripe->runs, &scratch->planes);
  for (std::size_t i = 0; status.ok() && i < stripe->runs.size(); ++i) {
    const Stripe::Part& part = stripe->parts[i];
    const RowRun& run = stripe->runs[i];
    if (part.in_memory) continue;
    status =
        load.store->Write({load.table.uid, part.shard}, part.offset, {run.out, run.rows * stride});
  }
  return status;
}

// What is left of a shard that failed need not be read.
bool Loader::HasFailed(Load* load, ShardIndex shard) {
  MutexLock lock(&load->mutex);
  const auto found = load->open.find(shard);
  return found == load->open.end() || !found->second.status.ok();
}

void Loader::EndPart(const std::shared_ptr<Load>& load, ShardIndex shard, std::uint64_t rows,
                     const absl::Status& status) {
  absl::StatusOr<std::vector<std::uint32_t>> result = std::vector<std::uint32_t>{};
  {
    MutexLock lock(&load->mutex);
    auto found = load->open.find(shard);
    Load::Shard& part = found->second;
    if (part.status.ok()) part.status = status;
    part.rows_left -= rows;
    if (part.rows_left > 0) return;
    if (part.status.ok()) {
      result = std::move(part.block_crcs);
    } else {
      result = part.status;
    }
    load->open.erase(found);
  }
  if (result.ok()) {
    const absl::Status committed = load->store->Commit({load->table.uid, shard}, *result);
    if (!committed.ok()) result = committed;
  }
  End(load, shard, std::move(result));
}

void Loader::End(const std::shared_ptr<Load>& load, ShardIndex shard,
                 absl::StatusOr<std::vector<std::uint32_t>> result) {
  const ShardKey key{load->table.uid, shard};
  const std::uint64_t bytes = result.ok() ? load->layout.StoredBytes(shard) : 0;
  {
    MutexLock lock(&mutex_);
    active_.erase(key);
    if (given_up_.erase(key) != 0 && result.ok()) {
      result = absl::CancelledError("the load was given up");
    }
  }
  bytes_loaded_.fetch_add(bytes, std::memory_order_relaxed);
  Summary summary;
  bool last = false;
  {
    MutexLock lock(&load->mutex);
    load->unended.erase(shard);
    load->summary.bytes += bytes;
    load->summary.failed += result.ok() ? 0 : 1;
    load->summary.seconds = std::chrono::duration<double>(Steady::now() - load->started).count();
    last = load->unended.empty();
    summary = load->summary;
  }
  ended_(key, std::move(result));
  if (last && finished_) finished_(summary);
}

void Loader::FailRest(const std::shared_ptr<Load>& load, const absl::Status& why) {
  std::vector<ShardIndex> rest;
  {
    MutexLock lock(&load->mutex);
    for (ShardIndex shard : load->unended) {
      if (load->open.count(shard) == 0) rest.push_back(shard);
    }
  }
  for (ShardIndex shard : rest) End(load, shard, why);
}

bool Loader::GivenUp(const ShardKey& shard) const {
  MutexLock lock(&mutex_);
  return stopping_ || given_up_.count(shard) != 0;
}

}  // namespace engram::poolserver
