// Who a program is, as its certificate says it: one URI among the subject's alternative names,
//
//   spiffe://DOMAIN/engram/controller/NAME
//   spiffe://DOMAIN/engram/node/NODE-ID
//   spiffe://DOMAIN/engram/client/TENANT/NAME
//   spiffe://DOMAIN/engram/admin/NAME
//
// DOMAIN is for people: which certificates are believed is the business of the certificate
// authority. Names are letters, digits and "._-". What a role may call stands beside each RPC in
// proto/engram/v1. Pure values and functions: Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engram/table_spec.h"

namespace engram {

enum class Role : std::uint8_t { kController = 1, kNode = 2, kClient = 3, kAdmin = 4 };
std::string_view Name(Role role);

struct Identity {
  Role role = Role::kClient;
  std::string tenant;  // of a client
  std::string name;
  // "client team-a/replica-7", "node pool-3", for people.
  std::string Describe() const;
  friend bool operator==(const Identity&, const Identity&) = default;
};

// The tenant of tables and clients that name none.
inline constexpr std::string_view kDefaultTenant = "default";

// 1 to 253 letters, digits and "._-": what an identity can carry.
bool IsIdentityName(std::string_view name);

// InvalidArgument says what a URI of the pool looks like.
absl::StatusOr<Identity> ParseIdentity(std::string_view uri);

// The one identity among the URIs of a certificate; others (of other systems) are left alone.
// InvalidArgument: none or several.
absl::StatusOr<Identity> IdentityAmong(std::span<const std::string> uris);

// PermissionDenied names who calls, the method and who may. `allowed` empty: nobody may.
absl::Status CheckRole(const Identity& caller, std::span<const Role> allowed,
                       std::string_view method);

// The tenant that a table or client stands for: the default where it names none.
std::string_view TenantOr(std::string_view tenant);
// Whether clients of `tenant` may read a table of `owner`: their own, and those that `granted` has
// as NAME or NAME@VERSION.
bool TenantMayRead(std::string_view tenant, std::string_view owner, const TableName& table,
                   std::span<const std::string> granted);

}  // namespace engram
