"""Metrics: one definition of each, for training and evaluation.

Every function takes ``scores`` and ``target`` (and a ``mask`` for padding) and returns one value per problem;
`normalised_regret` evaluates the decisions of a whole data set.
"""

from directloss.metrics.classification import (
    accuracy,
    balanced_accuracy,
    binary_accuracy,
    dice,
    error,
    f_beta,
    g_mean,
    iou,
    kappa,
    matthews,
    precision,
    recall,
    top_k_accuracy,
)
from directloss.metrics.decisions import normalised_regret
from directloss.metrics.graded import graded_dcg, graded_ndcg
from directloss.metrics.pose import pck_from_within, within_radius
from directloss.metrics.ranking import (
    auc,
    average_precision,
    dcg,
    ndcg,
    partial_auc,
    precision_at_k,
    precision_at_recall,
    recall_at_fpr,
    recall_at_k,
    reciprocal_rank,
)

__all__ = [
    "accuracy",
    "auc",
    "average_precision",
    "balanced_accuracy",
    "binary_accuracy",
    "dcg",
    "dice",
    "error",
    "f_beta",
    "g_mean",
    "graded_dcg",
    "graded_ndcg",
    "iou",
    "kappa",
    "matthews",
    "ndcg",
    "normalised_regret",
    "partial_auc",
    "pck_from_within",
    "precision",
    "precision_at_k",
    "precision_at_recall",
    "recall",
    "recall_at_fpr",
    "recall_at_k",
    "reciprocal_rank",
    "top_k_accuracy",
    "within_radius",
]
