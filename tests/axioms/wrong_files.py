"""Wrong axiom files: a row per mistake, with the fault and the rules that the check has to name."""

from __future__ import annotations

from prism.egraph.checking import Fault

WRONG = {
    # ---- unsound algebra
    "operands swapped": (
        Fault.UNSOUND,
        ("sub-comm",),
        '(rewrite (Sub a b) (Sub b a) :ruleset algebra :name "sub-comm")',
    ),
    "root of a sum": (
        Fault.UNSOUND,
        ("sqrt-add",),
        '(rewrite (Sqrt (Add a b)) (Add (Sqrt a) (Sqrt b)) :ruleset algebra :name "sqrt-add")',
    ),
    "exponential of a product": (
        Fault.UNSOUND,
        ("exp-mul",),
        '(rewrite (Exp (Mul a b)) (Mul (Exp a) (Exp b)) :ruleset algebra :name "exp-mul")',
    ),
    "a sign through ReLU": (
        Fault.UNSOUND,
        ("relu-neg",),
        '(rewrite (Relu (Neg a)) (Neg (Relu a)) :ruleset algebra :name "relu-neg")',
    ),
    "one direction of two": (
        Fault.UNSOUND,
        ("abs-abs",),
        '(birewrite (Abs (Abs a)) (Neg (Neg a)) :ruleset algebra :name "abs-abs")',
    ),
    "right only by rounding": (
        Fault.UNSOUND,
        ("add-tiny",),
        '(rewrite (Add a (Const "1e-13")) a :ruleset algebra :name "add-tiny")',
    ),
    "right in all but large values": (
        Fault.UNSOUND,
        ("minimum-cap",),
        '(rewrite (Minimum a (Const "1000.0")) a :ruleset algebra :name "minimum-cap")',
    ),
    "right in all but values a multiple of its number": (
        Fault.UNSOUND,
        ("tanh-cap",),
        (
            '(rewrite (Mul (Const "30.0") (Tanh (Div a (Const "30.0")))) (Minimum (Const "29.5") '
            '(Mul (Const "30.0") (Tanh (Div a (Const "30.0"))))) :ruleset algebra '
            ':name "tanh-cap")'
        ),
    ),
    "wrong only where values are equal": (
        Fault.UNSOUND,
        ("recip-sub",),
        (
            "(rewrite (Mul (Sub a b) (Recip (Sub a b))) (Add (Const "
            '"1.0") (Mul (Const "0.0") (Sub a b))) :ruleset algebra :name "recip-sub")'
        ),
    ),
    # ---- a guard is missing
    "a factor with k out of a sum over k": (
        Fault.UNSOUND,
        ("sum-out",),
        '(rewrite (Sum (Mul a b) k) (Mul a (Sum b k)) :ruleset algebra :name "sum-out")',
    ),
    "a copy with the split dimension": (
        Fault.UNSOUND,
        ("mul-copy",),
        (
            "(rewrite (Mul (Part x d p) (Repl y p)) (Part (Mul x y) d p)"
            ' :ruleset parallel :name "mul-copy")'
        ),
    ),
    "tiles of one dimension exchanged": (
        Fault.UNSOUND,
        ("part-swap",),
        (
            "(rewrite (Part (Part x d p) e q) (Part (Part x e q) d p) :when ((< q p))"
            ' :ruleset parallel :name "part-swap")'
        ),
    ),
    "roots of negative factors": (
        Fault.UNSOUND,
        ("sqrt-mul",),
        '(rewrite (Sqrt (Mul a b)) (Mul (Sqrt a) (Sqrt b)) :ruleset algebra :name "sqrt-mul")',
    ),
    "the logarithm of a negative value": (
        Fault.UNSOUND,
        ("exp-log",),
        '(rewrite (Exp (Log a)) a :ruleset algebra :name "exp-log")',
    ),
    "a quotient of zeros": (
        Fault.UNSOUND,
        ("div-cancel",),
        (
            "(rewrite (Div (Mul a b) a) b :when ((= (dims a) (dims b)))"
            ' :ruleset algebra :name "div-cancel")'
        ),
    ),
    # ---- a wrong dimension, a reduction missing or moved
    "put together along another dimension": (
        Fault.UNSOUND,
        ("comb-other",),
        '(rewrite (Comb (Part x d p) e p) x :ruleset parallel :name "comb-other")',
    ),
    "summed over another dimension than split": (
        Fault.UNSOUND,
        ("red-other",),
        '(rewrite (Red (Sum (Part x d p) k) p) (Sum x k) :ruleset parallel :name "red-other")',
    ),
    "copies along another dimension than summed": (
        Fault.UNSOUND,
        ("red-copies",),
        '(rewrite (Red (Repl x q) p) (Scale x q) :ruleset parallel :name "red-copies")',
    ),
    "sum and largest exchanged": (
        Fault.UNSOUND,
        ("max-sum",),
        '(rewrite (MaxOver (Sum a j) k) (Sum (MaxOver a k) j) :ruleset algebra :name "max-sum")',
    ),
    "no sum over the tiles": (
        Fault.UNSOUND,
        ("sum-tiles",),
        '(rewrite (Sum (Comb x k p) k) (Sum x k) :ruleset parallel :name "sum-tiles")',
    ),
    "a partial value into an exponential": (
        Fault.UNSOUND,
        ("red-exp",),
        '(rewrite (Red (Exp a) p) (Exp (Red a p)) :ruleset parallel :name "red-exp")',
    ),
    "one tile for the whole": (
        Fault.UNSOUND,
        ("pick-tile",),
        '(rewrite (Pick (Part x d p) p) x :ruleset parallel :name "pick-tile")',
    ),
    # ---- a local size for a global one
    "copies counted once": (
        Fault.UNSOUND,
        ("red-once",),
        '(rewrite (Red (Repl x p) p) x :ruleset parallel :name "red-once")',
    ),
    "the mean of a tile": (
        Fault.UNSOUND,
        ("mean-local",),
        (
            "(rewrite (Div (Sum (Part x k p) k) (Repl (Size k) p))"
            " (Div (Sum (Part x k p) k) (Repl (Unscale (Size k) p) p))"
            ' :ruleset parallel :name "mean-local")'
        ),
    ),
    "means of tiles summed": (
        Fault.UNSOUND,
        ("mean-red",),
        (
            "(rewrite (Red (Div (Sum (Part x k p) k) (Repl (Unscale (Size k) p) p)) p)"
            ' (Div (Sum x k) (Size k)) :ruleset parallel :name "mean-red")'
        ),
    ),
    # ---- poison: a helper has no meaning, so each rule alone may be true
    "a helper that is its operand and its negation": (
        Fault.POISON,
        ("hug", "unhug"),
        (
            "(constructor Hug (E) E)"
            '(birewrite (Neg a) (Hug a) :ruleset algebra :name "hug")'
            '(rewrite (Hug a) a :ruleset algebra :name "unhug")'
        ),
    ),
    "a helper that is a product and a quotient": (
        Fault.POISON,
        ("fuse-div", "fuse-mul"),
        (
            "(constructor Fuse (E E) E)"
            '(rewrite (Mul a b) (Fuse a b) :ruleset algebra :name "fuse-mul")'
            '(rewrite (Abs a) (Abs (Neg a)) :ruleset algebra :name "fuse-none")'
            '(rewrite (Div a b) (Fuse a b) :ruleset algebra :name "fuse-div")'
        ),
    ),
    "a helper that is two functions of a copy": (
        Fault.POISON,
        ("copy-exp", "copy-sqrt"),
        (
            "(constructor Copied (E) E)"
            '(rewrite (Exp (Repl x p)) (Copied x) :ruleset parallel :name "copy-exp")'
            '(rewrite (Sqrt (Repl x p)) (Copied x) :ruleset parallel :name "copy-sqrt")'
        ),
    ),
    "a helper that forgets along which dimension": (
        Fault.POISON,
        ("tile-any",),
        (
            "(constructor Tile (E) E)"
            '(rewrite (Exp (Part x d p)) (Tile x) :ruleset parallel :name "tile-any")'
        ),
    ),
    "a helper that is two functions of a number alone": (
        Fault.POISON,
        ("step-exp", "step-sqrt"),
        (
            "(constructor Step (E) E)"
            '(rewrite (Exp (Add a (Const "1.0"))) (Step (Add a (Const "1.0")))'
            ' :ruleset algebra :name "step-exp")'
            '(rewrite (Sqrt (Const "3.5")) (Step (Const "3.5")) :ruleset algebra :name "step-sqrt")'
        ),
    ),
    "a helper that is two functions over a dimension of size one": (
        Fault.POISON,
        ("whole-exp", "whole-square"),
        (
            "(constructor Whole (E) E)"
            "(rewrite (Exp (Sum a k)) (Whole a) :when ((single k))"
            ' :ruleset algebra-verify :name "whole-exp")'
            '(rewrite (Square a) (Whole a) :ruleset algebra-verify :name "whole-square")'
        ),
    ),
    "a helper that is two functions of what is known in two ways": (
        Fault.POISON,
        ("gate-maximum", "gate-minimum"),
        (
            "(constructor Gate (E E) E)"
            "(rewrite (Maximum (Sum a k) b) (Gate (Sum a k) b) :when ((nonneg a) (has a k))"
            ' :ruleset algebra-verify :name "gate-maximum")'
            "(rewrite (Minimum (Sum a k) b) (Gate (Sum a k) b) :when ((nonzero b) (has a k))"
            ' :ruleset algebra-verify :name "gate-minimum")'
        ),
    ),
    # ---- growth: true, and without end
    "a product in ever more factors": (
        Fault.GROWTH,
        ("mul-halves",),
        (
            '(rewrite (Mul a b) (Mul (Mul a (Const "2.0")) (Mul b (Const "0.5")))'
            ' :ruleset algebra :name "mul-halves")'
        ),
    ),
    "an exponential of ever more terms": (
        Fault.GROWTH,
        ("exp-shift",),
        (
            '(rewrite (Exp a) (Mul (Exp (Add a (Const "1.0"))) (Exp (Const "-1.0")))'
            ' :ruleset algebra :name "exp-shift")'
        ),
    ),
    "powers of a count": (
        Fault.GROWTH,
        ("scale-loop",),
        (
            "(rewrite (Scale x p) (Unscale (Scale (Scale x p) p) p)"
            ' :ruleset parallel :name "scale-loop")'
        ),
    ),
    # ---- malformed
    "a command": (Fault.MALFORMED, (None,), "(run 10)"),
    "an unknown operator": (
        Fault.MALFORMED,
        ("negate",),
        '(rewrite (Negate a) a :ruleset algebra :name "negate")',
    ),
    "a variable from nowhere": (
        Fault.MALFORMED,
        ("neg-b",),
        '(rewrite (Neg a) (Neg b) :ruleset algebra :name "neg-b")',
    ),
    "a dimension for a term": (
        Fault.MALFORMED,
        ("sum-k",),
        '(rewrite (Sum a k) (Mul k a) :ruleset algebra :name "sum-k")',
    ),
    "a tile in the algebra": (
        Fault.MALFORMED,
        ("neg-tile",),
        '(rewrite (Neg (Part a d p)) (Part (Neg a) d p) :ruleset algebra :name "neg-tile")',
    ),
    "a name of ours": (
        Fault.MALFORMED,
        ("mul-comm",),
        '(rewrite (Mul a b) (Mul b a) :ruleset algebra :name "mul-comm")',
    ),
    "an open parenthesis": (Fault.MALFORMED, (None,), "(rewrite (Neg a) a"),
}
