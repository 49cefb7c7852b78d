"""Huge pages for the time of a demo or a bench: reserved where the user may, given back afterwards."""
import contextlib

SETTING = "/proc/sys/vm/nr_hugepages"


def _read():
    with open(SETTING, encoding="ascii") as file:
        return int(file.read())


def _write(count):
    with open(SETTING, "w", encoding="ascii") as file:
        file.write(str(count))


@contextlib.contextmanager
def reserved(count, screen):
    """Adds `count` 2 MiB pages to the pool of the kernel; yields what people should know about it."""
    try:
        before = _read()
        _write(before + count)
        granted = _read() - before
    except OSError as error:
        note = f"4 KiB pages: {SETTING} cannot be set ({error.strerror})"
        screen.step("huge pages")
        screen.done(note)
        yield note
        return
    try:
        note = f"{granted} huge pages of 2 MiB reserved" + (
            "" if granted >= count else f" ({count} wanted)")
        screen.step("huge pages")
        screen.done(note)
        yield note
    finally:
        _write(before)
        if _read() != before:
            screen.step("huge pages")
            screen.done(f"{_read() - before} more than before are still in use: {SETTING} should be {before}")


def main():
    """pages.py COUNT COMMAND...: runs the command with COUNT more huge pages."""
    import subprocess
    import sys

    from screen import Screen
    with reserved(int(sys.argv[1]), Screen(sys.stderr)):
        sys.exit(subprocess.run(sys.argv[2:]).returncode)


if __name__ == "__main__":
    main()
