"""Figures, one file each; matplotlib draws, :mod:`pp4.report.plots.sheet` makes SVG of it."""
