// The operators, as the graph's nodes make and run them. Each is data made of a node's attributes.
#pragma once
#include "context.h"
#include "kernels.h"

namespace paceline {

// [residual +] act(alpha * (norm(x) @ W + bias)), of picked rows where `pick`.
struct LinearOp {
  int norm, form, act, zero;
  bool half, minimum, pick, add;
  int64_t norm_at, w_at, scale_at, bias_at, k, n;
  float epsilon, alpha;

  static LinearOp read(Attributes& a, bool pick, bool add);
  const char* fault() const;  // why such a node cannot be, or null
  void run(Run& r) const;
};

// Attention of packed rows over the pages of their slots, with what leads to it.
struct AttentionOp {
  int layer, layers, heads, kv_heads, d, rotary, window, kind;
  bool interleaved;
  int64_t q_at, k_at, v_at, cos_at, sin_at, table_rows, sinks_at, q_norm_at, k_norm_at;
  float scale, softcap, epsilon;

  static AttentionOp read(Attributes& a);
  const char* fault() const;
  void run(Run& r) const;
};

// Rows of a table that lies as a linear layer's weights do, [vocabulary] outputs of its inputs.
struct EmbedOp {
  LinearOp table;

  static EmbedOp read(Attributes& a);
  const char* fault() const;
  void run(Run& r) const;
};

// The likeliest tokens of each row of logits, and what the whole vocabulary weighs.
struct CandidatesOp {
  static CandidatesOp read(Attributes&) { return {}; }
  const char* fault() const { return nullptr; }
  void run(Run& r) const;
};

}  // namespace paceline
