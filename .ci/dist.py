"""The packages as an index and its users get them: what has to be in them is, and what has not is not.

python .ci/dist.py dist
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

FIELDS = (
    "Name",
    "Version",
    "Summary",
    "License-Expression",
    "Requires-Python",
    "Project-URL",
    "Keywords",
    "Classifier",
)


def main(folder: Path) -> None:
    """Look into the one wheel and the one source distribution of the folder."""
    (wheel,), (source,) = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        about = Parser().parsestr(file.read(next(name for name in names if name.endswith("METADATA"))).decode())
    with tarfile.open(source) as file:
        sources = {name.partition("/")[2] for name in file.getnames()}
    wrong = [f"the metadata have no {field}" for field in FIELDS if not about[field]]
    if about["Description-Content-Type"] != "text/markdown" or not str(about.get_payload()).startswith("#"):
        wrong.append("the README is not the description")
    wrong += [
        f"the wheel has no {name}"
        for name in ("directloss/py.typed", "directloss/_uniloss/loss.py")
        if name not in names
    ]
    wrong += [f"the wheel has {name}" for name in names if not name.startswith("directloss")]
    needed = ("tests/conftest.py", "README.md", "LICENSE", "constraints.txt", "docs/index.md", ".ci/alone.py")
    wrong += [f"the source distribution has no {name}" for name in needed if name not in sources]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{wheel.name} has {len(names)} files, {source.name} {len(sources)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
