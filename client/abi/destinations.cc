#include "client/abi/destinations.h"

#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/abi/memory.h"
#include "client/include/engram/engram.h"

namespace engram::client::abi {
namespace {

bool Overlaps(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.data() < other.data() + other.size() && other.data() < one.data() + one.size();
}

}  // namespace

absl::Status Destinations::Check(void* memory, std::size_t bytes) {
  if (memory == nullptr) return absl::InvalidArgumentError("memory is NULL");
  if (bytes == 0)
    return absl::InvalidArgumentError("bytes is 0: a destination has at least one row");
  if (reinterpret_cast<std::uintptr_t>(memory) % ENGRAM_DESTINATION_ALIGNMENT != 0)
    return absl::InvalidArgumentError(absl::StrCat("memory is at ", Address(memory),
                                                   "; a destination starts on a ", "multiple of ",
                                                   ENGRAM_DESTINATION_ALIGNMENT, " bytes"));
  return CheckWritable("memory", memory, bytes);
}

absl::StatusOr<std::uint64_t> Destinations::Add(std::unique_ptr<Destination> destination) {
  const std::span<std::byte> memory = destination->bytes();
  MutexLock lock(&mutex_);
  for (const auto& [number, other] : registered_) {
    const std::span<std::byte> theirs = other->destination->bytes();
    if (Overlaps(memory, theirs))
      return absl::InvalidArgumentError(absl::StrCat(
          "memory of ", memory.size(), " bytes at ", Address(memory.data()),
          " overlaps destination ", number, " (", theirs.size(), " bytes at ",
          Address(theirs.data()), "): unregister that one before its memory is freed"));
  }
  auto entry = std::make_shared<Registered>();
  entry->number = ++last_;
  entry->destination = std::move(destination);
  registered_.emplace(last_, std::move(entry));
  return last_;
}

absl::Status Destinations::Unknown(std::uint64_t number) const {
  return absl::InvalidArgumentError(
      absl::StrCat("destination ", number,
                   " is not registered with this table: register it first, and do not "
                   "use it after it was unregistered"));
}

absl::Status Destinations::Remove(std::uint64_t number) {
  std::shared_ptr<Registered> gone;
  {
    MutexLock lock(&mutex_);
    const auto found = registered_.find(number);
    if (found == registered_.end()) return Unknown(number);
    if (const long users = found->second.use_count() - 1; users > 0)
      return absl::FailedPreconditionError(
          absl::StrCat("destination ", number, " is in use by ", users,
                       " steps or slots: release the steps, close the prefetcher of the slots, "
                       "then unregister"));
    gone = std::move(found->second);
    registered_.erase(found);
  }
  const std::span<std::byte> bytes = gone->destination->bytes();
  absl::Status mapped =
      CheckWritable(absl::StrCat("destination ", number), bytes.data(), bytes.size());
  if (mapped.ok()) return mapped;
  return absl::FailedPreconditionError(
      absl::StrCat("unregistered, but too late: ", mapped.message()));
}

absl::StatusOr<std::shared_ptr<Registered>> Destinations::Find(std::uint64_t number) const {
  MutexLock lock(&mutex_);
  const auto found = registered_.find(number);
  if (found == registered_.end()) return Unknown(number);
  return found->second;
}

absl::Status Destinations::Covers(const Registered& registered, const void* out,
                                  std::size_t bytes) {
  const Destination& destination = *registered.destination;
  if (destination.Covers(static_cast<const std::byte*>(out), bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("out of ", bytes, " bytes at ", Address(out),
                                                 " does not lie in destination ", registered.number,
                                                 " (", destination.bytes().size(), " bytes at ",
                                                 Address(destination.bytes().data()), ")"));
}

}  // namespace engram::client::abi
