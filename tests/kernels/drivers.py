"""Scripts that compile and load for a GPU, with a driver that stands in for its own.

Compilation, Triton's cache and its hooks are real there; no module is loaded anywhere and nothing
runs.
"""

import json
import os

from tests.kernels.compiling import ROOT, python

PRELUDE = """
import json, sys
from dataclasses import replace
from pathlib import Path
import torch, triton
from triton.backends.compiler import GPUTarget

from pp4.errors import Pp4Error
from pp4.kernels import loading, sampled_fused
from pp4.kernels.compile import compile_offline
from pp4.kernels.controls import build
from pp4.kernels.geometry import Geometry
from pp4.kernels.link import SoloLink
from pp4.kernels.loading import forbid_compilation, load
from tests.kernels.cases import normal, plain

kernel = sampled_fused._kernel
case = plain(normal(1, 2, 64), split=32, tile=32)
geometry = case.geometry


class Utils:
    def get_device_properties(self, device):
        return {"max_shared_mem": SHARED}

    def load_binary(self, name, binary, shared, device):
        loaded.append([name, len(binary), device])
        return object(), object(), 32, 0, 1024


class Driver:
    utils = Utils()
    current = 0

    def launcher_cls(self, src, metadata):
        return lambda *arguments: launched.append(len(arguments))

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return self.current

    def set_current_device(self, device):
        self.current = device

    def get_current_stream(self, device):
        return 0


SHARED = 1 << 20
RESIDENT = 264
loaded, launched, seen, found = [], [], [], {}
driver = Driver()
triton.runtime.driver.set_active(driver)
device = torch.device("cuda", 1)


# nothing is loaded, so no driver can say how many blocks fit
loading.resident_blocks = lambda built, device: RESIDENT


def note(name, key):
    seen.append([name, key])


def refusal(call):
    try:
        call()
    except Pp4Error as error:
        return str(error)
"""


def said(script, directory):
    """What a script leaves in ``found``, run with a compiler cache of its own.

    It becomes a file, because Triton reads the source of a kernel; ``DIRECTORY`` is where it lies.
    """
    directory.mkdir(exist_ok=True)
    file = directory / "script.py"
    place = f"DIRECTORY = {str(directory)!r}\n"
    file.write_text(place + PRELUDE + script + "\nprint(json.dumps(found))\n", "utf-8")
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]
    done = python([str(file)], directory / "cache", PYTHONPATH=os.pathsep.join(paths))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
