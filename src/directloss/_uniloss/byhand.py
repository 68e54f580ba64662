"""The paper's three refactorings, Sec. 3.2 and 4.2 to 4.4: relevant scores against irrelevant ones.

    accuracy   the right class against the others, for each item               Eq. (8)
    ap         relevant items against irrelevant ones                          Sec. 4.2
    pckh       pixels near the keypoint against the others, for each heatmap   Sec. 4.3

All three depend only on how many irrelevant scores beat each relevant one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from directloss._checks import check_labels, check_same_shape, fail
from directloss._uniloss.best import ideal_scores
from directloss._uniloss.comparisons import Pairs
from directloss._uniloss.lists import Layout, of_labels
from directloss._uniloss.refactoring import Bound, Refactored
from directloss.kernels import BINARY
from directloss.metrics.classification import check_class_problem
from directloss.metrics.ranking import average_precision


class PairRefactoring(Refactored):
    """Lists of relevant and irrelevant scores; the metric depends on the lost comparisons."""

    counting: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def lists(self, scores: Tensor, target: Tensor) -> Tensor:
        """Labels 1, 0 or -1 (neither) of each score, as lists ``(b, n)`` of the flattened scores."""

    def of_lost(self, lost: Tensor) -> Tensor:
        """The metric ``(k,)`` of one list, from the numbers ``(k, p)`` of comparisons that its relevant scores lose.

        By default a hit: some relevant score loses none.
        """
        return (lost == 0).any(-1).to(torch.get_default_dtype())

    @abstractmethod
    def plain(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The metric of scores ``(k, b, n)`` with labels ``(b, n)``: shape ``(k,)``."""

    def layout(self, scores: Tensor, target: Tensor, refuse: Callable[[], object] | None = None) -> Layout | None:
        """The lists as compiled loops read them; None if there is nothing to compare.

        With `layout_checks` it checks the labels as well, and calls ``refuse`` if one is not allowed.
        """
        return of_labels(self.lists(scores, target).numpy())

    def bind(self, scores: Tensor, target: Tensor) -> Bound | None:
        """See `Refactored.bind`."""
        labels = self.lists(scores, target)
        places = torch.arange(labels.numel(), device=labels.device).reshape(labels.shape)
        comparisons = Pairs.of(places, labels == 1, labels == 0)
        if comparisons is None:
            return None
        best = ideal_scores(scores.reshape(labels.shape), labels)
        assert best is not None
        return Bound(
            scores=scores.flatten(),
            comparisons=comparisons,
            measure=lambda rows: self.plain(rows.reshape(len(rows), *labels.shape), labels),
            decide=lambda bits: self.of_binaries(bits, comparisons),
            best_scores=best.flatten(),
            counting=self.counting,
        )

    def of_binaries(self, bits: Tensor, pairs: Pairs) -> Tensor:
        """g: the metric ``(k,)`` of configurations ``(k, l)``, a mean over the lists with something to compare."""
        return torch.stack([self.of_lost((~table).sum(-1)) for table in pairs.tables(bits)]).mean(0)


class AccuracyPairs(PairRefactoring):
    """Multi-class accuracy: the right class beats each other class, Eq. (8)."""

    event_dims = 2
    shape_words = "(..., n, c)"
    counting = "hit"

    def check(self, scores: Tensor, target: Tensor) -> None:
        """Check that the target holds one class index per row of scores."""
        if scores.shape[-1] < 2:
            fail("scores", "must have at least two classes in the last dimension", f"of shape {tuple(scores.shape)}")
        check_class_problem(scores, target)

    def lists(self, scores: Tensor, target: Tensor) -> Tensor:
        """Each item is a list of classes."""
        labels = torch.zeros(scores.shape, dtype=torch.int8, device=scores.device)
        return labels.scatter_(-1, target.long()[:, None], 1)

    def plain(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The share of items whose best class is the right one."""
        right = rows.argmax(-1) == labels.argmax(-1)
        return right.to(rows.dtype).mean(-1)


class AveragePrecisionPairs(PairRefactoring):
    """Average precision: relevant items above irrelevant ones, Sec. 4.2."""

    event_dims = 1
    counting = "ap"
    layout_checks = True

    def check(self, scores: Tensor, target: Tensor) -> None:
        """Check that labels are 0 or 1; padding has been set to 0."""
        check_same_shape(target, scores)
        check_labels(target, (0, 1), BINARY)

    def lists(self, scores: Tensor, target: Tensor) -> Tensor:
        """All items are one list."""
        return target[None].to(torch.int8)

    def layout(self, scores: Tensor, target: Tensor, refuse: Callable[[], object] | None = None) -> Layout | None:
        """The layout of a single list; labels are valid if every item is on one of the two sides."""
        check_same_shape(target, scores)
        labels = (target.float() if target.dtype == torch.bfloat16 else target).numpy()
        relevant, irrelevant = (labels == 1).nonzero()[0], (labels == 0).nonzero()[0]
        p, n = len(relevant), len(irrelevant)
        if refuse is not None and p + n < len(labels):
            refuse()
        return Layout.of(relevant, irrelevant, (p,), (n,)) if p and n else None

    def of_lost(self, lost: Tensor) -> Tensor:
        """The k-th best relevant item, which loses ``lost`` comparisons, has precision k / (k + lost)."""
        place = torch.arange(1, lost.shape[-1] + 1, device=lost.device)
        return (place / (place + lost.sort(-1).values)).mean(-1)

    def plain(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Average precision, with the library's rule for ties."""
        return average_precision(rows[:, 0], labels.expand(len(rows), -1))


class KeypointPairs(PairRefactoring):
    """PCKh: some pixel near the keypoint beats all other pixels, Sec. 4.3.

    Scores are heatmaps ``(..., h, w)``; the target, in their shape, is 1 within the radius around the true keypoint,
    0 outside, and -1 for pixels to ignore. All heatmaps are one problem.
    """

    least_dims = 2
    shape_words = "(..., h, w)"
    unit = "score"
    counting = "hit"

    def check(self, scores: Tensor, target: Tensor) -> None:
        """Check the labels of the pixels."""
        check_same_shape(target, scores)
        check_labels(target, (0, 1, -1), "1 is near the keypoint, 0 is not, and -1 is ignored.")

    def lists(self, scores: Tensor, target: Tensor) -> Tensor:
        """Each heatmap is a list of pixels."""
        return target.reshape(-1, target.shape[-2] * target.shape[-1]).to(torch.int8)

    def plain(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The share of heatmaps whose highest pixel is relevant, among those with both kinds of pixels."""
        kept = (labels == 1).any(-1) & (labels == 0).any(-1)
        counted = torch.where(labels[kept] < 0, -torch.inf, rows[:, kept])
        best = counted.argmax(-1)
        found = labels[kept].expand(len(rows), -1, -1).gather(-1, best[..., None])[..., 0] == 1
        return found.to(rows.dtype).mean(-1)

    def hide(self, scores: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mark padding as pixels to ignore."""
        return torch.where(mask, scores, 0.0), torch.where(mask, target.to(torch.int8), -1)


BY_HAND: dict[str, Refactored] = {
    "accuracy": AccuracyPairs(),
    "ap": AveragePrecisionPairs(),
    "pckh": KeypointPairs(),
}
