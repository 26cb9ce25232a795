"""These tests import the GPU side, which chooses the interpreter when Triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
