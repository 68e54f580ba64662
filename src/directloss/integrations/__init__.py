"""directloss inside other libraries, one file each, which imports its library on first use.

sklearn      estimators for pipelines, cross-validation and grid search
lightning    the true metric of a whole validation epoch
pyepo        PyEPO models as tasks
"""
