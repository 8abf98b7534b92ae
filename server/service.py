"""What the handlers share: the served model's parts and the bridge to the scheduler. Made once, by main.py."""

from dataclasses import dataclass

from server.bridge import Bridge
from server.cards import ModelCard
from server.defaults import Defaults
from server.inflight import Inflight
from server.metrics import Metrics
from server.prompt import Prompter
from server.unknown import OnUnknown
from server.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Service:
    """One served model.

    Attributes:
        cards: the model under its name, then under its aliases.
        max_body: bytes of a request body at the most.
        versions: what is reported by /version.
        isolate_keys: whether requests share prompts only with those of the same API key.
        defaults: what holds where a request is silent.
        on_unknown: what is done about a body's unknown field.
    """

    cards: tuple[ModelCard, ...]
    prompter: Prompter
    vocabulary: Vocabulary
    bridge: Bridge
    metrics: Metrics
    max_body: int
    versions: dict[str, str]
    inflight: Inflight
    defaults: Defaults
    on_unknown: OnUnknown
    isolate_keys: bool

    @property
    def name(self) -> str:
        """The served name."""
        return self.cards[0].id
