"""What is installed: the operators are compiled with nothing of the system, and run wherever the wheel's name says."""

import os
import re
import struct
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import run

import pytest

from scheduler.host import processor
from scheduler.model.kernels import LIBRARY, build

ROOT = Path(__file__).parent.parent
INSIDE = f"scheduler/model/kernels/{LIBRARY}"


def hatchling(kind: str, folder: Path) -> Path:
    run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)], cwd=ROOT, check=True)
    (made,) = folder.iterdir()
    return made


@dataclass(frozen=True)
class Built:
    wheel: Path
    checkout: Path
    zig: Path  # the compiler's cache

    @property
    def library(self) -> bytes:
        return zipfile.ZipFile(self.wheel).read(INSIDE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """pip's wheel, of the source distribution, where no program of the system can be found: no compiler, no linker."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(hatchling("sdist", folder / "sdist")) as sources:
        sources.extractall(folder, filter="data")
    (checkout,) = folder.glob("paceline-*")
    assert not list(checkout.rglob("*.so"))
    (folder / "bin").mkdir()
    zig = os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(folder / "zig"))
    environ = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environ |= {"PATH": str(folder / "bin"), "HOME": str(folder), "ZIG_GLOBAL_CACHE_DIR": zig}
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder / "out")]
    run([*pip, str(checkout)], env=environ, check=True)
    (made,) = (folder / "out").iterdir()
    return Built(made, checkout, Path(zig))


def test_a_wheel_of_the_checkout_holds_what_runs_and_nothing_else(tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(hatchling("wheel", tmp_path)).namelist())
    assert {f"server/page/{path.name}" for path in (ROOT / "server" / "page").iterdir()} <= names
    assert INSIDE in names
    assert not [name for name in names if name.startswith("tests") or name.endswith((".cpp", ".h", ".inl"))]


def test_the_wheel_is_for_this_kind_of_machine_and_any_python(built: Built) -> None:
    assert built.wheel.name.endswith(f"-py3-none-{build.target().tag}.whl")
    zipped = zipfile.ZipFile(built.wheel)
    (about,) = (name for name in zipped.namelist() if name.endswith("/WHEEL"))
    assert "Root-Is-Purelib: false" in zipped.read(about).decode()


def test_the_library_asks_for_no_newer_glibc_than_the_wheel_says(built: Built) -> None:
    symbols = built.library
    asked = {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", symbols)}
    assert asked
    assert max(asked) <= (2, 28)
    assert b"libstdc++" not in symbols
    assert b"libc++" not in symbols


def test_what_is_installed_runs_the_best_of_this_processor(built: Built, tmp_path: Path) -> None:
    zipfile.ZipFile(built.wheel).extractall(tmp_path)
    ask = "from scheduler.model.kernels import library as l; print(l.__file__, l.available()[0])"
    done = run([sys.executable, "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True)
    file, best = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path)
    assert (best == "avx512vnni") == ("avx512_vnni" in processor().flags)


def shared_symbols(made: Path) -> Iterator[str]:
    """The functions that an object offers to others, among which a linker keeps one of each name (ELF, 64 bits)."""
    data = made.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i) for i in range(count)]
    for _, kind, _, _, start, size, names, *_ in sections:
        if kind != 2:  # the symbol table
            continue
        for at in range(start, start + size, 24):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if info & 15 == 2 and info >> 4 and section:  # a function, not local, defined here
                begin = sections[names][4] + name
                yield data[begin : data.index(0, begin)].decode()


@pytest.mark.skipif(not build.target().features, reason="this machine's sources are all compiled alike")
def test_code_for_one_instruction_set_cannot_be_taken_for_another(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(built.zig))  # where they are already
    here, folder = build.target(), (built.checkout / INSIDE).parent
    objects = build.Zig(tmp_path).compile([folder / path.name for path in build.sources(here)], here)
    offered = {made.stem: set(shared_symbols(made)) for made in objects}
    special = [name for name in offered if name.endswith(tuple(here.features))]
    assert len(special) == len(here.features)
    assert not set().union(*(offered[name] for name in special))
    assert "paceline_select" in offered["choose"]  # so such symbols are seen


@pytest.mark.parametrize("machine", ["riscv64", "ppc64le"])
def test_a_machine_that_is_not_served_is_told_which_are(machine: str) -> None:
    with pytest.raises(build.BuildError, match=f"x86_64 and aarch64.*{machine}"):
        build.target(machine)
