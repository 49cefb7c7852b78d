#include "bench/driver/local_pool.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

extern char** environ;

namespace engram::bench {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& command) {
  char dir[] = "/tmp/engram-bench-run-XXXXXX";
  if (mkdtemp(dir) == nullptr) return absl::UnavailableError("cannot make a directory under /tmp");
  const std::string out = absl::StrCat(dir, "/out"), err = absl::StrCat(dir, "/err");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), flags, 0600);
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  if (error == 0) waitpid(pid, &status, 0);
  const std::string said = ReadAll(out), complained = ReadAll(err);
  std::filesystem::remove_all(dir);
  if (error != 0)
    return absl::UnavailableError(
        absl::StrCat("cannot run ", command[0], ": ", std::strerror(error)));
  if (status != 0)
    return absl::UnavailableError(
        absl::StrCat(absl::StrJoin(command, " "), " failed: ", complained));
  return said;
}

absl::StatusOr<std::unique_ptr<LocalPool>> LocalPool::Up(const std::string& bin_dir, int nodes,
                                                         const std::string& memory_per_node,
                                                         const std::string& fabrics) {
  char dir[] = "/tmp/engram-bench-XXXXXX";
  if (mkdtemp(dir) == nullptr) return absl::UnavailableError("cannot make a directory under /tmp");
  auto pool = std::unique_ptr<LocalPool>(new LocalPool);
  pool->bin_dir_ = bin_dir;
  pool->dir_ = dir;
  setenv("ENGRAM_CONTEXT", absl::StrCat(dir, "/context.yaml").c_str(), 1);
  auto up = pool->Ctl({"local", "up", "--nodes", std::to_string(nodes), "--memory-per-node",
                       memory_per_node, "--fabric", fabrics, "--data-dir",
                       absl::StrCat(dir, "/pool"), "--port", "0"});
  if (!up.ok()) return up.status();
  const std::size_t end = up->find_last_not_of(" \n");
  const std::size_t begin = up->find_last_of(" \n", end);
  pool->endpoint_ = up->substr(begin == std::string::npos ? 0 : begin + 1, end - begin);
  return pool;
}

LocalPool::~LocalPool() {
  (void)Ctl({"local", "down", "--purge", "--data-dir", absl::StrCat(dir_, "/pool")});
  std::filesystem::remove_all(dir_);
}

absl::StatusOr<std::string> LocalPool::Local(const std::string& verb) const {
  return Ctl({"local", verb, "--data-dir", absl::StrCat(dir_, "/pool")});
}

absl::StatusOr<std::string> LocalPool::Ctl(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command{bin_dir_ + "/engramctl"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunProgram(command);
}

}  // namespace engram::bench
