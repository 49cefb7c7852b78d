#include "client/routes.h"

#include <gtest/gtest.h>

namespace engram::client {
namespace {

TEST(RoutesTest, ASessionWithoutItsStreamIsTheLastChoice) {
  const auto lease = std::make_shared<ReadLease>(Instant(std::chrono::seconds(1)));
  Routes::Builder::Options options;
  options.shards = 3;
  Routes::Builder builder(options);
  const auto cut =
      builder.AddSession({{"a"}, Incarnation(1), GrantRevision(1), lease, /*cut=*/true});
  const auto whole =
      builder.AddSession({{"b"}, Incarnation(1), GrantRevision(1), lease, /*cut=*/false});
  PathAddress mapped;
  mapped.fabric = FabricKind::kMapped;
  PathAddress stream;
  stream.fabric = FabricKind::kStream;
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    builder.Add(ShardIndex(shard), cut, 0, mapped, {});
    builder.Add(ShardIndex(shard), whole, 1, stream, {});
  }
  builder.Add(ShardIndex(2), cut, 0, mapped, {});
  const auto routes = builder.Build();
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    EXPECT_EQ(routes->Best(ShardIndex(shard))->session, whole);
    EXPECT_EQ(routes->Candidates(ShardIndex(shard)).size(), 2u);
  }
  EXPECT_EQ(routes->Best(ShardIndex(2))->session, cut) << "nobody else has it";
  EXPECT_EQ(routes->shards_served(), 3u);
}

}  // namespace
}  // namespace engram::client
