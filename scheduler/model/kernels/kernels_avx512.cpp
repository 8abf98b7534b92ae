// AVX-512 with VNNI. Compiled with flags of its own; uses nothing of the standard library, so that no inline function
// of this file can be picked by the linker for a processor without AVX-512.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels.h"

namespace paceline {
namespace {

#include "lanes_avx512.inl"
#include "math.inl"
#include "rows.inl"

#include "weights.inl"
#include "linear_avx512.inl"
#include "linear.inl"

constexpr int kQueries = 6;  // that share a load in attention
constexpr int kWide = 4;     // times 16 channels of values that are summed in registers

#include "attention.inl"
#include "logits.inl"

}  // namespace

extern const Table kAvx512 = {"avx512vnni", kRows, kQueries, kShift, quantise, linear, turn, attend, peaks, mass, spin};

}  // namespace paceline
#endif
