// What a program shows to its peers and demands of them: one certificate, its key and the
// authority's certificates, from files that are read again when they change. With them every
// channel is mutual TLS (1.2 or newer), each end checks the other's identity (engram/identity.h),
// and each call is checked against the roles that stand beside its RPC. Without them (a null
// CredentialsPtr) nothing is encrypted or checked. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/identity.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/tls_certificate_provider.h"

namespace engram::wire {

// Paths of PEM files.
struct TlsFiles {
  std::string cert, key, ca;
  bool empty() const { return cert.empty() && key.empty() && ca.empty(); }
};

// Whom a channel is meant for; an empty name: any of the role.
struct Peer {
  Role role = Role::kController;
  std::string name;
};

class Credentials;
using CredentialsPtr = std::shared_ptr<const Credentials>;

class Credentials {
 public:
  // Null for no files at all. InvalidArgument: some of the three are missing, a file does not
  // parse, the key is not the certificate's, it is not signed by the authority, or says no role of
  // `roles`; FailedPrecondition: it is not valid now. All name the file and what to do.
  static absl::StatusOr<CredentialsPtr> Open(const TlsFiles& files, const std::vector<Role>& roles);

  // As the certificate said when it was opened.
  const Identity& identity() const { return identity_; }

  // Looked at in every call, after its role: an error refuses it.
  using Gate = std::function<absl::Status(const Identity&)>;
  std::shared_ptr<grpc::ServerCredentials> ForServer(Gate gate) const;
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(const Peer& peer) const;

 private:
  Credentials() = default;

  Identity identity_;
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
};

// Who calls; nothing where calls are not authenticated.
std::optional<Identity> CallerIdentity(const grpc::ServerContextBase& call);

// Who may call "/package.Service/Method", as the option `roles` says. Health is for everybody,
// reflection for admins; what is not known here is for nobody.
std::vector<Role> RolesOf(std::string_view path);

}  // namespace engram::wire
