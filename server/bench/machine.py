"""The machine and the versions a report was made with: absolute figures mean nothing without them."""

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from scheduler.host import available_memory, cores

FEATURES = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm")
"""Instructions that decide how fast integers are multiplied, by the kernel's names."""

PACKAGES = ("paceline", "onnxruntime", "onnxruntime-genai", "openvino", "openvino-genai", "numpy")


class Machine(msgspec.Struct, frozen=True):
    """Where a report was made."""

    processor: str
    features: list[str]
    cores: int
    memory: int
    system: str
    versions: dict[str, str]


def machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """Look at this machine."""
    fields = dict(_fields(cpuinfo.read_text()))
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    return Machine(
        processor=fields.get("model name", platform.machine()),
        features=[name for name in FEATURES if name in flags],
        cores=cores(),
        memory=available_memory(),
        system=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        versions=dict(_versions(PACKAGES)),
    )


def _fields(cpuinfo: str) -> Iterable[tuple[str, str]]:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        yield name.strip(), value.strip()


def _versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
