#include "poolserver/duty.h"

#include <pthread.h>

#include <utility>

namespace engram::poolserver {

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
