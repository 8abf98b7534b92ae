// Tiles of a few rows and 32 outputs, with or without a dot product of bytes (PACELINE_DOT).

#ifdef PACELINE_DOT
constexpr int kRows = 2;
constexpr int kShift = 0;
#else
constexpr int kRows = 6;
constexpr int kShift = 128;  // 8-bit weights are multiplied with their sign
#endif

inline __m256i quad(const int8_t* q) {
  int32_t v;
  __builtin_memcpy(&v, q, 4);
  return _mm256_set1_epi32(v);
}

// s + the sums of four products of unsigned w and signed x.
inline __m256i dot(__m256i s, __m256i w, __m256i x) {
#ifdef PACELINE_DOT
  return _mm256_dpbusd_avx_epi32(s, w, x);
#else
  return _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
#endif
}

// Eight outputs of the quad at w, the first of them c * 8.
template <int Form>
inline __m256i numbers_at(const uint8_t* w, int c) {
  if (Form != kBits4) return _mm256_loadu_si256((const __m256i*)(w + 32 * c));
  const __m256i v = _mm256_loadu_si256((const __m256i*)(w + 32 * (c & 1)));
  return _mm256_and_si256(c < 2 ? v : _mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}

#ifdef PACELINE_DOT
constexpr int kEights = 4;  // of outputs that a pass sums: with two rows 8 sums stay in registers
#else
constexpr int kEights = 1;
#endif

// Sums of a block's products for R rows and kEights times eight outputs, from c * 8 on.
template <int R, int Form>
inline void sums(const uint8_t* w, int c, const int8_t* q, size_t step, const int32_t* start, __m256i (&s)[R][kEights]) {
  constexpr size_t kQuad = Form == kBits4 ? 64 : 128;
#pragma GCC unroll 6
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int e = 0; e < kEights; e++) s[r][e] = _mm256_set1_epi32(start[r]);
#ifdef PACELINE_DOT
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++, q += step) {
    __m256i x[R];
#pragma GCC unroll 2
    for (int r = 0; r < R; r++) x[r] = quad(q + 4 * r);
#pragma GCC unroll 4
    for (int e = 0; e < kEights; e++) {
      const __m256i v = numbers_at<Form>(w + k * kQuad, c + e);
#pragma GCC unroll 2
      for (int r = 0; r < R; r++) s[r][e] = dot(s[r][e], v, x[r]);
    }
  }
#else
  if (Form != kBits4) {
    // Pairs of products are summed to 16 bits: with magnitudes of up to 128 and 127 they stay below 32,767.
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++, q += step) {
      const __m256i v = _mm256_xor_si256(numbers_at<Form>(w + k * kQuad, c), _mm256_set1_epi8((char)0x80));
      const __m256i size = _mm256_abs_epi8(v);
#pragma GCC unroll 6
      for (int r = 0; r < R; r++) s[r][0] = dot(s[r][0], size, _mm256_sign_epi8(quad(q + 4 * r), v));
    }
    return;
  }
  // Numbers of 4 bits: eight pairs of products stay below 32,767, 8 * 2 * 15 * 127.
  __m256i few[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) few[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++, q += step) {
    const __m256i v = numbers_at<Form>(w + k * kQuad, c);
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) few[r] = _mm256_add_epi16(few[r], _mm256_maddubs_epi16(v, quad(q + 4 * r)));
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; r++) s[r][0] = _mm256_add_epi32(s[r][0], _mm256_madd_epi16(few[r], _mm256_set1_epi16(1)));
#endif
}

template <bool Half>
inline __m256 eight_at(const uint8_t* p, int lane) {
  if (Half) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)((const uint16_t*)p + lane)));
  return _mm256_loadu_ps((const float*)p + lane);
}

template <int R, int Form, bool Half, bool Minimum>
inline void tile(const Linear& a, const uint8_t* w, int first_row, F (&f)[R][2], Ahead ahead) {
  const size_t group = (size_t)(first_row / a.group) * a.blocks * a.group;
  const int8_t* q = a.q + group * kBlock;
  const float *row_scale = a.row_scale + group, *row_sum = a.sum + group;
  const int32_t* start = a.start + group;
  const size_t step = (size_t)a.group * 4;
  __m256 y[R][4];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < 4; c++) y[r][c] = _mm256_setzero_ps();
  for (int b = 0; b < a.blocks; b++) {
    const uint8_t* scales = w + numbers_of<Form>();
    for (int k = 0; k < 8; k++, ahead.from += ahead.pace) prefetch_far(ahead.from), prefetch_far(ahead.from + 64);
#pragma GCC unroll 4
    for (int c = 0; c < 4; c += kEights) {
      __m256i s[R][kEights];
      sums<R, Form>(w, c, q, step, start, s);
#pragma GCC unroll 4
      for (int e = 0; e < kEights; e++) {
        constexpr bool kOne = Form == kInt8;
        const int lane = (c + e) * 8;
        const __m256 d = kOne ? _mm256_set1_ps(1.0f) : eight_at<Half>(scales, lane);
        const __m256 m = Minimum ? eight_at<Half>(scales + kPanel * (Half ? 2 : 4), lane) : _mm256_setzero_ps();
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
          __m256& sum = y[r][c + e];
          const __m256 by = _mm256_set1_ps(row_scale[r]);
          sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s[r][e]), kOne ? by : _mm256_mul_ps(d, by), sum);
          if (Minimum) sum = _mm256_fmadd_ps(m, _mm256_set1_ps(row_sum[r]), sum);
        }
      }
    }
    w += bytes_of<Form, Half, Minimum>(), q += 8 * step;
    row_scale += a.group, row_sum += a.group, start += a.group;
  }
  for (int r = 0; r < R; r++) f[r][0] = F{y[r][0], y[r][1]}, f[r][1] = F{y[r][2], y[r][3]};
}

double spin(int times) {
  __m256i s[8], x = _mm256_set1_epi32(0x01020304);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) s[i] = _mm256_set1_epi32(i);
  for (int t = 0; t < times; t++) {
    __asm__ volatile("" : "+x"(x));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) s[i] = dot(s[i], x, x);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) __asm__ volatile("" ::"x"(s[i]));
  return 8.0 * 32 * times;
}
