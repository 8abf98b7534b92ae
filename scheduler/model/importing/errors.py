"""Why a model could not be imported, in three names.

    ImportFailed             anything that ended an import: disk, network, a busy target
    +-- UnsupportedModel     the source is sound, but holds something this engine does not run
    +-- BrokenSource         files of the source are missing, cut short or unreadable

Each message says the reason, the node or tensor it was found at, and what to do next. Who shows it is not known here.
"""


class ImportFailed(Exception):
    """An import ended without a packed folder."""


class UnsupportedModel(ImportFailed):
    """The source needs something the packed form does not have."""


class BrokenSource(ImportFailed):
    """The source's files do not add up to a model."""
