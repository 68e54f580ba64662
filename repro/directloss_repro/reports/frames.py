"""Keypoints on test images: where they are, and where networks see them.

A run leaves the images in ``frames.npz``: ``images`` ``(k, h, w, 3)`` of bytes, ``keypoints`` ``(k, joints, 3)`` with
x, y and the radius of a right prediction (0 for an unknown keypoint), in pixels of heatmaps that are smaller by the
factor ``shrinks``. Records have the predictions of their network as ``shown.points``, in the same pixels.
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
from directloss_repro.reports.curves import Drawing, rivals
from directloss_repro.reports.description import Figure
from directloss_repro.reports.stored import Run
from directloss_repro.reports.style import INK
from directloss_repro.reports.wording import Metric

FILE = "frames.npz"
COLUMNS = 3
"""So many images side by side are still readable."""
TRUE, RIGHT, WRONG, DARK = "#fdfdfd", "#5ad1ff", "#ffb000", "#101010"
"""Colours on photographs, which do not follow the page. No two kinds of mark have the same shape either."""


@dataclass(frozen=True)
class Frames:
    """The images and their keypoints."""

    images: NDArray[np.uint8]
    keypoints: NDArray[np.float64]
    shrinks: float


def load_frames(run: Run) -> Frames | None:
    """The images that a run has left, or None."""
    path = run.folder / FILE
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            found = Frames(stored["images"], stored["keypoints"].astype(np.float64), float(stored["shrinks"]))
        k, joints = found.keypoints.shape[:2]
        good = found.images.ndim == 4 and found.images.dtype == np.uint8 and found.images.shape[::3] == (k, 3)
        if not good or found.keypoints.shape != (k, joints, 3) or not np.isfinite(found.keypoints).all():
            raise ValueError("other shapes")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        fail(str(path), "must hold images and keypoints", f"not ({error!r:.80})", "Delete it to leave them out.")
    return found


def draw_frames(run: Run, figure: Figure, what: Metric, canvas: Canvas, axes: Axes) -> Drawing | None:
    """A row of images for ``first`` and one for its best rival on validation data."""
    frames = load_frames(run)
    if frames is None:
        return None
    found = {
        method: points for method in rivals(run, figure.first, what.key) for points in _points(run, method, frames)
    }
    if not found:
        return None
    axes.remove()
    columns = min(COLUMNS, len(frames.images))
    canvas.set_size_inches(2.2 * columns, 2.45 * len(found) + 0.35)
    room = {"left": 0.01, "right": 0.99, "top": 0.95, "bottom": 0.1, "wspace": 0.03, "hspace": 0.24}
    grid = canvas.subplots(len(found), columns, squeeze=False, gridspec_kw=room)
    told = []
    for row, (method, points) in zip(grid, found.items(), strict=True):
        right = [_frame(place, frames, k, points[k]) for k, place in enumerate(row)]
        known = [int((frames.keypoints[k, :, 2] > 0).sum()) for k in range(columns)]
        for place, good, count in zip(row, right, known, strict=True):
            place.set_xlabel(f"{good} of {count} right", fontsize=8.5, labelpad=2)
        row[0].set_title(method, loc="left", fontsize=9, pad=3)
        told.append(f"{method} {sum(right)} of {sum(known)}")
    _legend(canvas)
    title = "Keypoints on test images"
    caption = (
        f"{title}, of the first seed: {', '.join(told)} right. Circles have the radius within which a prediction is "
        "right; a line joins a wrong one to the place where it should be. The images were not chosen by result."
    )
    return Drawing(title, caption, f"{title}. Right predictions: {', '.join(told)}.")


def _points(run: Run, method: str, frames: Frames) -> list[NDArray[np.float64]]:
    """The predictions of the first seed that left some: one array, or none."""
    for record in sorted(run.final, key=lambda record: record.seed):
        if record.method == method and "points" in record.shown:
            try:
                points = np.asarray(record.shown["points"], dtype=np.float64)
            except (TypeError, ValueError):
                points = np.empty(0)
            wanted = (*frames.keypoints.shape[:2], 2)
            if points.shape != wanted:
                fail(f"'shown' of {method} in {run.folder}", f"must have points of shape {wanted}", points.shape)
            return [points]
    return []


def _frame(axes: Axes, frames: Frames, k: int, points: NDArray[np.float64]) -> int:
    """One image with its marks; how many predictions are right."""
    axes.imshow(frames.images[k].mean(-1), cmap="gray", vmin=0, vmax=255, interpolation="none")
    height, width = frames.images.shape[1:3]
    axes.set(xticks=[], yticks=[], xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    right = 0
    for (x, y, radius), guess in zip(frames.keypoints[k], points, strict=True):
        if radius <= 0:
            continue
        true, seen = _placed(np.array([x, y]), frames), _placed(guess, frames)
        good = bool(((guess - [x, y]) ** 2).sum() <= radius**2)
        right += good
        # A circle must stay visible where the radius is smaller than the mark.
        outline: Any = [withStroke(linewidth=2.2, foreground=DARK)]
        axes.add_patch(
            Circle(tuple(true), max(radius * frames.shrinks, 2.5), fill=False, ec=TRUE, lw=1.0, path_effects=outline)
        )
        if good:
            axes.plot(*seen, marker="o", ms=3.6, color=RIGHT, mec=DARK, mew=0.7)
        else:
            axes.plot(*zip(true, seen, strict=True), color=WRONG, lw=0.7, alpha=0.8)
            axes.plot(
                *seen, marker="x", ms=5, color=WRONG, mew=1.5, path_effects=[withStroke(linewidth=3, foreground=DARK)]
            )
    return right


def _placed(point: NDArray[np.float64], frames: Frames) -> NDArray[np.float64]:
    """From pixels of heatmaps to pixels of the image; both count from the middle of the first one."""
    return (point + 0.5) * frames.shrinks - 0.5


def _legend(canvas: Canvas) -> None:
    def sample(**how: Any) -> Line2D:
        return Line2D([], [], ls="none", **how)

    samples = [
        sample(marker="o", ms=8, mfc="none", mec=INK, mew=1.2, label="true place"),
        sample(marker="o", ms=5, color=RIGHT, mec=DARK, mew=0.7, label="right prediction"),
        sample(marker="x", ms=6, color=WRONG, mew=1.8, label="wrong prediction"),
    ]
    canvas.legend(handles=samples, loc="lower center", ncols=3, frameon=False, fontsize=8.5, handletextpad=0.3)
