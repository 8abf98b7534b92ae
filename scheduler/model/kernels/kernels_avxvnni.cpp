// AVX2 with its dot product of bytes.
#define PACELINE_DOT
#include "kernels_avx2.cpp"
