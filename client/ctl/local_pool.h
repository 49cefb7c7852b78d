// A pool on this machine: one controller and N pool nodes as daemons under one data directory.
//
//   DIR/local.yaml    what was asked for (nodes, memory, tiers, fabric) and the endpoint
//   DIR/lock          held while a command changes the pool
//   DIR/run/          pid files; node runtime directories (sockets) beside them or under /tmp where
//                     the path would be too long for a socket
//   DIR/log/          one file a daemon
//   DIR/state/        the controller's SQLite file
//   DIR/nvme/         a folder for each node's nvme tier, where there is one
//
// Starting is repairing: what runs is left alone, what is dead is started. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/ctl/process.h"
#include "engram/clock.h"

namespace engram::ctl {

inline constexpr std::uint16_t kDefaultPort = 7700;

// What is kept in local.yaml.
struct LocalPoolSettings {
  std::uint32_t nodes = 3;
  std::uint64_t memory_per_node = std::uint64_t{1} << 30;
  std::uint64_t nvme_per_node = 0;  // 0: no such tier
  std::uint64_t cxl_per_node = 0;   // 0: no such tier
  int cxl_numa_node = -1;           // where it lies
  std::string fabric = "auto";      // auto, mapped, stream, ofi, ucx
  std::string endpoint;             // HOST:PORT, once chosen
};

// What `local up` was asked for; empty = as it was, or the default.
struct LocalPoolRequest {
  std::optional<std::uint32_t> nodes = {};
  std::optional<std::uint64_t> memory_per_node = {};
  std::optional<std::uint64_t> nvme_per_node = {};
  std::optional<std::uint64_t> cxl_per_node = {};
  std::optional<int> cxl_numa_node = {};
  std::optional<std::string> fabric = {};
  std::optional<std::uint16_t> port = {};  // 0: any free one
};

// One daemon as its pid file and the process table show it.
struct LocalDaemon {
  std::string name;  // "controller", "node-0", ...
  std::string log;
  std::optional<ProcessId> process;  // nothing: never started, or stopped by `down`
  bool running = false;
};

// $XDG_DATA_HOME/engram/local, else ~/.local/share/engram/local.
std::string DefaultDataDir();
// The folder in which this program lies: its siblings are the daemons.
std::string ProgramDir();

class LocalPool {
 public:
  // Takes the directory's lock. NotFound: no pool was ever made there. Aborted: another command
  // holds the lock.
  static absl::StatusOr<LocalPool> Open(const std::string& data_dir);
  // The same without the lock: to look, not to change.
  static absl::StatusOr<LocalPool> Peek(const std::string& data_dir);
  // As Open, but makes the directory. FailedPrecondition: it holds other things.
  static absl::StatusOr<LocalPool> Create(const std::string& data_dir);
  LocalPool(LocalPool&&) noexcept;
  LocalPool& operator=(LocalPool&&) = delete;
  ~LocalPool();

  const std::string& data_dir() const { return dir_; }
  const LocalPoolSettings& settings() const { return settings_; }

  // The endpoint that Configure wanted and could not have; else "".
  const std::string& taken() const { return taken_; }

  std::vector<LocalDaemon> Daemons() const;

  // Settles what the pool shall be, and writes it down. FailedPrecondition: a running pool was
  // asked to become another one. Unavailable: the port that was asked for is taken.
  absl::Status Configure(const LocalPoolRequest& request);

  // Starts daemon `name` unless it runs; true if it was started.
  absl::StatusOr<bool> Start(const std::string& name, const std::string& program_dir) const;

  // After a failed start: nothing is remembered of daemons that have ended, nor of a pool that this
  // object made. Logs stay.
  void TakeBack();
  // Stops every daemon (nodes first), and removes pid files, sockets and left-over shared memory.
  absl::Status Stop(Duration grace) const;
  // REQUIRES: stopped. Removes the data directory.
  absl::Status Purge();

 private:
  LocalPool(std::string dir, int lock) : dir_(std::move(dir)), lock_(lock) {}
  static absl::StatusOr<LocalPool> Lock(const std::string& dir);
  absl::Status ReadSettings();
  absl::Status WriteSettings() const;
  absl::Status ChooseEndpoint(std::optional<std::uint16_t> port);
  Command CommandOf(const std::string& name, const std::string& program_dir) const;
  LocalDaemon Look(const std::string& name) const;
  std::string PidFile(const std::string& name) const { return dir_ + "/run/" + name + ".pid"; }
  std::string RuntimeDir(const std::string& name) const;
  std::string NvmeDir(const std::string& name) const { return dir_ + "/nvme/" + name; }
  absl::Status CheckSame(const LocalPoolRequest& request, const std::string& endpoint) const;
  absl::Status MakeDirs(const std::string& name) const;

  std::string dir_;
  int lock_;
  LocalPoolSettings settings_;
  std::string taken_;
  bool made_ = false;  // there was no pool before
};

inline constexpr std::string_view kController = "controller";

}  // namespace engram::ctl
