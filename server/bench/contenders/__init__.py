"""Who is measured; each module is imported by the process of its contender alone."""
