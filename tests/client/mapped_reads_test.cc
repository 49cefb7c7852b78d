// A reader over mapped memory after warm-up: no system call, and no lock that somebody else holds.
// The kernel is the judge: it ends a process whose reading thread makes a system call, and a thread
// that waits for a lock makes one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "client/read_heat.h"
#include "client/row_reader.h"
#include "engram/addressing.h"
#include "engram/mutex.h"
#include "engram/random.h"
#include "engram/synthetic.h"
#include "fabric/mapped/mapped_fabric.h"
#include "fabric/mapped/mapped_target.h"
#include "fabric/memory.h"

namespace engram::client {
namespace {

constexpr std::uint64_t kSeed = 5;
constexpr std::uint32_t kStepRows = 48;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

// From here on this thread may end its process and nothing else; other threads go on as before.
void ForbidSystemCalls() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog filter{std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    _exit(100);
}

enum class Outcome { kFine, kSystemCall, kOther };

// What becomes of a process that runs `body`.
template <class Body>
Outcome RunApart(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) return Outcome::kSystemCall;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Outcome::kFine : Outcome::kOther;
}

// One node's table, mapped into this process as a reader's.
class MappedPool {
 public:
  explicit MappedPool(SealKind seal) {
    EngramGeometry geometry;
    geometry.base_rows = 300;
    geometry.raw_vocab = geometry.compressed_vocab = 50;
    const TableSpec spec = *MakeEngramSpec(geometry);
    TableOptions options;
    options.shard_bytes = 1 << 20;
    options.seal = seal;
    table_ = std::make_shared<ReadTable>(TableUid{{9}}, spec, options);
    Fill();
    heat_ = std::make_shared<ReadHeat>(table_->layout.shards());
    lease_ = std::make_shared<ReadLease>(SystemClock::Get().Now() + std::chrono::hours(1));
    target_->Admit(SessionToken{{1}});
    const auto soon = SystemClock::Get().Now() + std::chrono::seconds(60);
    peer_ = *fabric_->AddPeer({target_->address(), SessionToken{{1}}, {"n"}, Incarnation(1)}, soon);
    std::uint64_t at = 0;
    for (std::uint32_t shard = 0; shard < table_->layout.shards(); ++shard) {
      const std::uint64_t bytes = table_->layout.StoredBytes(ShardIndex(shard));
      const auto exposed = *target_->Expose({slab_.get(), at, bytes, table_->layout.stride()});
      target_->Allow(SessionToken{{1}}, exposed.key);
      regions_.push_back(*fabric_->Import({peer_, exposed.address, exposed.length, exposed.key}));
      at += bytes;
    }
    Publish();
    RowReader::Options reader;
    reader.table = table_;
    reader.board = &board_;
    reader.fabrics = {fabric_.get()};
    reader.heat = heat_;
    reader_ = *RowReader::Open(reader);
    out_.resize(kStepRows * table_->layout.row_bytes());
  }

  // What the rest of a client does meanwhile: new routes, metrics, reports of what is read.
  void Meddle() {
    Publish();
    quiescence_.Oldest();
    std::vector<std::uint64_t> shards;
    std::vector<ReadHeat::Ngram> ngrams;
    heat_->Take(&shards, &ngrams);
    ReadTotals totals;
    AddTo(reader_->counters(), &totals);
  }

  // Reads one step; false when a row is not what it must be.
  bool ReadStep() {
    for (RowId& id : ids_) id = RowId(random_.Below(table_->layout.rows()));
    if (Read(nullptr) > 0) return false;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (!IsRight(i)) return false;
    }
    return true;
  }

  // A node that grants less of the first shard than the table has there.
  void GrantOnly(std::uint64_t rows) {
    regions_[0].length = rows * table_->layout.stride() + table_->layout.row_bytes() - 1;
    Publish();
  }
  // How the first rows of the table were read; those that are not right are kInvalid.
  std::vector<ReadStatus> ReadFirstRows() {
    for (std::size_t i = 0; i < ids_.size(); ++i) ids_[i] = RowId(i);
    std::vector<ReadStatus> statuses(ids_.size());
    Read(statuses.data());
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (IsRight(i) != (statuses[i] == ReadStatus::kOk)) statuses[i] = ReadStatus::kInvalid;
    }
    return statuses;
  }

 private:
  // Of the rows ids_; returns how many failed.
  std::uint32_t Read(ReadStatus* statuses) {
    ReadPart part;
    part.ids = ids_.data();
    part.run_rows = kStepRows;
    part.row_limit = table_->layout.rows();
    part.ngram_rows = 8;
    part.out = out_.data();
    part.row_stride = table_->layout.row_bytes();
    part.row_status = statuses;
    const Instant deadline = SystemClock::Get().Now() + std::chrono::seconds(60);
    const auto slot = reader_->Start({{&part, 1}, deadline, fabric::Lane::kUrgent, nullptr});
    return reader_->Wait(slot, deadline) ? reader_->Collect(slot) : kStepRows;
  }
  bool IsRight(std::size_t i) {
    FillSyntheticRow(kSeed, ids_[i], expected_);
    return std::memcmp(&out_[i * expected_.size()], expected_.data(), expected_.size()) == 0;
  }

  void Fill() {
    const ShardLayout& layout = table_->layout;
    const std::uint32_t row_bytes = layout.row_bytes();
    slab_ = *fabric::Slab::Create(
        {.bytes = layout.rows() * layout.stride(), .pages = fabric::PageSize::k4KiB});
    for (std::uint64_t row = 0; row < layout.rows(); ++row) {
      std::byte* const to = slab_->data() + row * layout.stride();
      FillSyntheticRow(kSeed, RowId(row), {to, row_bytes});
      const std::uint64_t seal = table_->sealer.Seal(RowId(row), to);
      if (layout.seal() != SealKind::kNone) std::memcpy(to + row_bytes, &seal, sizeof seal);
    }
    expected_.resize(row_bytes);
    fabric::MappedTargetOptions options;
    options.node = {"n"};
    options.incarnation = Incarnation(1);
    target_ = *fabric::OpenMappedTarget(options);
    fabric_ = fabric::OpenMappedFabric();
  }

  void Publish() {
    Routes::Builder::Options options;
    options.shards = table_->layout.shards();
    Routes::Builder builder(options);
    const auto session = builder.AddSession({{"n"}, Incarnation(1), GrantRevision(1), lease_});
    PathAddress path;
    path.fabric = FabricKind::kMapped;
    for (std::uint32_t shard = 0; shard < regions_.size(); ++shard)
      builder.Add(ShardIndex(shard), session, 0, path, regions_[shard]);
    board_.Publish(builder.Build());
  }

  std::shared_ptr<const ReadTable> table_;
  std::unique_ptr<fabric::Slab> slab_;
  std::unique_ptr<fabric::Target> target_;
  std::unique_ptr<fabric::Fabric> fabric_;
  fabric::PeerId peer_;
  std::vector<fabric::RemoteRegion> regions_;
  std::shared_ptr<ReadLease> lease_;
  std::shared_ptr<ReadHeat> heat_;
  Quiescence quiescence_;
  RouteBoard board_{&quiescence_, Routes::Builder({}).Build()};
  std::unique_ptr<RowReader> reader_;
  SeededRandom random_{3};
  std::vector<RowId> ids_ = std::vector<RowId>(kStepRows);
  std::vector<std::byte> out_, expected_;
};

class MappedReadsTest : public testing::TestWithParam<SealKind> {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers make system calls of their own";
    const Outcome clock = RunApart([] {
      SystemClock::Get().Now();
      ForbidSystemCalls();
      SystemClock::Get().Now();
    });
    if (clock == Outcome::kSystemCall)
      GTEST_SKIP() << "this machine's clock is read by a system call";
    ASSERT_EQ(clock, Outcome::kFine) << "seccomp is not allowed here";
  }
};

TEST_P(MappedReadsTest, NoSystemCallAndNoWaitForALock) {
  const Outcome outcome = RunApart([] {
    MappedPool pool(GetParam());
    std::atomic<std::uint32_t> rounds{0};
    std::thread meddler([&] {
      for (;; ++rounds) pool.Meddle();
    });
    for (int step = 0; step < 100; ++step) {
      if (!pool.ReadStep()) _exit(1);
    }
    ForbidSystemCalls();
    // Until the others have come by often enough to have been in the way.
    for (int step = 0; step < 2000 || rounds < 200; ++step) {
      if (!pool.ReadStep()) _exit(1);
    }
    _exit(0);
  });
  EXPECT_NE(outcome, Outcome::kSystemCall);
  EXPECT_EQ(outcome, Outcome::kFine) << "a row was wrong or failed";
}

TEST_P(MappedReadsTest, ASystemCallIsSeen) {
  EXPECT_EQ(RunApart([] {
              MappedPool pool(GetParam());
              ForbidSystemCalls();
              pool.ReadStep();
              syscall(SYS_getppid);
            }),
            Outcome::kSystemCall);
}

TEST_P(MappedReadsTest, AWaitForALockIsSeen) {
  EXPECT_EQ(RunApart([] {
              Mutex mutex;
              std::atomic<bool> held{false};
              std::thread holder([&] {
                MutexLock lock(&mutex);
                held = true;
                std::this_thread::sleep_for(std::chrono::hours(1));
              });
              while (!held) std::this_thread::yield();
              ForbidSystemCalls();
              MutexLock lock(&mutex);
            }),
            Outcome::kSystemCall);
}

INSTANTIATE_TEST_SUITE_P(Seals, MappedReadsTest,
                         testing::Values(SealKind::kNone, SealKind::kCrc32c));

class MappedBoundsTest : public testing::TestWithParam<SealKind> {};

TEST_P(MappedBoundsTest, RowsOutsideOfWhatIsGrantedAreRefusedAndTheOthersAreRead) {
  constexpr std::size_t kGranted = 20;
  MappedPool pool(GetParam());
  EXPECT_EQ(pool.ReadFirstRows(), std::vector<ReadStatus>(kStepRows, ReadStatus::kOk));
  pool.GrantOnly(kGranted);
  const std::vector<ReadStatus> statuses = pool.ReadFirstRows();
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    EXPECT_EQ(statuses[i], i < kGranted ? ReadStatus::kOk : ReadStatus::kRefused) << "row " << i;
  }
  pool.GrantOnly(0);
  EXPECT_EQ(pool.ReadFirstRows(), std::vector<ReadStatus>(kStepRows, ReadStatus::kRefused));
}

INSTANTIATE_TEST_SUITE_P(Seals, MappedBoundsTest,
                         testing::Values(SealKind::kNone, SealKind::kCrc32c));

}  // namespace
}  // namespace engram::client
