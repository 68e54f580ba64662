"""Keypoints: is the highest pixel of a heatmap close enough to the keypoint?

PCK is the share of keypoints predicted within a fraction of a reference length. With the head as reference it
is called PCKh (Andriluka et al., 2D Human Pose Estimation, CVPR 2014), with fraction 0.5 as the usual number.

The prediction is the pixel with the highest score; ties go to the lowest index, rows first. Pixel ``[row, column]`` is
at ``y = row``, ``x = column``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from directloss._checks import check_finite, check_labels, check_mask, check_positive, check_scores, check_tensor, fail
from directloss.metrics.classification import mean_over_items


def pckh(
    heatmaps: Tensor, keypoints: Tensor, reference: Tensor, fraction: float = 0.5, visible: Tensor | None = None
) -> Tensor:
    """Share of keypoints whose highest pixel lies within ``fraction * reference`` of the truth.

    Args:
        heatmaps: shape ``(..., joints, h, w)``.
        keypoints: shape ``(..., joints, 2)``, each ``(x, y)`` in pixels of the heatmap.
        reference: shape ``(...,)``, a length in pixels of the heatmap, such as the head size.
        fraction: allowed distance, as a fraction of the reference length.
        visible: shape ``(..., joints)``, False for keypoints that do not count; all count without it.

    Returns:
        One number of shape ``()``: the mean over all keypoints that count, or 1 if none does.

    Reference:
        Liu, Wang, Deng, UniLoss (ECCV 2020), Sec. 4.1 and 4.3.

    Examples:
        >>> heatmaps = torch.zeros(2, 4, 4)
        >>> heatmaps[0, 1, 2] = heatmaps[1, 3, 3] = 1.0
        >>> pckh(heatmaps, torch.tensor([[2.0, 1.5], [0.0, 0.0]]), torch.tensor(2.0))
        tensor(0.5000)
    """
    heatmaps = _check_heatmaps(heatmaps)
    keypoints = _check_keypoints(keypoints, heatmaps.shape[:-2])
    reference = check_tensor("reference", reference)
    if reference.shape != heatmaps.shape[:-3]:
        rule = f"must hold one length for each set of keypoints, shape {tuple(heatmaps.shape[:-3])}"
        fail("reference", rule, f"of shape {tuple(reference.shape)}")
    if not bool((torch.isfinite(reference) & (reference > 0)).all()):
        fail("reference", "must be positive and finite", f"as low as {float(reference.min())}")
    radius = check_positive("fraction", fraction) * reference.double()
    counted = _check_visible(visible, heatmaps.shape[:-2])
    # In float64 and squared, as in `within_radius`, so that both agree on pixels exactly on the circle.
    offset = _highest_pixel(heatmaps).double() - keypoints.double()
    return mean_over_items(offset.square().sum(-1) <= radius.square().unsqueeze(-1), counted, heatmaps)


def within_radius(keypoints: Tensor, radius: Tensor | float, size: tuple[int, int]) -> Tensor:
    """Which pixels count as right: 1 within ``radius`` of the keypoint, otherwise 0. The nearest pixel always counts.

    Args:
        keypoints: shape ``(..., joints, 2)``, each ``(x, y)`` in pixels.
        radius: a number, or shape ``(..., joints)``.
        size: height and width of the heatmaps.

    Returns:
        Shape ``(..., joints, h, w)``, long.

    Examples:
        >>> within_radius(torch.tensor([[1.0, 0.0]]), 1.0, (2, 4))
        tensor([[[1, 1, 1, 0],
                 [0, 1, 0, 0]]])
    """
    keypoints = check_tensor("keypoints", keypoints)
    keypoints = _check_keypoints(keypoints, keypoints.shape[:-1])
    if min(size) < 1:
        fail("size", "must be a height and a width of at least 1", size)
    limit = torch.as_tensor(radius, dtype=torch.float64, device=keypoints.device)
    if limit.dim() and limit.shape != keypoints.shape[:-1]:
        rule = f"must be a number or of shape {tuple(keypoints.shape[:-1])}"
        fail("radius", rule, f"of shape {tuple(limit.shape)}")
    if not bool((torch.isfinite(limit) & (limit >= 0)).all()):
        fail("radius", "must be finite and not negative", f"as low as {float(limit.min())}")
    rows, columns = (torch.arange(length, dtype=torch.float64, device=keypoints.device) for length in size)
    x, y = keypoints.double().unbind(-1)
    distance = (rows - y[..., None]).square()[..., :, None] + (columns - x[..., None]).square()[..., None, :]
    within = distance <= limit.square()[..., None, None]
    nearest = torch.zeros_like(within).flatten(-2)
    nearest.scatter_(-1, distance.flatten(-2).argmin(-1, keepdim=True), True)
    return (within | nearest.view_as(within)).long()


def pck_from_within(heatmaps: Tensor, within: Tensor, visible: Tensor | None = None) -> Tensor:
    """Share of heatmaps whose highest pixel is right, as given by `within_radius`.

    Args:
        heatmaps: shape ``(..., joints, h, w)``.
        within: the same shape, 1 for right pixels and 0 for the others.
        visible: shape ``(..., joints)``, False for keypoints that do not count; all count without it.

    Examples:
        >>> heatmaps = torch.tensor([[[0.1, 0.9], [0.3, 0.2]]])
        >>> pck_from_within(heatmaps, torch.tensor([[[0, 1], [0, 0]]]))
        tensor(1.)
    """
    heatmaps = _check_heatmaps(heatmaps)
    within = check_tensor("within", within)
    if within.shape != heatmaps.shape:
        fail("within", f"must have the shape of heatmaps, {tuple(heatmaps.shape)}", f"of shape {tuple(within.shape)}")
    check_labels(within)
    best = heatmaps.flatten(-2).argmax(-1, keepdim=True)
    right = within.flatten(-2).gather(-1, best).squeeze(-1) > 0
    return mean_over_items(right, _check_visible(visible, heatmaps.shape[:-2]), heatmaps)


def _highest_pixel(heatmaps: Tensor) -> Tensor:
    """``(x, y)`` of the highest pixel of each heatmap."""
    best = heatmaps.flatten(-2).argmax(-1)
    width = heatmaps.shape[-1]
    return torch.stack([best % width, best // width], -1)


def _check_heatmaps(heatmaps: object) -> Tensor:
    heatmaps = check_scores(heatmaps, 3, "(..., joints, h, w)", "heatmaps")
    check_finite(heatmaps, "heatmaps")
    return heatmaps.detach()


def _check_keypoints(keypoints: object, shape: torch.Size) -> Tensor:
    keypoints = check_tensor("keypoints", keypoints)
    if keypoints.dim() < 2 or keypoints.shape != (*shape, 2):
        words = (*shape, 2) if keypoints.shape[:-1] != shape else "(..., joints, 2)"
        fail("keypoints", f"must hold one (x, y) for each heatmap, shape {words}", f"of shape {tuple(keypoints.shape)}")
    if keypoints.is_complex() or keypoints.dtype == torch.bool:
        fail("keypoints", "must be real numbers", keypoints.dtype)
    check_finite(keypoints, "keypoints")
    return keypoints


def _check_visible(visible: Tensor | None, shape: torch.Size) -> Tensor | None:
    return None if visible is None else check_mask(visible, shape, "the keypoints", "visible")
