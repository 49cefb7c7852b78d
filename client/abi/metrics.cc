// engram_metrics: what the open tables of this process have read.
#include <cstring>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/abi/handles.h"
#include "client/metrics_text.h"
#include "engram/mutex.h"

namespace engram::client::abi {
namespace {

struct OpenTables {
  Mutex mutex;
  std::set<const engram_table*> tables ABSL_GUARDED_BY(mutex);
};
OpenTables& Open() {
  static auto* const open = new OpenTables();  // never destroyed: tables may outlive main's statics
  return *open;
}

absl::Status GiveMetrics(char* text, std::size_t bytes, std::size_t* needed) {
  if (needed == nullptr) return absl::InvalidArgumentError("needed is NULL");
  *needed = 0;
  if (text == nullptr && bytes > 0) return absl::InvalidArgumentError("text is NULL");
  // A child's copy of the lock may be held for ever.
  if (absl::Status status = CheckForks(); !status.ok()) return status;
  std::vector<TableNumbers> numbers;
  {
    MutexLock lock(&Open().mutex);
    for (const engram_table* table : Open().tables) {
      numbers.push_back({table->pool->endpoints, table->table->record().name.Full(),
                         table->pool->pool->map()->epoch(), table->table->Totals()});
    }
  }
  const std::string whole = MetricsText(numbers);
  *needed = whole.size() + 1;
  if (bytes == 0) return absl::OkStatus();
  if (bytes < *needed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the metrics are ", *needed, " bytes and text has ", bytes,
                     "; give that many and some to spare: tables may be opened meanwhile"));
  }
  std::memcpy(text, whole.c_str(), *needed);
  return absl::OkStatus();
}

}  // namespace

Counted::Counted(const engram_table* table) : table_(table) {}

void Counted::Begin() {
  MutexLock lock(&Open().mutex);
  Open().tables.insert(table_);
}

Counted::~Counted() {
  MutexLock lock(&Open().mutex);
  Open().tables.erase(table_);
}

}  // namespace engram::client::abi

engram_status engram_metrics(char* text, size_t bytes, size_t* needed) {
  return engram::client::abi::Guard(
      [&] { return engram::client::abi::GiveMetrics(text, bytes, needed); });
}
