#include "fabric/mapped/grants.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace engram::fabric::mapped {

Grants::~Grants() {
  for (auto& [slab, shared] : slabs_) close(shared.read_only_fd);
}

absl::StatusOr<Grants::SharedSlab*> Grants::Share(const Slab& slab) {
  SharedSlab& shared = slabs_[&slab];
  if (shared.read_only_fd < 0) {
    // A duplicate of the owner's descriptor would be writable; opening it anew is not.
    shared.read_only_fd =
        open(absl::StrCat("/proc/self/fd/", slab.fd()).c_str(), O_RDONLY | O_CLOEXEC);
    if (shared.read_only_fd < 0) {
      const int error = errno;
      slabs_.erase(&slab);
      return absl::FailedPreconditionError(
          absl::StrCat("opening /proc/self/fd/", slab.fd(), " read-only: ", strerror(error),
                       "; mapped memory needs /proc and free descriptors (ulimit -n)"));
    }
    shared.id = random_.Next();
  }
  return &shared;
}

absl::StatusOr<ExposedRegion> Grants::Expose(const ExposedMemory& memory) {
  if (auto status = CheckExposed(memory); !status.ok()) return status;
  MutexLock lock(&mutex_);
  auto shared = Share(*memory.slab);
  if (!shared.ok()) return shared.status();
  (*shared)->regions += 1;
  const std::uint64_t key = random_.Next();
  regions_[key] = memory;
  return ExposedRegion{memory.offset, memory.length, key};
}

void Grants::Hide(std::uint64_t key) {
  MutexLock lock(&mutex_);
  const auto region = regions_.find(key);
  if (region == regions_.end()) return;
  const auto shared = slabs_.find(region->second.slab);
  if (--shared->second.regions == 0) {
    close(shared->second.read_only_fd);
    slabs_.erase(shared);
  }
  regions_.erase(region);
  sessions_.Forget(key);
}

void Grants::Admit(const SessionToken& session) {
  MutexLock lock(&mutex_);
  sessions_.Admit(session);
}

void Grants::Dismiss(const SessionToken& session) {
  MutexLock lock(&mutex_);
  sessions_.Dismiss(session);
}

void Grants::Allow(const SessionToken& session, std::uint64_t key) {
  MutexLock lock(&mutex_);
  sessions_.Allow(session, key);
}

void Grants::Disallow(const SessionToken& session, std::uint64_t key) {
  MutexLock lock(&mutex_);
  sessions_.Disallow(session, key);
}

bool Grants::Admits(const SessionToken& session) {
  MutexLock lock(&mutex_);
  return sessions_.Admits(session);
}

absl::StatusOr<ImportedSlab> Grants::Import(const SessionToken& session, std::uint64_t key) {
  MutexLock lock(&mutex_);
  const auto region = regions_.find(key);
  if (region == regions_.end() || !sessions_.Allows(session, key)) {
    return absl::PermissionDeniedError("the key is not granted to this session");
  }
  const ExposedMemory& memory = region->second;
  const SharedSlab& shared = slabs_.at(memory.slab);
  ImportedSlab import{
      fcntl(shared.read_only_fd, F_DUPFD_CLOEXEC, 0),   shared.id,     memory.slab->bytes(),
      static_cast<std::uint64_t>(memory.slab->pages()), memory.offset, memory.length};
  if (import.fd < 0) return absl::ResourceExhaustedError("the target is out of descriptors");
  return import;
}

}  // namespace engram::fabric::mapped
