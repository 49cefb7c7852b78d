// The C ABI as a caller meets it without a pool: bad arguments end in statuses, never in a crash.
#include <dlfcn.h>
#include <engram/engram.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

#include "checkout.h"

namespace {

using ::testing::HasSubstr;

// What loading the library alone has made, counted before main.
struct AtStart {
  long threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  int (*grpc_is_initialized)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT,
                                                                   "grpc_is_initialized"));
  int grpc = grpc_is_initialized == nullptr ? -1 : grpc_is_initialized();
};
const AtStart at_start;

TEST(AbiTest, LoadingItStartsNeitherAThreadNorGrpc) {
  EXPECT_EQ(at_start.threads, 1);
  EXPECT_EQ(at_start.grpc, 0) << "-1: gRPC is not a library that can be asked";
}

TEST(AbiTest, NullHandlesAreInvalidArguments) {
  EXPECT_EQ(engram_table_get_info(nullptr, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_STREQ(engram_last_error(), "table is NULL");
  EXPECT_EQ(engram_table_get_layer(nullptr, 0, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_get_column(nullptr, 0, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_get_plane(nullptr, 0, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_get_stats(nullptr, nullptr), ENGRAM_INVALID_ARGUMENT);
  std::size_t needed = 0;
  EXPECT_EQ(engram_metrics(nullptr, 1, &needed), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_metrics(nullptr, 0, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_metrics(nullptr, 0, &needed), ENGRAM_OK);
  char text[16];
  EXPECT_EQ(engram_metrics(text, sizeof text, &needed), ENGRAM_RESOURCE_EXHAUSTED);
  EXPECT_NE(std::string(engram_last_error()).find("text has 16"), std::string::npos);
  EXPECT_EQ(engram_table_addresses(nullptr, nullptr, nullptr, 0), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_read_rows(nullptr, nullptr, nullptr, 0, nullptr, 0),
            ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_read_tokens(nullptr, nullptr, nullptr, 0, nullptr, 0),
            ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_pool_open(nullptr, nullptr), ENGRAM_INVALID_ARGUMENT);
  engram_table* table = nullptr;
  EXPECT_EQ(engram_table_open(nullptr, "a@1", nullptr, &table), ENGRAM_INVALID_ARGUMENT);
  engram_prefetcher* prefetcher = nullptr;
  EXPECT_EQ(engram_prefetcher_open(nullptr, nullptr, &prefetcher), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_prefetcher_open(nullptr, nullptr, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_prefetcher_submit(nullptr, nullptr, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_STREQ(engram_last_error(), "prefetcher is NULL");
  EXPECT_EQ(engram_prefetcher_wait(nullptr, 1, -1, 0), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_prefetcher_poll(nullptr, 1, 0, nullptr, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_prefetcher_cancel(nullptr, 1, 0), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_prefetcher_release(nullptr, 1), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_prefetcher_row_status(nullptr, 1, 0, nullptr, 0, nullptr),
            ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_prefetcher_add_slot(nullptr, nullptr, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_get_layout(nullptr, nullptr, 0, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_register_destination(nullptr, nullptr, 0, nullptr),
            ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_unregister_destination(nullptr, 1), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_pending(nullptr, nullptr, 0), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_pending_fd(nullptr, nullptr), ENGRAM_INVALID_ARGUMENT);
  EXPECT_EQ(engram_table_adopt(nullptr, nullptr, &table), ENGRAM_INVALID_ARGUMENT);
  EXPECT_STREQ(engram_last_error(), "table is NULL");
  engram_prefetcher_close(nullptr);
  engram_prefetcher_options_init(nullptr);
  engram_pool_close(nullptr);
  engram_table_close(nullptr);
  engram_pool_options_init(nullptr);
  engram_table_options_init(nullptr);
}

TEST(AbiTest, APoolThatDoesNotAnswerIsUnavailableAndNamed) {
  engram_pool_options options;
  engram_pool_options_init(&options);
  EXPECT_EQ(options.struct_size, sizeof options);
  options.endpoints = "127.0.0.1:1";
  options.connect_timeout_ns = 50'000'000;
  engram_pool* pool = reinterpret_cast<engram_pool*>(1);
  EXPECT_EQ(engram_pool_open(&options, &pool), ENGRAM_UNAVAILABLE);
  EXPECT_EQ(pool, nullptr);
  EXPECT_THAT(engram_last_error(), HasSubstr("no pool answers at 127.0.0.1:1"));
  options.endpoints = "nonsense";
  EXPECT_EQ(engram_pool_open(&options, &pool), ENGRAM_INVALID_ARGUMENT);
  EXPECT_THAT(engram_last_error(), HasSubstr("\"nonsense\" is not HOST:PORT"));
}

engram_status Open(const std::string& endpoint) {
  engram_pool_options options;
  engram_pool_options_init(&options);
  options.endpoints = endpoint.c_str();
  options.connect_timeout_ns = 200'000'000;
  engram_pool* pool = nullptr;
  return engram_pool_open(&options, &pool);
}

// Forks; what `endpoint` ends with in the child.
engram_status OpenInChild(const std::string& endpoint) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that waits for threads it has not
    const engram_status status = Open(endpoint);
    const bool says_why = status != ENGRAM_FAILED_PRECONDITION ||
                          std::string(engram_last_error()).find("forked") != std::string::npos;
    _exit(says_why ? status : 100);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return static_cast<engram_status>(WIFEXITED(status) ? WEXITSTATUS(status) : 101);
}

TEST(AbiTest, AChildThatIsForkedAfterAPoolWasInUseOpensItsOwn) {
  EXPECT_EQ(Open("127.0.0.1:1"), ENGRAM_UNAVAILABLE);
  EXPECT_EQ(OpenInChild("127.0.0.1:1"), ENGRAM_UNAVAILABLE);
}

TEST(AbiTest, AChildThatIsForkedWhileAPoolIsInUseIsRefused) {
  // Connects and never gets an answer.
  const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(silent, 8), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const std::string endpoint = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  std::thread opener([&] { EXPECT_EQ(Open(endpoint), ENGRAM_UNAVAILABLE); });
  const int connected = accept(silent, nullptr, nullptr);
  EXPECT_GE(connected, 0);
  EXPECT_EQ(OpenInChild(endpoint), ENGRAM_FAILED_PRECONDITION);
  opener.join();
  close(connected);
  close(silent);
}

TEST(AbiTest, StatusesHaveNames) {
  EXPECT_STREQ(engram_status_name(ENGRAM_OK), "ok");
  EXPECT_STREQ(engram_status_name(ENGRAM_INTERNAL), "internal");
  EXPECT_STREQ(engram_status_name(static_cast<engram_status>(99)), "unknown");
  EXPECT_THAT(engram_version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(AbiTest, ExportsNothingButItsOwnFunctions) {
  const std::string command =
      "nm -D --defined-only " ENGRAM_BINARY_DIR "/lib/libengram.so | awk '{print $3}'";
  FILE* symbols = popen(command.c_str(), "r");
  ASSERT_NE(symbols, nullptr);
  char line[512];
  int functions = 0;
  while (std::fgets(line, sizeof line, symbols) != nullptr) {
    std::string symbol(line);
    symbol.erase(symbol.find_last_not_of('\n') + 1);
    if (symbol.rfind("ENGRAM_0", 0) == 0) continue;  // the version itself
    EXPECT_THAT(symbol, testing::StartsWith("engram_"));
    ++functions;
  }
  EXPECT_EQ(pclose(symbols), 0);
  EXPECT_GE(functions, 15);
}

}  // namespace
