#include "poolserver/exposure.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engram/identity.h"

namespace engram::poolserver {

Exposure::Exposure(std::vector<std::unique_ptr<fabric::Target>> targets,
                   fabric::stream::StreamTarget* stream)
    : targets_(std::move(targets)),
      stream_(stream),
      next_path_(static_cast<std::uint32_t>(targets_.size())) {}

Exposure::~Exposure() { Stop(); }

std::vector<PathAddress> Exposure::paths() const {
  std::vector<PathAddress> out;
  for (const auto& target : targets_) out.push_back(target->address());
  MutexLock lock(&mutex_);
  for (std::uint32_t i = 0; i < targets_.size(); ++i) {
    const auto followed = domains_.find({i, std::string(kDefaultTenant)});
    if (followed != domains_.end()) out[i] = followed->second.path.address;
  }
  return out;
}

void Exposure::SetIncarnation(Incarnation incarnation) {
  for (const auto& target : targets_) target->SetIncarnation(incarnation);
}

// Only one thread exposes at a time, so a domain is opened once.
absl::StatusOr<Exposure::Way> Exposure::WayOf(std::uint32_t target, const std::string& owner) {
  fabric::Target* whole = targets_[target].get();
  const std::string tenant(TenantOr(owner));
  if (!whole->info().bearer_keys) return Way{whole, target};
  {
    MutexLock lock(&mutex_);
    const auto found = domains_.find({target, tenant});
    if (found != domains_.end()) {
      const Domain& domain = found->second;
      return Way{domain.target.get(), domain.path.path, domain.path};
    }
    if (tenant == kDefaultTenant) return Way{whole, target};
    const std::size_t open = std::count_if(domains_.begin(), domains_.end(), [&](const auto& one) {
      return one.first.first == target;
    });
    if (open >= kMostDomains) {
      return absl::ResourceExhaustedError(
          absl::StrCat(open, " tenants have a domain of their own already, the limit: tenant ",
                       tenant, " needs another node"));
    }
  }
  auto opened = whole->OpenDomain();
  if (!opened.ok()) {
    return absl::Status(opened.status().code(), absl::StrCat("no domain for tenant ", tenant, ": ",
                                                             opened.status().message()));
  }
  MutexLock lock(&mutex_);
  const std::uint32_t number = next_path_++;
  Domain& domain = domains_[{target, tenant}];
  domain.target = *std::move(opened);
  domain.path = {number, domain.target->address()};
  return Way{domain.target.get(), number, domain.path};
}

// The targets and domains that new registrations go to, where they can move.
std::vector<Exposure::Follower> Exposure::Reachable() const {
  std::vector<Follower> out;
  MutexLock lock(&mutex_);
  for (const auto& [key, domain] : domains_)
    out.push_back({key.first, domain.path.path, key.second, domain.target.get()});
  for (std::uint32_t i = 0; i < targets_.size(); ++i) {
    const std::string whole(kDefaultTenant);
    if (targets_[i]->info().bearer_keys && !domains_.contains({i, whole}))
      out.push_back({i, i, whole, targets_[i].get()});
  }
  return out;
}

Exposure::Followed Exposure::FollowAddresses() {
  Followed out;
  for (const Follower& one : Reachable()) {
    if (!one.current->Moved()) continue;
    auto opened = targets_[one.target]->OpenDomain();
    if (!opened.ok()) continue;
    out.left.insert(one.left);
    out.now.push_back((*opened)->address());
    MutexLock lock(&mutex_);
    Domain& domain = domains_[{one.target, one.tenant}];
    if (domain.target != nullptr) left_.push_back(std::move(domain.target));
    domain = {*std::move(opened), {next_path_++, out.now.back()}, {}};
  }
  StopUnused();
  return out;
}

// Domains that were left and have nothing exposed any more.
void Exposure::StopUnused() {
  std::vector<std::unique_ptr<fabric::Target>> unused;  // stopped without the lock
  MutexLock lock(&mutex_);
  for (auto& target : left_) {
    const bool used = std::any_of(exposed_.begin(), exposed_.end(), [&](const auto& one) {
      return std::any_of(one.second.keys.begin(), one.second.keys.end(),
                         [&](const Key& key) { return key.target == target.get(); });
    });
    if (!used) unused.push_back(std::move(target));
  }
  std::erase(left_, nullptr);
}

std::optional<std::pair<GrantPath, Exposure::Key>> Exposure::Shared(
    const RegistrationKey& registration, const Place& place, const fabric::Target* target) const {
  if (target->info().bearer_keys) return std::nullopt;
  MutexLock lock(&mutex_);
  auto it = exposed_.lower_bound({registration.shard, RegistrationId()});
  for (; it != exposed_.end() && it->first.shard == registration.shard; ++it) {
    const Exposed& other = it->second;
    if (other.place.slab != place.slab || other.place.offset != place.offset) continue;
    for (std::size_t i = 0; i < other.keys.size(); ++i) {
      if (other.keys[i].target == target) return std::pair(other.paths[i], other.keys[i]);
    }
  }
  return std::nullopt;
}

absl::Status Exposure::ExposeOn(std::uint32_t number, const ExposeReplica& replica,
                                const Place& place, std::uint32_t stride, Exposed* exposed,
                                ReplicaExposed* out) {
  absl::StatusOr<Way> way = WayOf(number, replica.tenant);
  if (!way.ok()) return way.status();
  const auto region = way->target->Expose(
      {place.slab, place.offset, place.length, stride, replica.registration.shard});
  if (!region.ok()) return region.status();
  if (way->opened) out->opened.push_back(*way->opened);
  exposed->keys.push_back({way->target, region->key});
  exposed->paths.push_back({way->path, region->address, region->length, region->key});
  return absl::OkStatus();
}

absl::StatusOr<ReplicaExposed> Exposure::Expose(const ExposeReplica& replica, const Place& place,
                                                std::uint32_t stride) {
  ReplicaExposed out{replica.registration, {}, false, {}};
  Exposed exposed{replica.tier, place, {}, {}}, shared = exposed;
  for (std::uint32_t i = 0; i < targets_.size(); ++i) {
    const fabric::Target& target = *targets_[i];
    const fabric::FabricInfo& info = target.info();
    if (!target.Reaches(*place.slab)) continue;
    out.bearer_keys = out.bearer_keys || info.bearer_keys;
    if (const auto same = Shared(replica.registration, place, &target)) {
      shared.paths.push_back(same->first);
      shared.keys.push_back(same->second);
      continue;
    }
    const absl::Status status = ExposeOn(i, replica, place, stride, &exposed, &out);
    if (status.ok()) continue;
    for (const Key& made : exposed.keys) made.target->Hide(made.key);
    return absl::Status(status.code(), absl::StrCat("fabric ", std::string(Name(info.kind)), " (",
                                                    info.provider, ") cannot expose ", place.length,
                                                    " bytes: ", status.message()));
  }
  exposed.paths.insert(exposed.paths.end(), shared.paths.begin(), shared.paths.end());
  exposed.keys.insert(exposed.keys.end(), shared.keys.begin(), shared.keys.end());
  if (exposed.paths.empty() && !targets_.empty()) {
    return absl::FailedPreconditionError(
        "no fabric of this node reaches memory of a device: add stream, ofi or ucx to --fabrics");
  }
  out.paths = exposed.paths;
  Keep(replica.registration, std::move(exposed));
  return out;
}

absl::StatusOr<ReplicaExposed> Exposure::ExposeRows(const ExposeReplica& replica,
                                                    std::unique_ptr<fabric::stream::RowSource> rows,
                                                    std::uint64_t length) {
  if (stream_ == nullptr) {
    return absl::FailedPreconditionError(
        "rows that lie in no memory are read through the gather alone: add stream to --fabrics");
  }
  std::uint32_t path = 0;
  while (targets_[path].get() != stream_) ++path;
  const fabric::ExposedRegion region = stream_->ExposeSource(std::move(rows), length);
  const GrantPath way{path, region.address, region.length, region.key};
  Keep(replica.registration, {replica.tier, {}, {way}, {{stream_, region.key}}});
  return ReplicaExposed{replica.registration, {way}, false, {}};
}

void Exposure::Keep(const RegistrationKey& registration, Exposed exposed) {
  MutexLock lock(&mutex_);
  registered_bytes_[exposed.tier] += exposed.place.length;
  exposed_[registration] = std::move(exposed);
}

void Exposure::Hide(const RegistrationKey& registration) {
  std::vector<Key> hidden;
  {
    MutexLock lock(&mutex_);
    const auto found = exposed_.extract(registration);
    if (found.empty()) return;
    hidden = found.mapped().keys;
    registered_bytes_[found.mapped().tier] -= found.mapped().place.length;
    auto it = exposed_.lower_bound({registration.shard, RegistrationId()});
    for (; it != exposed_.end() && it->first.shard == registration.shard; ++it) {
      for (const Key& key : it->second.keys) std::erase(hidden, key);
    }
  }
  for (const Key& key : hidden) key.target->Hide(key.key);
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
  MutexLock lock(&mutex_);
  for (auto& [key, domain] : domains_) {
    if (domain.admitted.erase(session) != 0) domain.target->Dismiss(session);
  }
}

std::vector<Exposure::Key> Exposure::KeysOf(const RegistrationKey& registration) const {
  MutexLock lock(&mutex_);
  const auto found = exposed_.find(registration);
  return found == exposed_.end() ? std::vector<Key>{} : found->second.keys;
}

void Exposure::AdmitToDomain(const SessionToken& session, const fabric::Target* target) {
  MutexLock lock(&mutex_);
  for (auto& [key, domain] : domains_) {
    if (domain.target.get() != target) continue;
    if (domain.admitted.insert(session).second) domain.target->AdmitFor(session, key.second);
  }
}

void Exposure::Allow(const SessionToken& session, std::span<const RegistrationKey> registrations) {
  for (const RegistrationKey& registration : registrations) {
    for (const Key& key : KeysOf(registration)) {
      AdmitToDomain(session, key.target);
      key.target->Allow(session, key.key);
    }
  }
}

void Exposure::Disallow(const SessionToken& session,
                        std::span<const DisallowReplicas::Ended> ended) {
  for (const auto& [registration, kept] : ended) {
    std::vector<Key> still;
    if (kept) still = KeysOf({registration.shard, *kept});
    for (const Key& key : KeysOf(registration)) {
      if (std::find(still.begin(), still.end(), key) != still.end()) continue;
      key.target->Disallow(session, key.key);
    }
  }
}

std::uint64_t Exposure::registered_bytes(Tier tier) const {
  MutexLock lock(&mutex_);
  const auto found = registered_bytes_.find(tier);
  return found == registered_bytes_.end() ? 0 : found->second;
}

void Exposure::Stop() {
  for (const auto& target : targets_) target->Stop();
  MutexLock lock(&mutex_);
  for (const auto& [key, domain] : domains_) domain.target->Stop();
  for (const auto& target : left_) target->Stop();
}

}  // namespace engram::poolserver
