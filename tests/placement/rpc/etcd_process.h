// A real etcd of this test's own, and a proxy in front of it that loses what it is told to lose.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engram/mutex.h"
#include "placement/rpc/etcd_store.h"

namespace engram::placement {

inline int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

// Runs a program to its end; its exit status. What it prints goes to `log`.
inline int RunToEnd(const std::vector<std::string>& arguments, const std::string& log) {
  const pid_t pid = fork();
  if (pid == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(out, 1);
    dup2(out, 2);
    setenv("ETCDCTL_API", "3", 1);
    std::vector<char*> argv;
    for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

class EtcdProcess {
 public:
  // `more`: further flags. REQUIRES: etcd is installed (./dev install-tools).
  explicit EtcdProcess(std::vector<std::string> more = {}, std::string scheme = "http")
      : scheme_(std::move(scheme)), more_(std::move(more)), port_(FreePort()), peer_(FreePort()) {
    std::string pattern = ::testing::TempDir() + "/etcd_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    Start();
  }
  ~EtcdProcess() {
    Kill();
    std::filesystem::remove_all(folder_);
  }

  void Start() {
    const std::string client = Url(), peer = absl::StrCat("http://127.0.0.1:", peer_);
    std::vector<std::string> arguments = {"etcd",
                                          "--name",
                                          "one",
                                          "--data-dir",
                                          folder_ + "/data",
                                          "--listen-client-urls",
                                          client,
                                          "--advertise-client-urls",
                                          client,
                                          "--listen-peer-urls",
                                          peer,
                                          "--initial-advertise-peer-urls",
                                          peer,
                                          "--initial-cluster",
                                          "one=" + peer,
                                          "--logger",
                                          "zap",
                                          "--log-level",
                                          "error"};
    arguments.insert(arguments.end(), more_.begin(), more_.end());
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int out = open(Log().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(out, 1);
      dup2(out, 2);
      std::vector<char*> argv;
      for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
      argv.push_back(nullptr);
      execvp("etcd", argv.data());
      _exit(127);
    }
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  std::string Url() const { return absl::StrCat(scheme_, "://127.0.0.1:", port_); }
  int port() const { return port_; }
  const std::string& folder() const { return folder_; }
  std::string Log() const { return folder_ + "/log"; }

  EtcdOptions Options() const {
    EtcdOptions options;
    options.endpoints = {Url()};
    options.limit = std::chrono::seconds(60);  // a busy machine starts it slowly
    return options;
  }
  int Ctl(std::vector<std::string> arguments) const {
    std::vector<std::string> all = {"etcdctl", "--endpoints", Url(), "--dial-timeout=60s",
                                    "--command-timeout=60s"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return RunToEnd(all, Log());
  }

 private:
  const std::string scheme_;
  const std::vector<std::string> more_;
  const int port_, peer_;
  std::string folder_;
  pid_t pid_ = -1;
};

// Carries bytes between a client and a port of this host.
class LossyProxy {
 public:
  enum class Mode { kCarry, kDropReplies, kHoldRequests };

  explicit LossyProxy(int to) : to_(to) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~LossyProxy() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& carrier : carriers_) carrier.join();
    close(listener_);
  }
  // Held requests go on their way, in order, when the mode is another one.
  void Set(Mode mode) { mode_ = mode; }
  std::string Endpoint() const { return absl::StrCat("127.0.0.1:", port_); }
  std::uint64_t held_bytes() const { return held_; }

 private:
  void Accept() {
    while (!stopping_) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      carriers_.emplace_back([this, client] { Carry(client); });
    }
  }
  void Carry(int client) {
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(to_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool open = connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    std::string held;
    while (open && !stopping_) {
      if (mode_ != Mode::kHoldRequests && !held.empty()) {
        open = send(server, held.data(), held.size(), MSG_NOSIGNAL) > 0;
        held.clear();
      }
      pollfd waits[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
      poll(waits, 2, 10);
      char bytes[64 << 10];
      if (waits[0].revents != 0) {
        const ssize_t got = recv(client, bytes, sizeof bytes, 0);
        open = got > 0;
        if (open && mode_ == Mode::kHoldRequests) {
          held.append(bytes, static_cast<std::size_t>(got));
          held_ += static_cast<std::uint64_t>(got);
        } else if (open) {
          open = send(server, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got;
        }
      }
      if (open && waits[1].revents != 0) {
        const ssize_t got = recv(server, bytes, sizeof bytes, 0);
        open = got > 0;
        if (open && mode_ != Mode::kDropReplies) {
          open = send(client, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got;
        }
      }
    }
    close(server);
    close(client);
  }

  const int to_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<Mode> mode_ = Mode::kCarry;
  std::atomic<std::uint64_t> held_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> carriers_;
};

}  // namespace engram::placement
