#include "client/ctl/local_pool.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/ctl/endpoint.h"
#include "engram/settings/units.h"
#include "engram/table_spec.h"

namespace engram::ctl {
namespace {

namespace fs = std::filesystem;

constexpr char kSettingsFile[] = "/local.yaml";
// sockaddr_un holds 107 characters; a node needs some of them for its sockets' own names.
constexpr std::size_t kLongestRuntimeDir = 70;

// The port if it can be bound on 127.0.0.1 (0 = any), else nothing.
std::optional<std::uint16_t> FreePort(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(fd);
  if (!bound) return std::nullopt;
  return ntohs(address.sin_port);
}

// libfabric's shm provider leaves /dev/shm/PID:... behind when its process dies by a signal.
void RemoveSharedMemoryOf(pid_t pid) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(absl::StrCat(pid, ":"))) fs::remove(entry.path(), ignored);
  }
}

// Anything but what an interrupted `up` may have left.
bool HoldsForeignFiles(const std::string& dir) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename();
    if (name != "lock" && name != "run" && name != "log" && name != "state") return true;
  }
  return false;
}

absl::Status Refuse(const std::string& what, const std::string& is, const std::string& asked) {
  return absl::FailedPreconditionError(absl::StrCat("the local pool runs with ", what, " ", is,
                                                    ", not ", asked,
                                                    "; stop it first: `engramctl local down`"));
}

}  // namespace

std::string DefaultDataDir() {
  const std::string home = EnvironmentOr("HOME", absl::StrCat("/tmp/engram-", getuid()));
  return EnvironmentOr("XDG_DATA_HOME", home + "/.local/share") + "/engram/local";
}

std::string ProgramDir() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

LocalPool::LocalPool(LocalPool&& other) noexcept
    : dir_(std::move(other.dir_)),
      lock_(std::exchange(other.lock_, -1)),
      settings_(std::move(other.settings_)),
      taken_(std::move(other.taken_)),
      made_(other.made_) {}

LocalPool::~LocalPool() {
  if (lock_ >= 0) close(lock_);
}

absl::StatusOr<LocalPool> LocalPool::Lock(const std::string& dir) {
  const std::string path = dir + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write in ", dir, ": ", std::strerror(errno), "; try --data-dir"));
  }
  LocalPool pool(dir, fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::AbortedError(
        absl::StrCat("another `engramctl local` command works on ", dir, "; try again later"));
  }
  return pool;
}

absl::StatusOr<LocalPool> LocalPool::Peek(const std::string& data_dir) {
  const std::string dir = fs::absolute(data_dir).lexically_normal();
  if (!fs::exists(dir + kSettingsFile)) {
    return absl::NotFoundError(
        absl::StrCat("there is no local pool in ", dir, "; start one with `engramctl local up`"));
  }
  LocalPool pool(dir, -1);
  const absl::Status read = pool.ReadSettings();
  if (!read.ok()) return read;
  return pool;
}

absl::StatusOr<LocalPool> LocalPool::Open(const std::string& data_dir) {
  auto pool = Peek(data_dir);
  if (!pool.ok()) return pool;
  auto locked = Lock(pool->dir_);
  if (!locked.ok()) return locked.status();
  // Read again under the lock: it may have changed meanwhile.
  const absl::Status read = locked->ReadSettings();
  if (!read.ok()) return read;
  return locked;
}

absl::StatusOr<LocalPool> LocalPool::Create(const std::string& data_dir) {
  const std::string dir = fs::absolute(data_dir).lexically_normal();
  if (fs::exists(dir + kSettingsFile)) return Open(dir);
  std::error_code error;
  fs::create_directories(dir, error);
  if (HoldsForeignFiles(dir)) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir, " is not empty and holds no local pool; give another --data-dir"));
  }
  for (const char* folder : {"/run", "/log", "/state"}) fs::create_directories(dir + folder, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make ", dir, ": ", error.message(), "; give another --data-dir"));
  }
  fs::permissions(dir, fs::perms::owner_all, error);
  auto pool = Lock(dir);
  if (pool.ok()) pool->made_ = true;
  return pool;
}

absl::Status LocalPool::ReadSettings() {
  try {
    const YAML::Node file = YAML::LoadFile(dir_ + kSettingsFile);
    settings_.nodes = file["nodes"].as<std::uint32_t>();
    settings_.fabric = file["fabric"].as<std::string>();
    settings_.endpoint = file["endpoint"].as<std::string>();
    const auto memory = ParseSize(file["memory_per_node"].as<std::string>());
    if (!memory.ok()) return memory.status();
    settings_.memory_per_node = *memory;
    // Pools of earlier versions have no tiers but memory.
    const auto nvme = ParseSize(file["nvme_per_node"].as<std::string>("0"));
    if (!nvme.ok()) return nvme.status();
    const auto cxl = ParseSize(file["cxl_per_node"].as<std::string>("0"));
    if (!cxl.ok()) return cxl.status();
    settings_.nvme_per_node = *nvme;
    settings_.cxl_per_node = *cxl;
    settings_.cxl_numa_node = file["cxl_numa_node"].as<int>(-1);
    return absl::OkStatus();
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir_, kSettingsFile, " cannot be read (", error.what(),
                     "); stop the daemons by their pids in ", dir_, "/run and remove ", dir_));
  }
}

absl::Status LocalPool::WriteSettings() const {
  YAML::Emitter yaml;
  yaml << YAML::Comment("A pool on this machine, made by `engramctl local up`.") << YAML::BeginMap
       << YAML::Key << "endpoint" << YAML::Value << settings_.endpoint << YAML::Key << "nodes"
       << YAML::Value << settings_.nodes << YAML::Key << "memory_per_node" << YAML::Value
       << FormatSize(settings_.memory_per_node) << YAML::Key << "nvme_per_node" << YAML::Value
       << FormatSize(settings_.nvme_per_node) << YAML::Key << "cxl_per_node" << YAML::Value
       << FormatSize(settings_.cxl_per_node) << YAML::Key << "cxl_numa_node" << YAML::Value
       << settings_.cxl_numa_node << YAML::Key << "fabric" << YAML::Value << settings_.fabric
       << YAML::EndMap;
  const std::string path = dir_ + kSettingsFile;
  std::ofstream file(path + ".new", std::ios::trunc);
  file << yaml.c_str() << '\n';
  file.close();
  if (file && std::rename((path + ".new").c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

LocalDaemon LocalPool::Look(const std::string& name) const {
  LocalDaemon daemon{name, dir_ + "/log/" + name + ".log", std::nullopt, false};
  if (auto process = ReadPidFile(PidFile(name)); process.ok()) {
    daemon.running = IsRunning(*process);
    daemon.process = std::move(*process);
  }
  return daemon;
}

std::vector<LocalDaemon> LocalPool::Daemons() const {
  std::vector<LocalDaemon> daemons{Look(std::string(kController))};
  for (std::uint32_t i = 0; i < settings_.nodes; ++i) {
    daemons.push_back(Look(absl::StrCat("node-", i)));
  }
  return daemons;
}

// A pool that runs may grow and nothing else.
absl::Status LocalPool::CheckSame(const LocalPoolRequest& request,
                                  const std::string& endpoint) const {
  const struct {
    const char* what;
    std::optional<std::uint64_t> asked;
    std::uint64_t is;
  } sizes[] = {{"a memory per node of", request.memory_per_node, settings_.memory_per_node},
               {"an nvme tier per node of", request.nvme_per_node, settings_.nvme_per_node},
               {"a cxl tier per node of", request.cxl_per_node, settings_.cxl_per_node}};
  for (const auto& size : sizes) {
    if (size.asked.value_or(size.is) != size.is)
      return Refuse(size.what, FormatSize(size.is), FormatSize(*size.asked));
  }
  if (request.cxl_numa_node.value_or(settings_.cxl_numa_node) != settings_.cxl_numa_node) {
    return Refuse("its cxl tier on NUMA node", absl::StrCat(settings_.cxl_numa_node),
                  absl::StrCat(*request.cxl_numa_node));
  }
  if (request.fabric.value_or(settings_.fabric) != settings_.fabric) {
    return Refuse("fabric", settings_.fabric, *request.fabric);
  }
  if (!endpoint.empty() && endpoint != settings_.endpoint) {
    return Refuse("endpoint", settings_.endpoint, endpoint);
  }
  if (request.nodes.value_or(settings_.nodes) < settings_.nodes) {
    return Refuse("nodes", absl::StrCat(settings_.nodes), absl::StrCat(*request.nodes));
  }
  return absl::OkStatus();
}

absl::Status LocalPool::Configure(const LocalPoolRequest& request) {
  bool running = false;
  for (const LocalDaemon& daemon : Daemons()) running = running || daemon.running;
  const std::string port =
      request.port.value_or(0) != 0 ? absl::StrCat("127.0.0.1:", *request.port) : "";
  if (running) {
    if (const absl::Status same = CheckSame(request, port); !same.ok()) return same;
  }
  settings_.nodes = request.nodes.value_or(settings_.nodes);
  settings_.memory_per_node = request.memory_per_node.value_or(settings_.memory_per_node);
  settings_.nvme_per_node = request.nvme_per_node.value_or(settings_.nvme_per_node);
  settings_.cxl_per_node = request.cxl_per_node.value_or(settings_.cxl_per_node);
  settings_.cxl_numa_node = request.cxl_numa_node.value_or(settings_.cxl_numa_node);
  if (settings_.cxl_per_node == 0 && !request.cxl_numa_node) settings_.cxl_numa_node = -1;
  if ((settings_.cxl_per_node > 0) != (settings_.cxl_numa_node >= 0)) {
    return absl::InvalidArgumentError(
        "--cxl-per-node says how much and --cxl-numa-node where (numactl -H lists nodes; CXL "
        "memory "
        "has no CPUs): give both, or --cxl-per-node 0 alone");
  }
  settings_.fabric = request.fabric.value_or(settings_.fabric);
  if (!Look(std::string(kController)).running) {
    const absl::Status chosen = ChooseEndpoint(request.port);
    if (!chosen.ok()) return chosen;
  }
  return WriteSettings();
}

absl::Status LocalPool::ChooseEndpoint(std::optional<std::uint16_t> port) {
  std::uint16_t wanted = port.value_or(kDefaultPort);
  // Nodes that run look for the controller where it was.
  if (!port && !settings_.endpoint.empty()) {
    wanted = static_cast<std::uint16_t>(
        std::atoi(settings_.endpoint.substr(settings_.endpoint.rfind(':') + 1).c_str()));
  }
  std::optional<std::uint16_t> free = FreePort(wanted);
  bool nodes_running = false;
  for (const LocalDaemon& daemon : Daemons()) nodes_running = nodes_running || daemon.running;
  if (!free && (port || nodes_running)) {
    return absl::UnavailableError(
        absl::StrCat("port ", wanted, " of 127.0.0.1 is taken; see `ss -ltnp sport = :", wanted,
                     "`, or choose another with --port after `engramctl local down`"));
  }
  if (!free) {
    taken_ = absl::StrCat("127.0.0.1:", wanted);
    free = FreePort(0);
  }
  if (!free)
    return absl::UnavailableError("no port of 127.0.0.1 can be bound; see `engramctl doctor`");
  settings_.endpoint = absl::StrCat("127.0.0.1:", *free);
  return absl::OkStatus();
}

std::string LocalPool::RuntimeDir(const std::string& name) const {
  const std::string inside = dir_ + "/run/" + name;
  if (inside.size() <= kLongestRuntimeDir) return inside;
  return "/tmp/engram-" + Sha256Hex(dir_).substr(0, 12) + "/" + name;
}

Command LocalPool::CommandOf(const std::string& name, const std::string& program_dir) const {
  Command command;
  command.log = dir_ + "/log/" + name + ".log";
  if (name == kController) {
    command.program = program_dir + "/engram-placement";
    command.arguments = {"--listen",         settings_.endpoint,
                         "--state-file",     dir_ + "/state/placement.db",
                         "--metrics-listen", "127.0.0.1:0"};
    return command;
  }
  command.program = program_dir + "/engram-poolserver";
  command.arguments = {"--node-id",        name,
                       "--failure-domain", name,
                       "--controller",     settings_.endpoint,
                       "--listen",         "127.0.0.1:0",
                       "--stream-listen",  "127.0.0.1:0",
                       "--metrics-listen", "127.0.0.1:0",
                       "--runtime-dir",    RuntimeDir(name),
                       "--memory",         FormatSize(settings_.memory_per_node)};
  if (settings_.nvme_per_node > 0) {
    command.arguments.insert(command.arguments.end(), {"--nvme-dir", NvmeDir(name), "--nvme",
                                                       FormatSize(settings_.nvme_per_node)});
  }
  if (settings_.cxl_per_node > 0) {
    command.arguments.insert(command.arguments.end(),
                             {"--cxl-memory", FormatSize(settings_.cxl_per_node), "--cxl-numa-node",
                              absl::StrCat(settings_.cxl_numa_node)});
  }
  if (settings_.fabric != "auto") {
    command.arguments.insert(command.arguments.end(), {"--fabrics", settings_.fabric});
  }
  return command;
}

// Sockets of an earlier process go; row files of the nvme tier stay.
absl::Status LocalPool::MakeDirs(const std::string& name) const {
  std::error_code error;
  fs::remove_all(RuntimeDir(name), error);
  std::vector<std::string> wanted{RuntimeDir(name)};
  if (settings_.nvme_per_node > 0) wanted.push_back(NvmeDir(name));
  for (const std::string& dir : wanted) {
    fs::create_directories(dir, error);
    if (error) return absl::InternalError(absl::StrCat("cannot make ", dir, ": ", error.message()));
    fs::permissions(dir, fs::perms::owner_all, error);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LocalPool::Start(const std::string& name,
                                      const std::string& program_dir) const {
  const LocalDaemon daemon = Look(name);
  if (daemon.running) return false;
  if (daemon.process) RemoveSharedMemoryOf(daemon.process->pid);
  if (name != kController) {
    if (const absl::Status made = MakeDirs(name); !made.ok()) return made;
  }
  const auto process = StartDaemon(CommandOf(name, program_dir));
  if (!process.ok()) return process.status();
  const absl::Status written = WritePidFile(PidFile(name), *process);
  if (written.ok()) return true;
  (void)StopProcesses({*process}, Duration::zero());
  return written;
}

void LocalPool::TakeBack() {
  std::error_code ignored;
  bool running = false;
  for (const LocalDaemon& daemon : Daemons()) {
    running = running || daemon.running;
    if (daemon.running) continue;
    fs::remove_all(RuntimeDir(daemon.name), ignored);
    fs::remove(PidFile(daemon.name), ignored);
  }
  if (made_ && !running) fs::remove(dir_ + kSettingsFile, ignored);
}

absl::Status LocalPool::Stop(Duration grace) const {
  std::vector<ProcessId> nodes;
  std::vector<ProcessId> controller;
  const std::vector<LocalDaemon> daemons = Daemons();
  for (const LocalDaemon& daemon : daemons) {
    if (daemon.process)
      (daemon.name == kController ? controller : nodes).push_back(*daemon.process);
  }
  for (const auto& group : {nodes, controller}) {
    const absl::Status stopped = StopProcesses(group, grace);
    if (!stopped.ok()) return stopped;
  }
  std::error_code ignored;
  for (const LocalDaemon& daemon : daemons) {
    if (daemon.process) RemoveSharedMemoryOf(daemon.process->pid);
    fs::remove_all(RuntimeDir(daemon.name), ignored);
    fs::remove(fs::path(RuntimeDir(daemon.name)).parent_path(), ignored);  // only where empty
    fs::remove(PidFile(daemon.name), ignored);
  }
  fs::create_directories(dir_ + "/run", ignored);
  return absl::OkStatus();
}

absl::Status LocalPool::Purge() {
  std::error_code error;
  fs::remove_all(dir_, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot remove ", dir_, ": ", error.message()));
}

}  // namespace engram::ctl
