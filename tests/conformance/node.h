// A pool node as the suite sees it: one target over two slabs of known bytes, in this process or in
// a child process that can be killed and stopped. Thread-confined: call from the owner thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/ids.h"
#include "engram/session.h"
#include "fabric/target.h"
#include "tests/conformance/rig.h"

namespace engram::fabric::conformance {

inline constexpr std::uint32_t kSlabs = 2;
inline constexpr std::uint64_t kSlabBytes = std::uint64_t{4} << 20;

// Byte `offset` of slab `slab` of the node's start `incarnation`: no two words are alike.
std::byte PatternByte(Incarnation incarnation, std::uint32_t slab, std::uint64_t offset);

struct MemoryPlace {
  std::uint32_t slab = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t alignment = 1;
};

class Node {
 public:
  virtual ~Node() = default;
  virtual PathAddress address() const = 0;
  virtual absl::StatusOr<ExposedRegion> Expose(const MemoryPlace& place) = 0;
  virtual void Hide(std::uint64_t key) = 0;
  virtual void Admit(const SessionToken& session) = 0;
  virtual void Dismiss(const SessionToken& session) = 0;
  virtual void Allow(const SessionToken& session, std::uint64_t key) = 0;
  virtual void Disallow(const SessionToken& session, std::uint64_t key) = 0;
  // An orderly end.
  virtual void Stop() = 0;

  // REQUIRES for these three: it is a child process.
  virtual void Kill() {}
  virtual void Pause() {}
  virtual void Resume() {}
};

absl::StatusOr<std::unique_ptr<Node>> StartNodeHere(const Rig& rig, const TargetPlace& place);
absl::StatusOr<std::unique_ptr<Node>> StartNodeInChild(const Rig& rig, const TargetPlace& place);

// The child's main program: serves commands from standard input until it ends.
int ServeNode(const Rig& rig, const TargetPlace& place);

}  // namespace engram::fabric::conformance
