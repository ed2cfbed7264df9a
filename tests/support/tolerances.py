"""How far numbers may be apart that should be equal: one name for each meaning, relative to the number's own scale."""

from __future__ import annotations

BY_HAND = 1e-14  # a number worked out by hand, or by the very same few operations, in float64
ROUNDING = 1e-12  # the same operations in float64, in another order
IDENTITY = 1e-11  # two sides of an identity, or one number by other chunks: long sums in another order
EXACT = 1e-10  # the same number in float64, by other mathematics
SOLVED = 1e-9  # … where it is found by solving: eigenvalues, roots, places of a minimum
LOSSY = 1e-8  # … where digits are lost on the way: determinants, derivatives of derivatives, inverses
AUDITED = 1e-6  # a number of a whole audit against the slow reference: sums over samples, layers and directions
WALKED = 1e-3  # … that is found by walking along a line, where a small change of the loss moves the place a lot
SINGLE_PASS = 1e-5  # scores of one forward pass in float32 against float64
SINGLE = 1e-4  # any other number, where one of the two was computed in float32

CANCELS = 1e-12  # not relative: what numbers of about the size of one may leave where they cancel
