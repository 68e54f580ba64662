"""Keypoints: is the highest pixel of a heatmap close enough to the keypoint?

PCK is the share of keypoints predicted within a fraction of a reference length. With the head as reference it
is called PCKh (Andriluka et al., 2D Human Pose Estimation, CVPR 2014), with fraction 0.5 as the usual number:
``pck_from_within(heatmaps, within_radius(keypoints, 0.5 * heads, size))``.

The prediction is the pixel with the highest score; ties go to the lowest index, rows first. Pixel ``[row, column]`` is
at ``y = row``, ``x = column``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from directloss._checks import check_finite, check_labels, check_mask, check_scores, check_tensor, fail
from directloss.metrics.classification import mean_over_items


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
    shape = check_tensor("keypoints", keypoints).shape
    if len(shape) < 2 or shape[-1] != 2:
        fail("keypoints", "must hold one (x, y) for each heatmap, shape (..., joints, 2)", f"of shape {tuple(shape)}")
    if keypoints.is_complex() or keypoints.dtype == torch.bool:
        fail("keypoints", "must be real numbers", keypoints.dtype)
    check_finite(keypoints, "keypoints")
    if min(size) < 1:
        fail("size", "must be a height and a width of at least 1", size)
    limit = torch.as_tensor(radius, dtype=torch.float64, device=keypoints.device)
    if limit.dim() and limit.shape != shape[:-1]:
        fail("radius", f"must be a number or of shape {tuple(shape[:-1])}", f"of shape {tuple(limit.shape)}")
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
    heatmaps = check_scores(heatmaps, 3, "(..., joints, h, w)", "heatmaps").detach()
    check_finite(heatmaps, "heatmaps")
    within = check_tensor("within", within)
    if within.shape != heatmaps.shape:
        fail("within", f"must have the shape of heatmaps, {tuple(heatmaps.shape)}", f"of shape {tuple(within.shape)}")
    check_labels(within)
    best = heatmaps.flatten(-2).argmax(-1, keepdim=True)
    right = within.flatten(-2).gather(-1, best).squeeze(-1) > 0
    if visible is not None:
        visible = check_mask(visible, heatmaps.shape[:-2], "the keypoints", "visible")
    return mean_over_items(right, visible, heatmaps)
