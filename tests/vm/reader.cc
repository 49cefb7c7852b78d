// engram_vm_reader: a client of a pool that does what it is told over standard input, so that a
// shell script can freeze nodes and take links down in the middle of its reads.
//
//   engram_vm_reader ENDPOINT TABLE FABRIC
//     read N SECONDS    N random rows in batches of 256, each batch within SECONDS; every byte is
//                       compared with what the table came from
//     again N SECONDS   as read, each batch within 5 s, from the start after a failure, until all N
//                       were right or SECONDS have passed
// Each command is answered by one line: "ok|failed rows=R wrong=W tries=T ms=M path=F,F why".
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/row_judge.h"
#include "client/rpc/pool.h"
#include "engram/random.h"

namespace engram::vm {
namespace {

constexpr std::uint64_t kBatch = 256;
// Between tries: whoever makes the rows readable again needs the processor.
constexpr auto kPause = std::chrono::milliseconds(100);

struct Score {
  std::uint64_t right = 0, wrong = 0, tries = 1;
  absl::Status status;
};

class Reader {
 public:
  Reader(client::Table& table, const ctl::RowJudge& judge)
      : table_(table), judge_(judge), row_bytes_(table.layout().row_bytes()) {}

  Score Read(std::uint64_t rows, Duration limit) {
    Score score;
    while (score.right + score.wrong < rows && score.status.ok()) {
      Batch(std::min(kBatch, rows - score.right - score.wrong), limit, &score);
    }
    return score;
  }

  Score Again(std::uint64_t rows, Duration limit) {
    const Instant end = SystemClock::Get().Now() + limit;
    Score score;
    for (std::uint64_t tries = 1;; ++tries) {
      score = Read(rows, std::chrono::seconds(5));
      score.tries = tries;
      if (score.status.ok() || score.wrong > 0 || SystemClock::Get().Now() >= end) return score;
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  void Batch(std::uint64_t count, Duration limit, Score* score) {
    ids_.resize(count);
    for (RowId& id : ids_) id = RowId(random_.Below(table_.layout().rows()));
    got_.assign(count * row_bytes_, std::byte{0});
    score->status = table_.ReadRows({ids_, got_, {}}, SystemClock::Get().Now() + limit);
    if (!score->status.ok()) return;
    std::vector<std::byte> want(row_bytes_);
    for (std::uint64_t i = 0; i < count; ++i) {
      score->status = judge_.Expected(ids_[i], want);
      if (!score->status.ok()) return;
      const bool right = memcmp(want.data(), got_.data() + i * row_bytes_, row_bytes_) == 0;
      ++(right ? score->right : score->wrong);
    }
  }

  client::Table& table_;
  const ctl::RowJudge& judge_;
  const std::uint32_t row_bytes_;
  SeededRandom random_{1};
  std::vector<RowId> ids_;
  std::vector<std::byte> got_;
};

std::string PathsOf(const client::Pool& pool) {
  std::string paths;
  for (const auto& node : pool.Nodes()) {
    for (FabricKind kind : node.fabrics) {
      absl::StrAppend(&paths, paths.empty() ? "" : ",", std::string(Name(kind)));
    }
  }
  return paths.empty() ? "none" : paths;
}

void Serve(const client::Pool& pool, Reader* reader) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    std::uint64_t rows = 0, seconds = 0;
    words >> verb >> rows >> seconds;
    const auto start = std::chrono::steady_clock::now();
    const Duration limit = std::chrono::seconds(seconds);
    const Score score = verb == "again" ? reader->Again(rows, limit) : reader->Read(rows, limit);
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - start);
    const bool ok = score.status.ok() && score.wrong == 0 && score.right == rows;
    std::cout << (ok ? "ok" : "failed") << " rows=" << score.right << " wrong=" << score.wrong
              << " tries=" << score.tries << " ms=" << ms.count() << " path=" << PathsOf(pool)
              << " " << score.status.message() << std::endl;
  }
}

int Main(const std::string& endpoint, const std::string& name, const std::string& fabric) {
  client::PoolOptions options;
  options.endpoints = {endpoint};
  // A guest without hardware virtualisation takes seconds over any connection.
  options.connect_timeout = std::chrono::seconds(120);
  options.reach_timeout = std::chrono::seconds(20);
  client::TakeFabricEnvironment(&options);
  options.log = [](int, const std::string& line) { std::cerr << line << std::endl; };
  if (fabric != "auto") {
    const auto kind = ParseFabricKind(fabric);
    if (!kind.ok()) return std::cerr << kind.status() << std::endl, 2;
    options.fabric = *kind;
  }
  const auto pool = client::Pool::Open(options);
  if (!pool.ok()) return std::cerr << pool.status() << std::endl, 1;
  client::OpenTableOptions patient;
  patient.open_timeout = std::chrono::seconds(150);
  const auto table = (*pool)->OpenTable(name, patient);
  if (!table.ok()) return std::cerr << table.status() << std::endl, 1;
  const auto judge = ctl::RowJudge::Open((*table)->record(), "");
  if (!judge.ok()) return std::cerr << judge.status() << std::endl, 1;
  Reader reader(**table, **judge);
  std::cout << "open " << PathsOf(**pool) << std::endl;
  Serve(**pool, &reader);
  return 0;
}

}  // namespace
}  // namespace engram::vm

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: engram_vm_reader ENDPOINT TABLE FABRIC" << std::endl;
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  return engram::vm::Main(argv[1], argv[2], argv[3]);
}
