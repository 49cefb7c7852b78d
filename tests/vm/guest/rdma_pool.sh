# What is asked of a pool over soft-RoCE in one guest.
. /suites/rdma_device.sh

on_dummy() {
  load_modules dummy && ip link add eth0 type dummy && make_rdma_device eth0 ${RDMA:-$ADDRESS}/24
}

doctor() {
  engramctl doctor >/tmp/doctor
  cat /tmp/doctor
  grep -q "rxe0:1 *ACTIVE" /tmp/doctor || refuse "doctor does not name the port"
  detail "$(sed -n 's/.*\(rxe0:1 *ACTIVE.*\)/\1/p' /tmp/doctor | head -n 1)"
}

pool_over_verbs() {
  start_controller $ADDRESS || refuse "no controller" || return 1
  start_node $ADDRESS --memory 256MiB --fabrics stream,ofi --ofi-providers "verbs;ofi_rxm" --ofi-host rxe0 ||
    refuse "no node" || return 1
  load_table || refuse "no table" || return 1
  ENGRAM_OFI_PROVIDER="verbs;ofi_rxm" open_reader verbs ofi || refuse "no reader" || return 1
  ask verbs read 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "$(answer rows) rows right, 0 wrong, lease $LEASE s"
}

# The node's program stands still; its memory is read all the same.
frozen_node() {
  local pid before after
  pid=$(cat /tmp/node.pid)
  ask verbs read 256 $LONG || return 1
  freeze_node || refuse "not stopped" || return 1
  before=$(ticks_of "$pid")
  ask verbs read 10000 $LONG
  answered=$?
  after=$(ticks_of "$pid")
  is_stopped "$pid" || refuse "the node ran" || return 1
  [ $answered = 0 ] || refuse "$(cat /tmp/answer)" || return 1
  [ "$before" = "$after" ] || refuse "the node used processor time: $before, then $after" || return 1
  detail "$(answer rows) rows right, 0 wrong in $(answer ms) ms; the node was stopped and used 0 ticks"
}

# The same node, still frozen: a fabric that needs its program gets nothing.
frozen_node_over_stream() {
  thaw_node
  open_reader stream stream || refuse "no reader" || return 1
  ask stream read 256 $LONG || return 1
  freeze_node || refuse "not stopped" || return 1
  no_row stream read 256 2 || return 1
  detail "0 rows in 2 s, as it must be"
}

# Reads end with the lease, not with the memory.
lease_ends() {
  thaw_node
  ask verbs again 256 $LONG || refuse "$(cat /tmp/answer)" || return 1
  freeze_node || refuse "not stopped" || return 1
  ask verbs read 256 $LONG || refuse "ended before the lease: $(cat /tmp/answer)" || return 1
  sleep $((LEASE + 2))
  no_row verbs read 256 3 || return 1
  thaw_node
  ask verbs again 256 $LONG || refuse "not readable after it woke: $(cat /tmp/answer)" || return 1
  detail "no row after $LEASE s without renewal; readable again $(answer ms) ms after the node woke"
}

# A node outlives readers that vanish in the middle of connecting, and those that give up.
vanishing_readers() {
  local pause round=0 pid
  thaw_node
  for pause in 0 0.01 0.02 0.04 0.06 0.08 0.1 0.15 0.2 0.3 0 0.02 0.05 0.1; do
    round=$((round + 1))
    : >/tmp/vanishing.out
    echo "read 64 1" | ENGRAM_OFI_PROVIDER="verbs;ofi_rxm" engram_vm_reader "$ENGRAM_ENDPOINT" $TABLE ofi >/tmp/vanishing.out 2>&1 &
    pid=$!
    await_open /tmp/vanishing.out $pid || refuse "no reader in round $round: $(cat /tmp/vanishing.out)" || return 1
    sleep $pause
    kill -KILL $pid
    wait $pid
    [ ! -e /tmp/node.ended ] || refuse "the node ended in round $round, $pause s after the session opened" || return 1
  done
  ask verbs again 256 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "$round readers killed while they connected; the node serves"
}

# Of two clients of one target, one goes on reading what was taken back. It costs that one its connection and nobody else
# anything: neither the other client nor the pool that is read beside them.
retired_region() {
  local late
  ask verbs again 256 $LONG || refuse "$(cat /tmp/answer)" || return 1
  FI_PROVIDER=verbs,ofi_rxm timeout -s KILL $PATIENCE engram_conformance_test \
    --gtest_filter="*ARetiredRegionCostsOnlyItsReader/ofi_verbs" \
    >/tmp/retired.log 2>&1 &
  late=$!
  until has_ended $late; do
    ask verbs read 256 $LONG || refuse "the other client: $(cat /tmp/answer)" || return 1
    sleep 1  # the processors are for the other one
  done
  wait $late || { cat /tmp/retired.log; refuse "the conformance case"; } || return 1
  # Without a rig or a test of that name it would end well, too.
  grep -q '^\[  PASSED  \] 1 test' /tmp/retired.log && ! grep -q SKIPPED /tmp/retired.log ||
    { cat /tmp/retired.log; refuse "the conformance case did not run"; } || return 1
  ask verbs read 256 $LONG || refuse "the other client, afterwards: $(cat /tmp/answer)" || return 1
  detail "refused by the device; the reader beside it lost nothing"
}

# The device loses its address and has another one: the node opens an endpoint there, registers its replicas again and
# tells its readers, who name the device, not an address.
address_changes() {
  thaw_node
  ask verbs again 256 $LONG || refuse "$(cat /tmp/answer)" || return 1
  ip addr add 10.9.0.1/24 dev eth0 && ip addr del 10.8.0.1/24 dev eth0 || return 1
  wait_until grep "they are told ofi" /tmp/node.program.log || refuse "the node did not notice" || return 1
  ask verbs again 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "the node opened an endpoint at the new one; $(answer rows) rows right, 0 wrong after $(answer ms) ms"
}
