#include "client/quiescence.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace engram::client {
namespace {

TEST(Quiescence, IsPastEverythingWhenNobodyReads) {
  Quiescence quiescence;
  QuiescenceReader reader(&quiescence);
  EXPECT_TRUE(quiescence.Past(quiescence.Publish()));
}

TEST(Quiescence, WaitsForAPassThatWasOpenedBefore) {
  Quiescence quiescence;
  QuiescenceReader reader(&quiescence);
  const RouteVersion pass = reader.Enter();
  const RouteVersion version = quiescence.Publish();
  EXPECT_FALSE(quiescence.Past(version));
  reader.Exit(pass);
  EXPECT_TRUE(quiescence.Past(version));
}

TEST(Quiescence, DoesNotWaitForAPassThatWasOpenedAfter) {
  Quiescence quiescence;
  QuiescenceReader reader(&quiescence);
  const RouteVersion version = quiescence.Publish();
  const RouteVersion pass = reader.Enter();
  EXPECT_EQ(pass, version);
  EXPECT_TRUE(quiescence.Past(version));
  reader.Exit(pass);
}

TEST(Quiescence, WaitsForTheOldestOfSeveralPassesOfOnePoller) {
  Quiescence quiescence;
  QuiescenceReader reader(&quiescence);
  const RouteVersion old_read = reader.Enter();
  const RouteVersion version = quiescence.Publish();
  const RouteVersion new_read = reader.Enter();
  const RouteVersion hedge = reader.Enter();
  reader.Exit(new_read);
  EXPECT_FALSE(quiescence.Past(version));
  reader.Exit(old_read);
  EXPECT_TRUE(quiescence.Past(version));
  const RouteVersion later = quiescence.Publish();
  EXPECT_FALSE(quiescence.Past(later));
  reader.Exit(hedge);
  EXPECT_TRUE(quiescence.Past(later));
}

TEST(Quiescence, WaitsForEveryPoller) {
  Quiescence quiescence;
  QuiescenceReader one(&quiescence);
  QuiescenceReader two(&quiescence);
  const RouteVersion first = one.Enter();
  const RouteVersion second = two.Enter();
  const RouteVersion version = quiescence.Publish();
  one.Exit(first);
  EXPECT_FALSE(quiescence.Past(version));
  EXPECT_EQ(quiescence.Oldest(), second);
  two.Exit(second);
  EXPECT_TRUE(quiescence.Past(version));
}

TEST(Quiescence, CountsMoreVersionsThanItKeepsAsOlder) {
  Quiescence quiescence;
  QuiescenceReader reader(&quiescence);
  std::vector<RouteVersion> passes;
  for (int i = 0; i < 40; ++i) {
    passes.push_back(reader.Enter());
    quiescence.Publish();
  }
  const RouteVersion last = quiescence.current();
  for (std::size_t i = 0; i < passes.size(); ++i) {
    EXPECT_FALSE(quiescence.Past(last)) << i;
    EXPECT_LE(quiescence.Oldest(), passes[i]);
    reader.Exit(passes[i]);
  }
  EXPECT_TRUE(quiescence.Past(last));
}

TEST(QuiescenceDeathTest, APassIsClosedOnce) {
  Quiescence quiescence;
  QuiescenceReader reader(&quiescence);
  reader.Exit(reader.Enter());
  EXPECT_DEATH(reader.Exit(RouteVersion(1)), "invariant");
}

// Readers use what they find behind a pointer; the publisher overwrites the old value as soon as
// every reader is past it. A reader that sees the overwritten value was let down.
TEST(Quiescence, NoReaderSeesWhatWasReusedAfterItWasPast) {
  constexpr int kRounds = 20'000;
  constexpr std::uint64_t kReused = ~std::uint64_t{0};
  Quiescence quiescence;
  std::atomic<std::uint64_t> places[2] = {0, 0};
  std::atomic<std::atomic<std::uint64_t>*> route{&places[0]};
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<int> reading{0};
  std::vector<std::thread> pollers;
  for (int i = 0; i < 3; ++i) {
    pollers.emplace_back([&] {
      QuiescenceReader reader(&quiescence);
      ++reading;
      while (!stop.load(std::memory_order_relaxed)) {
        const RouteVersion pass = reader.Enter();
        const auto* place = route.load(std::memory_order_acquire);
        for (int look = 0; look < 3; ++look) {
          if (place->load(std::memory_order_relaxed) == kReused) ++wrong;
        }
        reader.Exit(pass);
      }
    });
  }
  while (reading < 3) std::this_thread::yield();
  for (int round = 0; round < kRounds; ++round) {
    auto& next = places[(round + 1) % 2];
    next.store(static_cast<std::uint64_t>(round), std::memory_order_relaxed);
    route.store(&next, std::memory_order_release);
    const RouteVersion version = quiescence.Publish();
    while (!quiescence.Past(version)) std::this_thread::yield();
    places[round % 2].store(kReused, std::memory_order_relaxed);
  }
  stop = true;
  for (std::thread& poller : pollers) poller.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace engram::client
