"""Packages and passages are found exactly once, or every place is named."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import Code, RefusedError
from pp4.launch.changes import edited, package_places
from pp4.launch.manifest import Edit
from pp4.launch.trees import Tree, survey
from tests.unit.launch.subjects import ENGINE, PACKAGE, ZERO, Subject

NAME = "dspark_runner.remote_dspark"
MORE = [
    "more/dspark_runner/remote_dspark/__init__.py",
    "dspark_runner/dspark_runner/remote_dspark/x",
    "more/dspark_runner/remote_dspark.py",
    "more/dspark_runner/remote_dspark.pyc",
    "more/dspark_runner/remote_dspark.cpython-311-x86_64-linux-gnu.so",
    "dspark_runner/remote_dspark.py",
    "dspark_runner/remote_dspark.abi3.so",
]
OTHERS = [
    "remote_dspark.py",
    "more/remote_dspark/__init__.py",
    "dspark_runner/remote_dspark_2/__init__.py",
    "dspark_runner/my_remote_dspark.py",
    "my_dspark_runner/remote_dspark/__init__.py",
    "dspark_runner/remote_dspark.txt",
    "dspark_runner/remote_dspark.pyi",
]


@settings(max_examples=15)
@given(
    inserted=st.lists(st.sampled_from(MORE), unique=True),
    harmless=st.lists(st.sampled_from(OTHERS), unique=True),
    gone=st.booleans(),
)
def test_a_package_is_there_once_or_every_place_is_named(
    tmp_path_factory, inserted, harmless, gone
):
    subject = Subject(tmp_path_factory.mktemp("subject"))
    for path in (*inserted, *harmless):
        subject.write(path, "")
    if gone:
        (subject.source / PACKAGE).rename(subject.source / "dspark_runner" / "elsewhere")
    subject.pin()
    if not inserted and not gone:
        subject.prepare()
        return
    places = {p.rsplit("/", 1)[0] if "/remote_dspark/" in p else p for p in inserted}
    refusal = subject.refusal()
    assert refusal.code is Code.NOT_ONCE
    found = sorted({*places, *([] if gone else [PACKAGE])})
    if not found:
        assert refusal.found == "nowhere"
    else:
        assert refusal.found.startswith(f"{len(found)}: {', '.join(found[:5])}")


def test_a_package_that_was_moved_is_refused_with_its_place(subject):
    to = subject.source / "lib" / "dspark_runner"
    to.mkdir(parents=True)
    (subject.source / PACKAGE).rename(to / "remote_dspark")
    subject.pin()
    assert subject.refusal().found == "1: lib/dspark_runner/remote_dspark"


def test_a_link_of_that_name_is_a_second_one(subject):
    (subject.source / "lib" / "dspark_runner").mkdir(parents=True)
    link = subject.source / "lib" / "dspark_runner" / "remote_dspark"
    link.symlink_to("../../dspark_runner/remote_dspark")
    subject.pin()
    assert subject.refusal().code is Code.NOT_ONCE


def test_places_of_a_name_without_dots(tmp_path):
    for path in ("a/p.py", "b/p/x", "p/y", "pp/z", "p2.py", "c/p.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert package_places(survey(tmp_path), "p") == ["a/p.py", "b/p", "p"]


# -- passages -----------------------------------------------------------------------------------


def changed(text, *edits):
    tree = Tree(None, None, {}, frozenset(), ())
    named = [
        Edit(name=f"e{n}", path="f", sha256=ZERO, old=old, new=new)
        for n, (old, new) in enumerate(edits)
    ]
    return edited(_Named(**{k: getattr(tree, k) for k in tree.__slots__}), named, text.encode())


class _Named(Tree):
    """A tree that is asked for names alone."""

    def where(self, path):
        return path


def refused(text, *edits):
    with pytest.raises(RefusedError) as raised:
        changed(text, *edits)
    assert raised.value.refusal.code is Code.NOT_ONCE
    return raised.value.refusal.found


def test_passages_are_replaced_in_the_text_as_it_was():
    done = changed("a\nb\nc\n", ("c", "a"), ("a", "c"), ("b\n", ""))
    assert (done.content, done.lines) == (b"c\na\n", (3, 1, 2))
    assert changed("caf\u00e9", ("\u00e9", "e")).content == b"cafe"
    assert changed("a", ("a", "")).content == b""


def test_passages_that_are_not_there_once():
    assert refused("a\na\n", ("a", "b")) == "2: line 1, line 2"
    assert refused("a\n", ("b", "c")) == "nowhere"
    # counted where they overlap as well
    assert refused("xaaa", ("aa", "b")) == "2: line 1, line 1"
    # what another edit brings does not count
    assert refused("a\n", ("a", "b"), ("b", "c")) == "nowhere"
    assert "overlaps" in refused("abc", ("ab", "x"), ("bc", "y"))
    assert "overlaps" in refused("abc", ("abc", "x"), ("b", "y"))
    assert refused("a" * 9, ("a", "b")).endswith("and 4 more")


@given(st.text("ab\n", min_size=1, max_size=12), st.text("ab\n", min_size=1, max_size=3))
def test_a_passage_is_replaced_exactly_if_it_is_there_once(text, old):
    count = sum(text.startswith(old, at) for at in range(len(text)))
    if count == 1:
        done = changed(text, (old, "X"))
        assert done.content.decode() == text.replace(old, "X")
        assert done.lines == (text[: text.index(old)].count("\n") + 1,)
    else:
        refused(text, (old, "X"))


@pytest.mark.parametrize(
    ("more", "code"),
    [("\nABI = None\n", Code.NOT_ONCE), ("# more\n", None)],
)
def test_a_second_passage_in_a_file_is_refused(subject, more, code):
    text = (subject.source / ENGINE).read_text()
    subject.write(ENGINE, text + more)
    subject.pin()
    if code is None:
        subject.prepare()
        assert (subject.out / ENGINE).read_text().endswith(more)
    else:
        assert subject.refusal().code is code
