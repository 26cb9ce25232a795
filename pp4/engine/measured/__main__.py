"""Answers an arm on its standard streams until they end."""

from __future__ import annotations

from pp4.engine.measured.program import Program
from pp4.worker.answering import answer_requests

if __name__ == "__main__":
    program = Program()
    try:
        answer_requests(program.answer)
    finally:
        program.close()
