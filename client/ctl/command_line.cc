#include "client/ctl/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/ctl/endpoint.h"
#include "client/ctl/outcome.h"
#include "client/ctl/words.h"
#include "engram/settings/units.h"

namespace engram::ctl {
namespace {

constexpr char kProgram[] = "engramctl";
constexpr char kFirstSteps[] =
    "engramctl local up\n"
    "engramctl load table small@1 --synthetic spec.json --wait\n"
    "engramctl get tables\n"
    "engramctl read table small@1 --tokens 22898,19737,270\n"
    "engramctl local down --purge";

// Help that leads with examples: the footer of an app holds them.
class ExamplesFirst : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    if (app->get_footer().empty()) return CLI::Formatter::make_description(app);
    const std::string examples = absl::StrReplaceAll(app->get_footer(), {{"\n", "\n  "}});
    return absl::StrCat(app->get_description(), "\n\nExamples:\n  ", examples, "\n\n");
  }
  std::string make_footer(const CLI::App*) const override { return ""; }
};

struct CommandLine {
  std::string endpoint, timeout, output;
  wire::TlsFiles tls;
  CLI::App app{"The command line of an Engram memory pool.", kProgram};
  std::vector<Action> actions;  // one a verb, in the order of Verbs()
};

std::unique_ptr<CommandLine> Declare() {
  auto line = std::make_unique<CommandLine>();
  CLI::App& app = line->app;
  app.formatter(std::make_shared<ExamplesFirst>());
  app.get_formatter()->column_width(34);
  app.set_help_flag("-h,--help", "Show this help");
  app.footer(kFirstSteps);
  app.fallthrough();
  app.require_subcommand(1);
  app.add_option("--endpoint", line->endpoint,
                 "HOST:PORT of the controller (or ENGRAM_ENDPOINT); default: the current context")
      ->envname("ENGRAM_ENDPOINT");
  app.add_option("--timeout", line->timeout, "How long to wait for an answer, e.g. 500ms, 30s, 10m")
      ->envname("ENGRAM_TIMEOUT");
  app.add_option("--tls-cert", line->tls.cert,
                 "PEM file of your certificate (or ENGRAM_TLS_CERT); none: no TLS")
      ->envname("ENGRAM_TLS_CERT");
  app.add_option("--tls-key", line->tls.key, "PEM file of its key (or ENGRAM_TLS_KEY)")
      ->envname("ENGRAM_TLS_KEY");
  app.add_option("--tls-ca", line->tls.ca, "PEM file of the authorities (or ENGRAM_TLS_CA)")
      ->envname("ENGRAM_TLS_CA");
  app.add_option("-o,--output", line->output,
                 "Output format: wide, json, yaml, name (read: hex, npy)");
  for (const Verb& verb : Verbs()) {
    CLI::App* sub = app.add_subcommand(std::string(verb.name), std::string(verb.summary));
    sub->footer(std::string(verb.examples));
    line->actions.push_back(verb.declare(Options(*sub)));
  }
  return line;
}

std::vector<std::string> VerbNames() {
  std::vector<std::string> names;
  for (const Verb& verb : Verbs()) names.emplace_back(verb.name);
  return names;
}

// The innermost subcommand that was recognised.
CLI::App* Innermost(CLI::App* app) {
  const auto chosen = app->get_subcommands();
  return chosen.empty() ? app : Innermost(chosen.front());
}

std::vector<std::string> OptionNames(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

std::vector<std::string> SubcommandNames(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app->get_subcommands({})) names.push_back(sub->get_name());
  return names;
}

// Why the words do not parse, in terms of what was meant.
std::string Complaint(CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* where = Innermost(&app);
  for (const std::string& word : app.remaining(true)) {
    if (word.starts_with("-")) {
      return UnknownWord("option", word.substr(0, word.find('=')), OptionNames(where));
    }
    if (where == &app) return UnknownWord("verb", word, VerbNames());
    if (const auto subs = SubcommandNames(where); !subs.empty()) {
      return UnknownWord(absl::StrCat("`", where->get_name(), "` command"), word, subs);
    }
    return absl::StrCat("\"", word, "\" is one word too many");
  }
  return error.what();
}

std::string CommandPath(const CLI::App* app) {
  return app->get_parent() == nullptr ? kProgram
                                      : CommandPath(app->get_parent()) + " " + app->get_name();
}

int Fail(const Terminal& terminal, const CLI::App* where, const absl::Status& status) {
  if (!IsReported(status)) terminal.err << kProgram << ": " << status.message() << '\n';
  const ExitCode code = ExitCodeOf(status);
  if (code == kExitUsage) {
    terminal.err << "see `" << CommandPath(where) << " --help`\n";
  }
  return code;
}

// `engramctl help get` is `engramctl get --help`.
std::vector<std::string> WithoutHelpVerb(std::vector<std::string> words) {
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  return words;
}

}  // namespace

absl::StatusOr<PoolStub> Invocation::Pool(Duration otherwise) const {
  const auto target = ResolveEndpoint(endpoint);
  if (!target.ok()) return target.status();
  const auto limit = Timeout(otherwise);
  if (!limit.ok()) return limit.status();
  const auto credentials = Credentials();
  if (!credentials.ok()) return credentials.status();
  return PoolStub(*target, *limit, *credentials);
}

absl::StatusOr<wire::CredentialsPtr> Invocation::Credentials() const {
  auto opened = wire::Credentials::Open(tls, {Role::kAdmin, Role::kClient, Role::kNode});
  if (!opened.ok()) return UsageError(std::string(opened.status().message()));
  return opened;
}

absl::StatusOr<Duration> Invocation::Timeout(Duration otherwise) const {
  if (timeout.empty()) return otherwise;
  const auto parsed = ParseDuration(timeout);
  if (!parsed.ok()) return UsageError(absl::StrCat("--timeout: ", parsed.status().message()));
  if (*parsed <= Duration::zero()) return UsageError("--timeout must be above 0");
  return *parsed;
}

int RunCommandLine(const std::vector<std::string>& words, const Terminal& terminal) {
  const std::unique_ptr<CommandLine> line = Declare();
  CLI::App& app = line->app;
  try {
    std::vector<std::string> reversed = WithoutHelpVerb(words);
    std::reverse(reversed.begin(), reversed.end());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* where = Innermost(&app);
    terminal.out << where->help(where->get_parent() == nullptr ? ""
                                                               : CommandPath(where->get_parent()));
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    if (words.empty()) {
      terminal.err << app.help();
      return kExitUsage;
    }
    return Fail(terminal, Innermost(&app), UsageError(Complaint(app, error)));
  }
  const CLI::App* chosen = app.get_subcommands().front();
  const auto verbs = Verbs();
  for (std::size_t i = 0; i < verbs.size(); ++i) {
    if (verbs[i].name != chosen->get_name()) continue;
    const Invocation invocation{terminal, line->endpoint, line->timeout, line->output, line->tls};
    const absl::Status status = line->actions[i](invocation);
    terminal.out.flush();
    return status.ok() ? kExitOk : Fail(terminal, Innermost(&app), status);
  }
  return kExitFailed;
}

}  // namespace engram::ctl
