// Embedding: rows read back from the weights of a head, so that a table that is tied to it takes no memory of its own.
#include <cstring>

#include "half.h"
#include "ops.h"

namespace paceline {
namespace {

constexpr int64_t kSome = 16;  // rows that a thread takes at a time

float scale_of(const uint8_t* scales, int channel, bool half) {
  if (half) {
    uint16_t h;
    std::memcpy(&h, scales + 2 * channel, sizeof h);
    return from_half(h);
  }
  float x;
  std::memcpy(&x, scales + 4 * channel, sizeof x);
  return x;
}

}  // namespace

EmbedOp EmbedOp::read(Attributes& a) { return {LinearOp::read(a, false, false)}; }

const char* EmbedOp::fault() const { return table.fault(); }

void EmbedOp::run(Run& r) const {
  const LinearOp& t = table;
  Shape ids_shape, w_shape;
  const int64_t* ids = r.in<int64_t>(0, &ids_shape);
  const char* weights = r.in<char>(1, &w_shape);
  if (!r.ok()) return;
  const int64_t blocks = (t.k + kBlock - 1) / kBlock, panels = (t.n + kPanel - 1) / kPanel;
  const size_t block = block_bytes(t.form, t.half, t.minimum), numbers = t.form == kBits4 ? 512 : 1024;
  r.check(within(t.w_at, (int64_t)block * blocks * panels, w_shape), "the embedding lies outside of the file");
  r.check(t.form != kInt8 || within(t.scale_at, panels * kPanel * 4, w_shape), "the embedding's scales lie outside of the file");
  const int64_t rows = ids_shape.all();
  for (int64_t i = 0; i < rows && r.ok(); i++) r.check(ids[i] >= 0 && ids[i] < t.n, "a token is not in the vocabulary");
  Shape out = ids_shape;
  r.check(out.count < kMostDims, "token ids have too many dimensions");
  if (!r.ok()) return;
  out.sizes[out.count++] = t.k;
  float* y = r.out<float>(0, out);
  if (!r.ok() || rows == 0) return;

  auto one = [&](int64_t row) {
    const int64_t id = ids[row], panel = id / kPanel, c = id % kPanel;
    const uint8_t* w = reinterpret_cast<const uint8_t*>(weights + t.w_at) + (size_t)panel * blocks * block;
    float* to = y + row * t.k;
    for (int64_t b = 0; b < blocks; b++, w += block) {
      float d = t.form == kInt8 ? reinterpret_cast<const float*>(weights + t.scale_at)[id] : scale_of(w + numbers, c, t.half);
      float m = t.minimum ? scale_of(w + numbers + kPanel * (t.half ? 2 : 4), c, t.half) : 0.0f;
      for (int64_t i = b * kBlock; i < (b + 1) * kBlock && i < t.k; i++) {
        const int64_t q = (i % kBlock) / 4, j = i % 4;
        const int number = t.form == kBits4 ? w[q * 64 + c % 16 * 4 + j] >> (c < 16 ? 0 : 4) & 15 : w[q * 128 + c * 4 + j];
        to[i] = d * (float)(number - t.zero) + m;
      }
    }
  };
  auto some = [&](size_t part) {
    for (int64_t row = part * kSome; row < rows && row < (int64_t)(part + 1) * kSome; row++) one(row);
  };
  r.parallel((rows + kSome - 1) / kSome, some);
}

}  // namespace paceline
