#include "poolserver/nvme/gathered_rows.h"

#include <algorithm>
#include <utility>

#include "engram/check.h"
#include "fabric/copy.h"

namespace engram::poolserver::nvme {
namespace {

using fabric::stream::RowSource;
using fabric::stream::RowWanted;
using fabric::stream::Shape;

// Rows whose cells of the cache are asked for ahead.
constexpr std::size_t kCacheAhead = 8;

// Copies `bytes` to what the shape makes of a range, from its byte `at` on.
void CopyInto(const Shape& shape, const RowWanted& to, std::uint32_t at, const std::byte* from,
              std::uint32_t bytes) {
  for (std::uint32_t s = 0; s < shape.segments && bytes > 0; ++s) {
    if (at >= shape.bytes[s]) {
      at -= shape.bytes[s];
      continue;
    }
    const std::uint32_t some = std::min(bytes, shape.bytes[s] - at);
    fabric::CopyPiece(to.to[s] + at, from, some);
    from += some;
    bytes -= some;
    at = 0;
  }
}

}  // namespace

// One Start of one source. Used again when it has ended.
class GatheredRows::Batch final : public BlockBatch {
 public:
  explicit Batch(GatheredRows* owner) : owner_(owner) {}

  // False: nothing is left for the device.
  bool Begin(std::uint32_t file_number, const Shape& shape, std::span<const RowWanted> rows);
  // REQUIRES: Begin has returned true, nothing has landed yet.
  void WhenDone(std::function<void()> done) { done_ = std::move(done); }
  void Landed(std::size_t index, const std::byte* bytes) override;
  void Ended() override;

 private:
  // A part of a wanted range that lies in one row.
  struct Piece {
    std::uint32_t block;
    std::uint32_t slot;
    std::uint32_t wanted;  // index of the range
    std::uint32_t at;      // in the range
    std::uint32_t in_row;  // where in the row it starts
    std::uint32_t bytes;
    friend bool operator<(const Piece& a, const Piece& b) { return a.slot < b.slot; }
  };

  void Cut(std::uint32_t index);
  bool Cached(const Piece& piece);

  GatheredRows* const owner_;
  std::uint32_t file_number_ = 0;
  Shape shape_;
  std::uint32_t range_bytes_ = 0;
  bool one_row_each_ = false;  // no range spans rows: they are clients', and worth keeping
  std::span<const RowWanted> rows_;
  std::function<void()> done_;
  std::vector<Piece> pieces_;         // sorted by block
  std::vector<std::uint32_t> first_;  // piece of blocks[i]; one more
};

bool GatheredRows::Batch::Begin(std::uint32_t file_number, const Shape& shape,
                                std::span<const RowWanted> rows) {
  file_number_ = file_number;
  shape_ = shape;
  range_bytes_ = shape.RowBytes();
  rows_ = rows;
  one_row_each_ = range_bytes_ <= file->layout().stride();
  pieces_.clear();
  blocks.clear();
  first_.clear();
  const std::uint32_t stride = file->layout().stride();
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    if (owner_->cache_ != nullptr && i + kCacheAhead < rows.size())
      owner_->cache_->Prefetch(
          RowCache::KeyOf(file_number_, rows[i + kCacheAhead].offset / stride));
    Cut(i);
  }
  if (pieces_.empty()) return false;
  std::sort(pieces_.begin(), pieces_.end());
  for (std::uint32_t i = 0; i < pieces_.size(); ++i) {
    if (!blocks.empty() && blocks.back() == pieces_[i].block) continue;
    blocks.push_back(pieces_[i].block);
    first_.push_back(i);
  }
  first_.push_back(static_cast<std::uint32_t>(pieces_.size()));
  return true;
}

// Appends the pieces of a range that the cache does not have.
void GatheredRows::Batch::Cut(std::uint32_t index) {
  const RowFileLayout& layout = file->layout();
  const std::uint64_t offset = rows_[index].offset;
  std::uint64_t slot = offset / layout.stride();
  auto in_row = static_cast<std::uint32_t>(offset % layout.stride());
  for (std::uint32_t at = 0; at < range_bytes_; ++slot, in_row = 0) {
    ENGRAM_CHECK(slot < layout.rows());  // the gather has checked the range
    const std::uint32_t bytes = std::min(range_bytes_ - at, layout.stride() - in_row);
    const Piece piece{
        layout.BlockOf(slot), static_cast<std::uint32_t>(slot), index, at, in_row, bytes};
    if (!Cached(piece)) pieces_.push_back(piece);
    at += bytes;
  }
}

bool GatheredRows::Batch::Cached(const Piece& piece) {
  if (owner_->cache_ == nullptr || !one_row_each_) return false;
  return owner_->cache_->Read(RowCache::KeyOf(file_number_, piece.slot), [&](const std::byte* row) {
    CopyInto(shape_, rows_[piece.wanted], piece.at, row + piece.in_row, piece.bytes);
  });
}

void GatheredRows::Batch::Landed(std::size_t index, const std::byte* bytes) {
  const RowFileLayout& layout = file->layout();
  std::uint32_t kept = ~std::uint32_t{0};  // the row that was kept last
  for (std::uint32_t i = first_[index]; i < first_[index + 1]; ++i) {
    const Piece& piece = pieces_[i];
    const RowWanted& wanted = rows_[piece.wanted];
    if (bytes == nullptr) {
      *wanted.status = ReadStatus::kCorrupt;
      owner_->failed_rows_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    const std::byte* const row = bytes + layout.OffsetInBlock(piece.slot);
    CopyInto(shape_, wanted, piece.at, row + piece.in_row, piece.bytes);
    if (owner_->cache_ == nullptr || !one_row_each_ || piece.slot == kept) continue;
    kept = piece.slot;
    owner_->cache_->Fill(RowCache::KeyOf(file_number_, piece.slot), {row, layout.stride()});
  }
}

void GatheredRows::Batch::Ended() {
  const std::function<void()> done = std::exchange(done_, nullptr);
  owner_->Return(this);
  done();
}

class GatheredRows::Source final : public RowSource {
 public:
  Source(GatheredRows* owner, std::shared_ptr<RowFile> file)
      : owner_(owner), file_(std::move(file)), number_(owner->next_file_.fetch_add(1)) {
    owner_->ring_->Remember(file_);
  }
  ~Source() override { owner_->ring_->Forget(file_); }

  void Start(const Shape& shape, std::span<const RowWanted> rows,
             std::function<void()> done) override {
    owner_->rows_.fetch_add(rows.size(), std::memory_order_relaxed);
    Batch* const batch = owner_->Take();
    batch->file = file_;
    // The source may be gone as soon as it is done.
    if (batch->Begin(number_, shape, rows)) {
      batch->WhenDone(std::move(done));
      owner_->ring_->Read(batch);
    } else {
      owner_->Return(batch);
      done();
    }
  }

 private:
  GatheredRows* const owner_;
  const std::shared_ptr<RowFile> file_;
  const std::uint32_t number_;
};

GatheredRows::GatheredRows(Ring* ring, RowCache* cache) : ring_(ring), cache_(cache) {}

GatheredRows::~GatheredRows() = default;

std::unique_ptr<RowSource> GatheredRows::SourceOf(std::shared_ptr<RowFile> file) {
  return std::make_unique<Source>(this, std::move(file));
}

GatheredRows::Batch* GatheredRows::Take() {
  MutexLock lock(&mutex_);
  if (free_.empty()) {
    all_.push_back(std::make_unique<Batch>(this));
    free_.push_back(all_.back().get());
  }
  Batch* const batch = free_.back();
  free_.pop_back();
  return batch;
}

void GatheredRows::Return(Batch* batch) {
  batch->file.reset();
  MutexLock lock(&mutex_);
  free_.push_back(batch);
}

}  // namespace engram::poolserver::nvme
