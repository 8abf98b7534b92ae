"""What a load test is told, and how it says so in its report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server.load.drive import Extent, Level
from server.load.lengths import Lengths
from server.load.prompts import Form


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A load test.

    Attributes:
        url: of the server, with or without /v1.
        model: the name to ask for; empty is the first that the server lists.
        key: the API key to send; empty is none.
        verify: whether the server's certificate is checked, or the file of authorities it is checked against.
        levels: how much load, one run each.
        prompts: a file of prompts, instead of made-up ones.
        fields: further fields of every request.
        limits: upper bounds of latencies for goodput, in seconds.
        timeout: seconds that one request may take.
        json: where the figures go, html: where the report goes.
    """

    url: str
    model: str
    key: str
    verify: bool | Path
    levels: tuple[Level, ...]
    extent: Extent
    form: Form
    prompt: Lengths
    answer: Lengths
    shared: int
    ids: tuple[int, int]
    prompts: Path | None
    timeout: float
    fields: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    json: Path | None = None
    html: Path | None = None

    def words(self, model: str) -> dict[str, str]:
        """The setting as the report gives it."""
        kinds = {"ids": "random token ids", "text": "random words", "chat": "random words as a chat"}
        asked = f"{kinds[self.form]}, {self.prompt.text} tokens" if self.prompts is None else str(self.prompts)
        found = {"server": self.url, "model": model, "prompts": asked, "answers": f"{self.answer.text} tokens"}
        if self.shared:
            found["shared beginning"] = f"{self.shared} tokens"
        if self.fields:
            found["fields"] = ", ".join(f"{name} = {value}" for name, value in self.fields.items())
        found["warm-up"] = f"{self.extent.warmup} requests a level"
        return found
