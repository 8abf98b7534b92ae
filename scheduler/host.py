"""What this machine really grants: cores and memory, after affinity and control groups. Knows nothing of models."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cores(root: Path = CGROUP) -> int:
    """Whole cores that affinity and the control group's CPU quota grant, at least 1."""
    granted = len(os.sched_getaffinity(0))
    quota = _cpu_quota(root)
    return max(1, min(granted, int(quota) if quota is not None else granted))


def available_memory(root: Path = CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes that can still be used: the kernel's estimate, or less where the control group's limit is nearer."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    limit = _memory_left(root)
    return available if limit is None else min(available, limit)


def integer_units(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """What the processor has for int8 products: AMX, VNNI, both or nothing."""
    text = _read(cpuinfo) or ""
    flags = {flag for line in text.splitlines() if line.startswith("flags") for flag in line.split(":", 1)[1].split()}
    amx = ("AMX",) if "amx_int8" in flags else ()
    return amx + (("VNNI",) if flags & {"avx512_vnni", "avx_vnni"} else ())


def _cpu_quota(root: Path) -> float | None:
    """Cores by the quota of cgroup v2 or v1; None without one."""
    v2 = _read(_own(root) / "cpu.max") or _read(root / "cpu.max")
    if v2 is not None:
        amount, length = v2.split()
        return None if amount == "max" else int(amount) / int(length)
    quota, period = (_read(root / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None


def _memory_left(root: Path) -> int | None:
    """Bytes between use and limit of the control group; None without a limit. Page cache counts as free."""
    for folder, limit_name, usage_name in (
        (_own(root), "memory.max", "memory.current"),
        (root, "memory.max", "memory.current"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, usage = _read(folder / limit_name), _read(folder / usage_name)
        if limit and usage and limit != "max":
            return int(limit) - int(usage) + _page_cache(folder)
    return None


def _page_cache(folder: Path) -> int:
    stat = _read(folder / "memory.stat") or ""
    fields = dict(line.split() for line in stat.splitlines())
    return int(fields.get("inactive_file", 0)) + int(fields.get("active_file", 0))


def _own(root: Path) -> Path:
    """This process's group in the unified hierarchy."""
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            return root / path.lstrip("/")
    return root


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
