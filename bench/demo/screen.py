"""What a person sees while the demo runs: steps as lines, live progress redrawn in place on a terminal."""
import sys


def human(value):
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.2f} {unit}"
    return f"{value:.0f} "


class Screen:
    def __init__(self, out=sys.stdout):
        self.out, self.tty, self._drawn, self._last_plain = out, out.isatty(), 0, -10.0

    def step(self, text):
        self.out.write(f"* {text} ... ")
        self.out.flush()

    def done(self, text):
        self.out.write(f"{text}\n")
        self.out.flush()

    def event(self, text):
        self.clear()
        self.out.write(f"  {text}\n")
        self.out.flush()

    def clear(self):
        if self.tty and self._drawn:
            self.out.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def progress(self, now, total, replicas):
        lines = [self._bar(now, total)] + [self._line(r) for r in replicas]
        if self.tty:
            self.clear()
            self.out.write("\n".join(lines) + "\n")
            self._drawn = len(lines)
        elif now - self._last_plain >= 5:
            self._last_plain = now
            self.out.write("\n".join(f"  {line}" for line in lines) + "\n")
        self.out.flush()

    @staticmethod
    def _bar(now, total):
        filled = int(30 * min(1.0, now / total))
        return f"[{'#' * filled}{'.' * (30 - filled)}] {now:4.0f} of {total:.0f} s"

    @staticmethod
    def _line(replica):
        if not replica.samples:
            return f"{replica.name} {replica.fabric:<7} connecting"
        s = replica.samples[-1]
        return (f"{replica.name} {replica.fabric:<7} {human(s['rows_per_s']):>7}rows/s {human(s['tokens_per_s']):>7}tokens/s  "
                f"{human(s['rows_verified']):>8}rows verified  {s['rows_failed']} failed  {s['rows_wrong']} wrong")
