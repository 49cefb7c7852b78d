// `top shards|tables|clients|ngrams [NAME@VERSION]`: what is read most.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cache/hot_file.h"
#include "client/ctl/documents.h"
#include "client/ctl/nouns.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/units.h"
#include "client/ctl/verbs.h"
#include "client/ctl/words.h"
#include "engram/settings/units.h"

namespace engram::ctl {
namespace {

struct TopOptions {
  std::string noun, table, file;
  std::uint32_t limit = 20;
};

std::string RowsASecond(double rate) { return absl::StrFormat("%.1f", rate); }

TextTable ShardsTable(const v1::GetHeatResponse& heat) {
  TextTable out({{"NAME"}, {"READS/S", false, true}, {"SHARE", false, true}, {"NODES"}});
  for (const auto& shard : heat.shards()) {
    out.Add({absl::StrCat(shard.table_name(), "/", shard.shard()),
             RowsASecond(shard.reads_per_second()),
             absl::StrFormat("%.1f%%", 100 * shard.reads_per_second() / heat.reads_per_second()),
             absl::StrJoin(shard.nodes(), ",")});
  }
  return out;
}

TextTable TablesTable(const v1::GetHeatResponse& heat) {
  TextTable out({{"NAME"},
                 {"READS/S", false, true},
                 {"BYTES/S", false, true},
                 {"SHARDS", false, true},
                 {"NODES", false, true}});
  for (const auto& table : heat.tables()) {
    out.Add({table.table_name(), RowsASecond(table.reads_per_second()),
             RoundSize(static_cast<std::uint64_t>(table.bytes_per_second())),
             absl::StrCat(table.shards_read()), absl::StrCat(table.nodes())});
  }
  return out;
}

TextTable ClientsTable(const v1::GetHeatResponse& heat) {
  TextTable out({{"NAME"},
                 {"TENANT"},
                 {"READS/S", false, true},
                 {"PROCESSES", false, true},
                 {"AGE", false, true}});
  for (const auto& client : heat.clients()) {
    out.Add({client.client(), client.tenant(), RowsASecond(client.reads_per_second()),
             absl::StrCat(client.processes()),
             HumanAge(client.last_report_unix_ms(), NowUnixMs())});
  }
  return out;
}

TextTable NgramsTable(const v1::GetHeatResponse& heat) {
  TextTable out({{"TABLE"}, {"READS/S", false, true}, {"ROWS"}});
  for (const auto& ngram : heat.ngrams()) {
    out.Add({ngram.table_name(), RowsASecond(ngram.reads_per_second()),
             absl::StrJoin(ngram.rows(), ",")});
  }
  return out;
}

// The file that `pinned_file` of a prefetcher reads. Counts are reads in a thousand seconds.
absl::Status WritePinned(const v1::GetHeatResponse& heat, const TopOptions& options,
                         const Terminal& terminal) {
  if (heat.ngrams().empty()) {
    return absl::NotFoundError(absl::StrCat("no n-gram of ", options.table,
                                            " was reported by a client yet; nothing is written"));
  }
  std::vector<client::HotNgram> ngrams;
  for (const auto& ngram : heat.ngrams()) {
    client::HotNgram& one = ngrams.emplace_back();
    one.hits = static_cast<std::uint64_t>(1'000 * ngram.reads_per_second() + 1);
    for (const std::uint64_t row : ngram.rows()) one.ids.push_back(RowId(row));
  }
  const absl::Status written =
      client::WriteHotFile(options.file, heat.ngrams(0).spec_digest(), ngrams);
  if (written.ok()) terminal.err << ngrams.size() << " n-grams written to " << options.file << '\n';
  return written;
}

absl::Status Top(const TopOptions& options, const Invocation& invocation) {
  const std::vector<std::string> nouns = {"shards", "tables", "clients", "ngrams"};
  std::string noun = options.noun;
  if (!noun.empty() && noun.back() != 's') noun.push_back('s');
  if (std::find(nouns.begin(), nouns.end(), noun) == nouns.end()) {
    return UsageError(UnknownWord("noun", options.noun, nouns));
  }
  const auto format =
      ParseFormat(invocation.output, {Format::kTable, Format::kWide, Format::kJson, Format::kYaml});
  if (!format.ok()) return format.status();
  if (!options.file.empty() && (noun != "ngrams" || options.table.empty())) {
    return UsageError("--write needs `top ngrams NAME@VERSION`: the file is of one table");
  }
  v1::GetHeatRequest request;
  request.set_limit(options.limit);
  if (!options.table.empty()) {
    const auto table = ParseTable(options.table);
    if (!table.ok()) return table.status();
    request.set_name(table->name);
    request.set_version(table->version);
  }
  const auto pool = invocation.Pool();
  if (!pool.ok()) return pool.status();
  const auto heat = pool->Heat(request);
  if (!heat.ok()) return heat.status();
  if (!options.file.empty()) return WritePinned(*heat, options, invocation.terminal);
  if (*format == Format::kJson || *format == Format::kYaml) {
    PrintDocument(invocation.terminal, *format, ToJson(*heat));
    return absl::OkStatus();
  }
  const TextTable table = noun == "shards"    ? ShardsTable(*heat)
                          : noun == "tables"  ? TablesTable(*heat)
                          : noun == "clients" ? ClientsTable(*heat)
                                              : NgramsTable(*heat);
  if (table.rows() == 0) {
    invocation.terminal.err << "no " << noun << ": no client has reported reads yet\n";
    return absl::OkStatus();
  }
  table.Print(invocation.terminal.out, *format == Format::kWide);
  return absl::OkStatus();
}

}  // namespace

Action DeclareTop(Options app) {
  auto options = std::make_shared<TopOptions>();
  app.Word("NOUN", &options->noun, "shards, tables, clients or ngrams");
  app.OptionalWord("NAME", &options->table, "Only this table, as NAME@VERSION");
  app.Number("--limit", &options->limit, "How many (20)");
  app.Text("--write", &options->file, "ngrams: write the file that pinned_file of a client reads");
  return [options](const Invocation& invocation) { return Top(*options, invocation); };
}

}  // namespace engram::ctl
