// Kernels on raw pointers, one table of them for each instruction set. Every row's result depends on that row alone:
// products are summed as integers, or in an order fixed by the row's own length. Rows, panels and tiles may therefore
// be cut among threads and steps in any way. Nothing here knows onnxruntime; whoever calls has checked every index.
#pragma once
#include <cstddef>
#include <cstdint>

namespace paceline {

constexpr int kPanel = 32;     // output channels that lie together
constexpr int kBlock = 32;     // input channels that share a scale, of a row and of block weights
constexpr int kPage = 32;      // tokens of a cache page
constexpr int kLanes = 16;     // floats that a kernel takes at once; keys lie in [kPage / kLanes][head size][kLanes]
constexpr int kMostHead = 512;  // channels of an attention head
constexpr int kTop = 128;      // likeliest tokens that are told of each row of logits

// How weights are stored. Panels of 32 outputs, blocks of 32 inputs; see `weights.inl`.
enum Form { kInt8 = 0, kBits4 = 1, kBits8 = 2 };

enum Norm { kNoNorm = 0, kRms = 1, kLayer = 2 };

enum Act { kNoAct = 0, kSilu = 1, kGelu = 2 };

// Rows to be rounded to 8 bits, a block of 32 channels at a time: q = round(x / scale), scale = largest magnitude / 127.
// They lie in groups of `group` rows, a block's eight quads of channels after one another: [rows / group][blocks]
// [8][group][4]; what belongs to a block in [rows / group][blocks][group].
struct Rows {
  const float* x;       // [.., width]
  const int64_t* pick;  // which row of x each row is, or null
  int norm;
  const float* weight;  // of the norm, [width], or null for ones
  float epsilon;
  int width;   // channels of x
  int blocks;  // width / 32, rounded up: what is missing is zeros
  int group;
  int zero;       // what weights are counted from
  int8_t* q;
  float* scale;   // a block's
  int32_t* start; // what a block's sum of products begins with: -zero * sum(q)
  float* sum;     // scale * sum(q), which block minima are multiplied by
};

struct Linear {
  const int8_t* q;  // and the next four as in Rows
  const float* row_scale;
  const int32_t* start;
  const float* sum;
  int group;
  int form;
  bool half, minimum;   // of block weights: scales and minima are float16; there are minima
  const uint8_t* w;
  const float* scale;   // kInt8: of each output channel, [panels * 32]
  const float* bias;    // [panels * 32] or null
  float alpha;          // multiplies the product and the bias
  int act;              // gated: a panel is 16 gates and 16 ups, and gives 16 outputs
  const float* residual;  // [rows, n] or null
  int blocks, n, rows;
  float* y;             // [rows, n], or [rows, n / 2] where gated
  bool past_caches;     // y is large and 64 bytes apart: write it straight to memory
};

// Bytes of a block of 32 inputs in a panel of 32 outputs.
inline size_t block_bytes(int form, bool half, bool minimum) {
  const size_t scales = form == kInt8 ? 0 : (size_t)kPanel * (half ? 2 : 4) * (minimum ? 2 : 1);
  return (form == kBits4 ? 512 : 1024) + scales;
}

enum Kind { kFloat = 0, kHalf = 1, kByte = 2 };  // of the cache

struct Attention {
  const float *q, *k, *v;  // [T, ..], a row every `.._step` floats
  size_t q_step, k_step, v_step;
  const int32_t* slot;      // [T], rows of the block table
  const int32_t* position;  // [T]
  const int32_t* tables;    // [slots, width], the page of each 32 tokens
  int width;
  const float *cos, *sin;   // [.., rotary / 2]
  char* cache;              // this layer's part of page 0: [2][kv heads][unit] bytes
  size_t page_bytes, unit;  // from page to page; of one head's keys, or values, in a page
  int kind;
  int heads, kv_heads, d;   // d: channels of a head
  int dp;                   // rounded up to 16, as they lie in the cache
  int rotary;               // channels that turn, the first ones
  bool interleaved;         // they turn in pairs of neighbours, not with the one half further on
  int window;               // tokens that are seen, itself included; 0: all
  float scale, softcap;     // softcap 0: none
  const float* sinks;       // [heads], a score that takes its share and adds nothing; or null
  const float *q_norm, *k_norm;  // [d], an RMS norm of each head before it turns; or null
  float epsilon;
  float* turned;            // [T, heads * dp]: the queries, turned and scaled
  float* y;                 // [T, heads * d]
};

struct Table {
  const char* name;
  int rows;     // that a tile of the linear kernel takes at the most
  int queries;  // query vectors that attention shares a load with
  int shift;    // what 8-bit weights are moved by before they are multiplied
  // scratch: blocks * 32 floats
  void (*quantise)(const Rows&, int first, int last, float* scratch);
  void (*linear)(const Linear&, int first_panel, int last_panel);
  // appends a row's keys and values of one head, and turns the queries that read it
  void (*turn)(const Attention&, int row, int kv_head);
  // rows are neighbours of one slot; scratch: `queries` times `span` floats
  void (*attend)(const Attention&, int row, int rows, int kv_head, float* scratch, size_t span);
  // the largest of every 64 logits; false where one is no number
  bool (*peaks)(const float* x, int count, float* peak);
  // sum of exp((x - most) * by)
  double (*mass)(const float* x, int count, float most, float by);
  // an integer multiply-add in registers, `times` times; returns how many products that is
  double (*spin)(int times);
};

extern const Table kPortable;
#if defined(__x86_64__)
extern const Table kAvx2, kAvxVnni, kAvx512;
#endif
const Table& table();  // the one in use, see choose.cpp

}  // namespace paceline
