// What was put out of a cache lately, by hash: a unit that comes back is worth more than one that
// comes for the first time. 16 hashes share a cache line, each line forgets its oldest; so the
// whole forgets about in the order in which units came. Thread-compatible.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace engram {

class Ghosts {
 public:
  static constexpr std::size_t kLine = 16;

  // `memory` is zeroed and has a multiple of kLine words.
  explicit Ghosts(std::span<std::uint32_t> memory) : memory_(memory) {}

  void Add(std::uint64_t hash) {
    std::uint32_t* line = LineOf(hash);
    std::memmove(line + 1, line, (kLine - 1) * sizeof *line);
    line[0] = Print(hash);
  }
  // True, and forgotten, if the hash is there.
  bool Take(std::uint64_t hash) {
    std::uint32_t* line = LineOf(hash);
    const std::uint32_t print = Print(hash);
    for (std::size_t i = 0; i < kLine; ++i) {
      if (line[i] != print) continue;
      std::memmove(line + i, line + i + 1, (kLine - 1 - i) * sizeof *line);
      line[kLine - 1] = 0;
      return true;
    }
    return false;
  }

 private:
  // 0 means nothing.
  static std::uint32_t Print(std::uint64_t hash) { return static_cast<std::uint32_t>(hash) | 1; }
  std::uint32_t* LineOf(std::uint64_t hash) {
    return memory_.data() +
           (hash >> 32) * (memory_.size() / kLine) / (std::uint64_t{1} << 32) * kLine;
  }

  std::span<std::uint32_t> memory_;
};

}  // namespace engram
