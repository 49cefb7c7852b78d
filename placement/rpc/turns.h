// So many at one time and no more: whoever comes then is turned away at once, nobody queues.
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>

namespace engram::placement {

class Turns {
 public:
  explicit Turns(int most) : most_(most) {}

  struct GiveBack {
    void operator()(std::atomic<int>* taken) const { taken->fetch_sub(1); }
  };
  // Ends with its last owner; null: there was none left.
  using Turn = std::unique_ptr<std::atomic<int>, GiveBack>;
  // REQUIRES: the turn ends before this object.
  Turn Take() {
    if (taken_.fetch_add(1) < most_) return Turn(&taken_);
    taken_.fetch_sub(1);
    return nullptr;
  }
  int most() const { return most_; }

 private:
  const int most_;
  std::atomic<int> taken_{0};
};

}  // namespace engram::placement
