#include "fabric/stream/grants.h"

#include <algorithm>
#include <utility>

namespace engram::fabric::stream {

std::uint64_t Grants::Add(std::unique_ptr<RowSource> source, std::uint64_t length) {
  auto region = std::make_unique<Region>();
  region->length = length;
  region->memory = source->Memory();
  region->source = std::move(source);
  MutexLock lock(&mutex_);
  // 64 random bits: a key that was used before comes back with a chance of 2^-64 a draw.
  do {
    region->key = random_.Next();
  } while (region->key == 0 || regions_.contains(region->key));
  const std::uint64_t key = region->key;
  regions_.emplace(key, std::move(region));
  return key;
}

void Grants::Remove(std::uint64_t key) {
  MutexLock lock(&mutex_);
  auto found = regions_.find(key);
  if (found == regions_.end()) return;
  std::unique_ptr<Region> region = std::move(found->second);
  regions_.erase(found);
  for (const auto& session : sessions_) session->allowed.erase(key);
  mutex_.Await([&] { return region->pins == 0; });
}

void Grants::Admit(const SessionToken& token, std::shared_ptr<TenantMeter> meter) {
  MutexLock lock(&mutex_);
  for (const auto& session : sessions_) {
    if (session->token == token) return;
  }
  sessions_.push_back(std::make_shared<Session>());
  sessions_.back()->token = token;
  sessions_.back()->meter = std::move(meter);
}

void Grants::Dismiss(const SessionToken& token) {
  MutexLock lock(&mutex_);
  std::erase_if(sessions_, [&](const std::shared_ptr<Session>& session) {
    if (session->token != token) return false;
    session->dismissed = true;
    session->allowed.clear();
    return true;
  });
}

void Grants::Allow(const SessionToken& token, std::uint64_t key) {
  MutexLock lock(&mutex_);
  const auto region = regions_.find(key);
  if (region == regions_.end()) return;
  for (const auto& session : sessions_) {
    if (session->token == token) session->allowed[key] = region->second.get();
  }
}

void Grants::Disallow(const SessionToken& token, std::uint64_t key) {
  MutexLock lock(&mutex_);
  for (const auto& session : sessions_) {
    if (session->token == token) session->allowed.erase(key);
  }
}

std::shared_ptr<Grants::Session> Grants::Find(const SessionToken& token) const {
  MutexLock lock(&mutex_);
  std::shared_ptr<Session> found;
  for (const auto& session : sessions_) {
    if (SameToken(session->token, token)) found = session;
  }
  return found;
}

bool Grants::Dismissed(const Session& session) const {
  MutexLock lock(&mutex_);
  return session.dismissed;
}

void Grants::Pin(const Session& session, std::span<const std::uint64_t> keys, Region** out) {
  MutexLock lock(&mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto found = session.allowed.find(keys[i]);
    out[i] = found == session.allowed.end() ? nullptr : found->second;
    if (out[i] != nullptr) ++out[i]->pins;
  }
}

void Grants::Unpin(std::span<Region* const> regions) {
  MutexLock lock(&mutex_);
  for (Region* region : regions) {
    if (region != nullptr) --region->pins;
  }
}

}  // namespace engram::fabric::stream
