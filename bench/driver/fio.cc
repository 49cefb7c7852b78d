#include "bench/driver/fio.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/driver/local_pool.h"

namespace engram::bench {

absl::StatusOr<double> FioReadsPerSecond(const std::vector<std::string>& files, std::uint32_t depth,
                                         double seconds) {
  auto said = RunProgram(
      {"fio", "--name=floor", "--readonly", absl::StrCat("--filename=", absl::StrJoin(files, ":")),
       "--file_service_type=random", "--ioengine=io_uring", "--direct=1", "--bs=4k",
       "--rw=randread", "--norandommap", "--randrepeat=0", "--time_based",
       absl::StrCat("--iodepth=", depth),
       absl::StrCat("--runtime=", static_cast<int>(seconds * 1000), "ms"), "--output-format=json"});
  if (!said.ok()) {
    return absl::UnavailableError(
        absl::StrCat(said.status().message(), " (Debian has it as fio; ./dev install-tools)"));
  }
  const auto json = nlohmann::json::parse(said->substr(said->find('{')), nullptr, false);
  const auto at = nlohmann::json::json_pointer("/jobs/0/read/iops");
  if (json.is_discarded() || !json.contains(at))
    return absl::UnavailableError(absl::StrCat("fio did not say how many reads: ", *said));
  return json.at(at).get<double>();
}

}  // namespace engram::bench
