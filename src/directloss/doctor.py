"""``directloss doctor``: what is installed, whether the losses work here, and how to install what is missing.

It only needs the standard library, so it can also diagnose a broken installation.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import NamedTuple

import directloss

EXTRAS = {
    "fit": "the commands fit and predict",
    "boosting": "boosted trees",
    "transformers": "Hugging Face Trainer",
    "integrations": "scikit-learn, Lightning, skorch, Accelerate and the two before",
    "dev": "working on directloss itself",
}
"""The extras to report, and what they are for."""


BY_HAND = [0.5, -0.111111, 0.111111]
"""Value and gradient of the test loss."""


class Need(NamedTuple):
    """A package that directloss or one of its extras needs."""

    name: str
    least: str
    extra: str

    @property
    def installed(self) -> str:
        """The installed version; empty if there is none."""
        try:
            return version(self.name)
        except PackageNotFoundError:
            return ""

    @property
    def trouble(self) -> str:
        """What is wrong with it; empty if nothing."""
        if not self.installed:
            return f"{self.name} is missing"
        if numbers(self.installed) < numbers(self.least):
            return f"{self.name} {self.installed} is older than {self.least}"
        return ""


def numbers(text: str) -> tuple[int, ...]:
    """A version as comparable numbers.

    Examples:
        >>> numbers("2.13.0+cpu") > numbers("2.4")
        True
    """
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0]))


def parse(lines: list[str]) -> list[Need]:
    """The requirements listed in a package's metadata.

    Examples:
        >>> parse(["torch<3,>=2.4", "pandas>=2; extra == 'fit'"])
        [Need(name='torch', least='2.4', extra=''), Need(name='pandas', least='2', extra='fit')]
    """
    needs = []
    for line in lines:
        package, _, marker = line.partition(";")
        name = re.match(r"[\w.-]+", package)
        least = re.search(r">=\s*([\d.]+)", package)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        if name is not None and name[0] != "directloss":
            needs.append(Need(name[0], least[1] if least else "", extra[1] if extra else ""))
    return needs


def diagnose() -> tuple[list[str], bool]:
    """Lines about this machine, and whether the losses work."""
    lines = [f"directloss {directloss.__version__} on Python {platform.python_version()}, {platform.platform()}"]
    try:
        needs = parse(requires("directloss") or [])
    except PackageNotFoundError:
        needs = []
        lines.append("The package's metadata is missing, so versions are unknown: pip install directloss")
    own = [need for need in needs if not need.extra]
    lines += [f"{need.name} {need.installed}" if not need.trouble else need.trouble for need in own]
    troubles = [need for need in own if need.trouble]
    if troubles:
        lines.append(f"Not usable: pip install --upgrade {' '.join(need.name for need in troubles)}")
        return lines, False
    works = True
    for line, well in probes():
        lines.append(line)
        works &= well
    return [*lines, *extras(needs)], works


def probes() -> Iterator[tuple[str, bool]]:
    """The result of each probe, and whether it succeeded."""
    import torch

    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    yield f"threads: {torch.get_num_threads()}; GPU: {cuda}", True
    for backend, what in {"auto": "compiled loops", "tensor": "tensor operations"}.items():
        began = time.perf_counter()
        try:
            result = _try(backend)
        except Exception as error:
            yield f"{what}: do not work: {type(error).__name__}: {error}", False
            continue
        seconds = time.perf_counter() - began
        well = result == BY_HAND
        yield f"{what}: {'work' if well else f'give {result}'} ({seconds:.1f} s for the first call)", well


def _try(backend: str) -> list[float]:
    """The value and gradient of a loss worked out by hand, with one kind of kernels."""
    import torch

    from directloss.kernels import use

    scores = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    with use(backend):
        loss = directloss.direct_loss(scores, torch.tensor([0, 1, 0]), "ap", noise=0, epsilon=9.0, sign=+1)
        loss.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    return [round(float(number), 6) for number in (loss.detach(), *scores.grad[1:])]


def extras(needs: list[Need]) -> Iterator[str]:
    """One line per extra: complete, or what is missing and how to install it."""
    for extra, purpose in EXTRAS.items():
        # An extra may list a package twice, with different markers.
        missing = dict.fromkeys(need.trouble for need in needs if need.extra == extra and need.trouble)
        state = f"{'; '.join(missing)}: pip install 'directloss[{extra}]'" if missing else "complete"
        yield f"extra {extra} ({purpose}): {state}"


def main() -> int:
    """Print the diagnosis; the exit code is 1 where the losses do not work."""
    lines, works = diagnose()
    print("\n".join(lines))
    return 0 if works else 1
