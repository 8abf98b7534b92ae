// Which table of kernels is in use: the best that this processor runs, or the one that was asked for. Also what the
// library tells those who load it by its C names.
#include <atomic>
#include <cstring>

#include "kernels.h"

namespace paceline {
namespace {

#if defined(__x86_64__)
// Asked of the processor itself: __builtin_cpu_supports needs a table that not every compiler's runtime fills.
void cpuid(uint32_t leaf, uint32_t part, uint32_t (&r)[4]) {
  __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(part));
}

bool bit(uint32_t r, int i) { return r >> i & 1; }

struct Processor {
  bool avx2 = false, avxvnni = false, avx512 = false;

  Processor() {
    uint32_t zero[4], one[4], seven[4], more[4];
    cpuid(0, 0, zero);
    if (zero[0] < 7) return;
    cpuid(1, 0, one);
    cpuid(7, 0, seven);
    cpuid(7, 1, more);
    if (!bit(one[2], 27)) return;  // the system saves the registers that it is told to
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    avx2 = (low & 0x06) == 0x06 && bit(seven[1], 5) && bit(seven[1], 8) && bit(one[2], 12) && bit(one[2], 29);
    avxvnni = avx2 && seven[0] >= 1 && bit(more[0], 4);
    const uint32_t f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    avx512 = avx2 && (low & 0xe6) == 0xe6 && (seven[1] & f_dq_bw_vl) == f_dq_bw_vl && bit(seven[2], 11);
  }
};
#endif

struct Choices {
  const Table* tables[4] = {};
  int count = 0;

  Choices() {
#if defined(__x86_64__)
    const Processor p;
    if (p.avx512) tables[count++] = &kAvx512;
    if (p.avxvnni) tables[count++] = &kAvxVnni;
    if (p.avx2) tables[count++] = &kAvx2;
#endif
    tables[count++] = &kPortable;
  }
};

const Choices choices;
std::atomic<const Table*> chosen{nullptr};

}  // namespace

const Table& table() {
  const Table* t = chosen.load(std::memory_order_relaxed);
  return t ? *t : *choices.tables[0];
}

}  // namespace paceline

#define PACELINE_EXPORT extern "C" __attribute__((visibility("default")))

// The names of what this processor runs, the best first, joined by commas.
PACELINE_EXPORT const char* paceline_available() {
  static char names[128];
  names[0] = 0;
  for (int i = 0; i < paceline::choices.count; i++) {
    if (i) std::strcat(names, ",");
    std::strcat(names, paceline::choices.tables[i]->name);
  }
  return names;
}

// For all sessions of the process from the next step on; 0 where it is not among the available.
PACELINE_EXPORT int paceline_select(const char* name) {
  for (int i = 0; i < paceline::choices.count; i++)
    if (std::strcmp(paceline::choices.tables[i]->name, name) == 0) {
      paceline::chosen = paceline::choices.tables[i];
      return 1;
    }
  return 0;
}

PACELINE_EXPORT const char* paceline_selected() { return paceline::table().name; }

// What this processor can do at the most, one thread at a time: products of bytes in registers (returns how many were
// made), and bytes read (returns a sum of them, so that they are).
PACELINE_EXPORT double paceline_multiply(int times) { return paceline::table().spin(times); }

PACELINE_EXPORT uint64_t paceline_read(const uint64_t* words, uint64_t count) {
  uint64_t sums[8] = {};
  for (uint64_t i = 0; i + 8 <= count; i += 8)
    for (int j = 0; j < 8; j++) sums[j] += words[i + j];
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}
