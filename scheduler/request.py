"""A request, its phase and its legal moves, and what leaves the engine about it.

Knows neither plans nor the model.
"""

from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter

import numpy as np

from scheduler.adjust import History
from scheduler.errors import EngineError
from scheduler.logprobs import TokenLogprobs
from scheduler.params import SamplingParams
from scheduler.tokens import TokenIds, TokenList


class Phase(Enum):
    """Where a request stands. There is no prefill and no decode phase: `computed` catches up with `tokens`."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


MOVES = {
    Phase.WAITING: {Phase.RUNNING, Phase.FINISHED},
    Phase.RUNNING: {Phase.WAITING, Phase.FINISHED},
    Phase.FINISHED: set[Phase](),
}


class Finish(Enum):
    """Why a request ended."""

    STOP = "stop"  # an end token
    LENGTH = "length"  # max_tokens, or the context is full
    CANCELLED = "cancelled"  # dropped from outside: the client left, or its text met a stop string
    FAILED = "failed"  # the event carries the error


@dataclass(frozen=True, slots=True)
class Summary:
    """One request in numbers; moments are seconds of `time.perf_counter`, and one that never came is the end's.

    Attributes:
        arrived: handed to the scheduler.
        started: first given a slot.
        first_token: its first new token was sampled.
        ended: its terminal event was made.
        prompt_tokens: length of the prompt.
        new_tokens: how many were generated.
        cached_tokens: how many of the prompt's needed no computing.
    """

    arrived: float
    started: float
    first_token: float
    ended: float
    prompt_tokens: int
    new_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """New tokens of one request, or its end, or both. The one with `finish` is the last.

    Attributes:
        id: the request's.
        tokens: new token ids in order, the end token included where one was sampled.
        logprobs: one for each of `tokens` where the request asked for them, else none.
        prompt_logprobs: one for each prompt token after the first, where the request asked for them: in its first
            event, and in no other.
        finish: None while the request goes on.
        error: set exactly where `finish` is FAILED.
        summary: set exactly where `finish` is.
        cached: how many of the prompt's tokens needed no computing.
    """

    id: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    finish: Finish | None = None
    error: EngineError | None = None
    summary: Summary | None = None
    cached: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """One prompt on its way to its tokens. Made by the submitter, owned by the engine from `add` on.

    Attributes:
        id: unique among the requests in flight.
        prompt: token ids, at least one.
        siblings: a name that the choices of one reply share: even without prefix reuse they share its prompt; or empty.
        priority: lower goes first.
        salt: only requests with the same share what is computed of their prompts.
        key: whose it is, for fair shares; all without a name are one.
        number: of the engine's counting as they come.
        rank: among the requests of its key, the lower goes first.
        tokens: the prompt and what was generated.
        computed: how many of `ids` are in the KV cache; RUNNING requests have at least one pending.
        slot: the KV slot, exactly while RUNNING.
        history: what the penalties go by.
        scores: the prompt's logprobs so far, until they leave in an event.
        cached: how many prompt tokens needed no computing when it first started.
        preempted: how often it had to make way.
    """

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    siblings: str = ""
    priority: int = 0
    salt: str = ""
    key: str = ""
    number: int = field(default=0, init=False)
    rank: int = field(default=0, init=False)
    tokens: TokenList = field(init=False, repr=False)
    computed: int = field(default=0, init=False)
    slot: int | None = field(default=None, init=False)
    phase: Phase = field(default=Phase.WAITING, init=False)
    generator: np.random.Generator = field(init=False)
    history: History = field(init=False)
    scores: list[TokenLogprobs] = field(default_factory=list, init=False)
    cached: int = field(default=0, init=False)
    preempted: int = field(default=0, init=False)
    arrived: float = field(init=False)
    started: float | None = field(default=None, init=False)
    first_token: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.tokens = TokenList(self.prompt)
        self.generator = np.random.Generator(np.random.PCG64(self.params.seed))
        self.history = History(self.params, self.prompt)
        self.arrived = perf_counter()

    @property
    def ids(self) -> TokenIds:
        """The prompt and what was generated."""
        return self.tokens.ids

    @property
    def generated(self) -> int:
        """How many new tokens there are."""
        return len(self.ids) - len(self.prompt)

    @property
    def unscored(self) -> int:
        """How many pending prompt tokens' logits are asked for; those of the last one are the next token's."""
        if self.params.prompt_logprobs is None or self.generated:  # then the prompt has been scored before
            return 0
        return max(len(self.prompt) - 1 - self.computed, 0)

    @property
    def seniority(self) -> tuple[int, int]:
        """The lower goes first, and the higher makes way."""
        return self.priority, self.number

    def start(self, slot: int, given: int) -> None:
        """Run in a slot that holds the first `given` tokens already."""
        self.move(Phase.RUNNING)
        self.slot, self.computed = slot, given
        if self.started is None:
            self.started, self.cached = perf_counter(), given

    def preempt(self) -> None:
        """Wait again, with its tokens but without their cache."""
        self.move(Phase.WAITING)
        self.computed = 0
        self.preempted += 1
        if not self.generated:  # its prompt will be scored from the start
            self.scores.clear()

    def append(self, token: int) -> None:
        """Take a new token."""
        self.tokens.append(token)
        self.history.add(token)
        if self.first_token is None:
            self.first_token = perf_counter()

    def move(self, to: Phase) -> None:
        """Change phase along the table of moves; a move outside it is a bug and raises AssertionError."""
        assert to in MOVES[self.phase], f"request {self.id}: {self.phase} -> {to}"
        self.phase = to

    def summary(self) -> Summary:
        """The request in numbers, ended now."""
        now = perf_counter()
        moments = (self.arrived, self.started or now, self.first_token or now, now)
        return Summary(*moments, len(self.prompt), self.generated, self.cached)

    def news(self, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...]) -> Event:
        """The event with new tokens."""
        return Event(self.id, tokens, logprobs, self._take_scores(), cached=self.cached)

    def end(
        self,
        finish: Finish,
        error: EngineError | None = None,
        tokens: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
    ) -> Event:
        """Move to FINISHED and make the terminal event."""
        self.move(Phase.FINISHED)
        return Event(self.id, tokens, logprobs, self._take_scores(), finish, error, self.summary(), self.cached)

    def _take_scores(self) -> tuple[TokenLogprobs, ...]:
        scores = tuple(self.scores)
        self.scores.clear()
        return scores
