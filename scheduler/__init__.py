"""The engine: token ids in, token ids out. It knows no text, no JSON, no asyncio and no HTTP."""
