// The memory model of client/gpu/ring.h on the CPU: words are loaded with acquire and stored with
// release, time is that of the steady clock. A Clock of ours is not used here: this one runs in the
// stand-in for a GPU, too. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "client/gpu/ring.h"

namespace engram::client::gpu {

struct HostModel {
  template <class W>
  static W Load(const W* word) {
    return std::atomic_ref<W>(*const_cast<W*>(word)).load(std::memory_order_acquire);
  }
  template <class W>
  static void Store(W* word, W value) {
    std::atomic_ref<W>(*word).store(value, std::memory_order_release);
  }
  static Word Add(Word* word, Word value) {
    return std::atomic_ref<Word>(*word).fetch_add(value, std::memory_order_acq_rel);
  }
  static std::uint64_t Now() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
  }
  static void Pause() { std::this_thread::yield(); }
};

}  // namespace engram::client::gpu
