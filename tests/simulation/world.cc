#include "tests/simulation/world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace engram::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Duration World::Between(Duration from, Duration to) {
  return from + Duration(Below(static_cast<std::uint64_t>((to - from).count())));
}

void World::At(Instant when, Event event) {
  queue_.push({std::max(when, now_), ++order_, std::move(event)});
}

void World::RunUntil(Instant end) {
  while (!queue_.empty() && queue_.top().when <= end && failures_.empty()) {
    now_ = queue_.top().when;
    // The queue gives only const access to its top, which is popped at once.
    Event event = std::move(const_cast<Entry&>(queue_.top()).event);
    queue_.pop();
    event();
  }
  now_ = std::max(now_, end);
}

void World::Fail(const std::string& what) {
  Trace("FAILED: " + what);
  failures_.push_back(what);
}

void World::Trace(const std::string& line) const {
  if (!tracing_) return;
  std::fprintf(stderr, "%12.6f %s\n",
               std::chrono::duration<double>(now_.time_since_epoch()).count() - 1'000,
               line.c_str());
}

void World::Cut(const std::string& a, const std::string& b, Instant until) {
  cuts_[std::minmax(a, b)] = until;
}

void World::Slow(const std::string& from, const std::string& to, Instant until, Duration most) {
  slow_[{from, to}] = {until, most};
}

Duration World::Slowness(const std::string& from, const std::string& to) {
  const auto it = slow_.find({from, to});
  return it == slow_.end() || it->second.first <= now_ ? Duration(0)
                                                       : Between(Duration(0), it->second.second);
}

Instant World::PassableAt(const std::string& a, const std::string& b) const {
  const auto it = cuts_.find(std::minmax(a, b));
  return it == cuts_.end() ? now_ : std::max(now_, it->second);
}

Instant Process::LocalClock::Now() const {
  const Duration elapsed = process_.world_->now() - process_.origin_;
  return process_.origin_ + process_.offset_ + elapsed +
         Duration(elapsed.count() / 1'000'000 * process_.rate_ppm_);
}

Process::Process(World* world, std::string name, std::int64_t rate_ppm, Duration offset)
    : world_(world),
      name_(std::move(name)),
      rate_ppm_(rate_ppm),
      offset_(offset),
      origin_(world->now()) {}

void Process::Start() {
  ++life_;
  alive_ = true;
  stopped_ = false;
  awake_since_ = world_->now();
  world_->Trace(name_ + " starts");
}

void Process::Crash() {
  if (!alive_) return;
  world_->Trace(name_ + " crashes");
  alive_ = false;
  stopped_ = false;
  held_.clear();
  for (const auto& weak : streams_) {
    if (const auto stream = weak.lock()) stream->Close(this);
  }
  streams_.clear();
}

void Process::Wake() {
  if (!stopped_) return;
  world_->Trace(name_ + " wakes");
  stopped_ = false;
  awake_since_ = world_->now();
  // What waited runs in any order: streams keep theirs by themselves.
  for (World::Event& event : held_) {
    After(world_->Between(microseconds(0), milliseconds(2)), std::move(event));
  }
  held_.clear();
}

Process::~Process() {
  for (const auto& held : streams_) {
    if (const auto stream = held.lock()) stream->Forget();
  }
}

void Process::Run(std::uint64_t life, World::Event event) {
  if (!alive_ || life != life_) return;
  if (stopped_) {
    held_.push_back(std::move(event));
  } else {
    event();
  }
}

void Process::After(Duration delay, World::Event event) {
  world_->After(delay, [this, life = life_, event = std::move(event)]() mutable {
    Run(life, std::move(event));
  });
}

void Process::AtLocal(Instant local, World::Event event) {
  const Duration wait = local - Now();
  // Never early: a timer that fires before its time would be armed again and again.
  const Duration scaled = wait - Duration(wait.count() / 1'000'000 * rate_ppm_) + microseconds(50);
  After(std::max(scaled, Duration(0)), std::move(event));
}

std::shared_ptr<Stream> Stream::Connect(World* world, Process* a, Process* b) {
  std::shared_ptr<Stream> stream(new Stream(world));
  Process* const processes[2] = {a, b};
  for (std::size_t i = 0; i < 2; ++i) {
    stream->ends_[i].process = processes[i];
    stream->ends_[i].life = processes[i]->life();
    processes[i]->Join(stream);
  }
  return stream;
}

void Stream::OnLost(const Process* end, World::Event lost) {
  ends_[Index(end)].lost = std::move(lost);
}

void Stream::Send(const Process* from, World::Event deliver) {
  if (!ends_[Index(from)].open) return;
  Push(ends_[1 - Index(from)], std::move(deliver));
}

void Stream::Push(End& to, World::Event event) {
  to.inbox.push_back(std::move(event));
  Duration delay = world_->Chance(4) ? world_->Between(milliseconds(5), milliseconds(400))
                                     : world_->Between(microseconds(50), milliseconds(3));
  const Process* from = ends_[1 - Index(to.process)].process;
  delay += world_->Slowness(from->name(), to.process->name());
  to.last_arrival = std::max(to.last_arrival, world_->now() + delay);
  world_->At(to.last_arrival,
             [self = shared_from_this(), index = Index(to.process)] { self->Arrive(index); });
}

void Stream::Arrive(std::size_t index) {
  End& to = ends_[index];
  const Instant passable = world_->PassableAt(ends_[0].process->name(), ends_[1].process->name());
  if (passable > world_->now()) {
    world_->At(passable + world_->Between(milliseconds(1), milliseconds(20)),
               [self = shared_from_this(), index] { self->Arrive(index); });
    return;
  }
  to.process->Run(to.life, [self = shared_from_this(), &to] {
    if (to.taken >= to.inbox.size()) return;
    const World::Event event = std::move(to.inbox[to.taken++]);
    if (to.open) event();
  });
}

World::Event Stream::LostAt(std::size_t index) {
  // Runs out of this stream's own inbox, so it must not keep the stream.
  return [this, index] {
    End& end = ends_[index];
    end.open = false;
    if (end.lost) end.lost();
  };
}

void Stream::Close(const Process* from) {
  const std::size_t index = Index(from);
  if (!ends_[index].open) return;
  ends_[index].open = false;
  ends_[index].lost = nullptr;
  Push(ends_[1 - index], LostAt(1 - index));
}

void Stream::Forget() {
  for (End& end : ends_) {
    end.taken = 0;
    end.lost = nullptr;
    std::exchange(end.inbox, {});
  }
}

void Stream::Sever() {
  for (std::size_t i = 0; i < 2; ++i) {
    End& end = ends_[i];
    if (!end.open) continue;
    end.inbox.resize(end.taken);
    Push(end, LostAt(i));
  }
}

}  // namespace engram::simulation
