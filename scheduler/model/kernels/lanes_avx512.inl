// Sixteen floats at once, in one register.
using F = __m512;
using I = __m512i;

inline __mmask16 first(int n) { return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1); }

inline F set(float x) { return _mm512_set1_ps(x); }
inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline F load(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
inline F load(const int8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p))); }
inline F load(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline void store(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
inline void store_past_caches(float* p, F x) { _mm512_stream_ps(p, x); }
inline void store(uint16_t* p, F x) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void store(int8_t* p, I x) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(x)); }
inline F keep(F x, int from, int to) {  // zeros but for the lanes [from, to)
  return _mm512_maskz_mov_ps((__mmask16)(first(to) & ~(from > 0 ? first(from) : 0)), x);
}
inline F keep_or(F x, int from, int to, F other) {
  return _mm512_mask_mov_ps(other, (__mmask16)(first(to) & ~(from > 0 ? first(from) : 0)), x);
}

inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm512_max_ps(a, b); }  // b where either is no number
inline F min(F a, F b) { return _mm512_min_ps(a, b); }  // likewise
inline F nearest(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline I round(F x) { return _mm512_cvtps_epi32(x); }
inline F floats(I x) { return _mm512_cvtepi32_ps(x); }
inline F times_power(F x, F n) { return _mm512_scalef_ps(x, n); }  // x * 2^n

inline I no_bits() { return _mm512_setzero_si512(); }
inline I most_bits(I a, F x) {  // bits of the largest magnitude: they count up with it, and past infinity where no number
  return _mm512_max_epu32(a, _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}
inline uint32_t reduce_most(I a) { return _mm512_reduce_max_epu32(a); }

inline float reduce_add(F x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
inline float reduce_max(F x) { return _mm512_reduce_max_ps(x); }
inline int reduce_add(I x) { return _mm512_reduce_add_epi32(x); }
inline I plus(I a, I b) { return _mm512_add_epi32(a, b); }
inline void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
inline void prefetch_far(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }
inline void fence() { _mm_sfence(); }
