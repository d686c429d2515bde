"""Write figures for people: lines on a terminal, a page in docs/."""

from collections.abc import Iterator, Sequence

from bench.figures import Figure, Run


def figure_lines(
    figures: Sequence[Figure], before: Sequence[Figure]
) -> Iterator[tuple[str, bool]]:
    """Return a line for each figure, and whether it is as it should be."""
    old = {figure.name: figure for figure in before}
    for figure in figures:
        last = old.get(figure.name)
        remarks = [_target(figure), _change(figure, last)]
        good = figure.on_target and not (last and figure.is_worse_than(last))
        shown = f"{figure.name:<52} {_number(figure.value):>12} {figure.unit:<8}"
        yield f"{shown} {'  '.join(filter(None, remarks))}".rstrip(), good


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def _bound(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"{'≤' if figure.better == 'lower' else '≥'} {_number(figure.target)}"


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"(target {_bound(figure)}{'' if figure.on_target else ' MISSED'})"


def _change(figure: Figure, before: Figure | None) -> str:
    change = figure.change_from(before) if before else None
    if before is None or change is None:
        return ""
    word = "better" if change >= 0 else "worse"
    flag = "REGRESSION: " if figure.is_worse_than(before) else ""
    return f"{flag}{abs(change):.0%} {word} than recorded"


def markdown(run: Run) -> str:
    """Write the page docs/benchmarks.md."""
    rows = [
        f"| {name} | {figure.name} | {_number(figure.value)} {figure.unit} "
        f"| {_bound(figure)} | {'yes' if figure.on_target else '**no**'} |"
        for name, figures in sorted(run.figures.items())
        for figure in figures
    ]
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "<!-- Written by `make bench-record`; do not edit. -->",
            "",
            f"Measured on {run.date} with `{run.command}` on {run.machine}.",
            "",
            "| benchmark | figure | measured | target | met |",
            "|---|---|---:|---:|---|",
            *rows,
            "",
        ]
    )
