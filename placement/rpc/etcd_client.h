// Calls to an etcd cluster: several endpoints and which of them answers, TLS, user and password
// with a token that is renewed, a deadline on each call. It knows nothing of what is stored;
// EtcdStore does. Errors name the endpoint, what was asked for, and what to do. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/clock.h"
#include "engram/mutex.h"
#include "etcd/etcd.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace engram::placement {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // HOST:PORT, with or without http:// or https://
  std::string ca_file;                 // PEM; empty: no TLS, unless an endpoint says https://
  // Of this client; both or none. The three files are read again when they change.
  std::string cert_file, key_file;
  std::string user;  // empty: no authentication
  std::string password;
  Duration attempt = std::chrono::seconds(1);  // one call to one endpoint
  Duration limit = std::chrono::seconds(3);    // all tries of one operation together
};

class EtcdClient {
 public:
  struct Member {
    std::size_t index = 0;
    std::string endpoint;
    std::shared_ptr<grpc::Channel> channel;
  };

  // InvalidArgument: no endpoint, or one that is none; PermissionDenied: a file cannot be read.
  // Connects with the first call.
  static absl::StatusOr<std::shared_ptr<EtcdClient>> Open(const EtcdOptions& options);

  // Reads are repeated on other endpoints until `deadline`. OutOfRange: that revision is compacted.
  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    Instant deadline);
  // Sent once, to the endpoint that answered last. Where MaybeApplied(status), it may have been
  // applied, or may be later; the next call goes to another endpoint then.
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                Instant deadline);
  static bool MaybeApplied(const absl::Status& status);
  // Forgets what changed before `revision`, so that watches from there are OutOfRange.
  absl::Status Compact(std::int64_t revision);

  // For streams: which member to ask, and what goes with the request.
  Member Current() const;
  // The next call goes to another endpoint, unless another thread has seen to that.
  void Leave(const Member& member);
  // Returns the token that the call carries then; empty: none.
  absl::StatusOr<std::string> Authorize(const Member& member, grpc::ClientContext* call);
  // The token is asked for anew with the next call, if that is the one there is.
  void ForgetToken(const std::string& token);

  Instant Deadline() const { return SystemClock::Get().Now() + options_.limit; }
  std::string Endpoints() const;

 private:
  explicit EtcdClient(EtcdOptions options) : options_(std::move(options)) {}
  absl::Status Connect();
  template <class Stub, class Method, class Request, class Response>
  absl::Status Once(const Member& member, Method method, const Request& request, Instant deadline,
                    Response* response);
  absl::StatusOr<std::string> Token(const Member& member);

  const EtcdOptions options_;
  std::vector<Member> members_;
  mutable Mutex mutex_;
  std::size_t current_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string token_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace engram::placement
