#include "poolserver/nvme/ring.h"

#include <liburing.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engram/check.h"
#include "fabric/memory.h"

namespace engram::poolserver::nvme {
namespace {

constexpr std::uint32_t kMostDepth = 4096;
constexpr std::uint64_t kWakeData = ~std::uint64_t{0};
// Blocks that are taken from one batch before the next one has its turn.
constexpr std::uint32_t kBlocksATurn = 16;
constexpr std::uint8_t kMostAttempts = 4;

absl::Status SetupError(int error) {
  if (error == ENOSYS || error == EPERM || error == EACCES) {
    int disabled = 0;
    std::ifstream("/proc/sys/kernel/io_uring_disabled") >> disabled;
    return absl::FailedPreconditionError(absl::StrCat(
        "the nvme tier reads with io_uring, which ",
        error == ENOSYS ? "this kernel does not have" : "is forbidden here", " (",
        std::strerror(error), "; kernel.io_uring_disabled is ", disabled,
        "); set sysctl kernel.io_uring_disabled=0, allow io_uring_setup, io_uring_enter and "
        "io_uring_register in the container's seccomp profile, or leave --nvme-dir out"));
  }
  return absl::ErrnoToStatus(error, "cannot set up an io_uring for the nvme tier");
}

}  // namespace

class Ring::Thread {
 public:
  explicit Thread(Ring* ring) : ring_(*ring), disk_(ring->options_.disk) {}
  ~Thread() {
    if (open_) io_uring_queue_exit(&uring_);
  }

  absl::Status Open();
  void Run();

 private:
  struct Waiter {
    BlockBatch* batch;
    std::size_t index;
  };
  struct Flight {
    std::shared_ptr<RowFile> file;  // null: free
    std::uint32_t block = 0;
    std::uint8_t attempts = 0;
    std::vector<Waiter> waiters;
  };
  using BlockName = std::pair<const RowFile*, std::uint32_t>;

  absl::Status RegisterBuffers();
  void RegisterFileTable();
  std::byte* BufferOf(std::uint32_t flight) {
    return buffers_.bytes().data() + std::size_t{flight} * kMostBlockBytes;
  }
  void AwaitWake();
  void TakeInbox();
  void Fill();
  void Begin(BlockBatch* batch, std::size_t index);
  void Post(std::uint32_t flight);
  void Wait();
  void Reap();
  void Ended(std::uint32_t flight, int result);
  void Land(std::uint32_t flight, const std::byte* bytes);
  bool Idle() const { return active_.empty() && free_.size() == flights_.size(); }

  Ring& ring_;
  Disk* const disk_;
  io_uring uring_{};
  bool open_ = false;
  bool stopping_ = false;
  std::uint64_t woken_ = 0;
  fabric::HostBuffer buffers_;
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_;
  std::vector<int> free_slots_;  // of the table of registered files
  absl::flat_hash_map<BlockName, std::uint32_t> in_flight_;
  std::deque<BlockBatch*> active_;
  Inbox taken_;
};

absl::Status Ring::Thread::Open() {
  const std::uint32_t depth = ring_.options_.depth;
  // One issuer whose completions are worked on when it asks for them: Linux 6.1 and newer.
  io_uring_params params{};
  params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  int error = io_uring_queue_init_params(depth + 1, &uring_, &params);
  if (error == -EINVAL) {
    params = {};
    error = io_uring_queue_init_params(depth + 1, &uring_, &params);
  }
  if (error < 0) return SetupError(-error);
  open_ = true;
  if (absl::Status ok = RegisterBuffers(); !ok.ok()) return ok;
  RegisterFileTable();
  flights_.resize(depth);
  for (std::uint32_t i = depth; i > 0; --i) free_.push_back(i - 1);
  in_flight_.reserve(depth);
  return absl::OkStatus();
}

absl::Status Ring::Thread::RegisterBuffers() {
  const std::uint64_t bytes = std::uint64_t{ring_.options_.depth} * kMostBlockBytes;
  auto buffers = fabric::HostBuffer::Create(bytes);
  if (!buffers.ok()) return buffers.status();
  buffers_ = *std::move(buffers);
  const iovec all{buffers_.bytes().data(), bytes};
  if (int error = io_uring_register_buffers(&uring_, &all, 1); error < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot register ", bytes >> 10, " KiB of buffers for --nvme-depth ",
                     ring_.options_.depth, ": ", std::strerror(-error), "; ",
                     fabric::DescribeMemlock(), ": raise it or lower --nvme-depth"));
  }
  return absl::OkStatus();
}

// Without a table files are read by their descriptors, which costs a little more.
void Ring::Thread::RegisterFileTable() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto files =
      static_cast<std::uint32_t>(std::min<rlim_t>(ring_.options_.most_files, limit.rlim_cur));
  if (files == 0 || io_uring_register_files_sparse(&uring_, files) < 0) return;
  for (std::uint32_t i = files; i > 0; --i) free_slots_.push_back(static_cast<int>(i) - 1);
}

void Ring::Thread::Run() {
  AwaitWake();
  while (true) {
    TakeInbox();
    Fill();
    if (stopping_ && Idle()) return;
    Wait();
    Reap();
  }
}

// One read of the event descriptor is always posted: it ends when somebody wakes the ring.
void Ring::Thread::AwaitWake() {
  io_uring_sqe* const entry = io_uring_get_sqe(&uring_);
  io_uring_prep_read(entry, ring_.wake_fd_, &woken_, sizeof woken_, 0);
  io_uring_sqe_set_data64(entry, kWakeData);
}

void Ring::Thread::TakeInbox() {
  {
    MutexLock lock(&ring_.mutex_);
    std::swap(taken_, ring_.inbox_);
  }
  for (std::shared_ptr<RowFile>& file : taken_.remembered) {
    if (free_slots_.empty() || file->ring_slot >= 0) continue;
    int fd = file->fd();
    const int slot = free_slots_.back();
    if (io_uring_register_files_update(&uring_, static_cast<unsigned>(slot), &fd, 1) != 1) continue;
    free_slots_.pop_back();
    file->ring_slot = slot;
  }
  for (std::shared_ptr<RowFile>& file : taken_.forgotten) {
    const int slot = file->ring_slot.exchange(-1);
    if (slot < 0) continue;
    int none = -1;
    io_uring_register_files_update(&uring_, static_cast<unsigned>(slot), &none, 1);
    free_slots_.push_back(slot);
  }
  active_.insert(active_.end(), taken_.batches.begin(), taken_.batches.end());
  stopping_ = stopping_ || taken_.stopping;
  taken_.batches.clear();
  taken_.remembered.clear();
  taken_.forgotten.clear();
  taken_.stopping = false;
}

void Ring::Thread::Fill() {
  while (!active_.empty() && !free_.empty()) {
    BlockBatch* const batch = active_.front();
    active_.pop_front();
    for (std::uint32_t i = 0; i < kBlocksATurn && batch->next_ < batch->blocks.size(); ++i) {
      if (free_.empty()) break;
      Begin(batch, batch->next_++);
    }
    if (batch->next_ < batch->blocks.size()) active_.push_back(batch);
  }
}

void Ring::Thread::Begin(BlockBatch* batch, std::size_t index) {
  const std::uint32_t block = batch->blocks[index];
  const auto [at, is_new] = in_flight_.try_emplace({batch->file.get(), block}, free_.back());
  Flight& flight = flights_[at->second];
  flight.waiters.push_back({batch, index});
  if (!is_new) {
    ring_.joined_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  free_.pop_back();
  flight.file = batch->file;
  flight.block = block;
  flight.attempts = 0;
  Post(at->second);
}

void Ring::Thread::Post(std::uint32_t index) {
  Flight& flight = flights_[index];
  ++flight.attempts;
  const std::uint32_t bytes = flight.file->layout().block_bytes();
  io_uring_sqe* const entry = io_uring_get_sqe(&uring_);
  ENGRAM_CHECK(entry != nullptr);  // there is one for each flight and one to wake
  const int slot = flight.file->ring_slot.load(std::memory_order_relaxed);
  io_uring_prep_read_fixed(entry, slot >= 0 ? slot : flight.file->fd(), BufferOf(index), bytes,
                           std::uint64_t{flight.block} * bytes, 0);
  if (slot >= 0) io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
  disk_->ReadBegins();
  io_uring_sqe_set_data64(entry, index);
}

void Ring::Thread::Wait() {
  ring_.asleep_.store(true);
  {
    MutexLock lock(&ring_.mutex_);
    if (!ring_.inbox_.empty() && !(free_.empty() && !active_.empty())) {
      ring_.asleep_.store(false);
      io_uring_submit(&uring_);
      ring_.submits_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  io_uring_submit_and_wait(&uring_, 1);
  ring_.submits_.fetch_add(1, std::memory_order_relaxed);
  ring_.asleep_.store(false);
}

void Ring::Thread::Reap() {
  io_uring_cqe* done = nullptr;
  while (io_uring_peek_cqe(&uring_, &done) == 0) {
    const std::uint64_t data = done->user_data;
    const int result = done->res;
    io_uring_cqe_seen(&uring_, done);
    if (data == kWakeData) {
      AwaitWake();
    } else {
      Ended(static_cast<std::uint32_t>(data), result);
    }
  }
}

void Ring::Thread::Ended(std::uint32_t index, int result) {
  Flight& flight = flights_[index];
  const std::uint32_t bytes = flight.file->layout().block_bytes();
  const std::span<std::byte> data(BufferOf(index), bytes);
  result = disk_->ReadEnded(flight.file->fd(), std::uint64_t{flight.block} * bytes, data, result);
  const bool whole = result == static_cast<int>(bytes);
  const bool may_pass = (result >= 0 && !whole) || result == -EAGAIN || result == -EINTR;
  if (may_pass && flight.attempts < kMostAttempts) {
    ring_.retried_.fetch_add(1, std::memory_order_relaxed);
    return Post(index);
  }
  const bool sound = whole && flight.file->Sound(flight.block, data);
  (sound ? ring_.blocks_ : ring_.failed_).fetch_add(1, std::memory_order_relaxed);
  if (sound) ring_.bytes_.fetch_add(bytes, std::memory_order_relaxed);
  Land(index, sound ? data.data() : nullptr);
}

void Ring::Thread::Land(std::uint32_t index, const std::byte* bytes) {
  Flight& flight = flights_[index];
  for (const Waiter& waiter : flight.waiters) {
    waiter.batch->Landed(waiter.index, bytes);
    if (--waiter.batch->left_ == 0) waiter.batch->Ended();
  }
  in_flight_.erase({flight.file.get(), flight.block});
  flight.waiters.clear();
  flight.file.reset();
  free_.push_back(index);
}

// ---- what others call ----

absl::StatusOr<std::unique_ptr<Ring>> Ring::Open(const Options& options) {
  if (options.depth == 0 || options.depth > kMostDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nvme-depth is ", options.depth, "; allowed are 1 to ", kMostDepth));
  }
  std::unique_ptr<Ring> ring(new Ring(options));
  ring->wake_fd_ = eventfd(0, EFD_CLOEXEC);
  if (ring->wake_fd_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
  // The thread that opens the ring is the one that may submit to it.
  std::promise<absl::Status> opened;
  auto status = opened.get_future();
  ring->thread_ = std::thread([raw = ring.get(), opened = std::move(opened)]() mutable {
    pthread_setname_np(pthread_self(), "nvme/ring");
    Thread thread(raw);
    const absl::Status open = thread.Open();
    opened.set_value(open);
    if (open.ok()) thread.Run();
  });
  const absl::Status open = status.get();
  if (open.ok()) return ring;
  ring->thread_.join();
  return open;
}

Ring::~Ring() {
  Stop();
  if (wake_fd_ >= 0) close(wake_fd_);
}

void Ring::Wake() {
  if (!asleep_.exchange(false)) return;
  const std::uint64_t one = 1;
  ENGRAM_CHECK(write(wake_fd_, &one, sizeof one) == sizeof one);
}

void Ring::Read(BlockBatch* batch) {
  ENGRAM_CHECK(batch->file != nullptr && !batch->blocks.empty());
  batch->next_ = 0;
  batch->left_ = batch->blocks.size();
  bool stopped = false;
  {
    MutexLock lock(&mutex_);
    stopped = stopped_;
    if (!stopped) inbox_.batches.push_back(batch);
  }
  if (!stopped) return Wake();
  for (std::size_t i = 0; i < batch->blocks.size(); ++i) batch->Landed(i, nullptr);
  batch->Ended();
}

void Ring::Remember(std::shared_ptr<RowFile> file) {
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    inbox_.remembered.push_back(std::move(file));
  }
  Wake();
}

void Ring::Forget(std::shared_ptr<RowFile> file) {
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    inbox_.forgotten.push_back(std::move(file));
  }
  Wake();
}

Ring::Counters Ring::counters() const {
  return {blocks_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed),
          joined_.load(std::memory_order_relaxed), retried_.load(std::memory_order_relaxed),
          failed_.load(std::memory_order_relaxed), submits_.load(std::memory_order_relaxed)};
}

void Ring::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    inbox_.stopping = true;
  }
  if (!thread_.joinable()) return;
  Wake();
  thread_.join();
}

}  // namespace engram::poolserver::nvme
