"""Source: a folder of onnxruntime-genai, as its model builder writes it for a CPU.

The graph is read without its weights, which stay where they are. What the packed form cannot run is refused here and in
`genai_checks`, with the reason and the node. Knows nothing of how the graph is packed or where it goes.
"""

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir

from scheduler.model.importing.attention_pass import attentions
from scheduler.model.importing.errors import BrokenSource, UnsupportedModel
from scheduler.model.importing.genai_checks import check_graph, order_interface
from scheduler.model.importing.head_rows import keep_every_row
from scheduler.model.importing.logical import LogicalModel, check_context, dimensions
from scheduler.model.importing.naming import folder_name
from scheduler.model.importing.rope_switch import resolve_rope_switch

CONFIG = "genai_config.json"
CARRIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "LICENSE",
)
_OTHER_MODELS = ("encoder", "vision", "speech", "audio", "embedding")
_COS_CACHE = 7
_UNPRUNED = "The head, which kept the last position alone (prune_lm_head), computes whatever rows are sampled."


def read_genai(folder: Path, context: int | None) -> LogicalModel:
    """Read a folder of onnxruntime-genai.

    Args:
        folder: Where its genai_config.json is.
        context: Tokens of context that will be served, None for the model's own; it picks a longrope model's tables.

    Raises:
        BrokenSource: A file is missing or unreadable.
        UnsupportedModel: The model is of a kind that is not served; the message names the node.
        ImportFailed: The context is longer than the model's own.

    """
    config = _read_config(folder / CONFIG)
    decoder = config["model"]["decoder"]
    model = _read_graph(folder / decoder["filename"])
    check_graph(model.graph)
    pruned = keep_every_row(model.graph, decoder.get("outputs", {}).get("logits", "logits"))
    order_interface(model.graph, decoder)
    own = int(config["model"]["context_length"])
    switch = resolve_rope_switch(model.graph, check_context(context, own))
    return LogicalModel(
        kind="genai",
        name=folder_name(folder),
        model=model,
        config=config,
        max_context=min([own, *_table_lengths(model.graph)]),
        rope_switch=switch,
        copies=tuple(path for name in CARRIED if (path := folder / name).is_file()),
        notes=(_UNPRUNED,) if pruned else (),
    )


def genai_files(folder: Path) -> list[Path]:
    """List the files that make the folder a model, by name: graph, data, configuration, tokenizer.

    Raises:
        BrokenSource: A file is missing or unreadable.
        UnsupportedModel: The configuration tells of more than one model.

    """
    decoder = _read_config(folder / CONFIG)["model"]["decoder"]
    graph = folder / decoder["filename"]
    tokenizer = [path for name in CARRIED if (path := folder / name).is_file()]
    return sorted({folder / CONFIG, graph, *_data_files(_read_graph(graph), folder), *tokenizer})


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        model = config["model"]
        decoder = model["decoder"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenSource(f"{path} is not a configuration of onnxruntime-genai: {error!r}") from error
    parts = [name for name in _OTHER_MODELS if model.get(name)]
    if parts:
        message = f"{path} tells of a model with a part named {parts[0]}"
        raise UnsupportedModel(f"{message}: only text decoders in one file are served")
    if "pipeline" in decoder:
        raise UnsupportedModel(f"{path} tells of a decoder in several files (pipeline): export it as one")
    missing = [key for key in ("filename", "head_size") if key not in decoder]
    missing += [key for key in ("context_length", "vocab_size", "eos_token_id") if key not in model]
    if missing:
        raise BrokenSource(f"{path} does not say {', '.join(missing)}: export the model anew")
    return dict(config)


def _read_graph(path: Path) -> ir.Model:
    if not path.is_file():
        raise BrokenSource(f"{path} is missing: download or export the model anew")
    try:
        return ir.load(path)
    except Exception as error:  # protobuf's and onnx_ir's own, of many kinds
        raise BrokenSource(f"{path} is no readable ONNX graph: {error}") from error


def _table_lengths(graph: ir.Graph) -> list[int]:
    """Rows of the rotary tables: positions past them cannot be served."""
    tables = [node.inputs[_COS_CACHE] for node in attentions(graph) if len(node.inputs) > _COS_CACHE]
    tensors = [ir.convenience.get_const_tensor(table) for table in tables if table is not None]
    return [dimensions(tensor)[0] for tensor in tensors if tensor is not None]


def _data_files(model: ir.Model, folder: Path) -> tuple[Path, ...]:
    """List the files beside the graph that hold its weights, each seen to be long enough."""
    ends: dict[str, int] = {}
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                location = str(tensor.location)
                end = (tensor.offset or 0) + (tensor.length or tensor.nbytes)
                ends[location] = max(ends.get(location, 0), end)
    for location, end in ends.items():
        path = folder / location
        if Path(location).name != location:
            raise BrokenSource(f"the weights are said to be in {location}: only files beside the graph are read")
        if not path.is_file():
            raise BrokenSource(f"{path} is missing: download or export the model anew")
        if path.stat().st_size < end:
            size = path.stat().st_size
            raise BrokenSource(f"{path} has {size} bytes, the graph refers to {end}: it was cut short, fetch it anew")
    return tuple(folder / location for location in sorted(ends))
