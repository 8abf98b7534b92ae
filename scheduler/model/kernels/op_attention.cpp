// Attention over pages: find pointers, check every index of the batch, and cut the work among onnxruntime's threads.
#include "ops.h"

namespace paceline {
namespace {

struct Tile {
  int row, rows;
};

// Runs of neighbouring rows of one slot that one pass of the kernel takes.
int cut(const Attention& a, int rows, int tall, Tile* tiles) {
  int count = 0;
  for (int row = 0; row < rows;) {
    int end = row + 1;
    while (end < rows && end - row < tall && a.slot[end] == a.slot[row]) end++;
    tiles[count++] = {row, end - row};
    row = end;
  }
  return count;
}

// Tokens that a tile's scores take room for.
size_t span_of(const Attention& a, const Tile& tile) {
  int most = 0, least = a.position[tile.row];
  for (int r = tile.row; r < tile.row + tile.rows; r++) {
    most = a.position[r] > most ? a.position[r] : most;
    least = a.position[r] < least ? a.position[r] : least;
  }
  const int from = a.window > 0 && least + 1 > a.window ? least + 1 - a.window : 0;
  return (size_t)(most / kPage - from / kPage + 1) * kPage;
}

// Turns what each row brings, then attends; false where memory is short.
bool attend_all(Run& r, const Table& t, const Attention& a, const Tile* tiles, int count, int rows) {
  bool alone = true, enough = true;  // alone: no row reads what another brings
  for (int i = 0; i < count; i++) alone &= tiles[i].rows == 1 && (i == 0 || a.slot[tiles[i].row] != a.slot[tiles[i - 1].row]);
  if (!alone) {
    constexpr int kSome = 16;
    auto turn = [&](size_t i) {
      for (int row = (int)i * kSome; row < rows && row < ((int)i + 1) * kSome; row++)
        for (int h = 0; h < a.kv_heads; h++) t.turn(a, row, h);
    };
    r.parallel((size_t)(rows + kSome - 1) / kSome, turn);
  }
  auto attend = [&](size_t i) {
    const Tile& tile = tiles[i / a.kv_heads];
    const int head = (int)(i % a.kv_heads);
    const size_t span = span_of(a, tile);
    float* room = static_cast<float*>(scratch<1>(span * t.queries * sizeof(float)));
    if (!room) return void(enough = false);
    if (alone) t.turn(a, tile.row, head);
    t.attend(a, tile.row, tile.rows, head, room, span);
  };
  r.parallel((size_t)count * a.kv_heads, attend);
  return enough;
}

}  // namespace

AttentionOp AttentionOp::read(Attributes& a) {
  AttentionOp op{};
  op.layer = (int)a.whole("layer"), op.layers = (int)a.whole("layers");
  op.heads = (int)a.whole("heads"), op.kv_heads = (int)a.whole("kv_heads"), op.d = (int)a.whole("head_size");
  op.q_at = a.whole("q_at", 0), op.k_at = a.whole("k_at", 0), op.v_at = a.whole("v_at", 0);
  op.rotary = (int)a.whole("rotary", 0), op.interleaved = a.whole("interleaved", 0);
  op.cos_at = a.whole("cos_at", -1), op.sin_at = a.whole("sin_at", -1), op.table_rows = a.whole("table_rows", 0);
  op.scale = a.real("scale", 1.0f), op.window = (int)a.whole("window", 0), op.softcap = a.real("softcap", 0.0f);
  op.sinks_at = a.whole("sinks_at", -1), op.q_norm_at = a.whole("q_norm_at", -1);
  op.k_norm_at = a.whole("k_norm_at", -1), op.epsilon = a.real("norm_epsilon", 1e-6f);
  op.kind = (int)a.whole("kind");
  return op;
}

const char* AttentionOp::fault() const {
  if (layers <= 0 || layer < 0 || layer >= layers) return "an attention node is of a layer that is not there";
  if (kv_heads <= 0 || heads <= 0 || heads > 1 << 16 || heads % kv_heads) return "an attention node's heads do not fit";
  if (d <= 0 || d > kMostHead) return "an attention node's heads are wider than 512 channels";
  if (rotary < 0 || rotary > d || rotary % 2) return "an attention node turns more channels than a head has";
  if (kind < kFloat || kind > kByte) return "an attention node's cache is of an unknown kind";
  if (q_at < 0 || k_at < 0 || v_at < 0 || window < 0) return "an attention node has a negative place";
  return nullptr;
}

void AttentionOp::run(Run& r) const {
  const Table& t = table();
  Shape q_shape, k_shape, v_shape, slots, positions, tables, weights_shape, cache_shape;
  Attention a{};
  a.q = r.in<float>(0, &q_shape), a.k = r.in<float>(1, &k_shape), a.v = r.in<float>(2, &v_shape);
  a.slot = r.in<int32_t>(3, &slots), a.position = r.in<int32_t>(4, &positions), a.tables = r.in<int32_t>(5, &tables);
  const char* weights = r.in<char>(6, &weights_shape);
  a.cache = const_cast<char*>(r.in<char>(7, &cache_shape));  // appended to in place: a layer's part is this node's alone
  if (!r.ok()) return;
  const int64_t rows = slots.all(), half = rotary / 2;
  a.heads = heads, a.kv_heads = kv_heads, a.d = d, a.dp = (d + kLanes - 1) / kLanes * kLanes;
  a.kind = kind, a.unit = (size_t)kPage * a.dp * (kind == kFloat ? 4 : kind == kHalf ? 2 : 1) + (kind == kByte ? 128 : 0);
  a.page_bytes = (size_t)layers * 2 * kv_heads * a.unit;
  r.check(positions.all() == rows && q_shape.rows() == rows && k_shape.rows() == rows && v_shape.rows() == rows,
          "an attention node's inputs are of different rows");
  r.check(q_at + (int64_t)heads * d <= q_shape.last() && k_at + (int64_t)kv_heads * d <= k_shape.last() &&
              v_at + (int64_t)kv_heads * d <= v_shape.last(),
          "an attention node's inputs are too narrow");
  r.check(tables.count == 2 && cache_shape.count == 2 && cache_shape.last() == (int64_t)a.page_bytes,
          "the cache has pages of another size");
  r.check(rotary == 0 || (within(cos_at, table_rows * half * 4, weights_shape) &&
                          within(sin_at, table_rows * half * 4, weights_shape)),
          "the rotary tables lie outside of the file");
  r.check(sinks_at < 0 || within(sinks_at, heads * 4, weights_shape), "attention sinks lie outside of the file");
  r.check(q_norm_at < 0 || within(q_norm_at, d * 4, weights_shape), "a norm of queries lies outside of the file");
  r.check(k_norm_at < 0 || within(k_norm_at, d * 4, weights_shape), "a norm of keys lies outside of the file");
  if (!r.ok()) return;
  a.width = (int)tables.last();
  for (int64_t i = 0; i < rows && r.ok(); i++) {
    const int slot = a.slot[i], position = a.position[i];
    r.check(slot >= 0 && slot < tables.sizes[0], "a row is of a slot that is not there");
    r.check(position >= 0 && position / kPage < a.width, "a row lies behind the end of its block table");
    r.check(rotary == 0 || position < table_rows, "a row lies behind the end of the rotary tables");
    // of neighbours in one slot the last one's pages are those of all
    if (!r.ok() || (i + 1 < rows && a.slot[i + 1] == slot && a.position[i + 1] >= position)) continue;
    for (int p = 0; p <= position / kPage; p++) {
      const int page = a.tables[(size_t)slot * a.width + p];
      r.check(page >= 0 && page < cache_shape.sizes[0], "a block table names a page that is not there");
    }
  }
  Shape out = q_shape;
  out.sizes[out.count - 1] = (int64_t)heads * d;
  a.y = r.out<float>(0, out);
  if (!r.ok() || rows == 0) return;

  auto at = [&](int64_t place) { return place < 0 ? nullptr : reinterpret_cast<const float*>(weights + place); };
  a.q += q_at, a.k += k_at, a.v += v_at;
  a.q_step = q_shape.last(), a.k_step = k_shape.last(), a.v_step = v_shape.last();
  a.cos = at(rotary ? cos_at : -1), a.sin = at(rotary ? sin_at : -1), a.rotary = rotary, a.interleaved = interleaved;
  a.window = window, a.scale = scale, a.softcap = softcap, a.epsilon = epsilon;
  a.sinks = at(sinks_at), a.q_norm = at(q_norm_at), a.k_norm = at(k_norm_at);
  a.cache += (size_t)layer * 2 * kv_heads * a.unit;
  const size_t turned = (size_t)rows * heads * a.dp * sizeof(float);
  char* room = static_cast<char*>(scratch<0>(turned + rows * sizeof(Tile)));
  r.check(room, "there is no memory for a step's queries");
  if (!r.ok()) return;
  a.turned = reinterpret_cast<float*>(room);
  Tile* tiles = reinterpret_cast<Tile*>(room + turned);
  const int group = heads / kv_heads, tall = t.queries / group > 1 ? t.queries / group : 1;
  const int count = cut(a, (int)rows, tall, tiles);
  r.check(attend_all(r, t, a, tiles, count, (int)rows), "there is no memory for a step's scores");
}

}  // namespace paceline
