"""Model folders: what they say about themselves, how they run, how they are made."""
