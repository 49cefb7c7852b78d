#include "placement/ops/election_loop.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace engram::placement {

ElectionLoop::ElectionLoop(std::unique_ptr<StateStore> store, Election::Options options,
                           LeaderLease* lease, const Clock* clock,
                           std::function<void(const std::string&)> say)
    : store_(std::move(store)),
      options_(options),
      election_(std::move(options)),
      lease_(lease),
      clock_(clock),
      say_(std::move(say)) {}

ElectionLoop::~ElectionLoop() { Stop(); }

void ElectionLoop::Start() {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "duty/election");
}

void ElectionLoop::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void ElectionLoop::Run() {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      const Duration wait = election_.NextTimer() - clock_->Now();
      mutex_.AwaitFor(std::max(wait, Duration::zero()),
                      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; });
      if (stopping_) break;
    }
    Feed(Election::Tick{});
  }
  Feed(Election::Resign{});
}

void ElectionLoop::Feed(const Election::Event& event) {
  std::vector<Election::Action> actions = election_.OnEvent(clock_->Now(), event);
  for (Election::Action& action : actions) std::visit([this](auto& one) { Do(one); }, action);
}

void ElectionLoop::Do(Election::ReadRecord&) {
  auto entry = store_->Get(kLeaderKey);
  Heard(entry.status());
  Feed(Election::RecordRead{std::move(entry)});
}

void ElectionLoop::Do(Election::WriteRecord& action) {
  const absl::StatusOr<Revision> revision = store_->Txn(action.txn);
  if (!absl::IsAborted(revision.status())) Heard(revision.status());
  Feed(Election::RecordWritten{revision});
}

void ElectionLoop::Do(Election::Lead& action) {
  lease_->Hold(action.until);
  if (!std::exchange(led_, true)) {
    say_(absl::StrCat("elected: leads as ", options_.address, ", term ", action.term));
  }
}

void ElectionLoop::Do(Election::Follow& action) {
  lease_->Lose(action.leader);
  if (std::exchange(led_, false)) say_("leads no more: the lease was lost or given up");
  if (!action.leader.empty()) say_(absl::StrCat("follows ", action.leader));
}

void ElectionLoop::Heard(const absl::Status& status) {
  if (status.ok()) {
    silent_ = false;
  } else if (!std::exchange(silent_, true)) {
    say_(absl::StrCat("the election cannot go on: ", status.message()));
  }
}

}  // namespace engram::placement
