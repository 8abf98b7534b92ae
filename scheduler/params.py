"""How one request's tokens are chosen and when it ends. Values come in valid: the edge has parsed them.

Knows no arrays.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """What the sampler and the end check need; total, so nobody past the edge fills in a default.

    Attributes:
        max_tokens: new tokens at the most, from 0.
        temperature: divides the logits; 0 is argmax, ties going to the lowest id.
        top_k: only the k likeliest tokens; 0 is off.
        top_p: only the smallest set of likeliest tokens whose probability reaches p (Holtzman et al.,
            "The Curious Case of Neural Text Degeneration", 2020); 1 is off.
        seed: of the request's own generator; the same request and seed give the same tokens.
        end_tokens: ids that end the request, the model's own included unless the request ignores them.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    end_tokens: frozenset[int] = frozenset()

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken and no random number drawn."""
        return self.temperature == 0.0 or self.top_k == 1
