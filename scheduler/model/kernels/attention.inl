// Attention over pages. Included once for each instruction set, behind kQueries and kWide.
//
// A page holds 32 tokens. Of one head there lie keys [2][dp][16], tokens innermost, and values [32][dp]; of an int8
// cache the scales of its 32 tokens come behind them. Scores of a query with a token are sums over the channels in
// their order; what is made of the scores is summed in the order of the tokens, in lanes by their number. So no
// result depends on what else shares a pass.

template <class C>
inline C* keys_of(const Attention& a, int page, int kv_head) {
  return reinterpret_cast<C*>(a.cache + (size_t)page * a.page_bytes + (size_t)kv_head * a.unit);
}
template <class C>
inline C* values_of(const Attention& a, int page, int kv_head) {
  return reinterpret_cast<C*>(a.cache + (size_t)page * a.page_bytes + (size_t)(a.kv_heads + kv_head) * a.unit);
}
inline float* scales_of(int8_t* unit, const Attention& a) { return reinterpret_cast<float*>(unit + kPage * a.dp); }
inline const float* scales_of(const int8_t* unit, const Attention& a) {
  return reinterpret_cast<const float*>(unit + kPage * a.dp);
}

// ---- what a row brings ----

// A head's channels, normed and turned, times a factor; zeros up to dp.
inline void turn_head(const Attention& a, const float* x, const float* norm, int position, float factor, float* y) {
  alignas(64) float normed[kMostHead];
  if (norm) {
    F squares = set(0.0f);
    for (int i = 0; i < a.d; i += kLanes) {
      const F v = load(x + i, a.d - i);
      squares = fma(v, v, squares);
    }
    const F by = set(1.0f / __builtin_sqrtf(reduce_add(squares) / (float)a.d + a.epsilon));
    for (int i = 0; i < a.d; i += kLanes) store(normed + i, mul(mul(load(x + i, a.d - i), by), load(norm + i, a.d - i)));
    x = normed;
  }
  const int half = a.rotary / 2;
  const float *cos = a.cos + (size_t)position * half, *sin = a.sin + (size_t)position * half;
  if (a.interleaved) {
    for (int i = 0; i < half; i++) {
      const float u = x[2 * i], v = x[2 * i + 1];
      y[2 * i] = (u * cos[i] - v * sin[i]) * factor;
      y[2 * i + 1] = (v * cos[i] + u * sin[i]) * factor;
    }
  } else {
    const F f = set(factor);
    for (int i = 0; i < half; i += kLanes) {
      const int n = half - i;
      const F c = load(cos + i, n), s = load(sin + i, n), u = load(x + i, n), v = load(x + half + i, n);
      store(y + i, mul(sub(mul(u, c), mul(v, s)), f), n);
      store(y + half + i, mul(fma(v, c, mul(u, s)), f), n);
    }
  }
  for (int i = a.rotary; i < a.d; i++) y[i] = x[i] * factor;
  for (int i = a.d; i < a.dp; i++) y[i] = 0.0f;
}

// float16 holds no more than 65,504: what is larger, and a number, is that
inline F bounded(F x) { return min(set(65504.0f), max(set(-65504.0f), x)); }

// [dp] into a token's place: elements `step` apart.
inline void put_token(const float* x, int dp, float* y, size_t step) {
  for (int i = 0; i < dp; i++) y[i * step] = x[i];
}
inline void put_token(const float* x, int dp, uint16_t* y, size_t step) {
  alignas(64) uint16_t cast[kMostHead];
  for (int i = 0; i < dp; i += kLanes) {
    const F v = load(x + i);
    store(cast + i, reduce_most(most_bits(no_bits(), v)) >= 0x7f800000 ? v : bounded(v));
  }
  for (int i = 0; i < dp; i++) y[i * step] = cast[i];
}
// As put_token to int8; returns the scale.
inline float put_bytes(const float* x, int dp, int8_t* y, size_t step) {
  alignas(64) int8_t cast[kMostHead];
  I most = no_bits();
  for (int i = 0; i < dp; i += kLanes) most = most_bits(most, load(x + i));
  const uint32_t bits = reduce_most(most);
  float largest;
  __builtin_memcpy(&largest, &bits, 4);
  const bool usual = bits < 0x7f800000 && largest >= kLeast;
  const F up = set(usual ? 127.0f / largest : 0.0f);
  for (int i = 0; i < dp; i += kLanes) store(cast + i, round(usual ? mul(load(x + i), up) : set(0.0f)));
  for (int i = 0; i < dp; i++) y[i * step] = cast[i];
  return largest < kLeast ? 0.0f : largest / 127.0f;
}

template <class C>
void turn_to(const Attention& a, int row, int kv_head) {
  const int group = a.heads / a.kv_heads, position = a.position[row], place = position % kPage;
  const int page = a.tables[(size_t)a.slot[row] * a.width + position / kPage];
  for (int h = kv_head * group; h < (kv_head + 1) * group; h++)
    turn_head(a, a.q + row * a.q_step + (size_t)h * a.d, a.q_norm, position, a.scale,
              a.turned + ((size_t)row * a.heads + h) * a.dp);
  alignas(64) float key[kMostHead], value[kMostHead];
  turn_head(a, a.k + row * a.k_step + (size_t)kv_head * a.d, a.k_norm, position, 1.0f, key);
  const float* v = a.v + row * a.v_step + (size_t)kv_head * a.d;
  for (int i = 0; i < a.dp; i += kLanes) store(value + i, i < a.d ? load(v + i, a.d - i) : set(0.0f));
  C *keys = keys_of<C>(a, page, kv_head), *values = values_of<C>(a, page, kv_head);
  C* k = keys + (size_t)(place / kLanes) * kLanes * a.dp + place % kLanes;
  C* at = values + (size_t)place * a.dp;
  if constexpr (sizeof(C) == 1) {
    scales_of(keys, a)[place] = put_bytes(key, a.dp, k, kLanes);
    scales_of(values, a)[place] = put_bytes(value, a.dp, at, 1);
  } else {
    put_token(key, a.dp, k, kLanes);
    put_token(value, a.dp, at, 1);
  }
}

void turn(const Attention& a, int row, int kv_head) {
  if (a.kind == kFloat) return turn_to<float>(a, row, kv_head);
  if (a.kind == kHalf) return turn_to<uint16_t>(a, row, kv_head);
  turn_to<int8_t>(a, row, kv_head);
}

// ---- what it reads ----

// Queries of one slot and one kv head that share each load.
template <int Q>
struct Sharing {
  const float* q[Q];     // [dp]
  float* s[Q];           // scores of the tokens from `base` on
  float* y[Q];           // [d]
  int from[Q], to[Q];    // tokens that are seen
  float sink[Q];
  int base, least_from, most_from, least_to, most_to;
};

template <int Q, class C>
inline void scores(const Sharing<Q>& sh, const C* k, const C* next, int dp, int at) {
  F sum[Q][2];
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++) sum[i][0] = sum[i][1] = set(0.0f);
  const C *k0 = k, *k1 = k + (size_t)dp * kLanes;
  for (int e = 0; e < dp; e++) {
    const F x0 = load(k0 + e * kLanes), x1 = load(k1 + e * kLanes);
    prefetch(next + e * kLanes);
    prefetch(next + (size_t)dp * kLanes + e * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++) {
      const F y = set(sh.q[i][e]);
      sum[i][0] = fma(y, x0, sum[i][0]);
      sum[i][1] = fma(y, x1, sum[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++) store(sh.s[i] + at, sum[i][0]), store(sh.s[i] + at + kLanes, sum[i][1]);
}

template <int Q, class C>
void all_scores(const Attention& a, const Sharing<Q>& sh, const int32_t* pages, int kv_head) {
  for (int t = sh.base; t < sh.most_to; t += kPage) {
    const C* k = keys_of<C>(a, pages[t / kPage], kv_head);
    const bool more = t + kPage < sh.most_to;
    const C* next = more ? keys_of<C>(a, pages[t / kPage + 1], kv_head)
                         : values_of<C>(a, pages[sh.base / kPage], kv_head);
    scores(sh, k, next, a.dp, t - sh.base);
    if constexpr (sizeof(C) == 1) {
      const F s0 = load(scales_of(k, a)), s1 = load(scales_of(k, a) + kLanes);
      for (int i = 0; i < Q; i++) {
        float* s = sh.s[i] + t - sh.base;
        store(s, mul(load(s), s0)), store(s + kLanes, mul(load(s + kLanes), s1));
      }
    }
  }
}

// Scores to weights, in place; returns one over their sum.
inline float softmax(const Attention& a, float* s, int from, int to, float sink) {
  const F low = set(-3.4e38f);
  const int first_lane = from / kLanes * kLanes;
  F top = low;
  for (int t = first_lane; t < to; t += kLanes) {
    F v = load(s + t);
    if (a.softcap != 0.0f) {
      v = mul(hyperbolic_tangent(div(v, set(a.softcap))), set(a.softcap));
      store(s + t, v);
    }
    top = max(top, keep_or(v, from - t, to - t, low));
  }
  float most = reduce_max(top);
  if (a.sinks && sink > most) most = sink;
  const F by = set(most);
  F sum = set(0.0f);
  for (int t = first_lane; t < to; t += kLanes) {
    const F e = keep(exponential(sub(load(s + t), by)), from - t, to - t);
    sum = add(sum, e);
    store(s + t, e);
  }
  float all = reduce_add(sum);
  if (a.sinks) {
    alignas(64) float one[kLanes];
    store(one, exponential(set(sink - most)));
    all += one[0];
  }
  return 1.0f / all;
}

// Adds the values of tokens [from, to), weighed, to sums of 16 V channels of the queries [first, first + Q).
template <int Q, int V, class C>
inline void weigh(const Attention& a, float* const* s, float* const* y, const int32_t* pages, int kv_head, int channel,
                  int base, int from, int to) {
  F sum[Q][V];
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++)
#pragma GCC unroll 4
    for (int c = 0; c < V; c++) sum[i][c] = load(y[i] + kLanes * c);
  while (from < to) {
    const int page = from / kPage, end = (page + 1) * kPage < to ? (page + 1) * kPage : to;
    const C* v = values_of<C>(a, pages[page], kv_head) + channel;
    const C* next = end < to ? values_of<C>(a, pages[page + 1], kv_head) + channel : v;
    for (; from < end; from++) {
      const size_t at = (size_t)(from % kPage) * a.dp;
      F x[V];
#pragma GCC unroll 4
      for (int c = 0; c < V; c++) {
        x[c] = load(v + at + kLanes * c);
        if (c * sizeof(C) % 4 == 0) prefetch(next + at + kLanes * c);
      }
#pragma GCC unroll 6
      for (int i = 0; i < Q; i++) {
        const F w = set(s[i][from - base]);
#pragma GCC unroll 4
        for (int c = 0; c < V; c++) sum[i][c] = fma(w, x[c], sum[i][c]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++)
#pragma GCC unroll 4
    for (int c = 0; c < V; c++) store(y[i] + kLanes * c, sum[i][c]);
}

// The tokens that all queries see are weighed for all of them at once; each one's own before and behind alone.
template <int Q, int V, class C>
void weigh_all(const Attention& a, const Sharing<Q>& sh, float (*sums)[kMostHead], const int32_t* pages, int kv_head,
               int channel) {
  float* y[Q];
  for (int i = 0; i < Q; i++) y[i] = sums[i] + channel;
  const bool common = sh.most_from < sh.least_to;
  const int begin = sh.most_from, end = sh.least_to;
  for (int i = 0; i < Q; i++) {
    const int stop = common ? begin : sh.to[i];
    if (sh.from[i] < stop) weigh<1, V, C>(a, sh.s + i, y + i, pages, kv_head, channel, sh.base, sh.from[i], stop);
  }
  if (!common) return;
  weigh<Q, V, C>(a, sh.s, y, pages, kv_head, channel, sh.base, begin, end);
  for (int i = 0; i < Q; i++)
    if (end < sh.to[i]) weigh<1, V, C>(a, sh.s + i, y + i, pages, kv_head, channel, sh.base, end, sh.to[i]);
}

template <int Q, class C>
void share(const Attention& a, const Sharing<Q>& sh, const int32_t* pages, int kv_head) {
  all_scores<Q, C>(a, sh, pages, kv_head);
  alignas(64) float sums[Q][kMostHead];
  float by[Q];
  for (int i = 0; i < Q; i++) {
    by[i] = softmax(a, sh.s[i], sh.from[i] - sh.base, sh.to[i] - sh.base, sh.sink[i]);
    if constexpr (sizeof(C) == 1)
      for (int t = sh.base; t < sh.to[i]; t += kLanes) {
        float* s = sh.s[i] + t - sh.base;
        store(s, mul(load(s), load(scales_of(values_of<C>(a, pages[t / kPage], kv_head), a) + t % kPage)));
      }
    for (int c = 0; c < a.dp; c += kLanes) store(sums[i] + c, set(0.0f));
  }
  int c = 0;
  for (; c + kWide * kLanes <= a.dp; c += kWide * kLanes) weigh_all<Q, kWide, C>(a, sh, sums, pages, kv_head, c);
  for (; c < a.dp; c += kLanes) weigh_all<Q, 1, C>(a, sh, sums, pages, kv_head, c);
  for (int i = 0; i < Q; i++)
    for (int e = 0; e < a.d; e += kLanes) store(sh.y[i] + e, mul(load(sums[i] + e), set(by[i])), a.d - e);
}

// The queries [first, first + Q) of rows' heads of one group.
template <int Q, class C>
void share_some(const Attention& a, int row, int first_query, int kv_head, float* scratch, size_t span) {
  const int group = a.heads / a.kv_heads;
  Sharing<Q> sh;
  for (int i = 0; i < Q; i++) {
    const int r = row + (first_query + i) / group, h = kv_head * group + (first_query + i) % group;
    sh.q[i] = a.turned + ((size_t)r * a.heads + h) * a.dp;
    sh.y[i] = a.y + ((size_t)r * a.heads + h) * a.d;
    sh.s[i] = scratch + i * span;
    sh.to[i] = a.position[r] + 1;
    sh.from[i] = a.window > 0 && sh.to[i] > a.window ? sh.to[i] - a.window : 0;
    sh.sink[i] = a.sinks ? a.sinks[h] : 0.0f;
    sh.least_from = i == 0 || sh.from[i] < sh.least_from ? sh.from[i] : sh.least_from;
    sh.most_from = i == 0 || sh.from[i] > sh.most_from ? sh.from[i] : sh.most_from;
    sh.least_to = i == 0 || sh.to[i] < sh.least_to ? sh.to[i] : sh.least_to;
    sh.most_to = i == 0 || sh.to[i] > sh.most_to ? sh.to[i] : sh.most_to;
  }
  sh.base = sh.least_from / kPage * kPage;
  share<Q, C>(a, sh, a.tables + (size_t)a.slot[row] * a.width, kv_head);
}

template <class C>
void attend_to(const Attention& a, int row, int rows, int kv_head, float* scratch, size_t span) {
  const int all = rows * (a.heads / a.kv_heads);
  int i = 0;
  for (; i + kQueries <= all; i += kQueries) share_some<kQueries, C>(a, row, i, kv_head, scratch, span);
  switch (all - i) {
    case 5: return share_some<kQueries < 6 ? 1 : 5, C>(a, row, i, kv_head, scratch, span);
    case 4: return share_some<kQueries < 6 ? 1 : 4, C>(a, row, i, kv_head, scratch, span);
    case 3: return share_some<kQueries < 6 ? 1 : 3, C>(a, row, i, kv_head, scratch, span);
    case 2: return share_some<kQueries < 6 ? 1 : 2, C>(a, row, i, kv_head, scratch, span);
    case 1: return share_some<1, C>(a, row, i, kv_head, scratch, span);
    default: return;
  }
}

void attend(const Attention& a, int row, int rows, int kv_head, float* scratch, size_t span) {
  if (a.kind == kFloat) return attend_to<float>(a, row, rows, kv_head, scratch, span);
  if (a.kind == kHalf) return attend_to<uint16_t>(a, row, rows, kv_head, scratch, span);
  attend_to<int8_t>(a, row, rows, kv_head, scratch, span);
}
