// For any processor, and what every other form is compared with.
#include <cmath>
#include <cstring>

#include "half.h"
#include "kernels.h"

namespace paceline {
namespace {

#include "lanes_portable.inl"
#include "math.inl"
#include "rows.inl"

#include "weights.inl"
#include "linear_portable.inl"
#include "linear.inl"

constexpr int kQueries = 1;  // that share a load in attention
constexpr int kWide = 4;     // times 16 channels of values that are summed in registers

#include "attention.inl"
#include "logits.inl"

}  // namespace

extern const Table kPortable = {"portable", kRows, kQueries, kShift, quantise, linear, turn, attend, peaks, mass, spin};

}  // namespace paceline
