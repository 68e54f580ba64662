"""The experiments of UniLoss: its Tables 1 to 4, number by number, what it claims, and what else we ask."""

from __future__ import annotations

from collections.abc import Mapping

from directloss_repro.reports.claims import OURS, Claim, Comparison
from directloss_repro.reports.description import UNI, Description, Figure, Reference

TABLE_1 = {"0.1": 91.31, "0.5": 95.13, "0.7": 93.06, "1": 95.71, "3": 95.74, "5": 94.99, "10": 92.25}
"""PCKh on MPII by squared error, for each width of the bumps."""
TABLE_3 = {8: 87.89, 16: 90.05, 32: 90.82, 64: 91.23, 128: 91.64, 256: 90.94, 512: 89.10, 1024: 87.20}
"""Accuracy on CIFAR-10 for each size of the batches."""
TABLE_4 = {
    "ap": {5: 99.88, 10: 99.87, 16: 99.88},
    "accuracy": {5: 91.55, 10: 91.54, 16: 91.64},
    "pck": {5: 94.79, 10: 94.95, 16: 95.77},
}
"""Each of the three tasks, for each number of anchors of each type."""


def _reference(title: str, values: Mapping[str, float], dataset: str = "") -> Reference:
    """Numbers in per cent, as they are printed."""
    means = {method: (round(value / 100, 4),) for method, value in values.items()}
    return Reference(f"Paper, {title}", (0.0,), means, dataset=dataset)


def _alike(
    says: str,
    source: str,
    pairs: tuple[Comparison, ...],
    metric: str,
    within: float,
) -> Claim:
    reading = f"We ask that they differ by less than {100 * within:g} points."
    return Claim(
        says, source, pairs, above=-within, fails_below=-within, under=within, metric=metric, reading=reading
    )  # fmt: skip


def _printed(table: Mapping[int, float]) -> tuple[tuple[float, float], ...]:
    return tuple((float(size), value / 100) for size, value in table.items())


def _gap(table: Mapping[int, float], first: int, second: int) -> float:
    return round((table[first] - table[second]) / 100, 4)


MNIST_AP = Description(
    title="Zeros among other digits",
    question=(
        "One digit in ten is a zero; a network of two hidden layers ranks the images. "
        "Does training on average precision itself, by UniLoss or by direct loss, reach what cross-entropy reaches?"
    ),
    paper=f"{UNI}, Sec. 4.2: AP 0.9988 (UniLoss), 0.9989 (cross-entropy)",
    metrics=("test_ap", "val_ap", "train_ap", "test_accuracy"),
    figures=(Figure("epochs", "ap"), Figure("curve", "test_ap"), Figure("methods", "test_ap")),
    claims=(
        _alike(
            "UniLoss and cross-entropy perform alike.",
            "Sec. 4.2",
            (Comparison("uniloss-ap", "x-ent", -0.0001),),
            "test_ap",
            0.005,
        ),
    ),
    reference=_reference("Sec. 4.2: MNIST", {"uniloss-ap": 99.88, "x-ent": 99.89}, "mnist"),
)

_CLASSES = ("test_accuracy", "val_accuracy", "train_accuracy")
_CURVES = (Figure("epochs", "accuracy", "UniLoss, Fig. 2"), Figure("methods", "test_accuracy", "UniLoss, Table 2"))


def _lower_in_training(first: str, second: str, metric: str) -> Claim:
    return Claim(
        "The training result of UniLoss is a little lower over the whole training.",
        "Appendix B, Fig. 2 and 3",
        (Comparison(second, first),),
        metric=metric,
        reading="Measured at the end of training, as the lead of the conventional loss.",
    )


CIFAR10 = Description(
    title="Ten classes of images",
    question="A ResNet-20 names what an image shows. Does UniLoss on accuracy match cross-entropy, made for it?",
    paper=f"{UNI}, Sec. 4.4, Table 2: accuracy on CIFAR-10 91.64 (UniLoss), 91.49 (cross-entropy)",
    metrics=_CLASSES,
    figures=_CURVES,
    claims=(
        _alike(
            "UniLoss and cross-entropy perform alike.",
            "Sec. 4.4, Table 2",
            (Comparison("uniloss-accuracy", "x-ent", 0.0015),),
            "test_accuracy",
            0.01,
        ),
        _lower_in_training("uniloss-accuracy", "x-ent", "train_accuracy"),
    ),
    reference=_reference("Table 2: CIFAR-10", {"uniloss-accuracy": 91.64, "x-ent": 91.49}, "cifar10"),
)

CIFAR100 = Description(
    title="A hundred classes of images",
    question="The same with a fifth of the comparisons in each step and a schedule five times as long for UniLoss.",
    paper=f"{UNI}, Sec. 4.4, Table 2: accuracy on CIFAR-100 65.92 (UniLoss), 65.90 (cross-entropy)",
    metrics=_CLASSES,
    figures=_CURVES,
    claims=(
        _alike(
            "UniLoss and cross-entropy perform alike.",
            "Sec. 4.4, Table 2",
            (Comparison("uniloss-accuracy", "x-ent", 0.0002),),
            "test_accuracy",
            0.01,
        ),
    ),
    reference=_reference("Table 2: CIFAR-100", {"uniloss-accuracy": 65.92, "x-ent": 65.90}, "cifar100"),
)

_FRAMES = Figure("frames", "val_pck", first="uniloss-pckh")

POSE = Description(
    title="Keypoints from heatmaps",
    question=(
        "An hourglass network says where keypoints are. Does UniLoss on PCK match the squared error against Gaussian "
        "bumps, without having a width to choose?"
    ),
    paper=f"{UNI}, Sec. 4.3, Table 1: PCKh on MPII 95.77 (UniLoss), 91.31 to 95.74 (squared error, widths 0.1 to 10)",
    metrics=("test_pck", "val_pck", "train_pck"),
    figures=(
        Figure("methods", "test_pck", "UniLoss, Table 1"),
        Figure("epochs", "pck", "UniLoss, Fig. 3", first="uniloss-pckh"),
        _FRAMES,
    ),
    claims=(
        _alike(
            "UniLoss is comparable to squared error with the best width.",
            "Table 1",
            (Comparison("uniloss-pckh", "mse-3", 0.0003),),
            "test_pck",
            0.02,
        ),
        Claim(
            "Squared error depends on the width of the bumps: too narrow and too wide ones do worse.",
            "Sec. 4.3, Table 1",
            (Comparison("mse-3", "mse-0.1", 0.0443), Comparison("mse-3", "mse-10", 0.0349)),
            metric="test_pck",
        ),
        _lower_in_training("uniloss-pckh", "mse-3", "train_pck"),
    ),
    reference=_reference(
        "Table 1: MPII",
        {**{f"mse-{width}": value for width, value in TABLE_1.items()}, "uniloss-pckh": 95.77},
        "mpii",
    ),
)

# ---------------------------------------------------------------------- ablations


def _anchors(method: str, table: Mapping[int, float]) -> dict[str, float]:
    return {method: table[16], **{f"{method}:anchors={number}": table[number] for number in (5, 10)}}


def _few_anchors(method: str, task: str, metric: str, within: float) -> Claim:
    table = TABLE_4[task]
    pairs = tuple(Comparison(f"{method}:anchors={few}", method, _gap(table, few, 16)) for few in (5, 10))
    return _alike("Fewer anchors do as well as 16 of each type.", "Sec. 4.5, Table 4", pairs, metric, within)


def _random_anchors(method: str, metric: str) -> Claim:
    return Claim(
        "Random anchors alone cannot train the network.",
        "Sec. 3.4",
        (Comparison(method, f"{method}:random"),),
        above=0.1,
        fails_below=0.1,
        metric=metric,
        reading="We ask for a lead of more than 10 points of the mix of good, nearby and random ones.",
    )


def _questions(method: str, metric: str, rival: str, within: float) -> tuple[Claim, ...]:
    """What the paper does not ask, the same for both metrics."""
    return (
        _alike(
            "Comparisons that are found in the metric's code train as well as those written by hand.",
            OURS,
            (Comparison(f"{method}:automatic", method),),
            metric,
            within / 2,
        ),
        _alike(
            "The distance spline does as well as inverse distances.",
            OURS,
            (Comparison(f"{method}:spline", method),),
            metric,
            within,
        ),
        _alike(
            "It does not matter around which optimum good anchors lie, nor whether all anchors are consistent.",
            OURS,
            (Comparison(f"{method}:nearest", method), Comparison(f"{method}:bits", method)),
            metric,
            within,
        ),
        Claim(
            "The metric's values at the anchors matter: constants in their place do worse.",
            OURS,
            (Comparison(method, f"{method}:control"),),
            metric=metric,
            reading="The constants are 1 for good anchors, 0 for bad ones, and the present value for nearby ones.",
        ),
        _alike(
            "UniLoss and direct loss on the same metric perform alike.",
            OURS,
            (Comparison(method, rival),),
            metric,
            within,
        ),
    )


ABLATION_AP = Description(
    title="What matters in UniLoss: average precision",
    question="Zeros among other digits: anchors, interpolation, the metric's values, and who found the pairs.",
    paper=f"{UNI}, Sec. 4.5 and Table 4",
    metrics=("test_ap", "val_ap", "train_ap"),
    figures=(
        Figure("methods", "test_ap"),
        Figure("sizes", "test_ap", "UniLoss, Table 4", "anchors", _printed(TABLE_4["ap"])),
    ),
    claims=(
        _few_anchors("uniloss-ap", "ap", "test_ap", 0.005),
        _random_anchors("uniloss-ap", "test_ap"),
        *_questions("uniloss-ap", "test_ap", "pos-ap", 0.005),
    ),
    reference=_reference("Table 4: MNIST", {**_anchors("uniloss-ap", TABLE_4["ap"]), "x-ent": 99.89}, "mnist"),
)

ABLATION_ACCURACY = Description(
    title="What matters in UniLoss: accuracy",
    question="A ResNet-20 names what an image shows: anchors, interpolation, the metric's values, who found the pairs.",
    paper=f"{UNI}, Sec. 4.5 and Table 4",
    metrics=_CLASSES,
    figures=(
        Figure("methods", "test_accuracy"),
        Figure("sizes", "test_accuracy", "UniLoss, Table 4", "anchors", _printed(TABLE_4["accuracy"])),
    ),
    claims=(
        _few_anchors("uniloss-accuracy", "accuracy", "test_accuracy", 0.02),
        _random_anchors("uniloss-accuracy", "test_accuracy"),
        *_questions("uniloss-accuracy", "test_accuracy", "both-accuracy", 0.02),
    ),
    reference=_reference(
        "Table 4: CIFAR-10", {**_anchors("uniloss-accuracy", TABLE_4["accuracy"]), "x-ent": 91.49}, "cifar10"
    ),
)

_BATCHES = {f"uniloss-accuracy:batch={size}": value for size, value in TABLE_3.items() if size != 128}

ABLATION_BATCH = Description(
    title="UniLoss with small and large batches",
    question="A batch stands for the whole data set: how small may it be, and how large?",
    paper=f"{UNI}, Sec. 4.5 and Table 3",
    metrics=_CLASSES,
    figures=(
        Figure("sizes", "test_accuracy", "UniLoss, Table 3", "batch", _printed(TABLE_3)),
        Figure("sizes", "train_accuracy", first="batch"),
    ),
    claims=(
        Claim(
            "Very small and very large batches do worse than batches of 128.",
            "Sec. 4.5, Table 3",
            tuple(
                Comparison("uniloss-accuracy", f"uniloss-accuracy:batch={size}", _gap(TABLE_3, 128, size))
                for size in (8, 1024)
            ),
            metric="test_accuracy",
        ),
        _alike(
            "Batches that are not extreme do about as well as batches of 128.",
            "Sec. 4.5, Table 3",
            tuple(
                Comparison(f"uniloss-accuracy:batch={size}", "uniloss-accuracy", _gap(TABLE_3, size, 128))
                for size in (32, 64, 256)
            ),
            "test_accuracy",
            0.02,
        ),
    ),
    reference=_reference("Table 3: CIFAR-10", {**_BATCHES, "uniloss-accuracy": TABLE_3[128]}, "cifar10"),
)

ABLATION_POSE = Description(
    title="What matters in UniLoss: keypoints",
    question="Heatmaps have more comparisons than any other task here: how many anchors do they need?",
    paper=f"{UNI}, Sec. 4.5 and Table 4",
    metrics=("test_pck", "val_pck", "train_pck"),
    figures=(
        Figure("methods", "test_pck"),
        Figure("sizes", "test_pck", "UniLoss, Table 4", "anchors", _printed(TABLE_4["pck"])),
        _FRAMES,
    ),
    claims=(
        Claim(
            "Fewer anchors are slightly worse for keypoints.",
            "Sec. 4.5, Table 4",
            tuple(
                Comparison("uniloss-pckh", f"uniloss-pckh:anchors={few}", _gap(TABLE_4["pck"], 16, few))
                for few in (5, 10)
            ),
            metric="test_pck",
        ),
        Claim(
            "The metric's values at the anchors matter: constants in their place do worse.",
            OURS,
            (Comparison("uniloss-pckh", "uniloss-pckh:control"),),
            metric="test_pck",
        ),
    ),
    reference=_reference("Table 4: MPII", _anchors("uniloss-pckh", TABLE_4["pck"]), "mpii"),
)

UNILOSS: dict[str, Description] = {
    "mnist-ap": MNIST_AP,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "pose": POSE,
    "ablation-ap": ABLATION_AP,
    "ablation-accuracy": ABLATION_ACCURACY,
    "ablation-batch": ABLATION_BATCH,
    "ablation-pose": ABLATION_POSE,
}
