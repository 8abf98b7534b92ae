// AVX2 with FMA, and (included by kernels_avxvnni.cpp) AVX-VNNI. Compiled with flags of its own; uses nothing of the
// standard library, so that no inline function of this file can be picked by the linker for another processor.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

namespace paceline {
namespace {

#include "lanes_avx2.inl"
#include "math.inl"
#include "rows.inl"

#include "weights.inl"
#include "linear_avx2.inl"
#include "linear.inl"

constexpr int kQueries = 2;  // that share a load in attention
constexpr int kWide = 2;     // times 16 channels of values that are summed in registers

#include "attention.inl"
#include "logits.inl"

}  // namespace

#ifdef PACELINE_DOT
extern const Table kAvxVnni = {"avxvnni", kRows, kQueries, kShift, quantise, linear, turn, attend, peaks, mass, spin};
#else
extern const Table kAvx2 = {"avx2", kRows, kQueries, kShift, quantise, linear, turn, attend, peaks, mass, spin};
#endif

}  // namespace paceline
#endif
