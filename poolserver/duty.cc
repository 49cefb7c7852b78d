#include "poolserver/duty.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace engram::poolserver {
namespace {

constexpr int kNice = 10;  // a tenth of the share of a thread that serves reads
// How long it keeps a processor from a reader that wakes up, ns: the least that Linux takes (from
// 6.12 on; earlier ones go by their own, about 3 ms, and ignore it).
constexpr std::uint64_t kSliceNs = 100'000;

// What sched_setattr(2) takes; the kernel's own header of it cannot stand beside <sched.h>.
struct SchedulingOfThread {
  std::uint32_t size = sizeof(SchedulingOfThread);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t slice_ns = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

}  // namespace

// Of the thread alone: on Linux a priority is a thread's. Lowering one's own is always allowed.
void StandBehindReads() {
  SchedulingOfThread wanted;
  wanted.nice = std::max(kNice, getpriority(PRIO_PROCESS, 0));
  wanted.slice_ns = kSliceNs;
  if (syscall(SYS_sched_setattr, 0, &wanted, 0) == 0) return;
  setpriority(PRIO_PROCESS, 0, wanted.nice);  // a sandbox may refuse the other call
}

Duty::Duty(const std::string& name) : thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

Duty::~Duty() { Stop(); }

void Duty::Do(std::function<void()> job) {
  MutexLock lock(&mutex_);
  if (!stopping_) jobs_.push_back(std::move(job));
}

void Duty::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  if (thread_.joinable()) thread_.join();
}

void Duty::Run() {
  StandBehindReads();
  while (true) {
    std::function<void()> job;
    {
      MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !jobs_.empty();
      };
      mutex_.Await(ready);
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace engram::poolserver
