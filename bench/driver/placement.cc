// `placement`: the planner against bounds that no placement beats and against simple rules.
#include <algorithm>
#include <cstdio>
#include <set>

#include "absl/strings/str_cat.h"
#include "bench/driver/commands.h"
#include "bench/driver/placement_pool.h"
#include "engram/addressing.h"
#include "engram/clock.h"
#include "engram/random.h"
#include "engram/shard_layout.h"

namespace engram::bench {
namespace {

using placement::MakePlan;
using placement::NodeMode;
using placement::PlanLimits;
using placement::PlanResult;
using placement::PlanTable;
using placement::PoolView;

struct Rounds {
  std::vector<double> seconds, seconds_ten, load, load_hash, load_greedy, load_two;
  std::vector<double> bytes, bytes_hash, bytes_greedy, bytes_two;
};

// The pool after its plan; `seconds` of the plan are added.
PlanResult Plan(PoolView* view, std::vector<double>* seconds) {
  const Clock& clock = SystemClock::Get();
  const Instant begin = clock.Now();
  PlanResult result = MakePlan(*view);
  if (seconds != nullptr) {
    seconds->push_back(Seconds(clock.Now() - begin));
  }
  CarryOut(result.plan, view);
  return result;
}

double Ratio(std::uint64_t bytes, std::uint64_t bound) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(1, bound));
}

// A third of the nodes more, then a twentieth of all leaves: the worse of the two.
double BytesRatio(const PoolShape& shape, PoolView view, std::vector<double>* seconds) {
  for (std::uint32_t i = 0; i < shape.nodes / 3; ++i) AddNode(&view, shape.seed * 1'000 + i);
  const std::uint64_t join_bound = BytesBound(view, {});
  const double join = Ratio(BytesOf(Plan(&view, seconds).plan), join_bound);
  for (std::size_t i = 0; i < view.nodes.size(); i += 20) view.nodes[i].mode = NodeMode::kDraining;
  const std::uint64_t leave_bound = BytesBound(view, {});
  const double leave = Ratio(BytesOf(Plan(&view, seconds).plan), leave_bound);
  std::printf("  join %.3f, leave %.3f of the least bytes; load then %.3f of the bound\n", join,
              leave, MaxLoad(view) / LoadBound(view, {}));
  return std::max(join, leave);
}

// The same join by a rule that places every shard anew, over the bytes that the planner needs.
double RuleBytes(Rule rule, const PoolShape& shape, const PoolView& empty) {
  PoolView view = empty;
  PlaceBy(rule, shape.seed, &view);
  for (std::uint32_t i = 0; i < shape.nodes / 3; ++i) AddNode(&view, shape.seed * 1'000 + i);
  return Ratio(BytesMovedBy(rule, shape.seed, view), BytesBound(view, {}));
}

double RuleLoad(Rule rule, const PoolShape& shape, PoolView view) {
  PlaceBy(rule, shape.seed, &view);
  return MaxLoad(view) / LoadBound(view, {});
}

void Round(PoolShape shape, bool quick, Rounds* rounds) {
  const PoolView empty = MakePool(shape);
  PoolView view = empty;
  Plan(&view, &rounds->seconds);
  rounds->load.push_back(MaxLoad(view) / LoadBound(view, {}));
  rounds->bytes.push_back(BytesRatio(shape, view, &rounds->seconds));
  rounds->load_hash.push_back(RuleLoad(Rule::kHash, shape, empty));
  rounds->load_greedy.push_back(RuleLoad(Rule::kGreedy, shape, empty));
  rounds->load_two.push_back(RuleLoad(Rule::kTwoChoices, shape, empty));
  rounds->bytes_hash.push_back(RuleBytes(Rule::kHash, shape, empty));
  rounds->bytes_greedy.push_back(RuleBytes(Rule::kGreedy, shape, empty));
  rounds->bytes_two.push_back(RuleBytes(Rule::kTwoChoices, shape, empty));
  if (quick) return;
  shape.shards *= 10;
  PoolView large = MakePool(shape);
  Plan(&large, &rounds->seconds_ten);
}

Figure Made(const char* name, std::vector<double> rounds, const char* unit, const char* reference,
            double goal, const BenchOptions& options) {
  Figure figure;
  figure.figure = name;
  figure.unit = unit;
  figure.reference = reference;
  figure.goal = goal;
  figure.smaller_is_better = true;
  figure.seed = options.seed;
  Summarise(std::move(rounds), &figure);
  return figure;
}

absl::StatusOr<TableSpec> RealSpec() {
  EngramGeometry geometry;  // DeepSeek-V4.1-Flash
  geometry.token_map_digest.clear();
  geometry.compressed_vocab = geometry.raw_vocab;
  return MakeEngramSpec(geometry);
}

// How many nodes a decode step of 64 tokens asks, one message a layer and node: the whole table on
// `nodes` nodes of 80 GiB, placed by the planner.
absl::StatusOr<Figure> Messages(std::uint32_t nodes, const BenchOptions& options) {
  const auto spec = RealSpec();
  if (!spec.ok()) return spec.status();
  const ShardLayout layout(*spec, {});
  PoolView view;
  for (std::uint32_t i = 0; i < nodes; ++i) {
    view.nodes.push_back({{absl::StrCat("node-", i)},
                          "",
                          NodeMode::kAlive,
                          std::int64_t{80} << 30,
                          std::uint64_t{4} << 30});
  }
  PlanTable& table = view.tables.emplace_back();
  table.row_bytes = layout.stride();
  table.shards.resize(layout.shards());
  for (std::uint32_t i = 0; i < layout.shards(); ++i) {
    table.shards[i].bytes = layout.StoredBytes(ShardIndex(i));
  }
  Plan(&view, nullptr);
  SeededRandom random(options.seed);
  std::vector<double> rounds;
  for (int round = 0; round < 5; ++round) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> asked;  // (layer, node)
    std::uint64_t first = 0;
    for (const Column& column : spec->columns) {
      for (int token = 0; token < 64; ++token) {
        const RowId row(first + random.Below(column.rows));
        asked.emplace(column.layer,
                      view.tables[0].shards.at(layout.Locate(row).shard.value()).nodes.at(0));
      }
      first += column.rows;
    }
    rounds.push_back(static_cast<double>(asked.size()));
  }
  const std::string name = absl::StrCat("messages_per_decode_step_", nodes);
  const std::string all = absl::StrCat("hash over all nodes: ", 2 * nodes);
  return Made(name.c_str(), std::move(rounds), "messages", all.c_str(), 0, options);
}

}  // namespace

absl::Status RunPlacement(const BenchOptions& options) {
  PoolShape shape;
  Rounds rounds;
  const bool plans = Wanted(options, "plan_") || options.only.starts_with("plan_");
  const int count = plans ? options.quick ? 1 : 3 : 0;
  for (int round = 0; round < count; ++round) {
    shape.seed = options.seed + static_cast<std::uint64_t>(round);
    Round(shape, options.quick, &rounds);
  }
  std::vector<Figure> figures;
  const auto add = [&](const char* name, const std::vector<double>& values, const char* unit,
                       const char* reference, double goal) {
    if (!values.empty() && Wanted(options, name)) {
      figures.push_back(Made(name, values, unit, reference, goal, options));
    }
  };
  add("plan_seconds_1000x100000", rounds.seconds, "s", "from nothing, join, leave", 1);
  add("plan_seconds_1000x1000000", rounds.seconds_ten, "s", "from nothing", 10);
  add("plan_load_vs_bound", rounds.load, "ratio", "load bound", 1.05);
  add("plan_load_hash", rounds.load_hash, "ratio", "load bound", 0);
  add("plan_load_greedy", rounds.load_greedy, "ratio", "load bound", 0);
  add("plan_load_two_choices", rounds.load_two, "ratio", "load bound", 0);
  add("plan_bytes_vs_bound", rounds.bytes, "ratio", "least bytes, join and leave", 1.1);
  add("plan_bytes_hash", rounds.bytes_hash, "ratio", "least bytes, join", 0);
  add("plan_bytes_greedy", rounds.bytes_greedy, "ratio", "least bytes, join", 0);
  add("plan_bytes_two_choices", rounds.bytes_two, "ratio", "least bytes, join", 0);
  for (std::uint32_t nodes : {3, 12, 48}) {
    if (!Wanted(options, "messages_per_decode_step")) continue;
    auto figure = Messages(nodes, options);
    if (!figure.ok()) return figure.status();
    figures.push_back(*std::move(figure));
  }
  if (Wanted(options, "epoch_heard_ms")) {
    auto heard = MeasureEpochs(options);
    if (!heard.ok()) return heard.status();
    figures.push_back(*std::move(heard));
  }
  if (Wanted(options, "read_p99_during_move") || Wanted(options, "move_vs_rate")) {
    auto moves = MeasureMoves(options);
    if (!moves.ok()) return moves.status();
    figures.insert(figures.end(), moves->begin(), moves->end());
  }
  if (Wanted(options, "read_p99_during_repair") || Wanted(options, "repair_vs_rate")) {
    auto repairs = MeasureRepairs(options);
    if (!repairs.ok()) return repairs.status();
    figures.insert(figures.end(), repairs->begin(), repairs->end());
  }
  PrintTable(figures);
  return options.json.empty() ? absl::OkStatus() : WriteJson(figures, options.json);
}

}  // namespace engram::bench
