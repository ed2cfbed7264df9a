"""Definition cards of data hygiene."""

from __future__ import annotations

from audit.report.fields import Card

CARDS = (
    Card(
        id="hygiene.duplicates_across_splits",
        title="Duplicates across the splits",
        meaning="Test samples whose input, as fed to the model, is in train number for number.",
        formula="#{test x′ : x′ = x for some train x}",
        source="Counting; rows are compared by a 128-bit hash.",
        variant=(
            "On the samples as used: where train was capped, copies of train samples that were left out are not seen."
        ),
        can_tell="Which test samples the model has been shown, with their positions.",
        cannot_tell="Copies that were cropped, recompressed or otherwise changed: see near duplicates.",
        covers=("hygiene.duplicates_within_train", "hygiene.duplicates_within_test", "hygiene.duplicate_pairs"),
    ),
    Card(
        id="hygiene.near_duplicates",
        title="Near duplicates across the splits",
        meaning="Test samples that are not in train but far closer to one train sample than chance would bring them.",
        formula=(
            "r₁/r₁₀ < t with 1 − (1 − t^d)⁹ = 0.05 / test samples, t ≤ 1/3;  r_k: distance to the k-th nearest "
            "different train input,  d = (1/5 + … + 1/9) / mean ln(r₁₀/r₅)"
        ),
        source=(
            "Order statistics of nearest-neighbour distances in an even density, as in Levina & Bickel, Maximum "
            "Likelihood Estimation of Intrinsic Dimension (2004), and Facco et al., Estimating the intrinsic "
            "dimension of datasets by a minimal neighborhood information (2017)"
        ),
        variant=(
            "Distances in the input as fed or standardised by feature, whichever neighbours foretell the test "
            "labels better in. Were test samples drawn afresh, 0.05 of them would be near duplicates in all."
        ),
        can_tell="Copies with noise, another compression or other rounding.",
        cannot_tell=(
            "Shifted, mirrored or cropped copies. Where rows mix few-valued and continuous features, near twins "
            "are natural: within_train says how common they are inside train."
        ),
        covers=("hygiene.near",),
    ),
    Card(
        id="hygiene.conflicting_labels",
        title="Conflicting labels",
        meaning="Samples whose very input is in train with another label or target: no model can be right on them all.",
        formula="#{train} + #{test} samples whose input occurs in train with another label or target",
        source="Counting",
        cannot_tell="Which of the labels is wrong, or whether the input just does not hold the answer.",
        covers=("hygiene.conflicts",),
    ),
    Card(
        id="hygiene.suspected_mislabels",
        title="Suspected wrong train labels",
        meaning="Train labels that nearly all of their neighbours contradict.",
        formula=(
            "suspect where v_top ≥ ½ and v_top ≥ 4 v_given, v: shares of the 10 nearest other train samples "
            "(equally far ones included);  rate r = (X − Y)/(1 − Y C/(C−1)), X and Y: shares of train and of test "
            "labels outvoted by another"
        ),
        source="k-nearest-neighbour editing, Wilson (1972); the rule's numbers were chosen on the data below.",
        variant=(
            "Neighbours in the input, as fed or standardised, whichever foretells test labels better; in the "
            "features of the last dense layer only where these clearly halve the disagreement with test labels, "
            "since a network hides there the wrong labels it has memorised. Of more than 10,000 train samples, the "
            "labels of 10,000 drawn at random are voted on, by the neighbours among all."
        ),
        can_tell=(
            "Measured with 25 % and 5 % of the labels moved at random: precision 0.94 and 0.69, recall 0.84 and "
            "0.93 on MNIST (4,000 samples); 0.99 and 0.92, 0.88 and 0.99 on digits (1,348); 1.00 and 0.72, 0.43 "
            "and 0.86 on breast cancer (427); 0.96 and 0.83, 0.65 and 0.71 on wine (134). With no label moved, "
            "97, 7, 8 and 2 were listed. The estimated rates were 0.24, 0.25, 0.27, 0.34 for 25 %, 0.04, 0.05, "
            "0.02, 0.08 for 5 % and 0, 0, 0, 0.04 for none, each with the truth in its interval."
        ),
        cannot_tell=(
            "Whether a listed label is wrong or its sample merely odd: compare the count with expected_by_chance. "
            "Errors that test shares with train do not show in the rate, and labels wrong by system, not at "
            "random, bias it."
        ),
        contradictions=(
            "In the features of networks that had been trained on the moved labels, recall at 25 % fell from 0.84 "
            "to 0.42 on MNIST, from 0.88 to 0.71 on digits, from 0.43 to 0.13 on breast cancer and from 0.65 to "
            "0.03 on wine."
        ),
    ),
    Card(
        id="hygiene.class_balance",
        title="Class balance",
        meaning=(
            "How many samples of each class each split has, and whether their proportions differ by more than chance."
        ),
        formula=(
            "X² = Σ_c (n_c − m_c)²/m_c over both splits;  p: share of 2,000 random re-divisions with at least this X²"
        ),
        source="Pearson (1900), with a permutation distribution",
        variant="Different means p < 0.01. A cap on the samples is stratified, which makes the test cautious.",
        cannot_tell="Whether the proportions are those that the model will meet in use.",
    ),
    Card(
        id="hygiene.told_apart",
        title="Test inputs told from train inputs",
        meaning="How well a simple classifier tells which split an input is from, without having seen that input.",
        formula=(
            "y − α/diag G with G = (K + 0.1)⁻¹, α = G y, y = ±1 less its mean;  K: exp(−d²/median d²), as fed and "
            "standardised in equal parts;  p: share of 999 random re-divisions told apart at least as well"
        ),
        source=(
            "Classifier two-sample tests, Lopez-Paz & Oquab (2017); left-one-out answers of a ridge regression in "
            "closed form; a permutation distribution, exact whatever the data are."
        ),
        variant=(
            "At most 750 different inputs of either split, none that is in both, of near copies one, and of long "
            "inputs 4,096 numbers. Different means p ≤ 0.001."
        ),
        can_tell=(
            "Counted (samples/twin_rates.json): of 125 random divisions of MNIST with 10, 5 and 3 digits, digits and "
            "breast cancer 0 were told apart. Of images that were mirrored, moved by a fourteenth of their width, "
            "blurred, at half the contrast or with noise of 0.2, 100 of 100 were, 87 to 100 in 100 inputs rightly."
        ),
        cannot_tell=(
            "Whether the difference costs the model any answers; and, of groups (persons, scenes, days) that are in "
            "one split alone, whether it is more than that the samples of a group are alike."
        ),
    ),
    Card(
        id="hygiene.leaked",
        title="Leaked test split",
        meaning="How much of test is in train with the same label or target, and whether that voids the verdict.",
        formula=(
            "void where L ≥ 10 %, or L ≥ 1 % and the gap without the copies lies outside the 95 % interval of the "
            "gap with them;  L = max(lower end of the share of unexplained copies, lower end of the share of "
            "copies − upper end of the share of repeated train samples) / searched share of train;  also void "
            "where both splits are the same samples"
        ),
        source=(
            "Convention: with a share s of test samples that the model has fitted, the gap shows as (1 − s) of "
            "its size; beyond a tenth that is no rounding. Intervals: Wilson (1927)"
        ),
        variant=(
            "A copy is unexplained where no other, different train row equals it in any of 8 random halves of its "
            "features: values that repeat by chance repeat in parts far more often than as a whole."
        ),
        can_tell=(
            "That the test split was copied, in full or in part, from train; natural repeats in coarse tables do "
            "not void."
        ),
        cannot_tell=(
            "Leaks of other kinds: near duplicates, the same person or scene in both splits, or features that "
            "give the label away."
        ),
    ),
)
