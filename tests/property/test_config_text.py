"""A configuration as a file for people reads back as what was written."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allotment.wire.config_text import config_text
from allotment.wire.parse import tree_of
from allotment.wire.tree import AS_WRITTEN, plain_of

letters = st.characters(exclude_categories=("Cs", "Cc", "Cn"), max_codepoint=0xFFFD)
texts = (
    st.text(letters, max_size=12)
    | st.text("0123456789.xeo_-+: #{}[],&*!|>'\"%@`?~ ", max_size=8)
    | st.sampled_from(["no", "true", "null", "~", "1.0", "- a", "a: b", "a #b", "0x1f", " a"])
)
keys = texts.filter(lambda text: text and text not in AS_WRITTEN)
scalars = texts | st.integers(-(10**9), 10**9) | st.booleans()
trees: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=25,
)


@given(st.dictionaries(keys, trees, min_size=1, max_size=4), st.text(letters))
def test_what_is_written_reads_back(written: dict[str, Any], head: str) -> None:
    text = config_text(written, head)
    tree, problems = tree_of(text, "c.yaml")
    assert problems == ()
    assert plain_of(tree) == written
