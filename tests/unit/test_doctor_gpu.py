"""What the doctor makes of the driver's answers."""

from pathlib import Path

import pytest

from pp4.doctor import Answer, PathFacts, Status
from pp4.doctor.gpu import parse_gpus, parse_matrix
from tests.unit.machine import MATRIX, Machine, check, smi


def gpus(*rows):
    return {"answers": smi(rows)}


GOOD = ("Disabled", "Default")


@pytest.mark.parametrize(
    ("change", "name", "status", "found"),
    [
        ({"answers": {"query": Answer(True, "")}}, "gpus", Status.MISSING, "none"),
        (
            {"answers": {"query": Answer(True, "No devices were found\n")}},
            "gpus",
            Status.FAIL,
            "nvidia-smi: an answer that does not fit the question",
        ),
        (
            {"answers": {"query": Answer(False, "", "no answer within 10 s")}},
            "gpus",
            Status.FAIL,
            "nvidia-smi: no answer within 10 s",
        ),
        (gpus(GOOD), "gpus", Status.WARN, "1 x NVIDIA H200, driver 580.65.06"),
        (gpus(GOOD), "peer access", Status.MISSING, "not asked: fewer than two GPUs"),
        ({}, "peer access", Status.OK, "1 of 1 pairs read and write each other"),
        ({"answers": smi(read="NS")}, "peer access", Status.FAIL, "0 of 1 pairs read and write"),
        ({"answers": smi(write="CNS")}, "peer access", Status.FAIL, "0 of 1 pairs read and write"),
        (
            {"answers": smi() | {"w": Answer(False, "", "status 6: no")}},
            "peer access",
            Status.WARN,
            "not known: nvidia-smi status 6: no",
        ),
        (
            {"answers": smi() | {"r": Answer(True, "what?")}},
            "peer access",
            Status.WARN,
            "not known: nvidia-smi printed no matrix",
        ),
        (gpus(GOOD, ("Enabled", "Default")), "mig", Status.FAIL, "on for GPU 1"),
        (gpus(GOOD, ("[N/A]", "Default")), "mig", Status.OK, "off"),
        (
            gpus(("Disabled", "Exclusive_Process"), GOOD),
            "mps",
            Status.WARN,
            "compute mode of GPU 0 is not Default",
        ),
        (
            {"paths": {Path("/tmp/nvidia-mps"): PathFacts("directory", 0, 0o777)}},
            "mps",
            Status.WARN,
            "/tmp/nvidia-mps exists",
        ),
    ],
)
def test_gpu(change, name, status, found):
    seen = check(Machine(**change), name)
    assert seen.status is status
    assert seen.found.startswith(found)


def test_two_models_are_no_pair():
    rows = "0, A, 580, Disabled, Default\n1, B, 580, Disabled, Default\n"
    seen = check(Machine(answers=smi() | {"query": Answer(True, rows)}), "gpus")
    assert (seen.status, seen.found) == (Status.WARN, "2 x A / B, driver 580")


@pytest.mark.parametrize(
    "text", ["GPU0 GPU1\nGPU0 X\n", "", "Legend:\n", "GPU0 GPU1\nGPU0 X OK OK\n"]
)
def test_a_matrix_of_another_shape_is_no_matrix(text):
    assert parse_matrix(text) is None


def test_the_legend_is_not_part_of_the_matrix():
    matrix = parse_matrix(MATRIX.format("NS"))
    assert matrix[("GPU0", "GPU1")] == "NS"
    assert len(matrix) == 4


def test_a_row_with_a_cell_too_few_is_not_guessed_at():
    assert parse_gpus("0, NVIDIA H200, 580\n") is None
