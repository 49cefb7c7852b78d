#include "client/ctl/verbs.h"

#include <array>

namespace engram::ctl {

namespace {

constexpr std::array kVerbs = {
    Verb{"local", "Start, look at and stop a pool on this machine",
         "engramctl local up\n"
         "engramctl local up --nodes 2 --memory-per-node 4GiB --fabric stream\n"
         "engramctl local status\n"
         "engramctl local down --purge",
         DeclareLocal},
    Verb{"load", "Load a table into the pool",
         "engramctl load table deepseek-v4.1@1 --checkpoint /models/deepseek-v4.1 --wait\n"
         "engramctl load table small@1 --synthetic spec.json --replicas 2 --wait",
         DeclareLoad},
    Verb{"get", "List tables, shards, replicas, nodes, plans, aliases, sessions or tenants",
         "engramctl get tables\n"
         "engramctl get nodes -o wide\n"
         "engramctl get shards small@1 -o json\n"
         "engramctl get tables --watch",
         DeclareGet},
    Verb{"describe", "Show one table, node or shard in full",
         "engramctl describe table small@1\n"
         "engramctl describe node node-0\n"
         "engramctl describe shard small@1/17",
         DeclareDescribe},
    Verb{"read", "Read rows of a table",
         "engramctl read table small@1 --rows 0,5,40000\n"
         "engramctl read table small@1 --rows 0,5 --layer 14 -o json\n"
         "engramctl read table small@1 --tokens 22898,19737,270 --layer 1 -o npy > rows.npy",
         DeclareRead},
    Verb{"verify", "Compare the rows that the pool serves with where they came from",
         "engramctl verify table small@1\n"
         "engramctl verify table deepseek-v4.1@1 --checkpoint /models/v4.1 --sample 100000",
         DeclareVerify},
    Verb{"explain", "Show how token ids become rows, shards, nodes and fabrics",
         "engramctl explain table small@1 --tokens 22898,19737,270\n"
         "engramctl explain table small@1 --tokens 22898,19737,270 -o json",
         DeclareExplain},
    Verb{"delete",
         "Delete a table (its memory is freed when no reader needs it), an alias or a dead node",
         "engramctl delete table small@1 --dry-run\n"
         "engramctl delete table small@1 --yes\n"
         "engramctl delete alias small@live --yes\n"
         "engramctl delete node node-2 --yes",
         DeclareDelete},
    Verb{"set", "Let an alias name a version; engines adopt it between steps",
         "engramctl set alias deepseek-v4.1@live 2\n"
         "engramctl set alias deepseek-v4.1@live 1 --dry-run",
         DeclareSet},
    Verb{"rollback", "Let an alias name again what it named before",
         "engramctl rollback alias deepseek-v4.1@live", DeclareRollback},
    Verb{"budget", "Set how many rows a second a tenant may read",
         "engramctl budget tenant team-a 2000000\n"
         "engramctl budget tenant team-a 0",
         DeclareBudget},
    Verb{"grant", "Let the clients of a tenant read a table of another tenant",
         "engramctl grant table deepseek-v4.1 --tenant team-b\n"
         "engramctl grant table deepseek-v4.1@2 --tenant team-b",
         DeclareGrant},
    Verb{"revoke", "End what a client's certificate, or a grant of a table, allows",
         "engramctl revoke client team-a/replica-7\n"
         "engramctl revoke table deepseek-v4.1 --tenant team-b",
         DeclareRevoke},
    Verb{"restore", "Take the revocation of a client back",
         "engramctl restore client team-a/replica-7", DeclareRestore},
    Verb{"move", "Move a copy of one shard to another node; readers go on",
         "engramctl move shard small@1/17 --to node-2\n"
         "engramctl move shard small@1/17 --from node-0 --to node-2 --dry-run",
         DeclareMove},
    Verb{"drain", "Move everything away from a node; readers go on",
         "engramctl drain node node-1 --dry-run\n"
         "engramctl drain node node-1 --wait\n"
         "engramctl get plans --watch",
         DeclareDrain},
    Verb{"cordon", "Let nothing new come to a node", "engramctl cordon node node-1", DeclareCordon},
    Verb{"uncordon", "End a cordon or a drain", "engramctl uncordon node node-1", DeclareUncordon},
    Verb{"wait", "Wait until a table is ready or gone",
         "engramctl wait table small@1 --for ready --timeout 10m\n"
         "engramctl wait table small@1 --for deleted",
         DeclareWait},
    Verb{"status", "Show the health of the pool in a few lines",
         "engramctl status\n"
         "engramctl status --endpoint pool.example:7700 -o json",
         DeclareStatus},
    Verb{"top", "Show what is read most, as clients report it",
         "engramctl top shards\n"
         "engramctl top tables -o json\n"
         "engramctl top ngrams small@1 --limit 100000 --write hot.txt",
         DeclareTop},
    Verb{"plan", "Show what the planner would move and why, or whether a table would fit",
         "engramctl plan\n"
         "engramctl plan --limit 5 -o json\n"
         "engramctl plan table small@2 --synthetic spec.json --replicas 2",
         DeclarePlan},
    Verb{"doctor", "Check this machine and say what to do about what is wrong",
         "engramctl doctor\n"
         "engramctl doctor -o json",
         DeclareDoctor},
    Verb{"completion", "Print a script that completes engramctl's words",
         "source <(engramctl completion bash)", DeclareCompletion},
    Verb{"version", "Print the version of engramctl and of the pool",
         "engramctl version\n"
         "engramctl version --client",
         DeclareVersion},
};

}  // namespace

std::span<const Verb> Verbs() { return kVerbs; }

}  // namespace engram::ctl
