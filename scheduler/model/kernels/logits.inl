// What is read off rows of logits. Included once for each instruction set.

constexpr int kPeak = 64;     // logits that share a peak
constexpr int kSummed = 1024;  // weights that are summed as floats before they are as doubles

bool peaks(const float* x, int count, float* peak) {
  I bits = no_bits();
  const F low = set(-3.4e38f);
  for (int i = 0; i < count; i += kPeak) {
    F top = low;
    for (int j = i; j < i + kPeak && j < count; j += kLanes) {
      const F v = keep_or(load(x + j, count - j), 0, count - j, low);
      top = max(top, v);
      bits = most_bits(bits, v);
    }
    peak[i / kPeak] = reduce_max(top);
  }
  return reduce_most(bits) <= 0x7f800000;
}

double mass(const float* x, int count, float most, float by) {
  double all = 0;
  for (int i = 0; i < count; i += kSummed) {
    F sum = set(0.0f);
    for (int j = i; j < i + kSummed && j < count; j += kLanes) {
      const F e = exponential(mul(sub(load(x + j, count - j), set(most)), set(by)));
      sum = add(sum, keep(e, 0, count - j));
    }
    all += reduce_add(sum);
  }
  return all;
}
