// `completion bash`: a script that completes verbs, nouns, options and names.
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/outcome.h"
#include "client/ctl/verbs.h"
#include "client/ctl/words.h"

namespace engram::ctl {
namespace {

// Names of tables and nodes come from the pool itself; a pool that is away completes nothing.
constexpr char kBash[] = R"BASH(# bash completion of engramctl: source <(engramctl completion bash)
_engramctl() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=()
  local i item verb= noun=
  for ((i = 1; i < COMP_CWORD; i++)); do
    item=${COMP_WORDS[i]}
    case $item in
      --endpoint|--timeout|-o|--output|--tls-cert|--tls-key|--tls-ca) ((i++)) ;;
      -*) ;;
      *) if [ -z "$verb" ]; then verb=$item; elif [ -z "$noun" ]; then noun=$item; fi ;;
    esac
  done
  case $before in
    -o|--output) COMPREPLY=($(compgen -W "wide json yaml name hex npy" -- "$word")); return ;;
    --fabric) COMPREPLY=($(compgen -W "auto mapped stream ofi ucx" -- "$word")); return ;;
    --for) COMPREPLY=($(compgen -W "ready deleted" -- "$word")); return ;;
    --seal) COMPREPLY=($(compgen -W "crc32c none" -- "$word")); return ;;
    --checkpoint|--data-dir) COMPREPLY=($(compgen -d -- "$word")); return ;;
    --synthetic|--name-map) COMPREPLY=($(compgen -f -- "$word")); return ;;
  esac
  case $word in
    -*) words=($(engramctl $verb $([ "$verb" = local ] && echo $noun) --help 2>/dev/null |
                 grep -oE -- '--[a-z][a-z-]*' | sort -u)) ;;
    *)
      if [ -z "$verb" ]; then
        words=(%VERBS%)
      elif [ -z "$noun" ]; then
        case $verb in
          local) words=(up status down) ;;
          get) words=(tables shards replicas nodes plans aliases sessions tenants) ;;
          describe) words=(table node shard) ;;
          completion) words=(bash) ;;
          load|read|verify|explain|wait|plan) words=(table) ;;
          delete) words=(table alias) ;;
          move) words=(shard) ;;
          drain|cordon|uncordon) words=(node) ;;
          set|rollback) words=(alias) ;;
          budget) words=(tenant) ;;
          grant) words=(table) ;;
          revoke) words=(client table) ;;
          restore) words=(client) ;;
        esac
      else
        case $noun in
          table*|shard*|replica*) words=($(engramctl get tables -o name --timeout 1s 2>/dev/null | cut -d/ -f2)) ;;
          node*) words=($(engramctl get nodes -o name --timeout 1s 2>/dev/null | cut -d/ -f2)) ;;
        esac
      fi ;;
  esac
  COMPREPLY=($(compgen -W "${words[*]}" -- "$word"))
}
complete -F _engramctl engramctl
)BASH";

absl::Status Completion(const std::string& shell, const Invocation& invocation) {
  if (shell != "bash")
    return UsageError(UnknownWord("shell", shell, std::vector<std::string>{"bash"}));
  std::string verbs;
  for (const Verb& verb : Verbs())
    absl::StrAppend(&verbs, verbs.empty() ? "" : " ", std::string(verb.name));
  std::string script(kBash);
  constexpr std::string_view kPlace = "%VERBS%";
  script.replace(script.find(kPlace), kPlace.size(), verbs);
  invocation.terminal.out << script;
  return absl::OkStatus();
}

}  // namespace

Action DeclareCompletion(Options app) {
  auto shell = std::make_shared<std::string>();
  app.Word("SHELL", shell.get(), "bash");
  return [shell](const Invocation& invocation) { return Completion(*shell, invocation); };
}

}  // namespace engram::ctl
