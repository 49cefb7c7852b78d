"""The folder list is the architecture: fails on any include edge that ARCHITECTURE section 2 does not draw.

usage: include_edges_test.py SOURCE_DIR
"""
import pathlib
import re
import subprocess
import sys
import unittest

# folder -> folders it may include. Tests and bench may include everything.
ALLOWED = {
    "engram": set(),
    "fabric": {"engram"},
    "proto": {"engram"},
    "poolserver": {"engram", "fabric", "proto"},
    "client": {"engram", "fabric", "proto"},
    "placement": {"engram", "proto"},
}
# The generated headers are proto's, whatever their path says.
GENERATED = re.compile(r"^(engram/v1|etcd)/.*\.pb\.h$")
# gRPC, protobuf and prometheus types stay in the adapters, so that domain code builds without them.
WIRE = re.compile(r'^(grpcpp/|grpc/|google/protobuf/|prometheus/|proto/|engram/v1/|etcd/)')
WIRE_FOLDERS = re.compile(r"^(proto/|[a-z]+/rpc/|[a-z]+/program/|client/abi/|client/ctl/|client/gpu/)")
INSTALLED = re.compile(r"^client/include/")
INSTALLED_FORBIDDEN = re.compile(r"^(absl/|grpcpp/|grpc/|google/)")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)


def sources(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True)
    names = listed.stdout.split("\n") if listed.returncode == 0 else [
        str(p.relative_to(root)) for p in pathlib.Path(root).rglob("*")]
    return [n for n in names if n.split("/")[0] in ALLOWED and n.endswith((".h", ".hpp", ".cc", ".c", ".cu", ".cuh"))]


def folder_of(include):
    return "proto" if GENERATED.match(include) else include.split("/")[0]


def bad_edges(name, text):
    """Every include of `name` that breaks a rule, with the rule."""
    folder = name.split("/")[0]
    for include in INCLUDE.findall(text):
        target = folder_of(include)
        if include in ("engram/engram.h", "engram/engram.hpp"):
            target = "client"
        if target in ALLOWED and target != folder and target not in ALLOWED[folder]:
            yield f"{name}: {folder}/ must not include {include}"
        if WIRE.match(include) and not WIRE_FOLDERS.match(name):
            yield f"{name}: wire types ({include}) belong in proto/, */rpc/, */program/"
        if INSTALLED.match(name) and INSTALLED_FORBIDDEN.match(include):
            yield f"{name}: an installed header must not include {include}"


class IncludeEdges(unittest.TestCase):
    root = "."

    def test_every_edge_is_drawn_in_the_architecture(self):
        names = sources(self.root)
        self.assertGreater(len(names), 20, "found too few sources: is SOURCE_DIR right?")
        bad = []
        for name in names:
            path = pathlib.Path(self.root, name)
            if path.is_file():
                bad += bad_edges(name, path.read_text(encoding="utf-8"))
        self.assertEqual(bad, [], "\n".join(bad))

    def test_the_rules_can_fail(self):
        self.assertTrue(list(bad_edges("engram/a.cc", '#include "fabric/fabric.h"\n')))
        self.assertTrue(list(bad_edges("poolserver/a.cc", '#include "client/lease.h"\n')))
        self.assertTrue(list(bad_edges("placement/plan/a.cc", '#include "fabric/memory.h"\n')))
        self.assertTrue(list(bad_edges("client/a.cc", '#include "engram/v1/common.pb.h"\n')))
        self.assertTrue(list(bad_edges("client/include/engram/engram.hpp", '#include <absl/status/status.h>\n')))
        self.assertFalse(list(bad_edges("client/rpc/a.cc", '#include "proto/convert.h"\n')))


if __name__ == "__main__":
    IncludeEdges.root = sys.argv.pop(1) if len(sys.argv) > 1 else "."
    unittest.main()
