"""The operators that packed graphs are made of: C++ of several instruction sets in one library, and its Python side."""

LIBRARY = "libpaceline_kernels.so"
"""Its file, beside the sources; where paceline is installed, without them."""
