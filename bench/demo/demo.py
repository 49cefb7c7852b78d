"""The main job, end to end: three pool nodes serve a V4.1-shaped table to two replicas that replay real text.

usage: demo.py BUILD_DIR [--seconds 50] [--report FILE]

Starts a local pool, writes and loads a checkpoint of about 2 GB, replays the traces over `mapped` and over `stream`
with every row checked, moves the hottest shard while it is read, kills one node half way, repairs it, prints a table and
writes an HTML report. Removes everything it made: processes, sockets, files, huge pages.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import pages  # noqa: E402
import report  # noqa: E402
from replica import Replica  # noqa: E402
from screen import Screen  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TRACES = HERE.parent / "traces"
TABLE = "deepseek-v4.1@1"
SEED = 20260901
VOCAB_ROWS = 160_000
NODES = 3
NODE_MEMORY = "768MiB"
RECOVERY_LIMIT = 90  # seconds that a killed node may take to serve again
AFTER_RECOVERY = 6  # seconds of replay after it does
AFTER_MOVE = 4  # seconds of replay between a move and a kill
NEED_DISK = 3 << 30
NEED_MEMORY = 4 << 30


class DemoError(Exception):
    """Something the person who runs the demo can act on."""


class Pool:
    """A local pool driven through engramctl, as a user would."""

    def __init__(self, bin_dir, data_dir):
        self.bin_dir, self.data_dir = bin_dir, data_dir
        self.env = dict(os.environ, ENGRAM_CONTEXT=str(data_dir / "context.yaml"), ENGRAM_HEAT_REPORT_EVERY="2s")
        self.endpoint = None

    def ctl(self, *arguments, timeout=120, check=True):
        command = [self.bin_dir / "engramctl", *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise DemoError(f"engramctl {' '.join(map(str, arguments))} failed:\n{done.stderr.strip()}")
        return done

    def up(self):
        done = self.ctl("local", "up", "--nodes", str(NODES), "--memory-per-node", NODE_MEMORY, "--data-dir",
                        self.data_dir, "--port", "0")
        self.endpoint = done.stdout.split()[-1]
        return done

    def repair(self):
        return self.ctl("local", "up", "--nodes", str(NODES), "--memory-per-node", NODE_MEMORY, "--data-dir",
                        self.data_dir)

    def nodes(self):
        status = json.loads(self.ctl("local", "status", "--data-dir", self.data_dir, "-o", "json", check=False).stdout)
        return [p for p in status["processes"] if p["name"] != "controller"]

    def shards_by_node(self):
        counts = {}
        for shard in json.loads(self.ctl("get", "shards", "-o", "json").stdout)["shards"]:
            for replica in shard.get("replicas", []):
                counts.setdefault(replica["node"], {}).setdefault(replica["state"], 0)
                counts[replica["node"]][replica["state"]] += 1
        return counts

    def serving(self):
        table = json.loads(self.ctl("get", "tables", "-o", "json").stdout)["tables"][0]
        return int(table.get("shardsServing", 0)), int(table.get("shardsTotal", 0))

    def hottest(self):
        """(shard, node, reads a second, share of all reads) of the shard that is read most; None before clients reported."""
        heat = json.loads(self.ctl("top", "shards", "--limit", "1", "-o", "json").stdout)
        if not heat.get("shards"):
            return None
        shard = heat["shards"][0]
        reads = shard["readsPerSecond"]
        return int(shard.get("shard", 0)), shard["nodes"][0], reads, reads / heat["readsPerSecond"]

    def moves(self):
        return json.loads(self.ctl("get", "plans", "-o", "json").stdout).get("moves", [])

    def down(self):
        self.ctl("local", "down", "--purge", "--data-dir", self.data_dir, timeout=60, check=False)


def check_room(directory):
    free = shutil.disk_usage(directory).free
    if free < NEED_DISK:
        raise DemoError(f"{directory} has {free >> 20} MiB free; the demo writes about 2 GiB and needs "
                        f"{NEED_DISK >> 20} MiB. Set TMPDIR to a larger file system.")
    with open("/proc/meminfo", encoding="ascii") as info:
        available = next(int(line.split()[1]) << 10 for line in info if line.startswith("MemAvailable"))
    if available < NEED_MEMORY:
        raise DemoError(f"{available >> 20} MiB of memory are available; the demo needs {NEED_MEMORY >> 20} MiB.")


def write_checkpoint(bin_dir, directory):
    started = time.monotonic()
    command = [bin_dir / "engram-bench", "checkpoint", "--out", directory, "--engram-vocab-size", str(VOCAB_ROWS),
               "--seed", str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise DemoError(f"writing the checkpoint failed:\n{done.stderr.strip()}")
    size = sum(f.stat().st_size for f in pathlib.Path(directory).iterdir())
    return size, time.monotonic() - started


class HotShard:
    """Finds the shard that the replicas read most, as they report it, and moves it to another node while they read on."""

    def __init__(self, pool, facts, note):
        self._pool, self._facts, self._note = pool, facts, note
        self.done = self._moving = False

    def look(self, now):
        if self.done:
            return
        if self._moving:
            if not self._pool.moves():
                self._facts["move"]["until"] = now
                took = now - self._facts["move"]["from"]
                self._note(f"shard {self._facts['move']['shard']} is on {self._facts['move']['to']} alone, {took:.1f} s later")
                self.done = True
            return
        hottest = self._pool.hottest()
        if hottest is None:
            return
        shard, node, reads, share = hottest
        target = next(n["name"] for n in self._pool.nodes() if n["name"] != node)
        self._note(f"engramctl top shards: shard {shard} on {node} is read most, {reads:,.0f} rows/s, {100 * share:.1f} % of all")
        self._facts["move"] = {"shard": shard, "to": target, "from": now}
        self._pool.ctl("move", "shard", f"{TABLE}/{shard}", "--to", target)
        self._note(f"engramctl move shard {TABLE}/{shard} --to {target}")
        self._moving = True


def run_replicas(pool, screen, seconds, facts, events):
    """Moves the hottest shard, kills a node at half of `seconds` at the earliest and repairs it a little later; ends when it
    has served again for a while. Returns the replicas."""
    longest = seconds + RECOVERY_LIMIT
    replicas = [
        Replica("replica-1", "mapped", TRACES / "tokens_kjv.u32.zst", pool, TABLE, SEED, 1, longest),
        Replica("replica-2", "stream", TRACES / "tokens_sqlite3_c.u32.zst", pool, TABLE, SEED, 2, longest),
    ]
    started = time.monotonic()
    victim = killed = recovered = None
    repaired = False

    def note(text):
        events.append((time.monotonic() - started, text))
        screen.event(f"{time.monotonic() - started:5.1f} s  {text}")

    hot = HotShard(pool, facts, note)
    try:
        while any(r.running() for r in replicas):
            now = time.monotonic() - started
            for replica in replicas:
                replica.read_progress()
                for error in replica.new_errors():
                    note(f"{replica.name}: {error}")
            if now > 0.2 * seconds:
                hot.look(now)
            if victim is None and hot.done and now > max(0.5 * seconds, facts["move"]["until"] + AFTER_MOVE):
                victim, killed = pool.nodes()[1], now
                os.kill(victim["pid"], signal.SIGKILL)
                note(f"kill -9 {victim['name']} (pid {victim['pid']})")
            if victim and not repaired and now > killed + 0.15 * seconds:
                note("engramctl local up: repairs the pool")
                pool.repair()
                repaired = True
            if repaired and recovered is None:
                serving, total = pool.serving()
                if total and serving == total:
                    note(f"{victim['name']} is back: {serving} of {total} shards serve again")
                    recovered = now
            screen.progress(now, seconds, replicas)
            time.sleep(0.2)
            if recovered is not None and now > max(seconds, recovered + AFTER_RECOVERY):
                for replica in replicas:
                    replica.stop()
            if now > longest + 30:
                raise DemoError("the replicas did not end in time")
        for replica in replicas:
            replica.finish()
    finally:
        for replica in replicas:
            replica.kill()
    if not hot.done:
        raise DemoError("the hottest shard was not moved before the replay ended")
    if recovered is None:
        raise DemoError("the killed node did not come back before the replay ended")
    return replicas


def judge(replicas):
    """The demo fails if the product failed: a wrong row, no read, no visible failure, no recovery."""
    problems = []
    for replica in replicas:
        final = replica.final
        if final is None:
            problems.append(f"{replica.name} ended without a result: {replica.stderr_tail()}")
            continue
        if final["rows_wrong"] != 0:
            problems.append(f"{replica.name} read {final['rows_wrong']} wrong rows")
        if final["rows_verified"] != final["rows_ok"] or final["rows_ok"] == 0:
            problems.append(f"{replica.name} verified {final['rows_verified']} of {final['rows_ok']} rows")
        if 0 <= final["seconds_since_last_failure"] < 1:
            problems.append(f"{replica.name} still failed to read rows at the end")
    # One that reads over `mapped` may not notice: the memory of a dead node is as good as its lease, and that may outlast
    # the repair.
    if not any(replica.final and replica.final["rows_failed"] for replica in replicas):
        problems.append("no replica saw a failure although a node was killed")
    return problems


def abandoned_memory():
    """Shared memory that no living process holds: files of /dev/shm and segments of System V."""
    held = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            held.update(line.split(maxsplit=5)[-1] for line in (process / "maps").read_text(errors="replace").splitlines())
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):  # closed meanwhile
                    held.add(str(link.readlink()))
    segments = pathlib.Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()[1:]
    return {str(path) for path in pathlib.Path("/dev/shm").iterdir() if str(path) not in held} | {
        f"segment {fields[1]}" for fields in map(str.split, segments) if fields[6] == "0"}


def leftovers(data_dir, shared_before):
    """Processes that mention the demo's folder, and abandoned shared memory that was not there before."""
    found = [f"shared memory {name}" for name in sorted(abandoned_memory() - shared_before)]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(data_dir) in line and int(process.name) != os.getpid():
                found.append(f"process {process.name}: {line[:100]}")
    return found


def run(options, work):
    screen = Screen()
    bin_dir = pathlib.Path(options.build_dir).resolve() / "bin"
    pool = Pool(bin_dir, work / "pool")
    facts, events = {}, []
    check_room(work)
    shared_before = abandoned_memory()
    with pages.reserved(NODES * 400, screen) as page_note:
        facts["pages"] = page_note
        try:
            screen.step("write a V4.1-shaped checkpoint")
            size, took = write_checkpoint(bin_dir, work / "checkpoint")
            facts["checkpoint_bytes"], facts["checkpoint_s"] = size, took
            screen.done(f"{size / 1e9:.2f} GB in {took:.1f} s")

            screen.step(f"start a controller and {NODES} pool nodes")
            pool.up()
            screen.done(pool.endpoint)

            screen.step(f"load table {TABLE}")
            started = time.monotonic()
            pool.ctl("load", "table", TABLE, "--checkpoint", work / "checkpoint", "--shard-bytes", "1MiB", "--wait")
            facts["load_s"] = time.monotonic() - started
            facts["shards"] = pool.shards_by_node()
            screen.done(f"{size / 1e9 / facts['load_s']:.2f} GB/s, shards by node: " +
                        ", ".join(f"{node} {sum(states.values())}" for node, states in sorted(facts["shards"].items())))

            screen.step(f"replay real text for {options.seconds} s in two replicas, every row checked")
            screen.done("")
            replicas = run_replicas(pool, screen, options.seconds, facts, events)
        finally:
            screen.clear()
            pool.down()
    left = leftovers(work, shared_before)
    problems = judge(replicas) + left
    report.print_table(facts, replicas, events)
    path = pathlib.Path(options.report)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.html(facts, replicas, events, problems), encoding="utf-8")
    print(f"\nreport: {path}")
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build_dir")
    parser.add_argument("--seconds", type=float, default=50)
    parser.add_argument("--report", default=None)
    options = parser.parse_args()
    options.report = options.report or os.path.join(options.build_dir, "demo", "report.html")
    work = pathlib.Path(tempfile.mkdtemp(prefix="engram-demo-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(options, work)
    except DemoError as error:
        print(f"./dev demo: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
