#include "bench/driver/fio.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/driver/local_pool.h"

namespace engram::bench {

namespace {

// One number of what fio says when it runs these arguments.
absl::StatusOr<double> Fio(std::vector<std::string> arguments, const std::string& pointer) {
  std::vector<std::string> command{"fio", "--name=floor", "--ioengine=io_uring", "--direct=1",
                                   "--output-format=json"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  auto said = RunProgram(command);
  if (!said.ok()) {
    return absl::UnavailableError(
        absl::StrCat(said.status().message(), " (Debian has it as fio; ./dev install-tools)"));
  }
  const auto json = nlohmann::json::parse(said->substr(said->find('{')), nullptr, false);
  const nlohmann::json::json_pointer at(pointer);
  if (json.is_discarded() || !json.contains(at))
    return absl::UnavailableError(absl::StrCat("fio did not say ", pointer, ": ", *said));
  return json.at(at).get<double>();
}

}  // namespace

absl::StatusOr<double> FioReadsPerSecond(const std::vector<std::string>& files, std::uint32_t depth,
                                         double seconds) {
  return Fio({"--readonly", absl::StrCat("--filename=", absl::StrJoin(files, ":")),
              "--file_service_type=random", "--bs=4k", "--rw=randread", "--norandommap",
              "--randrepeat=0", "--time_based", absl::StrCat("--iodepth=", depth),
              absl::StrCat("--runtime=", static_cast<int>(seconds * 1000), "ms")},
             "/jobs/0/read/iops");
}

absl::StatusOr<double> FioBytesPerSecond(const std::string& file, std::uint64_t bytes,
                                         Sequential what) {
  const bool reads = what == Sequential::kRead;
  return Fio(
      {absl::StrCat("--filename=", file), absl::StrCat("--size=", bytes), "--bs=1m", "--iodepth=4",
       reads ? "--rw=read" : "--rw=write", reads ? "--readonly" : "--end_fsync=1"},
      reads ? "/jobs/0/read/bw_bytes" : "/jobs/0/write/bw_bytes");
}

}  // namespace engram::bench
