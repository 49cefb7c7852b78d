#include "fabric/ofi/libfabric.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>

#include <array>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engram/mutex.h"

namespace engram::fabric::ofi {
namespace {

// The layout of fi_info belongs to a version of these symbols, not to the library's: a newer
// library still has the one that the headers describe.
constexpr char kInfoAbi[] = "FABRIC_1.3";
constexpr char kFabricAbi[] = "FABRIC_1.1";
constexpr char kErrorAbi[] = "FABRIC_1.0";
static_assert(FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION >= 9 && FI_MINOR_VERSION < 20,
              "name the symbol version whose fi_info these headers describe");

absl::Status Missing(const std::string& file, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("libfabric cannot be loaded from ", file, ": ", why,
                   "; the fabric `ofi` needs it: install the Debian package libfabric1, or choose "
                   "the fabrics mapped and stream"));
}

class SignalDispositions {
 public:
  SignalDispositions() {
    for (int number = 1; number < NSIG; ++number) {
      is_known_[number] = sigaction(number, nullptr, &before_[number]) == 0;
    }
  }
  // Puts back what changed.
  ~SignalDispositions() {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction now {};
      if (!is_known_[number] || sigaction(number, nullptr, &now) != 0) continue;
      if (now.sa_sigaction != before_[number].sa_sigaction) {
        sigaction(number, &before_[number], nullptr);
      }
    }
  }
  SignalDispositions(const SignalDispositions&) = delete;
  SignalDispositions& operator=(const SignalDispositions&) = delete;

 private:
  std::array<struct sigaction, NSIG> before_{};
  std::array<bool, NSIG> is_known_{};
};

template <class Call>
bool Find(void* library, const char* name, const char* abi, Call* call) {
  void* const symbol = dlvsym(library, name, abi);
  std::memcpy(call, &symbol, sizeof symbol);
  return symbol != nullptr;
}

std::string LoaderError() {
  const char* const error = dlerror();
  return error == nullptr ? "no reason given" : error;
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
  void* library = nullptr;
  {
    const SignalDispositions kept;
    // NODELETE: the providers start threads and exit handlers that must find their code.
    library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  if (library == nullptr) return Missing(file, LoaderError());
  Libfabric out;
  const bool complete = Find(library, "fi_getinfo", kInfoAbi, &out.getinfo) &&
                        Find(library, "fi_freeinfo", kInfoAbi, &out.freeinfo) &&
                        Find(library, "fi_dupinfo", kInfoAbi, &out.dupinfo) &&
                        Find(library, "fi_fabric", kFabricAbi, &out.fabric) &&
                        Find(library, "fi_strerror", kErrorAbi, &out.strerror);
  if (complete) return out;
  const std::string why = LoaderError();
  dlclose(library);
  return Missing(file, why);
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
