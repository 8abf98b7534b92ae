// Sixteen floats at once, in two registers.
struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};

inline __m256i below(int n) {  // lanes whose number is less
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F load(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
inline F load(const int8_t* p) {
  const __m128i x = _mm_loadu_si128((const __m128i*)p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}
inline F load(const float* p, int n) { return {_mm256_maskload_ps(p, below(n)), _mm256_maskload_ps(p + 8, below(n - 8))}; }
inline void store(float* p, F x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
inline void store(float* p, F x, int n) {
  _mm256_maskstore_ps(p, below(n), x.a), _mm256_maskstore_ps(p + 8, below(n - 8), x.b);
}
inline void store_past_caches(float* p, F x) { _mm256_stream_ps(p, x.a), _mm256_stream_ps(p + 8, x.b); }
inline void store(uint16_t* p, F x) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void store(int8_t* p, I x) {  // the low byte of each, as the other forms do
  const __m256i mask = _mm256_set1_epi32(255);
  const __m256i words = _mm256_packus_epi32(_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask));
  const __m256i order = _mm256_permute4x64_epi64(words, 0xd8);
  _mm_storeu_si128((__m128i*)p, _mm_packus_epi16(_mm256_castsi256_si128(order), _mm256_extracti128_si256(order, 1)));
}
inline __m256i between(int from, int to) { return _mm256_andnot_si256(below(from), below(to)); }
inline F keep(F x, int from, int to) {  // zeros but for the lanes [from, to)
  return {_mm256_and_ps(x.a, _mm256_castsi256_ps(between(from, to))),
          _mm256_and_ps(x.b, _mm256_castsi256_ps(between(from - 8, to - 8)))};
}
inline F keep_or(F x, int from, int to, F o) {
  return {_mm256_blendv_ps(o.a, x.a, _mm256_castsi256_ps(between(from, to))),
          _mm256_blendv_ps(o.b, x.b, _mm256_castsi256_ps(between(from - 8, to - 8)))};
}

inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }  // y where either is no number
inline F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }  // likewise
inline F nearest(F x) {
  constexpr int how = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, how), _mm256_round_ps(x.b, how)};
}
inline I round(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline F floats(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline __m256 power(__m256 n) {  // 2^n, n whole and within -126..127
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline F times_power(F x, F n) { return {_mm256_mul_ps(x.a, power(n.a)), _mm256_mul_ps(x.b, power(n.b))}; }

inline I no_bits() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I most_bits(I m, F x) {  // bits of the largest magnitude: they count up with it, and past infinity where no number
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  return {_mm256_max_epu32(m.a, _mm256_and_si256(_mm256_castps_si256(x.a), mask)),
          _mm256_max_epu32(m.b, _mm256_and_si256(_mm256_castps_si256(x.b), mask))};
}
inline uint32_t reduce_most(I m) {
  alignas(32) uint32_t v[8];
  _mm256_store_si256((__m256i*)v, _mm256_max_epu32(m.a, m.b));
  uint32_t most = 0;
  for (int i = 0; i < 8; i++) most = v[i] > most ? v[i] : most;
  return most;
}

inline float reduce_add(F x) {
  const __m256 a = _mm256_add_ps(x.a, x.b);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
inline float reduce_max(F x) {
  alignas(32) float v[8];
  _mm256_store_ps(v, _mm256_max_ps(x.a, x.b));
  float most = v[0];
  for (int i = 1; i < 8; i++) most = v[i] > most ? v[i] : most;
  return most;
}
inline int reduce_add(I x) {
  alignas(32) int v[8];
  _mm256_store_si256((__m256i*)v, _mm256_add_epi32(x.a, x.b));
  int sum = 0;
  for (int i = 0; i < 8; i++) sum += v[i];
  return sum;
}
inline I plus(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
inline void prefetch_far(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }
inline void fence() { _mm_sfence(); }
