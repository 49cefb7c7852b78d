"""The suites: which guests each one is made of. What runs in them is tests/vm/guest/SUITE.sh."""
from guest import Machine


def rdma(_work):
    return [Machine(suite="rdma")]


SUITES = {"rdma": rdma}
DEFAULT = ["rdma"]
