# One guest with a soft-RoCE device: everything that needs no second host.
. /suites/pool.sh
. /suites/rdma_pool.sh
# The device's addresses come and go without the pool's own connections.
ADDRESS=127.0.0.1
RDMA=10.8.0.1
# However slow the machine, 10,000 rows are read before it ends.
LEASE=60

case_of "an RDMA device appears" on_dummy
case_of "doctor names it" doctor
case_of "a pool over verbs" pool_over_verbs && {
  case_of "a retired region costs its reader only" retired_region
  case_of "10,000 rows of a frozen node" frozen_node
  case_of "a frozen node over stream" frozen_node_over_stream
  case_of "the lease ends the reads" lease_ends
  case_of "readers that vanish while they connect" vanishing_readers
  case_of "the node's address changes under reads" address_changes
}
case_of "conformance of ofi over verbs" conformance ofi_verbs
