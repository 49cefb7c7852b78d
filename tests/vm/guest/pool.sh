# A small pool in the guest: a controller, a node, a synthetic table, and a client that reads when it is told to.
TABLE=rows@1
LEASE=30
# What a reader is given for what must come, in seconds: less than the patience of who waits for its answer.
LONG=240

# start_controller ADDRESS: once in a guest.
start_controller() {
  export ENGRAM_ENDPOINT=$1:7700
  engramctl get nodes >/dev/null 2>&1 && return 0
  engram-placement --listen "$1:7700" --insecure-listen --state-file /tmp/placement.db --metrics-listen "" \
    --dead-after 20s --repair-after 5s >/tmp/controller.program.log 2>&1 &
  wait_until engramctl get nodes >/dev/null 2>&1
}

# start_node ADDRESS flags...: its process id is in /tmp/node.pid; once it has ended, its exit status is in /tmp/node.ended
# (128 and more: the number of a signal) and case_of tells it.
start_node() {
  local address=$1
  shift
  rm -f /tmp/node.ended /tmp/node.pid
  {
    engram-poolserver --node-id "${NODE:-node-a}" --controller "$ENGRAM_ENDPOINT" --listen "$address:0" \
      --stream-listen "$address:0" --insecure-listen --lease ${LEASE}s --scrub-rate 0 "$@" >/tmp/node.program.log 2>&1 &
    echo $! >/tmp/node.pid
    wait $!
    echo $? >/tmp/node.ended
  } </dev/null >/dev/null 2>&1 &
  wait_until node_serves_or_ended
  grep "serves at" /tmp/node.program.log
}
node_serves_or_ended() { [ -e /tmp/node.ended ] || grep -q "serves at" /tmp/node.program.log; }
# An end that is wanted.
stop_node() {
  kill -CONT "$(cat /tmp/node.pid)"
  kill "$@" "$(cat /tmp/node.pid)" && wait_until test -e /tmp/node.ended && rm /tmp/node.ended
}

load_table() {
  echo '{"model": "deepseek-v4.1", "engram_vocab_size": 600, "layers": [1, 14], "seed": 7}' >/tmp/spec.json
  wait_until engramctl load table $TABLE --synthetic /tmp/spec.json --wait --timeout ${PATIENCE}s && engramctl get tables
}

# open_reader NAME FABRIC: a client that keeps its session; `ask NAME command...` drives it.
open_reader() {
  mkfifo "/tmp/$1.in" || return 1
  : >"/tmp/$1.out"
  engram_vm_reader "$ENGRAM_ENDPOINT" $TABLE "$2" <"/tmp/$1.in" >"/tmp/$1.out" 2>"/tmp/$1.program.log" &
  echo $! >"/tmp/$1.pid"
  sleep 100000 >"/tmp/$1.in" & # holds the other end open
  await_open "/tmp/$1.out" "$(cat "/tmp/$1.pid")"
}
# await_open OUTPUT PID: until that reader is open; 1 when it ended first.
await_open() { wait_until open_or_ended "$@" && grep -q ^open "$1"; }
open_or_ended() { grep -q ^open "$1" || has_ended "$2"; }

lines_of() { wc -l <"$1"; }
more_lines() { [ "$(lines_of "$1")" -gt "$2" ]; }
more_lines_or_ended() { more_lines "$2" "$3" || has_ended "$(cat "/tmp/$1.pid")"; }

# ask NAME command...: as tests/vm/reader.cc has them. Prints the answer; 0 when it is "ok".
ask() {
  local name=$1 before
  shift
  rm -f /tmp/answer
  before=$(lines_of "/tmp/$name.out")
  has_ended "$(cat "/tmp/$name.pid")" && { echo "the reader $name has ended"; return 1; }
  echo "$*" >"/tmp/$name.in"
  wait_until more_lines_or_ended "$name" "/tmp/$name.out" "$before" || { echo "no answer to: $*"; return 1; }
  more_lines "/tmp/$name.out" "$before" || { echo "the reader ended at: $*"; return 1; }
  tail -n 1 "/tmp/$name.out" | tee /tmp/answer
  grep -q ^ok /tmp/answer
}
# no_row NAME command...: an answer comes, and it says that no row came, right or wrong.
no_row() {
  if ask "$@"; then refuse "rows came: $(cat /tmp/answer)"; return 1; fi
  [ -e /tmp/answer ] || refuse "the reader does not answer" || return 1
  [ "$(answer rows)/$(answer wrong)" = 0/0 ] || refuse "$(cat /tmp/answer)"
}
# A field of the last answer.
answer() { sed -n "s/.* $1=\([^ ]*\).*/\1/p" /tmp/answer; }

has_ended() { [ ! -e "/proc/$1/stat" ] || [ "$(cut -d' ' -f3 "/proc/$1/stat")" = Z ]; }
# Ticks of processor time that a process has used, all threads.
ticks_of() { cut -d' ' -f14,15 "/proc/$1/stat" | tr ' ' '+'; }
# Every thread of it: a signal to stop reaches them one after the other.
is_stopped() { [ -e "/proc/$1/stat" ] && ! cut -d' ' -f3 "/proc/$1"/task/*/stat | grep -qv T; }
# The same of the node, while it is stopped.
node_ticks() { is_stopped "$(cat /tmp/node.pid)" && ticks_of "$(cat /tmp/node.pid)"; }
freeze_node() { kill -STOP "$(cat /tmp/node.pid)" && wait_until is_stopped "$(cat /tmp/node.pid)"; }
thaw_node() { kill -CONT "$(cat /tmp/node.pid)"; }
