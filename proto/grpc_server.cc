#include "proto/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <stdio.h>
#include <stdlib.h>

#include <cstring>
#include <mutex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace engram::wire {
namespace {

struct HostPort {
  std::string host;
  int port = 0;
};

absl::StatusOr<HostPort> ParseListen(const std::string& listen) {
  const std::size_t colon = listen.rfind(':');
  HostPort out;
  if (colon != std::string::npos && colon > 0 &&
      absl::SimpleAtoi(listen.substr(colon + 1), &out.port) && out.port >= 0 && out.port <= 65535) {
    out.host = listen.substr(0, colon);
    return out;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("listen address \"", listen,
                   "\" is not HOST:PORT with a port of 0 to 65535; for instance 127.0.0.1:7700"));
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

// What gRPC logs as errors is what our statuses say better. What it says before it aborts is kept.
void DropGrpcLog(gpr_log_func_args* line) {
  if (std::strncmp(line->message, "assertion failed", 16) != 0) return;
  fprintf(stderr, "gRPC %s:%d: %s\n", line->file, line->line, line->message);
}

void PrepareOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(DropGrpcLog);
    grpc::EnableDefaultHealthCheckService(true);
  });
}

}  // namespace

absl::Status CheckListen(const std::string& listen, bool insecure_listen) {
  auto parsed = ParseListen(listen);
  if (!parsed.ok()) return parsed.status();
  if (IsLoopback(parsed->host) || insecure_listen) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "listen address \"", listen,
      "\" can be reached from other hosts and there is no TLS: give --tls-cert, --tls-key and "
      "--tls-ca (docs/security.md), use 127.0.0.1, or pass --insecure-listen if everybody on the "
      "network is trusted"));
}

void WarnIfInsecure(const std::string& listen, const CredentialsPtr& credentials,
                    const std::function<void(const std::string&)>& say) {
  const auto parsed = ParseListen(listen);
  if (!say || credentials != nullptr || !parsed.ok() || IsLoopback(parsed->host)) return;
  say(absl::StrCat("WARNING: ", listen,
                   " is open to other hosts without TLS: whoever reaches it reads every table and "
                   "gives every command; docs/security.md shows how to make certificates"));
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const ServerOptions& options) {
  const bool secure = options.credentials != nullptr;
  if (absl::Status ok = CheckListen(options.listen, options.insecure_listen || secure); !ok.ok()) {
    return ok;
  }
  PrepareOnce();
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  auto out = std::unique_ptr<GrpcServer>(new GrpcServer);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients ping idle streams (ConnectWith below); gRPC's default would close them for it.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             static_cast<int>(kPingAfter.count() / 2));
  builder.AddListeningPort(
      options.listen,
      secure ? options.credentials->ForServer(options.gate) : grpc::InsecureServerCredentials(),
      &out->port_);
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  out->server_ = builder.BuildAndStart();
  if (out->server_ == nullptr || out->port_ == 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", options.listen,
        ": the address is in use or not on this host; `ss -ltnp` shows who holds the port"));
  }
  out->SetServing(true);
  return out;
}

GrpcServer::~GrpcServer() { Stop(); }

void GrpcServer::SetServing(bool serving) {
  if (server_ && server_->GetHealthCheckService()) {
    server_->GetHealthCheckService()->SetServingStatus(serving);
  }
}

void GrpcServer::Stop(std::chrono::milliseconds grace) {
  if (!server_) return;
  SetServing(false);
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  server_->Wait();
  server_.reset();
}

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint,
                                       const CredentialsPtr& credentials, const Peer& peer) {
  return ConnectWith(endpoint, credentials == nullptr ? grpc::InsecureChannelCredentials()
                                                      : credentials->ForChannel(peer));
}

std::shared_ptr<grpc::Channel> ConnectWith(
    const std::string& endpoint, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(kPingAfter.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(kPingTimeout.count()));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // A proxy setting of the environment must never carry pool traffic.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(endpoint, credentials, arguments);
}

}  // namespace engram::wire
