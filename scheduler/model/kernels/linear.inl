// Rounded rows times weights: what is the same for all instruction sets. Included once for each, behind its `tile`.

inline F activated(int act, F gate) { return act == kSilu ? silu(gate) : gelu(gate); }

// The last steps of 32 outputs of a row.
__attribute__((noinline)) void put(const Linear& a, int panel, int row, F c0, F c1) {
  if (a.form == kInt8) {
    c0 = mul(c0, load(a.scale + panel * kPanel));
    c1 = mul(c1, load(a.scale + panel * kPanel + kLanes));
  }
  if (a.bias) {
    c0 = add(c0, load(a.bias + panel * kPanel));
    c1 = add(c1, load(a.bias + panel * kPanel + kLanes));
  }
  if (a.alpha != 1.0f) c0 = mul(c0, set(a.alpha)), c1 = mul(c1, set(a.alpha));
  if (a.act) {
    store(a.y + (size_t)row * (a.n / 2) + panel * kLanes, mul(activated(a.act, c0), c1));
    return;
  }
  const size_t at = (size_t)row * a.n + (size_t)panel * kPanel;
  const int left = a.n - panel * kPanel;
  if (left < kPanel) {
    if (a.residual) {
      c0 = add(c0, load(a.residual + at, left));
      if (left > kLanes) c1 = add(c1, load(a.residual + at + kLanes, left - kLanes));
    }
    store(a.y + at, c0, left);
    if (left > kLanes) store(a.y + at + kLanes, c1, left - kLanes);
    return;
  }
  if (a.residual) c0 = add(c0, load(a.residual + at)), c1 = add(c1, load(a.residual + at + kLanes));
  if (a.past_caches) {
    store_past_caches(a.y + at, c0), store_past_caches(a.y + at + kLanes, c1);
    return;
  }
  store(a.y + at, c0), store(a.y + at + kLanes, c1);
}

using Tile = void (*)(const Linear&, const uint8_t* w, int panel, int first_row, Ahead);

// R rows, whose group begins at first_row.
template <int R, int Form, bool Half, bool Minimum>
void tile_put(const Linear& a, const uint8_t* w, int panel, int first_row, Ahead ahead) {
  F sum[R][2];
  tile<R, Form, Half, Minimum>(a, w, first_row, sum, ahead);
  for (int r = 0; r < R; r++) put(a, panel, first_row + r, sum[r][0], sum[r][1]);
}

template <int Form, bool Half, bool Minimum>
inline Tile tile_of(int rows) {
  switch (rows) {
    case 1: return tile_put<1, Form, Half, Minimum>;
    case 2: return tile_put<kRows < 2 ? 1 : 2, Form, Half, Minimum>;
    case 3: return tile_put<kRows < 3 ? 1 : 3, Form, Half, Minimum>;
    case 4: return tile_put<kRows < 4 ? 1 : 4, Form, Half, Minimum>;
    case 5: return tile_put<kRows < 5 ? 1 : 5, Form, Half, Minimum>;
    default: return tile_put<kRows < 6 ? 1 : 6, Form, Half, Minimum>;
  }
}

template <int Form>
inline Tile tile_of(const Linear& a, int rows) {
  if (a.half) return a.minimum ? tile_of<Form, true, true>(rows) : tile_of<Form, true, false>(rows);
  return a.minimum ? tile_of<Form, false, true>(rows) : tile_of<Form, false, false>(rows);
}

inline Tile tile_for(const Linear& a, int rows) {
  if (a.form == kInt8) return tile_of<kInt8, false, false>(rows);
  return a.form == kBits4 ? tile_of<kBits4>(a, rows) : tile_of<kBits8>(a, rows);
}

constexpr int kFetched = 3072;  // bytes ahead of a lone group of rows

void linear(const Linear& a, int first_panel, int last_panel) {
  const int groups = (a.rows + a.group - 1) / a.group, last = a.rows - (groups - 1) * a.group;
  const size_t bytes = block_bytes(a.form, a.half, a.minimum) * a.blocks, quads = (size_t)a.blocks * 8;
  const Tile most = tile_for(a, a.group), rest = tile_for(a, last);
  for (int p = first_panel; p < last_panel; p++) {
    const uint8_t* w = a.w + p * bytes;
    // of several groups of rows, each fetches its share of what the next panel will read from memory
    const bool share = groups > 1 && p + 1 < last_panel;
    Ahead ahead = {share ? w + bytes : w + kFetched, share ? (bytes / quads + groups) / groups : bytes / quads};
    for (int g = 0; g < groups; g++) {
      (g + 1 < groups ? most : rest)(a, w, p, g * a.group, ahead);
      if (share) ahead.from += ahead.pace * quads;
    }
  }
  if (a.past_caches) fence();  // such stores are not in order with what tells others that we are done
}
