#include "proto/credentials.h"

#include <google/protobuf/descriptor.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engram/v1/common.pb.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "proto/convert.h"

namespace engram::wire {
namespace {

constexpr unsigned kReadAgainEverySeconds = 1;

template <auto Free>
struct FreeWith {
  template <class T>
  void operator()(T* what) const {
    Free(what);
  }
};
using Bio = std::unique_ptr<BIO, FreeWith<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, FreeWith<X509_free>>;
struct FreeChain {
  void operator()(STACK_OF(X509) * chain) const { sk_X509_free(chain); }
};
using Chain = std::unique_ptr<STACK_OF(X509), FreeChain>;
using PrivateKey = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;

absl::StatusOr<std::string> ReadAll(const char* setting, const std::string& path) {
  std::ifstream file(path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (file && !bytes.str().empty()) return bytes.str();
  return absl::InvalidArgumentError(absl::StrCat(
      setting, " ", path, " cannot be read: ", errno != 0 ? strerror(errno) : "it is empty",
      "; give a PEM file that this program may read"));
}

std::vector<Certificate> CertificatesIn(const std::string& pem) {
  std::vector<Certificate> out;
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) out.emplace_back(one);
  ERR_clear_error();
  return out;
}

std::vector<std::string> UrisOf(X509* certificate) {
  std::vector<std::string> out;
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_STRING* uri = name->d.uniformResourceIdentifier;
    out.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                     static_cast<std::size_t>(ASN1_STRING_length(uri)));
  }
  GENERAL_NAMES_free(names);
  return out;
}

std::string TimeOf(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<std::size_t>(bytes));
}

absl::Status CheckValidNow(const std::string& path, X509* certificate) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--tls-cert ", path, " expired at ", TimeOf(X509_get0_notAfter(certificate)),
                     "; renew it, or correct this machine's clock"));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return absl::FailedPreconditionError(absl::StrCat("--tls-cert ", path, " is valid only from ",
                                                      TimeOf(X509_get0_notBefore(certificate)),
                                                      " on; correct this machine's clock"));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const TlsFiles& files, X509* certificate) {
  const auto pem = ReadAll("--tls-key", files.key);
  if (!pem.ok()) return pem.status();
  const Bio bio(BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())));
  // A key with a passphrase: an empty one is tried, nobody is asked.
  const PrivateKey key(PEM_read_bio_PrivateKey(
      bio.get(), nullptr, [](char*, int, int, void*) { return 0; }, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-key ", files.key, " has no private key in PEM without a passphrase"));
  }
  if (X509_check_private_key(certificate, key.get()) == 1) return absl::OkStatus();
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(
      "--tls-key ", files.key, " is not the key of --tls-cert ", files.cert,
      "; they must come from one request (`openssl x509 -pubkey` and `openssl pkey -pubout` show "
      "the same)"));
}

absl::Status CheckSigned(const TlsFiles& files, const std::vector<Certificate>& chain) {
  const auto pem = ReadAll("--tls-ca", files.ca);
  if (!pem.ok()) return pem.status();
  const std::vector<Certificate> roots = CertificatesIn(*pem);
  if (roots.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-ca ", files.ca, " has no certificate in PEM"));
  }
  const std::unique_ptr<X509_STORE, FreeWith<X509_STORE_free>> store(X509_STORE_new());
  for (const Certificate& root : roots) X509_STORE_add_cert(store.get(), root.get());
  const Chain others(sk_X509_new_null());
  for (std::size_t i = 1; i < chain.size(); ++i) sk_X509_push(others.get(), chain[i].get());
  const std::unique_ptr<X509_STORE_CTX, FreeWith<X509_STORE_CTX_free>> check(X509_STORE_CTX_new());
  X509_STORE_CTX_init(check.get(), store.get(), chain.front().get(), others.get());
  const bool sound = X509_verify_cert(check.get()) == 1;
  ERR_clear_error();
  if (sound) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--tls-cert ", files.cert, " is not signed by --tls-ca ", files.ca, " (",
                   X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get())),
                   "); its peers would refuse it"));
}

absl::StatusOr<Identity> CheckFiles(const TlsFiles& files, const std::vector<Role>& roles) {
  const auto pem = ReadAll("--tls-cert", files.cert);
  if (!pem.ok()) return pem.status();
  const std::vector<Certificate> chain = CertificatesIn(*pem);
  if (chain.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-cert ", files.cert, " has no certificate in PEM"));
  }
  if (absl::Status ok = CheckValidNow(files.cert, chain.front().get()); !ok.ok()) return ok;
  if (absl::Status ok = CheckKey(files, chain.front().get()); !ok.ok()) return ok;
  if (absl::Status ok = CheckSigned(files, chain); !ok.ok()) return ok;
  const auto identity = IdentityAmong(UrisOf(chain.front().get()));
  if (!identity.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-cert ", files.cert, ": ", identity.status().message()));
  }
  for (const Role role : roles) {
    if (identity->role == role) return *identity;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--tls-cert ", files.cert, " is that of ", identity->Describe(),
      "; this program needs the role ",
      absl::StrJoin(roles, " or ", [](std::string* out, Role role) { out->append(Name(role)); })));
}

class PeerVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit PeerVerifier(Peer peer) : peer_(std::move(peer)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* status) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : request->uri_names())
      uris.emplace_back(uri.data(), uri.size());
    *status = ToGrpc(Judge(uris));
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  absl::Status Judge(const std::vector<std::string>& uris) const {
    const auto identity = IdentityAmong(uris);
    if (!identity.ok()) return absl::UnauthenticatedError(identity.status().message());
    if (identity->role == peer_.role && (peer_.name.empty() || identity->name == peer_.name)) {
      return absl::OkStatus();
    }
    return absl::UnauthenticatedError(
        absl::StrCat("its certificate is that of ", identity->Describe(), "; wanted is ",
                     std::string(Name(peer_.role)), peer_.name.empty() ? "" : " ", peer_.name));
  }

  const Peer peer_;
};

std::vector<std::string> PeerUris(const grpc::AuthContext& context) {
  std::vector<std::string> out;
  for (const grpc::string_ref& uri : context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    out.emplace_back(uri.data(), uri.size());
  }
  return out;
}

class GateOfCalls final : public grpc::AuthMetadataProcessor {
 public:
  explicit GateOfCalls(Credentials::Gate gate) : gate_(std::move(gate)) {}
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path == metadata.end()) return ToGrpc(absl::InternalError("a call without a path"));
    return ToGrpc(Judge({path->second.data(), path->second.size()}, *context));
  }

 private:
  absl::Status Judge(std::string_view path, const grpc::AuthContext& context) const {
    const auto identity = IdentityAmong(PeerUris(context));
    if (!identity.ok()) return absl::UnauthenticatedError(identity.status().message());
    const std::string_view method = path.substr(path.rfind('/') + 1);
    const std::vector<Role> roles = RolesOf(path);
    if (absl::Status ok = CheckRole(*identity, roles, method); !ok.ok()) return ok;
    return gate_ ? gate_(*identity) : absl::OkStatus();
  }

  const Credentials::Gate gate_;
};

}  // namespace

absl::StatusOr<CredentialsPtr> Credentials::Open(const TlsFiles& files,
                                                 const std::vector<Role>& roles) {
  if (files.empty()) return CredentialsPtr();
  // Connections may be open when the process ends; OpenSSL must not take itself apart under their
  // threads.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  for (const auto& [setting, path] :
       {std::pair{"--tls-cert", files.cert}, {"--tls-key", files.key}, {"--tls-ca", files.ca}}) {
    if (path.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          setting, " is missing; TLS needs --tls-cert, --tls-key and --tls-ca, all three"));
    }
  }
  errno = 0;
  auto identity = CheckFiles(files, roles);
  if (!identity.ok()) return identity.status();
  std::shared_ptr<Credentials> out(new Credentials);
  out->identity_ = *std::move(identity);
  out->provider_ = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      files.key, files.cert, files.ca, kReadAgainEverySeconds);
  return CredentialsPtr(std::move(out));
}

std::shared_ptr<grpc::ServerCredentials> Credentials::ForServer(Gate gate) const {
  grpc::experimental::TlsServerCredentialsOptions options(provider_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  auto out = grpc::experimental::TlsServerCredentials(options);
  out->SetAuthMetadataProcessor(std::make_shared<GateOfCalls>(std::move(gate)));
  return out;
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::ForChannel(const Peer& peer) const {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  // Who it is stands in the certificate; host names are not asked.
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<PeerVerifier>(peer));
  return grpc::experimental::TlsCredentials(options);
}

std::optional<Identity> CallerIdentity(const grpc::ServerContextBase& call) {
  const auto context = call.auth_context();
  if (context == nullptr) return std::nullopt;
  const auto identity = IdentityAmong(PeerUris(*context));
  if (!identity.ok()) return std::nullopt;
  return *identity;
}

std::vector<Role> RolesOf(std::string_view path) {
  static constexpr std::string_view kHealth = "/grpc.health.v1.Health/";
  static constexpr std::string_view kReflection = "/grpc.reflection.";
  if (path.substr(0, kHealth.size()) == kHealth) {
    return {Role::kController, Role::kNode, Role::kClient, Role::kAdmin};
  }
  if (path.substr(0, kReflection.size()) == kReflection) return {Role::kAdmin};
  std::string name(path.substr(path.empty() ? 0 : 1));
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) name[slash] = '.';
  const auto* method = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
  std::vector<Role> out;
  if (method == nullptr) return out;
  for (int i = 0; i < method->options().ExtensionSize(v1::roles); ++i) {
    out.push_back(static_cast<Role>(method->options().GetExtension(v1::roles, i)));
  }
  return out;
}

}  // namespace engram::wire
