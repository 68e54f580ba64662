"""Figures show what they say: positions, arrows and curves are checked against their definitions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import directloss as dl

plt = pytest.importorskip("matplotlib.pyplot")

SCORES = torch.tensor([0.4, 2.0, -1.0, 1.0, 0.1])
LABELS = torch.tensor([1, 0, 0, 1, 0])
LOSS = torch.nn.BCEWithLogitsLoss()


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def bce(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return LOSS(scores, target.float())


def test_step_draws_items_rising_and_arrows_against_the_gradient() -> None:
    ax = dl.plot.step(SCORES, LABELS, bce, rate=3.0, names=list("abcde"))
    (arrows,) = ax.collections
    slope = torch.sigmoid(SCORES) - LABELS
    order = SCORES.argsort(descending=True)
    torch.testing.assert_close(torch.as_tensor(arrows.U).float(), -3 / 5 * slope[order], atol=1e-6, rtol=1e-5)
    assert not arrows.V.any()
    assert [label.get_text() for label in ax.get_yticklabels()] == list("bdaec")
    relevant, irrelevant = ax.lines
    assert relevant.get_xydata().tolist() == [[1.0, 2.0], [pytest.approx(0.4), 3.0]]
    assert len(irrelevant.get_xdata()) == 3
    top, bottom = ax.get_ylim()[::-1]
    assert top < bottom, "rank 1 is on top"
    moved = SCORES - 3 / 5 * slope
    assert ax.get_title() == f"loss {bce(SCORES, LABELS):.3f}, after the step {bce(moved, LABELS):.3f}"


def test_longest_arrow_is_a_fifth_of_the_range() -> None:
    (arrows,) = dl.plot.step(SCORES, LABELS, "ap").collections
    assert abs(arrows.U).max() == pytest.approx(0.2 * 3.0, rel=1e-5)


def test_step_of_a_loss_that_moves_nothing_has_no_arrows() -> None:
    (arrows,) = dl.plot.step(SCORES, LABELS, lambda scores, _: (0 * scores).sum()).collections
    assert len(arrows.U) == 0


def test_landscape_without_noise_is_the_loss_and_with_noise_its_mean() -> None:
    ax = dl.plot.landscape(SCORES, LABELS, "ap", item=3, noise=(0.0, 0.5), points=21, samples=4000)
    steps, smooth, now = ax.lines
    for x, y in steps.get_xydata():
        moved = SCORES.clone()
        moved[3] = x
        assert y == pytest.approx(1 - float(dl.metrics.average_precision(moved, LABELS)), abs=1e-6)
    assert now.get_xdata()[0] == 1.0
    heights = torch.as_tensor(smooth.get_ydata())
    assert (heights.diff() < 1e-9).all(), "common noise: a relevant item that rises never hurts"
    far = SCORES.clone()
    far[3] = float(smooth.get_xdata()[-1])
    noisy = far + 0.5 * (2 * torch.rand(20_000, 5) - 1)
    expected = 1 - dl.metrics.average_precision(noisy, LABELS.expand(20_000, 5)).mean()
    assert float(heights[-1]) == pytest.approx(float(expected), abs=0.02)  # 4,000 draws: three deviations


DRAWINGS: dict[str, Callable[[Any], Any]] = {
    "step": lambda ax: dl.plot.step(SCORES, LABELS, bce, ax=ax),
    "landscape": lambda ax: dl.plot.landscape(SCORES, LABELS, noise=[0], points=3, ax=ax),
}


@pytest.mark.parametrize("name", dl.plot.__all__)
def test_every_picture_has_labels_and_draws_where_it_is_told(name: str) -> None:
    _, place = plt.subplots()
    ax = DRAWINGS[name](place)
    assert ax is place
    assert len(plt.get_fignums()) == 1
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert ax.get_legend()
    assert DRAWINGS[name](None) is not place


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dl.plot.step([1.0], LABELS), "scores must be a torch.Tensor"),
        (lambda: dl.plot.step(SCORES[None], LABELS[None]), "scores must be one list"),
        (lambda: dl.plot.step(SCORES, LABELS[:3]), "target must have the shape of scores"),
        (lambda: dl.plot.step(SCORES / 0, LABELS), "scores must be finite"),
        (lambda: dl.plot.step(SCORES, LABELS, bce, rate=-1.0), "rate must be positive"),
        (lambda: dl.plot.step(SCORES, LABELS, bce, names=["a"]), "names must have one name"),
        (lambda: dl.plot.step(SCORES, LABELS, lambda scores, _: scores), "loss must return one number"),
        (lambda: dl.plot.step(SCORES, LABELS, "app"), '"?ap"?'),
        (lambda: dl.plot.step(SCORES, LABELS, bce, ax="here"), "ax must be a matplotlib.axes.Axes"),
        (lambda: dl.plot.landscape(SCORES, LABELS, item=5), "item must be the index of a score"),
        (lambda: dl.plot.landscape(SCORES, LABELS, item=-1), "item must be a whole number"),
        (lambda: dl.plot.landscape(SCORES, LABELS, noise=()), "noise must have at least one scale"),
        (lambda: dl.plot.landscape(SCORES, LABELS, noise=(-1,)), "noise must be a finite number of at least 0"),
        (lambda: dl.plot.landscape(SCORES, LABELS, points=1), "points must be a whole number of at least 2"),
    ],
)
def test_bad_input(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(dl.DirectLossError, match=words):
        call()
    assert not plt.get_fignums(), "a refused call leaves no empty figure"


def test_without_matplotlib_one_line_says_what_to_install() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
import torch, directloss as dl
assert dl.plot.step
try:
    dl.plot.landscape(torch.tensor([0.5, 0.0]), torch.tensor([1, 0]))
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "directloss.plot needs matplotlib: pip install matplotlib\n"


def test_landscape_of_a_function_is_the_mean_over_its_draws() -> None:
    def all_right(scores: Tensor, target: Tensor) -> Tensor:
        return ((scores > 0) == (target == 1)).float().prod()

    scores, target = torch.tensor([0.5, -0.3, 0.2]), torch.tensor([1, 0, 1])
    draw = torch.Generator().manual_seed(0)
    ax = dl.plot.landscape(scores, target, all_right, noise=(1.0,), points=3, samples=1_000, generator=draw)
    middle = ax.lines[0].get_ydata()[1]  # type: ignore[index]
    assert 1 - float(middle) == pytest.approx(0.55 * 0.65 * 0.6, abs=0.05)  # four deviations; the first score is 0.1
