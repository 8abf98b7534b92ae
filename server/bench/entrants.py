"""Who takes part in the benchmark of a model, and what each needs: folders are made before anything is measured."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import msgspec

from scheduler.model.importing import Progress, read_manifest
from scheduler.model.importing.default_model import DEFAULT_NAME, fetched_default
from scheduler.model.importing.target import locked
from server.bench.checkpoint import checkpoint_folder
from server.bench.child import Setup
from server.bench.genai_folder import CONFIG, genai_folder
from server.bench.options import BenchError, BenchOptions
from server.bench.programs import PROGRAMS, program
from server.bench.suite import Entrant


class Peers:
    """Finds what each peer runs for a model.

    Args:
        model: what `paceline bench` was given, or None for the default model.
        cache: where folders are made.
    """

    def __init__(self, model: Path | None, cache: Path, progress: Progress) -> None:
        self._model = model
        self._cache = cache
        self._progress = progress

    def path(self, peer: str) -> Path:
        """The folder or file that the peer runs; BenchError where it has none."""
        if peer in PROGRAMS:
            program(peer)
        if peer == "openvino" and find_spec("openvino_genai") is None:
            raise BenchError("openvino-genai is not installed: pip install 'paceline[bench]'")
        if peer in ("openvino", "llama-server"):
            return self._gguf()
        return self._checkpoint() if peer == "vllm" else self._genai()

    def _genai(self) -> Path:
        source = self._source()
        if source.is_dir():
            return source
        return genai_folder(source, self._cache / f"bench-int4-{_stamp(source)}", self._progress)

    def _gguf(self) -> Path:
        source = self._source()
        if source.is_dir():
            raise BenchError("it reads GGUF files, and the model is a folder")
        return source

    def _checkpoint(self) -> Path:
        """The GGUF file's weights as a folder of transformers, which vLLM reads: 16-bit floats."""
        source = self._gguf()
        return checkpoint_folder(source, self._cache / f"bench-checkpoint-{_stamp(source)}", self._progress)

    def _source(self) -> Path:
        """What the packed folder is made of."""
        if self._model is None:
            return self._default()
        if self._model.is_dir() and read_manifest(self._model) is not None:
            raise BenchError(f"{self._model} is packed for paceline alone: give the model that it was imported from")
        if self._model.is_dir() and not (self._model / CONFIG).is_file():
            raise BenchError(f"{self._model} is no folder of onnxruntime-genai")
        return self._model

    def _default(self) -> Path:
        """The default model's GGUF file, kept for the peers; paceline itself keeps the packed folder alone."""
        kept = self._cache / f"bench-{DEFAULT_NAME}.gguf"
        with locked(kept, self._progress):
            if not kept.is_file():
                with fetched_default(kept, self._progress) as fetched:
                    shutil.move(fetched, kept)
        return kept


def _stamp(source: Path) -> str:
    stat = source.stat()
    return f"{source.stem}-{stat.st_size}-{stat.st_mtime_ns}"


def entrants(ours: Setup, options: BenchOptions, peers: Peers) -> tuple[list[Entrant], dict[str, str]]:
    """Everyone who takes part, paceline first; and why others do not."""
    taking_part = [Entrant(msgspec.structs.replace(ours, kind=kind)) for kind in ("paceline", "engine")]
    left_out = {}
    for peer in options.peers:
        try:
            path = str(peers.path(peer))
            taking_part.append(Entrant(msgspec.structs.replace(ours, kind=peer, path=path), not options.must_run))
        except BenchError as error:
            if options.must_run:
                raise BenchError(f"{peer} cannot run: {error}") from error
            left_out[peer] = str(error)
    return taking_part, left_out
