// config.json and synthetic spec -> table spec -> addressing of a few tokens. Big geometries are
// left out: they are slow, not dangerous.
#include <cstdint>
#include <string_view>
#include <vector>

#include "engram/check.h"
#include "engram/checkpoint/config.h"
#include "engram/checkpoint/synthetic_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)engram::ParseCheckpointConfig(text, "config.json");
  if (text.find("token_map") != std::string_view::npos) return 0;  // names a file
  auto table = engram::ParseSyntheticSpec(text, "spec.json", "/nonexistent");
  if (!table.ok() || table->spec.columns.size() > 1000) return 0;
  const auto addressing = engram::Addressing::Make(table->spec, table->token_map);
  ENGRAM_CHECK(addressing.ok());
  const std::int64_t tokens[] = {0, 1, static_cast<std::int64_t>(size)};
  std::vector<engram::RowId> rows(3 * (*addressing)->columns());
  if (!(*addressing)->Rows({tokens, {}, {}, {}}, rows).ok()) return 0;
  for (const engram::RowId row : rows) ENGRAM_CHECK(row.value() < table->spec.Rows());
  return 0;
}
