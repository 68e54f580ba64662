"""The oldest versions that pyproject.toml allows, as words for ``pip install``, and what the tests need.

python .ci/oldest.py pyproject.toml
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

TESTS = ("hypothesis", "pytest", "pytest-timeout", "scikit-learn", "torchmetrics")


def oldest(requirement: str) -> str:
    """``torch>=2.8,<3`` as ``torch==2.8.*``."""
    found = re.match(r"([\w-]+)>=([\d.]+)", requirement)
    if found is None:
        sys.exit(f"{requirement!r} has no oldest version: write it as name>=version")
    return f"{found[1]}=={found[2]}.*"


if __name__ == "__main__":
    project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
    print(*map(oldest, project["dependencies"]), *TESTS)
