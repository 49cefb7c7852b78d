#include "proto/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <prometheus/metric_family.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/scrape.h"

namespace engram::wire {
namespace {

class Answer final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    prometheus::MetricFamily family;
    family.name = "engram_answer";
    family.type = prometheus::MetricType::Gauge;
    family.metric.emplace_back().gauge.value = 42;
    return {family};
  }
};

// A connected socket, or -1.
int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

TEST(MetricsServer, ServesWhatIsCollectedUntilItIsStopped) {
  auto server = MetricsServer::Start("127.0.0.1:0", false, std::make_shared<Answer>());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Scrape((*server)->port()), testing::HasSubstr("engram_answer 42"));
  const int port = (*server)->port();
  (*server)->Stop();
  EXPECT_EQ(Connect(port), -1);
  (*server)->Stop();
}

TEST(MetricsServer, StopsWhileAConnectionSaysNothing) {
  auto server = MetricsServer::Start("127.0.0.1:0", false, std::make_shared<Answer>());
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  const int silent = Connect(port);
  ASSERT_GE(silent, 0);
  (*server)->Stop();
  EXPECT_EQ(Connect(port), -1);
  close(silent);
}

TEST(MetricsServer, APortInUseIsAClearError) {
  auto first = MetricsServer::Start("127.0.0.1:0", false, std::make_shared<Answer>());
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string taken = "127.0.0.1:" + std::to_string((*first)->port());
  auto second = MetricsServer::Start(taken, false, std::make_shared<Answer>());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), testing::HasSubstr(taken));
}

TEST(MetricsServer, AnAddressThatOthersReachNeedsTheInsecureFlag) {
  EXPECT_EQ(MetricsServer::Start("0.0.0.0:0", false, std::make_shared<Answer>()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(MetricsServer::Start("0.0.0.0:0", true, std::make_shared<Answer>()).ok());
}

}  // namespace
}  // namespace engram::wire
