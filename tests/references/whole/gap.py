"""Loss, error and what they differ by."""

from __future__ import annotations

import math

from references.whole.problem import Block, Problem, mean


def gap(p: Problem) -> Block:
    train, test = p.losses(p.x, p.y), p.losses(p.x_test, p.y_test)
    found: Block = {"train_loss": mean(train), "test_loss": mean(test), "loss_gap": mean(test) - mean(train)}
    if p.task == "regression":
        for name, x, y in (("train", p.x, p.y), ("test", p.x_test, p.y_test)):
            y = y.reshape(len(y), -1)
            errors = (p.scores(x) - y).square()
            found[f"{name}_rmse"] = math.sqrt(float(errors.mean()))
            found[f"{name}_r2"] = mean(1 - errors.sum(0) / (y - y.mean(0)).square().sum(0))
        constant = p.y.reshape(len(p.y), -1).mean(0)
        found["test_rmse_guess"] = math.sqrt(float((p.y_test.reshape(len(p.y_test), -1) - constant).square().mean()))
        return found
    wrong, wrong_test = p.wrong(p.x, p.y), p.wrong(p.x_test, p.y_test)
    found |= {"train_error": mean(wrong), "test_error": mean(wrong_test)}
    found |= {"error_gap": found["test_error"] - found["train_error"]}
    found |= {f"{name}_accuracy": 1 - found[f"{name}_error"] for name in ("train", "test")}
    found["per_class"] = []
    for label in sorted(set(p.y.tolist()) | set(p.y_test.tolist())):
        mine, mine_test = p.y == label, p.y_test == label
        found["per_class"].append(
            {
                "train_loss": mean(train[mine]),
                "test_loss": mean(test[mine_test]),
                "train_error": mean(wrong[mine]),
                "test_error": mean(wrong_test[mine_test]),
                "loss_gap": mean(test[mine_test]) - mean(train[mine]),
            }
        )
    return found
