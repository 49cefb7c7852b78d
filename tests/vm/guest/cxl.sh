# A pool node on an emulated CXL type-3 device: as a DAX device first, then as a NUMA node without CPUs.
. /suites/pool.sh
. /suites/devdax.sh
. /suites/numa.sh
ADDRESS=127.0.0.1
LEASE=10

case_of "a CXL device becomes a DAX device" make_cxl_devdax && {
  devdax_cases
  case_of "the device becomes a NUMA node" make_numa_node &&
    case_of "a pool node on the NUMA node" node_on_numa &&
    case_of "the NUMA node is full" full_numa_node
}
