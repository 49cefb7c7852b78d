# The pool in one guest, its reader in the other, a soft-RoCE device in each.
. /suites/rdma_device.sh
. /suites/pool.sh
. /suites/two_guests.sh
LEASE=60

# on_wire NUMBER: the device stands for the first address, 10.8.1.NUMBER, while it is there; then for the one that all the
# rest uses. The neighbours are written down: a management datagram of soft-RoCE that finds no neighbour stops its queue pair
# for good.
on_wire() {
  local net
  wire_is_there || return 1
  for net in 10.8.0 10.8.1; do
    ip neigh replace $net.1 lladdr 52:54:00:00:00:01 dev eth0 nud permanent
    ip neigh replace $net.2 lladdr 52:54:00:00:00:02 dev eth0 nud permanent
  done
  echo 1 >/proc/sys/net/ipv4/conf/all/promote_secondaries
  make_rdma_device eth0 10.8.1.$1/16 && ip addr add 10.8.0.$1/16 dev eth0
}
management_queue_pairs() {
  rdma resource show qp | grep GSI
  on_server 'rdma resource show qp | grep GSI'
}

serve_pool() {
  start_controller $SERVER || refuse "no controller" || return 1
  start_node $SERVER --memory 256MiB --fabrics stream,ofi --ofi-providers "verbs;ofi_rxm" || refuse "no node" || return 1
  load_table || refuse "no table" || return 1
  : >/tmp/ready
  detail "one node, one table"
}

pool_from_afar() {
  await_server || return 1
  export ENGRAM_ENDPOINT=$SERVER:7700
  ENGRAM_OFI_PROVIDER="verbs;ofi_rxm" open_reader verbs ofi || { management_queue_pairs; refuse "no reader"; } || return 1
  ask verbs read 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "$(answer rows) rows right, 0 wrong"
}

# A client that names no fabric finds RDMA by itself.
chosen_by_itself() {
  open_reader auto auto || refuse "no reader" || return 1
  ask auto read 1000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  answer path | grep -q ofi || refuse "it reads over $(answer path)" || return 1
  detail "paths $(answer path)"
}

# Reads go on for the lease, whatever becomes of the session's stream: on a busy machine 10,000 rows through two emulated
# processors take a while.
frozen_node() {
  ask verbs again 256 $LONG || return 1
  server_does 'freeze_node && node_ticks' >/tmp/before || refuse "not stopped" || return 1
  ask verbs read 10000 $LONG
  answered=$?
  server_does node_ticks >/tmp/after || refuse "the node ran" || return 1
  on_server 'kill -CONT $(cat /tmp/node.pid)'
  [ $answered = 0 ] || refuse "$(cat /tmp/answer)" || return 1
  cmp /tmp/before /tmp/after || refuse "the node used processor time" || return 1
  detail "$(answer rows) rows right, 0 wrong in $(answer ms) ms; the node was stopped and used 0 ticks"
}

# The server's link goes away under reads, for longer than a queue pair tries again. (Not tried in one guest: a management
# datagram that soft-RoCE cannot send, because its own link is down, stops its management queue pair for good, and no
# connection is made any more.)
link_flap() {
  local before rows asked
  ask verbs again 256 $LONG || return 1
  on_server 'rm -f /tmp/link.up; : >/tmp/link.down'
  # More rows than any machine reads in the second that the link is still up.
  if ask verbs read 100000000 4; then refuse "the link did not go down"; return 1; fi
  [ "$(answer wrong)" = 0 ] && [ "$(answer rows)" -gt 0 ] || refuse "$(cat /tmp/answer)" || return 1
  before=$(answer rows)
  ask verbs read 256 2
  [ "$(answer wrong)" = 0 ] || refuse "$(cat /tmp/answer)" || return 1
  rows=$(answer rows) asked=$(date +%s)
  ask verbs again 2000 $LONG || { management_queue_pairs; refuse "$(cat /tmp/answer)"; } || return 1
  # On a slow machine it was up again by then.
  [ "$rows" = 0 ] || [ "$asked" -ge "$(on_server cat /tmp/link.up)" ] || refuse "$rows rows came over no link" || return 1
  detail "down under reads after $before rows; no row and no wrong row while it was; 2000 right after" \
    "$(answer tries) tries, $(answer ms) ms"
}

# The node's device loses its address: the node opens an endpoint at the one that it has then, and its readers go there.
address_changes() {
  ask verbs again 256 $LONG || return 1
  on_server 'ip addr del 10.8.1.1/16 dev eth0'
  server_does 'wait_until grep "they are told ofi" /tmp/node.program.log' || refuse "the node did not notice" || return 1
  ask verbs again 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "$(answer rows) rows right, 0 wrong after $(answer ms) ms"
}

# What was taken back is refused by the other host's device.
retired() {
  server_does engramctl delete table $TABLE --yes --force || refuse "not deleted" || return 1
  no_row verbs read 256 5 || return 1
  TABLE=rows@2
  server_does "TABLE=rows@2; load_table" || refuse "not loaded again" || return 1
  ENGRAM_OFI_PROVIDER="verbs;ofi_rxm" open_reader second ofi || refuse "no reader" || return 1
  ask second read 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "no row and no wrong row of what was retired; $(answer rows) rows of the next table"
}

if [ "$role" = server ]; then
  case_of "an RDMA device appears" on_wire 1
  case_of "a pool over verbs" serve_pool
  serve_until_finished
else
  case_of "an RDMA device appears" on_wire 2
  case_of "a pool in another guest" pool_from_afar && {
    case_of "a client chooses RDMA by itself" chosen_by_itself
    case_of "10,000 rows of a frozen node" frozen_node
    case_of "the node's link down for 10 s" link_flap
    case_of "the node's address changes under reads" address_changes
    case_of "a replica is retired" retired
  }
  on_server ': >/tmp/finished'
fi
