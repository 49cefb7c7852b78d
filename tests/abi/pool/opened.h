// What the tests of the C ABI share: a pool that runs already ($ENGRAM_ENDPOINT; started by
// tests/integration/abi_test.py), its tables "small@1" and "other@1", and what their rows are.
// Thread-confined: call from the owner thread only.
#pragma once

#include <engram/engram.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "engram/synthetic.h"

namespace engram::abi_test {

inline constexpr std::size_t kRowBytes = 264, kValues = 256, kScales = 8;
inline constexpr std::uint32_t kLayers = 2, kColumns = 24;
inline constexpr std::uint64_t kSeed = 7, kOtherSeed = 8, kSecondSeed = 10;  // small@2
inline constexpr std::uint64_t kSecond = 1'000'000'000;

// Sets struct_size and zeros.
template <class Struct>
Struct Sized() {
  Struct out{};
  out.struct_size = sizeof out;
  return out;
}

inline void ExpectFails(engram_status got, engram_status wanted, const char* says) {
  const std::string message = engram_last_error();
  EXPECT_STREQ(engram_status_name(got), engram_status_name(wanted)) << message;
  EXPECT_THAT(message, testing::HasSubstr(says));
}
inline void ExpectOk(engram_status got) {
  EXPECT_STREQ(engram_status_name(got), "ok") << engram_last_error();
}

inline std::vector<std::byte> Golden(std::uint64_t row, std::uint64_t seed = kSeed) {
  std::vector<std::byte> out(kRowBytes);
  FillSyntheticRow(seed, RowId(row), out);
  return out;
}

// Whether the command of the pool's operator succeeds.
inline bool Engramctl(const std::string& words) {
  const std::string command =
      std::string(std::getenv("ENGRAM_TEST_BIN")) + "/engramctl " + words + " >/dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

// What the library logs while it lives, a line a message: its level, then the text.
class Log {
 public:
  Log() { engram_set_log(Add, this); }
  ~Log() { engram_set_log(nullptr, nullptr); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  // Whether so many read sessions are open by now, or soon: a table opens with the first that holds
  // all of it.
  bool AwaitSessions(std::size_t count) {
    for (int i = 0; i < 2000; ++i) {
      const std::string all = text();
      std::size_t open = 0;
      for (std::size_t at = 0; (at = all.find("read session open", at)) != all.npos; ++at) ++open;
      if (open >= count) return true;
      usleep(10'000);
    }
    return false;
  }

 private:
  static void Add(int level, const char* message, void* user) {
    Log& log = *static_cast<Log*>(user);
    const std::lock_guard lock(log.mutex_);
    log.text_ += std::to_string(level) + " " + message + "\n";
  }
  std::mutex mutex_;
  std::string text_;
};

// Stops the pool's nodes, or the first few of them, while it lives, so that reads over sockets stay
// outstanding.
class StoppedNodes {
 public:
  explicit StoppedNodes(std::size_t most = SIZE_MAX) {
    std::istringstream list(std::getenv("ENGRAM_TEST_NODES"));
    for (pid_t pid; pids_.size() < most && list >> pid;) pids_.push_back(pid);
    for (const pid_t pid : pids_) kill(pid, SIGSTOP);
    for (const pid_t pid : pids_) {
      while (!IsStopped(pid)) sched_yield();
    }
  }
  ~StoppedNodes() {
    for (const pid_t pid : pids_) kill(pid, SIGCONT);
  }

 private:
  static bool IsStopped(pid_t pid) {
    const std::filesystem::path threads = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& thread : std::filesystem::directory_iterator(threads)) {
      std::ifstream stat(thread.path() / "stat");
      std::string line;
      std::getline(stat, line);
      const std::size_t name_end = line.rfind(')');
      if (name_end != std::string::npos && line.compare(name_end, 3, ") T") != 0) return false;
    }
    return true;
  }
  std::vector<pid_t> pids_;
};

// One open table and, once it was asked for, its prefetcher.
class Opened {
 public:
  explicit Opened(const char* fabric = nullptr, const char* name = "small@1") {
    engram_pool_options options;
    engram_pool_options_init(&options);
    options.fabric = fabric;
    ExpectOk(engram_pool_open(&options, &pool));
    auto patient = Sized<engram_table_options>();
    patient.open_timeout_ns = 60 * kSecond;
    ExpectOk(engram_table_open(pool, name, &patient, &table));
  }
  ~Opened() {
    engram_prefetcher_close(prefetcher);
    engram_table_close(table);
    engram_pool_close(pool);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  engram_prefetcher* Steps(std::uint32_t steps = 8, bool poller = true, bool check_memory = false) {
    if (prefetcher != nullptr) return prefetcher;
    auto options = Sized<engram_prefetcher_options>();
    options.steps = steps;
    options.poller = poller ? 1 : 0;
    options.check_memory = check_memory ? 1 : 0;
    ExpectOk(engram_prefetcher_open(table, &options, &prefetcher));
    return prefetcher;
  }
  engram_layout_info Layout(const engram_layout& layout, std::uint32_t plane = 0) {
    auto info = Sized<engram_layout_info>();
    ExpectOk(engram_table_get_layout(table, &layout, plane, &info));
    return info;
  }
  std::uint64_t FirstRow(std::uint32_t layer) {
    auto info = Sized<engram_layer_info>();
    ExpectOk(engram_table_get_layer(table, layer, &info));
    return info.first_row;
  }
  // [token][layer][column], rows of each layer's own table.
  std::vector<std::int64_t> Addresses(const std::vector<std::int64_t>& ids) {
    std::vector<std::int64_t> rows(ids.size() * kLayers * kColumns);
    const engram_tokens tokens = Tokens(ids);
    ExpectOk(engram_table_addresses(table, &tokens, rows.data(), rows.size()));
    return rows;
  }
  static engram_tokens Tokens(const std::vector<std::int64_t>& ids) {
    auto tokens = Sized<engram_tokens>();
    tokens.tokens = ids.data();
    tokens.count = ids.size();
    return tokens;
  }
  // A step that names no time-out has as long as a slow machine takes.
  engram_ticket Submit(engram_step step) {
    if (step.timeout_ns == 0) step.timeout_ns = 100 * kSecond;
    engram_ticket ticket = 0;
    ExpectOk(engram_prefetcher_submit(Steps(), &step, &ticket));
    return ticket;
  }
  engram_stats Stats() {
    auto stats = Sized<engram_stats>();
    ExpectOk(engram_table_get_stats(table, &stats));
    return stats;
  }

  engram_pool* pool = nullptr;
  engram_table* table = nullptr;
  engram_prefetcher* prefetcher = nullptr;
};

// A token step of `ids` into `out`, [token][layer][column].
struct PackedStep {
  explicit PackedStep(std::vector<std::int64_t> tokens_of)
      : ids(std::move(tokens_of)), out(ids.size() * kLayers * kColumns * kRowBytes) {
    tokens = Opened::Tokens(ids);
    step = Sized<engram_step>();
    step.tokens = &tokens;
    step.out = out.data();
    step.out_bytes = out.size();
  }
  PackedStep(const PackedStep&) = delete;
  PackedStep& operator=(const PackedStep&) = delete;

  bool IsGolden(Opened& opened, std::uint64_t seed = kSeed) const {
    const std::vector<std::int64_t> rows = opened.Addresses(ids);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::uint32_t layer = i / kColumns % kLayers;
      const auto golden =
          Golden(opened.FirstRow(layer) + static_cast<std::uint64_t>(rows[i]), seed);
      if (std::memcmp(&out[i * kRowBytes], golden.data(), kRowBytes) != 0) return false;
    }
    return true;
  }
  bool IsPoison() const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i] != (i % kRowBytes < kValues ? std::byte{0x7f} : std::byte{0xff})) return false;
    }
    return true;
  }

  std::vector<std::int64_t> ids;
  std::vector<std::byte> out;
  engram_tokens tokens;
  engram_step step;
};

}  // namespace engram::abi_test
