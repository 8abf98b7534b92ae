"""The tiny model, served once for all files that only ask."""

from collections.abc import Iterator

import pytest

from tests.conftest import model_folder
from tests.server.live import Live, serving


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server of the tiny llama under the name `tiny`, with 8 slots and room for 40 requests in all."""
    cache = str(tmp_path_factory.mktemp("cache"))
    arguments = ("--served-model-name", "tiny", "--slots", "8", "--max-queue", "32")
    with serving(str(model_folder("llama-int4")), "--cache-dir", cache, *arguments) as server:
        yield server
