"""``voc-action``: ten actions of persons in photographs under label noise. ICML 2016, Sec. 4.2, Table 1 and Fig. 4.

The paper: PASCAL VOC2012, the 6,278 persons of "trainval" in equal thirds for training, validation and test; boxes with
16 pixels of context warped to 227 x 227; AlexNet with one output, started from ImageNet's weights; one network for each
class; the whole training third as one batch, 300 iterations; learning rate, regularisation weight and epsilon chosen on
the validation third; cross-entropy, hinge-AP and pos-AP at 0 to 40 % flipped labels.

With ``--dataset chest-xray`` the same experiment runs on photographs in folders of two classes, for example X-ray
images with and without pneumonia.

What the paper leaves open, and what we chose:

- Persons of one photograph, and images of one patient, stay in one third; each seed draws other thirds.
- Labels are flipped in the training and in the validation third, the exact share of all labels; the test third is
  clean. (The caption of Table 1 speaks of noise in the test data, its text of flipping labels at random.)
- Adam, as in `digits-noise` and for the same reason: the sizes of the losses' gradients differ by orders of magnitude.
- The full batch goes through the network in chunks, twice; the gradient is that of one pass over the whole batch.
- ``small`` freezes the convolutions and trains a head on their stored features, averaged over 2 x 2 cells. There the
  number of iterations is chosen as well, by validation AP at every tenth of at most 300 iterations, for all methods
  alike: features without fine-tuning are learned by heart soon, flipped labels and all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from numpy.typing import NDArray
from torch import Tensor

from directloss._checks import DirectLossError, check_choice, fail
from directloss_repro.config import SEARCH_SEED, Grid
from directloss_repro.data import Part, Split
from directloss_repro.data.features import StoredCrops, stored_features
from directloss_repro.data.folders import Photos, read_folders, whole_image
from directloss_repro.data.grouping import thirds_by_group
from directloss_repro.data.images import Pixels, warp
from directloss_repro.data.skipping import Skipped
from directloss_repro.data.split import check_both_labels
from directloss_repro.data.voc import ACTIONS, Devkit, People, find_devkit, read_people
from directloss_repro.data.voc.action import UNKNOWN
from directloss_repro.experiments.base import Experiment, Ready, Say, Source
from directloss_repro.experiments.photos import (
    PhotoConfig,
    make_alexnet,
    make_embed,
    make_model,
    notes_on_weights,
    start_from_weights,
    view_name,
)
from directloss_repro.files import stable_hash

YEAR = 2012


class ActionConfig(PhotoConfig):
    """Which photographs."""

    dataset: str = "voc"

    datasets: ClassVar[tuple[str, ...]] = ("voc", "chest-xray")

    def check(self) -> None:
        super().check()
        check_choice("dataset", self.dataset, self.datasets)
        if self.hard_rounds:
            fail("hard_rounds", "must be 0: all negatives are trained on already", self.hard_rounds)
        if not self.classes:
            fail("classes", "must name at least one class", "empty")
        for name in self.classes if self.dataset == "voc" else ():
            check_choice("classes", name, ACTIONS)


@dataclass(frozen=True, eq=False)
class Items:
    """The items of a data set: what they are called, what belongs together, labels ``(n, classes)``, and crops."""

    names: tuple[str, ...]
    """With everything that a crop depends on, so that another file of the same name is another item."""
    groups: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    read: Callable[[int, int, int], Pixels]
    """``read(k, size, context)`` gives the crop of item ``k``."""
    skipped: Skipped


@lru_cache(maxsize=1)
def items_of(dataset: str, root: str) -> Items:
    """All items of a data set; those whose annotation is broken are left out."""
    return _voc(Path(root)) if dataset == "voc" else _folders(Path(root))


def _voc(root: Path) -> Items:
    skipped = Skipped()
    devkit = find_devkit(root, YEAR)
    people = read_people(devkit, "trainval", ACTIONS, skipped)
    names = tuple(
        f"{person.image} {person.number} {person.box} {_stamp(devkit.image_path(person.image))}"
        for person in people.persons
    )
    groups = tuple(person.image for person in people.persons)
    return Items(names, groups, people.labels, ACTIONS, _reader(devkit, people), skipped)


def _reader(devkit: Devkit, people: People) -> Callable[[int, int, int], Pixels]:
    @lru_cache(maxsize=1)  # persons of one image follow one another
    def image(name: str) -> Pixels:
        return devkit.image(name, devkit.annotation(name))

    def read(index: int, size: int, context: int) -> Pixels:
        person = people.persons[index]
        return warp(image(person.image), person.box, size, context)

    return read


def _folders(root: Path) -> Items:
    photos = read_folders(root, None)
    names = tuple(f"{path.relative_to(root)} {_stamp(path)}" for path in photos.paths)
    labels = torch.stack([1 - 2 * photos.labels, 2 * photos.labels - 1], dim=1)
    return Items(names, photos.groups, labels, photos.classes, _whole(photos), Skipped())


def _whole(photos: Photos) -> Callable[[int, int, int], Pixels]:
    return lambda index, size, _context: whole_image(photos.paths[index], size)


def _stamp(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return "missing"
    return f"{found.st_size} {found.st_mtime_ns}"


@dataclass(frozen=True, eq=False)
class _Stored:
    rows: NDArray[Any]
    good: Tensor
    """Which items the rows are of."""
    skipped: Skipped


def _store(config: ActionConfig, source: Source, say: Say | None = None) -> _Stored:
    """Crops or features of all items that can be read, from the cache or computed now."""
    if source.root is None or source.cache is None:
        fail("the source", "must name the folder of the data and a cache", "without one of them")
    items = items_of(config.dataset, source.root)
    skipped = Skipped()
    embed = make_embed(config, source.weights) if config.layers == "head" else None
    key = view_name(config)
    path = Path(source.cache) / f"{config.dataset}-{key}-{stable_hash(items.names)}.npy"
    stage = f"{'features' if config.layers == 'head' else 'crops'} of photographs"
    rows, good = stored_features(
        items.names,
        lambda index: items.read(index, config.size, config.context),
        embed,
        path,
        key,
        skipped,
        None if say is None else lambda done, total: say(stage, done, total),
    )
    return _Stored(rows, torch.tensor(good), skipped)


@lru_cache(maxsize=1)
def _stored(config: ActionConfig, files: Source) -> _Stored:
    return _store(config, files)


def _data(config: ActionConfig, source: Source) -> Split:
    # Every run has the same files, so they are looked up once.
    stored = _stored(config, Source(0, None, source.root, source.weights, source.cache))
    found = {}
    for name, (place, target) in _parts(config, source, stored.good).items():
        x = StoredCrops(stored.rows, place) if config.layers == "all" else _tensor(stored.rows, place)
        # It behaves as the tensor of all crops wherever the lab touches inputs: it is indexed, and it has a shape.
        found[name] = Part(cast(Tensor, x), target)
    return Split(**found)


def _tensor(rows: NDArray[Any], place: Tensor) -> Tensor:
    return torch.from_numpy(rows[place.numpy()])


def _parts(config: ActionConfig, source: Source, good: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Rows and labels 0 or 1 of the three parts, for one class."""
    items = items_of(config.dataset, source.root or "")
    label = source.label if source.label is not None else config.classes[0]
    if label not in items.classes:
        fail("classes", f"must be among {', '.join(items.classes)}", repr(label))
    column = items.labels[:, items.classes.index(label)]
    place = torch.full((len(items.names),), -1)
    place[good] = torch.arange(len(good))
    usable = (place >= 0) & (column != UNKNOWN)
    found = {}
    for name, index in thirds_by_group(items.groups, config.dataset, source.seed).items():
        kept = index[usable[index]]
        found[name] = place[kept], (column[kept] > 0).long()
    return found


def _look(config: ActionConfig, root: str) -> None:
    items = items_of(config.dataset, root)
    for name in config.classes:
        if name not in items.classes:
            hint = f"Choose with --set 'classes=[\"{items.classes[-1]}\"]'."
            fail("classes", f"must be among {', '.join(items.classes)}", repr(name), hint)


def _ready(config: ActionConfig, source: Source, workers: int, say: Say) -> Ready:
    torch.set_num_threads(workers)
    stored = _store(config, source, say)
    items = items_of(config.dataset, source.root or "")
    skipped = Skipped(reasons=[*items.skipped.reasons, *items.skipped.notes, *stored.skipped.reasons])
    classes = []
    for label in config.classes:
        with skipped.catching():
            _check_class(config, dataclasses.replace(source, label=label), stored.good)
            classes.append(label)
    skipped.check_something_left(len(classes), "the classes")
    return Ready(tuple(classes), tuple(skipped.reasons), notes_on_weights(config, source.weights))


def _check_class(config: ActionConfig, source: Source, good: Tensor) -> None:
    """Both labels in every part that some run will see; otherwise the class is left out before the first run."""
    searched = range(SEARCH_SEED, SEARCH_SEED + config.search_seeds)
    for seed in (*range(config.seeds), *searched):
        for name, (_, target) in _parts(config, dataclasses.replace(source, seed=seed), good).items():
            try:
                check_both_labels(Part(target, target), f"{name} (seed {seed})")
            except DirectLossError as error:
                raise DirectLossError(f"The class {source.label!r} is left out: {error}") from None


_DECAYS = (0.0, 0.001, 0.01)

PAPER = ActionConfig(
    methods=("x-ent", "hinge-ap", "pos-ap"),
    noise=(0.0, 0.1, 0.2, 0.3, 0.4),
    classes=ACTIONS,
    select_on="val",
    direct=Grid((0.00001, 0.0001), _DECAYS, (1.0, 10.0, "auto")),
    hinge=Grid((0.00001, 0.0001), _DECAYS, (1.0, 10.0, 100.0)),
    plain=Grid((0.000003, 0.00001, 0.00003, 0.0001, 0.0003, 0.001), _DECAYS),
    iterations=300,
    evaluate_every=30,
    seeds=3,
    chunk=64,
)

_RATES = (0.0001, 0.0003, 0.001, 0.003)

SMALL = PAPER.but(
    layers="head",
    pool=2,
    hidden=(64,),
    chunk=0,
    early=True,
    evaluate_every=10,
    direct=Grid(_RATES, (0.0, 0.01), (1.0, 10.0, "auto")),
    hinge=Grid(_RATES, (0.0, 0.01), (1.0, 10.0, 100.0)),
    plain=Grid(_RATES, (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)),
    seeds=20,
    search_seeds=3,
)

QUICK = SMALL.but(
    noise=(0.0, 0.4),
    direct=Grid((0.001,), (0.0, 0.01), (10.0, "auto")),
    hinge=Grid((0.001,), (0.0, 0.01), (1.0, 10.0)),
    plain=Grid((0.0003, 0.001), (0.0, 0.01)),
    iterations=100,
    seeds=3,
    search_seeds=1,
)

VOC_ACTION = Experiment(
    name="voc-action",
    summary="Ten actions under label noise, full batch, AlexNet; needs --data-root",
    paper="ICML 2016, Table 1 and Fig. 4; 2015 version, Table 1",
    presets={"quick": QUICK, "small": SMALL, "paper": PAPER},
    data=_data,
    model=make_model,
    look=_look,
    needs_root=True,
    with_dataset={"chest-xray": {"classes": ["PNEUMONIA"]}},
    weights=make_alexnet,
    ready=_ready,
    start=start_from_weights,
)
