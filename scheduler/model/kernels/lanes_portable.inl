// Sixteen floats at once, for any processor: plain loops, which compilers turn into vectors.
struct F {
  float v[16];
};
struct I {
  int32_t v[16];
};

#define PACELINE_EACH(T, expression)         \
  T r;                                       \
  for (int i = 0; i < 16; i++) r.v[i] = (expression); \
  return r

inline uint32_t magnitude_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits & 0x7fffffff;
}

inline F set(float x) { PACELINE_EACH(F, x); }
inline F load(const float* p) { PACELINE_EACH(F, p[i]); }
inline F load(const uint16_t* p) { PACELINE_EACH(F, from_half(p[i])); }
inline F load(const int8_t* p) { PACELINE_EACH(F, (float)p[i]); }
inline F load(const float* p, int n) { PACELINE_EACH(F, i < n ? p[i] : 0.0f); }
inline void store(float* p, F x) { std::memcpy(p, x.v, sizeof x.v); }
inline void store(float* p, F x, int n) {
  for (int i = 0; i < 16 && i < n; i++) p[i] = x.v[i];
}
inline void store_past_caches(float* p, F x) { store(p, x); }
inline void store(uint16_t* p, F x) {
  for (int i = 0; i < 16; i++) p[i] = to_half(x.v[i]);
}
inline void store(int8_t* p, I x) {
  for (int i = 0; i < 16; i++) p[i] = (int8_t)(uint8_t)x.v[i];
}
inline F keep(F x, int from, int to) { PACELINE_EACH(F, i >= from && i < to ? x.v[i] : 0.0f); }
inline F keep_or(F x, int from, int to, F o) { PACELINE_EACH(F, i >= from && i < to ? x.v[i] : o.v[i]); }

inline F add(F a, F b) { PACELINE_EACH(F, a.v[i] + b.v[i]); }
inline F sub(F a, F b) { PACELINE_EACH(F, a.v[i] - b.v[i]); }
inline F mul(F a, F b) { PACELINE_EACH(F, a.v[i] * b.v[i]); }
inline F div(F a, F b) { PACELINE_EACH(F, a.v[i] / b.v[i]); }
inline F fma(F a, F b, F c) { PACELINE_EACH(F, a.v[i] * b.v[i] + c.v[i]); }
inline F max(F a, F b) { PACELINE_EACH(F, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }  // b where either is no number
inline F min(F a, F b) { PACELINE_EACH(F, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }  // likewise
inline float even(float x) {  // to the nearest whole number, ties to even: what lies beyond has no fraction
  if (!(x > -4194304.0f && x < 4194304.0f)) return x;
  const float much = 12582912.0f;
  volatile float y = x + much;
  return y - much;
}
inline F nearest(F x) { PACELINE_EACH(F, even(x.v[i])); }
inline I round(F x) {  // out of range, and what is no number: the least, as processors give it
  PACELINE_EACH(I, x.v[i] >= -2147483648.0f && x.v[i] < 2147483648.0f ? (int32_t)even(x.v[i]) : INT32_MIN);
}
inline F floats(I x) { PACELINE_EACH(F, (float)x.v[i]); }
inline float power(float n) {  // 2^n, n whole and within -126..127
  if (!(n >= -126.0f && n <= 127.0f)) return n;
  const uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline F times_power(F x, F n) { PACELINE_EACH(F, x.v[i] * power(n.v[i])); }

inline I no_bits() { PACELINE_EACH(I, 0); }
inline I most_bits(I m, F x) {
  PACELINE_EACH(I, (uint32_t)m.v[i] > magnitude_bits(x.v[i]) ? m.v[i] : (int32_t)magnitude_bits(x.v[i]));
}
inline uint32_t reduce_most(I m) {
  uint32_t most = 0;
  for (int i = 0; i < 16; i++) most = (uint32_t)m.v[i] > most ? (uint32_t)m.v[i] : most;
  return most;
}
inline float reduce_add(F x) {
  float a[8];
  for (int i = 0; i < 8; i++) a[i] = x.v[i] + x.v[i + 8];
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}
inline float reduce_max(F x) {
  float most = x.v[0];
  for (int i = 1; i < 16; i++) most = x.v[i] > most ? x.v[i] : most;
  return most;
}
inline int reduce_add(I x) {
  uint32_t sum = 0;
  for (int i = 0; i < 16; i++) sum += (uint32_t)x.v[i];
  return (int)sum;
}
inline I plus(I a, I b) { PACELINE_EACH(I, (int32_t)((uint32_t)a.v[i] + (uint32_t)b.v[i])); }
inline void prefetch(const void*) {}
inline void prefetch_far(const void*) {}
inline void fence() {}

#undef PACELINE_EACH
