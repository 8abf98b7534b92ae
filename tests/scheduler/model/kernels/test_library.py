"""Which instructions are chosen, and what is said where there is no library."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import pytest

from scheduler.errors import KernelsError
from scheduler.host import processor
from scheduler.model.kernels import LIBRARY, build, library

ROOT = Path(__file__).parents[4]
AVX2 = {"avx2", "fma", "f16c", "bmi2"}
WANTED = {
    "avx512vnni": {*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
    "avxvnni": {*AVX2, "avx_vnni"},
    "avx2": AVX2,
    "portable": set[str](),
}
"""The kernel's words for what each may use, the best first."""


@pytest.fixture(autouse=True)
def _best_again() -> Iterator[None]:
    yield
    library.select()


def test_what_is_available_is_what_the_processor_s_flags_promise() -> None:
    assert tuple(WANTED) == library.INSTRUCTION_SETS
    promised = tuple(name for name, flags in WANTED.items() if flags <= processor().flags)
    assert library.available() == promised
    assert library.select("auto") == library.select() == library.selected() == promised[0]


@pytest.mark.parametrize("name", library.available())
def test_every_instruction_set_of_this_processor_can_be_forced(name: str) -> None:
    assert library.select(name) == name
    assert library.selected() == name


@pytest.mark.parametrize("name", ["", "sse9", "AVX2", *(set(WANTED) - set(library.available()))])
def test_what_this_processor_does_not_run_is_refused_with_what_it_does(name: str) -> None:
    before = library.selected()
    with pytest.raises(KernelsError, match=rf"does not run {name}: .*portable"):
        library.select(name)
    assert library.selected() == before


def test_a_checkout_that_was_never_built_says_how_to(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scheduler", tmp_path / "scheduler", ignore=shutil.ignore_patterns(LIBRARY, "__pycache__"))
    ask = "from scheduler.model.kernels import library; library.available()"
    done = run([sys.executable, "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "pip install -e ." in done.stderr.splitlines()[-1]


def test_the_library_in_use_was_built_of_the_sources_beside_it() -> None:
    assert bytes.fromhex(build.build_id(build.target())) in library.path().read_bytes(), "run pip install -e ."
