#include "client/route_board.h"

#include <utility>

namespace engram::client {

RouteBoard::RouteBoard(Quiescence* quiescence, std::shared_ptr<const Routes> routes)
    : quiescence_(quiescence), current_(routes.get()), newest_(std::move(routes)) {}

RouteVersion RouteBoard::Publish(std::shared_ptr<const Routes> routes) {
  MutexLock lock(&mutex_);
  std::shared_ptr<const Routes> old = std::exchange(newest_, std::move(routes));
  current_.store(newest_.get(), std::memory_order_seq_cst);
  const RouteVersion version = quiescence_->Publish();
  kept_.push_back({version, std::move(old)});
  std::erase_if(kept_, [&](const Kept& kept) { return quiescence_->Past(kept.replaced); });
  return version;
}

std::shared_ptr<const Routes> RouteBoard::Shared() const {
  MutexLock lock(&mutex_);
  return newest_;
}

}  // namespace engram::client
