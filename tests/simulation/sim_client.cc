#include "tests/simulation/sim_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cache/private_cache.h"
#include "engram/check.h"
#include "engram/poison.h"
#include "tests/simulation/sim_controller.h"
#include "tests/simulation/sim_node.h"

namespace engram::simulation {

using namespace std::chrono_literals;  // NOLINT: durations of a scenario
namespace session = client::session;

namespace {

constexpr std::size_t kRowsMost = 8;  // of a layer, and of a request
constexpr std::uint64_t kHotRows = 16;
constexpr std::uint64_t kCacheBytes = std::uint64_t{64} << 10;

}  // namespace

SimClient::SimClient(Cluster* cluster, std::string name, std::int64_t rate_ppm,
                     std::optional<FabricKind> forced)
    : cluster_(cluster),
      process_(cluster->world, std::move(name), rate_ppm, cluster->world->Between(0s, 100s)),
      forced_(forced) {}

SimClient::~SimClient() = default;

void SimClient::Start() {
  process_.Start();
  life_ = std::make_unique<Life>();
  const FabricKind kinds[2] = {FabricKind::kMapped, FabricKind::kOfi};
  for (std::size_t i = 0; i < 2; ++i) {
    life_->fabrics[i] = std::make_unique<SimFabric>(
        kinds[i], &process_, &cluster_->machines, [this] { PollSoon(); },
        SimFabric::Broken{.releases = !cluster_->rules.client.wait_for_started_reads,
                          .queues = !cluster_->rules.restarts_are_new});
  }
  life_->map = std::make_unique<client::MapFollower>();
  FollowMap(client::MapFollower::Start{});
  PollForEver();
  ReportHeat();
}

void SimClient::Crash() {
  if (!life_) return;
  process_.Crash();
  life_.reset();
}

// ---- the map ----

void SimClient::FollowMap(const client::MapFollower::Event& event) {
  for (const auto& action : life_->map->OnEvent(process_.Now(), event)) {
    if (const auto* ask = std::get_if<client::MapFollower::Subscribe>(&action)) {
      Subscribe(*ask);
    } else {
      UseMap(*std::get<client::MapFollower::UseMap>(action).map);
    }
  }
  if (const auto next = life_->map->NextTimer()) {
    process_.AtLocal(*next, [this] { FollowMap(client::MapFollower::Timer{}); });
  }
}

void SimClient::Subscribe(const client::MapFollower::Subscribe& ask) {
  if (life_->watch) life_->watch->Close(&process_);
  const auto lost = [this, number = ask.subscription] {
    FollowMap(client::MapFollower::StreamLost{number});
  };
  life_->watch.reset();
  if (SimController* controller = cluster_->AnyController()) {
    life_->watch = controller->Watch(&process_, ask.from,
                                     [this, number = ask.subscription](const MapDelta& delta) {
                                       FollowMap(client::MapFollower::DeltaArrived{number, delta});
                                     });
  }
  if (life_->watch) {
    life_->watch->OnLost(&process_, lost);
  } else {
    process_.After(1ms, lost);
  }
}

void SimClient::UseMap(const ShardMap& map) {
  for (const auto& [id, node] : map.nodes()) {
    if (!node.alive) continue;
    NodeLink& link = life_->nodes[id.name];
    if (link.session) {
      Feed(id.name, session::NodeMoved{node.incarnation, node.endpoint});
      continue;
    }
    client::ClientSessionOptions options;
    options.client = process_.name();
    options.node = id;
    options.incarnation = node.incarnation;
    options.endpoint = node.endpoint;
    options.quiescence_poll = 5ms;
    for (const auto& [uid, table] : life_->tables) options.tables.push_back(uid);
    link.session = std::make_unique<client::ClientSession>(
        std::move(options), &life_->quiescence, &cluster_->world->random(), cluster_->rules.client);
    Feed(id.name, session::Start{});
  }
  for (const auto& [uid, table] : map.tables()) {
    if (table.state == TableState::kReady && !life_->tables.contains(uid)) UseTable(uid);
  }
  for (auto& [uid, table] : life_->tables) {
    if (map.FindTable(uid) == nullptr) table.gone = true;
  }
  if (!cluster_->rules.versions_stay) PublishRoutes();
}

void SimClient::UseTable(const TableUid& uid) {
  TableLink& table = life_->tables[uid];
  table.record = cluster_->tables.at(uid);
  table.whole_since = cluster_->world->now();
  cluster_->ready[uid] = table.record;
  table.board = std::make_unique<client::RouteBoard>(&life_->quiescence, BuildRoutes(table.record));
  table.heat = std::make_shared<client::ReadHeat>(
      ShardLayout(table.record.spec, table.record.options).shards());
  table.prefetcher = OpenPrefetcher(table);
  for (std::size_t loop = 0; loop < 2; ++loop) {
    process_.After(cluster_->world->Between(0ms, 20ms),
                   [this, uid, loop] { StartStep(uid, loop); });
  }
  for (auto& [name, link] : life_->nodes) Feed(name, session::WantTable{uid});
}

// Steps are larger than a request, so they are read in slices.
std::unique_ptr<client::Prefetcher> SimClient::OpenPrefetcher(const TableLink& table) {
  client::RowReader::Options options;
  options.table = std::make_shared<const client::ReadTable>(table.record.uid, table.record.spec,
                                                            table.record.options);
  options.board = table.board.get();
  for (const auto& fabric : life_->fabrics) options.fabrics.push_back(fabric.get());
  options.clock = &process_.clock();
  options.max_rows = kRowsMost;
  options.max_parts = kLayers;
  options.slots = 4;
  options.queue_depth = 64;
  options.hedge_rows = kRowsMost;
  options.switches = cluster_->rules.client;
  options.heat = table.heat;
  auto cache = client::PrivateCache::Open(
      {.bytes = kCacheBytes, .row_bytes = table.record.spec.RowBytes(), .unit_rows = 1});
  ENGRAM_CHECK(cache.ok());
  options.cache = *std::move(cache);
  auto reader = client::RowReader::Open(options);
  ENGRAM_CHECK(reader.ok());
  client::Prefetcher::Options steps;
  steps.tickets = 2;
  steps.max_layers = kLayers;
  steps.max_step_rows = kLayers * kRowsMost;
  steps.prefill_slots = 2;
  auto prefetcher = client::Prefetcher::Open(*std::move(reader), steps);
  ENGRAM_CHECK(prefetcher.ok());
  return *std::move(prefetcher);
}

// ---- sessions ----

void SimClient::Feed(const std::string& name, session::Event event) {
  NodeLink& link = life_->nodes.at(name);
  link.pending.push_back(std::move(event));
  if (link.feeding) return;
  link.feeding = true;
  while (!link.pending.empty()) {
    const session::Event next = std::move(link.pending.front());
    link.pending.pop_front();
    for (const session::Action& action : link.session->OnEvent(process_.Now(), next)) {
      std::visit([&](const auto& what) { Do(name, link, what); }, action);
    }
  }
  link.feeding = false;
  ArmTimer(name);
}

void SimClient::ArmTimer(const std::string& name) {
  NodeLink& link = life_->nodes.at(name);
  const std::optional<Instant> next = link.session->NextTimer();
  const std::uint64_t armed = ++link.armed;
  if (!next) return;
  process_.AtLocal(*next, [this, name, armed] {
    if (armed == life_->nodes.at(name).armed) Feed(name, session::Timer{});
  });
}

void SimClient::Do(const std::string& name, NodeLink& link, const session::OpenStream& action) {
  link.node = cluster_->by_endpoint.at(action.endpoint);
  auto accepted = link.node->Accept(
      &process_, [this, name, opening = action.session](const NodeMessage& message) {
        Feed(name, session::NodeSaid{opening, message});
      });
  const auto lost = [this, name, opening = action.session] {
    Feed(name, session::StreamLost{opening, absl::UnavailableError("the stream broke")});
  };
  link.stream.reset();
  if (!accepted) {
    process_.After(1ms, lost);
    return;
  }
  link.stream = accepted->stream;
  link.stream_id = accepted->id.value();
  link.stream->OnLost(&process_, lost);
}

void SimClient::Do(const std::string&, NodeLink& link, const session::SendToNode& action) {
  if (!link.stream) return;
  link.stream->Send(&process_, [node = link.node, id = link.stream_id, message = action.message] {
    node->Hear(poolserver::StreamId(id), message);
  });
}

void SimClient::Do(const std::string&, NodeLink& link, const session::CloseStream&) {
  if (link.stream) link.stream->Close(&process_);
  link.stream.reset();
}

void SimClient::Do(const std::string&, NodeLink& link, const session::SessionStarted& action) {
  link.opened = action.opened;
  link.lease = action.lease;
  link.peers.clear();
  for (std::size_t path = 0; path < action.opened.paths.size(); ++path) {
    const fabric::PeerAddress address{action.opened.paths[path], action.opened.token,
                                      action.opened.node, action.opened.incarnation};
    const auto peer = life_->fabrics[path]->AddPeer(address, process_.Now() + 1s);
    link.peers.push_back(peer.ok() ? std::optional(*peer) : std::nullopt);
  }
}

void SimClient::Do(const std::string& name, NodeLink&, const session::ReachSuccessors& action) {
  process_.After(cluster_->world->Between(0ms, 50ms),
                 [this, name, opening = action.session, revision = action.revision] {
                   Feed(name, session::SuccessorsReached{opening, revision});
                 });
}

void SimClient::Do(const std::string&, NodeLink&, const session::StreamCut&) { PublishRoutes(); }

void SimClient::Import(NodeLink& link, GrantRevision revision, const Grant& grant) {
  std::vector<Imported>& imports = link.routed[grant.shard];
  if (!imports.empty()) link.leaving.emplace(revision, std::exchange(imports, {}));
  for (const GrantPath& path : grant.paths) {
    if (!link.peers.at(path.path)) continue;
    const fabric::RemoteRegion granted{*link.peers[path.path], path.address, path.length, path.key};
    auto region = life_->fabrics[path.path]->Import(granted);
    ENGRAM_CHECK(region.ok());
    imports.push_back({path.path, static_cast<std::uint8_t>(path.path), *region});
  }
}

void SimClient::Release(const std::vector<Imported>& imports) {
  for (const Imported& import : imports) life_->fabrics[import.fabric]->Release(import.region);
}

void SimClient::Do(const std::string& name, NodeLink& link, const session::ChangeRoutes& action) {
  for (const Grant& grant : action.granted) Import(link, action.revision, grant);
  for (const ShardKey& shard : action.withdrawn) {
    const auto routed = link.routed.extract(shard);
    ENGRAM_CHECK(!routed.empty());
    link.leaving.emplace(action.revision, routed.mapped());
  }
  Feed(name, session::RoutesChanged{action.session, action.revision, PublishRoutes()});
}

void SimClient::Do(const std::string& name, NodeLink& link, const session::ReleaseRegions& action) {
  ENGRAM_CHECK(link.leaving.count(action.revision) == action.withdrawn.size());
  const auto [begin, end] = link.leaving.equal_range(action.revision);
  for (auto left = begin; left != end; ++left) Release(left->second);
  link.leaving.erase(begin, end);
  if (cluster_->hung_releases && !action.withdrawn.empty()) return;
  Feed(name, session::RegionsReleased{action.session, action.revision});
}

void SimClient::Do(const std::string& name, NodeLink& link, const session::VoidRoutes& action) {
  cluster_->world->Trace(
      absl::StrCat(process_.name(), " voids ", name, ": ", action.why.ToString()));
  for (auto& [shard, imports] : link.routed) link.leaving.emplace(GrantRevision(), imports);
  link.routed.clear();
  Feed(name, session::RoutesVoided{action.session, PublishRoutes()});
}

void SimClient::Do(const std::string& name, NodeLink& link, const session::ReleaseAll& action) {
  for (const auto& [revision, imports] : link.leaving) Release(imports);
  link.leaving.clear();
  for (std::size_t path = 0; path < link.peers.size(); ++path) {
    if (link.peers[path]) life_->fabrics[path]->RemovePeer(*link.peers[path]);
  }
  link.peers.clear();
  link.lease.reset();
  Feed(name, session::AllReleased{action.session});
}

TableUid SimClient::VersionOf(const TableRecord& table) const {
  if (cluster_->rules.versions_stay || life_->map->map() == nullptr) return table.uid;
  const MapTable* named = life_->map->map()->FindAlias({table.name.name, kAlias});
  return named == nullptr ? table.uid : named->uid;
}

std::shared_ptr<const client::Routes> SimClient::BuildRoutes(const TableRecord& table) {
  const TableUid version = VersionOf(table);
  client::Routes::Builder::Options options;
  options.shards = ShardLayout(table.spec, table.options).shards();
  options.forced = forced_;
  client::Routes::Builder builder(options);
  for (const auto& [name, link] : life_->nodes) {
    if (link.routed.empty()) continue;
    const std::uint16_t index = builder.AddSession({{name},
                                                    link.opened.incarnation,
                                                    link.session->received(),
                                                    link.lease,
                                                    link.session->cut()});
    for (const auto& [shard, imports] : link.routed) {
      if (shard.table != version) continue;
      for (const Imported& import : imports) {
        builder.Add(shard.shard, index, import.fabric, link.opened.paths[import.path],
                    import.region);
      }
    }
  }
  return builder.Build();
}

client::RouteVersion SimClient::PublishRoutes() {
  client::RouteVersion version = life_->quiescence.Publish();
  for (auto& [uid, table] : life_->tables) {
    version = table.board->Publish(BuildRoutes(table.record));
  }
  return version;
}

// ---- reading ----

void SimClient::StartStep(const TableUid& uid, std::size_t number) {
  const auto it = life_->tables.find(uid);
  if (it == life_->tables.end()) return;
  TableLink& table = it->second;
  Loop& loop = table.loops[number];
  if (!loop.ticket) {
    if (table.gone) {
      if (!table.loops[1 - number].ticket) life_->tables.erase(it);
      return;
    }
    if (loop.out != loop.delivered)
      cluster_->world->Fail(process_.name() + " was given bytes after its step was over");
    DrawRows(table, loop);
    Submit(table, loop);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      process_.AtLocal(loop.needed_by[layer], [this, uid, number, round = loop.round, layer] {
        BeLate(uid, number, round, layer);
      });
    }
    PollSoon();
  }
  process_.After(cluster_->world->Between(5ms, 80ms),
                 [this, uid, number] { StartStep(uid, number); });
}

// Half of them are of a few rows that come back.
void SimClient::DrawRows(const TableLink& table, Loop& loop) {
  World& world = *cluster_->world;
  const std::uint64_t rows = table.prefetcher->reader().table().layout.rows();
  const std::uint64_t count = kLayers * (1 + world.Below(kRowsMost));
  loop.rows.clear();
  for (std::uint64_t i = 0; i < count; ++i) {
    loop.rows.emplace_back(world.Below(2) == 0 ? world.Below(rows)
                                               : world.Below(kHotRows) * (rows / kHotRows));
  }
  loop.out.assign(count * table.record.spec.RowBytes(), std::byte{0xee});
  loop.status.assign(count, ReadStatus::kInvalid);
}

void SimClient::Submit(TableLink& table, Loop& loop) {
  World& world = *cluster_->world;
  const std::uint32_t row_bytes = table.record.spec.RowBytes();
  const std::size_t count = loop.rows.size() / kLayers;
  client::StepLayer layers[kLayers];
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    client::ReadPart& part = layers[layer].rows;
    part.ids = loop.rows.data() + layer * count;
    part.run_rows = static_cast<std::uint32_t>(count);
    part.row_limit = table.prefetcher->reader().table().layout.rows();
    part.out = loop.out.data() + layer * count * row_bytes;
    part.row_stride = row_bytes;
    part.row_status = loop.status.data() + layer * count;
    layers[layer].needed_by = process_.Now() + world.Between(100us, 40ms);
    loop.needed_by[layer] = layers[layer].needed_by;
  }
  client::Step step;
  step.kind = world.Below(4) == 0 ? client::StepKind::kPrefill : client::StepKind::kDecode;
  step.layers = layers;
  step.deadline = process_.Now() + world.Between(200ms, 1'500ms);
  ENGRAM_CHECK(table.prefetcher->Submit(step, &loop.ticket) == client::SubmitStatus::kStarted);
  ++loop.round;
}

void SimClient::BeLate(const TableUid& uid, std::size_t number, std::uint64_t round,
                       std::uint32_t layer) {
  const auto it = life_->tables.find(uid);
  if (it == life_->tables.end()) return;
  const Loop& loop = it->second.loops[number];
  if (loop.round != round || !loop.ticket) return;
  if (cluster_->world->Chance(3)) it->second.prefetcher->Cancel(loop.ticket, layer);
  PollSoon();
}

void SimClient::PollSoon() {
  if (!life_ || life_->poll_due) return;
  life_->poll_due = true;
  process_.After(cluster_->world->Between(0us, 300us), [this] { Poll(); });
}

void SimClient::PollForEver() {
  Poll();
  process_.After(20ms, [this] { PollForEver(); });
}

void SimClient::ReportHeat() {
  process_.After(1s, [this] { ReportHeat(); });
  placement::HeatReport report;
  report.client = process_.name();
  report.process = process_.life();
  report.sequence = ++life_->heat_reports;
  for (auto& [uid, table] : life_->tables) {
    std::vector<std::uint64_t> shards(
        ShardLayout(table.record.spec, table.record.options).shards());
    std::vector<client::ReadHeat::Ngram> ngrams;
    table.heat->Take(&shards, &ngrams);
    placement::TableReads& reads = report.tables.emplace_back();
    reads.table = uid;
    reads.shards = static_cast<std::uint32_t>(shards.size());
    for (std::uint32_t shard = 0; shard < shards.size(); ++shard) {
      if (shards[shard] > 0) reads.reads.emplace_back(shard, shards[shard]);
    }
  }
  SimController* controller = cluster_->AnyController();
  if (controller == nullptr) return;
  controller->process().After(cluster_->world->Between(1ms, 20ms),
                              [controller, report] { controller->HearHeat(report); });
}

void SimClient::Poll() {
  life_->poll_due = false;
  for (auto& [uid, table] : life_->tables) {
    table.prefetcher->Progress();
    CountShared(table);
    for (Loop& loop : table.loops) {
      if (loop.ticket && table.prefetcher->Done(loop.ticket)) Finish(table, loop);
    }
  }
}

void SimClient::CountShared(TableLink& table) {
  const client::ReadCounters& counters = table.prefetcher->reader().counters();
  const auto count = [](const client::Count& now, std::uint64_t* seen, std::uint64_t* sum) {
    *sum += now.value() - std::exchange(*seen, now.value());
  };
  count(counters.hedges_won, &table.hedges, &cluster_->results.hedges);
  count(counters.rows_joined, &table.joined, &cluster_->results.joined);
  count(counters.cache_hits, &table.cached, &cluster_->results.cached);
}

void SimClient::Finish(TableLink& table, Loop& loop) {
  bool whole = true;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const bool ready = table.prefetcher->State(loop.ticket, layer) == client::LayerState::kReady;
    Check(table, loop, layer, ready);
    whole = whole && ready;
  }
  table.prefetcher->Release(loop.ticket);
  loop.ticket = {};
  loop.delivered = loop.out;
  ++cluster_->results.requests;
  if (whole) CountPause(table);
}

void SimClient::CountPause(TableLink& table) {
  const Instant now = cluster_->world->now();
  last_whole_read_ = now;
  const Duration pause = now - std::max(table.whole_since, process_.awake_since());
  table.whole_since = now;
  std::uint64_t& longest = cluster_->results.longest_pause_ms;
  longest = std::max(longest, static_cast<std::uint64_t>(pause / 1ms));
}

void SimClient::Check(const TableLink& table, const Loop& loop, std::uint32_t layer, bool whole) {
  const std::uint32_t row_bytes = table.record.spec.RowBytes();
  const std::size_t count = loop.rows.size() / kLayers;
  std::vector<std::byte> golden(row_bytes);
  for (std::size_t i = layer * count; i < (layer + 1) * count; ++i) {
    const std::byte* row = loop.out.data() + i * row_bytes;
    const bool delivered = loop.status[i] == ReadStatus::kOk;
    if (delivered) {
      GoldenRow(table.record, loop.rows[i], golden);
    } else {
      golden = table.prefetcher->reader().table().poison;
      ++cluster_->results.rows_failed;
    }
    if (whole && !delivered) cluster_->world->Fail("a layer is ready without one of its rows");
    if (std::memcmp(row, golden.data(), row_bytes) == 0) {
      cluster_->results.rows_right += delivered ? 1 : 0;
      continue;
    }
    ++cluster_->results.rows_wrong;
    cluster_->world->Fail(absl::StrCat(
        "wrong row: ", process_.name(), " was given wrong bytes of row ", loop.rows[i].value(),
        " of table ", table.record.name.Full(), delivered ? "" : " (as poison)"));
    return;
  }
}

}  // namespace engram::simulation
