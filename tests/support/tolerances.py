"""How far numbers may be apart that should be equal: one name for each meaning, relative to the number's own scale."""

from __future__ import annotations

ROUNDING = 1e-12  # the same operations in float64, in another order
EXACT = 1e-10  # the same number in float64, by other mathematics
AUDITED = 1e-6  # a number of a whole audit against the slow reference: sums over samples, layers and directions
WALKED = 1e-3  # … that is found by walking along a line, where a small change of the loss moves the place a lot
SINGLE_PASS = 1e-5  # scores of one forward pass in float32 against float64
SINGLE = 1e-4  # any other number, where one of the two was computed in float32
