// Versions through the C ABI against a real pool: what open checks, and how an alias is followed.
#include <poll.h>

#include <chrono>
#include <thread>

#include "tests/abi/pool/opened.h"

namespace engram::abi_test {
namespace {

std::string Pending(const engram_table* table) {
  char name[ENGRAM_NAME_BYTES] = "?";
  ExpectOk(engram_table_pending(table, name, sizeof name));
  return name;
}

bool IsReadable(int fd, int timeout_ms) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, timeout_ms) == 1;
}

engram_table_info InfoOf(const engram_table* table) {
  auto info = Sized<engram_table_info>();
  ExpectOk(engram_table_get_info(table, &info));
  return info;
}

TEST(VersionsTest, OpenChecksNameVersionAndDigests) {
  Opened opened;
  const engram_table_info info = InfoOf(opened.table);
  engram_table* table = nullptr;
  ExpectFails(engram_table_open(opened.pool, "small@77", nullptr, &table), ENGRAM_NOT_FOUND,
              "table small@77 is unknown");
  auto options = Sized<engram_table_options>();
  options.expected_spec_digest = info.spec_digest;
  options.expected_content_digest = info.content_digest;
  ExpectOk(engram_table_open(opened.pool, "small@1", &options, &table));
  engram_table_close(table);
  options.expected_spec_digest = "abc";
  ExpectFails(engram_table_open(opened.pool, "small@1", &options, &table),
              ENGRAM_FAILED_PRECONDITION, "table small@1 has the spec digest ");
  options.expected_spec_digest = nullptr;
  // Same geometry, other bytes.
  ExpectFails(engram_table_open(opened.pool, "small@2", &options, &table),
              ENGRAM_FAILED_PRECONDITION, info.content_digest);
  EXPECT_EQ(table, nullptr);
}

TEST(VersionsTest, AnAliasIsFollowedOnlyWhenTheCallerAdopts) {
  ASSERT_TRUE(Engramctl("set alias small@live 1"));
  {
    Opened live(nullptr, "small@live");
    EXPECT_STREQ(InfoOf(live.table).version, "1");
    EXPECT_EQ(Pending(live.table), "");
    engram_table* next = nullptr;
    ExpectFails(engram_table_adopt(live.table, nullptr, &next), ENGRAM_FAILED_PRECONDITION,
                "there is nothing to adopt: table small@1 was opened as small@live");
    int moved = -1, same = -1;
    ExpectOk(engram_table_pending_fd(live.table, &moved));
    ExpectOk(engram_table_pending_fd(live.table, &same));
    EXPECT_EQ(moved, same);
    EXPECT_FALSE(IsReadable(moved, 0));
    ASSERT_TRUE(Engramctl("set alias small@live 2"));
    ASSERT_TRUE(IsReadable(moved, 60'000)) << "the map stream brings it";
    EXPECT_EQ(Pending(live.table), "small@2");
    EXPECT_TRUE(IsReadable(moved, 0)) << "as long as it is pending";
    PackedStep before({1, 2, 3});
    ExpectOk(engram_prefetcher_wait(live.Steps(), live.Submit(before.step), -1, 60 * kSecond));
    EXPECT_TRUE(before.IsGolden(live)) << "nothing switched by itself";

    auto other = Sized<engram_table_options>();
    other.expected_spec_digest = "abc";
    ExpectFails(engram_table_adopt(live.table, &other, &next), ENGRAM_FAILED_PRECONDITION,
                "table small@2 has the spec digest ");
    ExpectOk(engram_table_adopt(live.table, nullptr, &next));
    EXPECT_STREQ(InfoOf(next).version, "2");
    EXPECT_EQ(Pending(next), "");
    engram_prefetcher* steps = nullptr;
    ExpectOk(engram_prefetcher_open(next, nullptr, &steps));
    PackedStep one({4, 5}), two({4, 5});
    engram_ticket ticket = 0;
    two.step.table_uid = InfoOf(next).table_uid;
    ExpectOk(engram_prefetcher_submit(steps, &two.step, &ticket));
    ExpectOk(engram_prefetcher_wait(live.Steps(), live.Submit(one.step), -1, 60 * kSecond));
    ExpectOk(engram_prefetcher_wait(steps, ticket, -1, 60 * kSecond));
    EXPECT_TRUE(one.IsGolden(live)) << "the old version stays readable";
    EXPECT_TRUE(two.IsGolden(live, kSecondSeed));
    one.step.table_uid = two.step.table_uid;
    ExpectFails(engram_prefetcher_submit(live.Steps(), &one.step, &ticket),
                ENGRAM_FAILED_PRECONDITION, "submit to the prefetcher of the step's own table");
    EXPECT_FALSE(Engramctl("delete table small@2 --yes")) << "it is what the alias names";
    engram_prefetcher_close(steps);
    engram_table_close(next);
    ASSERT_TRUE(Engramctl("set alias small@live 1"));
    for (int i = 0; i < 6000 && IsReadable(moved, 0); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(Pending(live.table), "") << "back where it was";
    EXPECT_FALSE(IsReadable(moved, 0));
  }
  ASSERT_TRUE(Engramctl("delete alias small@live --yes"));
  Opened opened;
  engram_table* table = nullptr;
  ExpectFails(engram_table_open(opened.pool, "small@live", nullptr, &table), ENGRAM_NOT_FOUND,
              "small@live");
  char name[2];
  ExpectOk(engram_table_pending(opened.table, name, 1));
  ExpectFails(engram_table_pending(opened.table, name, 0), ENGRAM_INVALID_ARGUMENT,
              "give ENGRAM_NAME_BYTES");
}

}  // namespace
}  // namespace engram::abi_test
