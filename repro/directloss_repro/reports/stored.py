"""The reader of records, under its former name; import it from `directloss_repro.records`."""

from directloss_repro.folder import RUN_FILE as RUN
from directloss_repro.records import METHODS, Record, Run, group_order, load_run, method_order

__all__ = ["METHODS", "RUN", "Record", "Run", "group_order", "load_run", "method_order"]
