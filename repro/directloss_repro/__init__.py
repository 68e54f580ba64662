"""The laboratory: the papers' experiments, one command each. Needs the ``[lab]`` extra.

An experiment declares data, model, methods, search space and evaluation. One loop trains (`training`), one search
chooses hyper-parameters (`search`), every finished run is a line in a file (`records`), and reports are drawn from
those lines alone.
"""
