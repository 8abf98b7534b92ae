"""`paceline bench --kernels`: that every operator runs, on numbers for which it is known what comes out."""

import numpy as np
import onnxruntime as ort
import pytest
from rich.console import Console

from scheduler.model.kernels import library
from server.bench.kernels.cases import FORMS, Case, Size, attention, candidates, cases, linear
from server.bench.kernels.measure import limits, measured
from server.bench.kernels.report import Kernels, render
from server.bench.machine import machine

SMALL = Size(width=96, matrices=3, cached=40, vocabulary=300)


def run(case: Case) -> list[np.ndarray]:
    options = ort.SessionOptions()
    library.register(options)
    session = ort.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(case.inputs)))


def test_every_operator_is_measured_with_every_number_of_rows() -> None:
    found = list(measured(cases((1, 33), SMALL), threads=1, repeats=2))
    kinds = [("LinearAdd", form) for form in FORMS]
    kinds += [("Attention", kind) for kind in ("float32", "float16", "int8")] + [("Candidates", "float32")]
    assert [(f.operator, f.kind, f.rows) for f in found] == [(*kind, rows) for kind in kinds for rows in (1, 33)]
    assert all(f.read > 0 for f in found)
    assert all((f.operations > 0) == (f.operator != "Candidates") for f in found)
    most = limits(threads=2, size=2**16, times=10, repeats=1)
    assert min(most.read, most.operations) > 0
    console = Console(width=120, record=True)
    console.print(render(Kernels(machine(), 1, most, found)))
    assert library.selected() in console.export_text()


@pytest.mark.parametrize("form", FORMS)
def test_the_layers_add_up_in_one_residual(form: str) -> None:
    case = linear(form, 3, SMALL)
    half, single = (
        np.array([0x1111], np.uint16).view(np.float16)[0],
        np.array([0x11111111], np.uint32).view(np.float32)[0],
    )
    weight = {
        "int8": (0x11 - 128) * float(single),
        "8-bit blocks": 0x11 * float(half) + float(half),
        "4-bit blocks": 1 * float(half) + float(half),
    }[form]
    (y,) = run(case)
    assert y == pytest.approx(np.full((1, 3, 96), 3 * 96 * weight), rel=1e-3)
    assert case.operations == 3 * 3 * 2 * 96 * 96
    assert case.read == 3 * 9 * ({"int8": 1024, "8-bit blocks": 1152, "4-bit blocks": 640}[form])


@pytest.mark.parametrize("rows", [2, 50])
def test_attention_reads_the_whole_cache(rows: int) -> None:
    case = attention("float32", rows, SMALL)
    (y,) = run(case)
    # Keys and values are zeros but for what the rows themselves bring, ones: scores of 8 beside those of 0.
    seen, own = ([40] * 2, [1 / (1 + 39 * np.exp(-8))] * 2) if rows == 2 else (list(range(1, 51)), [1.0] * 50)
    assert y[0, :, 0] == pytest.approx(own, rel=1e-4)
    assert case.operations == 4 * sum(seen) * 16 * 64


def test_candidates_are_of_all_logits() -> None:
    ids, _, mass = run(candidates(2, SMALL))
    assert ids.shape == (2, 128)
    assert (mass > 1).all()
