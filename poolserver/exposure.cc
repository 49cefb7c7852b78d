#include "poolserver/exposure.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace engram::poolserver {

Exposure::Exposure(std::vector<std::unique_ptr<fabric::Target>> targets,
                   fabric::stream::StreamTarget* stream)
    : targets_(std::move(targets)), stream_(stream) {}

Exposure::~Exposure() { Stop(); }

std::vector<PathAddress> Exposure::paths() const {
  std::vector<PathAddress> out;
  for (const auto& target : targets_) out.push_back(target->address());
  return out;
}

void Exposure::SetIncarnation(Incarnation incarnation) {
  for (const auto& target : targets_) target->SetIncarnation(incarnation);
}

absl::StatusOr<std::vector<GrantPath>> Exposure::Expose(const ShardKey& shard, Tier tier,
                                                        const Place& place, std::uint32_t stride) {
  std::vector<GrantPath> paths;
  Exposed exposed;
  exposed.tier = tier;
  exposed.registered = place.length;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    fabric::Target& target = *targets_[i];
    if (!target.Reaches(*place.slab)) continue;
    auto region = target.Expose({place.slab, place.offset, place.length, stride, shard});
    if (!region.ok()) {
      for (const Key& done : exposed.keys) done.target->Hide(done.key);
      return absl::Status(region.status().code(),
                          absl::StrCat("fabric ", std::string(Name(target.info().kind)), " (",
                                       target.info().provider, ") cannot expose ", place.length,
                                       " bytes: ", region.status().message()));
    }
    exposed.keys.push_back({&target, region->key});
    paths.push_back({static_cast<std::uint32_t>(i), region->address, region->length, region->key});
  }
  if (paths.empty() && !targets_.empty()) {
    return absl::FailedPreconditionError(
        "no fabric of this node reaches memory of a device: add stream, ofi or ucx to --fabrics");
  }
  Keep(shard, std::move(exposed));
  return paths;
}

absl::StatusOr<std::vector<GrantPath>> Exposure::ExposeRows(
    const ShardKey& shard, std::unique_ptr<fabric::stream::RowSource> rows, std::uint64_t length) {
  if (stream_ == nullptr) {
    return absl::FailedPreconditionError(
        "rows that lie in no memory are read through the gather alone: add stream to --fabrics");
  }
  std::uint32_t path = 0;
  while (targets_[path].get() != stream_) ++path;
  const fabric::ExposedRegion region = stream_->ExposeSource(std::move(rows), length);
  Keep(shard, {{{stream_, region.key}}, Tier::kNvme, 0});
  return std::vector<GrantPath>{{path, region.address, region.length, region.key}};
}

void Exposure::Keep(const ShardKey& shard, Exposed exposed) {
  MutexLock lock(&mutex_);
  registered_bytes_[exposed.tier] += exposed.registered;
  exposed_[shard] = std::move(exposed);
}

void Exposure::Hide(const ShardKey& shard) {
  Exposed exposed;
  {
    MutexLock lock(&mutex_);
    auto found = exposed_.find(shard);
    if (found == exposed_.end()) return;
    exposed = std::move(found->second);
    exposed_.erase(found);
    registered_bytes_[exposed.tier] -= exposed.registered;
  }
  for (const Key& one : exposed.keys) one.target->Hide(one.key);
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

std::vector<Exposure::Key> Exposure::KeysOf(const ShardKey& shard) const {
  MutexLock lock(&mutex_);
  auto found = exposed_.find(shard);
  return found == exposed_.end() ? std::vector<Key>{} : found->second.keys;
}

void Exposure::Allow(const SessionToken& session, std::span<const ShardKey> shards) {
  for (const ShardKey& shard : shards) {
    for (const Key& one : KeysOf(shard)) one.target->Allow(session, one.key);
  }
}

void Exposure::Disallow(const SessionToken& session, std::span<const ShardKey> shards) {
  for (const ShardKey& shard : shards) {
    for (const Key& one : KeysOf(shard)) one.target->Disallow(session, one.key);
  }
}

std::uint64_t Exposure::registered_bytes(Tier tier) const {
  MutexLock lock(&mutex_);
  const auto found = registered_bytes_.find(tier);
  return found == registered_bytes_.end() ? 0 : found->second;
}

void Exposure::Stop() {
  for (const auto& target : targets_) target->Stop();
}

}  // namespace engram::poolserver
