# A pool node on a CXL device that has become a NUMA node without CPUs.
make_numa_node() {
  [ ! -e /tmp/node.pid ] || stop_node || refuse "the node does not stop" || return 1
  wait_until device_is_left || refuse "a reader keeps the device mapped" || return 1
  daxctl reconfigure-device --mode=system-ram --force dax0.0 || refuse "no system RAM" || return 1
  numactl -H
  wait_until grep -q 1 /sys/devices/system/node/has_memory || return 1
  detail "$(numactl -H | grep 'node 1 size'), cpus:$(cat /sys/devices/system/node/node1/cpulist)"
}

# Who has it mapped when it is reconfigured is killed.
device_is_left() { ! grep -q $DEVICE /proc/[0-9]*/maps; }

# The node itself asks the kernel (move_pages) where each page lies, and refuses to serve from elsewhere.
node_on_numa() {
  start_node $ADDRESS --memory 0 --cxl-memory 64MiB --cxl-numa-node 1 --huge-pages off ||
    refuse "no node" || return 1
  ask dax again 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  grep "loaded.* node 1" /tmp/node.program.log || refuse "the memory is not on node 1" || return 1
  detail "$(answer rows) rows right, 0 wrong, over $(answer path); pages on node 1"
}

free_on_node() { awk '/MemFree/ { print int($4 / 1024) }' /sys/devices/system/node/node1/meminfo; }

# Somebody else takes what is left of the node: a table finds no room, the node says where and why, the rows that are there go
# on.
full_numa_node() {
  mkdir -p /tmp/others && mount -t tmpfs -o size=128m,mpol=bind:1 none /tmp/others || return 1
  dd if=/dev/zero of=/tmp/others/file bs=1M count=$(($(free_on_node) - 32)) || refuse "not filled" || return 1
  echo '{"model": "deepseek-v4.1", "engram_vocab_size": 700, "layers": [1, 14], "seed": 8}' >/tmp/small.json
  engramctl load table full@1 --synthetic /tmp/small.json || refuse "not accepted" || return 1
  wait_until node_says_full || refuse "not said: $(engramctl describe node node-a)" || return 1
  engramctl describe node node-a
  ask dax again 2000 $LONG || refuse "$(cat /tmp/answer)" || return 1
  detail "$(cat /tmp/full); $(answer rows) rows of the other table right"
}
node_says_full() {
  engramctl describe node node-a | grep -o "[^ ]* wanted, .* available on node 1" | head -n 1 >/tmp/full
  [ -s /tmp/full ]
}
