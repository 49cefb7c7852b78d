#include "client/abi/arguments.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <tuple>

#include "client/part_slice.h"

namespace engram::client::abi {
namespace {

constexpr Duration kMaxTimeout = std::chrono::hours(24 * 365);
// Until another controller leads: its predecessor's lease and margin, and a try or two.
constexpr Duration kElectionTimeout = std::chrono::seconds(15);

absl::Status Invalid(const std::string& what) { return absl::InvalidArgumentError(what); }

// Nanoseconds of the caller; 0 = `fallback`.
Duration TakeDuration(std::uint64_t ns, Duration fallback) {
  if (ns == 0) return fallback;
  return ns > static_cast<std::uint64_t>(kMaxTimeout.count())
             ? kMaxTimeout
             : Duration(static_cast<Duration::rep>(ns));
}

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    std::string one = list.substr(at, comma - at);
    one.erase(0, one.find_first_not_of(" \t"));
    one.erase(one.find_last_not_of(" \t\r\n") + 1);
    if (!one.empty()) out.push_back(std::move(one));
    at = comma + 1;
  }
  return out;
}

// The context is a small YAML file of `key: value` lines that engramctl writes.
std::string EndpointOfContext(const std::string& path) {
  std::ifstream file(path);
  const std::string key = "endpoint:";
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    std::string value = line.substr(key.size());
    std::erase_if(value, [](char c) { return c == '"' || c == '\'' || c == ' '; });
    return value;
  }
  return "";
}

// Ids of [first, last] of the caller that name no row.
template <class Id>
absl::Status CheckIds(const TableShape& shape, const Id* ids, std::size_t count,
                      std::uint64_t limit, std::int32_t layer) {
  Id largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, ids[i]);
  if (static_cast<std::uint64_t>(largest) < limit || count == 0) return absl::OkStatus();
  const std::size_t at = static_cast<std::size_t>(std::find(ids, ids + count, largest) - ids);
  return Invalid(absl::StrCat("ids[", at, "] is ", largest, "; ",
                              layer < 0
                                  ? absl::StrCat("table ", shape.name)
                                  : absl::StrCat("layer index ", layer, " of table ", shape.name),
                              " has rows 0 to ", limit == 0 ? 0 : limit - 1));
}

}  // namespace

absl::Status CheckStructSize(const char* what, std::size_t struct_size) {
  // Every version of every struct ends on a multiple of its alignment; another size would give us
  // half a pointer.
  if (struct_size >= sizeof(std::size_t) && struct_size <= kMaxStructBytes &&
      struct_size % alignof(void*) == 0) {
    return absl::OkStatus();
  }
  return Invalid(absl::StrCat(what, "->struct_size is ", struct_size,
                              ": set it to sizeof the struct (a multiple of ", alignof(void*), ", ",
                              sizeof(std::size_t), " to ", kMaxStructBytes, ")"));
}

absl::StatusOr<std::string> TakeName(const char* what, const char* given) {
  if (given == nullptr) return Invalid(absl::StrCat(what, " is NULL"));
  const std::size_t bytes = strnlen(given, kMaxNameBytes + 1);
  if (bytes > kMaxNameBytes)
    return Invalid(absl::StrCat(what, " is longer than ", kMaxNameBytes, " bytes"));
  return std::string(given, bytes);
}

std::string ContextFile() {
  if (const char* path = std::getenv("ENGRAM_CONTEXT")) return path;
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "" : home, "/.config/engram/context.yaml");
}

absl::StatusOr<PoolOptions> TakePoolOptions(const engram_pool_options* given,
                                            const char* environment,
                                            const std::string& context_file) {
  engram_pool_options ours{};
  if (absl::Status status = TakeStruct("options", given, true, &ours); !status.ok()) return status;
  PoolOptions out;
  std::string endpoints;
  if (ours.endpoints != nullptr) {
    auto named = TakeName("options->endpoints", ours.endpoints);
    if (!named.ok()) return named.status();
    endpoints = *named;
  } else if (environment != nullptr && *environment != '\0') {
    endpoints = environment;
  } else {
    endpoints = EndpointOfContext(context_file);
  }
  out.endpoints = Split(endpoints);
  if (ours.client_name != nullptr) {
    auto name = TakeName("options->client_name", ours.client_name);
    if (!name.ok()) return name.status();
    out.client_name = *name;
  }
  if (ours.tenant != nullptr) {
    auto tenant = TakeName("options->tenant", ours.tenant);
    if (!tenant.ok()) return tenant.status();
    out.tenant = *tenant;
  }
  if (ours.fabric != nullptr) {
    auto fabric = TakeName("options->fabric", ours.fabric);
    if (!fabric.ok()) return fabric.status();
    if (*fabric != "auto") {
      auto kind = ParseFabricKind(*fabric);
      if (!kind.ok()) return kind.status();
      out.fabric = *kind;
    }
  }
  if (out.endpoints.size() > 1) out.connect_timeout = kElectionTimeout;
  out.connect_timeout = TakeDuration(ours.connect_timeout_ns, out.connect_timeout);
  if (ours.spin_ns == UINT64_MAX) {
    out.wait.spin = Duration::max();
  } else {
    out.wait.spin = TakeDuration(ours.spin_ns, out.wait.spin);
  }
  return out;
}

absl::Status TakeTlsFiles(const engram_tls_files* given, PoolOptions* options) {
  engram_tls_files ours{};
  if (absl::Status status = TakeStruct("tls", given, true, &ours); !status.ok()) return status;
  for (const auto& [what, name, path] : {std::tuple{"tls->cert", ours.cert, &options->tls_cert},
                                         std::tuple{"tls->key", ours.key, &options->tls_key},
                                         std::tuple{"tls->ca", ours.ca, &options->tls_ca}}) {
    if (name == nullptr) continue;
    auto taken = TakeName(what, name);
    if (!taken.ok()) return taken.status();
    *path = *taken;
  }
  return absl::OkStatus();
}

absl::StatusOr<OpenTableOptions> TakeTableOptions(const engram_table_options* given) {
  engram_table_options ours{};
  if (absl::Status status = TakeStruct("options", given, true, &ours); !status.ok()) return status;
  OpenTableOptions out;
  if (ours.expected_spec_digest != nullptr) {
    auto digest = TakeName("options->expected_spec_digest", ours.expected_spec_digest);
    if (!digest.ok()) return digest.status();
    out.expected_spec_digest = *digest;
  }
  if (ours.expected_content_digest != nullptr) {
    auto digest = TakeName("options->expected_content_digest", ours.expected_content_digest);
    if (!digest.ok()) return digest.status();
    out.expected_content_digest = *digest;
  }
  out.open_timeout = TakeDuration(ours.open_timeout_ns, out.open_timeout);
  return out;
}

absl::StatusOr<ReadPart> TakeRows(const TableShape& shape, const engram_rows* rows, void* out,
                                  std::size_t out_bytes, std::uint8_t* row_status) {
  engram_rows ours{};
  ours.layer_index = -1;
  if (absl::Status status = TakeStruct("rows", rows, false, &ours); !status.ok()) return status;
  if (ours.count > kMaxRows)
    return Invalid(absl::StrCat("rows->count is ", ours.count, "; the limit is ", kMaxRows));
  if (ours.count > 0 && ours.ids == nullptr) return Invalid("rows->ids is NULL");
  if (ours.count > 0 && out == nullptr) return Invalid("out is NULL");
  const std::uint64_t needed = std::uint64_t{ours.count} * shape.row_bytes;
  if (out_bytes < needed)
    return Invalid(absl::StrCat("out_bytes is ", out_bytes, "; ", ours.count, " rows of ",
                                shape.row_bytes, " bytes need ", needed));
  if (ours.id_type != ENGRAM_ID_INT32 && ours.id_type != ENGRAM_ID_INT64)
    return Invalid(
        absl::StrCat("rows->id_type is ", ours.id_type, "; known are 0 (int32) and 1 (int64)"));
  if (ours.layer_index < -1 || ours.layer_index >= static_cast<std::int64_t>(shape.layers.size()))
    return Invalid(absl::StrCat("rows->layer_index is ", ours.layer_index, "; table ", shape.name,
                                " has ", shape.layers.size(), " layers, -1 is the whole table"));
  ReadPart part;
  part.ids = ours.ids;
  part.run_rows = static_cast<std::uint32_t>(ours.count);
  part.row_limit = shape.rows;
  if (ours.layer_index >= 0) {
    part.first_row = shape.layers[ours.layer_index].first_row;
    part.row_limit = shape.layers[ours.layer_index].rows;
  }
  part.out = static_cast<std::byte*>(out);
  part.row_stride = shape.row_bytes;
  part.row_status = reinterpret_cast<ReadStatus*>(row_status);
  absl::Status ids;
  if (ours.id_type == ENGRAM_ID_INT32) {
    part.id_kind = ReadPart::IdKind::kInt32;
    ids = CheckIds(shape, static_cast<const std::int32_t*>(ours.ids), ours.count, part.row_limit,
                   ours.layer_index);
  } else {
    part.id_kind = ReadPart::IdKind::kInt64;
    ids = CheckIds(shape, static_cast<const std::int64_t*>(ours.ids), ours.count, part.row_limit,
                   ours.layer_index);
  }
  if (!ids.ok()) return ids;
  return part;
}

engram_row_status RowStatus(ReadStatus status) {
  switch (status) {
    case ReadStatus::kOk: return ENGRAM_ROW_OK;
    case ReadStatus::kTimedOut:
    case ReadStatus::kFlushed: return ENGRAM_ROW_TIMED_OUT;
    case ReadStatus::kCorrupt: return ENGRAM_ROW_CORRUPT;
    default: return ENGRAM_ROW_FAILED;
  }
}

void GiveRowStatus(const ReadPart& part, std::uint8_t* row_status) {
  const std::size_t rows = std::size_t{part.runs} * part.run_rows;
  for (std::size_t i = 0; i < rows; ++i) {
    const bool skipped =
        part.id_kind != ReadPart::IdKind::kRowId && static_cast<std::int64_t>(IdAt(part, i)) < 0;
    row_status[i] =
        static_cast<std::uint8_t>(skipped ? ENGRAM_ROW_SKIPPED : RowStatus(part.row_status[i]));
  }
}

absl::StatusOr<Tokens> TakeTokens(const TableShape& shape, const engram_tokens* tokens,
                                  std::size_t most) {
  engram_tokens ours{};
  if (absl::Status status = TakeStruct("tokens", tokens, false, &ours); !status.ok()) return status;
  if (ours.count > kMaxTokens || ours.lookback_count > kMaxTokens)
    return Invalid(absl::StrCat("tokens->count is ", ours.count, ", lookback_count is ",
                                ours.lookback_count, "; the limit of each is ", kMaxTokens));
  if (ours.count > most)
    return Invalid(absl::StrCat("tokens->count is ", ours.count, "; the layout has places for ",
                                most, " tokens"));
  if (ours.count > 0 && ours.tokens == nullptr) return Invalid("tokens->tokens is NULL");
  if (ours.lookback_count > 0 && ours.lookback == nullptr)
    return Invalid("tokens->lookback is NULL");
  Tokens taken;
  taken.rows = ours.count * shape.columns;
  taken.span.tokens = {ours.tokens, ours.count};
  taken.span.lookback = {ours.lookback, ours.lookback_count};
  if (ours.dead != nullptr) taken.span.dead = {ours.dead, ours.count};
  if (ours.lookback_dead != nullptr)
    taken.span.lookback_dead = {ours.lookback_dead, ours.lookback_count};
  return taken;
}

absl::StatusOr<Tokens> TakeTokens(const TableShape& shape, const engram_tokens* tokens,
                                  const void* out, std::size_t places, std::size_t place_bytes) {
  auto taken = TakeTokens(shape, tokens, kMaxTokens);
  if (!taken.ok()) return taken;
  const std::size_t count = taken->span.tokens.size();
  if (count > 0 && out == nullptr) return Invalid("the output is NULL");
  const std::uint64_t needed = std::uint64_t{taken->rows} * place_bytes;
  if (places < needed)
    return Invalid(absl::StrCat("the output has ", places,
                                place_bytes == 1 ? " elements" : " bytes", "; ", count,
                                " tokens of ", shape.columns, " columns need ", needed));
  return taken;
}

engram_status StatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return ENGRAM_OK;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange: return ENGRAM_INVALID_ARGUMENT;
    case absl::StatusCode::kNotFound: return ENGRAM_NOT_FOUND;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists: return ENGRAM_FAILED_PRECONDITION;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled: return ENGRAM_UNAVAILABLE;
    case absl::StatusCode::kDeadlineExceeded: return ENGRAM_DEADLINE_EXCEEDED;
    case absl::StatusCode::kDataLoss: return ENGRAM_DATA_LOSS;
    case absl::StatusCode::kResourceExhausted: return ENGRAM_RESOURCE_EXHAUSTED;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated: return ENGRAM_PERMISSION_DENIED;
    default: return ENGRAM_INTERNAL;
  }
}

}  // namespace engram::client::abi
