#include "engram/not_leader.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace engram {
namespace {

constexpr absl::string_view kMark = "NOT_LEADER: ";
constexpr absl::string_view kNames = "this controller follows; ask the leader at ";

}  // namespace

absl::Status NotLeader(const std::string& leader) {
  return absl::UnavailableError(
      leader.empty()
          ? absl::StrCat(kMark, "no controller leads at the moment; try again in some seconds")
          : absl::StrCat(kMark, kNames, leader));
}

bool IsNotLeader(const absl::Status& status) {
  return absl::IsUnavailable(status) && absl::StrContains(status.message(), kMark);
}

std::optional<std::string> LeaderNamedBy(const absl::Status& status) {
  if (!IsNotLeader(status)) return std::nullopt;
  const absl::string_view said = status.message();
  const std::size_t at = said.find(kNames);
  if (at == absl::string_view::npos) return std::nullopt;
  const absl::string_view rest = said.substr(at + kNames.size());
  return std::string(rest.substr(0, rest.find_first_of(" ;,)")));
}

}  // namespace engram
