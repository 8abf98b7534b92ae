"""Texts to tokens, and the refusal of those that cannot fit, as far as possible unread. Knows no call.

Encoding releases the interpreter and keeps a core busy; what is made of tokens afterwards, in Python, does not.
"""

from tokenizers import Encoding, Tokenizer

from server.errors import ContextLengthExceeded

SHRINKING = 4
"""Characters of a text that a normalizer may turn into one, to be on the safe side where texts are refused unread."""

GLANCE = 16
"""Characters for each token of the context by which a text that is much longer is judged."""


class Encoder:
    """A model's tokenizer, for prompts that leave room in a context of so many tokens.

    Attributes:
        most_characters: a longer text cannot fit, whatever it says.
    """

    def __init__(self, tokenizer: Tokenizer, context: int) -> None:
        self._tokenizer = tokenizer
        self._context = context
        longest = max(map(len, tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self.most_characters = context * longest * SHRINKING

    def encode(self, text: str, param: str, *, special: bool, offsets: bool = False) -> Encoding:
        """The tokens of a text that might fit, with those the tokenizer adds where `special`.

        Raises ContextLengthExceeded where it cannot.
        """
        if len(text) > self.most_characters:
            raise self.too_long(param)
        # The batch forms are those that release the GIL; the fast one leaves out the offsets.
        encode = self._tokenizer.encode_batch if offsets else self._tokenizer.encode_batch_fast
        (encoding,) = encode([text], add_special_tokens=special)
        return encoding

    def fitting(self, text: str, param: str, *, special: bool, offsets: bool = False) -> Encoding:
        """The tokens of a text that fits; raises ContextLengthExceeded where it does not.

        Of a text much longer than the context the beginning is read alone where that has twice the tokens already: the
        rest cannot take so many back, as it changes only how the last of them are cut.
        """
        glance = GLANCE * self._context
        if len(text) > 2 * glance and len(self.encode(text[:glance], param, special=special)) > 2 * self._context:
            raise self.too_long(param)
        encoding = self.encode(text, param, special=special, offsets=offsets)
        if len(encoding) >= self._context:
            raise ContextLengthExceeded(len(encoding), self._context, param=param)
        return encoding

    def too_long(self, param: str) -> ContextLengthExceeded:
        """The refusal of a text that was not read to its end."""
        return ContextLengthExceeded(self._context, self._context, param=param, exact=False)
