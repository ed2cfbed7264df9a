"""What a policy may say, and the sentence for everything that it may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from reports import both

from audit.errors import UsageError
from audit.policy import Policy, Rule
from audit.policy.parse import as_policy, default_policy, policy_in_force, read_policy
from audit.report.blocks import CHECK_IDS
from audit.settings.config import ConfigFile


def read(folder: Path, text: str, name: str = "gen-audit.toml") -> tuple[Rule, ...]:
    (folder / name).write_text(text)
    return read_policy(folder / name).rules


def test_each_limit_of_a_table_is_a_rule_quoted_or_not(tmp_path: Path) -> None:
    plain = read(tmp_path, '[policy.gap.error_gap]\nmax = 0.05\nmax_regression = "10%"\ninconclusive = "fail"\n')
    assert plain == (
        Rule("gap.error_gap", "max", 0.05, inconclusive="fail"),
        Rule("gap.error_gap", "max_regression", 0.1, relative=True, inconclusive="fail"),
    )
    quoted = '[policy."gap.error_gap"]\nmax = 0.05\nmax_regression = "10 %"\ninconclusive = "fail"\n'
    assert read(tmp_path, quoted) == plain


def test_checks_findings_words_and_switched_off_rules(tmp_path: Path) -> None:
    text = (
        '[policy.check."*"]\n'
        '[policy.finding.mislabelled]\nfails_at = "concern"\nlevel = "warn"\n'
        "[policy.hygiene.leaked.void]\nis = false\n"
        '[policy.gap.test_error]\nlevel = "off"\n'
        '[policy.layers."block.0.fc".flatness.kappa]\nmin = 1\nnot_measurable = "pass"\n'
    )
    assert set(read(tmp_path, text)) == {
        Rule("check.*", "status"),
        Rule("finding.mislabelled", "fails_at", "concern", level="warn"),
        Rule("hygiene.leaked.void", "is", False),
        Rule("gap.test_error", "max", level="off"),
        Rule("layers.block.0.fc.flatness.kappa", "min", 1.0, not_measurable="pass"),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed = 1", "has no [policy] table; `gen-audit init` writes one to start from."),
        ("policy = 3", "policy is 3, not a table; write rules as [policy.gap.error_gap]."),
        ("[policy]", "[policy] has no rule; `gen-audit init` writes some to start from."),
        ("[policy]\nmax = 1", "[policy] 'max' stands outside a rule; write it under [policy.<path>]."),
        (
            "[policy.gap.eror_gap]\nmax = 1",
            "no report has a number 'gap.eror_gap'; the nearest one is 'gap.error_gap'.",
        ),
        ("[policy.gap.error_gap]\nmx = 1", "[policy.gap.error_gap] has no key 'mx'; the nearest one is 'max'."),
        ("[policy.gap.error_gap]", "[policy.gap.error_gap] sets no limit; give it max, min, max_regression or is."),
        ("[policy.gap.error_gap]\nmax = 'x'", "[policy.gap.error_gap] max = 'x' is not a number."),
        ("[policy.gap.error_gap]\nmax = true", "[policy.gap.error_gap] max = True is not a number."),
        ("[policy.gap.error_gap]\nmax = nan", "[policy.gap.error_gap] max = nan is not a number."),
        (
            "[policy.gap.error_gap]\nmax_regression = 'a%'",
            "max_regression = 'a%' is not a number, or a share of the baseline's as \"10%\".",
        ),
        ("[policy.gap.error_gap]\nis = 3", '"is" takes a word, true or false; for a number give max and min.'),
        ("[policy.gap.error_gap]\nmax = 1\nlevel = 'loud'", "level = 'loud' is not one of off, warn, error."),
        ("[policy.gap.error_gap]\nmax = 1\ninconclusive = 1", "inconclusive = 1 is not one of pass, warn, fail."),
        ("[policy.check.determinism]\nmax = 1", "has no key 'max'; the nearest one is 'not_measurable'."),
        ("[policy.finding.gap]\nfails_at = 'bad'", "fails_at = 'bad' is not one of note, watch, concern."),
        (
            "[policy.gap.error_gap]\nmax_regression = '1.2.3%'",
            "max_regression = '1.2.3%' is not a number, or a share of the baseline's as \"10%\".",
        ),
        (
            "[policy.gap.error_gap]\nmax_regression = '.%'",
            "max_regression = '.%' is not a number, or a share of the baseline's as \"10%\".",
        ),
        (
            "[policy.gap.error_gap]\nmax_regression = '-10%'",
            "max_regression = '-10%' is not a number, or a share of the baseline's as \"10%\".",
        ),
        (f"[policy.gap.error_gap]\nmax = 1{'0' * 400}", "[policy.gap.error_gap] max: the number is too large."),
        ("[policy.gap.error_gap]\nmax = inf", "[policy.gap.error_gap] max: the number is too large."),
        ("[policy.model.task]\nmax = 1", "[policy.model.task] max: model.task is no number; use `is`."),
        ("[policy.gap.test_error]\nis = 'good'", "is = 'good': gap.test_error is a number; give max or min."),
        (
            "[policy.hygiene.leaked.void]\nis = 'false'",
            "is = 'false': hygiene.leaked.void is true or false, without quotation marks.",
        ),
        ("[policy.model.task]\nis = true", "is = true: model.task is a word; put one in quotation marks."),
        (
            "[policy.check.determinsm]\nlevel = 'off'",
            "[policy.check.determinsm]: there is no check 'determinsm'; the nearest one is 'determinism'.",
        ),
        (
            "[policy.finding.leakd]\nlevel = 'off'",
            "[policy.finding.leakd]: there is no finding 'leakd'; the nearest one is 'leaked'.",
        ),
        (
            "[policy.gap.test_error]\nmax = 1\n[policy.'gap.test_error']\nlevel = 'off'",
            "[policy.gap.test_error] stands there twice; write all its limits into one table.",
        ),
        (
            "[policy.layers.'fc*'.flatness.kappa]\nmax = 1",
            '"*" stands for each member and stands alone; name one, or write "*".',
        ),
    ],
)
def test_nonsense_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "gen-audit.toml"))
    assert str(caught.value).endswith(sentence)


def test_a_policy_written_in_a_program_is_looked_at_as_well() -> None:
    with pytest.raises(UsageError, match=r"^policy: \[policy\.finding\.nosuch\]: there is no finding 'nosuch'"):
        as_policy(Policy((Rule("finding.nosuch", "fails_at", "watch"),)))
    with pytest.raises(UsageError, match=r"^policy: 3 is none; give a Policy, a file, or rules in a dictionary\.$"):
        as_policy(3)  # type: ignore[arg-type]


def test_every_check_that_a_report_holds_can_be_named() -> None:
    made = {check["id"] for report in both().values() for check in report["checks"]}
    assert made == set(CHECK_IDS)


def test_the_first_file_with_a_policy_is_in_force_and_else_the_default(tmp_path: Path) -> None:
    bare, first, second = (tmp_path / name for name in ("bare.toml", "gen-audit.toml", "pyproject.toml"))
    bare.write_text("seed = 1\n")
    first.write_text("[policy.gap.test_error]\nmax = 0.1\n")
    second.write_text("[tool.gen-audit.policy.gap.test_error]\nmax = 0.2\n")

    def files(*paths: Path) -> list[ConfigFile]:
        return [ConfigFile(path, "working") for path in paths]

    assert policy_in_force(None, files(bare, first, second)).source == str(first)
    assert policy_in_force(None, files(second)).rules[0].limit == 0.2
    assert policy_in_force(second, files(first)).rules[0].limit == 0.2
    assert policy_in_force(None, files(bare)) == default_policy()
