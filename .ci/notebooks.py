"""A hook of mkdocs: executes the scripts in notebooks/ and adds a page for each, with its outputs and its .ipynb."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
# The tests choose a backend that shows nothing. The data are small: a second thread costs more than it brings.
SETTINGS = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "OMP_NUM_THREADS": "1"}
CELL_FILE = re.compile(r"\S*ipykernel_\d+/\d+\.py")
"""What Python calls the file of a cell: another one in each run."""


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs when it has found its pages."""
    from mkdocs.structure.files import File

    for script in sorted(FOLDER.glob("*.py")):
        for name, content in pages(script).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def pages(script: Path) -> dict[str, str | bytes]:
    """Execute a script; its page, its pictures and its notebook, by file name. A cell that fails raises."""
    notebook = jupytext.read(script)
    # Errors only: the kernel warns that its port on this machine is not encrypted.
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", extra_arguments=["--log-level=ERROR"])
    client.execute(env=os.environ | SETTINGS)
    made: dict[str, str | bytes] = {}
    parts = []
    for cell in notebook.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        for output in cell.get("outputs", []):
            if "image/png" in (data := output.get("data", {})):
                name = f"{script.stem}-{len(made)}.png"
                made[name] = base64.b64decode(data["image/png"])
                parts.append(f"![What the cell above draws]({name})")
            elif text := output.get("text", data.get("text/plain", "")):
                parts.append(f"```text\n{CELL_FILE.sub('notebook', text).rstrip()}\n```")
    parts.append(f"[Download this notebook]({script.stem}.ipynb)")
    made[f"{script.stem}.md"] = "\n\n".join(parts) + "\n"
    made[f"{script.stem}.ipynb"] = nbformat.writes(notebook)
    return made
