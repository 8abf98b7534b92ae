"""Compiles the operators' library of the sources beside this file: `python -m scheduler.model.kernels.build`.

The compiler is zig, from PyPI: the same wheel of it gives the same library on every machine, for the oldest glibc that
is served, and nothing of the system is needed. Every source is compiled for a processor of 2009; one whose name ends
in an instruction set is compiled for that, and only runs where `choose.cpp` has found it.

The library carries a hash of its sources, flags and compiler as its build id; one that has the right one is left as it
is. zig's own cache (47 MB) goes with the build, unless ZIG_GLOBAL_CACHE_DIR says where to keep it.
"""

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from scheduler.model.kernels import LIBRARY

HERE = Path(__file__).parent
COMPILE = (
    *("-std=c++17", "-O3", "-g0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"),
    *("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"),  # what would need the C++ library
    "-ffp-contract=off",  # so that bits do not depend on what a compiler contracts
    "-fno-sanitize=undefined",  # zig's default
)
LINK = ("-shared", "-s", "-lm")


class BuildError(Exception):
    """The library cannot be made; the message says why, and what would do."""


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of machine.

    Attributes:
        triple: zig's name, with the oldest glibc that will do.
        base: the processor that every source may count on.
        features: what a source may use besides, by the end of its name.
        foreign: ends of names of sources that are for other machines.
        tag: what a wheel's name says of all this.
    """

    triple: str
    base: str
    tag: str
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()


AVX2 = ("avx2", "fma", "f16c", "bmi2")
AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "fma", "f16c", "bmi2")
X86 = {"_avx2": AVX2, "_avxvnni": (*AVX2, "avxvnni"), "_avx512": AVX512}
TARGETS = {
    "x86_64": Target("x86_64-linux-gnu.2.28", "x86_64_v2", "manylinux_2_28_x86_64", features=X86),
    "aarch64": Target("aarch64-linux-gnu.2.28", "generic", "manylinux_2_28_aarch64", foreign=tuple(X86)),
}


def target(machine: str | None = None) -> Target:
    """The target of a machine by the kernel's name of it, or of this one."""
    machine = machine or platform.machine()
    if machine not in TARGETS or sys.platform != "linux":
        raise BuildError(f"paceline runs on Linux on {' and '.join(TARGETS)}, and this is {sys.platform} on {machine}")
    return TARGETS[machine]


def build(out: Path, to: Target) -> bool:
    """Make the library where there is none of these sources yet; whether there was something to do."""
    identity = build_id(to)
    if out.is_file() and bytes.fromhex(identity) in out.read_bytes():
        return False
    with tempfile.TemporaryDirectory(prefix="paceline-build-") as folder:
        made = Path(folder) / LIBRARY
        zig = Zig(Path(folder))
        objects = zig.compile(sources(to), to)
        # As C: of the C++ library nothing is used, and zig would first build the whole of it.
        zig.run("cc", "-target", to.triple, *LINK, f"-Wl,--build-id=0x{identity}", *objects, "-o", made)
        partial = out.with_suffix(f".{os.getpid()}")
        partial.write_bytes(made.read_bytes())
        partial.replace(out)  # a process that has the old one open keeps it
    return True


def sources(to: Target) -> list[Path]:
    """What is compiled for a target."""
    return [path for path in sorted(HERE.glob("*.cpp")) if not path.stem.endswith(to.foreign)]


def features(source: Path, to: Target) -> list[str]:
    """What a source may use of a processor besides the base."""
    return [name for end, names in to.features.items() if source.stem.endswith(end) for name in names]


def flags(source: Path, to: Target) -> list[str]:
    """What a source is compiled with."""
    return [*COMPILE, "-target", to.triple, f"-mcpu={'+'.join([to.base, *features(source, to)])}"]


def build_id(to: Target) -> str:
    """A hash of whatever decides what the library is, as 40 hexadecimal digits."""
    told = hashlib.sha1(f"{compiler_version()} {LINK}".encode(), usedforsecurity=False)
    for source in sources(to):
        told.update(f"{source.name} {flags(source, to)}".encode())
    for path in sorted(path for path in HERE.iterdir() if path.suffix in (".cpp", ".h", ".inl")):
        told.update(path.name.encode() + path.read_bytes())
    return told.hexdigest()


def compiler_version() -> str:
    """Which zig is installed."""
    try:
        return version("ziglang")
    except PackageNotFoundError:
        raise BuildError("the compiler is not installed: pip install 'ziglang==0.17.*'") from None


class Zig:
    """The compiler; what it makes goes to a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environ = {"ZIG_GLOBAL_CACHE_DIR": str(folder / "zig"), **os.environ}
        self._environ["ZIG_LOCAL_CACHE_DIR"] = self._environ["ZIG_GLOBAL_CACHE_DIR"]

    def compile(self, paths: Iterable[Path], to: Target) -> list[Path]:
        """The objects of some sources, as many at once as there are cores."""

        def one(source: Path) -> Path:
            made = self._folder / f"{source.stem}.o"
            self.run("c++", *flags(source, to), "-c", source, "-o", made)
            return made

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            return list(threads.map(one, paths))

    def run(self, *arguments: str | Path) -> None:
        """Run one of zig's commands; what it says goes to the standard error."""
        command = [sys.executable, "-m", "ziglang", *map(str, arguments)]
        if subprocess.run(command, env=self._environ, stdout=sys.stderr, check=False).returncode:
            raise BuildError(f"{Path(command[-1]).name} cannot be made; the compiler's message above says why")


def main() -> None:
    """Build beside the sources, for this machine."""
    try:
        made = build(HERE / LIBRARY, target())
    except BuildError as error:
        sys.exit(f"paceline: {error}")
    print(f"{HERE / LIBRARY} {'is made' if made else 'is up to date'}", file=sys.stderr)


if __name__ == "__main__":
    main()
