"""Source: a GGUF file of the llama architecture, as a logical model with the files a folder of onnxruntime-genai has.

Knows which metadata becomes which entry of genai_config.json; not how tensors are stored, nor how graphs are built.
"""

import json
from pathlib import Path
from typing import Any

from scheduler.model.importing.errors import UnsupportedModel
from scheduler.model.importing.gguf_file import GgufFile
from scheduler.model.importing.llama_graph import LlamaFile, llama_graph
from scheduler.model.importing.logical import LogicalModel, check_context
from scheduler.model.importing.tokenizer_json import tokenizer_files

_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")  # of a text, a turn, a message to a tool

GENERATION = "generation_config.json"
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}

_INTERFACE = {  # names in the logical graph
    "inputs": {
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    },
    "outputs": {
        "logits": "logits",
        "present_key_names": "present.%d.key",
        "present_value_names": "present.%d.value",
    },
}


def read_gguf(path: Path, context: int | None) -> LogicalModel:
    """Read a GGUF file; its weights are read when the graph is written.

    Args:
        path: The file.
        context: Tokens of context that will be served, None for the model's own.

    Raises:
        BrokenSource: The file is missing or unreadable.
        UnsupportedModel: It holds something that is not understood; the message names it.
        ImportFailed: The context is longer than the model's own.

    """
    file = GgufFile(path)
    check_context(context, file.shape.context)
    return read_llama(file)


def read_llama(file: LlamaFile) -> LogicalModel:
    """Make a logical model of anything that gives a llama's weights and GGUF's metadata."""
    called = [file.metadata[key] for key in ("general.name", "general.description") if key in file.metadata]
    model, stored = llama_graph(file)
    return LogicalModel(
        kind="gguf",
        name=file.path.stem,
        model=model,
        stored=stored,
        config=_genai_config(file),
        max_context=file.shape.context,
        copies=tuple(path for name in ("LICENSE", GENERATION) if (path := file.path.with_name(name)).is_file()),
        texts=tokenizer_files(file.metadata, file.shape.context) | _generation_config(file),
        notes=(
            f"Read from GGUF: {file.type_summary()}.",
            *(f"It says of itself: {text}" for text in called),
            f"Rotary tables made for {file.shape.context} tokens.",
        ),
    )


def _genai_config(file: LlamaFile) -> dict[str, Any]:
    """Say what onnxruntime-genai wants to know of a model, in the form of its genai_config.json."""
    shape, ends = file.shape, _end_tokens(file)
    return {
        "model": {
            "bos_token_id": _token(file, "bos_token_id", ends[0]),
            "context_length": shape.context,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": shape.head_size,
                "hidden_size": shape.hidden,
                **_INTERFACE,
                "num_attention_heads": shape.heads,
                "num_hidden_layers": shape.layers,
                "num_key_value_heads": shape.kv_heads,
            },
            "eos_token_id": ends if len(ends) > 1 else ends[0],
            "pad_token_id": _token(file, "padding_token_id", ends[0]),
            "type": "llama",
            "vocab_size": shape.vocab,
        },
    }


def gguf_files(path: Path) -> list[Path]:
    """List the files that make the model: the GGUF file, and the settings for sampling that lie beside it."""
    return [one for one in (path, path.with_name(GENERATION)) if one.is_file()]


def _generation_config(file: LlamaFile) -> dict[str, str]:
    """Put what the metadata recommends for sampling into a file as its authors' others are, unless one is there."""
    keys = {f"general.sampling.{theirs}": ours for theirs, ours in _SAMPLING.items()}
    said = {ours: round(file.metadata[key], 6) for key, ours in keys.items() if key in file.metadata}
    return {GENERATION: json.dumps(said)} if said and not file.path.with_name(GENERATION).is_file() else {}


def _end_tokens(file: LlamaFile) -> list[int]:
    """List the tokens that end an answer, each once, the end of a text first."""
    keys = [f"tokenizer.ggml.{key}" for key in _END_KEYS]
    ends = list(dict.fromkeys(int(file.metadata[key]) for key in keys if key in file.metadata))
    if not ends:
        message = f"{file.path.name} does not say which token ends a text ({keys[0]})"
        raise UnsupportedModel(f"{message}: use a file made by a newer llama.cpp")
    return ends


def _token(file: LlamaFile, key: str, default: int) -> int:
    return int(file.metadata.get(f"tokenizer.ggml.{key}", default))
