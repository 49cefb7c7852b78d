# A pool node on a CXL device that has become a NUMA node without CPUs.
make_numa_node() {
  [ ! -e /tmp/node.pid ] || stop_node || refuse "the node does not stop" || return 1
  daxctl reconfigure-device --mode=system-ram --force dax0.0 || refuse "no system RAM" || return 1
  numactl -H
  wait_until 10 grep -q 1 /sys/devices/system/node/has_memory || return 1
  detail "$(numactl -H | grep 'node 1 size'), cpus:$(cat /sys/devices/system/node/node1/cpulist)"
}

# The node itself asks the kernel (move_pages) where each page lies, and refuses to serve from elsewhere.
node_on_numa() {
  start_node $ADDRESS --memory 0 --cxl-memory 64MiB --cxl-numa-node 1 --huge-pages off ||
    refuse "no node" || return 1
  ask dax again 2000 190 || refuse "$(cat /tmp/answer)" || return 1
  grep "loaded.* node 1" /tmp/node.program.log || refuse "the memory is not on node 1" || return 1
  detail "$(answer rows) rows right, 0 wrong, over $(answer path); pages on node 1"
}
