"""What sets a switch is found, in every language that launchers are written in."""

import json

import pytest

from pp4.config import SWITCHES
from pp4.errors import Code, RefusedError
from pp4.launch.launchers import LIMIT, NEEDLES, launcher_findings, want_switches_off
from pp4.launch.trees import survey

WORKER, ENGINE = SWITCHES


def lines(path, text):
    """Lines of the findings in a text, in which X is the engine's switch."""
    raw = text.replace("X", ENGINE).encode()
    return [found.line for found in launcher_findings(path, raw)]


PYTHON_ON = [
    "import os\nos.environ['X'] = '1'",
    "os.environ['X'] = flag",
    "os.environ['X'] = '1' if on else '0'",
    "environ[b'X'] = b'1'",
    "os.environ['X'] = ''",
    "os.environ['X'] = '00'",
    "os.environ['X'] = str(1)",
    "os.environ['X'] += '1'",
    "env['X']: str = '1'",
    "a, os.environ['X'] = '0', '1'",
    "os.environ.setdefault('X', '1')",
    "os.putenv('X', '1')",
    "os.putenv(key='X', value='1')",
    "os.environ.update({'X': '1'})",
    "os.environ.update(X='1')",
    "os.environ.update([('X', '1')])",
    "os.environ |= {'X': '1'}",
    "os.environ.__setitem__('X', '1')",
    "subprocess.run(argv, env={**os.environ, 'X': '1'})",
    "subprocess.run(argv, env=dict(os.environ, X='1'))",
    "run(argv, X=True)",
    "dict([('X', '1')])",
    "dict.fromkeys(('A', 'X'), '1')",
    "monkeypatch.setenv('X', '1')",
    "NAME = 'X'\nos.environ[NAME] = '1'",
    "os.environ[NAME] = '1'\nNAME = OTHER\nOTHER = 'X'",
    "os.environ[A] = '1'\nA = B\nB = C\nC = 'X'",
    "NAMES = ('A', 'X')\nos.environ[NAMES[1]] = '1'",
    "NAMES = ('A', 'X')\nfor name in NAMES:\n    os.environ[name] = '1'",
    "NAMES = ('A', 'X')\nenv = {name: '1' for name in NAMES}",
    "from pp4.config import SWITCHES\nos.environ[SWITCHES[1]] = '1'",
    "from pp4.config import SWITCHES as S\nenv = dict.fromkeys(S, '1')",
    "os.environ['VLLM_DSPARK_' + 'SAMPLED_TOP32'] = '1'",
    "os.environ['VLLM_DSPARK_' 'SAMPLED_TOP32'] = '1'",
    "os.environ[f'VLLM_{REST}'] = '1'\nREST = 'DSPARK_SAMPLED_TOP32'",
    "os.environ['VLLM_%s' % 'DSPARK_SAMPLED_TOP32'] = '1'",
    "os.environ['\\x56LLM_DSPARK_SAMPLED_TOP32'] = '1'",
    "X = 'X'\nos.environ[prefix + X] = '1'",
    "NAME = 'X'\nos.environ[name_of()] = '1'",
    "run('X=1 serve', shell=True)",
    "run(['env', 'X=1', 'serve'])",
    "run(['docker', 'run', '-e', 'X=1'])",
    "NAME = 'X'\nrun(f'{NAME}=1 serve')",
    "run(f'X={value} serve')",
    "run('%s=1 serve' % 'X')",
    "os.system('export X=1')",
    "TEXT = '''\nset -e\nexport X=1\n'''",
    "TEXT = '''\nfor X in 1\ndo run\n'''",
    "on = os.environ.get('X', '1')",
    "on = os.getenv('X', default=True)",
    "if 'X' in os.environ: os.environ['X'] = '2'",
]
PYTHON_OFF = [
    "os.environ['X'] = '0'",
    "os.environ['X'] = str(0)",
    "OFF = '0'\nos.environ['X'] = OFF",
    "os.environ.setdefault('X', '0')",
    "env = {'X': '0'}",
    "env = {'X': None}",
    "run(argv, X='0')",
    "run('X=0 serve', shell=True)",
    "run(['env', 'X=0', '-u', 'X'])",
    "TEXT = 'X = 0'",
    "os.environ.pop('X', None)",
    "del os.environ['X']",
    "os.unsetenv('X')",
    "on = os.environ.get('X', '0') == '1'",
    "on = os.environ.get('X', '')",
    "on = os.environ['X'] == '1'",
    "on = os.getenv('X')",
    "# os.environ['X'] = '1'",
    "'''Set X=1 to turn it on.'''",
    "def f():\n    'X=1 turns it on.'",
    "raise ValueError('X=1 needs a qualified pair')",
    "parser.add_argument('--on', help='as X=1 does')",
    "SWITCHES = ('DSPARK_SAMPLED_TOP32', 'X')",
    "kept = {n: v for n, v in os.environ.items() if n not in ('X', 'A')}",
    "NAME = 'X'\nos.environ['OTHER'] = '1'",
    "NAME = 'X'\nrows[other] = '1'",
    "LOG = 'DSPARK'\nos.environ[name_of()] = '1'",
    "log('X', value)",
    "print(f'{name}: off', 'X')",
    "os.environ['NOT_X'] = '1'",
    "os.environ['X_2'] = '1'",
    "x = 1",
]


@pytest.mark.parametrize("form", ["a.py", "bin/start"])
def test_python_that_sets_a_switch_is_found(form):
    head = "" if form == "a.py" else "#!/usr/bin/env python3\n"
    assert [text for text in PYTHON_ON if not lines(form, head + text)] == []


def test_python_that_sets_none_is_not():
    assert [text for text in PYTHON_OFF if lines("a.py", text)] == []


def test_the_line_is_that_of_the_assignment():
    assert lines("a.py", "import os\n\nos.environ['X'] = '1'\n") == [3]
    assert lines("a.sh", "#!/bin/sh\n# X=1\n\nexport X=1\nX=0\nX=2 run\n") == [4, 6]


def test_python_that_cannot_be_read_is_found():
    assert lines("a.py", "X = (") == [1]
    assert lines("a.py", f"a = {'+'.join(['1'] * 5_000)}\nb = 'X'") == [1]


TEXT_ON = {
    "a.sh": [
        "X=1", "export X=1", "  X='1' run", 'X="1"', "X=$ON", "X=", "X= run", "X=$(cat on)",
        "X=0$REST", "X=0''1", 'X="0"1', "X=00", "X=0,1", "X=01", "X+=1", "env X=1 run",
        "export A=0 X=1", "export A=0 \\\n  X=1", "declare -x X=1", "readonly X=yes",
        ': "${X:=1}"', "${X=on}", "run ${X:-1}", "X=${X:-0}", "setenv X 1", "set -gx X 1",
        "for X in 1; do run; done", "read -r X <on", "printf -v X 1", "eval 'X=1'",
        "cat >env <<END\nX=1\nEND", 'sh -c "X=1 run"', "docker run -e X=1 image", "ssh h X=1 run",
        'A="x # y" X=1 run', "A='#' X=1", "a#X=1", "sudo X=1 run", "echo X=1 >>/etc/environment",
        "[ -n \"$X\" ] || X=1", "srun --export=ALL,X=1 run", "unset X; X=1",
    ],
    "a.service": [
        "[Service]\nEnvironment=X=1", 'Environment="X=1"', "Environment=A=0 X=1",
        "Environment='A=#' \"X=1\"", "Environment=A=1 # X=1", "ExecStart=/usr/bin/env X=1 run",
        "Environment=A=1 \\\n  X=1",
    ],
    "Dockerfile": [
        "ENV X=1", "ENV X 1", "ENV A=0 X=1", "ENV A=0 \\\n    X=1", "ARG X=1", "RUN X=1 run",
        "ENV X on",
    ],
    "a.yaml": [
        "env:\n  X: 1", "X: '1'", '"X": "1"', "X: on", "X: &a 1", "X:\n  1", "- X=1", "? X\n: 1",
        "- name: X\n  value: '1'", "- value: '1'\n  name: X", "- name: X", "{name: X, value: 1}",
        "- name: A\n  value: '0'\n- name: X\n  value: '1'", "- name: X\n  valueFrom: there",
        "run: |\n  export X=1", "X: ${X:-0}", "args: ['-e', 'X=1']", "X: turn it on, please",
        "- name: X\n  value: '1'\n- name: A\n  value: '0'",
    ],
    "a.toml": [
        "X = 1", "X = '1'", "[env]\nX = \"1\"", "env = { X = '1' }", "env.X = 1", "'X' = 1",
        "[[env]]\nname = 'X'\nvalue = '1'", "cmd = 'X=1 run'",
    ],
    "Makefile": ["X = 1", "export X := 1", "X ?= 1", "X != echo 1", "run: export X=1", "\tX=1 run"],
    "a.env": ["X=1", "export X='1'", "A=1\nX=1 # off"],
    "a.js": ["process.env.X = '1'", "process.env['X'] = 1", "const env = { X: '1' }"],
    "a.c": ['setenv("X", "1", 1);', 'putenv("X=1");', '#define X 1'],
    "a.plist": ["<key>X</key>\n<string>1</string>"],
    "a.xml": ['<env name="X" value="1"/>'],
    "a.ps1": ['$env:X = "1"', 'setx X 1'],
    "start": ["#!/bin/bash\nX=1", "#!/usr/bin/env -S X=1 run"],
}  # fmt: skip
TEXT_OFF = {
    "a.sh": [
        "X=0", "export X=0", "X='0' run", 'X="0"', "X=0; run", "(X=0)", "env X=0 run", "unset X",
        "env -u X run", "# X=1", "  # export X=1", "run # X=1", '[ "$X" = 1 ] && stop', "echo $X",
        '[ "${X:-0}" = 1 ]', "[[ $X == 1 ]]", 'case $X in 1) stop;; esac', "run ${X:-}",
        "${X:+stop}", "${X:?unset}", "unset X\n: \"${A:=1}\"", "NOT_X=1", "X_2=1", "set -e X",
        'echo "X: see the page"', "docker run -e X=0 image", "echo X",
    ],
    "a.service": ["Environment=X=0", 'Environment="X=0"', "# Environment=X=1", "; X=1",
                  "UnsetEnvironment=X", "PassEnvironment=X"],
    "Dockerfile": ["ENV X=0", "ENV X 0", "# ENV X=1", "ARG X"],
    "a.yaml": ["X: 0", "X: '0'", "# X: 1", "a: b # X: 1", "- name: X\n  value: '0'",
               "- value: 0\n  name: X", "X: null", "- X=0", "if: env.X == '1'", "- X"],
    "a.toml": ["X = 0", "X = '0' # X = 1", "# X = 1", "env = { X = '0', A = 1 }", "a = ['X']"],
    "Makefile": ["X = 0", "export X := 0", "# X = 1", "ifeq ($(X),1)", "unexport X"],
    "a.c": ['setenv("X", "0", 1);', 'getenv("X");', "// setenv(\"X\", \"1\", 1);"],
    "a.js": ["// process.env.X = '1'", "if (process.env.X === '1') stop()", "X: '0'"],
    "a.txt": ["X turns it on.", "X: see the page, which is long"],
}  # fmt: skip


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("path", TEXT_ON)
def test_text_that_sets_a_switch_is_found(path, end):
    assert [text for text in TEXT_ON[path] if not lines(path, text + end)] == []


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("path", TEXT_OFF)
def test_text_that_sets_none_is_not(path, end):
    assert [text for text in TEXT_OFF[path] if lines(path, text + end)] == []


@pytest.mark.parametrize("switch", SWITCHES)
def test_both_switches_are_looked_for(switch):
    assert launcher_findings("a.sh", f"{switch}=1".encode())
    assert launcher_findings("a.py", f"import os\nos.environ['{switch}'] = '1'".encode())


JSON_ON = [
    {"env": {"X": "1"}},
    {"env": {"X": 1}},
    {"X": ""},
    {"X": True},
    {"X": False},
    {"env": [{"name": "X", "value": "1"}]},
    {"env": [{"name": "X"}]},
    {"args": ["-e", "X=1"]},
    {"args": ["X", "1"]},
    {"source": ["import os\n", "os.environ['X'] = '1'\n"]},
]
JSON_OFF = [
    {"env": {"X": "0"}},
    {"env": {"X": 0}},
    {"env": {"X": None}},
    {"env": [{"name": "X", "value": "0"}]},
    {"names": ["X", "A"]},
    {"args": ["-e", "X=0"]},
    {"source": ["os.environ['X'] = '0'"]},
    {"text": "X is off"},
]


def test_json_is_read_as_json():
    for tree in JSON_ON:
        assert lines("a.json", json.dumps(tree, indent=1)), tree
        assert lines("a.yaml", json.dumps(tree)) or tree in JSON_ON[8:9], tree
    for tree in JSON_OFF:
        assert lines("a.json", json.dumps(tree)) == [], tree
    assert lines("a.json", '{"X": "1", "X": "0"}') == [1]
    assert lines("a.json", '{"a": 1,\n"X": "1"}') == [2]
    assert lines("a.json", '{"V\\u004cLM_DSPARK_SAMPLED_TOP32": "1"}') == [1]
    # no JSON, but somebody may read it as such
    assert lines("a.json", '// settings\n{"X": "1",}') == [2]


def test_what_is_no_text_and_names_a_switch_is_found(tmp_path):
    assert launcher_findings("a.so", b"\0\1" + ENGINE.encode())
    assert launcher_findings("a.ps1", f"$env:{ENGINE}=1".encode("utf-16-le"))
    assert launcher_findings("a.so", b"\0\1DSPARK") == []


# -- a tree -------------------------------------------------------------------------------------


def refused(root):
    with pytest.raises(RefusedError) as raised:
        want_switches_off(survey(root, needles=NEEDLES))
    assert raised.value.refusal.code is Code.SWITCH_SET
    return raised.value.refusal


def test_every_file_of_a_tree_is_read_but_its_pages(tmp_path):
    for name in ("README.md", "docs/a.rst"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"    {WORKER}=1 run\n")
    (tmp_path / "a.txt").write_text("-" * 3_000_000)
    want_switches_off(survey(tmp_path, needles=NEEDLES))
    for name in ("a.txt", "unheard.of", "none", ".hidden", "docs/b.sh"):
        (tmp_path / name).write_text(f"\n{WORKER}=1 run\n")
        assert refused(tmp_path).where == f"{tmp_path}/{name}, line 2"
        (tmp_path / name).unlink()
    for name in ("1", "2", "3"):
        (tmp_path / name).write_text(f"{WORKER}=1 run\n")
    assert refused(tmp_path).found.endswith("(and 2 more)")


def test_a_page_that_a_link_makes_a_script_is_read(tmp_path):
    (tmp_path / "README.md").write_text(f"{WORKER}=1 run\n")
    (tmp_path / "start.sh").symlink_to("README.md")
    assert refused(tmp_path).where == f"{tmp_path}/start.sh, line 1"


def test_a_name_across_two_reads_is_found_and_a_huge_file_is_not_believed(tmp_path):
    (tmp_path / "a").write_bytes(b"#" * ((1 << 20) - 3) + b"\n" + f"{WORKER}=1\n".encode())
    assert refused(tmp_path).where.endswith("a, line 2")
    (tmp_path / "a").write_bytes(WORKER.encode() + b" " * LIMIT)
    assert "longer than" in refused(tmp_path).found
