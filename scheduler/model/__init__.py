"""Model folders: what they say about themselves, how they run, how they are made.

onnxruntime writes an id of the machine and a database into the user's cache folder as it is imported, and reports to
its makers. It reads its switch at that moment alone, so the switch is set here, before any room can import it.
"""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
