"""The HTTP side: OpenAI's API in front of the engine."""
