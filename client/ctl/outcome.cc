#include "client/ctl/outcome.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace engram::ctl {
namespace {

constexpr char kUsageMark[] = "engram.dev/usage";
constexpr char kReportedMark[] = "engram.dev/reported";

bool HasMark(const absl::Status& status, const char* mark) {
  return status.GetPayload(mark).has_value();
}

}  // namespace

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsageMark, absl::Cord());
  return status;
}

absl::Status AlreadyReported(absl::StatusCode code) {
  absl::Status status(code, "reported");
  status.SetPayload(kReportedMark, absl::Cord());
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  if (HasMark(status, kUsageMark)) return kExitUsage;
  switch (status.code()) {
    case absl::StatusCode::kNotFound: return kExitNotFound;
    case absl::StatusCode::kUnavailable: return kExitUnavailable;
    case absl::StatusCode::kDeadlineExceeded: return kExitTimedOut;
    default: return kExitFailed;
  }
}

bool IsReported(const absl::Status& status) { return HasMark(status, kReportedMark); }

absl::Status Annotated(const absl::Status& status, const std::string& what) {
  absl::Status annotated(status.code(), absl::StrCat(what, ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view mark, const absl::Cord& value) { annotated.SetPayload(mark, value); });
  return annotated;
}

}  // namespace engram::ctl
