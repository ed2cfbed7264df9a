"""The oldest versions that pyproject.toml allows, one `name==version` a line, for `make test-min`."""

from __future__ import annotations

import re
import sys

from packaging.requirements import Requirement

from audit.settings.config import tomllib

if __name__ == "__main__":
    with open("pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    for line in project["dependencies"]:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            oldest = re.search(r">=\s*([\w.]+)", line)
            sys.stdout.write(f"{requirement.name}=={oldest[1]}\n" if oldest else f"{requirement.name}\n")
