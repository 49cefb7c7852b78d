#include "fabric/ucx/transport.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric/card.h"
#include "fabric/memory.h"
#include "fabric/ucx/messages.h"

namespace engram::fabric::ucx {
namespace {

constexpr std::uint64_t kMaxGetBytes = std::uint64_t{1} << 30;
constexpr std::size_t kMostAddress = 4096;
constexpr std::size_t kLocationHead = sizeof(std::uint64_t) + 1;

struct ConfigRelease {
  const Libucx* library;
  void operator()(ucp_config_t* config) const { library->config_release(config); }
};

// Every transport of the list is one of `kinds`, "rc" standing for "rc", "\\rc_mlx5" and the like.
bool AllAre(const std::string& transports, std::initializer_list<absl::string_view> kinds) {
  bool all = !transports.empty();
  for (absl::string_view name : absl::StrSplit(transports, ',')) {
    while (!name.empty() && name.front() == '\\') name.remove_prefix(1);
    const absl::string_view kind = name.substr(0, name.find('_'));
    all = all && std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  }
  return all;
}

std::string NamedTransports(const TransportOptions& options) {
  const char* const operators = getenv("UCX_TLS");
  return options.transports.empty() && operators != nullptr ? operators : options.transports;
}

}  // namespace

absl::StatusOr<std::string> UsableTransports(const std::string& named) {
  if (named.empty()) return "^posix";
  if (named.front() == '^') return absl::StrCat(named, ",posix");  // all but those
  for (absl::string_view name : absl::StrSplit(named, ',')) {
    if (name == "all") return "^posix";
    if (name != "posix" && name != "shm" && name != "sm" && name != "mm") continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "UCX transport \"", name, "\" is not safe in UCX 1.13: a reader ends with the ",
        "node that it reads; name tcp, sysv, rc or dc, or use the fabric mapped"));
  }
  return named;
}

absl::StatusOr<std::shared_ptr<Transport>> Transport::Open(const TransportOptions& options) {
  const std::string named = NamedTransports(options);
  auto usable = UsableTransports(named);
  if (!usable.ok()) return usable.status();
  auto library = LoadLibucx();
  if (!library.ok()) return library.status();
  std::shared_ptr<Transport> transport(new Transport);
  transport->library_ = *library;
  transport->name_ = named.empty() ? "auto" : named;
  transport->offloaded_ = AllAre(named, {"rc", "dc"});
  transport->in_shared_memory_ = AllAre(named, {"sysv", "xpmem", "cma", "knem", "self"});
  transport->uses_get_ = transport->offloaded_ || options.emulate_get;
  if (absl::Status status = transport->OpenContext(options, *usable); !status.ok()) return status;
  return transport;
}

absl::Status Transport::OpenContext(const TransportOptions& options, const std::string& usable) {
  ucp_config_t* raw = nullptr;
  if (ucs_status_t error = library_->config_read(nullptr, nullptr, &raw); error != UCS_OK) {
    return Failed("ucp_config_read", error);
  }
  const std::unique_ptr<ucp_config_t, ConfigRelease> config(raw, {library_});
  ucs_status_t error = library_->config_modify(raw, "TLS", usable.c_str());
  if (error == UCS_OK && !options.devices.empty()) {
    error = library_->config_modify(raw, "NET_DEVICES", options.devices.c_str());
  }

  ucp_params_t params{};
  params.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  // Without RMA UCX has no ears for the gets and puts of a peer, which it would serve unseen.
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | (uses_get_ ? UCP_FEATURE_RMA : 0);
  params.mt_workers_shared = 1;
  params.name = "engram";
  if (error == UCS_OK) {
    error = library_->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, raw, &context_);
  }
  if (error == UCS_OK) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("UCX transports ", name_, " cannot be used on the devices ", options.devices,
                   ": ", library_->status_string(error),
                   "; `ucx_info -d` of the Debian package ucx-utils lists those of this machine"));
}

Transport::~Transport() {
  if (context_ != nullptr) library_->cleanup(context_);
}

absl::Status Transport::Failed(std::string_view call, ucs_status_t error) const {
  return absl::UnavailableError(absl::StrCat("UCX transports ", name_, ": ",
                                             absl::string_view(call.data(), call.size()),
                                             " failed: ", library_->status_string(error)));
}

std::uint64_t Transport::max_read_bytes() const {
  return uses_get_ ? kMaxGetBytes : std::uint64_t{kMostRangeBytes};
}

FabricInfo Transport::Describe() const {
  FabricInfo info;
  info.kind = FabricKind::kUcx;
  info.provider = name_;
  info.one_sided = uses_get_;
  info.offloaded = offloaded_;
  info.target_progress = !offloaded_;
  info.needs_registration = offloaded_;
  info.max_op_bytes = max_read_bytes();
  info.max_segments = kMaxLocalSegments;
  // RDMA moves the queue pair to the error state. A get that UCX emulates looks at no key.
  info.wrong_key = offloaded_  ? WrongKey::kBreaksPeer
                   : uses_get_ ? WrongKey::kUndetected
                               : WrongKey::kFailsRead;
  info.bearer_keys = uses_get_;
  return info;
}

absl::StatusOr<Worker> Transport::OpenWorker() const {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  if (ucs_status_t error = library_->worker_create(context_, &params, &worker); error != UCS_OK) {
    return Failed("ucp_worker_create", error);
  }
  return Worker(worker, WorkerDestroy{library_});
}

absl::StatusOr<std::vector<std::byte>> Transport::AddressOf(const Worker& worker) const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (ucs_status_t error = library_->worker_get_address(worker.get(), &address, &bytes);
      error != UCS_OK) {
    return Failed("ucp_worker_get_address", error);
  }
  const auto* first = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> out(first, first + bytes);
  library_->worker_release_address(worker.get(), address);
  return out;
}

absl::StatusOr<MemoryHandle> Transport::Register(std::span<const std::byte> memory,
                                                 unsigned access) const {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_PROT;
  params.address = const_cast<std::byte*>(memory.data());
  params.length = memory.size();
  params.prot = access;
  ucp_mem_h handle = nullptr;
  if (ucs_status_t error = library_->mem_map(context_, &params, &handle); error != UCS_OK) {
    return absl::ResourceExhaustedError(
        absl::StrCat("UCX transports ", name_, " cannot register ", memory.size(),
                     " bytes: ", library_->status_string(error), "; ", DescribeMemlock(),
                     "; raise memlock (or run with CAP_IPC_LOCK), or hold less on this node"));
  }
  return MemoryHandle(handle, MemoryUnmap{library_, context_});
}

absl::StatusOr<std::vector<std::byte>> Transport::PackKey(const MemoryHandle& memory) const {
  void* packed = nullptr;
  std::size_t bytes = 0;
  if (ucs_status_t error = library_->rkey_pack(context_, memory.get(), &packed, &bytes);
      error != UCS_OK) {
    return Failed("ucp_rkey_pack", error);
  }
  const auto* first = static_cast<const std::byte*>(packed);
  std::vector<std::byte> out(first, first + bytes);
  library_->rkey_buffer_release(packed);
  return out;
}

std::string FormatLocation(const TargetLocation& location) {
  std::vector<std::byte> bytes(kLocationHead);
  const std::uint64_t incarnation = location.incarnation.value();
  memcpy(bytes.data(), &incarnation, sizeof incarnation);
  bytes[sizeof incarnation] = static_cast<std::byte>(location.kind);
  bytes.insert(bytes.end(), location.address.begin(), location.address.end());
  return FormatCard(location.transports, bytes);
}

absl::StatusOr<TargetLocation> ParseLocation(std::string_view text) {
  std::optional<Card> card = ParseCard(text);
  bool sound = card && card->bytes.size() > kLocationHead &&
               card->bytes.size() <= kLocationHead + kMostAddress;
  TargetLocation out;
  if (sound) {
    std::uint64_t incarnation = 0;
    memcpy(&incarnation, card->bytes.data(), sizeof incarnation);
    out.transports = std::move(card->label);
    out.incarnation = Incarnation(incarnation);
    out.kind = static_cast<TargetLocation::Kind>(card->bytes[sizeof incarnation]);
    out.address.assign(card->bytes.begin() + kLocationHead, card->bytes.end());
    const bool fits_socket =
        out.address.size() >= sizeof(sockaddr_in) && out.address.size() <= sizeof(sockaddr_storage);
    sound = out.kind == TargetLocation::Kind::kWorker ||
            (out.kind == TargetLocation::Kind::kSocket && fits_socket);
  }
  if (sound) return out;
  return absl::InvalidArgumentError(
      absl::StrCat("ucx address \"", absl::string_view(text.data(), text.size()),
                   "\": wanted is transports!hex as a target gives it"));
}

}  // namespace engram::fabric::ucx
