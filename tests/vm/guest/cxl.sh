# A pool node on an emulated CXL type-3 device: as a DAX device first, then as a NUMA node without CPUs.
. /suites/pool.sh
ADDRESS=127.0.0.1
DEVICE=/dev/dax0.0

make_devdax() {
  load_modules cxl_acpi cxl_pci cxl_mem cxl_port cxl_pmem nd_pmem dax_pmem device_dax kmem || return 1
  wait_until 20 test -e /sys/bus/cxl/devices/mem0 || refuse "no CXL memory device" || return 1
  cxl create-region -m -d decoder0.0 -t pmem -w 1 mem0 || refuse "no region" || return 1
  wait_until 10 test -e /sys/bus/nd/devices/region0 || return 1
  ndctl create-namespace -m devdax -r region0 || refuse "no namespace" || return 1
  wait_until 10 test -e $DEVICE || return 1
  detail "$DEVICE, $(($(cat /sys/bus/dax/devices/dax0.0/size) >> 20)) MiB, alignment $(cat /sys/bus/dax/devices/dax0.0/align)"
}

node_on_devdax() {
  start_controller $ADDRESS || refuse "no controller" || return 1
  start_node $ADDRESS --memory 0 --cxl-devices $DEVICE || refuse "no node" || return 1
  load_table || refuse "no table" || return 1
  open_reader dax auto || refuse "no reader" || return 1
  ask dax read 3000 30 || refuse "$(cat /tmp/answer)" || return 1
  grep -q "$DEVICE" /tmp/node.program.log || refuse "the memory is elsewhere" || return 1
  detail "$(answer rows) rows right, 0 wrong, over $(answer path)"
}

second_owner() {
  if engram-poolserver --node-id node-b --controller "$ENGRAM_ENDPOINT" --memory 0 --cxl-devices $DEVICE 2>/tmp/second; then
    refuse "two nodes own one device"
    return 1
  fi
  cat /tmp/second
  grep -q "in use by another process" /tmp/second && detail "refused: in use by another process"
}

no_mapped_fabric() {
  if engram-poolserver --memory 0 --cxl-devices $DEVICE --fabrics mapped 2>/tmp/mapped; then return 1; fi
  engram-poolserver --memory 0 --cxl-devices $DEVICE --cxl-memory 8GiB 2>/tmp/large && return 1
  engram-poolserver --memory 0 --cxl-devices /dev/null 2>/tmp/null && return 1
  cat /tmp/mapped /tmp/large /tmp/null
  grep -q "is more than" /tmp/large && grep -q "not a DAX device" /tmp/null &&
    detail "too small a device and what is no DAX device refused with the reason"
}

unsealed_table() {
  engramctl load table bare@1 --synthetic /tmp/spec.json --seal none --wait --timeout 30s && return 1
  grep -h "not sealed" /tmp/node.program.log /tmp/controller.program.log && detail "refused: not sealed"
}

make_numa_node() {
  stop_node || refuse "the node does not stop" || return 1
  daxctl reconfigure-device --mode=system-ram --force dax0.0 || refuse "no system RAM" || return 1
  numactl -H
  wait_until 10 grep -q 1 /sys/devices/system/node/has_memory || return 1
  detail "$(numactl -H | grep 'node 1 size'), cpus:$(cat /sys/devices/system/node/node1/cpulist)"
}

# The node itself asks the kernel (move_pages) where each page lies, and refuses to serve from elsewhere.
node_on_numa() {
  rm -f /tmp/node.program.log
  start_node $ADDRESS --memory 0 --cxl-memory 64MiB --cxl-numa-node 1 --huge-pages off || refuse "no node" || return 1
  # Emulated memory is written a word at a time.
  wait_until 200 grep -q "loaded 48 of 48" /tmp/node.program.log || refuse "not loaded" || return 1
  open_reader numa auto || refuse "no reader" || return 1
  ask numa again 2000 60 || refuse "$(cat /tmp/answer)" || return 1
  grep "node 1" /tmp/node.program.log || refuse "the memory is not on node 1" || return 1
  detail "$(answer rows) rows right, over $(answer path); pages on node 1"
}

case_of "a CXL device becomes a DAX device" make_devdax && {
  case_of "a pool node on the DAX device" node_on_devdax
  case_of "a second owner is refused" second_owner
  case_of "what cannot work is refused" no_mapped_fabric
  case_of "an unsealed table is refused" unsealed_table
  case_of "the device becomes a NUMA node" make_numa_node &&
    case_of "a pool node on the NUMA node" node_on_numa
}
