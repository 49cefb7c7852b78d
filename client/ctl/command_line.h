// The frame of engramctl: a table of verbs, options that every verb shares, help that leads with
// examples, unknown words answered with the nearest known one, statuses turned into exit codes.
// Each verb is one file that declares its options and returns what to do.
//
// Thread-confined: call from the owner thread only.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/ctl/options.h"
#include "client/ctl/pool_stub.h"
#include "client/ctl/terminal.h"
#include "engram/clock.h"

namespace engram::ctl {

inline constexpr Duration kCallTimeout = std::chrono::seconds(5);

// One command being carried out: where it writes and the options that every verb shares.
struct Invocation {
  const Terminal& terminal;
  std::string endpoint;  // as given by flag or ENGRAM_ENDPOINT; "" = the current context
  std::string timeout;   // as given; "" = the verb's own default
  std::string output;    // -o
  wire::TlsFiles tls;    // as given by flags or ENGRAM_TLS_*

  // The pool that is meant; each call to it ends after --timeout, or `otherwise`. UsageError when
  // none is named.
  absl::StatusOr<PoolStub> Pool(Duration otherwise = kCallTimeout) const;
  // What calls are made with. UsageError when the files cannot be used.
  absl::StatusOr<wire::CredentialsPtr> Credentials() const;
  // --timeout, or `otherwise` where it was not given. UsageError when it does not parse.
  absl::StatusOr<Duration> Timeout(Duration otherwise) const;
};

using Action = std::function<absl::Status(const Invocation&)>;

struct Verb {
  std::string_view name;
  std::string_view summary;   // one line
  std::string_view examples;  // whole command lines, one a line
  // Adds options and positionals; the action owns what they are bound to.
  Action (*declare)(Options options);
};

// In the order of the help.
std::span<const Verb> Verbs();

// Runs one command line (without the program's name) and returns the exit code.
int RunCommandLine(const std::vector<std::string>& words, const Terminal& terminal);

}  // namespace engram::ctl
