import os
import platform
from pathlib import Path

import pytest

from scheduler.host import Processor, available_memory, cores, processor


@pytest.mark.parametrize(
    ("files", "granted"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"own": "0::/a/b", "a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, 1),
        ({"own": "3:cpu,cpuacct:/a/b", "cpu/a/b/cpu.cfs_quota_us": "1", "cpu/a/b/cpu.cfs_period_us": "1"}, 1),
    ],
)
def test_the_cores_are_what_affinity_and_the_quota_grant(
    tmp_path: Path, files: dict[str, str], granted: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores(tmp_path, tmp_path / "own") == (granted or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8_000 * 1024),
        ({"memory.max": "max", "memory.current": "5"}, 8_000 * 1024),
        ({"memory.max": "5000000", "memory.current": "1000000"}, 4_000_000),
        ({"memory.max": "5000000", "memory.current": "1000000", "memory.stat": "inactive_file 5\nanon 7"}, 4_000_005),
        ({"memory/memory.limit_in_bytes": "3000", "memory/memory.usage_in_bytes": "1000"}, 2_000),
        ({"memory.max": "99999999999", "memory.current": "0"}, 8_000 * 1024),
        (
            {
                "own": "4:memory:/\n0::/a/b",
                "a/b/memory.max": "4000",
                "a/b/memory.current": "1000",
                "a/memory.max": "3500",
                "a/memory.current": "1500",
            },
            2_000,
        ),
        (
            {
                "own": "4:memory:/a/b\n0::/",
                "memory/a/b/memory.limit_in_bytes": "900",
                "memory/a/b/memory.usage_in_bytes": "100",
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/memory.usage_in_bytes": "1000",
            },
            800,
        ),
        ({"own": "0::/elsewhere", "memory.max": "3000", "memory.current": "1000"}, 2_000),
    ],
)
def test_the_memory_is_what_the_kernel_and_the_control_group_leave(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert available_memory(tmp_path, meminfo, tmp_path / "own") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model name\t: A chip\nflags\t\t: fpu avx2\n\nmodel name\t: B\nflags\t\t: sse\n", ("A chip", {"fpu", "avx2"})),
        ("processor\t: 0\nFeatures\t: fp asimddp i8mm\n", (platform.machine(), {"fp", "asimddp", "i8mm"})),
        ("", (platform.machine(), set())),
    ],
)
def test_the_processor_is_the_first_core_s(tmp_path: Path, text: str, expected: tuple[str, set[str]]) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    name, flags = expected
    assert processor(tmp_path / "cpuinfo") == Processor(name, frozenset(flags))
