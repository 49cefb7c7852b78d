#include "bench/driver/step_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engram/poison.h"
#include "engram/synthetic.h"

namespace engram::bench {

absl::StatusOr<std::unique_ptr<StepReader>> StepReader::Open(client::Table* table,
                                                             std::uint64_t table_seed,
                                                             std::uint32_t max_tokens,
                                                             Duration deadline) {
  if (table->addressing() == nullptr) {
    return absl::FailedPreconditionError("the table names no address function; a replay needs one");
  }
  auto step = std::unique_ptr<StepReader>(new StepReader(table, table_seed, deadline));
  step->columns_ = table->addressing()->columns();
  step->row_bytes_ = table->spec().RowBytes();
  step->poison_ = PoisonRow(table->spec());
  step->expected_.resize(step->row_bytes_);
  const std::uint64_t rows = std::uint64_t{max_tokens} * step->columns_;
  auto out = fabric::HostBuffer::Create(rows * step->row_bytes_);
  if (!out.ok()) return out.status();
  step->out_ = *std::move(out);
  auto destination = table->RegisterDestination(step->out_.bytes());
  if (!destination.ok()) return destination.status();
  step->destination_ = *std::move(destination);
  step->ids_.resize(rows);
  step->statuses_.resize(rows);
  client::RowReader::Options options;
  options.max_rows = kPieceTokens * step->columns_;
  options.slots = kSlots;
  auto reader = table->OpenReader(options);
  if (!reader.ok()) return reader.status();
  step->reader_ = *std::move(reader);
  return step;
}

absl::StatusOr<StepOutcome> StepReader::Read(const Step& step) {
  StepOutcome outcome;
  const Clock& clock = SystemClock::Get();
  const Instant begin = clock.Now();
  tokens_ = step.tokens;
  if (absl::Status addressed = Address(step); !addressed.ok()) return addressed;
  const Instant deadline = begin + deadline_;
  for (std::uint32_t first = 0; first < tokens_; first += kPieceTokens) {
    if (outstanding_.size() == kSlots) CollectOldest(outcome);
    Start(first, std::min(kPieceTokens, tokens_ - first), deadline);
  }
  while (!outstanding_.empty()) CollectOldest(outcome);
  outcome.took = clock.Now() - begin;
  Judge(outcome);
  CountNodes();
  return outcome;
}

absl::Status StepReader::Address(const Step& step) {
  std::size_t at = 0;
  for (const StepPart& part : step.parts) {
    const std::span<RowId> out{ids_.data() + at, part.tokens.size() * columns_};
    if (absl::Status ok = table_->addressing()->Rows({part.tokens, {}, part.lookback, {}}, out);
        !ok.ok())
      return ok;
    at += out.size();
  }
  return absl::OkStatus();
}

void StepReader::Start(std::uint32_t first_token, std::uint32_t tokens, Instant deadline) {
  const std::size_t first = std::size_t{first_token} * columns_;
  const std::uint32_t layers = static_cast<std::uint32_t>(table_->spec().addressing.layers.size());
  const std::uint32_t layer_columns = columns_ / layers;
  std::vector<client::ReadPart> parts(layers);
  std::size_t status_at = first;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    client::ReadPart& part = parts[layer];
    part.ids = ids_.data() + first + layer * layer_columns;
    part.runs = tokens;
    part.run_rows = layer_columns;
    part.run_id_stride = columns_;
    part.row_limit = table_->spec().Rows();
    part.out = out_.bytes().data() + (first + layer * layer_columns) * row_bytes_;
    part.row_stride = row_bytes_;
    part.run_stride = std::size_t{columns_} * row_bytes_;
    part.row_status = statuses_.data() + status_at;
    status_at += std::size_t{tokens} * layer_columns;
  }
  outstanding_.push_back(
      reader_->Start({parts, deadline, fabric::Lane::kUrgent, destination_.get()}));
}

void StepReader::CollectOldest(StepOutcome& outcome) {
  const auto slot = outstanding_.front();
  outstanding_.erase(outstanding_.begin());
  while (!reader_->Wait(slot, SystemClock::Get().Now() + std::chrono::seconds(1))) {
  }
  if (const client::ReadFailure& failure = reader_->Failure(slot);
      failure.status != ReadStatus::kOk && outcome.failure.empty()) {
    outcome.failure =
        absl::StrCat("row ", failure.row.value(), " failed: ", std::string(Name(failure.status)),
                     failure.node.name.empty() ? "" : " on node ", failure.node.name);
  }
  outcome.rows_failed += reader_->Collect(slot);
}

// Statuses lie piece by piece and, inside a piece, layer by layer; rows lie [token][column].
void StepReader::Judge(StepOutcome& outcome) {
  const std::uint32_t layers = static_cast<std::uint32_t>(table_->spec().addressing.layers.size());
  const std::uint32_t layer_columns = columns_ / layers;
  std::size_t status_at = 0;
  std::uint64_t failed = 0;
  for (std::uint32_t first = 0; first < tokens_; first += kPieceTokens) {
    const std::uint32_t tokens = std::min(kPieceTokens, tokens_ - first);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      for (std::uint32_t i = 0; i < tokens * layer_columns; ++i) {
        const std::size_t row = std::size_t{first + i / layer_columns} * columns_ +
                                layer * layer_columns + i % layer_columns;
        const std::byte* bytes = out_.bytes().data() + row * row_bytes_;
        const bool ok = statuses_[status_at++] == ReadStatus::kOk;
        failed += ok ? 0 : 1;
        if (ok) FillSyntheticRow(table_seed_, ids_[row], expected_);
        const bool right =
            std::memcmp(bytes, ok ? expected_.data() : poison_.data(), row_bytes_) == 0;
        outcome.rows_wrong += right ? 0 : 1;
        outcome.rows_verified += ok && right ? 1 : 0;
      }
    }
  }
  const std::uint64_t rows = std::uint64_t{tokens_} * columns_;
  outcome.rows_ok = rows - failed;
  if (failed != outcome.rows_failed) outcome.rows_wrong += rows;  // statuses and counts must agree
  sorted_.clear();
  for (std::size_t i = 0; i < rows; ++i) sorted_.push_back(ids_[i].value());
  std::sort(sorted_.begin(), sorted_.end());
  outcome.rows_distinct =
      static_cast<std::uint64_t>(std::unique(sorted_.begin(), sorted_.end()) - sorted_.begin());
}

void StepReader::CountNodes() {
  const auto routes = table_->routes();
  std::vector<std::uint64_t> counts(routes->sessions().size());
  for (std::size_t i = 0; i < std::size_t{tokens_} * columns_; ++i) {
    const client::Route* route = routes->Best(table_->layout().Locate(ids_[i]).shard);
    if (route != nullptr) ++counts[route->session];
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) rows_by_node_[routes->sessions()[i].node.name] += counts[i];
  }
}

}  // namespace engram::bench
