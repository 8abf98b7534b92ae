"""What a run would say of rows of logits, by sorting: the tests' own reading of it."""

import numpy as np
from numpy.typing import NDArray

from scheduler.batch import CANDIDATES, Output


def output_of(logits: NDArray[np.float32], temperatures: NDArray[np.float32], most: int = CANDIDATES) -> Output:
    """The output for logits [R, vocabulary], with so many candidates at the most."""
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :most].astype(np.int32)
    values = np.take_along_axis(logits, ids, axis=1)
    usable = ~np.isnan(logits).any(axis=1) & np.isfinite(values[:, 0])
    values[~usable, 0] = np.nan
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        below = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        mass = np.exp(below / temperatures[:, None]).sum(axis=1)
    return Output(logits, ids, values, np.where(usable & (temperatures > 0), mass, 0).astype(np.float32))
