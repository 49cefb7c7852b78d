#include "bench/driver/timed_step.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "engram/synthetic.h"

namespace engram::bench {
namespace {

constexpr Duration kTimedStepDeadline = std::chrono::seconds(10);

client::Step TwoLayers(std::span<const RowId> ids, std::byte* out, const TableShape& shape,
                       std::array<client::StepLayer, TimedStep::kLayers>* layers) {
  const std::size_t half = ids.size() / TimedStep::kLayers;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    client::ReadPart& part = (*layers)[i].rows;
    part = client::ReadPart();
    part.ids = ids.data() + i * half;
    part.run_rows = static_cast<std::uint32_t>(half);
    part.row_limit = shape.rows;
    part.out = out + i * half * shape.row_bytes;
    part.row_stride = shape.row_bytes;
  }
  client::Step step;
  step.layers = *layers;
  step.deadline = SystemClock::Get().Now() + kTimedStepDeadline;
  return step;
}

absl::Status Outcome(client::SharedPrefetcher& prefetcher, client::Ticket ticket) {
  if (prefetcher.AllReady(ticket)) return absl::OkStatus();
  for (std::uint32_t layer = 0; layer < TimedStep::kLayers; ++layer) {
    const auto outcome = prefetcher.OutcomeOf(ticket, layer);
    if (outcome.state == client::LayerState::kReady) continue;
    return absl::UnavailableError(absl::StrCat("layer ", layer, " failed: row ",
                                               outcome.worst.row.value(), " ",
                                               std::string(Name(outcome.worst.status))));
  }
  return absl::OkStatus();
}

class PrefetchedPath final : public ReadPath {
 public:
  PrefetchedPath(std::string name, const client::Table& table,
                 std::unique_ptr<client::SharedPrefetcher> prefetcher)
      : name_(std::move(name)),
        shape_{table.layout().rows(), table.spec().RowBytes(), 0},
        prefetcher_(std::move(prefetcher)) {}
  const std::string& name() const override { return name_; }

  absl::Status Read(std::span<const Batch> batches) override {
    std::array<client::StepLayer, TimedStep::kLayers> layers;
    for (const Batch& batch : batches) {
      client::Ticket ticket;
      const client::Step step = TwoLayers(batch.ids, batch.out, shape_, &layers);
      if (absl::Status ok = prefetcher_->Submit(step, &ticket); !ok.ok()) return ok;
      prefetcher_->WaitAll(ticket, step.deadline);
      if (absl::Status ok = Outcome(*prefetcher_, ticket); !ok.ok()) return ok;
      prefetcher_->Release(ticket);
    }
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const TableShape shape_;
  const std::unique_ptr<client::SharedPrefetcher> prefetcher_;
};

}  // namespace

TimedStep::TimedStep(client::SharedPrefetcher* prefetcher, const TableShape& shape,
                     client::StepKind kind, std::uint32_t layer_rows, std::uint64_t seed)
    : prefetcher_(prefetcher),
      shape_(shape),
      kind_(kind),
      random_(seed),
      ids_(std::size_t{layer_rows} * kLayers),
      expected_(shape.row_bytes) {}

absl::StatusOr<std::unique_ptr<TimedStep>> TimedStep::Open(
    const client::Table& table, client::SharedPrefetcher* prefetcher, const TableShape& shape,
    client::StepKind kind, std::uint32_t layer_rows, std::uint64_t seed) {
  auto step = std::unique_ptr<TimedStep>(new TimedStep(prefetcher, shape, kind, layer_rows, seed));
  auto out = fabric::HostBuffer::Create(step->ids_.size() * shape.row_bytes);
  if (!out.ok()) return out.status();
  step->out_ = *std::move(out);
  auto destination = table.RegisterDestination(step->out_.bytes());
  if (!destination.ok()) return destination.status();
  step->destination_ = *std::move(destination);
  return step;
}

void TimedStep::Draw() {
  for (RowId& id : ids_) id = RowId(random_.Below(shape_.rows));
}

absl::Status TimedStep::Submit(Duration window) {
  std::array<client::StepLayer, kLayers> layers;
  client::Step step = TwoLayers(ids_, out_.bytes().data(), shape_, &layers);
  step.kind = kind_;
  step.destination = destination_.get();
  layers[0].needed_by = step.deadline - kTimedStepDeadline + window;
  return prefetcher_->Submit(step, &ticket_);
}

absl::Status TimedStep::Wait(bool all) {
  const Instant until = SystemClock::Get().Now() + 2 * kTimedStepDeadline;
  if (!all) {
    prefetcher_->Wait(ticket_, 0, until);
    return absl::OkStatus();
  }
  prefetcher_->WaitAll(ticket_, until);
  return Outcome(*prefetcher_, ticket_);
}

absl::Status TimedStep::Finish() {
  prefetcher_->Release(ticket_);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    FillSyntheticRow(shape_.seed, ids_[i], expected_);
    if (std::memcmp(expected_.data(), out_.bytes().data() + i * shape_.row_bytes,
                    shape_.row_bytes) != 0)
      return absl::DataLossError(absl::StrCat("row ", ids_[i].value(), " was read wrong"));
  }
  rows_verified_ += ids_.size();
  return absl::OkStatus();
}

absl::StatusOr<Duration> TimedStep::Run(Duration window) {
  Draw();
  const Instant begin = SystemClock::Get().Now();
  if (absl::Status ok = Submit(window); !ok.ok()) return ok;
  if (absl::Status ok = WaitAll(); !ok.ok()) return ok;
  const Duration took = SystemClock::Get().Now() - begin;
  if (absl::Status ok = Finish(); !ok.ok()) return ok;
  return took;
}

absl::StatusOr<std::unique_ptr<ReadPath>> StepPath(std::string name, const client::Table& table) {
  auto prefetcher = table.OpenPrefetcher({});
  if (!prefetcher.ok()) return prefetcher.status();
  return std::make_unique<PrefetchedPath>(std::move(name), table, *std::move(prefetcher));
}

}  // namespace engram::bench
