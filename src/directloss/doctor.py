"""``directloss doctor``: versions, and whether the losses work here.

It only needs the standard library, so it can also diagnose a broken installation.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import directloss

NEEDED = ("torch", "numpy", "scipy", "numba")
BY_HAND = [0.5, 0.25, -0.25]
"""Value and gradient of the test loss, whatever the noise: each item alone decides whether AP is 1 or 1/2."""


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
    found = {name: installed(name) for name in NEEDED}
    for name, number in found.items():
        yield f"{name} {number or 'is missing'}", bool(number)
    if all(found.values()):
        yield from probes()
    else:
        yield f"Not usable: pip install {' '.join(name for name, number in found.items() if not number)}", False


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

    scores = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    with use(backend):
        loss = directloss.direct_loss(scores, torch.tensor([0, 1]), "ap", noise=1.0, likelihood=0.0)
        loss.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    return [round(float(number), 6) for number in (loss.detach(), *scores.grad)]
