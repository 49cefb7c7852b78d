// `epoch_heard_ms`: how soon a client follows the map, over real gRPC and a real state file.
#include <thread>

#include "absl/strings/str_cat.h"
#include "bench/driver/commands.h"
#include "bench/driver/histogram.h"
#include "bench/driver/local_pool.h"
#include "client/rpc/pool.h"
#include "engram/v1/placement.grpc.pb.h"
#include "proto/grpc_server.h"

namespace engram::bench {
namespace {

constexpr Duration kPatience = std::chrono::seconds(10);
constexpr char kNode[] = "node-0";

// One epoch more, or the error of the call.
absl::Status ChangeMap(v1::PoolService::Stub& stub, bool cordon) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  grpc::Status status;
  if (cordon) {
    v1::CordonNodeRequest request;
    request.set_node(kNode);
    v1::CordonNodeResponse response;
    status = stub.CordonNode(&context, request, &response);
  } else {
    v1::UncordonNodeRequest request;
    request.set_node(kNode);
    v1::UncordonNodeResponse response;
    status = stub.UncordonNode(&context, request, &response);
  }
  if (status.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the map cannot be changed: ", status.error_message()));
}

// From before the change is asked for until the client's map has it.
absl::StatusOr<Duration> HearOne(const client::Pool& pool, v1::PoolService::Stub& stub,
                                 bool cordon) {
  const Clock& clock = SystemClock::Get();
  const Epoch before = pool.map()->epoch();
  const Instant asked = clock.Now();
  absl::Status changed;
  std::thread other([&] { changed = ChangeMap(stub, cordon); });
  while (pool.map()->epoch() == before && clock.Now() - asked < kPatience) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  const Duration took = clock.Now() - asked;
  other.join();
  if (!changed.ok()) return changed;
  if (took < kPatience) return took;
  return absl::DeadlineExceededError("a client did not hear of a new epoch within 10 s");
}

}  // namespace

absl::StatusOr<Figure> MeasureEpochs(const BenchOptions& options) {
  auto local = LocalPool::Up(options.bin_dir, 1, "64MiB", "stream");
  if (!local.ok()) return local.status();
  client::PoolOptions reader;
  reader.endpoints = {(*local)->endpoint()};
  auto pool = client::Pool::Open(reader);
  if (!pool.ok()) return pool.status();
  const auto stub = v1::PoolService::NewStub(wire::Connect((*local)->endpoint()));
  std::vector<double> rounds;
  for (int round = 0; round < (options.quick ? 1 : 5); ++round) {
    Histogram took_us;
    for (int i = 0; i < (options.quick ? 50 : 200); ++i) {
      const auto took = HearOne(**pool, *stub, i % 2 == 0);
      if (!took.ok()) return took.status();
      took_us.Add(Seconds(*took) * 1e6);
    }
    rounds.push_back(took_us.Quantile(0.99) / 1e3);
  }
  Figure figure;
  figure.figure = "epoch_heard_ms";
  figure.unit = "ms";
  figure.reference = "from the request that changes it to the client's map, p99 of 200";
  figure.goal = 100;
  figure.smaller_is_better = true;
  figure.seed = options.seed;
  Summarise(std::move(rounds), &figure);
  return figure;
}

}  // namespace engram::bench
