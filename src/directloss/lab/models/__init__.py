"""Scorers: networks that give each item one number."""

from directloss.lab.models.mlp import Scorer

__all__ = ["Scorer"]
