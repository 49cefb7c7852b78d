#include "poolserver/exposure.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace engram::poolserver {

Exposure::Exposure(std::vector<std::unique_ptr<fabric::Target>> targets)
    : targets_(std::move(targets)) {}

Exposure::~Exposure() { Stop(); }

std::vector<PathAddress> Exposure::paths() const {
  std::vector<PathAddress> out;
  for (const auto& target : targets_) out.push_back(target->address());
  return out;
}

void Exposure::SetIncarnation(Incarnation incarnation) {
  for (const auto& target : targets_) target->SetIncarnation(incarnation);
}

absl::StatusOr<std::vector<GrantPath>> Exposure::Expose(const ShardKey& shard, const Place& place,
                                                        std::uint32_t stride) {
  std::vector<GrantPath> paths;
  Exposed exposed;
  exposed.bytes = place.length;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    auto region = targets_[i]->Expose({place.slab, place.offset, place.length, stride});
    if (!region.ok()) {
      for (std::size_t done = 0; done < i; ++done) targets_[done]->Hide(exposed.keys[done]);
      return absl::Status(region.status().code(),
                          absl::StrCat("fabric ", std::string(Name(targets_[i]->info().kind)), " (",
                                       targets_[i]->info().provider, ") cannot expose ",
                                       place.length, " bytes: ", region.status().message()));
    }
    exposed.keys.push_back(region->key);
    paths.push_back({static_cast<std::uint32_t>(i), region->address, region->length, region->key});
  }
  MutexLock lock(&mutex_);
  registered_bytes_ += exposed.bytes;
  exposed_[shard] = std::move(exposed);
  return paths;
}

void Exposure::Hide(const ShardKey& shard) {
  Exposed exposed;
  {
    MutexLock lock(&mutex_);
    auto found = exposed_.find(shard);
    if (found == exposed_.end()) return;
    exposed = std::move(found->second);
    exposed_.erase(found);
    registered_bytes_ -= exposed.bytes;
  }
  for (std::size_t i = 0; i < targets_.size(); ++i) targets_[i]->Hide(exposed.keys[i]);
}

void Exposure::Admit(const SessionToken& session, const std::string& tenant) {
  for (const auto& target : targets_) target->AdmitFor(session, tenant);
}

void Exposure::SetBudgets(std::span<const TenantPolicy> tenants) {
  std::vector<std::pair<std::string, std::uint64_t>> budgets;
  for (const TenantPolicy& tenant : tenants) {
    if (tenant.rows_per_second > 0) budgets.emplace_back(tenant.tenant, tenant.rows_per_second);
  }
  for (const auto& target : targets_) target->SetBudgets(budgets);
}

void Exposure::Dismiss(const SessionToken& session) {
  for (const auto& target : targets_) target->Dismiss(session);
}

std::vector<std::uint64_t> Exposure::KeysOf(const ShardKey& shard) const {
  MutexLock lock(&mutex_);
  auto found = exposed_.find(shard);
  return found == exposed_.end() ? std::vector<std::uint64_t>{} : found->second.keys;
}

void Exposure::Allow(const SessionToken& session, std::span<const ShardKey> shards) {
  for (const ShardKey& shard : shards) {
    const std::vector<std::uint64_t> keys = KeysOf(shard);
    for (std::size_t i = 0; i < keys.size(); ++i) targets_[i]->Allow(session, keys[i]);
  }
}

void Exposure::Disallow(const SessionToken& session, std::span<const ShardKey> shards) {
  for (const ShardKey& shard : shards) {
    const std::vector<std::uint64_t> keys = KeysOf(shard);
    for (std::size_t i = 0; i < keys.size(); ++i) targets_[i]->Disallow(session, keys[i]);
  }
}

std::uint64_t Exposure::registered_bytes() const {
  MutexLock lock(&mutex_);
  return registered_bytes_;
}

void Exposure::Stop() {
  for (const auto& target : targets_) target->Stop();
}

}  // namespace engram::poolserver
