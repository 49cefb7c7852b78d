// `doctor`: this machine, and the current pool if there is one.
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/ctl/doctor_checks.h"
#include "client/ctl/documents.h"
#include "client/ctl/endpoint.h"
#include "client/ctl/outcome.h"
#include "client/ctl/printer.h"
#include "client/ctl/verbs.h"
#include "fabric/dax/device_peer.h"
#include "fabric/memory.h"
#include "fabric/ofi/provider.h"
#include "fabric/ucx/libucx.h"

namespace engram::ctl {
namespace {

// The pool that flag, environment or context name; nothing is wrong when none is named.
Check CheckPool(const Invocation& invocation) {
  const auto endpoint = ResolveEndpoint(invocation.endpoint);
  if (!endpoint.ok() && invocation.endpoint.empty() && !ReadContext().ok()) {
    return {"pool", Verdict::kOk, "none is named (no flag, variable or context)", ""};
  }
  if (!endpoint.ok()) {
    return {"pool", Verdict::kFail, std::string(endpoint.status().message()),
            "correct the endpoint"};
  }
  const auto limit = invocation.Timeout(std::chrono::seconds(2));
  const auto credentials = invocation.Credentials();
  if (!credentials.ok()) {
    return {"pool", Verdict::kFail, std::string(credentials.status().message()),
            "correct --tls-cert, --tls-key and --tls-ca"};
  }
  const auto info =
      PoolStub(*endpoint, limit.ok() ? *limit : kCallTimeout, *credentials).PoolInfo();
  if (!info.ok()) {
    return {"pool", Verdict::kFail, std::string(info.status().message()),
            "start it (`engramctl local up`), or name another with --endpoint"};
  }
  const std::string value =
      absl::StrCat(*endpoint, ", version ", info->version(), ", ", info->nodes_alive(), " of ",
                   info->nodes_total(), " nodes alive");
  if (info->nodes_alive() < info->nodes_total()) {
    return {"pool", Verdict::kWarn, value,
            "see `engramctl get nodes`; `engramctl local up` repairs"};
  }
  return {"pool", Verdict::kOk, value, ""};
}

std::string AsJson(const std::vector<Check>& checks) {
  nlohmann::ordered_json json = {{"checks", nlohmann::ordered_json::array()}};
  for (const Check& check : checks) {
    json["checks"].push_back({{"name", check.name},
                              {"verdict", Name(check.verdict)},
                              {"value", check.value},
                              {"advice", check.advice}});
  }
  return json.dump();
}

void Print(const std::vector<Check>& checks, const Terminal& terminal) {
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  for (const Check& check : checks) {
    const Paint paint = check.verdict == Verdict::kOk     ? Paint::kGood
                        : check.verdict == Verdict::kWarn ? Paint::kCaution
                                                          : Paint::kBad;
    const std::string verdict(Name(check.verdict));
    terminal.out << Painted(terminal, paint, verdict) << std::string(6 - verdict.size(), ' ')
                 << check.name << std::string(width - check.name.size() + 2, ' ') << check.value
                 << '\n';
    if (!check.advice.empty()) {
      terminal.out << std::string(width + 8, ' ') << "-> " << check.advice << '\n';
    }
  }
}

absl::StatusOr<Duration> TimeRegistration(const std::string& provider, const std::string& bind,
                                          std::uint64_t page_bytes, std::uint64_t bytes) {
  fabric::ofi::ProviderOptions options;
  options.provider = provider;
  options.bind = bind;
  const auto opened = fabric::ofi::Provider::Open(options);
  if (!opened.ok()) return opened.status();
  fabric::SlabOptions wanted;
  wanted.bytes = bytes;
  wanted.pages = static_cast<fabric::PageSize>(page_bytes);
  wanted.allow_smaller_pages = false;
  wanted.name = "engram-doctor";
  const auto slab = fabric::Slab::Create(wanted);
  if (!slab.ok()) return slab.status();
  const Instant start = SystemClock::Get().Now();
  const auto registered = (*opened)->Register({(*slab)->data(), bytes}, FI_REMOTE_READ);
  if (!registered.ok()) return registered.status();
  return SystemClock::Get().Now() - start;
}

absl::StatusOr<std::string> OwnerOfDevice(const std::string& path) {
  const auto device = fabric::DescribeDax(path);
  if (!device.ok()) return device.status();
  const auto superblock = fabric::dax::DevicePeer::Look(*device);
  if (!superblock.ok()) return superblock.status();
  if (!*superblock) return std::string("never used");
  const std::string holder = (*superblock)->Holder();
  return absl::StrCat((*superblock)->nonce == 0 ? "free, last of " : "owned by ", holder);
}

absl::Status Doctor(bool deep, const Invocation& invocation) {
  const auto format =
      ParseFormat(invocation.output, {Format::kTable, Format::kJson, Format::kYaml});
  if (!format.ok()) return format.status();
  Host host = Host::Real();
  host.fabric_providers = []() -> absl::StatusOr<std::vector<std::string>> {
    auto providers = fabric::ofi::ListProviders();
    if (providers.ok() && providers->empty())
      return absl::NotFoundError("no provider can do remote reads");
    return providers;
  };
  host.ucx_version = fabric::ucx::UcxVersion;
  host.registration = TimeRegistration;
  host.device_owner = OwnerOfDevice;
  std::vector<Check> checks = RunChecks(host);
  if (deep) {
    for (Check& check : CheckRegistration(host)) checks.push_back(std::move(check));
  }
  checks.push_back(CheckPool(invocation));
  if (*format == Format::kTable) {
    Print(checks, invocation.terminal);
  } else {
    PrintDocument(invocation.terminal, *format, AsJson(checks));
  }
  for (const Check& check : checks) {
    if (check.verdict == Verdict::kFail) return AlreadyReported(absl::StatusCode::kInternal);
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareDoctor(Options app) {
  auto deep = std::make_shared<bool>(false);
  app.Flag("--deep", deep.get(), "Also measure what registering memory for RDMA costs");
  return [deep](const Invocation& invocation) { return Doctor(*deep, invocation); };
}

}  // namespace engram::ctl
