// The store's suite on a real etcd, and what only etcd can do: compaction, lost answers, TLS,
// passwords, members that are gone.
#include "placement/rpc/etcd_store.h"

#include <fstream>

#include "tests/placement/rpc/etcd_process.h"
#include "tests/placement/state_store_suite.h"

namespace engram::placement {
namespace {

using Mode = LossyProxy::Mode;

// One for all tests; each has its own prefix.
EtcdProcess& SharedEtcd() {
  static EtcdProcess etcd;
  return etcd;
}

std::string FreshPrefix() {
  static int number = 0;
  return absl::StrCat("/test/", getpid(), "/", ++number, "/");
}

std::shared_ptr<EtcdClient> OpenClient(const EtcdOptions& options) {
  auto client = EtcdClient::Open(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

EtcdStore OpenStore(const EtcdOptions& options, const std::string& prefix,
                    const std::string& name = "test") {
  return EtcdStore(OpenClient(options), prefix, name);
}

INSTANTIATE_TEST_SUITE_P(Etcd, StateStoreTest,
                         ::testing::Values(StoreKind{
                             "Etcd",
                             [](const std::string&) -> std::unique_ptr<StateStore> {
                               return std::make_unique<EtcdStore>(
                                   OpenClient(SharedEtcd().Options()), FreshPrefix(), "suite");
                             }}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(EtcdStoreTest, WatchOfACompactedRevisionIsOutOfRange) {
  const auto client = OpenClient(SharedEtcd().Options());
  EtcdStore store(client, FreshPrefix(), "test");
  const Revision first = *store.Txn({{}, {{"a", "1"}}, {}});
  const Revision last = *store.Txn({{}, {{"a", "2"}}, {}});
  ASSERT_TRUE(client->Compact(static_cast<std::int64_t>(last.value())).ok());
  auto watch = store.Watch("", Revision(first.value() - 1));
  ASSERT_TRUE(watch.ok());
  absl::Status status;
  for (int i = 0; i < 60'000 && status.ok(); ++i) {
    status = (*watch)->Poll().status();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("list again"));
  EXPECT_TRUE(absl::IsOutOfRange((*watch)->Poll().status()));
  EXPECT_EQ((*store.List("")).entries.size(), 1u);
}

TEST(EtcdStoreTest, WatchGoesOnAfterEtcdRestarted) {
  EtcdProcess etcd;
  EtcdStore store = OpenStore(etcd.Options(), FreshPrefix());
  const Revision first = *store.Txn({{}, {{"a", "1"}}, {}});
  auto watch = store.Watch("", first);
  ASSERT_TRUE(store.Txn({{}, {{"b", "1"}}, {}}).ok());
  ASSERT_EQ(AwaitEvents(**watch, 1).front().key, "b");
  etcd.Kill();
  etcd.Start();
  ASSERT_TRUE(store.Txn({{}, {{"c", "1"}}, {}}).ok());
  const std::vector<StoreEvent> events = AwaitEvents(**watch, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.front().key, "c");
}

TEST(EtcdStoreTest, RefusesANewerFormat) {
  const std::string prefix = FreshPrefix();
  ASSERT_EQ(SharedEtcd().Ctl({"put", prefix + "format", "2"}), 0);
  EtcdStore store = OpenStore(SharedEtcd().Options(), prefix);
  const absl::Status status = store.Txn({{}, {{"a", "1"}}, {}}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("format 2; this program knows up to 1"));
}

TEST(EtcdStoreTest, PrefixesDoNotSeeEachOther) {
  const std::string prefix = FreshPrefix();
  EtcdStore one = OpenStore(SharedEtcd().Options(), prefix + "one/");
  EtcdStore two = OpenStore(SharedEtcd().Options(), prefix + "two/");
  ASSERT_TRUE(one.Txn({{}, {{"a", "1"}}, {}}).ok());
  EXPECT_TRUE((*two.List("")).entries.empty());
}

TEST(EtcdStoreTest, AnEndpointThatIsGoneIsLeft) {
  EtcdOptions options = SharedEtcd().Options();
  options.endpoints.insert(options.endpoints.begin(), absl::StrCat("127.0.0.1:", FreePort()));
  EtcdStore store = OpenStore(options, FreshPrefix());
  const auto written = store.Txn({{}, {{"a", "1"}}, {}});
  EXPECT_TRUE(written.ok()) << written.status();
}

TEST(EtcdStoreTest, NoEtcdIsUnavailableAndSaysWhere) {
  EtcdOptions options;
  options.endpoints = {absl::StrCat("127.0.0.1:", FreePort())};
  options.limit = std::chrono::milliseconds(300);
  EtcdStore store = OpenStore(options, FreshPrefix());
  const absl::Status status = store.Get("a").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(options.endpoints[0]));
  EXPECT_THAT(std::string(status.message()), HasSubstr("majority"));
}

// ---- lost answers ----

class LostAnswerTest : public ::testing::Test {
 protected:
  LostAnswerTest() : proxy_(SharedEtcd().port()) {
    options_ = SharedEtcd().Options();
    options_.endpoints = {proxy_.Endpoint(), SharedEtcd().Url()};
    // An answer that is only slow is not to be given up: the next try would go another way.
    options_.attempt = std::chrono::seconds(3);
  }

  LossyProxy proxy_;
  EtcdOptions options_;
};

TEST_F(LostAnswerTest, AppliedOnceThoughTheAnswerWasLost) {
  EtcdStore store = OpenStore(options_, FreshPrefix());
  const Revision before = *store.Txn({{}, {{"a", "1"}}, {}});
  proxy_.Set(Mode::kDropReplies);
  // A second try would find that its compare does not hold.
  const auto written = store.Txn({{{"a", before}}, {{"a", "2"}}, {}});
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ((*store.Get("a"))->value, "2");
  EXPECT_EQ((*store.Get("a"))->revision, *written);
  EXPECT_TRUE(store.Txn({{{"a", *written}}, {{"a", "3"}}, {}}).ok());
}

TEST_F(LostAnswerTest, ARequestThatComesLateIsNeverApplied) {
  EtcdStore store = OpenStore(options_, FreshPrefix());
  ASSERT_TRUE(store.Txn({{}, {{"a", "1"}}, {}}).ok());
  proxy_.Set(Mode::kHoldRequests);
  ASSERT_TRUE(store.Txn({{}, {{"a", "2"}}, {}}).ok());
  EXPECT_GT(proxy_.held_bytes(), 0u);
  ASSERT_TRUE(store.Txn({{}, {{"a", "3"}}, {}}).ok());
  proxy_.Set(Mode::kCarry);
  // Whatever the proxy still carries comes before this, which takes the same way.
  EtcdOptions behind = options_;
  behind.endpoints = {proxy_.Endpoint()};
  EXPECT_TRUE(OpenStore(behind, FreshPrefix()).Txn({{}, {{"x", "1"}}, {}}).ok());
  EXPECT_EQ((*store.Get("a"))->value, "3");
}

TEST_F(LostAnswerTest, UnknownWhenItCannotBeSettled) {
  options_.endpoints = {proxy_.Endpoint()};
  options_.attempt = std::chrono::milliseconds(300);
  options_.limit = std::chrono::seconds(2);
  EtcdStore store = OpenStore(options_, FreshPrefix());
  auto first = store.Txn({{}, {{"a", "1"}}, {}});
  while (!first.ok()) first = store.Txn({{}, {{"a", "1"}}, {}});
  proxy_.Set(Mode::kDropReplies);
  const absl::Status status = store.Txn({{}, {{"a", "2"}}, {}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown) << status;
  proxy_.Set(Mode::kCarry);
  auto next = store.Txn({{}, {{"b", "1"}}, {}});
  for (int i = 0; i < 20 && !next.ok(); ++i) next = store.Txn({{}, {{"b", "1"}}, {}});
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST_F(LostAnswerTest, TwoStoresOfOneNameAreToldApart) {
  const std::string prefix = FreshPrefix();
  EtcdStore one = OpenStore(options_, prefix), two = OpenStore(options_, prefix);
  ASSERT_TRUE(one.Txn({{}, {{"a", "1"}}, {}}).ok());
  ASSERT_TRUE(two.Txn({{}, {{"a", "2"}}, {}}).ok());
  const auto again = one.Txn({{}, {{"a", "3"}}, {}});
  EXPECT_TRUE(again.ok()) << again.status();
}

// ---- who may ----

TEST(EtcdAuthTest, UserAndPasswordAndATokenThatIsRenewed) {
  EtcdProcess etcd({"--auth-token-ttl", "1"});
  EtcdOptions options = etcd.Options();
  options.user = "engram";
  options.password = "secret";
  EtcdStore unready = OpenStore(etcd.Options(), FreshPrefix());
  ASSERT_TRUE(unready.Prepare().ok());  // it is up
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"user", "add", "root:rootpw"},
           {"user", "grant-role", "root", "root"},
           {"user", "add", "engram:secret"},
           {"role", "add", "pool"},
           {"role", "grant-permission", "pool", "--prefix=true", "readwrite", "/pool/"},
           {"user", "grant-role", "engram", "pool"},
           {"auth", "enable"}}) {
    ASSERT_EQ(etcd.Ctl(words), 0) << words[1];
  }
  EtcdStore store = OpenStore(options, "/pool/");
  ASSERT_TRUE(store.Txn({{}, {{"a", "1"}}, {}}).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(2'500));  // etcd forgets the token
  const auto later = store.Txn({{}, {{"a", "2"}}, {}});
  EXPECT_TRUE(later.ok()) << later.status();

  const absl::Status elsewhere = OpenStore(options, "/other/").Txn({{}, {{"a", "1"}}, {}}).status();
  EXPECT_TRUE(absl::IsPermissionDenied(elsewhere)) << elsewhere;
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("--etcd-prefix"));
  options.password = "wrong";
  const absl::Status wrong = OpenStore(options, "/pool/").Get("a").status();
  EXPECT_TRUE(absl::IsUnauthenticated(wrong)) << wrong;
  const absl::Status nobody = OpenStore(etcd.Options(), "/pool/").Get("a").status();
  EXPECT_TRUE(absl::IsInvalidArgument(nobody)) << nobody;
  EXPECT_THAT(std::string(nobody.message()), HasSubstr("--etcd-user"));
}

// A certificate authority in a folder, with openssl.
class Authority {
 public:
  explicit Authority(std::string folder) : folder_(std::move(folder)) {
    EXPECT_EQ(Openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                       "-nodes", "-days", "1", "-subj", "/CN=test authority", "-keyout",
                       At("ca.key"), "-out", At("ca.pem")}),
              0);
  }
  void Issue(const std::string& name) {
    std::ofstream(At(name + ".ext")) << "subjectAltName=IP:127.0.0.1\n";
    EXPECT_EQ(
        Openssl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                 "/CN=" + name, "-keyout", At(name + ".key"), "-out", At(name + ".csr")}),
        0);
    EXPECT_EQ(Openssl({"x509", "-req", "-in", At(name + ".csr"), "-CA", At("ca.pem"), "-CAkey",
                       At("ca.key"), "-CAcreateserial", "-days", "1", "-extfile", At(name + ".ext"),
                       "-out", At(name + ".pem")}),
              0);
  }
  std::string At(const std::string& file) const { return folder_ + "/" + file; }

 private:
  int Openssl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "openssl");
    return RunToEnd(arguments, At("openssl.log"));
  }
  const std::string folder_;
};

TEST(EtcdTlsTest, CertificatesOnBothSides) {
  std::string pattern = ::testing::TempDir() + "/authority_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  Authority authority(folder);
  authority.Issue("etcd");
  authority.Issue("controller");
  EtcdProcess etcd({"--cert-file", authority.At("etcd.pem"), "--key-file", authority.At("etcd.key"),
                    "--trusted-ca-file", authority.At("ca.pem"), "--client-cert-auth"},
                   "https");
  EtcdOptions options = etcd.Options();
  options.ca_file = authority.At("ca.pem");
  options.cert_file = authority.At("controller.pem");
  options.key_file = authority.At("controller.key");
  EtcdStore store = OpenStore(options, FreshPrefix());
  const auto written = store.Txn({{}, {{"a", "1"}}, {}});
  EXPECT_TRUE(written.ok()) << written.status();
  EXPECT_TRUE(store.Watch("", Revision()).ok());

  EtcdOptions anonymous = options;
  anonymous.cert_file = anonymous.key_file = "";
  anonymous.limit = std::chrono::seconds(1);
  EXPECT_TRUE(absl::IsUnavailable(OpenStore(anonymous, FreshPrefix()).Get("a").status()));
  EtcdOptions half = options;
  half.key_file = "";
  EXPECT_TRUE(absl::IsInvalidArgument(EtcdClient::Open(half).status()));
  half.key_file = folder + "/none.key";
  const absl::Status missing = EtcdClient::Open(half).status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr("none.key"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace engram::placement
