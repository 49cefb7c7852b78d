#include "proto/controllers.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engram/check.h"
#include "engram/not_leader.h"
#include "proto/convert.h"

namespace engram::wire {
namespace {

// Leaders beyond the list whose channels are kept; more than a pool ever has.
constexpr std::size_t kMostNamed = 16;
// How often a named leader is followed in one call: each may name another while they elect one.
constexpr std::size_t kMostFollowed = 2;

}  // namespace

std::vector<std::string> Controllers::Split(const std::string& list) {
  std::vector<std::string> out;
  for (absl::string_view one : absl::StrSplit(list, ',')) {
    one = absl::StripAsciiWhitespace(one);
    if (!one.empty()) out.emplace_back(one);
  }
  return out;
}

absl::Status Controllers::Check(const std::string& list) {
  std::vector<std::string> all = Split(list);
  if (all.empty()) all.push_back(list);
  for (const std::string& one : all) {
    const std::size_t colon = one.rfind(':');
    std::uint32_t port = 0;
    if (colon != std::string::npos && colon > 0 && absl::SimpleAtoi(one.substr(colon + 1), &port) &&
        port > 0 && port < 65536) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("is \"", one, "\"; an endpoint is HOST:PORT, for instance 127.0.0.1:7700"));
  }
  return absl::OkStatus();
}

Controllers::Controllers(std::vector<std::string> endpoints, MakeChannel connect)
    : endpoints_(std::move(endpoints)), connect_(std::move(connect)) {
  ENGRAM_CHECK(!endpoints_.empty());
  MutexLock lock(&mutex_);
  current_ = Make(endpoints_.front());
}

Controllers::One Controllers::Make(const std::string& endpoint) {
  std::shared_ptr<grpc::Channel>& channel = channels_[endpoint];
  if (channel == nullptr) channel = connect_(endpoint);
  return {endpoint, channel};
}

Controllers::One Controllers::Current() const {
  MutexLock lock(&mutex_);
  return current_;
}

void Controllers::Failed(const One& asked, const absl::Status& why) {
  const std::optional<std::string> leader = LeaderNamedBy(why);
  MutexLock lock(&mutex_);
  if (current_.endpoint != asked.endpoint) return;
  if (leader && *leader != asked.endpoint) {
    if (channels_.size() >= endpoints_.size() + kMostNamed) channels_.clear();
    current_ = Make(*leader);
    return;
  }
  next_ = (next_ + 1) % endpoints_.size();
  if (endpoints_[next_] == asked.endpoint) next_ = (next_ + 1) % endpoints_.size();
  current_ = Make(endpoints_[next_]);
}

absl::Status Controllers::Call(
    const std::function<grpc::Status(const One&, grpc::ClientContext*)>& call, Duration timeout) {
  absl::Status status, refused;
  std::size_t followed = 0;
  for (std::size_t tried = 0; tried < endpoints_.size() + followed; ++tried) {
    const One one = Current();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
    const absl::Status answer = FromGrpc(call(one, &context));
    if (answer.ok()) return answer;
    status = absl::Status(answer.code(), absl::StrCat(one.endpoint, ": ", answer.message()));
    if (!absl::IsUnavailable(answer) && !absl::IsDeadlineExceeded(answer)) return status;
    if (IsNotLeader(answer)) refused = status;
    Failed(one, answer);
    if (LeaderNamedBy(answer) && followed < kMostFollowed) ++followed;
  }
  return refused.ok() ? status : refused;
}

}  // namespace engram::wire
