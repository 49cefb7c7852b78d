#include "fabric/dax/cache_lines.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif !defined(__aarch64__)
#error "no instructions are known that move cache lines of this processor"
#endif

namespace engram::fabric::dax {
namespace {

#if defined(__x86_64__)

constexpr std::uintptr_t kLine = 64;

// Assembly, because the intrinsics want the whole file compiled for processors that have them.
struct Clwb {
  static void Do(std::uintptr_t line) { asm volatile("clwb (%0)" : : "r"(line) : "memory"); }
};
struct Clflushopt {
  static void Do(std::uintptr_t line) { asm volatile("clflushopt (%0)" : : "r"(line) : "memory"); }
};
struct Clflush {
  static void Do(std::uintptr_t line) { asm volatile("clflush (%0)" : : "r"(line) : "memory"); }
};

template <class Instruction>
void EachLine(const std::byte* data, std::uint64_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(data);
  for (std::uintptr_t line = start & ~(kLine - 1); line < start + bytes; line += kLine) {
    Instruction::Do(line);
  }
}

template <class Out, class Drop>
class X86Lines final : public CacheLines {
 public:
  explicit X86Lines(std::string_view instructions) : instructions_(instructions) {}
  void WriteBack(const std::byte* data, std::uint64_t bytes) const override {
    EachLine<Out>(data, bytes);
    asm volatile("sfence" : : : "memory");
  }
  void Invalidate(const std::byte* data, std::uint64_t bytes) const override {
    EachLine<Drop>(data, bytes);
    asm volatile("mfence" : : : "memory");
  }
  std::string_view instructions() const override { return instructions_; }

 private:
  const std::string_view instructions_;
};

const CacheLines& Choose() {
  static const X86Lines<Clwb, Clflushopt> best("clwb+sfence, clflushopt+mfence");
  static const X86Lines<Clflushopt, Clflushopt> good("clflushopt+sfence, clflushopt+mfence");
  static const X86Lines<Clflush, Clflush> any("clflush+sfence, clflush+mfence");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return any;
  const bool clflushopt = (b & (1u << 23)) != 0;
  const bool clwb = (b & (1u << 24)) != 0;
  if (clflushopt && clwb) return best;
  return clflushopt ? static_cast<const CacheLines&>(good) : any;
}

#else  // aarch64

// Linux lets programs maintain caches by address.
class ArmLines final : public CacheLines {
 public:
  void WriteBack(const std::byte* data, std::uint64_t bytes) const override {
    Each(data, bytes, [](std::uintptr_t at) {
      asm volatile("dc cvac, %0" : : "r"(at) : "memory");
    });
  }
  void Invalidate(const std::byte* data, std::uint64_t bytes) const override {
    Each(data, bytes, [](std::uintptr_t at) {
      asm volatile("dc civac, %0" : : "r"(at) : "memory");
    });
  }
  std::string_view instructions() const override { return "dc cvac+dsb, dc civac+dsb"; }

 private:
  template <class Do>
  static void Each(const std::byte* data, std::uint64_t bytes, Do instruction) {
    std::uint64_t type = 0;
    asm volatile("mrs %0, ctr_el0" : "=r"(type));
    const std::uintptr_t line = std::uintptr_t{4} << ((type >> 16) & 15);
    const auto start = reinterpret_cast<std::uintptr_t>(data);
    for (std::uintptr_t at = start & ~(line - 1); at < start + bytes; at += line) instruction(at);
    asm volatile("dsb sy" : : : "memory");
  }
};

const CacheLines& Choose() {
  static const ArmLines lines;
  return lines;
}

#endif

}  // namespace

const CacheLines& CacheLines::OfThisProcessor() {
  static const CacheLines& chosen = Choose();
  return chosen;
}

}  // namespace engram::fabric::dax
