"""What errors say, and how they travel."""

import pickle

from allotment.model.errors import Code, Rejected


def test_a_refusal_crosses_from_one_process_to_another() -> None:
    refusal = Rejected(Code.NOT_SUPPORTED, "No.", "Ask otherwise.")
    again = pickle.loads(pickle.dumps(refusal))
    assert (again.code, again.message, again.hint) == (
        Code.NOT_SUPPORTED,
        "No.",
        "Ask otherwise.",
    )
    assert str(again) == "No. Ask otherwise."
