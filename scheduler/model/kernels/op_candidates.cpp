// The likeliest tokens of each row of logits: peaks of 64 bound what has to be looked at.
#include <algorithm>

#include "ops.h"

namespace paceline {
namespace {

constexpr int kPeak = 64;

struct Found {
  float value;
  int32_t id;
};

// A value that at least `wanted` logits reach, and not many more.
float bound_of(float* peaks, int count, int wanted) {
  if (count <= wanted) return -3.4e38f;
  std::nth_element(peaks, peaks + wanted - 1, peaks + count, [](float a, float b) { return a > b; });
  return peaks[wanted - 1];
}

// The `wanted` largest, in order, ties by the lower id.
void select(const float* x, int count, const float* peaks, float bound, int wanted, Found* found, int32_t* ids,
            float* values) {
  int have = 0;
  for (int p = 0; p * kPeak < count; p++) {
    if (!(peaks[p] >= bound)) continue;
    for (int i = p * kPeak; i < (p + 1) * kPeak && i < count; i++)
      if (x[i] >= bound) found[have++] = {x[i], i};
  }
  // what only minus infinity would reach is filled up in the order of ids
  for (int i = 0; have < wanted && i < count; i++)
    if (!(x[i] >= bound)) found[have++] = {x[i], i};
  auto before = [](const Found& a, const Found& b) { return a.value > b.value || (a.value == b.value && a.id < b.id); };
  std::partial_sort(found, found + wanted, found + have, before);
  for (int i = 0; i < wanted; i++) ids[i] = found[i].id, values[i] = found[i].value;
}

}  // namespace

void CandidatesOp::run(Run& r) const {
  const Table& t = table();
  Shape logits_shape, temperatures_shape;
  const float* logits = r.in<float>(0, &logits_shape);
  const float* temperatures = r.in<float>(1, &temperatures_shape);
  if (!r.ok()) return;
  const int64_t count = logits_shape.last(), rows = logits_shape.rows();
  r.check(count > 0 && count < INT32_MAX, "there is no vocabulary");
  r.check(temperatures_shape.all() == rows, "there are not as many temperatures as rows of logits");
  const int wanted = count < kTop ? (int)count : kTop;
  Shape two, one;
  two.count = 2, two.sizes[0] = rows, two.sizes[1] = wanted;
  one.count = 1, one.sizes[0] = rows;
  int32_t* ids = r.out<int32_t>(0, two);
  float* values = r.out<float>(1, two);
  float* mass = r.out<float>(2, one);
  if (!r.ok() || rows == 0) return;

  const size_t peaks = (size_t)(count + kPeak - 1) / kPeak;
  bool enough = true;
  auto row = [&](size_t i) {
    float* room = static_cast<float*>(scratch<1>(peaks * 2 * sizeof(float) + (size_t)count * sizeof(Found)));
    if (!room) return void(enough = false);
    float *peak = room, *sorted = room + peaks;
    Found* found = reinterpret_cast<Found*>(room + 2 * peaks);
    const float* x = logits + i * count;
    const bool numbers = t.peaks(x, (int)count, peak);
    for (size_t p = 0; p < peaks; p++) sorted[p] = peak[p];
    select(x, (int)count, peak, bound_of(sorted, (int)peaks, wanted), wanted, found, ids + i * wanted, values + i * wanted);
    const float most = values[i * wanted];
    const bool usable = numbers && most <= 3.4028235e38f && most >= -3.4028235e38f;
    if (!usable) values[i * wanted] = __builtin_nanf("");
    const float warm = temperatures[i] > 1e-30f ? temperatures[i] : 1e-30f;
    mass[i] = usable && temperatures[i] > 0 ? (float)t.mass(x, (int)count, most, 1.0f / warm) : 0.0f;
  };
  r.parallel(rows, row);
  r.check(enough, "there is no memory to look for the likeliest tokens");
}

}  // namespace paceline
