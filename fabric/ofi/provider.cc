#include "fabric/ofi/provider.h"

#include <dirent.h>
#include <errno.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engram/clock.h"
#include "engram/random.h"
#include "fabric/card.h"
#include "fabric/memory.h"

namespace engram::fabric::ofi {
namespace {

constexpr std::uint32_t kApiVersion = FI_VERSION(1, 15);
constexpr std::uint64_t kMaxReadBytes = std::uint64_t{1} << 30;

std::atomic<std::uint64_t> registered_bytes{0};
std::atomic<std::int64_t> registering_ns{0};

Info Hints(const Libfabric& library, const std::string& provider, bool device_memory) {
  Info hints(library.dupinfo(nullptr), InfoFree{&library});
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_RMA | FI_READ | FI_REMOTE_READ;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (device_memory) {
    hints->caps |= FI_HMEM;
    hints->domain_attr->mr_mode |= FI_MR_HMEM;
  }
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->av_type = FI_AV_UNSPEC;
  if (!provider.empty()) hints->fabric_attr->prov_name = strdup(provider.c_str());
  return hints;
}

// Sorted, each once.
std::vector<std::string> Providers(const Libfabric& library) {
  std::vector<std::string> names;
  const Info hints = Hints(library, "", /*device_memory=*/false);
  fi_info* all = nullptr;
  if (library.getinfo(kApiVersion, nullptr, nullptr, 0, hints.get(), &all) != 0) return names;
  for (const fi_info* info = all; info != nullptr; info = info->next) {
    names.emplace_back(info->fabric_attr->prov_name);
  }
  library.freeinfo(all);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

absl::StatusOr<Binding> BindingOf(const ProviderOptions& options) {
  return ResolveBinding(options.provider, options.bind, options.near);
}

absl::StatusOr<std::shared_ptr<Provider>> Provider::Open(const ProviderOptions& options) {
  auto library = LoadLibfabric();
  if (!library.ok()) return library.status();
  std::shared_ptr<Provider> provider(new Provider(options));
  provider->library_ = *library;
  if (provider->is_shm()) RemoveStaleShmFiles();
  auto binding = options.resolve(options);
  if (!binding.ok()) return binding.status();
  auto info = provider->InfoOf(*binding);
  if (!info.ok()) return info.status();
  provider->info_ = *std::move(info);
  {
    MutexLock lock(&provider->mutex_);
    provider->bound_ = *binding;
    provider->bound_info_ = provider->info_;
  }
  if (absl::Status status = provider->OpenDomain(); !status.ok()) return status;
  return provider;
}

absl::StatusOr<std::shared_ptr<fi_info>> Provider::InfoOf(const Binding& binding) const {
  const Info hints = Hints(*library_, name_, options_.device_memory);
  if (!binding.domain.empty()) hints->domain_attr->name = strdup(binding.domain.c_str());
  const char* node = binding.node.empty() ? nullptr : binding.node.c_str();
  fi_info* info = nullptr;
  const int error = library_->getinfo(kApiVersion, node, nullptr, node != nullptr ? FI_SOURCE : 0,
                                      hints.get(), &info);
  if (error == 0) return std::shared_ptr<fi_info>(info, InfoFree{library_});
  return absl::FailedPreconditionError(absl::StrCat(
      "libfabric provider ", name_, " cannot be used",
      options_.device_memory ? " with memory of a GPU (FI_HMEM)" : "",
      node != nullptr ? absl::StrCat(" on ", node) : "", ": fi_getinfo says \"",
      library_->Explain(error), "\"; providers with remote reads on this machine: ",
      absl::StrJoin(Providers(*library_), ", "), "; choose one of them or install the device"));
}

// The domain is the device's; the address is an endpoint's. One whose address is gone cannot be
// made any more, so it gets the one that the device has now.
std::shared_ptr<fi_info> Provider::InfoNow() const {
  const auto binding = options_.resolve(options_);
  MutexLock lock(&mutex_);
  if (!binding.ok() || binding->node == bound_.node || binding->device != bound_.device) {
    return bound_info_;
  }
  auto info = InfoOf(*binding);
  if (!info.ok()) return bound_info_;
  bound_ = *binding;
  bound_info_ = *std::move(info);
  return bound_info_;
}

Binding Provider::bound() const {
  MutexLock lock(&mutex_);
  return bound_;
}

absl::Status Provider::OpenDomain() {
  fid_fabric* fabric = nullptr;
  if (int error = library_->fabric(info_->fabric_attr, &fabric, nullptr); error != 0) {
    return Failed("fi_fabric", error);
  }
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (int error = fi_domain(fabric, info_.get(), &domain, nullptr); error != 0) {
    return Failed("fi_domain", error);
  }
  domain_.reset(domain);
  const int mode = info_->domain_attr->mr_mode;
  virtual_addresses_ = (mode & FI_MR_VIRT_ADDR) != 0;
  provider_keys_ = (mode & FI_MR_PROV_KEY) != 0;
  local_ = (mode & FI_MR_LOCAL) != 0;
  offloaded_ = IsRdmaProvider(name_);
  return absl::OkStatus();
}

absl::Status Provider::Failed(std::string_view call, int error) const {
  return absl::UnavailableError(absl::StrCat("libfabric provider ", name_, ": ",
                                             absl::string_view(call.data(), call.size()),
                                             " failed: ", library_->Explain(error)));
}

std::uint32_t Provider::local_iov_limit() const {
  return static_cast<std::uint32_t>(std::max<std::size_t>(info_->tx_attr->iov_limit, 1));
}

std::uint32_t Provider::remote_iov_limit() const {
  return static_cast<std::uint32_t>(std::max<std::size_t>(info_->tx_attr->rma_iov_limit, 1));
}

std::uint64_t Provider::max_message_bytes() const {
  return std::min<std::uint64_t>(info_->ep_attr->max_msg_size, kMaxReadBytes);
}

std::size_t Provider::messages_at_once() const {
  return std::max<std::size_t>(info_->tx_attr->size, 1);
}

FabricInfo Provider::Describe() const {
  FabricInfo info;
  info.kind = FabricKind::kOfi;
  info.provider = name_;
  info.one_sided = true;
  info.offloaded = offloaded_;
  info.target_progress = !offloaded_;
  info.needs_registration = local_ || options_.device_memory;
  info.device_memory = options_.device_memory;
  info.max_op_bytes = max_message_bytes();
  info.max_segments = std::min(kMaxLocalSegments, local_iov_limit());
  // Tried on 1.17: tcp;ofi_rxm ends the connection; shm answers nothing, and the reader gives the
  // endpoint up after a silence; RDMA moves the queue pair to the error state.
  info.wrong_key = WrongKey::kBreaksPeer;
  info.bearer_keys = true;
  return info;
}

absl::StatusOr<Endpoint> Provider::OpenEndpoint(std::size_t completions, bool blocking,
                                                bool* can_block) const {
  Endpoint out;
  out.counted = endpoints_;
  fi_av_attr av_attr{};
  av_attr.type = info_->domain_attr->av_type;
  av_attr.count = 1;
  fid_av* av = nullptr;
  if (int error = fi_av_open(domain_.get(), &av_attr, &av, nullptr); error != 0) {
    return Failed("fi_av_open", error);
  }
  out.av.reset(av);
  // The wait of shm yields the processor in a loop and forgets its timeout.
  blocking = blocking && !is_shm();
  fi_cq_attr cq_attr{};
  cq_attr.size = completions;
  cq_attr.format = FI_CQ_FORMAT_CONTEXT;
  cq_attr.wait_obj = blocking ? FI_WAIT_UNSPEC : FI_WAIT_NONE;
  fid_cq* cq = nullptr;
  int error = fi_cq_open(domain_.get(), &cq_attr, &cq, nullptr);
  if (error != 0 && blocking) {
    blocking = false;
    cq_attr.wait_obj = FI_WAIT_NONE;
    error = fi_cq_open(domain_.get(), &cq_attr, &cq, nullptr);
  }
  if (error != 0) return Failed("fi_cq_open", error);
  out.cq.reset(cq);
  if (can_block != nullptr) *can_block = blocking;
  fid_ep* ep = nullptr;
  const std::shared_ptr<fi_info> info = InfoNow();
  error = fi_endpoint(domain_.get(), info.get(), &ep, nullptr);
  if (error != 0) return Failed("fi_endpoint", error);
  out.ep.reset(ep);
  if (options_.device_memory) {
    int value = FI_HMEM_P2P_REQUIRED;
    error = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &value, sizeof value);
    if (error != 0) return Failed("fi_setopt(FI_HMEM_P2P_REQUIRED)", error);
  }
  error = fi_ep_bind(ep, &av->fid, 0);
  if (error == 0) error = fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = fi_enable(ep);
  if (error != 0) return Failed("fi_enable", error);
  return out;
}

std::uint64_t Provider::WantedKey() const {
  if (provider_keys_) return 0;
  const std::size_t bytes = std::min<std::size_t>(info_->domain_attr->mr_key_size, 8);
  SystemRandom random;
  const std::uint64_t wanted =
      bytes == 8 ? random.Next() : random.Next() & ((std::uint64_t{1} << bytes * 8) - 1);
  // One key is libfabric's own for "none".
  return wanted == FI_KEY_NOTAVAIL ? wanted - 1 : wanted;
}

absl::StatusOr<Registration> Provider::Register(std::span<const std::byte> memory,
                                                std::uint64_t access, MemoryKind kind) const {
  const Instant start = SystemClock::Get().Now();
  fid_mr* mr = nullptr;
  if (kind.place == MemoryKind::Place::kCuda) {
    absl::Status status = RegisterOnDevice(memory, access, kind.device, &mr);
    if (!status.ok()) return status;
  } else if (const int error = fi_mr_reg(domain_.get(), memory.data(), memory.size(), access, 0,
                                         WantedKey(), 0, &mr, nullptr);
             error != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("libfabric provider ", name_, " cannot register ", memory.size(),
                     " bytes: ", library_->Explain(error), "; ", DescribeMemlock(),
                     "; raise memlock (or run with CAP_IPC_LOCK), or hold less on this node"));
  }
  registered_bytes.fetch_add(memory.size(), std::memory_order_relaxed);
  registering_ns.fetch_add((SystemClock::Get().Now() - start).count(), std::memory_order_relaxed);
  Registration out;
  out.mr.reset(mr);
  out.address = virtual_addresses_ ? reinterpret_cast<std::uint64_t>(memory.data()) : 0;
  out.key = fi_mr_key(mr);
  return out;
}

// The memory is never touched here, only named.
absl::Status Provider::RegisterOnDevice(std::span<const std::byte> memory, std::uint64_t access,
                                        std::uint32_t device, fid_mr** mr) const {
  if (!options_.device_memory) {
    return absl::FailedPreconditionError(
        absl::StrCat("libfabric provider ", name_,
                     " was not opened for memory of a GPU: read into host memory, or open the "
                     "fabric with device_memory"));
  }
  const iovec place{const_cast<std::byte*>(memory.data()), memory.size()};
  fi_mr_attr attributes{};
  attributes.mr_iov = &place;
  attributes.iov_count = 1;
  attributes.access = access;
  attributes.requested_key = WantedKey();
  attributes.iface = FI_HMEM_CUDA;
  attributes.device.cuda = static_cast<int>(device);
  const int error = fi_mr_regattr(domain_.get(), &attributes, 0, mr);
  if (error == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "libfabric provider ", name_, " cannot register ", memory.size(), " bytes of GPU ", device,
      ": ", library_->Explain(error),
      "; it needs libfabric with CUDA and the kernel module nvidia-peermem (or dma-buf): read into "
      "host memory instead"));
}

RegistrationCounters Registrations() {
  return {registered_bytes.load(std::memory_order_relaxed),
          Duration(registering_ns.load(std::memory_order_relaxed))};
}

absl::StatusOr<std::vector<std::string>> ListProviders() {
  auto library = LoadLibfabric();
  if (!library.ok()) return library.status();
  return Providers(**library);
}

void RemoveStaleShmFiles() {
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    int pid = 0, domain = 0, endpoint = 0, length = 0;
    // The provider names its files PID:DOMAIN:ENDPOINT.
    if (sscanf(entry->d_name, "%d:%d:%d%n", &pid, &domain, &endpoint, &length) != 3) continue;
    if (static_cast<std::size_t>(length) != strlen(entry->d_name) || pid <= 0) continue;
    if (kill(pid, 0) == 0 || errno != ESRCH) continue;
    unlink(absl::StrCat("/dev/shm/", entry->d_name).c_str());
  }
  closedir(folder);
}

std::string FormatLocation(const TargetLocation& location) {
  std::vector<std::byte> bytes(24);
  const std::uint64_t words[] = {location.incarnation.value(), location.hello_address,
                                 location.hello_key};
  memcpy(bytes.data(), words, sizeof words);
  bytes.insert(bytes.end(), location.name.begin(), location.name.end());
  return FormatCard(location.provider, bytes);
}

absl::StatusOr<TargetLocation> ParseLocation(std::string_view text) {
  std::optional<Card> card = ParseCard(text);
  if (!card || card->bytes.size() <= 24 || card->bytes.size() > 24 + 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("ofi address \"", absl::string_view(text.data(), text.size()),
                     "\": wanted is provider!hex as a target gives it"));
  }
  std::uint64_t words[3];
  memcpy(words, card->bytes.data(), sizeof words);
  TargetLocation out;
  out.provider = std::move(card->label);
  out.incarnation = Incarnation(words[0]);
  out.hello_address = words[1];
  out.hello_key = words[2];
  out.name.assign(card->bytes.begin() + 24, card->bytes.end());
  return out;
}

}  // namespace engram::fabric::ofi
