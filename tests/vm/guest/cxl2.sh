# Two guests that have one CXL device attached: the pool in one, its reader in the other. Both processors and both kernels
# are their own; the memory is one file of the host. It is coherent by construction: what is shown is that no byte needs
# the network and that the order of things is right, not that caches were maintained.
. /suites/pool.sh
. /suites/devdax.sh
. /suites/two_guests.sh
ADDRESS=$SERVER
# However slow the machine, 10,000 rows are read before it ends.
LEASE=30

on_wire() {
  wire_is_there || return 1
  ip addr add "$1/24" dev eth0 && ip link set eth0 up || return 1
  make_cxl_devdax
}

serve_pool() {
  start_controller $SERVER || refuse "no controller" || return 1
  start_devdax_node || refuse "no node" || return 1
  load_table || refuse "no table" || return 1
  : >/tmp/ready
  detail "one node, one table"
}

rows_of_the_device() {
  export ENGRAM_ENDPOINT=$SERVER:7700
  open_reader shared auto || refuse "no reader" || return 1
  ask shared read 3000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  answer path | grep -q mapped || refuse "it reads over $(answer path)" || return 1
  detail "$(answer rows) rows right, 0 wrong, over $(answer path)"
}

# Neither the node's program nor the network is needed.
frozen_node() {
  open_reader mapped mapped || refuse "no reader" || return 1
  ask mapped read 256 $LONG || return 1
  server_does 'freeze_node && node_ticks' >/tmp/before || refuse "not stopped" || return 1
  ip link set eth0 down
  ask mapped read 10000 $LONG
  answered=$?
  ip link set eth0 up
  server_does node_ticks >/tmp/after || refuse "the node ran" || return 1
  on_server 'kill -CONT $(cat /tmp/node.pid)'
  [ $answered = 0 ] || refuse "$(cat /tmp/answer)" || return 1
  cmp /tmp/before /tmp/after || refuse "the node used processor time" || return 1
  detail "$(answer rows) rows right, 0 wrong in $(answer ms) ms; the node was stopped and the link down"
}

# The lease runs out, and nothing more is delivered, although the memory could still be read.
lease_ends() {
  ask mapped again 256 $LONG || refuse "$(cat /tmp/answer)" || return 1
  server_does freeze_node || refuse "not stopped" || return 1
  sleep $((LEASE + 2))
  no_row mapped read 256 3 || return 1
  on_server 'kill -CONT $(cat /tmp/node.pid)'
  ask mapped again 256 $LONG || refuse "not readable after it woke: $(cat /tmp/answer)" || return 1
  detail "no row after $LEASE s without renewal; readable again $(answer ms) ms after the node woke"
}

retired() {
  server_does engramctl delete table $TABLE --yes --force || refuse "not deleted" || return 1
  no_row mapped read 256 5 || return 1
  TABLE=rows@2
  server_does "TABLE=rows@2; load_table" || refuse "not loaded again" || return 1
  open_reader second mapped || refuse "no reader" || return 1
  ask second read 3000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "no row and no wrong row of what was retired; $(answer rows) rows of the next table in its place"
}

restarted() {
  server_does "stop_node -KILL && start_devdax_node" || refuse "not restarted" || return 1
  grep -q serves /tmp/server.said || return 1
  ask second again 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  [ "$(answer wrong)" = 0 ] || return 1
  detail "$(answer rows) rows right, 0 wrong, $(answer ms) ms after it served again"
}

# From the guest of the reader: flock does not reach the other one, the superblock does.
take_over() {
  local holder
  refused 'belongs to node "node-a"' --node-id node-b --cxl-devices $DEVICE || return 1
  holder=$(superblock_holder)
  refused "was written to meanwhile" --node-id node-b --cxl-devices $DEVICE --take-over-device "$holder" || return 1
  server_does "stop_node -KILL" || refuse "node-a does not end" || return 1
  NODE=node-b ADDRESS=$CLIENT start_devdax_node --take-over-device "$holder" ||
    refuse "not taken over: $(cat /tmp/node.program.log)" || return 1
  server_does "refused 'belongs to node \"node-b\"' --node-id node-a --cxl-devices $DEVICE" ||
    refuse "node-a was not refused" || return 1
  # The controller makes the replicas of a node that stays away anew, one shard at a time.
  ask second again 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "refused without the owner's name, refused while node-a lived, then taken from $holder; $(answer rows) rows right"
}

if [ "$role" = server ]; then
  case_of "the shared CXL device" on_wire $SERVER
  case_of "a pool on it" serve_pool
  serve_until_finished
else
  case_of "the shared CXL device" on_wire $CLIENT
  case_of "the other guest's pool" await_server && case_of "rows of the device" rows_of_the_device && {
    case_of "10,000 rows, node frozen, link down" frozen_node
    case_of "the lease ends the reads" lease_ends
    case_of "a replica is retired" retired
    case_of "the node is killed and started again" restarted
    case_of "take-over refused, then forced" take_over
  }
  on_server ': >/tmp/finished'
fi
