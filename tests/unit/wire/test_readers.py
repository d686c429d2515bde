"""Text into trees: what is read, on which line, and what is refused."""

import pytest

from allotment.model.errors import BadInput
from allotment.wire.json5_reader import read_json5, starts_like_json
from allotment.wire.parse import tree_of
from allotment.wire.text import shown, text_of
from allotment.wire.tree import line_of, path_of, plain_of
from allotment.wire.yaml_reader import read_yaml

# ── bytes ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"a\nb\0c", "line 2: has the control character U\\+0000, as binary files do"),
        (b"\x7fELF\x02", "control character U\\+0002"),
        (b"a: 1\nb: \xff", "line 2: byte 9 is not UTF-8 text"),
        pytest.param(b"x" * 10_000_000, "is 9.5 MiB, and at most 256 KiB are read", id="big"),
    ],
)
def test_what_is_not_a_text_file(data: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        text_of(data, "f.yaml")
    assert str(caught.value).startswith("f.yaml: ")
    assert caught.value.problems[0].hint or message == "is empty"


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert text_of(b"\xef\xbb\xbfa: 1", "f") == "a: 1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        ("a\x1b[31m", "'a\\x1b[31m'"),
        ("a" * 99, repr("a" * 39 + "…")),
        ({"a": 1}, "a map"),
        (10**99, "a number of more than 38 digits"),
    ],
)
def test_values_are_shown_short_and_harmless(value: object, text: str) -> None:
    assert shown(value) == text


# ── YAML ────────────────────────────────────────────────────────────────────────────────


def from_yaml(text: str) -> object:
    tree, problems = read_yaml(text, "f")
    assert problems == ()
    return plain_of(tree)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: yes", {"a": "yes"}),
        ("a: on", {"a": "on"}),
        ("a: True", {"a": True}),
        ("a: 0o17", {"a": 15}),
        ("a: 017", {"a": 17}),
        ("a: 0x1F", {"a": 31}),
        ("a: 1_000", {"a": "1_000"}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: 2026-01-02", {"a": "2026-01-02"}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: .5", {"a": 0.5}),
        ("a: .", {"a": "."}),
        ("a: '1'", {"a": "1"}),
        ("a: !!str 1", {"a": "1"}),
        ("a: ~\nb: 1", {"b": 1}),
        ('a: "\\ud83d\\ude00"', {"a": "😀"}),
        ("[1, {b: [2]}]", [1, {"b": [2]}]),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}",
         {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("a: &x {b: 1}\nd: {<<: [*x, {e: 2}]}", {"a": {"b": 1}, "d": {"b": 1, "e": 2}}),
        ("1: x\ntrue: y", {"1": "x", "true": "y"}),
        ("env: {A: 1.10, B: 007, C: True, D: 1e-3}",
         {"env": {"A": "1.10", "B": "007", "C": "True", "D": "1e-3"}}),
        ("command: [sleep, 1.0]", {"command": ["sleep", "1.0"]}),
        ("roles: {env: {count: 2}}", {"roles": {"env": {"count": 2}}}),
        ("a: " + "9" * 200, {"a": "9" * 200}),
    ],
)  # fmt: skip
def test_yaml_is_read_as_version_1_2(text: str, value: object) -> None:
    assert from_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\n\tb: 2", 2, "not valid YAML: found character"),
        ("a: b: c", 1, "mapping values are not allowed here"),
        ("a: [1,\nb: 2", 2, "not valid YAML"),
        ("a: 'x", 1, "not valid YAML"),
        ("a: 1\n---\nb: 2", 2, "a second document starts here"),
        ("%YAML 1.1\n---\na: 1", 2, "another YAML version"),
        (
            "a: !!python/object:os.system x",
            1,
            "the tag `tag:yaml.org,2002:python/object:os.sys",
        ),
        ("a: !x {}", 1, "the tag `!x` is not supported"),
        ("\na: *x", 2, "nothing before it is marked `&x`"),
        ("a: &x [*x]", 1, "nothing before it is marked `&x`"),
        ("a: {<<: 3}", 1, "`<<` must name a map"),
        ("? [a]\n: 1", 1, "a key must be a word"),
        ('a: "\\ud83d"', 1, "half of a"),
        ("a: \x7f", 1, "control character U+007F"),
        ("# nothing", 0, "has nothing but comments"),
        ("a: " + "[" * 40, 1, "is nested more than 32 deep"),
        ("- " * 40 + "a", 1, "is nested more than 32 deep"),
    ],
)
def test_yaml_that_is_not_accepted(text: str, line: int, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_yaml(text, "f")
    (problem,) = caught.value.problems
    assert problem.line == line
    assert message in problem.message
    assert problem.hint


def test_a_key_given_twice_is_a_problem_that_does_not_stop_the_reading() -> None:
    tree, problems = read_yaml("a: 1\nb: 2\na: 3", "f")
    assert plain_of(tree) == {"a": 1, "b": 2}
    assert [str(problem) for problem in problems] == [
        "line 3: `a` was given before, on line 1 (keep one of the two)"
    ]


def test_aliases_count_as_often_as_they_are_used() -> None:
    laughs = "a: &a [1,2,3,4,5,6,7,8,9]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(BadInput, match="more than 40,000 values"):
        read_yaml(laughs, "f")


def test_aliases_cannot_nest_deeper_than_text() -> None:
    nested = "a0: &a0 [[[[[1]]]]]\n" + "".join(
        f"a{at}: &a{at} [[[[*a{at - 1}]]]]\n" for at in range(1, 9)
    )
    with pytest.raises(BadInput, match="nested more than 32 deep"):
        read_yaml(nested, "f")


# ── JSON5 ───────────────────────────────────────────────────────────────────────────────


def from_json(text: str) -> object:
    tree, problems = read_json5(text, "f")
    assert problems == ()
    return plain_of(tree)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, -2.5, true, "x"]}', {"a": [1, -2.5, True, "x"]}),
        ("{a: 1, 'b': 'it\\'s', $c_1: \"x\",}", {"a": 1, "b": "it's", "$c_1": "x"}),
        ("// c\n{/* x\n*/a: [1,], // d\n}", {"a": [1]}),
        ("{a: +1, b: .5, c: 5., d: 0x1f}", {"a": 1, "b": 0.5, "c": 5.0, "d": 31}),
        ('{a: "\\u00e4\\x41\\n\\\nz\\q"}', {"a": "äA\nzq"}),
        ('{a: "\\ud83d\\ude00"}', {"a": "😀"}),
        ("{a: null, b: 1}", {"b": 1}),
        ("{env: {A: 1.10, B: -0, C: true, D: null}}",
         {"env": {"A": "1.10", "B": "0", "C": "true", "D": None}}),
        ("\ufeff {}", {}),
    ],
)  # fmt: skip
def test_json5(text: str, value: object) -> None:
    assert from_json(text) == value


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ('{"a": 1\n"b": 2}', 2, "`,` or `}` is missing before a text in quotes", ""),
        ("{a 1}", 1, "`:` is missing after `a`", ""),
        ("{a: worker}", 1, "a value is expected here, not 'worker'", 'quotes: "worker"'),
        ("{a: 1.2.3}", 1, "a value is expected here, not '1.2.3'", 'quotes: "1.2.3"'),
        ("{a: }", 1, "a value is expected here, not '}'", ""),
        ("{a: 1}\n}", 2, "'}' follows the end", ""),
        ('{\n"a": "x\n"}', 2, "a quote opens here and is not closed", ""),
        ("{a: 1 /* x", 1, "the comment that opens here is not closed", ""),
        ("{a: 012}", 1, "012 starts with 0", "write 12, or"),
        ("{a: " + "1" * 200 + "}", 1, "the number before here has 200 digits", "quotes"),
        ('{a: "\\ud83d"}', 1, "half of a", ""),
        ("{-: 1}", 1, "a key is expected here, not '-'", ""),
        ("[" * 40, 1, "is nested more than 32 deep", ""),
        ("{a: [1,\n", 2, "a value is expected here, not the end of the file", ""),
    ],
)
def test_text_that_is_not_json5(text: str, line: int, message: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_json5(text, "f")
    (problem,) = caught.value.problems
    assert problem.line == line
    assert message in problem.message
    assert problem.hint
    assert hint in problem.hint


def test_placeholders_of_the_documentation_are_all_named() -> None:
    tree, problems = read_json5('{"a": ...,\n"r": [{"b": 1}, ...],\n...}', "f")
    assert plain_of(tree) == {"r": [{"b": 1}]}
    assert [(problem.line, problem.path) for problem in problems] == [
        (1, "a"),
        (2, "r"),
        (3, ""),
    ]
    assert problems[0].hint == "replace it by a value for `a`, or delete it"


# ── places ──────────────────────────────────────────────────────────────────────────────


def test_every_place_has_its_line() -> None:
    tree, _ = read_yaml("a:\n  b:\n    - x\n    - c: 1\n", "f")
    assert line_of(tree, ("a",)) == 1
    assert line_of(tree, ("a", "b", 1)) == 4
    assert line_of(tree, ("a", "b", 1, "c")) == 4
    assert line_of(tree, ("a", "b", 7)) == 2
    assert line_of(None, ("a",)) == 0


def test_a_place_is_written_as_people_do() -> None:
    assert path_of(("roles", "w", "ports", 0, "label")) == "roles.w.ports[0].label"
    assert path_of(("a\x1b", "x" * 99)) == "a\\x1b." + "x" * 39 + "…"


@pytest.mark.parametrize(
    ("text", "source", "said"),
    [
        ('{"a": 1,, "b": 2}', "f.json", "not valid JSON"),
        ('{"a": 1,, "b": 2}', "f", "not valid JSON"),
        ("{a: b: c}", "f.yaml", "not valid YAML"),
    ],
)
def test_the_complaint_is_about_the_language_that_was_meant(
    text: str, source: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        tree_of(text, source)


def test_braces_may_be_yaml() -> None:
    assert starts_like_json(" // x\n /* y */ {")
    tree, _ = tree_of("{a: some words, b: 1}", "f")
    assert plain_of(tree) == {"a": "some words", "b": 1}
