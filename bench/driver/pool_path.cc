#include "bench/driver/pool_path.h"

#include <deque>

#include "absl/strings/str_cat.h"

namespace engram::bench {
namespace {

constexpr Duration kDeadline = std::chrono::seconds(10);

class Path final : public ReadPath {
 public:
  Path(std::string name, const client::Table& table, std::unique_ptr<client::RowReader> reader,
       std::uint32_t outstanding)
      : name_(std::move(name)),
        table_(table),
        reader_(std::move(reader)),
        outstanding_(outstanding) {}
  const std::string& name() const override { return name_; }

  absl::Status Read(std::span<const Batch> batches) override {
    if (absl::Status ok = Register(batches); !ok.ok()) return ok;
    const std::uint32_t row_bytes = table_.spec().RowBytes();
    const Instant deadline = SystemClock::Get().Now() + kDeadline;  // of the whole call
    for (const Batch& batch : batches) {
      if (slots_.size() == outstanding_ && !Collect(deadline)) return Failed();
      client::ReadPart part;
      part.ids = batch.ids.data();
      part.run_rows = static_cast<std::uint32_t>(batch.ids.size());
      part.row_limit = table_.layout().rows();
      part.out = batch.out;
      part.row_stride = row_bytes;
      slots_.push_back(
          reader_->Start({{&part, 1}, deadline, fabric::Lane::kUrgent, destination_.get()}));
    }
    while (!slots_.empty()) {
      if (!Collect(deadline)) return Failed();
    }
    return absl::OkStatus();
  }

 private:
  // The measuring loop reuses its memory, so this happens once a batch size.
  absl::Status Register(std::span<const Batch> batches) {
    const std::size_t bytes = (batches.back().ids.size() * table_.spec().RowBytes()) +
                              static_cast<std::size_t>(batches.back().out - batches.front().out);
    if (destination_ && destination_->Covers(batches.front().out, bytes)) return absl::OkStatus();
    destination_.reset();
    auto made = table_.RegisterDestination({batches.front().out, bytes});
    if (!made.ok()) return made.status();
    destination_ = *std::move(made);
    return absl::OkStatus();
  }

  bool Collect(Instant deadline) {
    const auto slot = slots_.front();
    slots_.pop_front();
    if (!reader_->Wait(slot, deadline)) return false;
    failure_ = reader_->Failure(slot);
    return reader_->Collect(slot) == 0;
  }

  absl::Status Failed() const {
    return absl::UnavailableError(absl::StrCat("row ", failure_.row.value(), ": ",
                                               std::string(Name(failure_.status)), " ",
                                               failure_.node.name));
  }

  const std::string name_;
  const client::Table& table_;
  std::unique_ptr<client::Destination> destination_;
  std::unique_ptr<client::RowReader> reader_;
  const std::uint32_t outstanding_;
  std::deque<client::RowReader::Slot> slots_;
  client::ReadFailure failure_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ReadPath>> PoolPath(std::string name, const client::Table& table,
                                                   std::uint32_t max_rows,
                                                   std::uint32_t outstanding) {
  client::RowReader::Options options;
  options.max_rows = max_rows;
  options.slots = outstanding;
  options.queue_depth = std::max(8192u, max_rows * outstanding);
  auto reader = table.OpenReader(options);
  if (!reader.ok()) return reader.status();
  return std::make_unique<Path>(std::move(name), table, *std::move(reader), outstanding);
}

}  // namespace engram::bench
