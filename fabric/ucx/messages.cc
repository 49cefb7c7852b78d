#include "fabric/ucx/messages.h"

#include <memory>
#include <utility>

namespace engram::fabric::ucx {
namespace {

struct Sending {
  const Libucx* library;
  std::vector<std::byte> bytes;
  std::size_t* unsent;
};

void Sent(void* request, ucs_status_t, void* sending) {
  const std::unique_ptr<Sending> owned(static_cast<Sending*>(sending));
  if (owned->unsent != nullptr) *owned->unsent -= owned->bytes.size();
  owned->library->request_free(request);
}

}  // namespace

Mutex& DescriptorTurn() {
  // Never destroyed: fabrics may be closed by exit handlers.
  static auto* const turn = new Mutex();
  return *turn;
}

void Send(const Libucx& library, ucp_ep_h endpoint, unsigned id, std::vector<std::byte> message,
          std::size_t* unsent) {
  auto sending = std::make_unique<Sending>(Sending{&library, std::move(message), unsent});
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER | (id == kAskId ? UCP_AM_SEND_FLAG_REPLY : 0);
  param.cb.send = Sent;
  param.user_data = sending.get();
  const ucs_status_ptr_t request = library.am_send_nbx(
      endpoint, id, nullptr, 0, sending->bytes.data(), sending->bytes.size(), &param);
  if (!UCS_PTR_IS_PTR(request)) return;
  if (unsent != nullptr) *unsent += sending->bytes.size();
  static_cast<void>(sending.release());  // Sent() takes it over
}

void* CloseByForce(const Libucx& library, ucp_ep_h endpoint) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = library.ep_close_nbx(endpoint, &param);
  return UCS_PTR_IS_PTR(request) ? request : nullptr;
}

void SetReceiver(const Libucx& library, ucp_worker_h worker, unsigned id,
                 ucp_am_recv_callback_t receive, void* argument) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = receive;
  param.arg = argument;
  library.worker_set_am_recv_handler(worker, &param);
}

ucp_ep_h OpenEndpoint(const Libucx& library, ucp_worker_h worker, ucp_ep_params_t params,
                      ucp_err_handler_cb_t failed, void* argument) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = failed;
  params.err_handler.arg = argument;
  ucp_ep_h endpoint = nullptr;
  return library.ep_create(worker, &params, &endpoint) == UCS_OK ? endpoint : nullptr;
}

ucp_ep_params_t ToWorker(std::span<const std::byte> address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  return params;
}

ucp_ep_params_t ToSocket(std::span<const std::byte> address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(address.data());
  params.sockaddr.addrlen = static_cast<socklen_t>(address.size());
  return params;
}

ucp_ep_params_t ToCaller(ucp_conn_request_h caller) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = caller;
  return params;
}

}  // namespace engram::fabric::ucx
