"""The words that a reader of the report may not know: on the page, in the documentation and for `gen-audit explain`."""

from __future__ import annotations

from audit.report.fields import Card

WORDS = {
    "95 % interval": "Where the true value probably lies: such intervals hold it in 95 of 100 cases.",
    "baseline": "An earlier model, or its report, that this one is compared with.",
    "bootstrap": "Drawing the same samples again at random, many times, to see how much a number varies by chance.",
    "calibration": "Whether a model is right as often as it says: of answers given with 90 %, nine in ten are.",
    "confidence": "The probability that a model gives to its own answer.",
    "constant answer": "Always answering the same, whatever the input: the commonest class, or the mean.",
    "cross-entropy": "The loss of a classifier: minus the logarithm of the probability given to the right class.",
    "curvature": "How strongly the loss bends when the weights are changed.",
    "dense layer": "A layer in which every input is joined to every output by a weight of its own.",
    "Fisher information": "How much single train samples pull at the weights, and in how many directions.",
    "generalization gap": "How much worse a model does on samples it has not seen than on those it was trained on.",
    "Hessian": "The table of all second derivatives of the loss: its curvature in every direction of the weights.",
    "leak": "Test samples that are also in the train data, so that they are not new to the model.",
    "logit": "A raw score of a class, before scores are made into probabilities.",
    "loss": "What one answer costs: the better the answer, the lower.",
    "nat": "The unit of cross-entropy: 0.7 nats are the cost of a fair coin flip.",
    "overfit": "A model that has learnt its train samples by heart and does worse on new ones.",
    "parameter": "A number inside the model that training has set; most are weights.",
    "partner": "The train sample most like a test sample; of classes, the nearest of the same label.",
    "percentage point": "The difference of two percentages: from 2 % to 5 % it is 3 points.",
    "regression": "Predicting a number instead of choosing a class.",
    "temperature": "One number that all scores are divided by to make a model more or less sure; no answer changes.",
    "test split": "Samples kept apart from training, on which the model is judged; the others are the train split.",
    "typical error": "The root mean squared error: how far a prediction is off, in the units of the target.",
    "underfit": "A model that already fails on the samples it was trained on.",
}
"""At most 25: whoever adds one takes another out."""


def word_card(name: str) -> Card | None:
    """What a word means, as a card; None for one that is not in the glossary.

    >>> card = word_card("Logit")
    >>> (card.id, card.meaning) if card else None
    ('logit', 'A raw score of a class, before scores are made into probabilities.')
    """
    known = {word.lower(): word for word in WORDS}
    word = known.get(name.lower())
    return None if word is None else Card(word, word, WORDS[word], formula="", source="")
