// What can go wrong with a step, through the C ABI against a real pool: each ends in one clear
// status and leaves the process and the prefetcher usable.
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/abi/pool/opened.h"

extern char** environ;

namespace engram::abi_test {
namespace {

// The prefetcher still reads, as if nothing had been.
void ExpectReads(Opened& opened) {
  PackedStep one({22898, 19737});
  const engram_ticket ticket = opened.Submit(one.step);
  ExpectOk(engram_prefetcher_wait(opened.Steps(), ticket, -1, 60 * kSecond));
  EXPECT_TRUE(one.IsGolden(opened));
  ExpectOk(engram_prefetcher_release(opened.Steps(), ticket));
}

void ExpectRefused(Opened& opened, const engram_step& step, engram_status status,
                   const char* says) {
  engram_ticket ticket = 99;
  ExpectFails(engram_prefetcher_submit(opened.Steps(), &step, &ticket), status, says);
  EXPECT_EQ(ticket, 0u);
}

engram_layout LayoutOf(std::uint32_t tokens) {
  auto layout = Sized<engram_layout>();
  layout.max_tokens = tokens;
  return layout;
}

TEST(DestinationTest, ThatIsTooSmallOrMissing) {
  Opened opened;
  PackedStep one({1, 2});
  one.step.out_bytes -= 1;
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "need 25344: see engram_table_get");
  one.step.out = nullptr;
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "out is NULL");
  engram_layout layout = LayoutOf(1);
  one.step.layout = &layout;
  one.step.out = one.out.data();
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT,
                "tokens->count is 2; the layout has places for 1 tokens");
  ExpectReads(opened);
}

TEST(DestinationTest, ThatIsNotRegisteredOrNotAnyMore) {
  Opened opened;
  PackedStep one({1, 2});
  one.step.destination = 5;
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "destination 5 is not registered");
  std::vector<std::byte> memory(4096);
  engram_destination destination = 0;
  ExpectOk(
      engram_table_register_destination(opened.table, memory.data(), memory.size(), &destination));
  one.step.destination = destination;
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "does not lie in destination 1");
  ExpectOk(engram_table_unregister_destination(opened.table, destination));
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "destination 1 is not registered");
  ExpectFails(engram_table_unregister_destination(opened.table, destination),
              ENGRAM_INVALID_ARGUMENT, "destination 1 is not registered");
  ExpectFails(engram_table_register_destination(opened.table, memory.data() + 1, 64, &destination),
              ENGRAM_INVALID_ARGUMENT, "starts on a multiple of 16 bytes");
  ExpectReads(opened);
}

TEST(DestinationTest, ThatIsReadOnlyOrFreedEarly) {
  Opened opened;
  opened.Steps(8, true, /*check_memory=*/true);
  constexpr std::size_t kBytes = 1 << 20;
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  engram_destination destination = 0;
  mprotect(memory, kBytes, PROT_READ);
  ExpectFails(engram_table_register_destination(opened.table, memory, kBytes, &destination),
              ENGRAM_INVALID_ARGUMENT, "is read-only at 0x");
  engram_layout layout = LayoutOf(2);
  auto slot_options = Sized<engram_slot_options>();
  slot_options.layout = &layout;
  slot_options.out = memory;
  slot_options.out_bytes = kBytes;
  std::uint32_t slot = 7;
  ExpectFails(engram_prefetcher_add_slot(opened.Steps(), &slot_options, &slot),
              ENGRAM_INVALID_ARGUMENT, "is read-only at 0x");
  EXPECT_EQ(slot, 0u);
  PackedStep one({1, 2});
  one.step.out = memory;
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "is read-only at 0x");
  mprotect(memory, kBytes, PROT_READ | PROT_WRITE);
  ExpectOk(engram_table_register_destination(opened.table, memory, kBytes, &destination));
  ExpectOk(engram_prefetcher_add_slot(opened.Steps(), &slot_options, &slot));
  munmap(memory, kBytes);
  one.step.destination = destination;
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "was it freed?");
  one.step.destination = 0;
  one.step.out = nullptr;
  one.step.out_bytes = 0;
  one.step.slot = slot;
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "was it freed?");
  // The slot is not taken by a step that was refused.
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "was it freed?");
  ExpectFails(engram_table_unregister_destination(opened.table, destination),
              ENGRAM_FAILED_PRECONDITION, "unregistered, but too late");
  ExpectReads(opened);
}

TEST(StepFaultsTest, ColumnsIdsAndTokensThatAreNotThere) {
  Opened opened;
  PackedStep one({1, 2});
  engram_layout layout = LayoutOf(2);
  layout.first_column = 20;
  layout.columns = 5;
  one.step.layout = &layout;
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "layout->columns is 5; from column 20");
  one.step.layout = nullptr;
  one.ids[1] = 129280;
  ExpectRefused(opened, one.step, ENGRAM_INVALID_ARGUMENT, "129280");
  const std::int32_t ids[] = {1 << 30};
  auto rows = Sized<engram_layer_rows>();
  rows.ids = ids;
  rows.runs = rows.columns = 1;
  rows.layer_index = 1;
  rows.out = one.out.data();
  rows.out_bytes = one.out.size();
  auto step = Sized<engram_step>();
  step.layer_rows = &rows;
  step.layers = 1;
  ExpectRefused(opened, step, ENGRAM_INVALID_ARGUMENT,
                "step->layer_rows[0] asks for row 1073741824 (run 0, column 0); layer index 1 of "
                "table small@1 has rows 0 to ");
  step.slot = 3;
  ExpectRefused(opened, step, ENGRAM_INVALID_ARGUMENT,
                "step->slot is 3; the prefetcher has slots 1 to 0");
  ExpectReads(opened);
}

TEST(StepFaultsTest, ATicketWaitedForTwiceSaysTheSameAndAReleasedOneIsKnown) {
  Opened opened;
  PackedStep one({1, 2});
  const engram_ticket ticket = opened.Submit(one.step);
  ExpectOk(engram_prefetcher_wait(opened.Steps(), ticket, -1, 60 * kSecond));
  ExpectOk(engram_prefetcher_wait(opened.Steps(), ticket, -1, 60 * kSecond));
  ExpectFails(engram_prefetcher_wait(opened.Steps(), ticket, 2, 60 * kSecond),
              ENGRAM_INVALID_ARGUMENT, "there is no layer 2 of that step");
  std::uint8_t status[1];
  ExpectFails(engram_prefetcher_row_status(opened.Steps(), ticket, 0, status, 1, nullptr),
              ENGRAM_INVALID_ARGUMENT, "capacity is 1, the layer has 48 rows");
  ExpectOk(engram_prefetcher_release(opened.Steps(), ticket));
  ExpectOk(engram_prefetcher_release(opened.Steps(), ticket));
  ExpectFails(engram_prefetcher_wait(opened.Steps(), ticket, -1, 60 * kSecond),
              ENGRAM_INVALID_ARGUMENT, "the step was released");
  ExpectFails(engram_prefetcher_row_status(opened.Steps(), ticket, 0, status, 1, nullptr),
              ENGRAM_INVALID_ARGUMENT, "the step was released");
  engram_layer_state state = ENGRAM_LAYER_READY;
  ExpectOk(engram_prefetcher_poll(opened.Steps(), ticket, 0, &state, nullptr));
  EXPECT_EQ(state, ENGRAM_LAYER_UNKNOWN);
}

TEST(StepFaultsTest, CancelledWhileLanding) {
  Opened opened("stream");
  ExpectReads(opened);
  PackedStep one({1, 2});
  one.step.timeout_ns = 100 * kSecond;
  {
    StoppedNodes stopped;
    const engram_ticket ticket = opened.Submit(one.step);
    ExpectFails(engram_prefetcher_wait(opened.Steps(), ticket, 0, 1000), ENGRAM_DEADLINE_EXCEEDED,
                "layer 0 of the step is not there yet; its reads go on");
    std::vector<std::uint8_t> status(2 * kColumns);
    ExpectFails(engram_prefetcher_row_status(opened.Steps(), ticket, 0, status.data(), 48, nullptr),
                ENGRAM_FAILED_PRECONDITION, "is not there yet: wait for it first");
    ExpectOk(engram_prefetcher_cancel(opened.Steps(), ticket, -1));
    ExpectFails(engram_prefetcher_wait(opened.Steps(), ticket, 1, kSecond),
                ENGRAM_FAILED_PRECONDITION, "layer 1 of the step was cancelled");
    EXPECT_TRUE(one.IsPoison());
    ExpectOk(engram_prefetcher_row_status(opened.Steps(), ticket, 0, status.data(), 48, nullptr));
    EXPECT_EQ(std::count(status.begin(), status.end(), ENGRAM_ROW_TIMED_OUT), 48);
    ExpectOk(engram_prefetcher_release(opened.Steps(), ticket));
    std::fill(one.out.begin(), one.out.end(), std::byte{0xee});
  }
  ExpectReads(opened);
  EXPECT_EQ(std::count(one.out.begin(), one.out.end(), std::byte{0xee}),
            static_cast<std::ptrdiff_t>(one.out.size()))
      << "something landed after the cancel";
  EXPECT_EQ(opened.Stats().layers_cancelled, kLayers);
}

TEST(StepFaultsTest, LateRowsOfANodeThatStandsStillComeFromTheOtherReplica) {
  Log log;
  Opened opened("stream");
  ASSERT_TRUE(log.AwaitSessions(2)) << log.text();
  PackedStep one({3, 4, 5});
  one.step.timeout_ns = 100 * kSecond;
  const std::uint64_t needed[kLayers] = {1'000'000, 2'000'000};
  one.step.needed_in_ns = needed;
  // A session is open a little before its routes are there.
  for (int tries = 0; tries < 100 && opened.Stats().hedges_won == 0; ++tries) {
    ExpectReads(opened);
    const StoppedNodes stopped(1);
    const engram_ticket ticket = opened.Submit(one.step);
    ExpectOk(engram_prefetcher_wait(opened.Steps(), ticket, -1, 60 * kSecond));
    EXPECT_TRUE(one.IsGolden(opened));
    ExpectOk(engram_prefetcher_release(opened.Steps(), ticket));
    std::fill(one.out.begin(), one.out.end(), std::byte{0xee});
  }
  const engram_stats stats = opened.Stats();
  EXPECT_GT(stats.hedges_won, 0u);
  EXPECT_GE(stats.rows_late, stats.hedges_won);
  EXPECT_GE(stats.peers_abandoned, 1u) << "the first reads are over before the others are taken";
  ExpectReads(opened);
  EXPECT_EQ(std::count(one.out.begin(), one.out.end(), std::byte{0xee}),
            static_cast<std::ptrdiff_t>(one.out.size()))
      << "the node that woke up wrote into memory that was released";
}

TEST(StepFaultsTest, DroppedTicketsAreBoundedAndEndWithThePrefetcher) {
  Opened opened("stream");
  opened.Steps(2);
  ExpectReads(opened);
  PackedStep one({1, 2}), two({3, 4}), three({5, 6});
  {
    StoppedNodes stopped;
    opened.Submit(one.step);
    opened.Submit(two.step);
    ExpectRefused(opened, three.step, ENGRAM_RESOURCE_EXHAUSTED,
                  "all 2 steps are in use: release one (in Python: close it)");
    engram_prefetcher_close(opened.prefetcher);
    opened.prefetcher = nullptr;
    EXPECT_TRUE(one.IsPoison());
    EXPECT_TRUE(two.IsPoison());
    std::fill(one.out.begin(), one.out.end(), std::byte{0xee});
  }
  ExpectReads(opened);
  EXPECT_EQ(one.out.back(), std::byte{0xee});
}

// Nobody waits, and no thread serves: the rows are not there in time and say so.
TEST(StepFaultsTest, AStepThatNobodyServesIsNotThereInTime) {
  Opened opened("stream");
  opened.Steps(8, /*poller=*/false);
  PackedStep one({1, 2});
  one.step.timeout_ns = 20'000'000;
  const std::uint64_t needed[kLayers] = {1'000'000, 0};
  one.step.needed_in_ns = needed;
  StoppedNodes stopped;
  const engram_ticket ticket = opened.Submit(one.step);
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  ExpectFails(engram_prefetcher_wait(opened.Steps(), ticket, -1, kSecond), ENGRAM_DEADLINE_EXCEEDED,
              "was not read in time");
  EXPECT_TRUE(one.IsPoison());
  int late = 0;
  engram_layer_state state = ENGRAM_LAYER_UNKNOWN;
  ExpectOk(engram_prefetcher_poll(opened.Steps(), ticket, 0, &state, &late));
  EXPECT_EQ(state, ENGRAM_LAYER_FAILED);
  EXPECT_EQ(late, 1);
  const engram_stats stats = opened.Stats();
  EXPECT_EQ(stats.layers_failed, kLayers);
  EXPECT_EQ(stats.layers_late, 1u);
  EXPECT_EQ(stats.rows_late, 2u * kColumns);
  EXPECT_EQ(stats.rows_failed, 2u * kLayers * kColumns);
}

// Threads that `open` starts get, while this lives, only what a thread that never sleeps leaves of
// one processor.
class Starved {
 public:
  template <class Open>
  explicit Starved(Open open) {
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one_);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one_) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one_);
    }
    std::thread opener([&] {  // what it starts inherits both
      const sched_param none{};
      EXPECT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
      EXPECT_EQ(sched_setaffinity(0, sizeof one_, &one_), 0);
      open();
    });
    opener.join();
    hog_ = std::jthread([this](const std::stop_token& stop) {
      sched_setaffinity(0, sizeof one_, &one_);
      while (!stop.stop_requested()) {
      }
    });
  }

 private:
  cpu_set_t one_;
  std::jthread hog_;
};

// Every row is the right one, or is poison and says that it was not there in time.
void ExpectRightOrMarked(Opened& opened, const PackedStep& step, engram_ticket ticket) {
  const std::vector<std::int64_t> rows = opened.Addresses(step.ids);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    std::vector<std::uint8_t> status(step.ids.size() * kColumns);
    ExpectOk(engram_prefetcher_row_status(opened.Steps(), ticket, layer, status.data(),
                                          status.size(), nullptr));
    for (std::size_t i = 0; i < status.size(); ++i) {
      const std::size_t at = (i / kColumns * kLayers + layer) * kColumns + i % kColumns;
      const std::byte* const row = &step.out[at * kRowBytes];
      if (status[i] == ENGRAM_ROW_OK) {
        const auto id = static_cast<std::uint64_t>(rows[at]);
        EXPECT_EQ(std::memcmp(row, Golden(opened.FirstRow(layer) + id).data(), kRowBytes), 0);
      } else {
        EXPECT_EQ(status[i], ENGRAM_ROW_TIMED_OUT);
        EXPECT_EQ(std::count(row, row + kValues, std::byte{0x7f}), kValues) << "poison";
      }
    }
  }
}

TEST(StepFaultsTest, AStarvedPollerDelaysStepsAndEveryOneEndsRightOrMarked) {
  Opened opened("stream");
  {
    const Starved starved([&] { opened.Steps(2); });
    for (std::int64_t i = 0; i < 5; ++i) {
      PackedStep one({i, i + 1}), two({i + 2}), three({i});
      one.step.timeout_ns = 1;  // is over before anybody looks
      two.step.timeout_ns = 60 * kSecond;
      const engram_ticket hurried = opened.Submit(one.step), patient = opened.Submit(two.step);
      ExpectRefused(opened, three.step, ENGRAM_RESOURCE_EXHAUSTED, "all 2 steps are in use");
      ExpectOk(engram_prefetcher_wait(opened.Steps(), patient, -1, 60 * kSecond));
      EXPECT_TRUE(two.IsGolden(opened));
      // What had arrived when the poller came to look is taken all the same.
      engram_prefetcher_wait(opened.Steps(), hurried, -1, 60 * kSecond);
      ExpectRightOrMarked(opened, one, hurried);
      for (const engram_ticket ticket : {hurried, patient})
        ExpectOk(engram_prefetcher_release(opened.Steps(), ticket));
    }
  }
  ExpectReads(opened);
}

TEST(StepFaultsTest, AForkedChildIsToldInEveryCall) {
  Opened opened;
  ExpectReads(opened);
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    PackedStep one({1});
    std::uint64_t number = 0;
    std::uint32_t slot = 0;
    auto layout = LayoutOf(1);
    auto info = Sized<engram_layout_info>();
    engram_prefetcher* prefetcher = nullptr;
    engram_table* table = nullptr;
    char name[ENGRAM_NAME_BYTES];
    int fd = -1;
    const engram_status got[] = {
        engram_table_pending(opened.table, name, sizeof name),
        engram_table_pending_fd(opened.table, &fd),
        engram_table_adopt(opened.table, nullptr, &table),
        engram_prefetcher_hint_tokens(opened.prefetcher, &one.tokens, nullptr),
        engram_prefetcher_submit(opened.prefetcher, &one.step, &number),
        engram_prefetcher_wait(opened.prefetcher, 1, -1, 1),
        engram_prefetcher_poll(opened.prefetcher, 1, 0, nullptr, nullptr),
        engram_prefetcher_row_status(opened.prefetcher, 1, 0, nullptr, 0, nullptr),
        engram_prefetcher_cancel(opened.prefetcher, 1, -1),
        engram_prefetcher_release(opened.prefetcher, 1),
        engram_prefetcher_add_slot(opened.prefetcher, nullptr, &slot),
        engram_prefetcher_open(opened.table, nullptr, &prefetcher),
        engram_table_get_layout(opened.table, &layout, 0, &info),
        engram_table_register_destination(opened.table, one.out.data(), 64, &number),
        engram_table_unregister_destination(opened.table, 1),
        engram_table_read_rows(opened.table, nullptr, nullptr, 0, nullptr, 0),
    };
    int wrong = 0;
    for (const engram_status status : got) wrong += status != ENGRAM_FAILED_PRECONDITION;
    if (std::string(engram_last_error()).find("forked") == std::string::npos) wrong += 100;
    engram_prefetcher_close(opened.prefetcher);
    engram_table_close(opened.table);
    engram_pool_close(opened.pool);
    _exit(wrong);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ExpectReads(opened);
}

// Run by the next test in a process of its own.
TEST(StepFaultsTest, DISABLED_ExitsInTheMiddleOfAStep) {
  auto* const opened = new Opened("stream");
  ExpectReads(*opened);
  auto* const one = new PackedStep(std::vector<std::int64_t>(500, 3));
  one->step.timeout_ns = 100 * kSecond;
  one->step.kind = ENGRAM_STEP_PREFILL;
  const StoppedNodes stopped;  // until the parent lets them go
  const engram_ticket ticket = opened->Submit(one->step);
  const std::jthread waits(
      [&] { engram_prefetcher_wait(opened->Steps(), ticket, -1, 100 * kSecond); });
  std::exit(42);
}

TEST(StepFaultsTest, AnEngineThatExitsInTheMiddleOfAStepJustEnds) {
  std::string filter = "--gtest_filter=*DISABLED_ExitsInTheMiddleOfAStep";
  std::string also = "--gtest_also_run_disabled_tests";
  char self[] = "/proc/self/exe";
  char* const arguments[] = {self, filter.data(), also.data(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, self, nullptr, nullptr, arguments, environ), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  { const StoppedNodes let_go; }
  EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  Opened opened;
  ExpectReads(opened);
}

TEST(StepFaultsTest, AVersionThatIsBeingDeletedIsReadUntilItIsGone) {
  Opened opened("stream", "gone@1");
  PackedStep one({1, 2});
  ExpectOk(engram_prefetcher_wait(opened.Steps(), opened.Submit(one.step), -1, 60 * kSecond));
  one.step.timeout_ns = kSecond;
  ASSERT_TRUE(Engramctl("delete table gone@1 --yes --force"));
  engram_table* again = nullptr;
  const engram_status reopened = engram_table_open(opened.pool, "gone@1", nullptr, &again);
  EXPECT_TRUE(reopened == ENGRAM_FAILED_PRECONDITION || reopened == ENGRAM_NOT_FOUND);
  EXPECT_THAT(std::string(engram_last_error()), testing::HasSubstr("gone@1"));
  engram_status last = ENGRAM_OK;
  std::string message;
  const auto goes_on = [&] { return last == ENGRAM_OK || last == ENGRAM_DEADLINE_EXCEEDED; };
  for (int i = 0; i < 3000 && goes_on(); ++i) {
    const engram_ticket ticket = opened.Submit(one.step);
    last = engram_prefetcher_wait(opened.Steps(), ticket, -1, 60 * kSecond);
    message = engram_last_error();
    if (last == ENGRAM_OK) {
      EXPECT_TRUE(one.IsGolden(opened, 9));
    }
    engram_prefetcher_release(opened.Steps(), ticket);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(last, ENGRAM_UNAVAILABLE);
  EXPECT_THAT(message, testing::HasSubstr("of table gone@1"));
}

}  // namespace
}  // namespace engram::abi_test
