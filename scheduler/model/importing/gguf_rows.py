"""The order of rows in llama.cpp's query and key projections. Knows arrays alone."""

from typing import Any

import numpy as np
import numpy.typing as npt


def halves(weight: npt.NDArray[Any], heads: int, rotary: int) -> npt.NDArray[Any]:
    """Undo llama.cpp's row order of a query or key projection.

    GGUF holds the two rows that rotate together side by side; here, as in Hugging Face's models, the first of each pair
    lie in the first half of the rotated rows and the second in the second half.

    Args:
        weight: [heads * head_size, ..], floats or the bytes that stand for them.
        heads: Heads in the rows.
        rotary: Rows of each head that rotate, the first ones; the others stay where they are.

    """
    by_head = weight.reshape(heads, -1, weight.shape[-1])
    turned = by_head[:, :rotary].reshape(heads, rotary // 2, 2, -1).swapaxes(1, 2).reshape(heads, rotary, -1)
    return np.concatenate([turned, by_head[:, rotary:]], axis=1).reshape(weight.shape)
