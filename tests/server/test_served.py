"""What is told at the start."""

from pathlib import Path

import pytest

from scheduler.host import processor
from scheduler.model.kernels import library
from tests.conftest import model_folder
from tests.server.live import serving


@pytest.mark.parametrize("name", ["auto", "portable"])
def test_the_banner_says_which_instructions_of_which_processor_are_used(name: str, tmp_path: Path) -> None:
    arguments = [str(model_folder("llama-int4")), "--cache-dir", str(tmp_path), "--instruction-set", name]
    used = library.available()[0] if name == "auto" else name
    with serving(*arguments) as live:
        said = " ".join("".join(live.log).split())
    assert f"of {processor().name}, with {used}" in said
