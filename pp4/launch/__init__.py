"""Launch preparation: a reviewed runner tree is staged, every change of it made exactly once.

:func:`pp4.launch.prepare.prepare` does it all; docs/prepare.md says what it holds a tree to.
"""
