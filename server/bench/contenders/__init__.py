"""Who is measured; each module is imported by the process of its contender alone."""

import scheduler.model  # noqa: F401 - keeps onnxruntime-genai from writing to the user's cache folder and reporting
