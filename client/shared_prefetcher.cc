#include "client/shared_prefetcher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace engram::client {
namespace {

// How often the serving thread offers the processor to a thread that wants the lock.
constexpr int kOffers = 100;

}  // namespace

absl::StatusOr<std::unique_ptr<SharedPrefetcher>> SharedPrefetcher::Open(
    std::unique_ptr<Prefetcher> prefetcher, bool poller) {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("an event descriptor for the prefetcher: ", std::strerror(errno)));
  std::unique_ptr<SharedPrefetcher> out(new SharedPrefetcher(std::move(prefetcher), fd));
  if (!poller) return out;
  out->has_poller_ = true;
  try {
    out->poller_ = std::thread([raw = out.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a poller thread for the prefetcher: ", error.what()));
  }
  return out;
}

SharedPrefetcher::SharedPrefetcher(std::unique_ptr<Prefetcher> prefetcher, int wake_fd)
    : wake_fd_(wake_fd),
      clock_(*prefetcher->reader().options().clock),
      spin_(prefetcher->reader().options().wait.spin),
      prefetcher_(std::move(prefetcher)) {}

SharedPrefetcher::~SharedPrefetcher() {
  if (poller_.joinable()) {
    Lock();
    stopping_ = true;
    WakeServer();
    Unlock();
    poller_.join();
  }
  close(wake_fd_);
}

void SharedPrefetcher::Lock() {
  wanting_.fetch_add(1, std::memory_order_relaxed);
  mutex_.Lock();
  wanting_.fetch_sub(1, std::memory_order_relaxed);
}

void SharedPrefetcher::WakeServer() {
  if (!napping_) return;
  const std::uint64_t one = 1;
  // The counter is full only if the server has many wake-ups to read.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

// ---- steps ----

template <class AnyStep>
absl::Status SharedPrefetcher::SubmitAny(const AnyStep& step, Ticket* ticket) {
  Lock();
  absl::Status status;
  if (prefetcher_->Submit(step, ticket) != SubmitStatus::kStarted) status = prefetcher_->refusal();
  WakeServer();
  Unlock();
  return status;
}

absl::Status SharedPrefetcher::Submit(const Step& step, Ticket* ticket) {
  return SubmitAny(step, ticket);
}
absl::Status SharedPrefetcher::Submit(const TokenStep& step, Ticket* ticket) {
  return SubmitAny(step, ticket);
}

LayerState SharedPrefetcher::Poll(Ticket ticket, std::uint32_t layer) {
  Lock();
  if (!serving_) prefetcher_->Progress();
  const LayerState state = prefetcher_->State(ticket, layer);
  Unlock();
  return state;
}

bool SharedPrefetcher::PollAll(Ticket ticket) {
  Lock();
  if (!serving_) prefetcher_->Progress();
  const bool done = prefetcher_->Done(ticket);
  Unlock();
  return done;
}

void SharedPrefetcher::Cancel(Ticket ticket, std::uint32_t layer) {
  Lock();
  prefetcher_->Cancel(ticket, layer);
  WakeServer();
  Unlock();
}

void SharedPrefetcher::CancelAll(Ticket ticket) {
  Lock();
  prefetcher_->CancelAll(ticket);
  WakeServer();
  Unlock();
}

void SharedPrefetcher::Release(Ticket ticket) {
  Lock();
  prefetcher_->Release(ticket);
  WakeServer();
  Unlock();
}

std::uint64_t SharedPrefetcher::Hint(const ReadPart& rows) {
  Lock();
  const std::uint64_t taken = prefetcher_->Hint(rows);
  WakeServer();
  Unlock();
  return taken;
}

absl::Status SharedPrefetcher::Hint(const TokenSpan& tokens, std::uint64_t* taken) {
  Lock();
  absl::Status status;
  if (prefetcher_->Hint(tokens, taken) != SubmitStatus::kStarted) status = prefetcher_->refusal();
  WakeServer();
  Unlock();
  return status;
}

std::vector<HotNgram> SharedPrefetcher::Hottest(std::size_t most) {
  Lock();
  std::vector<HotNgram> hottest = prefetcher_->Hottest(most);
  Unlock();
  return hottest;
}

bool SharedPrefetcher::has_cache() {
  Lock();
  const bool has = prefetcher_->reader().options().cache != nullptr;
  Unlock();
  return has;
}

SharedPrefetcher::Outcome SharedPrefetcher::OutcomeOf(Ticket ticket, std::uint32_t layer) {
  Lock();
  Outcome outcome;
  outcome.state = prefetcher_->State(ticket, layer);
  if (outcome.state != LayerState::kUnknown) outcome.late = prefetcher_->Late(ticket, layer);
  if (outcome.state == LayerState::kFailed || outcome.state == LayerState::kCancelled) {
    outcome.worst = prefetcher_->Worst(ticket, layer);
    outcome.failure = prefetcher_->Failure(ticket);
  }
  Unlock();
  return outcome;
}

bool SharedPrefetcher::AllReady(Ticket ticket) {
  Lock();
  const std::uint32_t count = prefetcher_->layers(ticket);
  bool ready = count > 0;
  for (std::uint32_t i = 0; i < count && ready; ++i)
    ready = prefetcher_->State(ticket, i) == LayerState::kReady;
  Unlock();
  return ready;
}

std::uint32_t SharedPrefetcher::layers(Ticket ticket) {
  Lock();
  const std::uint32_t count = prefetcher_->layers(ticket);
  Unlock();
  return count;
}

// ---- waiting ----

bool SharedPrefetcher::Wait(Ticket ticket, std::uint32_t layer, Instant until) {
  return WaitFor(
      [=](const Prefetcher& steps) { return steps.State(ticket, layer) != LayerState::kPending; },
      until);
}

bool SharedPrefetcher::WaitAll(Ticket ticket, Instant until) {
  return WaitFor([=](const Prefetcher& steps) { return steps.Done(ticket); }, until);
}

template <class Ready>
bool SharedPrefetcher::WaitFor(Ready ready, Instant until) {
  Lock();
  bool is_ready = ready(*prefetcher_);
  while (!is_ready) {
    if (serving_ || has_poller_) {
      Sleep(ready, until);
    } else {
      serving_ = true;
      Serve(ready, until);
      serving_ = false;
    }
    is_ready = ready(*prefetcher_);
    if (!is_ready && clock_.Now() >= until) break;
  }
  Unlock();
  return is_ready;
}

// Until `ready` or until nobody serves any more.
template <class Ready>
void SharedPrefetcher::Sleep(Ready ready, Instant until) {
  ++sleepers_;
  std::uint64_t seen = seen_events_;
  mutex_.AwaitFor(until - clock_.Now(), [&] {
    mutex_.AssertHeld();
    if (seen != seen_events_) unseen_.fetch_sub(1, std::memory_order_relaxed);
    seen = seen_events_;
    next_sleeper_ = std::min(next_sleeper_, until);
    return ready(*prefetcher_) || (!serving_ && !has_poller_);
  });
  --sleepers_;
}

// Makes everything go on until `ready` or `until`. The lock is let go whenever somebody wants it,
// and when a sleeper may have what it waits for.
template <class Ready>
void SharedPrefetcher::Serve(Ready ready, Instant until) {
  std::uint64_t events = prefetcher_->events();
  prefetcher_->Progress();
  if (ready(*prefetcher_)) return;  // mapped rows are there by now
  Instant now = clock_.Now();
  Instant spin_from = now;
  for (;;) {
    prefetcher_->Progress();
    if (ready(*prefetcher_)) return;
    now = clock_.Now();
    if (now >= until) return;
    if (prefetcher_->events() != events) {
      events = prefetcher_->events();
      spin_from = now;
      TellSleepers();
    } else if (now - spin_from >= spin_) {
      Nap(until);
    }
    if (now >= next_sleeper_) TellSleepers();
    LetOthersIn();
  }
}

// Sleepers need the lock to look, and to give up: each of them gets it before the server goes on
// without offering it.
void SharedPrefetcher::TellSleepers() {
  if (sleepers_ == 0) return;
  ++seen_events_;
  next_sleeper_ = Instant::max();
  unseen_.store(sleepers_, std::memory_order_relaxed);
}

void SharedPrefetcher::LetOthersIn() {
  const auto somebody = [this] {
    return wanting_.load(std::memory_order_relaxed) > 0 ||
           unseen_.load(std::memory_order_relaxed) > 0;
  };
  if (!somebody()) return;
  mutex_.Unlock();
  for (int offers = 0; offers < kOffers && somebody(); ++offers) std::this_thread::yield();
  mutex_.Lock();
}

void SharedPrefetcher::Nap(Instant until) {
  RowReader::Nap nap;
  nap.until = std::min(until, next_sleeper_);
  const Instant now = clock_.Now();
  if (!prefetcher_->Arm(now, &nap)) return;
  nap.fds[nap.count++] = {wake_fd_, POLLIN, 0};
  napping_ = true;
  mutex_.Unlock();
  nap.Sleep(now);
  mutex_.Lock();
  napping_ = false;
  std::uint64_t wakes;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &wakes, sizeof wakes);
}

void SharedPrefetcher::Run() {
  mutex_.Lock();
  while (!stopping_) {
    mutex_.Await([this] {
      mutex_.AssertHeld();
      return stopping_ || prefetcher_->busy();
    });
    serving_ = true;
    Serve(
        [this](const Prefetcher& steps) {
          mutex_.AssertHeld();
          return stopping_ || !steps.busy();
        },
        Instant::max());
    serving_ = false;
    // Sleepers look again at the unlocking below or inside Await.
    mutex_.Unlock();
    mutex_.Lock();
  }
  mutex_.Unlock();
}

}  // namespace engram::client
