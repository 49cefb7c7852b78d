"""One replica process: `engram-bench replay`, whose progress arrives as JSON lines."""
import json
import os
import subprocess
import tempfile
import threading


class Replica:
    def __init__(self, name, fabric, trace, pool, table, table_seed, seed, seconds):
        self.name, self.fabric, self.trace = name, fabric, trace.name.split(".")[0].removeprefix("tokens_")
        self.samples, self.final = [], None
        self._errors, self._lines, self._lock = [], [], threading.Lock()
        self._stderr = tempfile.TemporaryFile(mode="w+")
        command = [pool.bin_dir / "engram-bench", "replay", "--endpoint", pool.endpoint, "--table", table, "--fabric", fabric,
                   "--trace", trace, "--arrivals", trace.parent / "arrivals_conversation.jsonl.zst", "--seed", str(seed),
                   "--table-seed", str(table_seed), "--seconds", str(seconds), "--name", name]
        self._process = subprocess.Popen(command, env=pool.env, stdout=subprocess.PIPE, stderr=self._stderr, text=True)
        self._reader = threading.Thread(target=self._pump, daemon=True)
        self._reader.start()

    def _pump(self):
        for line in self._process.stdout:
            with self._lock:
                self._lines.append(line)

    def running(self):
        return self._process.poll() is None

    def read_progress(self):
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            sample = json.loads(line)
            if sample.get("error"):
                self._errors.append(sample["error"])
            if sample.get("final"):
                self.final = sample
            else:
                self.samples.append(sample)

    def new_errors(self):
        errors, self._errors = self._errors, []
        return errors

    def stop(self):
        """It ends after the step it is in and says what it did."""
        if self.running():
            self._process.terminate()

    def finish(self):
        self._reader.join(timeout=10)
        self.read_progress()

    def kill(self):
        if self.running():
            self._process.kill()
        self._process.wait()

    def stderr_tail(self):
        self._stderr.seek(0, os.SEEK_SET)
        return self._stderr.read()[-2000:].strip()
