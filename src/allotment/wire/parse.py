"""Text into a tree, by whichever reader fits it."""

from allotment.model.errors import BadInput, Problem
from allotment.wire.tree import Tree


def tree_of(
    text: str, source: str, *, as_json: bool = False
) -> tuple[Tree, tuple[Problem, ...]]:
    """Parse as JSON what looks like it, anything else as YAML.

    A text in braces may still be YAML's short form; if it is neither, JSON's complaint
    is the one shown, unless the file is called YAML. `as_json` starts with JSON
    whatever the text looks like. Raises BadInput.
    """
    from allotment.wire.json5_reader import read_json5, starts_like_json
    from allotment.wire.yaml_reader import read_yaml

    if not as_json and not starts_like_json(text):
        return read_yaml(text, source)
    try:
        return read_json5(text, source)
    except BadInput as not_json:
        try:
            return read_yaml(text, source)
        except BadInput as not_yaml:
            if source.endswith((".yaml", ".yml")):
                raise not_yaml from None
            raise not_json from None
