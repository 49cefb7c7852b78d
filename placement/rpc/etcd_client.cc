#include "placement/rpc/etcd_client.h"

#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engram/settings/units.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "proto/convert.h"
#include "proto/grpc_server.h"

namespace engram::placement {
namespace {

namespace pb = etcdserverpb;

constexpr Duration kBetweenRounds = std::chrono::milliseconds(50);
constexpr unsigned kReadAgainEverySeconds = 1;

Instant EtcdNow() { return SystemClock::Get().Now(); }

absl::Status CheckPem(const std::string& path) {
  if (path.empty() || (std::ifstream(path).peek() != std::ifstream::traits_type::eof())) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "cannot read ", path, ", which etcd's TLS needs; check the path and who may read it"));
}

// The files are read again when they change: connections made after that show the new ones.
std::shared_ptr<grpc::ChannelCredentials> TlsFor(const EtcdOptions& options) {
  if (options.ca_file.empty() && options.cert_file.empty()) return grpc::SslCredentials({});
  grpc::experimental::TlsChannelCredentialsOptions tls;
  tls.set_certificate_provider(std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      options.key_file, options.cert_file, options.ca_file, kReadAgainEverySeconds));
  if (!options.ca_file.empty()) tls.watch_root_certs();
  if (!options.cert_file.empty()) tls.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(tls);
}

absl::StatusOr<std::string> HostPortOf(const std::string& endpoint, bool* tls) {
  absl::string_view rest = endpoint;
  *tls = absl::ConsumePrefix(&rest, "https://");
  if (!*tls) absl::ConsumePrefix(&rest, "http://");
  absl::ConsumeSuffix(&rest, "/");
  const std::size_t colon = rest.rfind(':');
  std::uint32_t port = 0;
  if (colon != absl::string_view::npos && colon > 0 &&
      absl::SimpleAtoi(rest.substr(colon + 1), &port) && port > 0 && port < 65536) {
    return std::string(rest);
  }
  return absl::InvalidArgumentError(absl::StrCat("the etcd endpoint \"", endpoint,
                                                 "\" is not HOST:PORT; for instance "
                                                 "10.0.0.1:2379"));
}

// What etcd says of tokens, in its own words: it has no codes of its own for them.
bool TokenIsStale(const absl::Status& status) {
  return absl::IsUnauthenticated(status) ||
         (absl::IsInvalidArgument(status) &&
          (absl::StrContains(status.message(), "auth store is old") ||
           absl::StrContains(status.message(), "user name is empty")));
}

absl::string_view NextStep(const absl::Status& status) {
  const absl::string_view said = status.message();
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return "check that a majority of etcd's members run and can be reached from here";
    case absl::StatusCode::kResourceExhausted:
      return absl::StrContains(said, "space")
                 ? "etcd's quota is used up: compact and defragment it, "
                   "then clear its alarm; reads go on"
                 : "etcd is overloaded; it is tried again";
    case absl::StatusCode::kUnauthenticated: return "check the etcd user and its password file";
    case absl::StatusCode::kPermissionDenied:
      return "grant the etcd user readwrite on the prefix of --etcd-prefix";
    case absl::StatusCode::kInvalidArgument:
      return absl::StrContains(said, "authentication failed") ||
                     absl::StrContains(said, "user name is empty")
                 ? "check --etcd-user and --etcd-password-file"
                 : "raise etcd's --max-request-bytes to 2 MiB if the request is too large";
    default: return "see etcd's own log";
  }
}

absl::Status Explain(const EtcdClient::Member& member, const std::string& what,
                     const absl::Status& status) {
  const bool silent = absl::IsDeadlineExceeded(status);
  return absl::Status(status.code(), absl::StrCat("etcd at ", member.endpoint, ": ", what, ": ",
                                                  silent ? "no answer in time" : status.message(),
                                                  "; ", NextStep(status)));
}

std::string WhatOf(const pb::RangeRequest& request) { return "reading " + request.key(); }
std::string WhatOf(const pb::TxnRequest& request) {
  std::string key;
  if (request.success_size() > 0) {
    const pb::RequestOp& first = request.success(0);
    key = first.has_request_put() ? first.request_put().key() : first.request_delete_range().key();
  }
  return absl::StrCat("a transaction of ", request.success_size(), " writes that begins with ",
                      key);
}
std::string WhatOf(const pb::CompactionRequest&) { return "compacting"; }
std::string WhatOf(const pb::AuthenticateRequest& request) {
  return "authenticating user " + request.name();
}

}  // namespace

absl::StatusOr<std::shared_ptr<EtcdClient>> EtcdClient::Open(const EtcdOptions& options) {
  std::shared_ptr<EtcdClient> client(new EtcdClient(options));
  if (absl::Status connected = client->Connect(); !connected.ok()) return connected;
  return client;
}

absl::Status EtcdClient::Connect() {
  if (options_.endpoints.empty()) {
    return absl::InvalidArgumentError("no etcd endpoint is given; set --etcd-endpoints");
  }
  if (options_.cert_file.empty() != options_.key_file.empty()) {
    return absl::InvalidArgumentError(
        "a certificate for etcd needs both --etcd-cert and --etcd-key");
  }
  for (const std::string& path : {options_.ca_file, options_.cert_file, options_.key_file}) {
    if (absl::Status readable = CheckPem(path); !readable.ok()) return readable;
  }
  for (const std::string& endpoint : options_.endpoints) {
    bool tls = false;
    absl::StatusOr<std::string> address = HostPortOf(endpoint, &tls);
    if (!address.ok()) return address.status();
    tls = tls || !options_.ca_file.empty() || !options_.cert_file.empty();
    const auto credentials = tls ? TlsFor(options_) : grpc::InsecureChannelCredentials();
    members_.push_back({members_.size(), endpoint, wire::ConnectWith(*address, credentials)});
  }
  return absl::OkStatus();
}

std::string EtcdClient::Endpoints() const { return absl::StrJoin(options_.endpoints, ","); }

EtcdClient::Member EtcdClient::Current() const {
  MutexLock lock(&mutex_);
  return members_[current_];
}

void EtcdClient::Leave(const Member& member) {
  MutexLock lock(&mutex_);
  if (current_ == member.index) current_ = (current_ + 1) % members_.size();
}

void EtcdClient::ForgetToken(const std::string& token) {
  MutexLock lock(&mutex_);
  if (token_ == token) token_.clear();
}

absl::StatusOr<std::string> EtcdClient::Token(const Member& member) {
  {
    MutexLock lock(&mutex_);
    if (!token_.empty()) return token_;
  }
  pb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(options_.password);
  pb::AuthenticateResponse response;
  grpc::ClientContext call;
  call.set_deadline(std::chrono::system_clock::now() + options_.attempt);
  const absl::Status status =
      wire::FromGrpc(pb::Auth::NewStub(member.channel)->Authenticate(&call, request, &response));
  if (!status.ok()) {
    // Wrong words are no reason to try again, whatever code etcd gives them.
    return Explain(
        member, WhatOf(request),
        absl::IsInvalidArgument(status) ? absl::UnauthenticatedError(status.message()) : status);
  }
  MutexLock lock(&mutex_);
  token_ = response.token();
  return token_;
}

absl::StatusOr<std::string> EtcdClient::Authorize(const Member& member, grpc::ClientContext* call) {
  // A member that is cut off from the others says so at once.
  call->AddMetadata("hasleader", "true");
  if (options_.user.empty()) return std::string();
  absl::StatusOr<std::string> token = Token(member);
  if (token.ok()) call->AddMetadata("token", *token);
  return token;
}

template <class Stub, class Method, class Request, class Response>
absl::Status EtcdClient::Once(const Member& member, Method method, const Request& request,
                              Instant deadline, Response* response) {
  Stub stub(member.channel);
  for (bool again = true;; again = false) {
    const Duration left = deadline - EtcdNow();
    if (left <= Duration::zero()) return absl::DeadlineExceededError("no time is left");
    grpc::ClientContext call;
    call.set_deadline(std::chrono::system_clock::now() + std::min(left, options_.attempt));
    const absl::StatusOr<std::string> token = Authorize(member, &call);
    if (!token.ok()) return token.status();
    const absl::Status status = wire::FromGrpc((stub.*method)(&call, request, response));
    if (status.ok()) return status;
    if (options_.user.empty() || !again || !TokenIsStale(status)) {
      return Explain(member, WhatOf(request), status);
    }
    ForgetToken(*token);
  }
}

bool EtcdClient::MaybeApplied(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal: return true;
    default: return false;
  }
}

absl::StatusOr<pb::RangeResponse> EtcdClient::Range(const pb::RangeRequest& request,
                                                    Instant deadline) {
  absl::Status last = absl::DeadlineExceededError("no time was left for " + WhatOf(request));
  for (std::size_t tried = 1; EtcdNow() < deadline; ++tried) {
    const Member member = Current();
    pb::RangeResponse response;
    absl::Status status =
        Once<pb::KV::Stub>(member, &pb::KV::Stub::Range, request, deadline, &response);
    if (status.ok()) return response;
    if (!MaybeApplied(status)) return status;
    last = std::move(status);
    Leave(member);
    if (tried % members_.size() == 0) {
      std::this_thread::sleep_for(std::min(kBetweenRounds, deadline - EtcdNow()));
    }
  }
  return last;
}

absl::StatusOr<pb::TxnResponse> EtcdClient::Txn(const pb::TxnRequest& request, Instant deadline) {
  const Member member = Current();
  pb::TxnResponse response;
  absl::Status status =
      Once<pb::KV::Stub>(member, &pb::KV::Stub::Txn, request, deadline, &response);
  if (status.ok()) return response;
  if (MaybeApplied(status)) Leave(member);
  return status;
}

absl::Status EtcdClient::Compact(std::int64_t revision) {
  pb::CompactionRequest request;
  request.set_revision(revision);
  pb::CompactionResponse response;
  return Once<pb::KV::Stub>(Current(), &pb::KV::Stub::Compact, request, Deadline(), &response);
}

}  // namespace engram::placement
