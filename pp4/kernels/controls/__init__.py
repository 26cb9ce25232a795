"""Mutants of the fused kernel: what the gates and tests must catch.

A mutant is a renamed copy of the product's source with a few exact edits.  The product has no
switch that could turn a defect on, and an edit that no longer fits its source refuses, so a mutant
cannot silently become a copy of the product.
"""

from pp4.kernels.controls.build import build
from pp4.kernels.controls.edits import Edit, Mutant, apply
from pp4.kernels.controls.registry import MUTANTS

__all__ = ["MUTANTS", "Edit", "Mutant", "apply", "build"]
