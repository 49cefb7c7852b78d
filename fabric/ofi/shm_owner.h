// Whether the process behind an address of libfabric's shm provider lives. That provider keeps spin
// locks in memory that both sides share: a process that dies with one locked leaves a lock that
// nobody opens, and any call that wants it never returns. So a link asks here before every call.
// A process that dies while the call is under way can still leave it spinning; between two programs
// of one host `mapped` has no such lock.
// Thread-safe.
#pragma once

#include <span>
#include <string>

namespace engram::fabric::ofi {

class ShmOwner {
 public:
  // name: what fi_getname gave, "fi_shm://PID:DOMAIN:ENDPOINT".
  explicit ShmOwner(std::span<const std::byte> name);
  ~ShmOwner();
  ShmOwner(const ShmOwner&) = delete;
  ShmOwner& operator=(const ShmOwner&) = delete;

  // The process has ended, even if its parent has not collected it. One system call.
  bool IsGone() const;
  // The endpoint is closed, before or after this object was made. Within one process the provider
  // would go on to use the memory of an endpoint that was.
  bool ClosedEndpoint() const;

 private:
  int pidfd_ = -1;
  std::string file_;  // of the endpoint
};

}  // namespace engram::fabric::ofi
