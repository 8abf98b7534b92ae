"""What each choice of precision costs and loses on one source: imports it in every one and measures them.

The reference is the source's own weights in float32, without rounding activations or cache. Knows which choices there
are; not how they are measured or shown.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from scheduler.model.importing.importer import import_model
from scheduler.model.importing.manifest import ImportOptions
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.quality_report import Report, report

CHOICES: dict[str, ImportOptions] = {
    "kept": ImportOptions(weights="keep", kv_cache="float16"),
    "kept, cache int8": ImportOptions(weights="keep", kv_cache="int8"),
    "int8": ImportOptions(weights="int8", kv_cache="float16"),
    "int8, cache int8": ImportOptions(weights="int8", kv_cache="int8"),
}


def report_choices(source: Path, near: Path, options: ImportOptions, progress: Progress) -> Report:
    """Import a source in every choice, in a folder that is made near and removed again, and measure them.

    Raises:
        ImportFailed: The source cannot be imported.
    """
    with TemporaryDirectory(dir=near, prefix=".report-") as folder:
        exact = msgspec.structs.replace(options, weights="float32", kv_cache="float32")
        import_model(source, Path(folder) / "reference", exact, progress)
        made = {}
        for name, choice in CHOICES.items():
            made[name] = Path(folder) / name
            chosen = msgspec.structs.replace(options, weights=choice.weights, kv_cache=choice.kv_cache)
            import_model(source, made[name], chosen, progress)
        return report(made, Path(folder) / "reference", progress)
