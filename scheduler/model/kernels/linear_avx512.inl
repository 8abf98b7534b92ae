// Tiles of up to 6 rows and 32 outputs whose sums stay in registers.

constexpr int kRows = 6;
constexpr int kShift = 0;

inline __m512i quad(const int8_t* q) {
  int32_t v;
  __builtin_memcpy(&v, q, 4);
  return _mm512_set1_epi32(v);
}

template <int R, int Form, bool Half, bool Minimum>
inline void tile(const Linear& a, const uint8_t* w, int first_row, F (&f)[R][2], Ahead ahead) {
  const size_t group = (size_t)(first_row / a.group) * a.blocks * a.group;
  const int8_t* q = a.q + group * kBlock;
  const float *row_scale = a.row_scale + group, *row_sum = a.sum + group;
  const int32_t* start = a.start + group;
  const size_t step = (size_t)a.group * 4;
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) f[r][0] = f[r][1] = _mm512_setzero_ps();
  for (int b = 0; b < a.blocks; b++) {
    const uint8_t* scales = w + numbers_of<Form>();
    __m512i s[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) s[r][0] = s[r][1] = _mm512_set1_epi32(start[r]);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
      __m512i w0, w1;
      if (Form == kBits4) {
        const __m512i v = _mm512_loadu_si512(w + 64 * k), low = _mm512_set1_epi8(15);
        w0 = _mm512_and_si512(v, low), w1 = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
      } else {
        w0 = _mm512_loadu_si512(w + 128 * k), w1 = _mm512_loadu_si512(w + 128 * k + 64);
      }
      prefetch_far(ahead.from);
      if (Form != kBits4) prefetch_far(ahead.from + 64);
      ahead.from += ahead.pace;
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) {
        const __m512i x = quad(q + 4 * r);
        s[r][0] = _mm512_dpbusd_epi32(s[r][0], w0, x);
        s[r][1] = _mm512_dpbusd_epi32(s[r][1], w1, x);
      }
      q += step;
    }
    if (Form == kInt8) {
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) {
        const __m512 by = _mm512_set1_ps(row_scale[r]);
        f[r][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[r][0]), by, f[r][0]);
        f[r][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[r][1]), by, f[r][1]);
      }
    } else {
      const F d0 = scales_at<Half>(scales, 0), d1 = scales_at<Half>(scales, kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) {
        const __m512 by = _mm512_set1_ps(row_scale[r]);
        f[r][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[r][0]), _mm512_mul_ps(d0, by), f[r][0]);
        f[r][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[r][1]), _mm512_mul_ps(d1, by), f[r][1]);
      }
      if (Minimum) {
        const uint8_t* minima = scales + kPanel * (Half ? 2 : 4);
        const F m0 = scales_at<Half>(minima, 0), m1 = scales_at<Half>(minima, kLanes);
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
          const __m512 by = _mm512_set1_ps(row_sum[r]);
          f[r][0] = _mm512_fmadd_ps(m0, by, f[r][0]);
          f[r][1] = _mm512_fmadd_ps(m1, by, f[r][1]);
        }
      }
    }
    w += bytes_of<Form, Half, Minimum>();
    row_scale += a.group, row_sum += a.group, start += a.group;
  }
}

double spin(int times) {
  __m512i s[12], x = _mm512_set1_epi32(0x01020304);
#pragma GCC unroll 12
  for (int i = 0; i < 12; i++) s[i] = _mm512_set1_epi32(i);
  for (int t = 0; t < times; t++) {
    __asm__ volatile("" : "+v"(x));
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) s[i] = _mm512_dpbusd_epi32(s[i], x, x);
  }
#pragma GCC unroll 12
  for (int i = 0; i < 12; i++) __asm__ volatile("" ::"v"(s[i]));
  return 12.0 * 64 * times;
}
