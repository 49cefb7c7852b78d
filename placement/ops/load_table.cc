#include "absl/strings/str_cat.h"
#include "engram/identity.h"
#include "placement/ops/ops.h"

namespace engram::placement {
namespace {

bool AskNextNode(Core& core, InspectionUnderWay& inspection) {
  for (const auto& [id, node] : core.state().nodes) {
    if (inspection.asked.contains(id) || core.Reachable(id) == nullptr) continue;
    inspection.asked.insert(id);
    inspection.node = id;
    inspection.command =
        core.SendCommand(id, {id, {}, {}, SentCommand::Kind::kInspect},
                         InspectSource{inspection.request.name, inspection.request.source});
    return true;
  }
  return false;
}

absl::Status CheckTokenMap(const TableName& name, const TableSpec& spec, const TokenMap& map) {
  const AddressingSpec& addressing = spec.addressing;
  if (addressing.token_map_digest.empty() != map.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", name.Full(),
                     map.empty() ? " names a token map but has none"
                                 : " has a token map that its spec does not name",
                     "; give both or neither"));
  }
  if (map.empty()) return absl::OkStatus();
  if (map.size() != addressing.raw_vocab) {
    return absl::InvalidArgumentError(absl::StrCat("table ", name.Full(), ": the token map has ",
                                                   map.size(), " entries, but the vocabulary ",
                                                   addressing.raw_vocab, "; correct one of them"));
  }
  if (Digest(map) != addressing.token_map_digest) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", name.Full(), ": the token map's digest is ", Digest(map),
                     ", but the spec names ", addressing.token_map_digest));
  }
  return absl::OkStatus();
}

absl::Status AlreadyThere(const TableRecord& table) {
  return absl::AlreadyExistsError(
      absl::StrCat("table ", table.name.Full(), " exists and is ", std::string(Name(table.state)),
                   table.state == TableState::kDeleting
                       ? "; wait until it is gone"
                       : "; load it under another version, or delete it first"));
}

// The answer to the request if its like was here before, or why it may not go on.
absl::StatusOr<std::optional<TableRecord>> LookBack(const Core& core, const LoadRequest& request) {
  const std::string key = RequestKey(request.caller);
  const TableEntry* there = nullptr;
  for (const auto& [uid, table] : core.state().tables) {
    if (table->record.name != request.name) continue;
    if (!key.empty() && table->load_request == key) return std::optional(table->record);
    if (table->record.state != TableState::kFailed) there = table.get();
  }
  if (there != nullptr) return AlreadyThere(there->record);
  if (const TableEntry* named = core.state().FindAlias(request.name))
    return absl::AlreadyExistsError(absl::StrCat(request.name.Full(), " is an alias of table ",
                                                 named->record.name.Full(),
                                                 "; load under another version"));
  return std::optional<TableRecord>();
}

absl::StatusOr<TableRecord> Create(Core& core, const LoadRequest& request, const TableSpec& spec,
                                   TokenMap token_map) {
  if (absl::Status valid = spec.Validate(); !valid.ok()) return valid;
  if (absl::Status map = CheckTokenMap(request.name, spec, token_map); !map.ok()) return map;
  StoredTable table;
  TableRecord& record = table.record;
  record.uid = core.random->Bits<struct TableUidTag>();
  record.name = request.name;
  record.spec = spec;
  record.options = request.options;
  record.source = request.source;
  record.spec_digest = spec.Digest();
  record.tenant = request.caller.tenant;
  record.created_unix_ms = core.options.unix_ms();
  table.load_request = RequestKey(request.caller);

  const ShardLayout layout(spec, request.options);
  std::vector<MapChunk> chunks = EmptyChunks(record.uid, layout);
  const absl::StatusOr<TablePlaces> places = core.PlanFor(record, layout, chunks);
  if (!places.ok()) return places.status();
  record.error = places->unmet;
  if (request.dry_run) return record;
  AddPlacements(places->placements, &chunks);

  Change change;
  change.chunks = std::move(chunks);
  if (!token_map.empty()) change.token_maps.push_back(std::move(token_map));
  for (const auto& [uid, other] : core.state().tables) {
    // A failed attempt makes room for the next one.
    if (other->record.name != request.name || other->record.state != TableState::kFailed) continue;
    change.tables.push_back(*other);
    change.tables.back().record.state = TableState::kDeleting;
  }
  change.tables.push_back(table);
  if (absl::Status stored = core.Commit(std::move(change)); !stored.ok()) return stored;
  core.SayLine(absl::StrCat("table ", record.name.Full(), " is Loading: ", layout.shards(),
                            " shards, ", record.options.replicas, " replicas",
                            record.error.empty() ? "" : "; ", record.error));
  return record;
}

}  // namespace

void LoadTable(Core& core, CallId call, const LoadRequest& request) {
  const auto answer = [&](absl::StatusOr<TableRecord> table) {
    core.actions.push_back(Answer{call, std::move(table)});
  };
  if (absl::Status valid = request.options.Validate(); !valid.ok()) return answer(valid);
  if (!IsIdentityName(TenantOr(request.caller.tenant))) {
    return answer(absl::InvalidArgumentError(
        absl::StrCat("tenant \"", request.caller.tenant,
                     "\" is not 1 to 253 letters, digits and \"._-\"; give another --tenant")));
  }
  const auto before = LookBack(core, request);
  if (!before.ok()) return answer(before.status());
  if (before->has_value()) return answer(**before);
  for (InspectionUnderWay& inspection : core.inspections) {
    if (inspection.request.name != request.name) continue;
    const std::string key = RequestKey(request.caller);
    if (key.empty() || RequestKey(inspection.request.caller) != key) {
      return answer(absl::AlreadyExistsError(
          absl::StrCat("table ", request.name.Full(),
                       " is being loaded by another request; wait for that one")));
    }
    inspection.calls.push_back(call);
    return;
  }
  if (request.source.kind == TableSource::Kind::kSynthetic) {
    if (!request.spec) {
      return answer(absl::InvalidArgumentError(
          absl::StrCat("table ", request.name.Full(), " is synthetic and has no spec; give one")));
    }
    return answer(Create(core, request, *request.spec, request.token_map));
  }
  if (request.source.checkpoint_dir.empty()) {
    return answer(absl::InvalidArgumentError(absl::StrCat(
        "table ", request.name.Full(), " names no checkpoint directory; give --checkpoint DIR")));
  }
  InspectionUnderWay inspection{request, {call}, {},
                                0,       {},     core.now + core.options.inspection_timeout};
  if (!AskNextNode(core, inspection)) {
    return answer(absl::UnavailableError(
        absl::StrCat("table ", request.name.Full(),
                     ": no pool node is alive to look at the checkpoint; start one")));
  }
  core.inspections.push_back(std::move(inspection));
}

void InspectionEnded(Core& core, std::size_t index, absl::StatusOr<Inspection> found) {
  const InspectionUnderWay inspection = std::move(core.inspections[index]);
  core.inspections.erase(core.inspections.begin() + static_cast<std::ptrdiff_t>(index));
  core.commands.erase(inspection.command);
  absl::StatusOr<TableRecord> table =
      found.ok() ? Create(core, inspection.request, found->spec, std::move(found->token_map))
                 : absl::StatusOr<TableRecord>(found.status());
  for (CallId call : inspection.calls) core.actions.push_back(Answer{call, table});
}

void InspectElsewhere(Core& core, std::size_t index, const absl::Status& why) {
  core.commands.erase(core.inspections[index].command);
  if (core.now < core.inspections[index].deadline && AskNextNode(core, core.inspections[index])) {
    return;
  }
  InspectionEnded(core, index, why);
}

}  // namespace engram::placement
