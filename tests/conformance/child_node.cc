// A node in a child process: the same program started with `--target`, commands over its standard
// input and output. It is started afresh rather than forked, because this process has threads.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/conformance/node.h"

extern char** environ;

namespace engram::fabric::conformance {
namespace {

class ChildNode final : public Node {
 public:
  ChildNode(pid_t pid, FILE* commands, FILE* answers)
      : pid_(pid), commands_(commands), answers_(answers) {}
  ~ChildNode() override { ChildNode::Stop(); }

  // Reads the child's greeting.
  absl::Status Meet() {
    std::istringstream in(Answer());
    std::string word;
    int kind = 0;
    in >> word >> kind >> address_.one_sided >> address_.offloaded >> address_.nonce >>
        address_.address;
    address_.fabric = static_cast<FabricKind>(kind);
    if (word == "ok" && in) return absl::OkStatus();
    return absl::UnavailableError("the child target did not start: " + in.str());
  }

  PathAddress address() const override { return address_; }
  absl::StatusOr<ExposedRegion> Expose(const MemoryPlace& place) override {
    std::istringstream in(Ask(absl::StrCat("expose ", place.slab, " ", place.offset, " ",
                                           place.length, " ", place.alignment)));
    std::string word;
    ExposedRegion region;
    in >> word >> region.address >> region.length >> region.key;
    if (word == "ok" && in) return region;
    return absl::InternalError(in.str());
  }
  void Hide(std::uint64_t key) override { Ask(absl::StrCat("hide ", key)); }
  void Admit(const SessionToken& session) override { Ask("admit " + session.Hex()); }
  void Dismiss(const SessionToken& session) override { Ask("dismiss " + session.Hex()); }
  void Allow(const SessionToken& session, std::uint64_t key) override {
    Ask(absl::StrCat("allow ", session.Hex(), " ", key));
  }
  void Disallow(const SessionToken& session, std::uint64_t key) override {
    Ask(absl::StrCat("disallow ", session.Hex(), " ", key));
  }
  void Stop() override {
    if (pid_ < 0) return;
    Resume();
    fclose(commands_);  // the child's standard input ends, and so does the child
    End();
  }
  void Kill() override {
    kill(pid_, SIGKILL);
    fclose(commands_);
    End();
  }
  void Pause() override {
    kill(pid_, SIGSTOP);
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
  }
  void Resume() override { kill(pid_, SIGCONT); }

 private:
  std::string Answer() {
    char line[1024];
    if (fgets(line, sizeof line, answers_) == nullptr) return "error the child is gone";
    return line;
  }
  std::string Ask(const std::string& command) {
    fprintf(commands_, "%s\n", command.c_str());
    fflush(commands_);
    return Answer();
  }
  void End() {
    fclose(answers_);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  pid_t pid_;
  FILE* commands_;
  FILE* answers_;
  PathAddress address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Node>> StartNodeInChild(const Rig& rig, const TargetPlace& place) {
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) {
    return absl::InternalError("pipe2 failed");
  }
  std::vector<std::string> words = {"/proc/self/exe",
                                    "--target",
                                    rig.name(),
                                    place.node.name,
                                    absl::StrCat(place.incarnation.value()),
                                    place.address};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  if (error != 0) return absl::InternalError("posix_spawn failed");
  auto node =
      std::make_unique<ChildNode>(pid, fdopen(to_child[1], "w"), fdopen(from_child[0], "r"));
  if (auto status = node->Meet(); !status.ok()) return status;
  return node;
}

}  // namespace engram::fabric::conformance
