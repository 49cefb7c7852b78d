"""Builds a wheel that carries libengram.so and what it links, under names of their own.

The library comes from ENGRAM_LIBRARY, or from build/lib of the checkout, built if it is not there. auditwheel then copies
the shared libraries it needs into the wheel with hashed names, so that a process may load another gRPC or protobuf beside
them. One wheel serves every CPython, because the package loads the library through ctypes.
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from setuptools import build_meta

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent

get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
build_sdist = build_meta.build_sdist


@contextlib.contextmanager
def _copy_of_the_project():
    """A scratch copy as the working folder, so that nothing is left in the checkout and nothing stale gets in."""
    before = pathlib.Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch, "project")
        copy.mkdir()
        shutil.copy(HERE / "pyproject.toml", copy)
        shutil.copytree(HERE / "engram_pool", copy / "engram_pool", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        os.chdir(copy)
        try:
            yield copy
        finally:
            os.chdir(before)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    with _copy_of_the_project():
        return build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def _library():
    given = os.environ.get("ENGRAM_LIBRARY")
    library = pathlib.Path(given) if given else ROOT / "build" / "lib" / "libengram.so"
    if not given and not library.exists():
        subprocess.run([ROOT / "dev", "build", "release", "engram"], check=True)
    if not library.exists():
        raise RuntimeError(f"{library} is not there; set ENGRAM_LIBRARY to libengram.so or run ./dev build")
    return library.resolve()


def _tag_for_every_python(wheel):
    """py3-none-PLATFORM: nothing in it depends on the interpreter."""
    done = subprocess.run([sys.executable, "-m", "wheel", "tags", "--python-tag", "py3", "--abi-tag", "none",
                           "--platform-tag", "linux_" + os.uname().machine, "--remove", wheel.name],
                          cwd=wheel.parent, check=True, capture_output=True, text=True)
    return wheel.parent / done.stdout.strip().splitlines()[-1]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = _library()
    with _copy_of_the_project() as copy:
        shutil.copyfile(library, copy / "engram_pool" / "libengram.so")
        wheel = _tag_for_every_python(copy / build_meta.build_wheel(copy, config_settings, metadata_directory))
        repaired = copy / "repaired"
        done = subprocess.run([sys.executable, "-m", "auditwheel", "repair", "-w", repaired, wheel], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"auditwheel cannot bundle the libraries of {library}:\n{done.stdout}")
        result = next(repaired.glob("*.whl"))
        shutil.copy(result, wheel_directory)
        return result.name
