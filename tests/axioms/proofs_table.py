"""What needs which rules, read by `axioms.proofs`: `rules : left = right`.

An indented line continues the one before.
"""

from __future__ import annotations

PROGRAM_PROOFS = """
maximum-exp : pr.maximum(pr.exp(x), pr.exp(y)) = pr.exp(pr.maximum(x, y))
max-over-exp : pr.max(pr.exp(x), axis=-1) = pr.exp(pr.max(x, axis=-1))
max-over-constant max-over-maximum : pr.max(pr.maximum(x, c[:, None]), axis=-1) =
  pr.maximum(pr.max(x, axis=-1), c)
abs-nonneg : abs(pr.exp(x)) = pr.exp(x)
neg-maximum : -pr.maximum(x, y) = pr.minimum(-x, -y)
mul-maximum : pr.maximum(2 * x, 2 * y) = 2 * pr.maximum(x, y)
neg-add : -(x + y) = -x - y
abs-mul : abs(x * y) = abs(x) * abs(y)
square-mul : pr.square(x * y) = pr.square(x) * pr.square(y)
sub-add : -(x - y) = y - x
add-mul-one : x + x + x = 3 * x
mul-minimum : 2 * pr.minimum(x, 3) = pr.minimum(2 * x, 6)
maximum-absorb minimum-maximum : pr.maximum(x, pr.minimum(y, z)) = pr.minimum(pr.maximum(x, y),
  pr.maximum(x, z))
max-over-add : pr.max(x + 3, axis=-1) = pr.max(x, axis=-1) + 3
add-minimum : pr.minimum(x, 3) + 1 = pr.minimum(x + 1, 4)
silu-sigmoid : pr.silu(x) * y = x * y * pr.sigmoid(x)
add-zero : -x = 0 - x
add-maximum neg-minimum : pr.maximum(z - x, z - y) = z - pr.minimum(x, y)
exp-neg : pr.exp(-x) = 1 / pr.exp(x)
exp-add : pr.exp(x + y) = pr.exp(x) * pr.exp(y)
add-nothing sub-same : pr.minimum(x + z, y + z) - z = pr.minimum(x, y)
max-over-minimum : pr.max(pr.minimum(x, c[:, None]), axis=-1) = pr.minimum(pr.max(x, axis=-1), c)
tanh-sigmoid : pr.tanh(x) = 2 * pr.sigmoid(2 * x) - 1
mul-add : pr.square(x + y) = x * x + 2 * x * y + y * y
sigmoid-neg : pr.silu(-x) = -x * (1 - pr.sigmoid(x))
mul-sqrt square-mul-back : pr.sqrt(pr.exp(x)) * pr.sqrt(pr.exp(x)) = pr.exp(x)
log-product : pr.log(pr.sigmoid(x) / pr.sigmoid(y)) = pr.log(pr.sigmoid(x)) - pr.log(pr.sigmoid(y))
relu-nonneg : pr.relu(pr.exp(x)) = pr.exp(x)
relu-mul : pr.relu(pr.exp(s) * x) = pr.exp(s) * pr.relu(x)
max-over-mul : pr.max(pr.exp(s) * x, axis=-1) = pr.exp(s) * pr.max(x, axis=-1)
abs-recip : abs(x / y) = abs(x) / abs(y)
sqrt-exp : pr.sqrt(pr.exp(x)) = pr.exp(x / 2)
sub-mul-one : 3 * x - x = 2 * x
sqrt-product : pr.sqrt(pr.square(x) / pr.exp(y)) = abs(x) / pr.sqrt(pr.exp(y))
abs-as-maximum maximum-mul-minimum : pr.square(abs(x)) = x * x
softmax-shift-defined : pr.exp(x + c[:, None]) / pr.sum(pr.exp(x + c[:, None]), axis=-1,
  keepdims=True) = pr.softmax(x, axis=-1)
relu-maximum : pr.relu(x) = pr.maximum(x, 0)
sigmoid-share : pr.sigmoid(x) = pr.exp(x) / (1 + pr.exp(x))
gelu-tanh : pr.gelu(x, 'tanh') = 0.5 * x * (1 + pr.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
maximum-sub-minimum : pr.maximum(x, y) - pr.minimum(x, y) = abs(x - y)
mul-recip-same : pr.exp(x) / pr.exp(x) = 1 + 0 * pr.exp(x)
abs-as-maximum-back : pr.maximum(x, -x) * pr.maximum(x, -x) = x * x
sigmoid-exp : pr.sigmoid(x) = 1 / (1 + pr.exp(-x))
gelu-erf-neg : pr.gelu(x) - pr.gelu(-x) = x
exp-twice : pr.exp(2 * x) = pr.square(pr.exp(x))
exp-of-log : pr.exp(pr.log(pr.exp(x) + pr.exp(y))) = pr.exp(x) + pr.exp(y)
log-recip : -pr.log(pr.sigmoid(x)) = pr.log(1 + pr.exp(-x))
tanh-exp : pr.tanh(x) = (pr.exp(x) - pr.exp(-x)) / (pr.exp(x) + pr.exp(-x))
log-sqrt : pr.log(pr.sqrt(pr.exp(x) + 1)) = 0.5 * pr.log(pr.exp(x) + 1)
mul-recip-cancel : pr.var(x, axis=-1) = pr.mean(pr.square(x), axis=-1) - pr.square(pr.mean(x,
  axis=-1))
gelu-tanh-neg : pr.gelu(x, 'tanh') - pr.gelu(-x, 'tanh') = x
"""
"""Two programs over `ARGUMENTS`."""

REACHED_PROOFS = """
mul-comm : x * y = y * x
mul-assoc : (x * y) * z = x * (y * z)
div-recip div-recip-back mul-one : x * (1 / y) = x / y
recip-mul : 1 / (x * y) = (1 / x) * (1 / y)
recip-mul-back : (1 / x) * (1 / y) = 1 / (x * y)
recip-recip : 1 / (1 / x) = x
add-comm : x + y = y + x
add-assoc : x + y + z = x + (y + z)
add-same : x + x = 2 * x
add-mul : x * y + x * z = x * (y + z)
neg-neg : -(-x) = x
mul-minus-one : -1 * x = -x
mul-neg : (-x) * y = -(x * y)
mul-neg-back : -(x * y) = (-x) * y
recip-neg : pr.reciprocal(-x) = -pr.reciprocal(x)
recip-neg-back : -pr.reciprocal(x) = pr.reciprocal(-x)
add-neg : x + (-y) = x - y
sub-neg : x - (-y) = x + y
sub-mul : x * y - x * z = x * (y - z)
sqrt-square : pr.sqrt(pr.square(x)) = abs(x)
sqrt-recip : pr.sqrt(pr.reciprocal(x)) = pr.reciprocal(pr.sqrt(x))
sqrt-recip-back : pr.reciprocal(pr.sqrt(x)) = pr.sqrt(pr.reciprocal(x))
abs-neg : abs(-x) = abs(x)
log-exp : pr.log(pr.exp(x)) = x
log-div-exp : pr.log(pr.exp(x) / y) = x - pr.log(y)
log-mul-exp : pr.log(pr.exp(x) * y) = x + pr.log(y)
maximum-comm : pr.maximum(x, y) = pr.maximum(y, x)
maximum-assoc : pr.maximum(pr.maximum(x, y), z) = pr.maximum(x, pr.maximum(y, z))
maximum-same : pr.maximum(x, x) = x
minimum-comm : pr.minimum(x, y) = pr.minimum(y, x)
minimum-assoc : pr.minimum(pr.minimum(x, y), z) = pr.minimum(x, pr.minimum(y, z))
minimum-same : pr.minimum(x, x) = x
matmul-sum : x @ w = pr.sum(x[:, :, None] * w, axis=1)
matmul-sum-back : pr.sum(x[:, :, None] * w, axis=1) = x @ w
sum-mul : (c[:, None] * x) @ w = c[:, None] * (x @ w)
sum-mul-back : c[:, None] * (x @ w) = (c[:, None] * x) @ w
sum-sum : pr.sum(pr.sum(x, axis=1), axis=0) = pr.sum(pr.sum(x, axis=0), axis=0)
sum-add : pr.sum(x + y, axis=-1) = pr.sum(x, axis=-1) + pr.sum(y, axis=-1)
sum-add-back : pr.sum(x, axis=-1) + pr.sum(y, axis=-1) = pr.sum(x + y, axis=-1)
sum-sub : pr.sum(x - y, axis=-1) = pr.sum(x, axis=-1) - pr.sum(y, axis=-1)
sum-sub-back : pr.sum(x, axis=-1) - pr.sum(y, axis=-1) = pr.sum(x - y, axis=-1)
sum-neg : pr.sum(-x, axis=-1) = -pr.sum(x, axis=-1)
sum-neg-back : -pr.sum(x, axis=-1) = pr.sum(-x, axis=-1)
max-over-max-over : pr.max(pr.max(x, axis=1), axis=0) = pr.max(pr.max(x, axis=0), axis=0)
sum-constant : pr.sum(x + c[:, None], axis=-1) = pr.sum(x, axis=-1) + x.shape[1] * c
softmax-shift : pr.softmax(x, axis=-1) = pr.exp(x) / pr.sum(pr.exp(x), axis=-1, keepdims=True)
log-softmax-shift : pr.log_softmax(x, axis=-1) = x - pr.log(pr.sum(pr.exp(x), axis=-1,
  keepdims=True))
log-sum-exp-shift : pr.logsumexp(x, axis=-1) = pr.log(pr.sum(pr.exp(x), axis=-1))
"""
"""The search meets the second program in what the algebra makes of the first."""

GRAPH_PROOFS = """
comb-part div-part-part div-part-repl div-repl-repl matmul-unfold mul-part-part mul-part-repl
  mul-repl-part red-sum-part sqrt-part sqrt-repl square-part square-repl sum-part sum-repl : the
  division moves after the loop
red-div-repl : the mean of a tile divides by the whole size
pick-repl : every block computes everything
exp-part : numerator and denominator in one loop
div-scale-left div-scale-right red-repl : copies of the loop cancel in the quotient
max-over-part sub-part-part : the largest value found in an earlier pass
silu-part : the gate after the loop
red-max-max-over-part : the largest of the tiles' largest
add-part-repl : a bias that lacks the summed dimension
"""
"""Names of right graphs of `verify.table`."""

TERM_PROOFS = """
red-mul-repl-right : (Red (Mul (Part x d p) (Repl u p)) p) = (Mul (Red (Part x d p) p) u)
red-mul-repl-left : (Red (Mul (Repl u p) (Part x d p)) p) = (Mul u (Red (Part x d p) p))
red-neg : (Red (Neg (Part x d p)) p) = (Neg (Red (Part x d p) p))
red-add : (Red (Add (Part x d p) (Part y d p)) p) = (Add (Red (Part x d p) p) (Red (Part y d p) p))
red-sub : (Red (Sub (Part x d p) (Part y d p)) p) = (Sub (Red (Part x d p) p) (Red (Part y d p) p))
red-sum : (Red (Sum (Part x d p) d) p) = (Sum (Red (Part x d p) p) d)
red-max-add-repl-right : (RedMax (Add (Part x d p) (Repl u p)) p) = (Add (RedMax (Part x d p) p) u)
red-max-add-repl-left : (RedMax (Add (Repl u p) (Part x d p)) p) = (Add u (RedMax (Part x d p) p))
red-max-sub-repl : (RedMax (Sub (Part x d p) (Repl u p)) p) = (Sub (RedMax (Part x d p) p) u)
red-max-maximum : (RedMax (Maximum (Part x d p) (Part y d p)) p) = (Maximum (RedMax (Part x d p)
  p) (RedMax (Part y d p) p))
red-max-max-over : (RedMax (MaxOver (Part x d p) d) p) = (MaxOver (RedMax (Part x d p) p) d)
red-part : (Red (Part (Part x d p) d q) p) = (Part (Red (Part x d p) p) d q)
red-repl-other : (Red (Repl (Part x d p) q) p) = (Repl (Red (Part x d p) p) q)
red-comb : (Red (Comb (Part (Part x d p) k q) d p) q) = (Comb (Red (Part (Part x d p) k q) q) d p)
red-stack : (Red (Stack (Part (Part x d p) k q) e p) q) = (Stack (Red (Part (Part x d p) k q) q) e
  p)
red-max-part : (RedMax (Part (Part x d p) d q) p) = (Part (RedMax (Part x d p) p) d q)
red-max-repl-other : (RedMax (Repl (Part x d p) q) p) = (Repl (RedMax (Part x d p) p) q)
red-max-comb : (RedMax (Comb (Part (Part x d p) k q) d p) q) = (Comb (RedMax (Part (Part x d p) k
  q) q) d p)
red-max-stack : (RedMax (Stack (Part (Part x d p) k q) e p) q) = (Stack (RedMax (Part (Part x d p)
  k q) q) e p)
pick-part : (Pick (Part (Part x d p) d q) p) = (Part (Pick (Part x d p) p) d q)
pick-repl-other : (Pick (Repl (Part x d p) q) p) = (Repl (Pick (Part x d p) p) q)
pick-comb : (Pick (Comb (Part (Part x d p) k q) d p) q) = (Comb (Pick (Part (Part x d p) k q) q) d
  p)
pick-stack : (Pick (Stack (Part (Part x d p) k q) e p) q) = (Stack (Pick (Part (Part x d p) k q)
  q) e p)
pick-red : (Pick (Red (Part (Part x d p) k q) p) q) = (Red (Pick (Part (Part x d p) k q) q) p)
pick-red-max : (Pick (RedMax (Part (Part x d p) k q) p) q) = (RedMax (Pick (Part (Part x d p) k q)
  q) p)
pick-sum : (Pick (Sum (Part x d p) d) p) = (Sum (Pick (Part x d p) p) d)
pick-mul : (Pick (Mul (Part x d p) (Part y d p)) p) = (Mul (Pick (Part x d p) p) (Pick (Part y d
  p) p))
pick-div : (Pick (Div (Part x d p) (Part y d p)) p) = (Div (Pick (Part x d p) p) (Pick (Part y d
  p) p))
comb-part-other : (Comb (Part (Part x d p) k q) d p) = (Part (Comb (Part x d p) d p) k q)
comb-repl : (Comb (Repl (Part x d p) q) d p) = (Repl (Comb (Part x d p) d p) q)
stack-part : (Stack (Part (Part x d p) d q) e p) = (Part (Stack (Part x d p) e p) d q)
stack-repl : (Stack (Repl (Part x d p) q) e p) = (Repl (Stack (Part x d p) e p) q)
red-max-repl : (RedMax (Repl x p) p) = x
sum-stack : (Sum (Stack (Part x d p) e p) e) = (Red (Part x d p) p)
max-over-stack : (MaxOver (Stack (Part x d p) e p) e) = (RedMax (Part x d p) p)
part-part : (Part (Part x d q) k p) = (Part (Part x k p) d q)
part-repl : (Part (Repl x q) d p) = (Repl (Part x d p) q)
repl-part : (Repl (Part x d q) p) = (Part (Repl x p) d q)
repl-repl : (Repl (Repl x q) p) = (Repl (Repl x p) q)
neg-part : (Neg (Part x d p)) = (Part (Neg x) d p)
neg-repl : (Neg (Repl x p)) = (Repl (Neg x) p)
recip-part : (Recip (Part x d p)) = (Part (Recip x) d p)
recip-repl : (Recip (Repl x p)) = (Repl (Recip x) p)
exp-repl : (Exp (Repl x p)) = (Repl (Exp x) p)
log-part : (Log (Part x d p)) = (Part (Log x) d p)
log-repl : (Log (Repl x p)) = (Repl (Log x) p)
abs-part : (Abs (Part x d p)) = (Part (Abs x) d p)
abs-repl : (Abs (Repl x p)) = (Repl (Abs x) p)
relu-part : (Relu (Part x d p)) = (Part (Relu x) d p)
relu-repl : (Relu (Repl x p)) = (Repl (Relu x) p)
silu-repl : (Silu (Repl x p)) = (Repl (Silu x) p)
gelu-tanh-part : (GeluTanh (Part x d p)) = (Part (GeluTanh x) d p)
gelu-tanh-repl : (GeluTanh (Repl x p)) = (Repl (GeluTanh x) p)
gelu-erf-part : (GeluErf (Part x d p)) = (Part (GeluErf x) d p)
gelu-erf-repl : (GeluErf (Repl x p)) = (Repl (GeluErf x) p)
sigmoid-part : (Sigmoid (Part x d p)) = (Part (Sigmoid x) d p)
sigmoid-repl : (Sigmoid (Repl x p)) = (Repl (Sigmoid x) p)
tanh-part : (Tanh (Part x d p)) = (Part (Tanh x) d p)
tanh-repl : (Tanh (Repl x p)) = (Repl (Tanh x) p)
add-part-part : (Add (Part x d p) (Part y d p)) = (Part (Add x y) d p)
add-repl-part : (Add (Repl x p) (Part o j p)) = (Part (Add x o) j p)
add-repl-repl : (Add (Repl x p) (Repl y p)) = (Repl (Add x y) p)
sub-part-repl : (Sub (Part x d p) (Repl u p)) = (Part (Sub x u) d p)
sub-repl-part : (Sub (Repl x p) (Part o j p)) = (Part (Sub x o) j p)
sub-repl-repl : (Sub (Repl x p) (Repl y p)) = (Repl (Sub x y) p)
mul-repl-repl : (Mul (Repl x p) (Repl y p)) = (Repl (Mul x y) p)
div-repl-part : (Div (Repl x p) (Part o j p)) = (Part (Div x o) j p)
maximum-part-part : (Maximum (Part x d p) (Part y d p)) = (Part (Maximum x y) d p)
maximum-part-repl : (Maximum (Part x d p) (Repl u p)) = (Part (Maximum x u) d p)
maximum-repl-part : (Maximum (Repl x p) (Part o j p)) = (Part (Maximum x o) j p)
maximum-repl-repl : (Maximum (Repl x p) (Repl y p)) = (Repl (Maximum x y) p)
minimum-part-part : (Minimum (Part x d p) (Part y d p)) = (Part (Minimum x y) d p)
minimum-part-repl : (Minimum (Part x d p) (Repl u p)) = (Part (Minimum x u) d p)
minimum-repl-part : (Minimum (Repl x p) (Part o j p)) = (Part (Minimum x o) j p)
minimum-repl-repl : (Minimum (Repl x p) (Repl y p)) = (Repl (Minimum x y) p)
sum-comb-other : (Sum (Comb (Part (Part x d p) k q) d p) k) = (Comb (Sum (Part (Part x d p) k q)
  k) d p)
sum-stack-other : (Sum (Stack (Part x d p) e p) d) = (Stack (Sum (Part x d p) d) e p)
max-over-repl : (MaxOver (Repl x p) d) = (Repl (MaxOver x d) p)
max-over-comb-other : (MaxOver (Comb (Part (Part x d p) k q) d p) k) = (Comb (MaxOver (Part (Part
  x d p) k q) k) d p)
max-over-stack-other : (MaxOver (Stack (Part x d p) e p) d) = (Stack (MaxOver (Part x d p) d) e p)
unscale-scale : (Unscale (Scale x p) p) = x
scale-unscale : (Scale (Unscale x p) p) = x
scale-scale-sort : (Scale (Scale x q) p) = (Scale (Scale x p) q)
scale-unscale-sort : (Scale (Unscale x q) p) = (Unscale (Scale x p) q)
unscale-scale-sort : (Unscale (Scale x q) p) = (Scale (Unscale x p) q)
unscale-unscale-sort : (Unscale (Unscale x q) p) = (Unscale (Unscale x p) q)
mul-scale-left : (Mul (Scale (Part x d p) p) (Part y d p)) = (Scale (Mul (Part x d p) (Part y d
  p)) p)
mul-scale-right : (Mul (Part x d p) (Scale (Part y d p) p)) = (Scale (Mul (Part x d p) (Part y d
  p)) p)
recip-scale : (Recip (Scale x p)) = (Unscale (Recip x) p)
square-scale : (Square (Scale (Repl (Part x d p) q) p)) = (Scale (Scale (Square (Repl (Part x d p)
  q)) p) p)
neg-scale : (Neg (Scale x p)) = (Scale (Neg x) p)
abs-scale : (Abs (Scale (Repl (Part x d p) q) p)) = (Scale (Abs (Repl (Part x d p) q)) p)
relu-scale : (Relu (Scale (Repl (Part x d p) q) p)) = (Scale (Relu (Repl (Part x d p) q)) p)
add-scale : (Add (Scale x p) (Scale y p)) = (Scale (Add x y) p)
sub-scale : (Sub (Scale (Part x d p) p) (Scale (Part y d p) p)) = (Scale (Sub (Part x d p) (Part y
  d p)) p)
maximum-scale : (Maximum (Scale x p) (Scale y p)) = (Scale (Maximum x y) p)
minimum-scale : (Minimum (Scale x p) (Scale y p)) = (Scale (Minimum x y) p)
sum-scale : (Sum (Scale x p) d) = (Scale (Sum x d) p)
max-over-scale : (MaxOver (Scale x p) d) = (Scale (MaxOver x d) p)
red-scale : (Red (Scale (Part x d p) q) p) = (Scale (Red (Part x d p) p) q)
red-max-scale : (RedMax (Scale (Part x d p) q) p) = (Scale (RedMax (Part x d p) p) q)
pick-scale : (Pick (Scale (Part x d p) q) p) = (Scale (Pick (Part x d p) p) q)
part-scale : (Part (Scale x p) d q) = (Scale (Part x d q) p)
repl-scale : (Repl (Scale x p) q) = (Scale (Repl x q) p)
comb-scale : (Comb (Scale (Part x d p) q) d p) = (Scale (Comb (Part x d p) d p) q)
stack-scale : (Stack (Scale (Part x d p) q) e p) = (Scale (Stack (Part x d p) e p) q)
mul-unscale-left : (Mul (Unscale (Part x d p) p) (Part y d p)) = (Unscale (Mul (Part x d p) (Part
  y d p)) p)
mul-unscale-right : (Mul (Part x d p) (Unscale (Part y d p) p)) = (Unscale (Mul (Part x d p) (Part
  y d p)) p)
div-unscale-left : (Div (Unscale (Part x d p) p) (Part y d p)) = (Unscale (Div (Part x d p) (Part
  y d p)) p)
div-unscale-right : (Div (Part x d p) (Unscale (Part y d p) p)) = (Scale (Div (Part x d p) (Part y
  d p)) p)
recip-unscale : (Recip (Unscale x p)) = (Scale (Recip x) p)
square-unscale : (Square (Unscale (Repl (Part x d p) q) p)) = (Unscale (Unscale (Square (Repl
  (Part x d p) q)) p) p)
neg-unscale : (Neg (Unscale x p)) = (Unscale (Neg x) p)
abs-unscale : (Abs (Unscale (Repl (Part x d p) q) p)) = (Unscale (Abs (Repl (Part x d p) q)) p)
relu-unscale : (Relu (Unscale (Repl (Part x d p) q) p)) = (Unscale (Relu (Repl (Part x d p) q)) p)
add-unscale : (Add (Unscale x p) (Unscale y p)) = (Unscale (Add x y) p)
sub-unscale : (Sub (Unscale (Part x d p) p) (Unscale (Part y d p) p)) = (Unscale (Sub (Part x d p)
  (Part y d p)) p)
maximum-unscale : (Maximum (Unscale x p) (Unscale y p)) = (Unscale (Maximum x y) p)
minimum-unscale : (Minimum (Unscale x p) (Unscale y p)) = (Unscale (Minimum x y) p)
sum-unscale : (Sum (Unscale x p) d) = (Unscale (Sum x d) p)
max-over-unscale : (MaxOver (Unscale x p) d) = (Unscale (MaxOver x d) p)
red-unscale : (Red (Unscale (Part x d p) q) p) = (Unscale (Red (Part x d p) p) q)
red-max-unscale : (RedMax (Unscale (Part x d p) q) p) = (Unscale (RedMax (Part x d p) p) q)
pick-unscale : (Pick (Unscale (Part x d p) q) p) = (Unscale (Pick (Part x d p) p) q)
part-unscale : (Part (Unscale x p) d q) = (Unscale (Part x d q) p)
repl-unscale : (Repl (Unscale x p) q) = (Unscale (Repl x q) p)
comb-unscale : (Comb (Unscale (Part x d p) q) d p) = (Unscale (Comb (Part x d p) d p) q)
stack-unscale : (Stack (Unscale (Part x d p) q) e p) = (Unscale (Stack (Part x d p) e p) q)
sum-single : (Mul (Sum o j) u) = (Mul o u)
max-over-single : (Add (MaxOver o j) (Sum o d)) = (Add o (Sum o d))
log-sum-exp-add : (Log (Sum (Exp (Add x u)) d)) = (Add u (Log (Sum (Exp x) d)))
"""
"""Two terms over `LEAVES`."""
