"""Makes the folder that vLLM runs of a GGUF file, by the transformers of vLLM's own environment."""

import subprocess
from pathlib import Path

from scheduler.model.importing.made import check_replaceable
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.target import locked, write_folder
from server.bench.options import BenchError
from server.bench.programs import program

CONFIG = "config.json"
CONVERT = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
source, target = Path(sys.argv[1]), sys.argv[2]
given = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
AutoTokenizer.from_pretrained(**given).save_pretrained(target)
model = AutoModelForCausalLM.from_pretrained(**given, dtype=torch.bfloat16)
model.hf_quantizer = None  # it is floats by now, and its quantisation could not be written
del model.config.quantization_config
model.save_pretrained(target)
"""


def checkpoint_folder(gguf: Path, folder: Path, progress: Progress) -> Path:
    """Make the folder, unless it is there already; BenchError where transformers cannot."""
    with locked(folder, progress):
        if not (folder / CONFIG).is_file():
            progress.start("write a folder of 16-bit floats for vLLM", None)
            write_folder(folder, lambda work: _fill(gguf, work), check_replaceable)
            progress.done()
    return folder


def _fill(source: Path, folder: Path) -> None:
    command = [interpreter(Path(program("vllm"))), "-c", CONVERT, str(source.resolve()), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise BenchError(f"transformers cannot read {source.name}: {said[-1]}")


def interpreter(script: Path) -> str:
    """The Python that a script of an environment is for."""
    first = script.read_bytes().split(b"\n", 1)[0].decode(errors="replace")
    if not first.startswith("#!/"):
        raise BenchError(f"{script} is no script of a Python environment")
    return first[2:].strip()
