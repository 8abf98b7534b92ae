"""Runs the operators' tests with checks of every address and of undefined behaviour compiled into the library.

    apt install g++
    .venv/bin/python tests/sanitize.py [what pytest is to be told besides]

The checkout is copied to a folder that goes again, and the library compiled there by g++: what is installed stays as it
is. Python's own memory comes from malloc, so that what arrays lie in is watched too; leaks are not, as Python leaves
much behind when it ends. The first fault ends the run, with a stack. Knows the tests by their folder alone.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from scheduler.model.kernels import LIBRARY, build  # noqa: E402 - of this checkout, wherever it is run from

KERNELS = Path("scheduler/model/kernels")
CHECKS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SEEN = ("-O1", "-g", "-fno-omit-frame-pointer", "-w")  # g++ 12 warns of its own headers
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1", "PYTHONMALLOC": "malloc"}


def main() -> int:
    """Compile, run, and tell pytest's status."""
    with tempfile.TemporaryDirectory(prefix="paceline-sanitize-") as name:
        folder = Path(name)
        for part in ("scheduler", "tests"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        compile_library(folder)
        # g++'s own library too: else the checks would not find what throws onnxruntime's exceptions
        preloaded = " ".join(map(found, ("libasan.so", "libstdc++.so")))
        environ = os.environ | OPTIONS | {"LD_PRELOAD": preloaded, "PYTHONPATH": name}
        tests = f"tests/{KERNELS}"
        left_out = f"--deselect={tests}/test_library.py"  # is about the library that zig makes
        # a fault's report goes to the descriptor, which pytest would keep and lose
        shown = ["-p", "no:cacheprovider", "--capture=sys"]
        command = [sys.executable, "-m", "pytest", *shown, left_out, tests, *sys.argv[1:]]
        return subprocess.run(command, cwd=folder, env=environ, check=False).returncode


def compile_library(folder: Path) -> None:
    """The library with checks, where the copy looks for it."""
    to = build.target()

    def one(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        processor = [f"-march={to.base.replace('_', '-')}"] if to.features else []
        special = [f"-m{name}" for name in build.features(source, to)]
        run("g++", *build.COMPILE, *SEEN, *CHECKS, *processor, *special, "-c", source, "-o", made)
        return made

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        objects = list(threads.map(one, build.sources(to)))
    run("g++", "-shared", *CHECKS, *objects, "-o", folder / KERNELS / LIBRARY)


def found(library: str) -> str:
    """Where g++ has a library of its own."""
    asked = ["g++", f"-print-file-name={library}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def run(*command: str | Path) -> None:
    """Run a program that must succeed."""
    subprocess.run([*map(str, command)], check=True)


if __name__ == "__main__":
    sys.exit(main())
