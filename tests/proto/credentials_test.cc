#include "proto/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engram/v1/placement.grpc.pb.h"
#include "engram/v1/pool_node.grpc.pb.h"
#include "proto/convert.h"
#include "proto/grpc_server.h"
#include "tests/proto/certificates.h"

namespace engram::wire {
namespace {

using testing::HasSubstr;

constexpr char kPool[] = "spiffe://pool.test/engram/";

std::string Uri(const std::string& path) { return kPool + path; }

class AnsweringPool final : public v1::PoolService::Service {
 public:
  grpc::Status GetPoolInfo(grpc::ServerContext* call, const v1::GetPoolInfoRequest*,
                           v1::GetPoolInfoResponse* response) override {
    const auto caller = CallerIdentity(*call);
    response->set_version(caller ? caller->Describe() : "nobody");
    return grpc::Status::OK;
  }
  grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse*) override {
    return grpc::Status::OK;
  }
};

class CredentialsTest : public testing::Test {
 protected:
  CredentialsPtr Opened(const TlsFiles& files) {
    auto opened =
        Credentials::Open(files, {Role::kController, Role::kNode, Role::kClient, Role::kAdmin});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *opened : nullptr;
  }
  absl::Status Refusal(const TlsFiles& files, const std::vector<Role>& roles = {Role::kNode}) {
    return Credentials::Open(files, roles).status();
  }
  void Serve(const TlsFiles& files, Credentials::Gate gate = nullptr) {
    ServerOptions options;
    options.services = {&pool_};
    options.credentials = Opened(files);
    options.gate = std::move(gate);
    auto server = GrpcServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<v1::PoolService::Stub> Stub(const CredentialsPtr& credentials,
                                              const Peer& peer = {}) {
    return v1::PoolService::NewStub(
        Connect("127.0.0.1:" + std::to_string(server_->port()), credentials, peer));
  }
  absl::StatusOr<std::string> Ask(const CredentialsPtr& credentials, const Peer& peer = {}) {
    grpc::ClientContext call;
    call.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    v1::GetPoolInfoResponse response;
    const auto status = Stub(credentials, peer)->GetPoolInfo(&call, {}, &response);
    if (!status.ok()) return FromGrpc(status);
    return response.version();
  }

  Certificates made_;
  AnsweringPool pool_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(CredentialsTest, NoFilesAreNoCredentials) {
  const auto none = Credentials::Open({}, {Role::kNode});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
}

TEST_F(CredentialsTest, FilesThatDoNotFitAreRefusedWithTheReason) {
  const TlsFiles good = made_.Make("n1", Uri("node/n1"));
  EXPECT_TRUE(Refusal(good).ok()) << Refusal(good);
  const TlsFiles other = made_.Make("n2", Uri("node/n2"));
  EXPECT_THAT(Refusal({good.cert, "", good.ca}).message(), HasSubstr("--tls-key is missing"));
  EXPECT_THAT(Refusal({good.cert, made_.Path("none"), good.ca}).message(),
              HasSubstr("cannot be read"));
  EXPECT_THAT(Refusal({good.cert, other.key, good.ca}).message(), HasSubstr("is not the key of"));
  EXPECT_THAT(Refusal({good.key, good.key, good.ca}).message(), HasSubstr("has no certificate"));
  EXPECT_THAT(Refusal({good.cert, good.cert, good.ca}).message(), HasSubstr("no private key"));
  EXPECT_THAT(Refusal(good, {Role::kController}).message(),
              HasSubstr("is that of node n1; this program needs the role controller"));
  EXPECT_THAT(Refusal(made_.Make("plain", "")).message(), HasSubstr("no identity of a pool"));
  made_.MakeAuthority("foreign");
  EXPECT_THAT(Refusal(made_.Make("f", Uri("node/f"), "foreign")).message(),
              HasSubstr("is not signed by"));
  const absl::Status old = Refusal(made_.Make("old", Uri("node/old"), "ca", "-days -1"));
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(old.message(), HasSubstr("expired at"));
}

TEST_F(CredentialsTest, TheServerSeesWhoCallsAndWhatItMayCall) {
  Serve(made_.Make("c", Uri("controller/c")));
  const CredentialsPtr client = Opened(made_.Make("r", Uri("client/team-a/r")));
  EXPECT_EQ(*Ask(client), "client team-a/r");
  grpc::ClientContext call;
  v1::ListNodesResponse response;
  const auto refused = Stub(client)->ListNodes(&call, {}, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(refused.error_message(),
            "ListNodes may be called by the role admin; the certificate of the caller says client "
            "team-a/r");
  grpc::ClientContext again;
  EXPECT_TRUE(Stub(Opened(made_.Make("a", Uri("admin/a"))))->ListNodes(&again, {}, &response).ok());
}

TEST_F(CredentialsTest, NobodyGetsInWithoutACertificateOfTheAuthority) {
  Serve(made_.Make("c", Uri("controller/c")));
  EXPECT_EQ(Ask(nullptr).status().code(), absl::StatusCode::kUnavailable);
  made_.MakeAuthority("foreign");
  TlsFiles files = made_.Make("f", Uri("admin/f"), "foreign");
  files.ca = made_.Path("foreign.pem");
  EXPECT_EQ(Ask(Opened(files)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CredentialsTest, AClientLeavesAServerThatIsNotWhoWasMeant) {
  Serve(made_.Make("n1", Uri("node/n1")));
  const CredentialsPtr client = Opened(made_.Make("r", Uri("client/t/r")));
  EXPECT_TRUE(Ask(client, {Role::kNode, "n1"}).ok());
  const absl::Status other = Ask(client, {Role::kNode, "n2"}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(other.message(), HasSubstr("that of node n1; wanted is node n2"));
  EXPECT_EQ(Ask(client, {Role::kController, ""}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CredentialsTest, TheGateRefusesWhoWasRevoked) {
  Serve(made_.Make("c", Uri("controller/c")), [](const Identity& caller) {
    return caller.name == "bad" ? absl::PermissionDeniedError("revoked") : absl::OkStatus();
  });
  EXPECT_EQ(Ask(Opened(made_.Make("bad", Uri("client/t/bad")))).status(),
            absl::PermissionDeniedError("revoked"));
  EXPECT_TRUE(Ask(Opened(made_.Make("good", Uri("client/t/good")))).ok());
}

TEST(Identity, IsOneUriOfThePool) {
  const auto client = ParseIdentity("spiffe://d/engram/client/team-a/replica_7");
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(*client, (Identity{Role::kClient, "team-a", "replica_7"}));
  EXPECT_EQ(ParseIdentity("spiffe://d/engram/node/pool-3.rack")->name, "pool-3.rack");
  for (const char* bad :
       {"", "spiffe://d/engram/", "spiffe://d/engram/client/x", "spiffe://d/engram/client//x",
        "spiffe:///engram/node/x", "spiffe://d/engram/node/a/b", "spiffe://d/engram/node/",
        "spiffe://d/engram/root/x", "spiffe://d/other/node/x", "https://d/engram/node/x",
        "spiffe://d/engram/node/..", "spiffe://d/engram/client/a/b/c"}) {
    EXPECT_FALSE(ParseIdentity(bad).ok()) << bad;
  }
  EXPECT_TRUE(
      IdentityAmong(std::vector<std::string>{"https://x", "spiffe://d/engram/admin/x"}).ok());
  EXPECT_FALSE(IdentityAmong(std::vector<std::string>{"spiffe://d/engram/admin/x",
                                                      "spiffe://d/engram/node/x"})
                   .ok());
}

// The option is what the gate reads; a method without it is for nobody.
TEST(Roles, EveryMethodSaysWhoMayCallIt) {
  for (const auto* file :
       {v1::LoadTableRequest::descriptor()->file(), v1::OpenSession::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const auto* method = file->service(s)->method(m);
        EXPECT_FALSE(RolesOf("/" + file->service(s)->full_name() + "/" + method->name()).empty())
            << method->full_name();
      }
    }
  }
  EXPECT_EQ(RolesOf("/engram.v1.NodeService/Join"), std::vector<Role>{Role::kNode});
  EXPECT_EQ(RolesOf("/engram.v1.PoolService/DeleteTable"), std::vector<Role>{Role::kAdmin});
  EXPECT_TRUE(RolesOf("/engram.v1.PoolService/Nothing").empty());
  EXPECT_TRUE(RolesOf("").empty());
  EXPECT_EQ(RolesOf("/grpc.health.v1.Health/Check").size(), 4u);
}

}  // namespace
}  // namespace engram::wire
