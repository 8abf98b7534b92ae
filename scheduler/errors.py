"""What can go wrong in the engine, by how many requests it ends.

    EngineError
    |-- RequestFailed        one request: its sampling, its grammar
    |-- StepFailed           the requests planned for one step: the model's run raised
    |-- EngineDown           everyone: the scheduler thread has ended and takes no more requests
    |-- ModelFolderError     nobody yet: the folder cannot be served
    `-- KernelsError         nobody yet: the operators' library is missing, or does not fit the machine

The import of a model has a tree of its own, `scheduler.model.importing.errors`. This room knows no HTTP.
"""


class EngineError(Exception):
    """The root: every error the engine raises on purpose."""


class RequestFailed(EngineError):
    """One request cannot go on; its neighbours do."""


class StepFailed(EngineError):
    """A step's model run raised; the requests in it are ended, the others go on."""


class EngineDown(EngineError):
    """The scheduler thread has ended, or is ending; nothing can be submitted."""


class ModelFolderError(EngineError):
    """A packed model folder is incomplete, of another format, or does not fit what was asked of it."""


class KernelsError(EngineError):
    """The library of operators is missing, or cannot do what was asked of it here."""
