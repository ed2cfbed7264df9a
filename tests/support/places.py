"""Where things lie in the checkout."""

from pathlib import Path

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
SAMPLES = ROOT / "samples"
SCHEMAS = SUPPORT / "schemas"  # that other programs' files must fit
EXAMPLE, REGRESSION = (SUPPORT / f"{name}_report.json" for name in ("example", "regression"))  # as audits wrote them
