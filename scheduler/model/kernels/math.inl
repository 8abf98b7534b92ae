// What kernels need of mathematics, in lanes. Included once for each instruction set.

// e^x; a tenth of a millionth off at the most. What is no number stays none; below e^-87 all are that.
inline F exponential(F x) {
  x = min(set(88.0f), max(set(-87.0f), x));
  const F n = nearest(mul(x, set(1.44269504f)));
  F r = fma(n, set(-0.693359375f), x);
  r = fma(n, set(2.12194440e-4f), r);
  F p = set(1.9875691500e-4f);
  p = fma(p, r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = fma(p, mul(r, r), add(r, set(1.0f)));
  return times_power(p, n);
}

inline F silu(F x) { return div(x, add(set(1.0f), exponential(sub(set(0.0f), x)))); }

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), as x * sigmoid of twice that.
inline F gelu(F x) {
  const F inner = mul(mul(x, set(1.5957691216f)), fma(mul(x, x), set(0.044715f), set(1.0f)));
  return div(x, add(set(1.0f), exponential(sub(set(0.0f), inner))));
}

inline F hyperbolic_tangent(F x) {
  return sub(set(1.0f), div(set(2.0f), add(set(1.0f), exponential(add(x, x)))));
}
