# What is asked of a pool node on a DAX device, whatever the device is: /dev/dax0.0 exists, the pool is at $ADDRESS.
DEVICE=/dev/dax0.0

describe_devdax() {
  detail "$DEVICE, $(($(cat /sys/bus/dax/devices/dax0.0/size) >> 20)) MiB, alignment $(cat /sys/bus/dax/devices/dax0.0/align)"
}

# The namespace's page structures go to system memory: two guests that share a device must not share those.
make_devdax_namespace() {
  ndctl create-namespace -m devdax --map=mem -r region0 "$@" || refuse "no namespace" || return 1
  wait_until test -e $DEVICE || refuse "no $DEVICE" || return 1
}

# make_cxl_devdax: a region on the CXL device, a namespace on the region.
make_cxl_devdax() {
  load_modules cxl_acpi cxl_pci cxl_mem cxl_port cxl_pmem nd_pmem dax_pmem device_dax kmem || return 1
  wait_until test -e /sys/bus/cxl/devices/mem0 || refuse "no CXL memory device" || return 1
  cxl create-region -m -d decoder0.0 -t pmem -w 1 mem0 || refuse "no region" || return 1
  wait_until test -e /sys/bus/nd/devices/region0 || return 1
  make_devdax_namespace || return 1
  describe_devdax
}

start_devdax_node() { start_node $ADDRESS --cxl-devices $DEVICE --memory 0 "$@"; }

# Readers of the same host map the device, too.
node_on_devdax() {
  start_controller $ADDRESS || refuse "no controller" || return 1
  start_devdax_node || refuse "no node" || return 1
  load_table || refuse "no table" || return 1
  open_reader dax mapped || refuse "no reader" || return 1
  ask dax read 3000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  grep -q "of $DEVICE" /tmp/node.program.log || refuse "the memory is elsewhere" || return 1
  detail "$(answer rows) rows right, 0 wrong, over $(answer path)"
}

over_stream() {
  open_reader plain stream || refuse "no reader" || return 1
  ask plain read 1000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "$(answer rows) rows right, 0 wrong, over $(answer path)"
}

# refused WORDS flags...: a node does not start, and says why.
refused() {
  local words=$1
  shift
  if ENGRAM_MEMORY=0 timeout -s KILL $PATIENCE engram-poolserver --controller "$ENGRAM_ENDPOINT" --lease ${LEASE}s "$@" 2>/tmp/refusal; then
    refuse "it started: $*"
    return 1
  fi
  cat /tmp/refusal
  grep -q "$words" /tmp/refusal || refuse "not said: $words" || return 1
}

second_owner() {
  refused "in use by another process" --node-id node-b --cxl-devices $DEVICE || return 1
  detail "refused: in use by another process"
}

what_cannot_work() {
  refused "is more than" --node-id node-b --cxl-devices $DEVICE --cxl-memory 8GiB || return 1
  refused "not a DAX device" --node-id node-b --cxl-devices /dev/null || return 1
  detail "too small a device and what is no DAX device refused with the reason"
}

unsealed_table() {
  engramctl load table bare@1 --synthetic /tmp/spec.json --seal none --wait --timeout ${PATIENCE}s && return 1
  grep -h "not sealed" /tmp/node.program.log /tmp/controller.program.log && detail "refused: not sealed"
}

# A node that was killed may have readers with leases: the next start waits for them, then loads anew.
killed_and_restarted() {
  stop_node -KILL || refuse "it does not end" || return 1
  start_devdax_node || refuse "no node" || return 1
  grep -h "waits" /tmp/node.program.log || refuse "it did not wait for leases" || return 1
  ask dax again 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "waited until no reader held a lease; $(answer rows) rows right, 0 wrong"
}

superblock_holder() { sed -n 's/.*--take-over-device \([^ ]*\).*/\1/p' /tmp/refusal | head -n 1; }

take_over() {
  local holder
  stop_node -KILL || refuse "it does not end" || return 1
  refused 'belongs to node "node-a"' --node-id node-b --cxl-devices $DEVICE || return 1
  holder=$(superblock_holder)
  refused "$holder" --node-id node-b --cxl-devices $DEVICE --take-over-device node-a@999 || return 1
  NODE=node-b start_devdax_node --take-over-device "$holder" || refuse "not taken over" || return 1
  stop_node || refuse "it does not end" || return 1
  refused 'belongs to node "node-b"' --node-id node-a --cxl-devices $DEVICE || return 1
  start_devdax_node --take-over-device "$(superblock_holder)" || refuse "not given back" || return 1
  detail "refused without the owner's name, then taken over from $holder and back"
}

# The node says which device is gone and ends; a reader that needs the node gets no row; once the device is back, so are they.
device_disappears() {
  local bus=/sys/bus/dax/drivers/device_dax
  ask plain again 256 $LONG || refuse "$(cat /tmp/answer)" || return 1
  echo dax0.0 >$bus/unbind || refuse "not unbound" || return 1
  wait_until test -e /tmp/node.ended || refuse "the node goes on without its device" || return 1
  [ "$(cat /tmp/node.ended)" = 1 ] || refuse "it ended with status $(cat /tmp/node.ended)" || return 1
  rm /tmp/node.ended
  grep "$DEVICE is gone or failed" /tmp/node.program.log || refuse "it does not say why" || return 1
  no_row plain read 256 5 || return 1
  echo dax0.0 >$bus/bind && wait_until test -e $DEVICE || refuse "not bound again" || return 1
  start_devdax_node || refuse "no node" || return 1
  ask plain again 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "the node named it and ended; no row meanwhile; $(answer rows) rows right once it was back"
}

devdax_cases() {
  case_of "a pool node on the DAX device" node_on_devdax || return 1
  case_of "its rows over stream" over_stream
  case_of "a second owner is refused" second_owner
  case_of "what cannot work is refused" what_cannot_work
  case_of "an unsealed table is refused" unsealed_table
  case_of "a node killed and started again" killed_and_restarted
  case_of "take-over refused, then forced" take_over
}
