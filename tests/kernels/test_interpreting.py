"""The quicker interpreters give what the plain one gives, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

BOTH_WAYS = """
from triton.runtime import interpreter
from pp4.kernels import interpreting
from tests.kernels.cases import differences, random_case, solo

mapped = []
plain = interpreter._patch_lang
interpreter._patch_lang = lambda fn: (mapped.append(fn), plain(fn))[1]
case = random_case(11, cached=(3, 4, 5))
for change in (lambda: None, interpreting.repeat_nothing, interpreting.quicken):
    change()
    mapped.clear()
    _, outputs = solo(case)
    assert not differences(outputs, case.expected())
    print(len(mapped), int(interpreter.interpreter_builder.options.sanitize_overflow))
"""


def test_quick_and_plain_give_the_reference():
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-c", BOTH_WAYS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    often, rarely, quick = (
        [int(word) for word in line.split()] for line in done.stdout.splitlines()
    )
    # once for each launch and each module of the language, however many calls there are
    assert rarely[0] == quick[0] <= 4 < often[0]
    # overflow stays checked until everything is made quick
    assert (often[1], rarely[1], quick[1]) == (1, 1, 0)
