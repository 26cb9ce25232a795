"""Receipts drawn for people: figures, a table in the terminal, one self-contained page.

:func:`pp4.report.given.read` verifies files, :func:`pp4.report.document.document` turns them into
the figures of ``--json``, from which :mod:`pp4.console.reports` and :mod:`pp4.report.page` draw.
matplotlib and jinja2, the extra ``pp4[report]``, are needed by the page alone.
"""
