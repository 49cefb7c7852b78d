#include "fabric/ucx/libucx.h"

#include <stdlib.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engram/mutex.h"
#include "fabric/loaded_library.h"

namespace engram::fabric::ucx {
namespace {

static_assert(UCP_API_MAJOR == 1 && UCP_API_MINOR >= 13,
              "Libucx lists calls of UCX 1.13; look at what changed since");

absl::Status Missing(const std::string& file, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("UCX cannot be loaded from ", file, ": ", why,
                   "; the fabric `ucx` needs it: install the Debian package libucx0, or choose "
                   "the fabrics mapped and stream"));
}

// The library reads most of these once, in its constructors.
void SetEnvironment() {
  constexpr int kKeep = 0;  // what the operator has set
  setenv("UCX_HANDLE_ERRORS", "none", kKeep);
  setenv("UCX_ERROR_SIGNALS", "", kKeep);
  setenv("UCX_MEM_EVENTS", "n", kKeep);
  setenv("UCX_WARN_UNUSED_ENV_VARS", "n", kKeep);
  setenv("UCX_LOG_LEVEL", "fatal", kKeep);
  setenv("UCX_LOG_FILE", "stderr", kKeep);
  // A peer that died is looked for, in shared memory too.
  setenv("UCX_KEEPALIVE_INTERVAL", "1s", kKeep);
  setenv("UCX_POSIX_ERROR_HANDLING", "y", kKeep);
  setenv("UCX_SYSV_ERROR_HANDLING", "y", kKeep);
}

class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}
  template <class Call>
  Finder& operator()(const char* name, Call* call) {
    ok_ = ok_ && FindCall(library_, name, nullptr, call, &why_);
    return *this;
  }
  bool ok() const { return ok_; }
  const std::string& why() const { return why_; }

 private:
  void* const library_;
  bool ok_ = true;
  std::string why_;
};

void FindCalls(Finder& find, Libucx* out) {
  find("ucp_get_version_string", &out->get_version_string);
  find("ucp_config_read", &out->config_read)("ucp_config_modify", &out->config_modify);
  find("ucp_config_release", &out->config_release)("ucp_init_version", &out->init_version);
  find("ucp_cleanup", &out->cleanup)("ucp_worker_create", &out->worker_create);
  find("ucp_worker_destroy", &out->worker_destroy)("ucp_worker_progress", &out->worker_progress);
  find("ucp_worker_get_efd", &out->worker_get_efd)("ucp_worker_arm", &out->worker_arm);
  find("ucp_worker_get_address", &out->worker_get_address);
  find("ucp_worker_release_address", &out->worker_release_address);
  find("ucp_worker_set_am_recv_handler", &out->worker_set_am_recv_handler);
  find("ucp_listener_create", &out->listener_create)("ucp_listener_query", &out->listener_query);
  find("ucp_listener_destroy", &out->listener_destroy);
  find("ucp_am_send_nbx", &out->am_send_nbx)("ucp_ep_create", &out->ep_create);
  find("ucp_ep_close_nbx", &out->ep_close_nbx)("ucp_ep_flush_nbx", &out->ep_flush_nbx);
  find("ucp_ep_rkey_unpack", &out->ep_rkey_unpack)("ucp_rkey_destroy", &out->rkey_destroy);
  find("ucp_rkey_pack", &out->rkey_pack)("ucp_rkey_buffer_release", &out->rkey_buffer_release);
  find("ucp_mem_map", &out->mem_map)("ucp_mem_unmap", &out->mem_unmap);
  find("ucp_get_nbx", &out->get_nbx)("ucp_request_check_status", &out->request_check_status);
  // Of libucs, which libucp brings along.
  find("ucp_request_free", &out->request_free)("ucs_status_string", &out->status_string);
}

}  // namespace

absl::StatusOr<Libucx> OpenLibucx(const std::string& file) {
  SetEnvironment();
  std::string why;
  void* const library = LoadLibraryForGood(file, &why);
  if (library == nullptr) return Missing(file, why);
  Libucx out;
  Finder find(library);
  FindCalls(find, &out);
  if (!find.ok()) return Missing(file, find.why());
  return out;
}

absl::StatusOr<const Libucx*> LoadLibucx() {
  // Never destroyed: fabrics may be closed by exit handlers.
  static auto* const mutex = new Mutex();
  static const Libucx* loaded = nullptr;
  MutexLock lock(mutex);
  if (loaded == nullptr) {
    auto opened = OpenLibucx("libucp.so.0");
    if (!opened.ok()) return opened.status();
    loaded = new Libucx(*opened);
  }
  return loaded;
}

absl::StatusOr<std::string> UcxVersion() {
  auto library = LoadLibucx();
  if (!library.ok()) return library.status();
  return (*library)->get_version_string();
}

}  // namespace engram::fabric::ucx
