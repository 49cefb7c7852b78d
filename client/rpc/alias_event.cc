#include "client/rpc/alias_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace engram::client {

AliasEvent::~AliasEvent() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<int> AliasEvent::Descriptor() {
  MutexLock lock(&mutex_);
  if (fd_ < 0) fd_ = eventfd(pending_ ? 1 : 0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd_ >= 0) return fd_;
  return absl::ResourceExhaustedError(
      absl::StrCat("a descriptor for the table's alias: ", std::strerror(errno),
                   "; raise the limit of open files"));
}

void AliasEvent::Set(bool pending) {
  MutexLock lock(&mutex_);
  if (pending == pending_) return;
  pending_ = pending;
  if (fd_ < 0) return;
  // Neither blocks nor fails: the counter is 0 or 1.
  std::uint64_t count = 1;
  [[maybe_unused]] const ssize_t moved =
      pending ? write(fd_, &count, sizeof count) : read(fd_, &count, sizeof count);
}

}  // namespace engram::client
