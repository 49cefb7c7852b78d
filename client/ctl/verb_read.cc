// `read table NAME@VERSION --rows ... | --tokens ...`.
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/ctl/documents.h"
#include "client/ctl/known_table.h"
#include "client/ctl/nouns.h"
#include "client/ctl/number_list.h"
#include "client/ctl/open_table.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/row_output.h"
#include "client/ctl/verbs.h"

namespace engram::ctl {
namespace {

struct ReadOptions {
  std::string noun, name, rows, tokens, fabric;
  std::int64_t position = -1;
  std::uint32_t layer = 0;
  std::optional<Options> app;

  std::optional<std::uint32_t> Layer() const {
    return app->Given("--layer") ? std::optional(layer) : std::nullopt;
  }
};

// Rows of --rows: of the layer's own table where one is named, else of the whole table.
absl::StatusOr<std::vector<RowId>> RowsByNumber(const TableRecord& table,
                                                const std::vector<std::uint64_t>& numbers,
                                                std::optional<std::uint32_t> layer) {
  const std::uint64_t first = layer ? table.spec.LayerFirstRow(*layer) : 0;
  const std::uint64_t limit = layer ? table.spec.LayerRows(*layer) : table.spec.Rows();
  std::vector<RowId> rows;
  for (std::uint64_t number : numbers) {
    if (number >= limit) {
      return UsageError(absl::StrCat("--rows: there is no row ", number, " in ",
                                     layer ? absl::StrCat("layer ", *layer, " of ") : "", "table ",
                                     table.name.Full(), "; its rows are 0 to ", limit - 1));
    }
    rows.emplace_back(first + number);
  }
  return rows;
}

// Rows of the last of the tokens; of one layer where it is named.
absl::StatusOr<std::vector<RowId>> RowsByTokens(const client::Table& table,
                                                const std::vector<std::int64_t>& tokens,
                                                std::optional<std::uint32_t> layer) {
  const Addressing* addressing = table.addressing();
  if (addressing == nullptr) {
    return absl::FailedPreconditionError("table " + table.record().name.Full() +
                                         " names no address function; read it with --rows");
  }
  const std::size_t columns = addressing->columns();
  std::vector<RowId> all(tokens.size() * columns);
  if (auto status = addressing->Rows({tokens, {}, {}, {}}, all); !status.ok()) {
    return TokensError(status);
  }
  std::vector<RowId> rows;
  for (std::size_t column = 0; column < columns; ++column) {
    if (layer && table.spec().columns[column].layer != *layer) continue;
    rows.push_back(all[all.size() - columns + column]);
  }
  return rows;
}

absl::StatusOr<std::vector<RowId>> RowsOf(const ReadOptions& wanted, const client::Table& table) {
  const auto layer = wanted.Layer();
  if (layer) {
    if (auto status = CheckLayer(table.record(), *layer); !status.ok()) return status;
  }
  if (!wanted.rows.empty()) {
    const auto numbers = ParseRows("--rows", wanted.rows);
    if (!numbers.ok()) return numbers.status();
    return RowsByNumber(table.record(), *numbers, layer);
  }
  auto tokens = ParseTokens("--tokens", wanted.tokens);
  if (tokens.ok()) tokens = UpTo(*std::move(tokens), wanted.position);
  if (!tokens.ok()) return tokens.status();
  return RowsByTokens(table, *tokens, layer);
}

// What can be refused before the pool is asked.
absl::Status CheckWords(const ReadOptions& wanted) {
  if (const auto noun = ParseNoun(wanted.noun, {Noun::kTable}); !noun.ok()) return noun.status();
  if (!wanted.rows.empty() && !wanted.tokens.empty()) {
    return UsageError("--rows and --tokens both say which rows: give only one of them");
  }
  if (wanted.rows.empty() && wanted.tokens.empty()) {
    return UsageError("say which rows: give --rows 0,5,7 or --tokens 22898,19737,270");
  }
  if (!wanted.rows.empty()) return ParseRows("--rows", wanted.rows).status();
  auto tokens = ParseTokens("--tokens", wanted.tokens);
  if (tokens.ok()) tokens = UpTo(*std::move(tokens), wanted.position);
  return tokens.status();
}

void Write(const RowOutput& output, Format format, const Terminal& terminal) {
  if (format == Format::kNpy) {
    WriteNpy(output, terminal.out);
  } else if (format == Format::kHex) {
    WriteHex(output, terminal.out);
  } else {
    PrintDocument(terminal, format, RowsAsJson(output));
  }
}

absl::Status Read(const ReadOptions& wanted, const Invocation& invocation) {
  if (auto status = CheckWords(wanted); !status.ok()) return status;
  const auto format =
      ParseFormat(invocation.output, {Format::kHex, Format::kJson, Format::kYaml, Format::kNpy});
  if (!format.ok()) return format.status();
  const auto name = ParseTable(wanted.name);
  if (!name.ok()) return name.status();
  const auto limit = invocation.Timeout(std::chrono::seconds(10));
  if (!limit.ok()) return limit.status();
  const auto open = OpenForReading(invocation, *name, wanted.fabric);
  if (!open.ok()) return open.status();
  const client::Table& table = *open->table;
  const auto rows = RowsOf(wanted, table);
  if (!rows.ok()) return rows.status();

  std::vector<std::byte> bytes(rows->size() * table.layout().row_bytes());
  const absl::Status status =
      open->table->ReadRows({*rows, bytes, {}}, SystemClock::Get().Now() + *limit);
  if (!status.ok()) return status;
  const auto layer = wanted.Layer();
  const std::uint64_t first = layer ? table.spec().LayerFirstRow(*layer) : 0;
  RowOutput output{name->Full(), {}, table.layout().row_bytes(), bytes};
  for (RowId row : *rows) output.numbers.push_back(row.value() - first);
  Write(output, *format, invocation.terminal);
  return absl::OkStatus();
}

}  // namespace

Action DeclareRead(Options app) {
  auto wanted = std::make_shared<ReadOptions>();
  wanted->app = app;
  app.Word("NOUN", &wanted->noun, "table");
  app.Word("NAME", &wanted->name, "NAME@VERSION");
  app.Text("--rows", &wanted->rows, "Row numbers: of the --layer, else of the whole table");
  app.Text("--tokens", &wanted->tokens, "Raw token ids, oldest first: the rows of one of them");
  app.Number("--position", &wanted->position, "Which of the tokens; -1 is the last (-1)");
  app.Number("--layer", &wanted->layer, "Only this layer; rows are numbered inside it");
  app.Text("--fabric", &wanted->fabric, "Read over mapped, stream, ofi or ucx only (auto)");
  return [wanted](const Invocation& invocation) { return Read(*wanted, invocation); };
}

}  // namespace engram::ctl
