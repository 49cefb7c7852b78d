#include "client/gpu/ring_poller.h"

#include <time.h>

#include <system_error>

#include "absl/strings/str_cat.h"

namespace engram::client::gpu {

absl::StatusOr<std::unique_ptr<RingPoller>> RingPoller::Start(RingService* service,
                                                              const Options& options) {
  std::unique_ptr<RingPoller> out(new RingPoller(service, options));
  try {
    out->thread_ = std::thread([raw = out.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a thread that looks at the rings: ", error.what()));
  }
  return out;
}

void RingPoller::Stop() {
  stopping_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
}

void RingPoller::Run() {
  const Clock& clock = SystemClock::Get();
  const timespec nap{options_.nap / std::chrono::seconds(1),
                     static_cast<long>((options_.nap % std::chrono::seconds(1)).count())};
  Instant moved = clock.Now();
  while (!stopping_.load(std::memory_order_acquire)) {
    if (service_.Serve() || service_.busy()) {
      moved = clock.Now();
    } else if (clock.Now() - moved >= options_.spin) {
      nanosleep(&nap, nullptr);
    }
  }
  service_.Close();
}

}  // namespace engram::client::gpu
