// UCX, loaded at its first use: nothing of this project links it, so that libengram.so and the
// programs run without it where nobody asks for ucx. It stays loaded until the process ends.
//
// Before it is loaded its environment is set to what suits a library in somebody else's process,
// except where the operator has set it: no signal handlers of its own (UCX_HANDLE_ERRORS,
// UCX_ERROR_SIGNALS), no patching of mmap and munmap (UCX_MEM_EVENTS), no log but fatal errors, on
// standard error (UCX_LOG_LEVEL, UCX_LOG_FILE); and dead peers are found (UCX_KEEPALIVE_INTERVAL,
// UCX_POSIX_ERROR_HANDLING, UCX_SYSV_ERROR_HANDLING). Thread-safe.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "absl/status/statusor.h"

namespace engram::fabric::ucx {

// The calls that this project makes, with the signatures of ucp/api/ucp.h.
struct Libucx {
  decltype(&ucp_get_version_string) get_version_string = nullptr;
  decltype(&ucp_config_read) config_read = nullptr;
  decltype(&ucp_config_modify) config_modify = nullptr;
  decltype(&ucp_config_release) config_release = nullptr;
  decltype(&ucp_init_version) init_version = nullptr;
  decltype(&ucp_cleanup) cleanup = nullptr;
  decltype(&ucp_worker_create) worker_create = nullptr;
  decltype(&ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&ucp_worker_progress) worker_progress = nullptr;
  decltype(&ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&ucp_worker_arm) worker_arm = nullptr;
  decltype(&ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&ucp_listener_create) listener_create = nullptr;
  decltype(&ucp_listener_query) listener_query = nullptr;
  decltype(&ucp_listener_destroy) listener_destroy = nullptr;
  decltype(&ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&ucp_ep_create) ep_create = nullptr;
  decltype(&ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&ucp_ep_flush_nbx) ep_flush_nbx = nullptr;
  decltype(&ucp_ep_rkey_unpack) ep_rkey_unpack = nullptr;
  decltype(&ucp_rkey_destroy) rkey_destroy = nullptr;
  decltype(&ucp_rkey_pack) rkey_pack = nullptr;
  decltype(&ucp_rkey_buffer_release) rkey_buffer_release = nullptr;
  decltype(&ucp_mem_map) mem_map = nullptr;
  decltype(&ucp_mem_unmap) mem_unmap = nullptr;
  decltype(&ucp_get_nbx) get_nbx = nullptr;
  decltype(&ucp_request_check_status) request_check_status = nullptr;
  decltype(&ucp_request_free) request_free = nullptr;
  decltype(&ucs_status_string) status_string = nullptr;
};

// Loads `file` for good (fabric/loaded_library.h). Unavailable names the file, what the loader said
// and the package to install.
absl::StatusOr<Libucx> OpenLibucx(const std::string& file);

// That of this process, "libucp.so.0". Tried again as long as it failed; the pointer is valid until
// the process ends.
absl::StatusOr<const Libucx*> LoadLibucx();

// "1.13.1". Unavailable: UCX is not there.
absl::StatusOr<std::string> UcxVersion();

}  // namespace engram::fabric::ucx
