// The linear operators: find pointers, check places, and cut the work among onnxruntime's threads.
#include "ops.h"

namespace paceline {
namespace {

constexpr int64_t kParts = 8;           // of a matrix: as many as let uneven threads even out
constexpr int64_t kFewValues = 8 << 10;  // rounded by one thread: handing them out would take longer
constexpr int64_t kLargeOutput = 1 << 18;  // floats that would push all else out of the caches

// As even as can be.
int group_of(int64_t rows, int most) {
  const int64_t groups = (rows + most - 1) / most;
  return (int)((rows + groups - 1) / groups);
}

// Where the rounded rows lie, in the calling thread's memory.
bool place_rows(Rows& rows, int64_t count) {
  const size_t groups = (size_t)(count + rows.group - 1) / rows.group, cells = groups * rows.group * rows.blocks;
  char* p = static_cast<char*>(scratch<0>(cells * (kBlock + 12)));
  rows.q = reinterpret_cast<int8_t*>(p);
  rows.scale = reinterpret_cast<float*>(p + cells * kBlock);
  rows.start = reinterpret_cast<int32_t*>(rows.scale + cells);
  rows.sum = reinterpret_cast<float*>(rows.start + cells);
  return p != nullptr;
}

// Rounds all rows; false where memory is short.
bool round_rows(Run& r, const Table& t, const Rows& rows, int64_t count) {
  const size_t bytes = (size_t)rows.blocks * kBlock * sizeof(float);
  bool enough = true;
  auto some = [&](size_t first, size_t last) {
    float* room = static_cast<float*>(scratch<1>(bytes));
    if (!room) return void(enough = false);
    t.quantise(rows, (int)first, (int)last, room);
  };
  if (count * rows.width < kFewValues) {
    some(0, count);
    return enough;
  }
  const size_t step = (size_t)rows.group * 2;  // whole groups, so that no two threads write one line
  auto part = [&](size_t i) { some(i * step, (i + 1) * step < (size_t)count ? (i + 1) * step : count); };
  r.parallel((count + step - 1) / step, part);
  return enough;
}

}  // namespace

LinearOp LinearOp::read(Attributes& a, bool pick, bool add) {
  LinearOp op{};
  op.pick = pick, op.add = add;
  op.norm = (int)a.whole("norm", 0), op.norm_at = a.whole("norm_at", -1), op.epsilon = a.real("epsilon", 1e-5f);
  op.form = (int)a.whole("form"), op.k = a.whole("k"), op.n = a.whole("n"), op.w_at = a.whole("w_at");
  op.half = a.whole("half", 0), op.minimum = a.whole("minimum", 0), op.zero = (int)a.whole("zero", 128);
  op.scale_at = a.whole("scale_at", -1), op.bias_at = a.whole("bias_at", -1);
  op.act = (int)a.whole("act", 0), op.alpha = a.real("alpha", 1.0f);
  return op;
}

const char* LinearOp::fault() const {
  if (k <= 0 || n <= 0 || k > 1 << 24 || n > 1 << 24) return "a linear node has a width that cannot be";
  if (form < kInt8 || form > kBits8) return "a linear node has a form of weights that is not known";
  if (norm < kNoNorm || norm > kLayer || act < kNoAct || act > kGelu) return "a linear node has an unknown norm or gate";
  if (act && n % kPanel) return "a gated node's width is not a multiple of 32";
  if (act && add) return "a gated node adds no residual";
  if (zero < 0 || zero > 255) return "a linear node's numbers are counted from beyond a byte";
  return nullptr;
}

void LinearOp::run(Run& r) const {
  const Table& t = table();
  Shape x_shape, w_shape, third;
  const float* x = r.in<float>(0, &x_shape);
  const char* weights = r.in<char>(1, &w_shape);
  const float* residual = add ? r.in<float>(2, &third) : nullptr;
  const int64_t* picked = pick ? r.in<int64_t>(2, &third) : nullptr;
  if (!r.ok()) return;
  const int64_t blocks = (k + kBlock - 1) / kBlock, panels = (n + kPanel - 1) / kPanel, np = panels * kPanel;
  const int64_t w_bytes = (int64_t)block_bytes(form, half, minimum) * blocks * panels, given = x_shape.rows();
  r.check(x_shape.count > 0 && x_shape.last() == k, "a linear node's input has another width");
  r.check(within(w_at, w_bytes + kPanel * kBlock * 4, w_shape), "a linear node's weights lie outside of the file");
  r.check(form != kInt8 || within(scale_at, np * 4, w_shape), "a linear node's scales lie outside of the file");
  r.check(bias_at < 0 || within(bias_at, np * 4, w_shape), "a linear node's bias lies outside of the file");
  r.check(norm_at < 0 || within(norm_at, k * 4, w_shape), "a norm's weight lies outside of the file");
  const int64_t rows = pick ? third.all() : given, width = act ? n / 2 : n;
  r.check(!add || third.all() == rows * n, "a residual has another shape");
  if (!r.ok()) return;
  for (int64_t i = 0; pick && i < rows; i++) r.check(picked[i] >= 0 && picked[i] < given, "a picked row is not there");
  Shape out = x_shape;
  if (pick) out.count = 3, out.sizes[0] = 1, out.sizes[1] = rows;
  out.sizes[out.count - 1] = width;
  float* y = r.out<float>(0, out);
  if (!r.ok() || rows == 0) return;

  Rows q{};
  q.x = x, q.pick = picked, q.norm = norm, q.epsilon = epsilon, q.width = (int)k, q.blocks = (int)blocks;
  q.weight = norm_at < 0 ? nullptr : reinterpret_cast<const float*>(weights + norm_at);
  q.group = group_of(rows, t.rows), q.zero = zero - (form == kBits4 ? 0 : t.shift);
  r.check(place_rows(q, rows) && round_rows(r, t, q, rows), "there is no memory for a step's rows");
  if (!r.ok()) return;

  Linear a{};
  a.q = q.q, a.row_scale = q.scale, a.start = q.start, a.sum = q.sum, a.group = q.group;
  a.form = form, a.half = half, a.minimum = minimum, a.alpha = alpha, a.act = act, a.residual = residual;
  a.w = reinterpret_cast<const uint8_t*>(weights + w_at);
  a.scale = form == kInt8 ? reinterpret_cast<const float*>(weights + scale_at) : nullptr;
  a.bias = bias_at < 0 ? nullptr : reinterpret_cast<const float*>(weights + bias_at);
  a.blocks = (int)blocks, a.n = (int)n, a.rows = (int)rows, a.y = y;
  a.past_caches = !act && !add && rows > 1 && rows * n >= kLargeOutput && n % 16 == 0 && (uintptr_t)y % 64 == 0;
  const int64_t parts = panels < kParts ? panels : kParts;
  auto multiply = [&](size_t i) { t.linear(a, (int)(panels * i / parts), (int)(panels * (i + 1) / parts)); };
  r.parallel(parts, multiply);
}

}  // namespace paceline
