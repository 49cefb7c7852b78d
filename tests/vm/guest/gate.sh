# The short form of rdma and cxl in one boot: a frozen node over soft-RoCE, a retired region, a node on a CXL device as devdax
# and as a NUMA node.
. /suites/pool.sh
. /suites/rdma_pool.sh
. /suites/devdax.sh
. /suites/numa.sh
ADDRESS=10.8.0.1
# However slow the machine, 10,000 rows are read before it ends.
LEASE=120

devdax_in_place_of_memory() {
  thaw_node
  wait_until engramctl delete table $TABLE --yes --force || refuse "the table stays" || return 1
  stop_node || refuse "the node does not stop" || return 1
  LEASE=10
  TABLE=rows@2
  node_on_devdax
}

case_of "an RDMA device appears" on_dummy
case_of "a pool over verbs" pool_over_verbs && {
  case_of "a retired region costs its reader only" retired_region
  case_of "10,000 rows of a frozen node" frozen_node
}
case_of "a CXL device becomes a DAX device" make_cxl_devdax && {
  case_of "a pool node on the DAX device" devdax_in_place_of_memory
  case_of "a second owner is refused" second_owner
  case_of "the device becomes a NUMA node" make_numa_node &&
    case_of "a pool node on the NUMA node" node_on_numa
}
