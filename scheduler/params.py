"""How one request's tokens are chosen, what is reported of them, and when it ends.

Values come in valid: the edge has parsed them, and every default is neutral. Knows no arrays.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """What the sampler and the end check need; total, so nobody past the edge fills in a default.

    Attributes:
        max_tokens: new tokens at the most, from 0.
        min_tokens: new tokens before which no end token is chosen.
        temperature: divides the logits; 0 is argmax, ties going to the lowest id.
        top_k: only the k likeliest tokens; 0 is off.
        top_p: only the smallest set of likeliest tokens whose probability reaches p (Holtzman et al.,
            "The Curious Case of Neural Text Degeneration", 2020); 1 is off.
        min_p: only tokens at least that likely, relative to the likeliest (Nguyen et al., "Turning Up the Heat:
            Min-p Sampling", 2024); 0 is off.
        frequency_penalty: taken off a token's logit for each time it was generated; 0 is off.
        presence_penalty: taken off the logit of every token that was generated; 0 is off.
        repetition_penalty: divides positive logits and multiplies negative ones of tokens of the prompt or generated
            (Keskar et al., "CTRL", 2019); 1 is off.
        logit_bias: (token id, what is added to its logit); ids are distinct.
        seed: of the request's own generator; the same request and seed give the same tokens.
        end_tokens: ids that end the request, the model's own included unless the request ignores them.
        logprobs: how many of the likeliest tokens are reported beside each new one; None reports nothing.
        prompt_logprobs: the same of each prompt token after the first.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    end_tokens: frozenset[int] = frozenset()
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken and no random number drawn."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def penalised(self) -> bool:
        """Whether a logit depends on the tokens so far."""
        return bool(self.frequency_penalty or self.presence_penalty or self.repetition_penalty != 1.0)
