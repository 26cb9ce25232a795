"""The command: what it writes, what it refuses, and that it learns."""

import hashlib
import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from examples.mini import fitting, record, train
from examples.mini.export import replaced
from examples.mini.fitting import Course, Fit, Ways, rate_at
from examples.mini.sizes import Fitting
from examples.mini.train import main
from pp4.drafter.checkpoint.load import load
from pp4.errors import BadInputError


def run(*words):
    return main(["--smoke", "--device", "cpu", *map(str, words)])


def read(out):
    return json.loads((out / "record.json").read_text("utf-8"))


def test_the_losses_fall(trained):
    tree = read(trained)
    for model in ("target", "drafter"):
        course = tree[model]["course"]
        losses = [loss for _, loss in course["training"]]
        assert losses[-1] < losses[0] - 0.3, model
        # points of curves are rounded to four places
        assert course["best_loss"] == pytest.approx(
            min(dict(course["validation"]).values()), abs=1e-4
        )
        assert course["stopped"] == ""
    # 320 tokens at even chances; the text is far from that
    assert tree["target"]["course"]["best_loss"] < math.log(320) - 2


def test_the_record_is_whole_and_small(trained):
    text = (trained / "record.json").read_text("utf-8")
    tree = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert tree["complete"] is True
    assert len(text) < 60_000
    assert str(trained) not in text
    assert tree["recipe"]["drafter"]["target_layers"] == [0, 2]
    assert tree["text"]["all"]["files"] == 130
    parts = [tree["text"][split] for split in ("train", "validation", "heldout")]
    assert sum(part["files"] for part in parts) == 130
    assert sum(part["bytes"] for part in parts) == tree["text"]["all"]["bytes"]
    assert tree["heldout"]["tokens"] == tree["text"]["heldout"]["tokens"]


def test_the_record_has_the_digest_of_every_file(trained):
    tree = read(trained)
    for model in ("target", "drafter"):
        found = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (trained / model).iterdir()
        }
        assert tree[model]["files"] == found
    assert sorted(path.name for path in trained.iterdir()) == ["drafter", "record.json", "target"]


@pytest.mark.parametrize("which", ["smoke", "published"])
def test_what_was_measured_makes_sense(trained, which):
    heldout = read(trained if which == "smoke" else Path(train.__file__).parent)["heldout"]
    for part in ("text", "sampled_at_0.7", "sampled_at_1.0"):
        measured = heldout[part]
        for name in ("acceptance_at_temperature_0.7", "acceptance_at_temperature_1.0"):
            assert all(0 < value <= 1 for value in measured[name])
        if which == "published":
            # the next token is easier than the fifth, for a drafter that has learned anything
            first, *_, last = measured["acceptance_at_temperature_1.0"]
            assert first > last + 0.1
            assert measured["greedy_agreement"][0] > measured["greedy_agreement"][4]
    assert 0 < heldout["target_bits_per_byte"] < 8


def test_the_drafter_is_loaded_by_pp4_and_shares_the_targets_embedding(trained):
    weights = load(trained / "drafter", 0, 1)
    target = load_file(trained / "target" / "model.safetensors")
    embedding = target["model.embed_tokens.weight"]
    assert torch.equal(weights.embedding, embedding)
    assert torch.equal(weights.head, embedding)
    assert weights.config.block == 5
    assert weights.w2.abs().max() > 0
    assert Tokenizer.from_file(str(trained / "target" / "tokenizer.json")).get_vocab_size() == 320


def test_the_targets_config(trained):
    tree = json.loads((trained / "target" / "config.json").read_text("utf-8"))
    assert tree["architectures"] == ["Qwen3ForCausalLM"]
    assert tree["tie_word_embeddings"] is True
    assert tree["num_hidden_layers"] == 3


def test_what_is_there_is_not_written_over(trained, library, capsys):
    before = read(trained)
    assert run("--out", trained, "--text", library) == 3
    assert json.loads(capsys.readouterr().err)["refusal"]["code"] == "EXISTS"
    assert read(trained) == before


def test_a_drafter_alone_for_a_target_that_there_is(trained, library, tmp_path):
    (tmp_path / "drafter").mkdir()
    (tmp_path / "drafter" / "old").write_text("from before")
    few = ("--drafter-steps", 2, "--resume-target", trained / "target", "--force")
    assert run("--out", tmp_path, "--text", library, *few) == 0
    tree, first = read(tmp_path), read(trained)
    assert tree["complete"] is True
    assert tree["target"] == first["target"]
    assert tree["drafter"]["course"]["steps"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drafter", "record.json"]
    assert not (tmp_path / "drafter" / "old").exists()


def test_a_target_that_is_none_is_refused(trained, library, tmp_path, capsys):
    given = ("--out", tmp_path, "--text", library, "--resume-target")
    assert run(*given, trained / "drafter") == 3
    assert json.loads(capsys.readouterr().err)["refusal"]["code"] == "UNREADABLE"
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_ended_while_it_drafts_leaves_its_target(
    trained, library, tmp_path, monkeypatch
):
    def ended(*_):
        raise KeyboardInterrupt

    (tmp_path / "drafter").mkdir()
    monkeypatch.setattr(train.stages, "fit_drafter", ended)
    with pytest.raises(KeyboardInterrupt):
        run("--out", tmp_path, "--text", library, "--target-steps", 2, "--force")
    tree = read(tmp_path)
    assert tree["complete"] is False
    assert tree["target"]["course"]["steps"] == 2
    assert len(load_file(tmp_path / "target" / "model.safetensors")) == 35
    # a drafter of another target is none of this one
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record.json", "target"]


def test_a_text_that_is_none_is_refused(tmp_path, capsys):
    assert run("--out", tmp_path / "out", "--text", tmp_path) == 3
    assert json.loads(capsys.readouterr().err)["refusal"]["code"] == "UNREADABLE"
    assert not (tmp_path / "out").exists()


def test_a_directory_is_there_as_a_whole_or_not_at_all(tmp_path):
    place = tmp_path / "pair"

    def interrupted():
        with replaced(place) as fresh:
            (fresh / "a").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    for content in ("one", "two"):
        with replaced(place) as fresh:
            (fresh / content).write_text(content)
    assert [path.name for path in place.iterdir()] == ["two"]
    assert list(tmp_path.iterdir()) == [place]


FITTING = Fitting(
    batch=1, rate=0.1, warmup=10, weight_decay=0.0, average=0.9, evaluations=5, passes=1e9
)


def test_the_learning_rate_rises_in_a_line_and_falls_by_a_cosine():
    assert rate_at(0, 110, FITTING) == pytest.approx(0.01)
    assert rate_at(9, 110, FITTING) == pytest.approx(0.1)
    assert rate_at(60, 110, FITTING) == pytest.approx(0.1 * (0.01 + 0.99 / 2))
    assert rate_at(110, 110, FITTING) == pytest.approx(0.001)
    assert rate_at(50, None, FITTING) == pytest.approx(0.1)


class Line(torch.nn.Module):
    """One number that should become 3."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))


def fit(
    monkeypatch,
    *,
    seconds=100.0,
    per_step=1.0,
    passes=1e9,
    wrong_from=None,
    slow_from=None,
    keep=None,
):
    """Fit a line under a clock that a step moves; -> the model and the fit."""
    clock = [0.0]
    monkeypatch.setattr(fitting.time, "monotonic", lambda: clock[0])
    model, taken = Line(), [0]

    def loss():
        taken[0] += 1
        clock[0] += 10.0 if slow_from and taken[0] >= slow_from else 1.0
        found = (model.weight - 3).square().sum()
        return found * math.nan if wrong_from and taken[0] >= wrong_from else found

    ways = Ways(
        loss=loss,
        validate=lambda average: float((average.weight.detach() - 3).square().sum()),
        keep=keep,
    )
    fitting_ = Fitting(
        batch=1, rate=0.1, warmup=10, weight_decay=0.0, average=0.9, evaluations=5, passes=passes
    )
    one = Fit(model, fitting_, ways, seconds=seconds, tokens=10, batches=1)
    return one.run(), one.course


def test_steps_are_planned_from_the_time_of_the_first_ones(monkeypatch):
    model, course = fit(monkeypatch, seconds=160.0)
    # 60 steps took 60 s, and 97 in 100 of the 100 s that are left are planned for
    assert (course.steps, course.taken, course.stopped) == (157, 157, "")
    assert course.tokens_per_second == 10
    assert model.weight.item() == pytest.approx(3, abs=0.1)


def test_passes_bound_the_steps(monkeypatch):
    _, course = fit(monkeypatch, seconds=1e6, passes=80)
    assert course.taken == 80


def test_a_run_that_becomes_slow_ends_in_time(monkeypatch):
    """A second each at first, ten seconds each after the plan was made."""
    _, course = fit(monkeypatch, seconds=160.0, slow_from=61)
    # the tenth slow step passes 160 s, the twelfth 176 s, which is a tenth more
    assert course.stopped == "out of time"
    assert (course.steps, course.taken) == (157, 72)
    assert course.best_step > 0


def test_weights_from_before_a_loss_that_is_not_finite_are_kept(monkeypatch):
    model, course = fit(monkeypatch, seconds=400.0, wrong_from=200)
    assert "not finite" in course.stopped
    assert course.taken < 220
    assert course.best_step < 200
    assert math.isfinite(model.weight.item())
    json.dumps(record.course(course), allow_nan=False)


def test_a_fit_without_any_finite_loss_is_refused(monkeypatch):
    with pytest.raises(BadInputError, match="finite"):
        fit(monkeypatch, wrong_from=1)


def test_the_best_state_is_written_about_every_minute(monkeypatch):
    written = []

    def keep(model, course):
        written.append((course.taken, model.weight.item()))

    fit(monkeypatch, seconds=400.0, keep=keep)
    assert len(written) >= 4
    taken = [step for step, _ in written]
    assert all(later - before >= 60 for before, later in pairwise(taken))
    assert abs(written[-1][1] - 3) < abs(written[0][1] - 3)


def test_thinned_curves_end_with_the_last_point():
    curve = [(step, 1 / step) for step in range(1, 1002)]
    found = record.thinned(curve)
    assert len(found) <= 200
    assert found[-1] == [1001, 0.001]
    assert record.thinned([(1, math.nan), (2, 0.5)]) == [[2, 0.5]]
    assert record.course(Course(best_loss=0.5))["training"] == []
