// One row and 32 outputs at a time.

constexpr int kRows = 1;
constexpr int kShift = 0;

template <int R, int Form, bool Half, bool Minimum>
inline void tile(const Linear& a, const uint8_t* w, int first_row, F (&f)[R][2], Ahead) {
  const size_t group = (size_t)(first_row / a.group) * a.blocks * a.group;
  const int8_t* q = a.q + group * kBlock;
  f[0][0] = f[0][1] = set(0.0f);
  for (int b = 0; b < a.blocks; b++) {
    const uint8_t* scales = w + numbers_of<Form>();
    const size_t at = group + (size_t)b * a.group;
    I s[2];
    for (int i = 0; i < kLanes; i++) s[0].v[i] = s[1].v[i] = a.start[at];
    for (int k = 0; k < 8; k++, q += (size_t)a.group * 4)
      for (int i = 0; i < kLanes; i++)
        for (int j = 0; j < 4; j++) {
          const uint8_t* v = w + (Form == kBits4 ? 64 : 128) * k + 4 * i + j;
          s[0].v[i] += (Form == kBits4 ? *v & 15 : *v) * q[j];
          s[1].v[i] += (Form == kBits4 ? *v >> 4 : v[64]) * q[j];
        }
    for (int c = 0; c < 2; c++) {
      const F by = set(a.row_scale[at]);
      f[0][c] = fma(floats(s[c]), Form == kInt8 ? by : mul(scales_at<Half>(scales, c * kLanes), by), f[0][c]);
      if (Minimum)
        f[0][c] = fma(scales_at<Half>(scales + kPanel * (Half ? 2 : 4), c * kLanes), set(a.sum[at]), f[0][c]);
    }
    w += bytes_of<Form, Half, Minimum>();
  }
}

double spin(int times) {
  volatile int s = 0;
  for (int t = 0; t < times; t++) s = s + t * 3;
  return times;
}
