"""What people are told of uv's words: one line, from its beginning, with an end."""

from allotment.service.environments.uv import shortened

SAID = """error: × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of framework==3.0 and you require
  │   framework==3.0, we can conclude that your requirements are unsatisfiable.
"""


def test_it_is_one_line_without_its_drawing() -> None:
    told = shortened(SAID)
    assert told.startswith("No solution found when resolving dependencies: Because there is no")
    assert told.endswith(
        "framework==3.0, we can conclude that your requirements are unsatisfiable."
    )


def test_a_reason_of_usual_length_is_whole_and_none_is_endless() -> None:
    many = [f"package-{number:03}==1.0 depends on other-{number:03}>=2" for number in range(20)]
    reason = f"Because {' and '.join(many)}, it is unsatisfiable."
    assert len(reason) > 900
    assert shortened(f"error: {reason}") == reason
    assert len(shortened(f"error: {reason * 100}")) == 1500


def test_its_progress_and_options_that_nobody_can_set_are_left_out() -> None:
    told = shortened(
        f"Using CPython 3.11.2 interpreter at: /usr/bin/python3\nResolved 5 packages in 2ms\n"
        f"{SAID}\n  hint: `framework` was found on file:///first. If all indexes are equally\n"
        "  trusted, use `--index-strategy unsafe-best-match` to consider all versions from\n"
        "  all indexes, regardless of the order in which they were defined.\n"
    )
    assert told.startswith("No solution found")
    assert told.endswith("hint: `framework` was found on file:///first.")


def test_without_a_word_it_says_so() -> None:
    assert shortened(" \n") == "uv ended without a message"
