// Sockets that send garbage, or a good beginning drop by drop, at the ports of a controller: it
// goes on serving everybody else.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

#include "tests/placement/rpc/grpc_pool.h"

namespace engram::placement {
namespace {

using HostileBytesTest = GrpcPoolTest;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// A connection to a port of this host. Sending to a peer that hung up is no error.
class RawSocket {
 public:
  explicit RawSocket(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    timeval patience{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;
  ~RawSocket() { close(fd_); }

  bool connected() const { return connected_; }
  void Send(const std::string& bytes) {
    (void)send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Until the peer closes, or nothing came for 30 s.
  std::string ReadAll() {
    std::string all;
    char part[4096];
    for (ssize_t got = 0; (got = recv(fd_, part, sizeof part, 0)) > 0;) {
      all.append(part, static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  const int fd_;
  bool connected_ = false;
};

std::string Noise(SeededRandom& random, std::size_t size) {
  std::string bytes(size, 0);
  for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
  return bytes;
}

// One HTTP/2 frame with whatever header was asked for.
std::string Frame(std::uint32_t size, std::uint8_t type, std::uint8_t flags, std::uint8_t stream,
                  const std::string& payload) {
  std::string out;
  for (int shift : {16, 8, 0}) out.push_back(static_cast<char>(size >> shift));
  out.push_back(static_cast<char>(type));
  out.push_back(static_cast<char>(flags));
  out.append(3, 0);
  out.push_back(static_cast<char>(stream));
  return out + payload;
}

// What a connection says at once. Some begin well, so that the bad bytes get further.
std::vector<std::string> Insults(SeededRandom& random) {
  const std::string hello = kPreface + Frame(0, 4, 0, 0, "");
  std::vector<std::string> all = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
      std::string(100'000, 0),
      hello + Frame(0xffffff, 0, 0, 1, "x"),
      hello + Frame(5, 1, 4, 1, "\xff\xff\xff\xff\xff"),
      hello + Frame(4, 3, 0, 99, std::string(4, 1)),
      hello + Frame(0, 9, 0, 0, ""),
  };
  for (int i = 0; i < 25; ++i) all.push_back(Noise(random, 1 + random.Below(20'000)));
  for (int i = 0; i < 25; ++i) {
    const std::string payload = Noise(random, random.Below(200));
    all.push_back(hello + Frame(static_cast<std::uint32_t>(payload.size()),
                                static_cast<std::uint8_t>(random.Below(12)),
                                static_cast<std::uint8_t>(random.Below(256)), 1, payload));
  }
  return all;
}

// Drips into its sockets until it is destroyed.
class Drip {
 public:
  Drip(int port, int count, std::string bytes) : bytes_(std::move(bytes)) {
    for (int i = 0; i < count; ++i) sockets_.push_back(std::make_unique<RawSocket>(port));
    for (const auto& socket : sockets_) EXPECT_TRUE(socket->connected());
    thread_ = std::thread([this] {
      for (std::size_t at = 0; !stopping_; ++at) {
        for (const auto& socket : sockets_) socket->Send(bytes_.substr(at % bytes_.size(), 1));
        std::this_thread::sleep_for(milliseconds(10));
      }
    });
  }
  ~Drip() {
    stopping_ = true;
    thread_.join();
  }

 private:
  const std::string bytes_;
  std::vector<std::unique_ptr<RawSocket>> sockets_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

TEST_F(HostileBytesTest, ControllerServesOnWhileItsPortGetsGarbageAndDrips) {
  // No node is taken for dead because the machine is busy.
  auto server = Start({"--dead-after=10m"});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string endpoint = EndpointOf(**server);
  PoolClient client(endpoint);
  GrpcNode a("a", endpoint), b("b", endpoint);
  ASSERT_TRUE(PoolClient::Await([&] { return a.incarnation() != 0 && b.incarnation() != 0; }));
  const std::uint64_t joins = a.joins() + b.joins();
  SeededRandom random(5);
  const Drip preface((*server)->port(), 20, kPreface + std::string(1'000, 'x'));
  const Drip noise((*server)->port(), 20, Noise(random, 1'000));
  for (const std::string& bytes : Insults(random)) {
    RawSocket socket((*server)->port());
    ASSERT_TRUE(socket.connected());
    socket.Send(bytes);
  }
  ASSERT_TRUE(client.Load("1", "r1").ok());
  EXPECT_TRUE(client.AwaitReady("1"));
  PoolClient newcomer(endpoint);
  EXPECT_TRUE(newcomer.Get("1"));
  GrpcNode c("c", endpoint);
  EXPECT_TRUE(PoolClient::Await([&] { return c.incarnation() != 0; }));
  EXPECT_EQ(a.joins() + b.joins(), joins);
}

TEST_F(HostileBytesTest, MetricsAreServedWhileOthersDripAtTheirPort) {
  auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->metrics_port();
  const Drip silent(port, 6, "G");
  const Drip slow(port, 6, "GET /metrics HTTP/1.1\r\n");
  SeededRandom random(6);
  for (int i = 0; i < 10; ++i) RawSocket(port).Send(Noise(random, 10'000));
  RawSocket scrape(port);
  scrape.Send("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(scrape.ReadAll(), ::testing::HasSubstr("engram_map_epoch"));
}

// ---- the real node ----

std::set<std::string> SocketsOf(pid_t pid) {
  std::set<std::string> inodes;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  std::error_code error;
  for (const auto& fd : std::filesystem::directory_iterator(folder, error)) {
    const std::string target = std::filesystem::read_symlink(fd.path(), error).string();
    if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// TCP ports on which the process listens.
std::set<int> PortsOf(pid_t pid) {
  const std::set<std::string> sockets = SocketsOf(pid);
  std::set<int> ports;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    std::string line;
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, skipped, inode;
      fields >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) fields >> skipped;
      fields >> inode;
      if (state != "0A" || !sockets.contains(inode)) continue;
      ports.insert(std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

constexpr char kSpec[] =
    R"({"model": "deepseek-v4.1", "engram_vocab_size": 2000, "layers": [1], "seed": 7})";

class NodeUnderFire : public HostileBytesTest {
 protected:
  // What the command line says to `arguments`.
  ::testing::AssertionResult Ctl(const std::string& endpoint, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--endpoint", endpoint});
    Process ctl("engramctl", arguments, folder_ / "ctl.log");
    const int status = ctl.Wait();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << ctl.Said();
  }
};

TEST_F(NodeUnderFire, ServesRowsWhileItsPortsGetGarbageAndDrips) {
  auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string endpoint = EndpointOf(**server);
  Process node("engram-poolserver",
               {"--node-id=n1", "--controller=" + endpoint, "--memory=64MiB", "--slab-size=8MiB",
                "--huge-pages=off", "--runtime-dir=" + folder_ / "run"},
               folder_ / "node.log");
  PoolClient client(endpoint);
  ASSERT_TRUE(PoolClient::Await([&] {
    v1::ListNodesResponse nodes;
    grpc::ClientContext context;
    return client.stub().ListNodes(&context, {}, &nodes).ok() && nodes.nodes_size() == 1;
  })) << node.Said();
  std::ofstream(folder_ / "spec.json") << kSpec;
  ASSERT_TRUE(Ctl(endpoint, {"load", "table", "small@1", "--synthetic", folder_ / "spec.json",
                             "--shard-bytes", "1MiB", "--wait"}))
      << node.Said();
  const std::set<int> ports = PortsOf(node.pid());
  ASSERT_GE(ports.size(), 2u);  // sessions and the stream fabric
  SeededRandom random(7);
  std::vector<std::unique_ptr<Drip>> drips;
  for (int port : ports) {
    drips.push_back(std::make_unique<Drip>(port, 10, kPreface + std::string(1'000, 'x')));
    drips.push_back(std::make_unique<Drip>(port, 10, Noise(random, 1'000)));
    for (const std::string& bytes : Insults(random)) RawSocket(port).Send(bytes);
  }
  EXPECT_TRUE(Ctl(endpoint, {"verify", "table", "small@1", "--fabric", "stream"}));
  EXPECT_TRUE(Ctl(endpoint, {"verify", "table", "small@1", "--fabric", "mapped"}));
  EXPECT_EQ(PortsOf(node.pid()), ports);
  const int status = node.Kill(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << node.Said();
}

}  // namespace
}  // namespace engram::placement
