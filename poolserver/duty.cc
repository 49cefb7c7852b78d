#include "poolserver/duty.h"

#include <pthread.h>
#include <sys/resource.h>

#include <utility>

namespace engram::poolserver {
namespace {

constexpr int kNice = 10;  // a tenth of the share of a thread that serves reads

}  // namespace

// Of the thread alone: on Linux a priority is a thread's. Lowering one's own is always allowed.
void StandBehindReads() { setpriority(PRIO_PROCESS, 0, kNice); }

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
