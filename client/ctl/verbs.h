// The verbs, one file each (verb_NAME.cc). Thread-compatible.
#pragma once

#include "client/ctl/command_line.h"

namespace engram::ctl {

Action DeclareLocal(Options app);
Action DeclareLoad(Options app);
Action DeclareGet(Options app);
Action DeclareDescribe(Options app);
Action DeclareRead(Options app);
Action DeclareVerify(Options app);
Action DeclareExplain(Options app);
Action DeclareDelete(Options app);
Action DeclareSet(Options app);
Action DeclareRollback(Options app);
Action DeclareBudget(Options app);
Action DeclareGrant(Options app);
Action DeclareRevoke(Options app);
Action DeclareRestore(Options app);
Action DeclareMove(Options app);
Action DeclareDrain(Options app);
Action DeclareCordon(Options app);
Action DeclareUncordon(Options app);
Action DeclareWait(Options app);
Action DeclarePlan(Options app);
Action DeclareTop(Options app);
Action DeclareDoctor(Options app);
Action DeclareStatus(Options app);
Action DeclareCompletion(Options app);
Action DeclareVersion(Options app);

}  // namespace engram::ctl
