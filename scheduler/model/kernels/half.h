// float16 for processors that have none.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace paceline {

inline float from_half(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, rest = h & 1023;
  uint32_t bits = exponent == 31 ? sign | 0x7f800000 | rest << 13 : sign | (exponent + 112) << 23 | rest << 13;
  float x;
  if (exponent == 0) {
    x = (float)rest * (1.0f / 16777216.0f);
    return sign ? -x : x;
  }
  std::memcpy(&x, &bits, 4);
  return x;
}

inline uint16_t to_half(float x) {  // to the nearest, ties to even
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // it becomes a denormal
    float small;
    std::memcpy(&small, &magnitude, 4);
    return (uint16_t)(sign | (uint32_t)std::nearbyint(small * 16777216.0f));
  }
  return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

}  // namespace paceline
