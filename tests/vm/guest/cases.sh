# Words that every suite uses. What a suite did goes to ttyS1, one line each, in the form that tests/vm/guest.py reads.

# How long anything that must happen may take, in seconds: an emulated processor of a busy machine is slow, and a wait that ends
# early costs nothing. The suite's own limit (tests/vm/suites.py) bounds them all.
PATIENCE=300

# Debian's busybox prefers its own programs to those of PATH.
ip() { /usr/bin/ip "$@"; }
modprobe() { /sbin/modprobe "$@"; }

say() { printf '%s\n' "$*" >/dev/ttyS1; }
uptime_seconds() { cut -d' ' -f1 /proc/uptime; }
# What the table says beside the case's outcome.
detail() { printf '%s' "$*" >/tmp/detail; }
# Ends a case that cannot pass.
refuse() {
  detail "$*"
  echo "FAILED: $*"
  return 1
}

# Whether one of the words of --skip is in a case's name.
is_left_out() {
  local word
  for word in $(echo "$skip" | tr , ' '); do
    case "$1" in *"$word"*) return 0 ;; esac
  done
  return 1
}

# case_of "name" function...: runs it; 0 passes, 77 skips, anything else fails and its output is shown.
case_of() {
  local name=$1 outcome code
  shift
  if is_left_out "$name"; then
    say "case $(uptime_seconds) $name"
    say "end $(uptime_seconds) skip left out by --skip"
    return 0
  fi
  say "case $(uptime_seconds) $name"
  : >/tmp/detail
  "$@" >/tmp/case.log 2>&1
  code=$?
  cat /tmp/case.log
  if [ -e /tmp/node.ended ]; then
    printf '%s' " (the pool node ended with status $(cat /tmp/node.ended))" >>/tmp/detail
    code=1
  fi
  case $code in 0) outcome=pass ;; 77) outcome=skip ;; *) outcome=FAIL ;; esac
  [ $outcome = FAIL ] && show_logs
  say "end $(uptime_seconds) $outcome $(cat /tmp/detail)"
  return $code
}

# What a case and the programs said, and how busy this machine is.
show_logs() {
  local log line
  dmesg | grep -E -A 12 'segfault|traps:|Out of memory|invalid opcode|fatal signal' >/tmp/kernel.program.log
  { cat /proc/loadavg && grep MemAvailable /proc/meminfo && top -b -n 1 | head -n 16; } >/tmp/machine.program.log 2>&1
  for log in /tmp/case.log /tmp/*.program.log; do
    [ -s "$log" ] || continue
    say "log --- $log"
    tail -n 40 "$log" | while IFS= read -r line; do say "log $line"; done
  done
}

# A suite that takes longer than it may says where it stands, and the machine goes.
end_in_time() {
  sleep "$limit" || return
  show_logs
  say "end $(uptime_seconds) FAIL the suite's limit of $limit s ran out in the middle of it"
  poweroff -f
}

# wait_until command...: until it succeeds, for as long as the patience lasts.
wait_until() {
  local limit=$(($(date +%s) + PATIENCE))
  until "$@"; do
    [ "$(date +%s)" -ge "$limit" ] && return 1
    sleep 0.2
  done
}

load_modules() {
  local name
  for name in "$@"; do modprobe "$name" || { echo "modprobe $name failed"; return 1; }; done
}
