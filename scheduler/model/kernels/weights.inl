// How weights lie in memory. Included once for each instruction set.
//
// A panel is 32 outputs, a block 32 inputs. Per panel and block there lie, for kInt8 and kBits8, 1,024 bytes
// [8 quads][32 outputs][4 inputs]; for kBits4 512 bytes [8][16][4], an output in the low half and the sixteenth after
// it in the high half; then, for block weights, the scales d [32] and, where there are any, minima m [32].
//
//   y = sum over blocks of d * row_scale * (sum of w * q - zero * sum of q) + m * row_scale * (sum of q)
//
// with d = 1 and one scale for all of an output at the end for kInt8. The inner sums are of integers, below 2^24, so
// exact also as floats.

// Bytes of a block of a form before its scales, and in all.
template <int Form>
constexpr size_t numbers_of() {
  return Form == kBits4 ? 512 : 1024;
}
template <int Form, bool Half, bool Minimum>
constexpr size_t bytes_of() {
  return numbers_of<Form>() + (Form == kInt8 ? 0 : (size_t)kPanel * (Half ? 2 : 4) * (Minimum ? 2 : 1));
}

// What is fetched while a tile is computed, so many bytes a quad.
struct Ahead {
  const uint8_t* from;
  size_t pace;
};

template <bool Half>
inline F scales_at(const uint8_t* p, int lane) {
  if (Half) return load((const uint16_t*)p + lane);
  return load((const float*)p + lane);
}
