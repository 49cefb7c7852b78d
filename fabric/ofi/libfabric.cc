#include "fabric/ofi/libfabric.h"

#include <stdlib.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engram/mutex.h"
#include "fabric/loaded_library.h"

namespace engram::fabric::ofi {
namespace {

// The layout of fi_info belongs to a version of these symbols, not to the library's: a newer
// library still has the one that the headers describe.
constexpr char kInfoAbi[] = "FABRIC_1.3";
constexpr char kFabricAbi[] = "FABRIC_1.1";
constexpr char kErrorAbi[] = "FABRIC_1.0";
static_assert(FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION >= 9 && FI_MINOR_VERSION < 20,
              "name the symbol version whose fi_info these headers describe");

// The queues of ofi_rxm, which are as large for every connection unless its environment says
// otherwise. Our endpoints post reads and nothing else: kReads of them are more than a NIC works on
// at a time (16 on common ones), and receives are only posted for rxm's own sake, each with a
// buffer. What a completion queue must hold beside its own reads is what flushes when connections
// break: their receives, for kBrokenAtOnce of them between two looks of a target. rxm makes a
// completion queue of (sends + receives) x universe, and soft-RoCE has none of more than
// kSmallestLimit.
constexpr std::uint32_t kReads = 128;
constexpr std::uint32_t kReceives = 8;
constexpr std::uint32_t kBrokenAtOnce = 1024;
constexpr std::uint32_t kUniverse =
    (kBrokenAtOnce * kReceives + kReads + kReceives - 1) / (kReads + kReceives);
constexpr std::uint32_t kSmallestLimit = 32767;
static_assert((kReads + kReceives) * kUniverse <= kSmallestLimit);

// What somebody has set stands.
void SizeQueues() {
  setenv("FI_OFI_RXM_MSG_TX_SIZE", absl::StrCat(kReads).c_str(), 0);
  setenv("FI_OFI_RXM_MSG_RX_SIZE", absl::StrCat(kReceives).c_str(), 0);
  setenv("FI_UNIVERSE_SIZE", absl::StrCat(kUniverse).c_str(), 0);
}

absl::Status Missing(const std::string& file, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("libfabric cannot be loaded from ", file, ": ", why,
                   "; the fabric `ofi` needs it: install the Debian package libfabric1, or choose "
                   "the fabrics mapped and stream"));
}

}  // namespace

std::string Libfabric::Explain(std::int64_t error) const {
  return strerror(static_cast<int>(error < 0 ? -error : error));
}

absl::StatusOr<Libfabric> OpenLibfabric(const std::string& file) {
  // With cross-memory attach the shm provider reads any address of the target without looking at
  // keys, or lets the target write into a reader that has abandoned the read. Through its shared
  // segments it does neither. Providers read their environment once, at the first fi_getinfo.
  setenv("FI_SHM_DISABLE_CMA", "1", 1);
  // With its registration cache verbs leaves memory registered after fi_close: a NIC would go on
  // serving what was retired, under the same key.
  setenv("FI_MR_CACHE_MONITOR", "disabled", 1);
  setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
  SizeQueues();
  std::string why;
  void* const library = LoadLibraryForGood(file, &why);
  if (library == nullptr) return Missing(file, why);
  Libfabric out;
  const bool complete = FindCall(library, "fi_getinfo", kInfoAbi, &out.getinfo, &why) &&
                        FindCall(library, "fi_freeinfo", kInfoAbi, &out.freeinfo, &why) &&
                        FindCall(library, "fi_dupinfo", kInfoAbi, &out.dupinfo, &why) &&
                        FindCall(library, "fi_fabric", kFabricAbi, &out.fabric, &why) &&
                        FindCall(library, "fi_strerror", kErrorAbi, &out.strerror, &why);
  if (!complete) return Missing(file, why);
  return out;
}

absl::StatusOr<const Libfabric*> LoadLibfabric() {
  // Never destroyed: fabrics may be closed by exit handlers.
  static auto* const mutex = new Mutex();
  static const Libfabric* loaded = nullptr;
  MutexLock lock(mutex);
  if (loaded == nullptr) {
    auto opened = OpenLibfabric("libfabric.so.1");
    if (!opened.ok()) return opened.status();
    loaded = new Libfabric(*opened);
  }
  return loaded;
}

}  // namespace engram::fabric::ofi
