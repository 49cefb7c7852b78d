// The stores that need nothing but this process.
#include "placement/store/memory_store.h"
#include "placement/store/sqlite_store.h"
#include "tests/placement/state_store_suite.h"

namespace engram::placement {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Stores, StateStoreTest,
    ::testing::Values(StoreKind{"Memory",
                                [](const std::string&) { return std::make_unique<MemoryStore>(); }},
                      StoreKind{"Sqlite",
                                [](const std::string& folder) -> std::unique_ptr<StateStore> {
                                  auto store = SqliteStore::Open({folder + "/state.db", 0});
                                  return store.ok() ? *std::move(store) : nullptr;
                                }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace engram::placement
