"""PASCAL VOC: the folders, lists and annotations of a devkit, as the challenge published them."""

from directloss_repro.data.voc.action import ACTIONS, People, read_people
from directloss_repro.data.voc.annotation import Annotation, Thing, read_annotation
from directloss_repro.data.voc.devkit import OBJECTS, Devkit, find_devkit

__all__ = [
    "ACTIONS",
    "OBJECTS",
    "Annotation",
    "Devkit",
    "People",
    "Thing",
    "find_devkit",
    "read_annotation",
    "read_people",
]
