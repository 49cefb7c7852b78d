#include "fabric/dax/device_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace engram::fabric::dax {

// A device mapped whole, for reading.
class DevicePeer::View {
 public:
  static absl::StatusOr<std::unique_ptr<View>> Map(const DaxDescription& device) {
    const int fd = open(device.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return absl::ErrnoToStatus(errno, device.path);
    void* const data = mmap(nullptr, device.bytes, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    close(fd);
    if (data == MAP_FAILED) return absl::ErrnoToStatus(error, device.path);
    madvise(data, device.bytes, MADV_DONTDUMP);  // a core file is no place for tables
    return std::unique_ptr<View>(new View(static_cast<std::byte*>(data), device.bytes));
  }
  ~View() { munmap(data_, bytes_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  const std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  View(std::byte* data, std::uint64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* const data_;
  const std::uint64_t bytes_;
};

std::vector<DaxDescription> FindDevices(const std::string& wanted) {
  std::vector<std::string> paths;
  if (wanted == "auto") {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/dax/devices", none)) {
      paths.push_back("/dev/" + entry.path().filename().string());
    }
  } else {
    paths = absl::StrSplit(wanted, ',', absl::SkipEmpty());
  }
  std::vector<DaxDescription> found;
  for (const std::string& path : paths) {
    auto device = DescribeDax(path);
    if (device.ok()) found.push_back(*std::move(device));
  }
  return found;
}

absl::StatusOr<std::optional<Superblock>> DevicePeer::Look(const DaxDescription& device) {
  const auto view = View::Map(device);
  if (!view.ok()) return view.status();
  if (device.bytes < 2 * kSlotBytes) return std::optional<Superblock>();
  CacheLines::OfThisProcessor().Invalidate((*view)->data(), 2 * kSlotBytes);
  return DecodeSuperblock({(*view)->data(), 2 * kSlotBytes});
}

absl::StatusOr<std::shared_ptr<DevicePeer>> DevicePeer::Attach(const PeerAddress& address,
                                                               const DeviceFinder& find,
                                                               const CacheLines& lines) {
  const std::optional<DeviceUuid> wanted = ParseDeviceAddress(address.path.address);
  if (!wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address.path.address, "\" names no device"));
  }
  std::string looked_at;
  for (const DaxDescription& device : find()) {
    const auto view = View::Map(device);
    std::string why = view.ok() ? "another device" : std::string(view.status().message());
    if (view.ok() && device.bytes >= 2 * kSlotBytes) {
      std::shared_ptr<DevicePeer> peer(new DevicePeer(device, address, lines));
      Superblock superblock;
      const absl::Status claim = peer->CheckClaim(**view, &superblock);
      if (claim.ok()) return peer;
      if (superblock.device == *wanted) return claim;
    }
    absl::StrAppend(&looked_at, looked_at.empty() ? "" : ", ", device.path, " (", why, ")");
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "device ", wanted->Hex(), " of node \"", address.node.name,
      "\" is not attached to this host, or this user may not read it; looked at ",
      looked_at.empty() ? "no device: there is none (ENGRAM_DAX_DEVICES)" : looked_at));
}

DevicePeer::DevicePeer(const DaxDescription& device, const PeerAddress& address,
                       const CacheLines& lines)
    : device_(device), address_(address), lines_(lines) {}

DevicePeer::~DevicePeer() = default;

// `superblock` is set as far as one was found.
absl::Status DevicePeer::CheckClaim(const View& view, Superblock* superblock) const {
  lines_.Invalidate(view.data(), 2 * kSlotBytes);
  auto found = DecodeSuperblock({view.data(), 2 * kSlotBytes});
  if (!found.ok()) return found.status();
  if (!*found) return absl::FailedPreconditionError("it is blank");
  *superblock = **found;
  const std::string name = absl::StrCat(device_.path, " of node \"", address_.node.name, "\": ");
  if (superblock->device_bytes != view.bytes() ||
      FormatDeviceAddress(superblock->device) != address_.path.address) {
    return absl::FailedPreconditionError(absl::StrCat(name, "it is another device"));
  }
  if (superblock->nonce == 0) {
    return absl::UnavailableError(absl::StrCat(name, "its owner has ended"));
  }
  if (superblock->owner != address_.node || superblock->incarnation != address_.incarnation ||
      superblock->nonce != address_.path.nonce) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, "its superblock names ", superblock->Holder(), ", and incarnation ",
                     address_.incarnation.value(), " was wanted; it was restarted or taken over"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> DevicePeer::Import(const RemoteRegion& granted, Instant) {
  MutexLock lock(&mutex_);
  if (view_ == nullptr) {
    auto view = View::Map(device_);
    if (!view.ok()) return view.status();
    view_ = *std::move(view);
  }
  absl::Status status;
  Superblock superblock;
  status = CheckClaim(*view_, &superblock);
  if (status.ok()) {
    const std::uint64_t line =
        kDirectoryOffset + granted.key % superblock.directory_entries * kExtentBytes;
    lines_.Invalidate(view_->data() + line, kExtentBytes);
    const auto extent =
        DecodeExtent(std::span<const std::byte, kExtentBytes>(view_->data() + line, kExtentBytes));
    const bool listed =
        extent && extent->key == granted.key && extent->nonce == superblock.nonce &&
        extent->offset >= superblock.data_offset && extent->offset <= view_->bytes() &&
        extent->bytes <= view_->bytes() - extent->offset && granted.address >= extent->offset &&
        granted.address - extent->offset <= extent->bytes &&
        granted.length <= extent->bytes - (granted.address - extent->offset);
    if (!listed) {
      status = absl::PermissionDeniedError(absl::StrCat(
          device_.path, " of node \"", address_.node.name, "\": its directory does not ", "list [",
          granted.address, ", +", granted.length, ") under this key"));
    }
  }
  if (!status.ok()) {
    if (imports_ == 0) view_.reset();
    return status;
  }
  lines_.Invalidate(view_->data() + granted.address, granted.length);
  ++imports_;
  return reinterpret_cast<std::uint64_t>(view_->data()) + granted.address;
}

void DevicePeer::Release(std::uint64_t) {
  MutexLock lock(&mutex_);
  if (imports_ == 0 || --imports_ > 0) return;
  view_.reset();
}

}  // namespace engram::fabric::dax
