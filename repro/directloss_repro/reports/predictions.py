"""Pictures of test images that a run stored in its folder, with keypoints.

``frames.npz``: ``images`` ``(k, h, w, 3)`` of bytes; ``keypoints`` ``(k, joints, 3)``: x, y and the radius of a right
prediction (0 if unknown), in pixels of heatmaps that are smaller by the factor ``shrinks``; ``bones``, pairs of joints
to connect. Records have the predictions as ``shown.points``, in the same pixels.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from directloss._checks import fail
from directloss_repro.records import Run
from directloss_repro.reports.style import INK

FILE = "frames.npz"
COLUMNS = 3
"""The most images that are readable side by side."""
TRUE, RIGHT, WRONG, DARK = "#fdfdfd", "#5ad1ff", "#ffb000", "#101010"
"""Colours on photographs, the same in light and dark mode. The kinds of marks differ in shape, too."""


@dataclass(frozen=True)
class Frames:
    """The images and their keypoints."""

    images: NDArray[np.uint8]
    keypoints: NDArray[np.float64]
    shrinks: float
    bones: NDArray[np.int64]
    """Pairs of keypoints to connect; there may be none."""


def load_frames(run: Run) -> Frames | None:
    """The images that a run stored, or None."""
    path = run.folder / FILE
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            images, keypoints = stored["images"], stored["keypoints"].astype(np.float64)
            pairs = np.asarray(stored.get("bones", []), np.int64).reshape(-1, 2)
            found = Frames(images, keypoints, float(stored["shrinks"]), pairs)
        k, joints = keypoints.shape[:2]
        if pairs.size and not 0 <= pairs.min() <= pairs.max() < joints:
            raise ValueError("bones of other keypoints")
        good = images.ndim == 4 and images.dtype == np.uint8 and images.shape[::3] == (k, 3)
        if not good or keypoints.shape != (k, joints, 3) or not np.isfinite(keypoints).all():
            raise ValueError("other shapes")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        fail(str(path), "must hold images and keypoints", f"not ({error!r:.80})", "Delete it to omit them.")
    return found


def draw_frames(run: Run, methods: list[str], canvas: Canvas) -> str:
    """Draw a row of images per method; return how many predictions are right, in words, or "" if there are none."""
    frames = load_frames(run)
    found = {method: points for method in methods if (points := _points(run, method, frames)) is not None}
    if frames is None or not found:
        return ""
    columns = min(COLUMNS, len(frames.images))
    canvas.set_size_inches(2.2 * columns, 2.45 * len(found) + 0.35)
    grid = canvas.subplots(len(found), columns, squeeze=False)
    known = [int((frames.keypoints[k, :, 2] > 0).sum()) for k in range(columns)]
    told = []
    for row, (method, points) in zip(grid, found.items(), strict=True):
        right = [_frame(axes, frames, k, points[k]) for k, axes in enumerate(row)]
        for axes, good, count in zip(row, right, known, strict=True):
            axes.set_xlabel(f"{good} of {count} right", fontsize=8.5, labelpad=2)
        row[0].set_title(method, loc="left", fontsize=9, pad=3)
        told.append(f"{method} {sum(right)} of {sum(known)}")
    _legend(canvas)
    return ", ".join(told)


def _points(run: Run, method: str, frames: Frames | None) -> NDArray[np.float64] | None:
    """The predictions of the first seed that has any."""
    shown = {r.seed: r.shown["points"] for r in run.final if r.method == method and "points" in r.shown}
    if frames is None or not shown:
        return None
    try:
        points = np.asarray(shown[min(shown)], dtype=np.float64)
    except (TypeError, ValueError):
        points = np.empty(0)
    wanted = (*frames.keypoints.shape[:2], 2)
    if points.shape != wanted:
        fail(f"'shown' of {method} in {run.folder}", f"must have points of shape {wanted}", points.shape)
    return points


def _frame(axes: Axes, frames: Frames, k: int, points: NDArray[np.float64]) -> int:
    """Draw one image with its marks; return how many predictions are right."""
    axes.imshow(frames.images[k].mean(-1), cmap="gray", vmin=0, vmax=255, interpolation="none")
    height, width = frames.images.shape[1:3]
    axes.set(xticks=[], yticks=[], xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    known = frames.keypoints[k, :, 2] > 0
    for pair in frames.bones[known[frames.bones].all(-1)]:
        axes.plot(*_placed(points[pair], frames).T, color=RIGHT, lw=1.0, alpha=0.6)
    right = 0
    for truth, guess in zip(frames.keypoints[k], points, strict=True):
        radius = truth[2]
        if radius <= 0:
            continue
        true, seen = _placed(truth[:2], frames), _placed(guess, frames)
        good = bool(((guess - truth[:2]) ** 2).sum() <= radius**2)
        right += good
        # Keep the circle visible if the radius is smaller than the mark.
        size, outline = max(radius * frames.shrinks, 2.5), [withStroke(linewidth=2.2, foreground=DARK)]
        axes.add_patch(Circle(tuple(true), size, fill=False, ec=TRUE, lw=1.0, path_effects=outline))
        if good:
            axes.plot(*seen, marker="o", ms=3.6, color=RIGHT, mec=DARK, mew=0.7)
        else:
            axes.plot(*zip(true, seen, strict=True), color=WRONG, lw=0.7, alpha=0.8)
            outline = [withStroke(linewidth=3, foreground=DARK)]
            axes.plot(*seen, marker="x", ms=5, color=WRONG, mew=1.5, path_effects=outline)
    return right


def _placed(points: NDArray[np.float64], frames: Frames) -> NDArray[np.float64]:
    """Map heatmap pixels to image pixels; both count from the centre of the first pixel."""
    return (points + 0.5) * frames.shrinks - 0.5


def _legend(canvas: Canvas) -> None:
    marks: dict[str, dict[str, Any]] = {
        "true place": {"marker": "o", "ms": 8, "mfc": "none", "mec": INK, "mew": 1.2},
        "right prediction": {"marker": "o", "ms": 5, "color": RIGHT, "mec": DARK, "mew": 0.7},
        "wrong prediction": {"marker": "x", "ms": 6, "color": WRONG, "mew": 1.8},
    }
    samples = [Line2D([], [], ls="none", label=label, **how) for label, how in marks.items()]
    canvas.legend(handles=samples, loc="outside lower center", ncols=3, handletextpad=0.3)
