"""What errors say, and how they travel."""

import pickle

from allotment.model.errors import Code, Problem, Rejected


def test_a_refusal_crosses_from_one_process_to_another() -> None:
    refusal = Rejected(Code.NOT_SUPPORTED, "No.", "Ask otherwise.")
    again = pickle.loads(pickle.dumps(refusal))
    assert (again.code, again.message, again.hint) == (
        Code.NOT_SUPPORTED,
        "No.",
        "Ask otherwise.",
    )
    assert str(again) == "No. Ask otherwise."


def test_a_problem_of_no_file_has_no_place_of_one() -> None:
    problem = Problem("Slurm has no partition gpu", hint="partitions there: main")
    assert problem.in_file("") == str(problem)
    assert problem.in_file("c.yaml") == f"c.yaml: {problem}"
