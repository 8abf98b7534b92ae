// Rows to int8, a scale for each 32 channels. Included once for each instruction set.

// The row's norm, [width], into y.
inline void normalise(const Rows& a, const float* x, float* y) {
  const int width = a.width;
  F shift = set(0.0f);
  if (a.norm == kLayer) {
    F sum = set(0.0f);
    for (int i = 0; i < width; i += kLanes) sum = add(sum, load(x + i, width - i));
    shift = set(reduce_add(sum) / (float)width);
  }
  F squares = set(0.0f);
  for (int i = 0; i < width; i += kLanes) {
    const F v = keep(sub(load(x + i, width - i), shift), 0, width - i);
    squares = fma(v, v, squares);
  }
  const F by = set(1.0f / __builtin_sqrtf(reduce_add(squares) / (float)width + a.epsilon));
  for (int i = 0; i < width; i += kLanes) {
    const F v = mul(sub(load(x + i, width - i), shift), by);
    store(y + i, a.weight ? mul(v, load(a.weight + i, width - i)) : v, width - i);
  }
}

constexpr float kLeast = 1e-36f;

// One block of 32 channels: y is its place among the quads, a row's quads are `step` bytes apart.
inline void round_block(const Rows& a, F low, F high, size_t at, int8_t* y, size_t step) {
  const uint32_t bits = reduce_most(most_bits(most_bits(no_bits(), low), high));
  float largest;
  __builtin_memcpy(&largest, &bits, 4);
  // A block whose largest is infinite or no number keeps that in its scale, and so in all that is made of it. One so
  // small that its reciprocal would be infinite is zeros.
  if (bits >= 0x7f800000 || largest < kLeast) low = high = set(0.0f);
  const float up = bits < 0x7f800000 && largest >= kLeast ? 127.0f / largest : 0.0f;
  const I q0 = round(mul(low, set(up))), q1 = round(mul(high, set(up)));
  const int sum = reduce_add(plus(q0, q1));
  a.scale[at] = largest < kLeast ? 0.0f : largest / 127.0f;
  a.start[at] = -a.zero * sum;
  a.sum[at] = a.scale[at] * (float)sum;
  alignas(64) int8_t bytes[kBlock];
  store(bytes, q0), store(bytes + kLanes, q1);
  for (int j = 0; j < 8; j++) __builtin_memcpy(y + j * step, bytes + 4 * j, 4);
}

void quantise(const Rows& a, int first_row, int last_row, float* scratch) {
  const int width = a.width, whole = width / kBlock * kBlock;
  for (int row = first_row; row < last_row; row++) {
    const float* x = a.x + (a.pick ? a.pick[row] : (int64_t)row) * width;
    if (a.norm) normalise(a, x, scratch), x = scratch;
    const size_t group = (size_t)(row / a.group) * a.blocks, place = row % a.group;
    for (int b = 0; b < a.blocks; b++) {
      const int i = b * kBlock;
      const size_t at = (group + b) * a.group;
      int8_t* y = a.q + at * kBlock + place * 4;
      const F low = i < whole ? load(x + i) : load(x + i, width - i);
      const F high = i < whole ? load(x + i + kLanes) : width - i > kLanes ? load(x + i + kLanes, width - i - kLanes) : set(0.0f);
      round_block(a, low, high, at + place, y, (size_t)a.group * 4);
    }
  }
}
