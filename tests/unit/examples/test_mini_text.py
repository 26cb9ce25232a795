"""The text, its splits and the tokenizer."""

import hashlib

import numpy as np
import pytest
import torch

from examples.mini import text, tokenization
from examples.mini.windows import Windows, consecutive
from pp4.errors import BadInputError, Code, RefusedError


def test_every_file_is_in_one_split_and_stays_there(library):
    sources, left_out = text.read(library)
    splits = text.dealt(sources)
    paths = {split: {one.path for one in members} for split, members in splits.items()}
    assert left_out == []
    assert set.union(*paths.values()) == {one.path for one in sources}
    assert sum(len(members) for members in paths.values()) == len(sources) == 130
    # by the path alone: what else there is does not matter
    alone = [one for one in sources if one.path in paths["heldout"]]
    assert {text.split_of(one.path) for one in alone} == {"heldout"}
    assert len(paths["train"]) > 100


def test_shares_of_many_paths():
    counts = dict.fromkeys(text.SPLITS, 0)
    for number in range(20_000):
        counts[text.split_of(f"module{number}.py")] += 1
    # three standard deviations of a binomial count are 101 and 72
    assert abs(counts["train"] - 18_800) < 101
    assert abs(counts["validation"] - 600) < 73
    assert abs(counts["heldout"] - 600) < 73


def test_what_is_no_text_is_left_out(tmp_path):
    names = {
        "a.py": b"a = 1\n",
        "b/c.py": b"c = 1\n",
        "b/data.txt": b"no source",
        "empty.py": b"",
        "test/t.py": b"t = 1\n",
        "b/tests/t.py": b"t = 1\n",
        "idlelib/idle_test/t.py": b"t = 1\n",
        "site-packages/p.py": b"p = 1\n",
        "dist-packages/p.py": b"p = 1\n",
        "__pycache__/p.py": b"p = 1\n",
        "_sysconfigdata__linux_.py": b"prefix = '/usr'\n",
        "config-3.11/config.py": b"prefix = '/usr'\n",
        "encodings/cp1.py": b"# generated with gencodec.py\ntable = 'abc'\n",
        "latin.py": b"# caf\xe9\n",
    }
    for name, content in names.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    sources, left_out = text.read(tmp_path)
    assert [one.path for one in sources] == ["a.py", "b/c.py"]
    assert left_out == ["latin.py"]


def test_the_directory_itself_may_be_called_tests(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.py").write_text("a = 1\n")
    assert [one.path for one in text.read(tmp_path / "tests")[0]] == ["a.py"]


def test_line_ends_are_kept_and_digests_cover_paths(tmp_path):
    (tmp_path / "a.py").write_bytes(b"a = 1\r\n")
    sources, _ = text.read(tmp_path)
    assert sources[0].text == "a = 1\r\n"
    assert text.digest(sources) == hashlib.sha256(b"a.py\x007\x00a = 1\r\n").hexdigest()


def test_nothing_to_train_on_is_refused(tmp_path):
    with pytest.raises(RefusedError) as refused:
        text.read(tmp_path)
    assert refused.value.refusal.code is Code.UNREADABLE


def test_a_copy_has_the_same_digest(library, tmp_path):
    count = text.copied(library, tmp_path / "copy")
    assert count == 130
    assert text.digest(text.read(tmp_path / "copy")[0]) == text.digest(text.read(library)[0])
    with pytest.raises(RefusedError):
        text.copied(library, tmp_path / "copy")


@pytest.fixture(scope="module")
def sources(library):
    return text.dealt(text.read(library)[0])


@pytest.fixture(scope="module")
def tokenizer(sources):
    return tokenization.trained(sources["train"], 320)


def test_the_same_text_gives_the_same_tokenizer(sources, tokenizer):
    again = tokenization.trained(sources["train"], 320)
    assert again.to_str() == tokenizer.to_str()


def test_special_tokens_stand_first_and_last(tokenizer):
    assert tokenizer.get_vocab_size() == 320
    assert tokenizer.id_to_token(0) == "<|endoftext|>"
    assert tokenizer.id_to_token(319) == "<|mask|>"


def test_any_text_comes_back(tokenizer):
    strange = "x = 'é\u0000\t\U0001f600'\r\n    pass  \n"
    assert tokenizer.decode(tokenizer.encode(strange).ids) == strange


def test_streams_begin_files_with_the_end_token_and_have_no_mask(sources, tokenizer):
    for members in sources.values():
        tokens = tokenization.stream(tokenizer, members)
        assert (tokens == 0).sum() == len(members)
        assert tokens[0] == 0
        assert tokens.max() < 319
        whole = "".join(one.text for one in members)
        assert tokenizer.decode(tokens.tolist(), skip_special_tokens=True) == whole


def test_a_special_token_in_a_text_is_refused(sources, tokenizer):
    planted = text.Source("planted.py", "a = '<|mask|>'\n")
    with pytest.raises(BadInputError, match=r"planted\.py"):
        tokenization.stream(tokenizer, [planted])
    with pytest.raises(BadInputError, match=r"planted\.py"):
        tokenization.trained([*sources["train"], planted], 320)


def test_too_little_text_is_refused():
    with pytest.raises(BadInputError, match="320 tokens"):
        tokenization.trained([text.Source("a.py", "a = 1\n")], 320)


def test_windows_of_a_pass_are_distinct_and_cut_elsewhere_in_the_next():
    tokens = torch.from_numpy(np.arange(1000, dtype=np.int32))
    windows = Windows(tokens, length=17, stride=16, batch=5, seed=1)
    passes = [torch.cat([windows.next() for _ in range(12)]) for _ in range(2)]
    for found in passes:
        starts = found[:, 0]
        assert torch.equal(found, starts[:, None] + torch.arange(17))
        assert len(set(starts.tolist())) == 60
        assert len({start % 16 for start in starts.tolist()}) == 1
    assert passes[0][0, 0] % 16 != passes[1][0, 0] % 16


def test_a_stream_that_is_too_short_is_refused():
    with pytest.raises(BadInputError):
        Windows(torch.arange(90), length=17, stride=16, batch=5, seed=1)
    with pytest.raises(BadInputError):
        consecutive(torch.arange(16), length=17, stride=16)


def test_consecutive_windows():
    found = consecutive(torch.arange(50), length=17, stride=16)
    assert found[:, 0].tolist() == [0, 16, 32]
    assert found.dtype == torch.int64
