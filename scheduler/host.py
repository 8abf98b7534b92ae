"""What this machine is and really grants: processor, cores and memory, after affinity and control groups.

Knows nothing of models.
"""

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def cores(root: Path = CGROUP, own: Path = OWN) -> int:
    """Whole cores that affinity and the control groups' CPU quotas grant, at least 1."""
    granted = len(os.sched_getaffinity(0))
    return max(1, min([granted, *map(int, _cpu_quotas(root, own))]))


def available_memory(root: Path = CGROUP, meminfo: Path = Path("/proc/meminfo"), own: Path = OWN) -> int:
    """Bytes that can still be used: the kernel's estimate, or less where a control group's limit is nearer."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    return min([available, *_memory_left(root, own)])


@dataclass(frozen=True, slots=True)
class Processor:
    """What the kernel says of the first core: its name, and what it can do by the kernel's words for it."""

    name: str
    flags: frozenset[str]


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Processor:
    """The processor; where the kernel does not name it, as on ARM, it is called by its kind."""
    first = (_read(cpuinfo) or "").partition("\n\n")[0]
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    flags = fields.get("flags") or fields.get("Features") or ""
    return Processor(fields.get("model name") or platform.machine(), frozenset(flags.split()))


def integer_units(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """What the processor has for int8 products: AMX, VNNI, both or nothing."""
    flags = processor(cpuinfo).flags
    amx = ("AMX",) if "amx_int8" in flags else ()
    return amx + (("VNNI",) if flags & {"avx512_vnni", "avx_vnni"} else ())


def _cpu_quotas(root: Path, own: Path) -> Iterator[float]:
    """Cores by the quotas of cgroup v2 and v1."""
    for folder in _groups(root, own, ""):
        if (v2 := _read(folder / "cpu.max")) is not None:
            amount, length = v2.split()
            if amount != "max":
                yield int(amount) / int(length)
    for folder in _groups(root, own, "cpu"):
        quota, period = (_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota and period and int(quota) > 0:
            yield int(quota) / int(period)


def _memory_left(root: Path, own: Path) -> Iterator[int]:
    """Bytes between use and limit of each control group that has one. Page cache counts as free."""
    for controller, limit_name, usage_name in (
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for folder in _groups(root, own, controller):
            limit, usage = _read(folder / limit_name), _read(folder / usage_name)
            if limit and usage and limit != "max":
                yield int(limit) - int(usage) + _page_cache(folder)


def _page_cache(folder: Path) -> int:
    stat = _read(folder / "memory.stat") or ""
    fields = dict(line.split() for line in stat.splitlines())
    return int(fields.get("inactive_file", 0)) + int(fields.get("active_file", 0))


def _groups(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """This process's group and all around it, in the unified hierarchy or in that of a v1 controller.

    In a container the hierarchy may be mounted from its own group down, where the path from outside leads nowhere.
    """
    top = root / controller if controller else root
    for line in (_read(own) or "").splitlines():
        number, names, path = line.split(":", 2)
        if controller in names.split(",") if controller else number == "0":
            inner = top / path.lstrip("/")
            yield from (folder for folder in (inner, *inner.parents) if folder != top and top in folder.parents)
    yield top


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
