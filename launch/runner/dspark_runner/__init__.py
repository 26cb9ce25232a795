"""A small runner: one sequence, decoded with drafts of a remote DSpark drafter.

It has the shape of the runners that pp4 prepares: a nested package, ``remote_dspark``, that is
replaced before anything is run, and two guards that keep a model's own head for predicting several
tokens (MTP) from drafting beside DSpark.
"""
