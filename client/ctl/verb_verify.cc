// `verify table NAME@VERSION [--checkpoint DIR] [--sample N]`: reads rows through the client
// library, as an engine would, and compares every byte with where the table came from.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/nouns.h"
#include "client/ctl/open_table.h"
#include "client/ctl/outcome.h"
#include "client/ctl/row_judge.h"
#include "client/ctl/units.h"
#include "client/ctl/verbs.h"
#include "engram/random.h"
#include "engram/sealed_row.h"
#include "engram/settings/units.h"

namespace engram::ctl {
namespace {

constexpr std::uint64_t kBatchRows = 16 * kBlockRows;
constexpr std::uint64_t kShownWrong = 5;

struct VerifyOptions {
  std::string noun, name, checkpoint, fabric;
  std::uint64_t sample = 0, seed = 1;
  std::optional<Options> app;
};

// Compares batch after batch, and keeps the score.
class Comparison {
 public:
  Comparison(client::Table& table, const RowJudge& judge, Duration limit, const Terminal& terminal)
      : table_(table),
        judge_(judge),
        limit_(limit),
        terminal_(terminal),
        progress_(terminal),
        row_bytes_(table.layout().row_bytes()),
        start_(std::chrono::steady_clock::now()) {}

  // Every row, column by column; computes the content digest on the way.
  absl::Status All() {
    std::uint64_t first = 0;
    for (const Column& column : table_.spec().columns) {
      // Blocks are counted from the start of each column: no batch crosses into the next.
      for (std::uint64_t at = 0; at < column.rows; at += kBatchRows) {
        std::vector<RowId> rows(std::min(kBatchRows, column.rows - at));
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = RowId(first + at + i);
        std::vector<std::byte> expected(rows.size() * row_bytes_);
        if (auto status = judge_.Expected(rows.front(), expected); !status.ok()) return status;
        if (auto status = Compare(rows, expected); !status.ok()) return status;
        AddBlocks();
      }
      first += column.rows;
    }
    digest_ = Sha256Hex(block_crcs_);
    return absl::OkStatus();
  }

  absl::Status Sample(std::uint64_t count, std::uint64_t seed) {
    SeededRandom random(seed);
    for (std::uint64_t done = 0; done < count; done += kBatchRows) {
      std::vector<RowId> rows(std::min(kBatchRows, count - done));
      for (RowId& row : rows) row = RowId(random.Below(table_.layout().rows()));
      std::vector<std::byte> expected(rows.size() * row_bytes_);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto one = std::span(expected).subspan(i * row_bytes_, row_bytes_);
        if (auto status = judge_.Expected(rows[i], one); !status.ok()) return status;
      }
      if (auto status = Compare(rows, expected); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::uint64_t compared() const { return compared_; }
  std::uint64_t wrong() const { return wrong_; }
  const std::string& digest() const { return digest_; }

 private:
  absl::Status Compare(const std::vector<RowId>& rows, const std::vector<std::byte>& expected) {
    bytes_.resize(expected.size());
    const Instant deadline = SystemClock::Get().Now() + limit_;
    if (auto status = table_.ReadRows({rows, bytes_, {}}, deadline); !status.ok()) {
      return Annotated(status, absl::StrCat("after ", compared_, " rows"));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::byte* got = bytes_.data() + i * row_bytes_;
      const std::byte* want = expected.data() + i * row_bytes_;
      if (std::memcmp(got, want, row_bytes_) == 0) continue;
      if (++wrong_ <= kShownWrong) ShowWrong(rows[i], got, want);
    }
    compared_ += rows.size();
    ShowProgress();
    return absl::OkStatus();
  }

  void ShowWrong(RowId row, const std::byte* got, const std::byte* want) {
    std::size_t at = 0;
    while (got[at] == want[at]) ++at;
    progress_.Clear();
    terminal_.err << "row " << row.value() << " is wrong from byte " << at << " on: read "
                  << std::to_integer<int>(got[at]) << ", expected "
                  << std::to_integer<int>(want[at]) << '\n';
  }

  void ShowProgress() {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const auto rate = static_cast<std::uint64_t>(seconds > 0 ? compared_ / seconds : 0);
    progress_.Show(absl::StrCat(HumanCount(compared_), " rows compared, ", wrong_, " wrong, ",
                                HumanCount(rate), " rows/s"));
  }

  // CRC32C of each block of the batch that was just read, as the pool defines its digest.
  void AddBlocks() {
    for (std::size_t at = 0; at < bytes_.size(); at += kBlockRows * row_bytes_) {
      const std::size_t size = std::min<std::size_t>(kBlockRows * row_bytes_, bytes_.size() - at);
      const std::uint32_t crc = Crc32c(0, bytes_.data() + at, size);
      for (int shift = 0; shift < 32; shift += 8) {
        block_crcs_.push_back(static_cast<char>(crc >> shift & 255));
      }
    }
  }

  client::Table& table_;
  const RowJudge& judge_;
  const Duration limit_;
  const Terminal& terminal_;
  Progress progress_;
  const std::uint32_t row_bytes_;
  const std::chrono::steady_clock::time_point start_;
  std::vector<std::byte> bytes_;
  std::string block_crcs_;  // little-endian
  std::string digest_;
  std::uint64_t compared_ = 0;
  std::uint64_t wrong_ = 0;
};

absl::Status Judge(const Comparison& comparison, const RowJudge& judge, const TableRecord& table,
                   const Terminal& terminal) {
  terminal.out << "table/" << table.name.Full() << ": " << HumanCount(comparison.compared())
               << " rows compared with " << judge.Name() << ", " << comparison.wrong()
               << " wrong\ncontent digest " << table.content_digest;
  const bool recomputed = !comparison.digest().empty();
  const bool equal = comparison.digest() == table.content_digest;
  terminal.out << (!recomputed ? " (not recomputed: only a sample was read)"
                   : equal     ? " (recomputed: equal)"
                               : " (recomputed: DIFFERENT, " + comparison.digest() + ")")
               << '\n';
  if (comparison.wrong() > 0) {
    return absl::DataLossError(absl::StrCat("the pool served ", comparison.wrong(), " of ",
                                            comparison.compared(), " rows wrongly"));
  }
  if (recomputed && !equal) {
    return absl::DataLossError(
        "the rows that were read have another content digest than the table");
  }
  return absl::OkStatus();
}

absl::Status Verify(const VerifyOptions& wanted, const Invocation& invocation) {
  if (const auto noun = ParseNoun(wanted.noun, {Noun::kTable}); !noun.ok()) return noun.status();
  const auto name = ParseTable(wanted.name);
  if (!name.ok()) return name.status();
  if (wanted.app->Given("--sample") && wanted.sample == 0) {
    return UsageError("--sample is 0; give the number of rows to compare, or leave it out for all");
  }
  const auto limit = invocation.Timeout(std::chrono::seconds(30));
  if (!limit.ok()) return limit.status();
  const auto open = OpenForReading(invocation, *name, wanted.fabric);
  if (!open.ok()) return open.status();
  const TableRecord& record = open->table->record();
  const auto judge = RowJudge::Open(record, wanted.checkpoint);
  if (!judge.ok()) return judge.status();
  Comparison comparison(*open->table, **judge, *limit, invocation.terminal);
  const absl::Status compared =
      wanted.sample == 0 ? comparison.All() : comparison.Sample(wanted.sample, wanted.seed);
  if (!compared.ok()) return compared;
  return Judge(comparison, **judge, record, invocation.terminal);
}

}  // namespace

Action DeclareVerify(Options app) {
  auto wanted = std::make_shared<VerifyOptions>();
  wanted->app = app;
  app.Word("NOUN", &wanted->noun, "table");
  app.Word("NAME", &wanted->name, "NAME@VERSION");
  app.Text("--checkpoint", &wanted->checkpoint,
           "Compare with this directory (default: where the table came from)");
  app.Number("--sample", &wanted->sample, "Compare so many random rows instead of all");
  app.Number("--seed", &wanted->seed, "Which random rows (1)");
  app.Text("--fabric", &wanted->fabric, "Read over mapped, stream, ofi or ucx only (auto)");
  return [wanted](const Invocation& invocation) { return Verify(*wanted, invocation); };
}

}  // namespace engram::ctl
