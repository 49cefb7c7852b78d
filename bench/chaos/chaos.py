"""Breaks a pool of real processes in every way it must bear, and counts what its readers noticed.

usage: chaos.py BUILD_DIR [--json FILE] [--quick] [--only WORDS] [--keep DIR]

Nine network namespaces on one bridge: three with a member of etcd and a controller each, four with a pool node (two copies of every
shard), two with a replica that reads all the time with a deadline of one second. Each fault is made, held and mended; then the
pool must be whole again. The report counts failed reads, wrong rows, tables that cannot be read in full at the end, and the
longest read. While a fault holds, tables are loaded where a controller can: changes must go on, too.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "integration"))
import hosts_test  # noqa: E402

CONTROLLERS, NODES, REPLICAS = ("h1", "h2", "h3"), ("n1", "n2", "n3", "n4"), ("r1", "r2")
TABLE = "chaos@1"
SPEC = {"model": "deepseek-v4.1", "engram_vocab_size": 8000, "layers": [1], "seed": 7}
DISK = "320m"  # of each member of etcd, whose log alone takes 128 MiB


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Replica:
    """A reader process and what it said, second by second."""

    def __init__(self, cluster, host):
        self.lines, self.ended = [], False
        self.process = subprocess.Popen(cluster.hosts.command(host, *cluster.reader_command()), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=open(cluster.dir / f"{host}.log", "wb"), text=True)
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def finish(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.thread.join(timeout=10)


class Cluster:
    def __init__(self, build, directory):
        self.bin, self.dir = build / "bin", directory
        self.library = build / "lib" / "libengram.so"
        hosts_test.BIN = self.bin
        hosts_test.PREFIX = f"ec{os.getpid() % 100000}"
        names = CONTROLLERS + NODES + REPLICAS + ("client",)
        hosts_test.HOSTS = {name: f"10.213.78.{i + 1}" for i, name in enumerate(names)}
        self.address = hosts_test.HOSTS
        self.endpoints = ",".join(f"{self.address[name]}:7700" for name in CONTROLLERS)
        self.etcd = ",".join(f"http://{self.address[name]}:2379" for name in CONTROLLERS)
        self.running, self.tables, self.mounts = {}, [], []
        self.hosts = hosts_test.Hosts()

    # ---- processes ----

    def start(self, name):
        """`name`: etcd-h1, h1 (its controller) or n1."""
        log = self.dir / f"{name}.log"
        with open(log, "ab") as out:
            self.running[name] = subprocess.Popen(self.hosts.command(name.removeprefix("etcd-"), *self.command_of(name)),
                                                  stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def command_of(self, name):
        if name.startswith("etcd-"):
            host = name.removeprefix("etcd-")
            own, peers = self.address[host], ",".join(f"{one}=http://{self.address[one]}:2380" for one in CONTROLLERS)
            return ["etcd", "--name", host, "--data-dir", self.disk(host) / "data", "--listen-client-urls", f"http://{own}:2379",
                    "--advertise-client-urls", f"http://{own}:2379", "--listen-peer-urls", f"http://{own}:2380",
                    "--initial-advertise-peer-urls", f"http://{own}:2380", "--initial-cluster", peers,
                    "--logger", "zap", "--log-level", "error"]
        own = self.address[name]
        if name in CONTROLLERS:
            return ["/mnt/engram-placement", "--store", "etcd", "--etcd-endpoints", self.etcd, "--listen", f"{own}:7700",
                    "--insecure-listen", "--metrics-listen", "127.0.0.1:7701", "--repair-after", "10s"]
        return ["/mnt/engram-poolserver", "--node-id", name, "--failure-domain", name, "--controller", self.endpoints,
                "--listen", f"{own}:7702", "--stream-listen", f"{own}:7703", "--insecure-listen", "--memory", "256MiB",
                "--runtime-dir", "/run/engram", "--metrics-listen", "127.0.0.1:7704"]

    def reader_command(self, *more):
        return [sys.executable, pathlib.Path(__file__).with_name("reader.py"), self.library, self.endpoints, TABLE,
                self.dir / "rows", *more]

    def disk(self, host):
        return self.dir / f"disk-{host}"

    def up(self):
        for host in CONTROLLERS:
            self.disk(host).mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", self.disk(host)], check=True)
            self.mounts.append(self.disk(host))
            self.start(f"etcd-{host}")
        for name in CONTROLLERS + NODES:
            self.start(name)
        self.await_whole("the start")
        self.load(TABLE)
        subprocess.run(self.hosts.command("client", *self.reader_command("--learn")), check=True, timeout=60)
        self.replicas = [Replica(self, host) for host in REPLICAS]

    def down(self):
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
        self.hosts.processes += list(self.running.values()) + [replica.process for replica in getattr(self, "replicas", [])]
        self.hosts.close()
        for mount in self.mounts:
            subprocess.run(["umount", "-l", mount], check=False)

    def kill(self, *names):
        for name in names:
            self.running[name].kill()
        for name in names:
            self.running.pop(name).wait()

    def signal(self, number, *names):
        for name in names:
            self.running[name].send_signal(number)

    def busiest_node(self):
        """The one that serves most: a fault of one that serves nothing proves nothing."""
        done = self.ctl("get", "shards", TABLE, "-o", "json")
        serving = dict.fromkeys(NODES, 0)
        for shard in json.loads(done.stdout)["shards"]:
            for replica in shard.get("replicas", []):
                serving[replica["node"]] += "SERVING" in replica["state"]
        return max(NODES, key=serving.get)

    # ---- the network ----

    def rule(self, action, host, peer):
        for chain, side in (("INPUT", "-s"), ("OUTPUT", "-d")):
            subprocess.run(["ip", "netns", "exec", f"{hosts_test.PREFIX}{host}", "iptables", "-w", action, chain, side,
                            self.address[peer], "-j", "DROP"], check=True, capture_output=True)

    def cut(self, host, peers):
        for peer in peers:
            self.rule("-A", host, peer)

    def mend(self, host, peers):
        for peer in peers:
            self.rule("-D", host, peer)

    # ---- the pool ----

    def ctl(self, *words, timeout="20s"):
        command = self.hosts.command("client", "/mnt/engramctl", *words, "--endpoint", self.endpoints, "--timeout", timeout)
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    def load(self, name):
        spec = self.dir / "spec.json"
        spec.write_text(json.dumps(SPEC), encoding="utf-8")
        done = self.ctl("load", "table", name, "--synthetic", spec, "--shard-bytes", "1MiB", "--replicas", "2", "--wait", timeout="90s")
        if done.returncode != 0:
            raise AssertionError(f"{name} could not be loaded: {done.stderr}")
        self.tables.append(name)

    def await_whole(self, after, seconds=120):
        """Every node alive, two serving copies of every shard."""
        deadline, done, why = time.monotonic() + seconds, None, "no answer"
        while time.monotonic() < deadline:
            done = self.ctl("get", "nodes", "-o", "json")
            if done.returncode == 0:
                alive = sum(node.get("alive", False) for node in json.loads(done.stdout)["nodes"])
                short = self.short_shards()
                why = f"{alive} nodes alive, {short} shards short of two copies"
                if alive == len(NODES) and short == 0:
                    return
            else:
                why = done.stderr.strip()
            time.sleep(0.5)
        raise AssertionError(f"after {after} the pool is not whole in {seconds} s: {why}")

    def short_shards(self):
        done = self.ctl("get", "shards", "-o", "json")
        if done.returncode != 0:
            return -1
        serving = [sum("SERVING" in replica["state"] for replica in shard.get("replicas", []))
                   for shard in json.loads(done.stdout).get("shards", [])]
        return sum(copies < 2 for copies in serving)

    def leader(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for host in CONTROLLERS:
                if host not in self.running:
                    continue
                page = subprocess.run(["ip", "netns", "exec", f"{hosts_test.PREFIX}{host}", sys.executable, "-c",
                                       "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7701/metrics', timeout=2).read().decode())"],
                                      capture_output=True, text=True)
                if "\nengram_placement_leader 1" in page.stdout:
                    return host
            time.sleep(0.2)
        raise AssertionError("no controller leads")

    def lost_tables(self):
        lost = []
        for table in self.tables:
            done = self.ctl("verify", "table", table, "--sample", "2000", timeout="60s")
            if done.returncode != 0 or "0 wrong" not in done.stdout:
                lost.append(f"{table}: {done.stdout.strip()} {done.stderr.strip()}")
        return lost


class Chaos:
    """The faults: each a method that makes one, holds it and mends it."""

    def __init__(self, cluster, quick):
        self.cluster, self.hold, self.loads, self.trouble = cluster, (12 if quick else 30), 0, []

    def load_one(self):
        """Changes go on, too; whether or not, the fault is mended."""
        self.loads += 1
        try:
            self.cluster.load(f"during-{self.loads}@1")
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self.trouble.append(str(error))

    def node_is_killed(self):
        node = self.cluster.busiest_node()
        self.cluster.kill(node)
        time.sleep(3)
        self.cluster.start(node)

    def node_stays_dead_and_is_repaired(self):
        node = self.cluster.busiest_node()
        self.cluster.kill(node)
        time.sleep(20)  # repair-after is 10 s
        self.cluster.start(node)

    def node_is_stopped_and_woken(self):
        node = self.cluster.busiest_node()
        self.cluster.signal(signal.SIGSTOP, node)
        time.sleep(self.hold)
        self.cluster.signal(signal.SIGCONT, node)

    def node_is_cut_off_from_the_controllers(self):
        node = self.cluster.busiest_node()
        self.cluster.cut(node, CONTROLLERS)
        time.sleep(self.hold)
        self.cluster.mend(node, CONTROLLERS)

    def node_is_cut_off_from_the_replicas(self):
        node = self.cluster.busiest_node()
        self.cluster.cut(node, REPLICAS)
        time.sleep(self.hold)
        self.cluster.mend(node, REPLICAS)

    def node_is_cut_off_from_everybody(self):
        node = self.cluster.busiest_node()
        others = [host for host in self.cluster.address if host != node]
        self.cluster.cut(node, others)
        time.sleep(self.hold)
        self.cluster.mend(node, others)

    def replica_is_cut_off_from_the_controllers(self):
        self.cluster.cut("r1", CONTROLLERS)
        time.sleep(self.hold)
        self.cluster.mend("r1", CONTROLLERS)

    def leader_is_killed(self):
        leader = self.cluster.leader()
        self.cluster.kill(leader)
        self.load_one()
        self.cluster.start(leader)

    def leader_is_stopped_and_woken(self):
        leader = self.cluster.leader()
        self.cluster.signal(signal.SIGSTOP, leader)
        start = time.monotonic()
        self.load_one()
        time.sleep(max(0, self.hold - (time.monotonic() - start)))
        self.cluster.signal(signal.SIGCONT, leader)

    def leader_is_cut_off_from_everybody(self):
        leader = self.cluster.leader()
        others = [host for host in self.cluster.address if host != leader]
        self.cluster.cut(leader, others)
        self.load_one()
        time.sleep(5)
        self.cluster.mend(leader, others)

    def all_controllers_are_killed(self):
        self.cluster.kill(*CONTROLLERS)
        time.sleep(self.hold)
        for host in CONTROLLERS:
            self.cluster.start(host)

    def a_member_of_etcd_is_killed(self):
        self.cluster.kill("etcd-h2")
        self.load_one()
        self.cluster.start("etcd-h2")

    def the_majority_of_etcd_is_killed(self):
        self.cluster.kill("etcd-h1", "etcd-h3")
        time.sleep(self.hold)
        self.cluster.start("etcd-h1")
        self.cluster.start("etcd-h3")
        self.load_one()

    def a_disk_of_etcd_is_full(self):
        host = "h1"
        filler = self.cluster.disk(host) / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=1M"], capture_output=True)
        for _ in range(3):  # writes that need room
            self.load_one()
        time.sleep(5)
        filler.unlink()
        if self.cluster.running[f"etcd-{host}"].poll() is not None:  # etcd ends where it cannot write
            self.cluster.running.pop(f"etcd-{host}")
            self.cluster.start(f"etcd-{host}")


FAULTS = ("node_is_killed", "node_stays_dead_and_is_repaired", "node_is_stopped_and_woken",
          "node_is_cut_off_from_the_controllers", "node_is_cut_off_from_the_replicas", "node_is_cut_off_from_everybody",
          "replica_is_cut_off_from_the_controllers", "leader_is_killed", "leader_is_stopped_and_woken",
          "leader_is_cut_off_from_everybody", "all_controllers_are_killed", "a_member_of_etcd_is_killed",
          "the_majority_of_etcd_is_killed", "a_disk_of_etcd_is_full")


def total(replicas, begin, end):
    lines = [line for replica in replicas for line in list(replica.lines) if begin < line["at"] <= end]
    return {"reads": sum(line["reads"] for line in lines), "failed_reads": sum(line["failed"] for line in lines),
            "wrong_rows": sum(line["wrong"] for line in lines),
            "longest_pause_ms": round(max((line["longest_ms"] for line in lines), default=0), 1),
            "why": next((line["why"] for line in lines if line["why"]), "")}


def run(cluster, quick, only):
    chaos, report = Chaos(cluster, quick), []
    for fault in FAULTS:
        words = fault.replace("_", " ")
        if only and only not in words:
            continue
        say(words)
        begin, chaos.trouble = time.monotonic(), []
        try:
            getattr(chaos, fault)()
            cluster.await_whole(words)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            chaos.trouble.append(str(error))
        time.sleep(1.5)  # the replicas say what they saw
        entry = {"fault": words, **total(cluster.replicas, begin, time.monotonic()),
                 "seconds": round(time.monotonic() - begin, 1), "trouble": "; ".join(chaos.trouble)}
        say("  " + ", ".join(f"{key} {value}" for key, value in entry.items() if key not in ("fault",) and value != ""))
        report.append(entry)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, help="write the report here")
    parser.add_argument("--quick", action="store_true", help="hold faults for 12 s, not 30 s")
    parser.add_argument("--only", default="", help="faults whose name has these words")
    parser.add_argument("--keep", type=pathlib.Path, help="keep the logs in this folder")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "iptables", "etcd"))):
        raise SystemExit("./dev chaos: needs root (network namespaces), iproute2, iptables and etcd-server")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    directory = pathlib.Path(tempfile.mkdtemp(prefix="engram-chaos-", dir=os.environ.get("HOME", "/root")))
    cluster = Cluster(arguments.build.resolve(), directory)
    try:
        cluster.up()
        begin = time.monotonic()
        faults = run(cluster, arguments.quick, arguments.only)
        for replica in cluster.replicas:
            replica.finish()
        lost = cluster.lost_tables()
        whole = total(cluster.replicas, begin, time.monotonic())
    finally:
        cluster.down()
        if arguments.keep:
            shutil.copytree(directory, arguments.keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("disk-*"))
        shutil.rmtree(directory, ignore_errors=True)
    report = {"seeds": 1, "reads": whole["reads"], "failed_reads": whole["failed_reads"], "wrong_rows": whole["wrong_rows"],
              "tables": len(cluster.tables), "tables_lost": len(lost), "longest_pause_ms": whole["longest_pause_ms"],
              "faults": faults, "lost": lost}
    print(json.dumps({key: value for key, value in report.items() if key not in ("faults", "lost")}))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    bad = [entry["fault"] for entry in faults if entry["failed_reads"] or entry["wrong_rows"] or entry["trouble"]]
    for words in bad + lost:
        say(f"not borne: {words}")
    raise SystemExit(1 if bad or lost else 0)


if __name__ == "__main__":
    main()
