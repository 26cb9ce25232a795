"""Receipts: canonical bytes, digests, models, admission, verification, storage.

This package imports nothing of pp4 but its errors, and no torch: a receipt stays checkable on any
machine, years later.

:func:`pp4.receipts.build.build` makes the bytes of a receipt, :func:`pp4.receipts.store.write_new`
stores them, :func:`pp4.receipts.verify.verify` checks files and
:func:`pp4.receipts.admission.admit` decides whether evidence opens a window.  Nothing is imported
here: what needs canonical bytes alone loads no models.
"""
