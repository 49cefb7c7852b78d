#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/part_slice.h"
#include "client/rpc/pool.h"
#include "client/rpc/table_state.h"

namespace engram::client {
namespace {

// Rows of one request of ReadRows and friends; larger ones are read in turn.
constexpr std::uint32_t kDeskRows = 24'576;
constexpr std::uint32_t kDeskParts = 64;

std::shared_ptr<const Routes> NoRoutes(std::uint32_t shards) {
  Routes::Builder::Options options;
  options.shards = shards;
  options.incomplete = true;
  return Routes::Builder(options).Build();
}

// Which of two failures a caller should hear of first.
int Weight(ReadStatus status) {
  switch (status) {
    case ReadStatus::kOk: return 0;
    case ReadStatus::kFlushed: return 1;
    case ReadStatus::kTimedOut: return 2;
    case ReadStatus::kRefused:
    case ReadStatus::kExpired: return 3;
    case ReadStatus::kUnreachable:
    case ReadStatus::kNoReplica: return 4;
    case ReadStatus::kInvalid: return 5;
    case ReadStatus::kCorrupt: return 6;
  }
  return 0;
}

}  // namespace

Table::State::State(std::shared_ptr<PoolCore> pool, TableRecord table, TableName as)
    : core(std::move(pool)),
      record(std::move(table)),
      asked(std::move(as)),
      read_table(std::make_shared<ReadTable>(record.uid, record.spec, record.options)),
      board(core->quiescence(), NoRoutes(read_table->layout.shards())) {}

Table::State::~State() {
  core->heat().Remove(this);
  core->RemoveTable(&board);
}

RowReader::Options Table::State::ReaderOptions(RowReader::Options options) {
  options.table = read_table;
  options.board = &board;
  options.fabrics = core->fabrics();
  options.clock = &SystemClock::Get();
  options.counters = std::make_shared<ReadCounters>();
  options.heat = std::make_shared<ReadHeat>(read_table->layout.shards());
  MutexLock lock(&mutex);
  counters.push_back(options.counters);
  heats.push_back(options.heat);
  return options;
}

TakenHeat Table::State::TakeHeat() {
  TakenHeat taken;
  taken.table = record.uid;
  taken.name = record.name.name;
  taken.asked = asked.version;
  MutexLock lock(&mutex);
  for (const auto& heat : heats) heat->Take(&taken.shards, &taken.ngrams);
  // Those of readers that are gone.
  std::erase_if(heats, [](const auto& heat) { return heat.use_count() == 1; });
  return taken;
}

absl::StatusOr<std::unique_ptr<Table::State::Desk>> Table::State::Take() {
  {
    MutexLock lock(&mutex);
    if (!desks.empty()) {
      auto desk = std::move(desks.back());
      desks.pop_back();
      return desk;
    }
  }
  RowReader::Options options;
  options.max_rows = kDeskRows;
  options.max_parts = kDeskParts;
  options.slots = 1;
  options.wait = core->options().wait;
  auto reader = RowReader::Open(ReaderOptions(options));
  if (!reader.ok()) return reader.status();
  auto desk = std::make_unique<Desk>();
  desk->reader = *std::move(reader);
  return desk;
}

void Table::State::GiveBack(std::unique_ptr<Desk> desk) {
  MutexLock lock(&mutex);
  desks.push_back(std::move(desk));
}

absl::Status Table::State::Read(Desk& desk, std::span<const ReadPart> parts, Instant deadline) {
  ReadRequest request;
  request.parts = parts;
  request.deadline = deadline;
  RowReader& reader = *desk.reader;
  const RowReader::Slot slot = reader.Start(request);
  if (slot < 0)
    return absl::InternalError("a reader of this library refused a request of its own size");
  // The reader ends the request at its deadline by itself.
  while (!reader.Wait(slot, deadline + std::chrono::seconds(1))) {
  }
  const ReadFailure failure = reader.Failure(slot);
  if (reader.Collect(slot) == 0) return absl::OkStatus();
  const ReadPart* worst_part = nullptr;
  std::size_t worst_position = 0;
  ReadStatus worst = ReadStatus::kOk;
  for (const ReadPart& part : parts) {
    const std::size_t rows = std::size_t{part.runs} * part.run_rows;
    for (std::size_t i = 0; i < rows; ++i) {
      if (Weight(part.row_status[i]) <= Weight(worst)) continue;
      worst = part.row_status[i];
      worst_part = &part;
      worst_position = i;
    }
  }
  return Explain({worst, RowId(IdAt(*worst_part, worst_position) + worst_part->first_row),
                  worst_part->first_row, worst_part->row_limit},
                 failure);
}

// By the numbers that the caller counts in.
absl::Status Table::State::NoSuchRow(const WorstRow& worst) const {
  std::string where = absl::StrCat("table ", record.name.Full());
  const std::vector<std::uint32_t>& layers = record.spec.addressing.layers;
  for (std::size_t i = 0; i < layers.size() && layers.size() > 1; ++i) {
    if (record.spec.LayerFirstRow(layers[i]) == worst.first_row &&
        record.spec.LayerRows(layers[i]) == worst.row_limit)
      where = absl::StrCat("layer index ", i, " of ", where);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no row ", worst.row.value() - worst.first_row, ": ", where,
                   " has rows 0 to ", worst.row_limit == 0 ? 0 : worst.row_limit - 1));
}

absl::Status Table::State::Explain(const WorstRow& worst, const ReadFailure& failure) const {
  if (worst.status == ReadStatus::kInvalid) return NoSuchRow(worst);
  const std::string what =
      absl::StrCat("row ", worst.row.value(), " of table ", record.name.Full(), " (shard ",
                   read_table->layout.Locate(worst.row).shard.value(), ")");
  std::string who;
  if (!failure.node.name.empty()) {
    who = absl::StrCat("; node ", failure.node.name, ": ", std::string(Name(failure.status)));
    const absl::Status why = core->WhyUnreachable(failure.node);
    if (!why.ok()) absl::StrAppend(&who, " (", why.message(), ")");
  } else {
    for (const ReachedNode& node : core->Nodes()) {
      if (!node.open && !node.last_error.ok())
        absl::StrAppend(&who, "; node ", node.node.name, ": ", node.last_error.message());
    }
  }
  switch (worst.status) {
    case ReadStatus::kCorrupt:
      return absl::DataLossError(
          absl::StrCat(what, " failed its seal on every replica that was asked", who));
    case ReadStatus::kTimedOut:
    case ReadStatus::kFlushed:
      return absl::DeadlineExceededError(absl::StrCat(what, " was not read in time", who));
    default:
      return absl::UnavailableError(
          absl::StrCat(what, " cannot be read: ", std::string(Name(worst.status)), who));
  }
}

Table::Table(std::unique_ptr<State> state) : state_(std::move(state)) {}
Table::~Table() = default;

const TableRecord& Table::record() const { return state_->record; }
const TableName& Table::asked() const { return state_->asked; }

std::optional<TableName> Table::State::PendingIn(const ShardMap& map) const {
  if (asked == record.name) return std::nullopt;
  const MapTable* named = map.FindAlias(asked);
  if (named == nullptr || named->uid == record.uid) return std::nullopt;
  return named->name;
}

std::optional<TableName> Table::Pending() const { return state_->PendingIn(*state_->core->map()); }
absl::StatusOr<int> Table::PendingDescriptor() const { return state_->moved.Descriptor(); }

const ShardLayout& Table::layout() const { return state_->read_table->layout; }
const Addressing* Table::addressing() const { return state_->addressing.get(); }
const TokenMap& Table::token_map() const { return state_->token_map; }

absl::Status Table::ReadParts(std::span<const ReadPart> parts, Instant deadline) {
  auto desk = state_->Take();
  if (!desk.ok()) return desk.status();
  absl::Status status;
  std::uint64_t rows = 0;
  for (const ReadPart& part : parts) rows += std::uint64_t{part.runs} * part.run_rows;
  if (rows <= kDeskRows && parts.size() <= kDeskParts) {
    status = state_->Read(**desk, parts, deadline);
  } else {
    for (const ReadPart& part : parts) {
      const std::uint32_t unit = UnitRows(part);
      const std::uint32_t units = Units(part);
      const std::uint32_t most = unit == 0 ? units : kDeskRows / unit;
      if (most == 0) {
        status = absl::InvalidArgumentError(absl::StrCat(
            "a run has ", unit, " rows; the limit of one run among several is ", kDeskRows));
        break;
      }
      for (std::uint32_t at = 0; at < units; at += std::min(most, units - at)) {
        const ReadPart slice = Slice(part, at, std::min(most, units - at));
        absl::Status one = state_->Read(**desk, {&slice, 1}, deadline);
        if (status.ok()) status = std::move(one);
      }
    }
  }
  state_->GiveBack(*std::move(desk));
  return status;
}

absl::Status Table::ReadRows(const RowsRequest& request, Instant deadline) {
  const std::size_t row_bytes = layout().row_bytes();
  if (request.out.size() != request.ids.size() * row_bytes)
    return absl::InvalidArgumentError(
        absl::StrCat("the output has ", request.out.size(), " bytes; ", request.ids.size(),
                     " rows of ", row_bytes, " bytes need ", request.ids.size() * row_bytes));
  if (!request.status.empty() && request.status.size() != request.ids.size())
    return absl::InvalidArgumentError(absl::StrCat("there are ", request.status.size(),
                                                   " places for the status of ", request.ids.size(),
                                                   " rows"));
  std::vector<ReadStatus> own(request.status.empty() ? request.ids.size() : 0);
  ReadPart part;
  part.ids = request.ids.data();
  part.run_rows = static_cast<std::uint32_t>(request.ids.size());
  part.row_limit = layout().rows();
  part.out = request.out.data();
  part.row_stride = row_bytes;
  part.row_status = request.status.empty() ? own.data() : request.status.data();
  return ReadParts({&part, 1}, deadline);
}

absl::Status Table::ReadTokens(const TokenSpan& tokens, std::span<std::byte> out,
                               std::span<ReadStatus> status, Instant deadline) {
  if (addressing() == nullptr)
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", record().name.Full(), " names no address function: read it by row ids"));
  std::vector<RowId> ids(tokens.tokens.size() * addressing()->columns());
  if (absl::Status made = addressing()->Rows(tokens, ids); !made.ok()) return made;
  return ReadRows({ids, out, status}, deadline);
}

absl::StatusOr<std::unique_ptr<RowReader>> Table::OpenReader(RowReader::Options options) const {
  return RowReader::Open(state_->ReaderOptions(std::move(options)));
}

absl::StatusOr<std::unique_ptr<SharedPrefetcher>> Table::OpenPrefetcher(
    const PrefetcherOptions& from) const {
  Prefetcher::Options options;
  options.tickets = from.steps;
  options.max_step_rows = from.max_step_rows;
  options.max_layers = Prefetcher::kMaxLayers;
  options.addressing = addressing();
  options.layers = static_cast<std::uint32_t>(spec().addressing.layers.size());
  if (spec().addressing.heads > 0) options.ngram_rows = spec().addressing.heads;
  RowReader::Options reader_options = Prefetcher::ReaderOptions();
  reader_options.split_rows = spec().planes.size() == 2;
  reader_options.wait = state_->core->options().wait;
  absl::Status cached = state_->OpenCache(from, &options, &reader_options);
  if (!cached.ok()) return cached;
  auto reader = OpenReader(reader_options);
  if (!reader.ok()) return reader.status();
  auto prefetcher = Prefetcher::Open(*std::move(reader), options);
  if (!prefetcher.ok()) return prefetcher.status();
  return SharedPrefetcher::Open(*std::move(prefetcher), from.poller);
}

absl::Status Table::Explain(const WorstRow& row, const ReadFailure& failure) const {
  return state_->Explain(row, failure);
}

absl::StatusOr<std::unique_ptr<Destination>> Table::RegisterDestination(
    std::span<std::byte> memory) const {
  return Destination::Register(state_->core->fabrics(), memory);
}

ReadTotals Table::Totals() const {
  ReadTotals totals;
  MutexLock lock(&state_->mutex);
  for (const auto& counters : state_->counters) AddTo(*counters, &totals);
  return totals;
}

TenantRate Table::RateOfTenant() const { return state_->core->heat().tenant_rate(); }

std::shared_ptr<const Routes> Table::routes() const { return state_->board.Shared(); }

std::vector<RowRoute> Table::RoutesOf(RowId row) const {
  std::vector<RowRoute> out;
  if (row.value() >= layout().rows()) return out;
  const auto routes = state_->board.Shared();
  for (const Route& route : routes->Candidates(layout().Locate(row).shard))
    out.push_back({routes->sessions()[route.session].node,
                   state_->core->fabrics()[route.fabric]->info().kind, route.path_class});
  return out;
}

}  // namespace engram::client
