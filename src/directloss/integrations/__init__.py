"""directloss inside of other libraries: one file for each, and each imports its library only when it is asked for.

sklearn      estimators for pipelines, cross-validation and grid search
lightning    the true metric of a whole validation epoch
"""
