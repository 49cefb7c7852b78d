#include "engram/identity.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace engram {
namespace {

constexpr std::string_view kScheme = "spiffe://";
constexpr std::string_view kPool = "/engram/";
constexpr Role kRoles[] = {Role::kController, Role::kNode, Role::kClient, Role::kAdmin};

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// What follows "spiffe://DOMAIN/engram/"; empty where the URI is not one of the pool.
std::string_view PathInPool(std::string_view uri) {
  if (uri.substr(0, kScheme.size()) != kScheme) return {};
  uri.remove_prefix(kScheme.size());
  const std::size_t slash = uri.find('/');
  if (slash == 0 || slash == std::string_view::npos) return {};
  uri.remove_prefix(slash);
  if (uri.substr(0, kPool.size()) != kPool) return {};
  return uri.substr(kPool.size());
}

absl::Status NotOurs(std::string_view uri) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", View(uri.substr(0, 300)),
      "\" is no identity of a pool; it is one of spiffe://DOMAIN/engram/controller/NAME, "
      ".../node/NODE-ID, .../client/TENANT/NAME, .../admin/NAME, with names of letters, digits "
      "and \"._-\""));
}

}  // namespace

std::string_view Name(Role role) {
  switch (role) {
    case Role::kController: return "controller";
    case Role::kNode: return "node";
    case Role::kClient: return "client";
    case Role::kAdmin: return "admin";
  }
  return "unknown";
}

std::string Identity::Describe() const {
  return absl::StrCat(View(Name(role)), " ",
                      role == Role::kClient ? absl::StrCat(tenant, "/") : std::string(), name);
}

bool IsIdentityName(std::string_view name) {
  return !name.empty() && name.size() <= 253 && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

absl::StatusOr<Identity> ParseIdentity(std::string_view uri) {
  std::string_view path = PathInPool(uri);
  for (const Role role : kRoles) {
    const std::string_view word = Name(role);
    if (path.size() <= word.size() || path.substr(0, word.size()) != word ||
        path[word.size()] != '/') {
      continue;
    }
    path.remove_prefix(word.size() + 1);
    Identity out;
    out.role = role;
    if (role == Role::kClient) {
      const std::size_t slash = path.find('/');
      if (slash == std::string_view::npos) return NotOurs(uri);
      out.tenant = std::string(path.substr(0, slash));
      path.remove_prefix(slash + 1);
      if (!IsIdentityName(out.tenant)) return NotOurs(uri);
    }
    out.name = std::string(path);
    if (!IsIdentityName(out.name)) return NotOurs(uri);
    return out;
  }
  return NotOurs(uri);
}

absl::StatusOr<Identity> IdentityAmong(std::span<const std::string> uris) {
  const std::string* ours = nullptr;
  for (const std::string& uri : uris) {
    if (PathInPool(uri).empty()) continue;
    if (ours != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("the certificate has two identities, ", *ours,
                                                     " and ", uri,
                                                     "; give each role a certificate of its own"));
    }
    ours = &uri;
  }
  if (ours != nullptr) return ParseIdentity(*ours);
  return absl::InvalidArgumentError(
      absl::StrCat("the certificate has no identity of a pool among its alternative names (",
                   uris.empty() ? std::string("it has no URI") : absl::StrJoin(uris, ", "),
                   "); it needs one like URI:spiffe://DOMAIN/engram/client/TENANT/NAME"));
}

std::string_view TenantOr(std::string_view tenant) {
  return tenant.empty() ? kDefaultTenant : tenant;
}

bool TenantMayRead(std::string_view tenant, std::string_view owner, const TableName& table,
                   std::span<const std::string> granted) {
  if (TenantOr(tenant) == TenantOr(owner)) return true;
  return std::any_of(granted.begin(), granted.end(), [&](const std::string& one) {
    return one == table.name || one == table.Full();
  });
}

absl::Status CheckRole(const Identity& caller, std::span<const Role> allowed,
                       std::string_view method) {
  if (std::find(allowed.begin(), allowed.end(), caller.role) != allowed.end()) {
    return absl::OkStatus();
  }
  const std::string who =
      allowed.empty() ? std::string("nobody")
                      : absl::StrCat("the role ", absl::StrJoin(allowed, " or ",
                                                                [](std::string* out, Role role) {
                                                                  out->append(Name(role));
                                                                }));
  return absl::PermissionDeniedError(absl::StrCat(View(method), " may be called by ", who,
                                                  "; the certificate of the caller says ",
                                                  caller.Describe()));
}

}  // namespace engram
