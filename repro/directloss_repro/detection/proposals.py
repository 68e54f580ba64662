"""Selective search (Uijlings et al. 2013) in OpenCV's fast mode, with one file of boxes for each image.

It takes seconds per image, so it runs in several processes, and what is done is kept: an interrupted search goes on
where it stopped. The name of a file says the settings and the content of the image; others are not read.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from directloss._checks import DirectLossError
from directloss_repro.data.images import Pixels, read_image, vision
from directloss_repro.data.skipping import Skipped
from directloss_repro.detection.boxes import Boxes
from directloss_repro.files import whole_file
from directloss_repro.seeding import generator

Progress = Callable[[int, int], None]
"""Told how many of how many are done."""


@dataclass(frozen=True)
class Search:
    """Settings of the search. Defaults: OpenCV's fast mode on images of 500 pixels' width, as in R-CNN."""

    width: int = 500
    """Images are scaled to this width for the search; 0 leaves them as they are."""
    least: int = 20
    """Shortest side of a box, in pixels of the image."""
    most: int = 2500
    """Of more boxes than this a random part is kept."""
    base: int = 150
    step: int = 150
    sigma: float = 0.8

    def key(self, width: int, height: int) -> str:
        """A short text that differs for other settings or another size of the image."""
        text = json.dumps([asdict(self), width, height], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def propose(pixels: Pixels, search: Search, name: str = "") -> Boxes:
    """Boxes ``(n, 4)`` in which an object may lie, each once, in a fixed order."""
    cv2 = vision("cv2")
    height, width = pixels.shape[:2]
    scale = search.width / width if search.width else 1.0
    scaled = cv2.resize(pixels, (max(1, round(width * scale)), max(1, round(height * scale))))
    finder = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    finder.setBaseImage(np.ascontiguousarray(scaled[:, :, ::-1]))
    finder.switchToSelectiveSearchFast(search.base, search.step, search.sigma)
    found = np.asarray(finder.process(), np.float64).reshape(-1, 4)
    boxes = np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], axis=1) / scale
    boxes = np.clip(boxes, 0, [width, height, width, height])
    boxes = boxes[(boxes[:, 2:] - boxes[:, :2]).min(axis=1) >= min(search.least, width, height)]
    # OpenCV orders them with the random numbers of the C library; sorted, they are the same in every run.
    boxes = np.unique(boxes.round(2), axis=0)
    if len(boxes) > search.most:
        chosen = torch.randperm(len(boxes), generator=generator("proposals", name))[: search.most]
        boxes = boxes[np.sort(chosen.numpy())]
    return boxes


def propose_all(
    images: Sequence[Path],
    cache: Path,
    search: Search | None = None,
    workers: int = 1,
    skipped: Skipped | None = None,
    progress: Progress | None = None,
) -> int:
    """Search all images that have no file in ``cache`` yet; return how many were searched now."""
    search = search or Search()
    skipped = Skipped() if skipped is None else skipped
    cache.mkdir(parents=True, exist_ok=True)
    jobs = [(path, cache, search) for path in images]
    searched = 0
    for done, outcome in enumerate(_run(jobs, workers), 1):
        with skipped.catching():
            if isinstance(outcome, DirectLossError):
                raise outcome
            searched += outcome
        if progress is not None:
            progress(done, len(jobs))
    return searched


def _run(jobs: list[tuple[Path, Path, Search]], workers: int) -> Iterator[int | DirectLossError]:
    if workers <= 1:
        yield from map(_job, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker) as pool:
        try:
            yield from pool.map(_job, jobs, chunksize=4)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start_worker() -> None:
    """One thread each, and an end with the parent: a killed search must not leave processes behind."""
    vision("cv2").setNumThreads(1)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _job(job: tuple[Path, Path, Search]) -> int | DirectLossError:
    """1 if the image was searched, 0 if it was known; errors come back as values, so that the others go on."""
    path, cache, search = job
    try:
        pixels = read_image(path)
        target = _file(path, cache, search, pixels)
        if _stored(target) is None:
            _write(target, propose(pixels, search, path.stem))
            return 1
    except DirectLossError as error:
        return error
    return 0


def read_proposals(path: Path, cache: Path, pixels: Pixels, search: Search | None = None) -> Boxes:
    """The boxes of an image, from the cache or searched and stored now."""
    search = search or Search()
    target = _file(path, cache, search, pixels)
    boxes = _stored(target)
    if boxes is None:
        cache.mkdir(parents=True, exist_ok=True)
        boxes = propose(pixels, search, path.stem)
        _write(target, boxes)
    return boxes


def _file(path: Path, cache: Path, search: Search, pixels: Pixels) -> Path:
    content = hashlib.blake2b(np.ascontiguousarray(pixels).tobytes(), digest_size=4).hexdigest()
    return cache / f"{path.stem}-{content}-{search.key(pixels.shape[1], pixels.shape[0])}.npz"


def _stored(path: Path) -> Boxes | None:
    """None for a file that is not there or broken; then it is made anew."""
    # Opened here: np.load leaves a broken file open.
    with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile), path.open("rb") as file:
        boxes: Boxes = np.load(file)["boxes"]
        if boxes.ndim == 2 and boxes.shape[1] == 4:
            return boxes
    return None


def _write(path: Path, boxes: Boxes) -> None:
    with whole_file(path) as part, part.open("wb") as file:
        np.savez_compressed(file, boxes=boxes)
