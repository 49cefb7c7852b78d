#include "client/map_follower.h"

#include <algorithm>

namespace engram::client {

std::vector<MapFollower::Action> MapFollower::OnEvent(Instant now, const Event& event) {
  std::vector<Action> out;
  if (std::holds_alternative<Start>(event)) {
    Ask(map_->epoch(), out);
  } else if (std::holds_alternative<Timer>(event)) {
    if (retry_at_ && now >= *retry_at_) Ask(map_->epoch(), out);
  } else if (const auto* arrived = std::get_if<DeltaArrived>(&event)) {
    if (arrived->subscription == subscription_) Apply(now, *arrived, out);
  } else if (std::get<StreamLost>(event).subscription == subscription_) {
    RetryLater(now);
  }
  return out;
}

void MapFollower::Ask(Epoch from, std::vector<Action>& out) {
  subscription_ = Subscription(subscription_.value() + 1);
  retry_at_.reset();
  out.push_back(Subscribe{subscription_, from});
}

void MapFollower::Apply(Instant now, const DeltaArrived& event, std::vector<Action>& out) {
  connected_ = true;
  backoff_ = Duration(0);
  // An epoch never goes back: a controller that knows less than we do is behind, not ahead.
  if (event.delta.to < map_->epoch()) return RetryLater(now);
  if (event.delta.to == map_->epoch()) return;
  auto next = map_->Apply(event.delta);
  if (!next.ok()) return Ask(Epoch(0), out);
  map_ = *std::move(next);
  out.push_back(UseMap{map_});
}

void MapFollower::RetryLater(Instant now) {
  connected_ = false;
  // Events of the stream that is being left are ignored from here on.
  subscription_ = Subscription(subscription_.value() + 1);
  backoff_ = std::clamp(backoff_ * 2, options_.backoff_min, options_.backoff_max);
  retry_at_ = now + backoff_;
}

}  // namespace engram::client
