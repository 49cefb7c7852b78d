#include "fabric/ofi/shm_owner.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace engram::fabric::ofi {

ShmOwner::ShmOwner(std::span<const std::byte> name) {
  std::string text(reinterpret_cast<const char*>(name.data()), name.size());
  text.resize(std::strlen(text.c_str()));
  const std::size_t scheme = text.find("://");
  if (scheme != std::string::npos) text.erase(0, scheme + 3);
  int pid = 0;
  if (std::sscanf(text.c_str(), "%d", &pid) == 1 && pid > 0) {
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  }
  file_ = "/dev/shm/" + text;
}

ShmOwner::~ShmOwner() {
  if (pidfd_ >= 0) close(pidfd_);
}

bool ShmOwner::IsGone() const {
  if (pidfd_ < 0) return true;
  pollfd ended{pidfd_, POLLIN, 0};
  return poll(&ended, 1, 0) > 0;
}

bool ShmOwner::ClosedEndpoint() const { return access(file_.c_str(), F_OK) != 0; }

}  // namespace engram::fabric::ofi
