"""The other three papers: Jia & Su (2020), Petzka et al. (2019), and the one on sensitivity and volume (2024)."""

from __future__ import annotations

import numpy as np

from papers.claims import Claim, always, changed, correlation, mean, rescaled, stronger, trend
from papers.statistics import Above, Below, Floats, Table, Within
from papers.training import TARGET

GAP, STRONG = "loss_gap", Above(0.7)


# Jia & Su: the Fisher information's determinant.


def _within_bound(table: Table) -> Floats:
    bound = table["pac_bayes.bound"]
    return np.where(np.isnan(bound), np.nan, table[GAP] + TARGET <= bound)


def _follows(column: str, words: str) -> tuple[Claim, ...]:
    return (
        trend("Fig. 2", f"More wrong labels: {words} grows", "wrong", column, Above()),
        trend("Fig. 4", f"Larger batch: {words} grows", "batch", column, Above()),
    )


BETAS = (10, 50, 100)


def _regularized(where: str, does: str, column: str, beta: int) -> Claim:
    return changed(where, f"The regularizer {does} (β = {beta})", column, ("base", f"fisher={beta}"), Below())


JIA_SU = (
    trend("Fig. 4", "Larger batch: the test error grows", "batch", "test_error", Above()),
    *_follows("gamma", "γ̂"),
    *_follows("frobenius_norm", "the Frobenius norm of the Fisher information"),
    *_follows("spectral_radius", "its spectral radius"),
    trend("Fig. 2", "More wrong labels: robustness fails to follow, it does not grow", "wrong", "robustness", Below()),
    trend("Fig. 4", "Larger batch: robustness fails to follow, it does not grow", "batch", "robustness", Below()),
    correlation("Section 7.1", "γ̂ goes with the test error", ("gamma", "test_error"), Above()),
    correlation("Section 7.1", "γ̂ goes with the loss gap", ("gamma", GAP), Above()),
    stronger("Section 7.1", "γ̂ goes with the loss gap more closely than the Frobenius norm", ("gamma", GAP),
             ("frobenius_norm", GAP)),
    stronger("Section 7.1", "γ̂ goes with the loss gap more closely than the spectral radius", ("gamma", GAP),
             ("spectral_radius", GAP)),
    always("Theorem 1", "The test loss stays below the bound (V = 1, δ = 0.05)", _within_bound),
    *(_regularized("Table 3", "lowers γ̂", "gamma", beta) for beta in BETAS),
    *(_regularized("Table 1", "lowers the test error", "test_error", beta) for beta in BETAS),
)  # fmt: skip


# Petzka et al.: flatness that does not depend on how weights are scaled.

KAPPA = ("fc2.kappa_tau", GAP)

PETZKA = (
    *(
        correlation("Fig. 3", f"κ_τ of layer {layer} goes with the loss gap, strongly", (f"{layer}.kappa_tau", GAP),
                    STRONG)
        for layer in ("fc1", "fc2")
    ),
    correlation("Fig. 1", "κ of the last hidden layer goes with the loss gap", ("fc2.kappa", GAP), Above()),
    stronger("Fig. 1", "κ_τ goes with it more closely than κ", KAPPA, ("fc2.kappa", GAP)),
    *(
        correlation("Fig. 4", f"ρ_σ of layer {layer} goes with the loss gap", (f"{layer}.rho_sigma", GAP), Above())
        for layer in ("fc1", "fc2")
    ),
    *(
        correlation("Fig. 5", f"ρ of layer {layer} goes with the loss gap", (f"{layer}.rho", GAP), Above())
        for layer in ("fc1", "fc2")
    ),
    stronger("Fig. 6", "The sum of κ_τ over layers goes with it more closely than that of one hidden layer",
             ("kappa_tau_sum", GAP), KAPPA),
    stronger("Fig. 6", "The sum of ρ over layers goes with it more closely than ρ_σ of one hidden layer",
             ("rho_sum", GAP), ("fc2.rho_sigma", GAP)),
    always("Theorems 2, 3", "Layers really scaled by random factors of 5 to 25: no κ and no ρ moves",
           lambda table: (table["rescaled.moved"] < 1e-6).astype(float), "rescaled.moved"),
    correlation("Fig. 2", "So scaled, the plain trace goes with the loss gap weakly at most",
                (rescaled("fc2.trace"), GAP), Within(-0.3, 0.3)),
    correlation("Fig. 2", "So scaled, the largest eigenvalue goes with the loss gap weakly at most",
                (rescaled("fc2.lambda_max"), GAP), Within(-0.3, 0.3)),
    stronger("Fig. 2", "So scaled, κ_τ goes with it more closely than the plain trace", KAPPA,
             (rescaled("fc2.trace"), GAP)),
)  # fmt: skip


# Sharpness, sensitivity and volume.

S = "sharpness"
BOUNDS = {
    "prop-3.4": "Prop. 3.4",
    "prop-3.6": "Prop. 3.6",
    "prop-3.8": "Prop. 3.8",
    "prop-3.10": "Prop. 3.10",
    "prop-e.4": "Prop. E.4",
    "eq-35": "Eq. 35",
}


def _step(first: str, second: str, other: tuple[str, str]) -> Claim:
    def wider(table: Table) -> Floats:
        steps = (np.log(table[f"chain.{right}"] / table[f"chain.{left}"]) for left, right in ((first, second), other))
        a, b = steps
        return a - b

    names = f"{first} ≤ {second}", f"{other[0]} ≤ {other[1]}"
    return mean("Fig. G.4", f"Of the bound's steps, {names[0]} is wider than {names[1]}", wider, Above())


SENSITIVITY = (
    *(
        always(where, "The bound holds in every network", lambda table, id=id: table[f"{id}.holds"])
        for id, where in BOUNDS.items()
    ),
    mean("Appendix G.2", "The volume's bound is loose: the volume is below a hundredth of it", "prop-3.4.tightness",
         Below(0.01)),
    _step("C", "D", ("A", "B")),
    _step("C", "D", ("B", "C")),
    correlation("Section 4.3", "MLS goes with the sharpness, strongly", ("mls", S), STRONG),
    correlation("Appendix G.2", "The log-volume goes with the sharpness", ("mean_log_volume", S), Above()),
    correlation("Appendix G.2", "The log-volume goes with MLS", ("mean_log_volume", "mls"), Above()),
    stronger("Section 3.2", "MLS goes with the sharpness more closely than the log-volume does", ("mls", S),
             ("mean_log_volume", S)),
    stronger("Section 3.2", "MLS goes with the loss gap more closely than the log-volume does", ("mls", GAP),
             ("mean_log_volume", GAP)),
    correlation("Prop. 3.10", "NMLS goes with the right side of its bound", ("nmls", "prop-3.10.right"), Above()),
    stronger("Fig. G.6", "NMLS goes with its bound more closely than MLS with its own", ("nmls", "prop-3.10.right"),
             ("mls", "chain.D")),
    correlation("Appendix G.2", "The sharpness goes with the loss gap", (S, GAP), Above()),
    correlation("Appendix G.2", "MLS goes with the loss gap", ("mls", GAP), Above()),
    correlation("Appendix G.2", "NMLS goes with the loss gap", ("nmls", GAP), Above()),
    stronger("Section 4.2", "The dimensionality goes with the sharpness less closely than MLS", ("mls", S),
             ("dimensionality", S)),
    correlation("Appendix G.2", "Relative flatness of the last layer goes with the loss gap weakly at most",
                ("fc3.relative_flatness", GAP), Below(0.3)),
    *(
        trend("Fig. 1", f"Larger rate: {words} falls", "rate", column, Below())
        for column, words in ((S, "the sharpness"), ("mls", "MLS"), ("mean_log_volume", "the log-volume"))
    ),
    *(
        trend("Fig. 2", f"Larger batch: {words} grows", "batch", column, Above())
        for column, words in ((S, "the sharpness"), ("mls", "MLS"), ("mean_log_volume", "the log-volume"))
    ),
)  # fmt: skip
