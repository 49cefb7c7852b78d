// `local up | status | down`: a pool on this machine.
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/ctl/endpoint.h"
#include "client/ctl/local_pool.h"
#include "client/ctl/local_start.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/units.h"
#include "client/ctl/verbs.h"
#include "client/ctl/words.h"
#include "engram/settings/units.h"

namespace engram::ctl {
namespace {

using std::chrono::seconds;

struct LocalOptions {
  std::string data_dir;
  std::uint32_t nodes = 0;
  std::string memory, nvme, cxl, fabric;
  std::uint32_t cxl_numa_node = 0;
  std::uint16_t port = 0;
  bool purge = false, dry_run = false;
  std::optional<Options> up, status, down;
};

// --data-dir, else that of the current context, else the default.
std::string DataDir(const LocalOptions& options) {
  if (!options.data_dir.empty()) return options.data_dir;
  const auto context = ReadContext();
  return context.ok() && !context->data_dir.empty() ? context->data_dir : DefaultDataDir();
}

absl::StatusOr<LocalPoolRequest> Request(const LocalOptions& options) {
  LocalPoolRequest request;
  if (options.up->Given("--nodes")) request.nodes = options.nodes;
  if (!options.memory.empty()) {
    const auto memory = ParseSize(options.memory);
    if (!memory.ok())
      return UsageError(absl::StrCat("--memory-per-node: ", memory.status().message()));
    request.memory_per_node = *memory;
  }
  const struct {
    const char* flag;
    const std::string& text;
    std::optional<std::uint64_t>* size;
  } tiers[] = {{"--nvme-per-node: ", options.nvme, &request.nvme_per_node},
               {"--cxl-per-node: ", options.cxl, &request.cxl_per_node}};
  for (const auto& tier : tiers) {
    if (tier.text.empty()) continue;
    const auto size = ParseSize(tier.text);
    if (!size.ok()) return UsageError(absl::StrCat(tier.flag, size.status().message()));
    *tier.size = *size;
  }
  if (options.up->Given("--cxl-numa-node"))
    request.cxl_numa_node = static_cast<int>(options.cxl_numa_node);
  if (!options.fabric.empty()) {
    const std::vector<std::string> known{"auto", "mapped", "stream", "ofi", "ucx"};
    for (const std::string& name : std::vector<std::string>(absl::StrSplit(options.fabric, ','))) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return UsageError("--fabric: " + UnknownWord("fabric", name, known));
      }
    }
    request.fabric = options.fabric;
  }
  if (options.up->Given("--port")) request.port = options.port;
  return request;
}

absl::Status Up(const LocalOptions& options, const Invocation& invocation) {
  const auto request = Request(options);
  if (!request.ok()) return request.status();
  const auto limit = invocation.Timeout(seconds(60));
  if (!limit.ok()) return limit.status();
  const std::string dir = DataDir(options);
  if (options.dry_run) {
    invocation.terminal.err << "dry run: a pool in " << dir << " would be started or repaired\n";
    return absl::OkStatus();
  }
  auto pool = LocalPool::Create(dir);
  if (!pool.ok()) return pool.status();
  if (const absl::Status status = pool->Configure(*request); !status.ok()) return status;
  const auto report = StartAndAwait(*pool, *limit, invocation.terminal);
  if (!report.ok()) {
    pool->TakeBack();
    return report.status();
  }
  const std::string& endpoint = pool->settings().endpoint;
  if (!pool->taken().empty()) {
    invocation.terminal.err << pool->taken() << " is taken, using " << endpoint << '\n';
  }
  if (auto status = WriteContext({endpoint, pool->data_dir()}); !status.ok()) return status;
  if (report->started.empty()) {
    invocation.terminal.err << "the local pool was running already: " << pool->settings().nodes
                            << " nodes, data in " << pool->data_dir() << '\n';
  } else {
    invocation.terminal.err << "started " << absl::StrJoin(report->started, ", ") << "; data in "
                            << pool->data_dir() << '\n';
  }
  invocation.terminal.out << endpoint << '\n';
  return absl::OkStatus();
}

// One line of `local status`.
struct DaemonView {
  LocalDaemon daemon;
  std::string state;  // running, joining, dead, stopped
  std::string endpoint;
};

std::vector<DaemonView> View(const LocalPool& pool) {
  std::map<std::string, v1::Node> joined;
  if (const auto nodes = PoolStub(pool.settings().endpoint, seconds(1), nullptr).Nodes();
      nodes.ok()) {
    for (const v1::Node& node : nodes->nodes()) {
      if (node.alive()) joined[node.node()] = node;
    }
  }
  std::vector<DaemonView> views;
  for (LocalDaemon& daemon : pool.Daemons()) {
    DaemonView view{std::move(daemon), "stopped", ""};
    const auto node = joined.find(view.daemon.name);
    const bool controller = view.daemon.name == kController;
    if (view.daemon.running) {
      view.state = controller || node != joined.end() ? "running" : "joining";
      view.endpoint = controller             ? pool.settings().endpoint
                      : node != joined.end() ? node->second.endpoint()
                                             : "";
    } else if (view.daemon.process) {
      view.state = "dead";
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::string ViewsAsJson(const LocalPool& pool, const std::vector<DaemonView>& views) {
  nlohmann::ordered_json json{{"endpoint", pool.settings().endpoint},
                              {"dataDir", pool.data_dir()},
                              {"processes", nlohmann::ordered_json::array()}};
  for (const DaemonView& view : views) {
    json["processes"].push_back({{"name", view.daemon.name},
                                 {"state", view.state},
                                 {"pid", view.daemon.process ? view.daemon.process->pid : 0},
                                 {"endpoint", view.endpoint},
                                 {"log", view.daemon.log}});
  }
  return json.dump();
}

void PrintViews(const std::vector<DaemonView>& views, bool wide, const Terminal& terminal) {
  TextTable table(
      {{"NAME"}, {"STATE"}, {"PID", false, true}, {"ENDPOINT"}, {"LOG", true}, {"AGE"}});
  for (const DaemonView& view : views) {
    const auto& process = view.daemon.process;
    table.Add({view.daemon.name, view.state, process ? absl::StrCat(process->pid) : "",
               view.endpoint, view.daemon.log,
               process ? HumanAge(StartedUnixMs(*process), NowUnixMs()) : ""});
  }
  table.Print(terminal.out, wide);
}

absl::Status Status(const LocalOptions& options, const Invocation& invocation) {
  const auto format = ParseFormat(invocation.output, {Format::kTable, Format::kWide, Format::kJson,
                                                      Format::kYaml, Format::kName});
  if (!format.ok()) return format.status();
  const auto pool = LocalPool::Peek(DataDir(options));
  if (!pool.ok()) return pool.status();
  const std::vector<DaemonView> views = View(*pool);
  const Terminal& terminal = invocation.terminal;
  if (*format == Format::kJson) {
    terminal.out << PrettyJson(ViewsAsJson(*pool, views));
  } else if (*format == Format::kYaml) {
    terminal.out << JsonToYaml(ViewsAsJson(*pool, views));
  } else if (*format == Format::kName) {
    for (const DaemonView& view : views) terminal.out << "process/" << view.daemon.name << '\n';
  } else {
    PrintViews(views, *format == Format::kWide, terminal);
  }
  bool well = true, stopped = true;
  for (const DaemonView& view : views) {
    stopped = stopped && view.state == "stopped";
    if (view.state == "running") continue;
    well = false;
    if (view.state != "dead") continue;
    terminal.err << view.daemon.name << " is dead: pid " << view.daemon.process->pid
                 << " is gone; its log is " << view.daemon.log << '\n';
  }
  if (well) return absl::OkStatus();
  terminal.err << (stopped ? "the pool is stopped: `engramctl local up` starts it\n"
                           : "`engramctl local up` repairs it\n");
  return AlreadyReported(absl::StatusCode::kInternal);
}

// Where no pool is the current one, that of the default directory is, if it runs.
void ReturnToDefaultPool() {
  const auto pool = LocalPool::Peek(DefaultDataDir());
  if (!absl::IsNotFound(ReadContext().status()) || !pool.ok()) return;
  if (!pool->Daemons().front().running) return;
  (void)WriteContext({pool->settings().endpoint, pool->data_dir()});
}

absl::Status Down(const LocalOptions& options, const Invocation& invocation) {
  const auto grace = invocation.Timeout(seconds(10));
  if (!grace.ok()) return grace.status();
  const std::string dir = DataDir(options);
  auto pool = LocalPool::Open(dir);
  if (absl::IsNotFound(pool.status())) {
    invocation.terminal.err << "there is no local pool in " << dir << ": nothing to stop\n";
    return absl::OkStatus();
  }
  if (!pool.ok()) return pool.status();
  if (options.dry_run) {
    invocation.terminal.err << "dry run: would stop the pool at " << pool->settings().endpoint
                            << (options.purge ? " and remove " : " and keep ") << pool->data_dir()
                            << '\n';
    return absl::OkStatus();
  }
  const std::vector<LocalDaemon> daemons = pool->Daemons();
  const bool ran = std::any_of(daemons.begin(), daemons.end(), [](const LocalDaemon& daemon) {
    return daemon.process.has_value();
  });
  if (const absl::Status status = pool->Stop(*grace); !status.ok()) return status;
  ForgetContext(pool->data_dir());
  ReturnToDefaultPool();
  if (options.purge) {
    if (const absl::Status status = pool->Purge(); !status.ok()) return status;
  }
  invocation.terminal.err << (ran ? "stopped the pool at " : "was stopped already: the pool at ")
                          << pool->settings().endpoint
                          << (options.purge ? "; removed " : "; its state stays in ")
                          << pool->data_dir() << '\n';
  return absl::OkStatus();
}

}  // namespace

Action DeclareLocal(Options app) {
  auto options = std::make_shared<LocalOptions>();
  Options up = app.Subcommand("up", "Start the pool, or repair it: what runs is left alone");
  Options status = app.Subcommand("status", "Show every process of the pool");
  Options down = app.Subcommand("down", "Stop the pool; tables come back with the next `up`");
  up.Number("--nodes", &options->nodes, "Pool nodes (3)", 1u, 64u);
  up.Text("--memory-per-node", &options->memory, "Table memory of each node (1GiB)");
  up.Text("--nvme-per-node", &options->nvme,
          "Room of each node's nvme tier, in the data directory (0: none)");
  up.Text("--cxl-per-node", &options->cxl, "Memory of each node's cxl tier (0: none)");
  up.Number("--cxl-numa-node", &options->cxl_numa_node, "NUMA node on which that memory lies", 0u,
            1023u);
  up.Text("--fabric", &options->fabric,
          "auto, or some of mapped, stream, ofi, ucx with commas (auto)");
  up.Number("--port", &options->port,
            "Port of the controller; 0: any free one (7700 unless taken)");
  down.Flag("--purge", &options->purge, "Remove the data directory as well");
  for (Options sub : {up, status, down}) {
    sub.Text("--data-dir", &options->data_dir, "Where the pool keeps state, logs and sockets");
  }
  for (Options sub : {up, down}) {
    sub.Flag("--dry-run", &options->dry_run, "Say what would be done, and do nothing");
  }
  options->up = up;
  options->status = status;
  options->down = down;
  return [options](const Invocation& invocation) {
    if (options->up->Chosen()) return Up(*options, invocation);
    if (options->status->Chosen()) return Status(*options, invocation);
    return Down(*options, invocation);
  };
}

}  // namespace engram::ctl
