"""``directloss doctor``: what is installed, whether the losses work here, and how to install what is missing.

It only needs the standard library, so it can also diagnose a broken installation.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

import directloss

BY_HAND = [0.5, -0.111111, 0.111111]
"""Value and gradient of the test loss."""


def main() -> int:
    """Print the diagnosis; the exit code is 1 where the losses do not work."""
    works = True
    for line, well in diagnose():
        print(line, flush=True)
        works &= well
    return 0 if works else 1


def diagnose() -> Iterator[tuple[str, bool]]:
    """Lines about this machine, and whether what they tell lets the losses work."""
    yield f"directloss {directloss.__version__} on Python {platform.python_version()}, {platform.platform()}", True
    try:
        lines = requires("directloss") or []
    except PackageNotFoundError:
        yield "The package's metadata is missing, so versions are unknown: pip install directloss", True
        lines = []
    missing: dict[str, list[str]] = {"": []}
    for name, extra in dict.fromkeys(map(parse, lines)):  # a package may be listed twice, with different markers
        found = installed(name)
        missing.setdefault(extra, []).extend([] if found else [name])
        if not extra:
            yield f"{name} {found or 'is missing'}", bool(found)
    if missing[""]:
        yield f"Not usable: pip install {' '.join(missing[''])}", False
        return
    yield from probes()
    for extra, names in missing.items():
        if extra not in ("", "dev", "docs"):
            state = f"{', '.join(names)} missing: pip install 'directloss[{extra}]'" if names else "complete"
            yield f"extra {extra}: {state}", True


def parse(line: str) -> tuple[str, str]:
    """The package and the extra of a requirement in a package's metadata.

    Examples:
        >>> parse("torch<3,>=2.4"), parse("pandas>=2; extra == 'fit'")
        (('torch', ''), ('pandas', 'fit'))
    """
    extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
    return re.split(r"[^\w.-]", line, maxsplit=1)[0], extra[1] if extra else ""


def installed(name: str) -> str:
    """The installed version of a package; empty if there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


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
