"""Right candidates that the axioms do not prove, by name: what is missing, why, and an example.

A gap is given by rules under which its instances would be proved. Some of these are false where a
value is undefined, so they can never be axioms; some are true and have not been worth their cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from prism.egraph import AxiomFile, AxiomSet, make_axiom_set


@dataclass(frozen=True)
class Gap:
    """`is_sound`: whether the rules could be axioms. `example`: a program and its candidate.

    They are written as the body of a function of x[n, d], y[n, d], s[n], q[k], w[d, h]; a candidate
    may also be the text of a kernel. Without rules no e-graph is asked: the values do not fit.
    """

    name: str
    reason: str
    is_sound: bool
    rules: str
    example: tuple[str, str]


CANCEL = Gap(
    "a factor that may be zero cancels",
    "where it is zero the program has no value and the candidate may have one, or both have none; "
    "axioms must not lose or gain where a value is defined, and no analysis says that the factor "
    "is not zero",
    is_sound=False,
    rules="""
(rewrite (Div a a) (Const "1.0") :ruleset parallel :name "gap-div-self")
(rewrite (Div (Mul a b) a) b :ruleset parallel :name "gap-div-mul-left")
(rewrite (Div (Mul a b) b) a :ruleset parallel :name "gap-div-mul-right")
(rewrite (Div (Div a b) a) (Recip b) :ruleset parallel :name "gap-div-div")
(rewrite (Div a (Mul a b)) (Recip b) :ruleset parallel :name "gap-div-by-mul-left")
(rewrite (Div b (Mul a b)) (Recip a) :ruleset parallel :name "gap-div-by-mul-right")
(rewrite (Div (Div a a) b) (Recip b) :ruleset parallel :name "gap-div-self-div")
(rewrite (Mul a (Div b a)) b :ruleset parallel :name "gap-mul-div")
(rewrite (Mul (Div b a) a) b :ruleset parallel :name "gap-div-times")
(rewrite (Div (Add a b) a) (Add (Const "1.0") (Div b a)) :ruleset parallel :name "gap-div-add")
(rewrite (Mul a (Recip a)) (Const "1.0") :ruleset parallel :name "gap-mul-recip")
""",
    example=("(x * s[:, None]) / s[:, None]", "x"),
)

EXP_ABOVE = Gap(
    "an exponential is above its operand",
    "needs the fact x < exp(x), and what follows; true, of no use in a kernel",
    is_sound=True,
    rules="""
(rewrite (Maximum x (Exp x)) (Exp x) :ruleset algebra-verify :name "gap-maximum-exp")
(rewrite (Maximum (Exp x) x) (Exp x) :ruleset algebra-verify :name "gap-exp-maximum")
(rewrite (Maximum x (Exp (Exp x))) (Exp (Exp x))
  :ruleset algebra-verify :name "gap-maximum-exp-exp")
(rewrite (Maximum (Exp x) (Sub x (Exp x))) (Exp x)
  :ruleset algebra-verify :name "gap-maximum-exp-sub-exp")
(rewrite (Maximum x (Sum (Exp x) k)) (Sum (Exp x) k)
  :ruleset algebra-verify :name "gap-maximum-sum-exp")
(rewrite (Maximum (Exp x) (Sum (Exp x) k)) (Sum (Exp x) k)
  :ruleset algebra-verify :name "gap-maximum-exp-sum-exp")
(rewrite (Maximum x (MaxOver (Exp x) k)) (MaxOver (Exp x) k)
  :ruleset algebra-verify :name "gap-maximum-max-over-exp")
(rewrite (Maximum x (Exp (MaxOver x k))) (Exp (MaxOver x k))
  :ruleset algebra-verify :name "gap-maximum-exp-max-over")
""",
    example=("pr.maximum(x, pr.exp(x))", "pr.exp(x)"),
)

LOST_DIM = Gap(
    "a function of a value in which a dim cancels",
    "w + x - w is x + 0 w, which keeps the dims of w; the function of it does not let the zero out",
    is_sound=True,
    rules="""
(rewrite (Div a (Add x (Mul (Const "0.0") w))) (Add (Div a x) (Mul (Const "0.0") w))
  :ruleset algebra-verify :name "gap-div-add-zero")
(rewrite (Div (Add a (Mul (Const "0.0") w)) x) (Add (Div a x) (Mul (Const "0.0") w))
  :ruleset algebra-verify :name "gap-add-zero-div")
(rewrite (Exp (Add x (Mul (Const "0.0") w))) (Add (Exp x) (Mul (Const "0.0") w))
  :ruleset algebra-verify :name "gap-exp-add-zero")
""",
    example=(
        "pr.exp(x)[:, :, None] + w - w",
        "pr.exp(x[:, :, None] + w - w)",
    ),
)

LARGEST_OF_ROW = Gap(
    "the largest of a row is above its entries",
    "needs the fact x <= max(x), and the result has fewer dims than the operator says",
    is_sound=True,
    rules="""
(rewrite (Maximum x (MaxOver x k)) (MaxOver x k) :ruleset algebra-verify :name "gap-max-over-row")
(rewrite (Maximum (MaxOver x k) x) (MaxOver x k) :ruleset algebra-verify :name "gap-row-max-over")
""",
    example=(
        "pr.maximum(x, pr.max(x, axis=-1, keepdims=True)) * y",
        "pr.max(x, axis=-1, keepdims=True) * y",
    ),
)

RELU_TWICE = Gap(
    "a rectified value beside a rectified factor",
    "relu(a) f(relu(a)) = relu(a) f(a), and a relu(a) is not negative; true, of no use in a kernel",
    is_sound=True,
    rules="""
(rewrite (Mul (Relu a) (Relu a)) (Mul a (Relu a)) :ruleset algebra-verify :name "gap-relu-relu")
(rewrite (Square (Relu a)) (Mul a (Relu a)) :ruleset algebra-verify :name "gap-square-relu")
(rewrite (Mul (Relu a) (Exp (Relu a))) (Mul (Relu a) (Exp a))
  :ruleset algebra-verify :name "gap-relu-exp-relu")
(rewrite (Maximum a (Mul a (Relu a))) (Maximum (Relu a) (Mul a (Relu a)))
  :ruleset algebra-verify :name "gap-maximum-mul-relu")
(rewrite (Maximum (Relu a) (Mul a (Relu a))) (Maximum a (Mul a (Relu a)))
  :ruleset algebra-verify :name "gap-maximum-relu-mul-relu")
""",
    example=("pr.relu(x) * pr.relu(x)", "x * pr.relu(x)"),
)

RISING = Gap(
    "an accumulator takes the largest of a rising function",
    "the largest exponential is that of the largest; true, but placement does not know it, so no "
    "search lists such a graph",
    is_sound=True,
    rules="""
(rewrite (RedMax (Exp a) p) (Exp (RedMax a p)) :ruleset parallel :name "gap-red-max-exp")
(rewrite (RedMax (Relu a) p) (Relu (RedMax a p)) :ruleset parallel :name "gap-red-max-relu")
""",
    example=(
        "pr.max(pr.exp(x), axis=-1)",
        """
        loop i
        map m[x,d,i]
        x = load x[n, d]
        %1 = max[d](x)
        %2 = exp(%1)
        %3 = accumulate[i] max(%2)
        save %3 as out0[n]
        """,
    ),
)

LARGEST_SUM = Gap(
    "an accumulator takes the largest of sums with a common rest",
    "the sum of x + c over a dim that c lacks rises with c; true, but placement does not know it",
    is_sound=True,
    rules="""
(rewrite (RedMax (Sum (Add (Repl y p) a) k) p) (Sum (Add y (RedMax a p)) k)
  :when ((= 0 (& (dims a) (<< 1 k)))) :ruleset parallel :name "gap-red-max-sum")
(rewrite (RedMax (Sum (Add a (Repl y p)) k) p) (Sum (Add (RedMax a p) y) k)
  :when ((= 0 (& (dims a) (<< 1 k)))) :ruleset parallel :name "gap-red-max-sum-left")
""",
    example=(
        "pr.sum(x + pr.max(q), axis=-1)",
        """
        loop i
        map m[q,k,i]
        x = load x[n, d]
        q = load q[k]
        %2 = max[k](q)
        %3 = add(x, %2)
        %4 = sum[d](%3)
        %5 = accumulate[i] max(%4)
        save %5 as out0[n]
        """,
    ),
)

GROWN = Gap(
    "a dim grows beyond its size",
    "an accumulator puts whole values side by side, which are summed later; the result holds more "
    "elements of the dim than it has, so values do not fit together",
    is_sound=False,
    rules="",
    example=(
        "pr.sum(pr.sum(q) / x, axis=-1)",
        """
        loop i
        map m[q,k,i]
        x = load x[n, d]
        q = load q[k]
        %2 = sum[k](q)
        %3 = div(%2, x)
        %4 = accumulate[i] concat[d](%3)
        %5 = sum[d](%4)
        save %5 as out0[n]
        """,
    ),
)

GAPS = (
    CANCEL,
    EXP_ABOVE,
    LOST_DIM,
    LARGEST_OF_ROW,
    RELU_TWICE,
    RISING,
    LARGEST_SUM,
    GROWN,
)


def with_gaps(axioms: AxiomSet, gaps=GAPS) -> AxiomSet:
    """The axioms and what would close the gaps."""
    files = [
        AxiomFile(f"gap-{k}.egg", _with_sentences(gap)) for k, gap in enumerate(gaps) if gap.rules
    ]
    return make_axiom_set((*axioms.files, *files))


def _with_sentences(gap: Gap) -> str:
    return gap.rules.replace("\n(rewrite", f"\n; {gap.name}.\n(rewrite")
