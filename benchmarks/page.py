"""Self-contained HTML page of a run: it includes styles and plots and loads no other file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from benchmarks.bars import Bar, draw_bars
from benchmarks.cases import CASES
from benchmarks.in_short import in_short
from benchmarks.text_format import (
    busy_warning,
    cpu_text,
    goal_figure,
    goal_found,
    goal_verdict,
    machine_line,
    rate_form,
    rate_text,
    rate_unit,
    setting_text,
    settings_note,
    shown_rate,
    spread_text,
    versions_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.goals import Outcome
    from benchmarks.results import Results, Row, Spread

__all__ = ("render_page",)

_STYLE = """
:root { --ink:#0f172a; --soft:#56657a; --paper:#fbfbf9; --card:#fff; --line:#e3e6ea; --ours:#0f766e; --peer:#9fb0c3;
  --bare:#56657a; --bad:#b42318; --good:#0f766e; }
@media (prefers-color-scheme: dark) { :root { --ink:#e7ecf3; --soft:#9aa8ba; --paper:#0d1219; --card:#151c26;
  --line:#263141; --ours:#2dd4bf; --peer:#51647c; --bare:#8796a9; --bad:#f97066; --good:#2dd4bf; } }
* { box-sizing: border-box; }
body { margin:0; background:var(--paper); color:var(--ink); font:15px/1.55 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 40px 24px 80px; }
h1 { font-size: 30px; margin: 0 0 4px; letter-spacing:-.01em; }
h2 { font-size: 19px; margin: 44px 0 2px; }
p { margin: 6px 0; } .soft { color: var(--soft); } .warn { color: var(--bad); font-weight:600; }
code, pre { font: 13px ui-monospace, "SF Mono", Menlo, monospace; } pre { padding:10px 14px; background:var(--card);
  border:1px solid var(--line); border-radius:8px; overflow-x:auto; }
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(210px,1fr)); gap:12px; margin:22px 0 8px; }
.tile, .card { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:14px 16px; }
.tile b { display:block; font-size:26px; line-height:1.2; letter-spacing:-.02em; }
.card { margin-top:10px; overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-size:13px; }
th { text-align:left; font-weight:600; color:var(--soft); }
th, td { padding:5px 10px 5px 0; border-bottom:1px solid var(--line); vertical-align:top; }
tr:last-child td { border:0; }
td.n, th.n { text-align:right; font-variant-numeric:tabular-nums; white-space:nowrap; }
tr.ours td { font-weight:600; } tr.failed td { color:var(--soft); } td small { display:block; color:var(--soft);
  font-size:12px; font-weight:400; }
.aim, .met { color:var(--good); font-weight:600; } .missed, .doubtful { color:var(--bad); font-weight:600; }
svg { display:block; width:100%; height:auto; } svg text { fill:var(--ink); font:13px system-ui, sans-serif; }
svg .ours { fill:var(--ours); } svg .peer { fill:var(--peer); } svg .bare { fill:var(--bare); }
svg .strong { font-weight:600; } svg .faint { fill:var(--soft); font-size:12px; }
svg .range { stroke:var(--ink); stroke-width:1.2; } svg .cut { stroke:var(--card); stroke-width:5; }
svg .mark { stroke:var(--bare); stroke-dasharray:4 3; }
details { margin-top:10px; } summary { cursor:pointer; color:var(--soft); font-size:13px; }
ol.notes { font-size:13px; color:var(--soft); padding-left:20px; margin:10px 0 0; }
"""


def render_page(results: Results, outcomes: Sequence[Outcome], method: str) -> str:
    """Return the page as HTML."""
    return "".join(_parts(results, outcomes, method))


def _parts(results: Results, outcomes: Sequence[Outcome], method: str) -> Iterator[str]:
    run = results.run
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>aioloader: benchmarks</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body><main>\n<h1>aioloader, measured</h1>"
    yield f'<p class="soft">{escape(machine_line(run))}; {run.get("rounds", "?")} rounds of '
    yield f"{run.get('seconds', '?')} s; {escape(str(run.get('data', '')))}</p>"
    warning = busy_warning(results.rows)
    if warning:
        yield f'<p class="warn">{escape(warning)}</p>'
    yield _tiles(results)
    short = in_short(results)
    if short:
        yield '<h2>In short</h2><div class="card"><table><tr><th>work</th><th>aioloader</th></tr>'
        yield from (f"<tr><td>{escape(work)}</td><td>{escape(text)}</td></tr>" for work, text in short)
        yield "</table></div>"
    for case in results.cases:
        yield _case(results, case)
    if outcomes:
        yield '<h2>Targets</h2><div class="card"><table><tr><th>case</th><th>this project</th>'
        yield '<th class="n">target</th><th class="n">higher target</th><th class="n">found</th><th></th></tr>'
        yield from (_goal(outcome) for outcome in outcomes)
        yield "</table></div>"
    yield "<h2>How it was measured</h2>"
    yield from (f"<p>{_prose(paragraph)}</p>" for paragraph in method.split("\n\n"))
    if settings_note(run):
        yield f"<p>{escape(settings_note(run))}</p>"
    yield f"<pre>{escape(str(run.get('command', '')))}</pre>"
    yield '<div class="card"><table><tr><th>contender</th><th>Python</th><th>packages</th></tr>'
    for name, facts in sorted(results.contenders.items()):
        packages = escape(versions_text(facts["versions"]))
        yield f"<tr><td>{escape(name)}</td><td>{escape(facts['python'])}</td><td>{packages}</td></tr>"
    yield "</table></div>\n</main></body></html>\n"


def _prose(text: str) -> str:
    first, *rest = escape(" ".join(text.split())).split("*")
    return first + "".join(
        f"{'<em>' if number % 2 == 0 else '</em>'}{part}" for number, part in enumerate(rest)
    )


def _tiles(results: Results) -> str:
    """Return the first case in three to five figures; with a crop index, both ways."""
    case = results.cases[0] if results.cases else ""
    ours = results.row(case, "aioloader")
    if ours is None or ours.rate is None:
        return ""
    peers = [
        row for row in results.of_case(case) if row.measured and row.name not in ("aioloader", "bare_loop")
    ]
    tiles = [(_middle(shown_rate(ours), rate_form(case)), f"{rate_unit(case)} in {case}, {ours.title}")]
    if ours.of_bare:
        tiles.append((f"{ours.of_bare.median:.2f}", "of the bare loop's rate"))
    if peers and peers[0].ahead:
        tiles.append((f"{peers[0].ahead.median:.2f}x", f"the rate of the fastest peer, {peers[0].title}"))
    if peers and peers[0].ahead_indexed:
        tiles.append((f"{peers[0].ahead_indexed.median:.2f}x", "the same with a crop index"))
    if ours.first_batch_s:
        tiles.append((f"{ours.first_batch_s.median:.2f} s", "to the first batch"))
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><b>{escape(figure)}</b><span class="soft">{escape(text)}</span></div>'
            for figure, text in tiles
        )
        + "</div>"
    )


def _case(results: Results, case: str) -> str:
    rows = [row for row in results.of_case(case) if row.status != "declined"]
    measured = [row for row in rows if row.measured and row.rate]
    chart = _chart(measured, case) if measured else ""
    notes = list(dict.fromkeys(f"{row.title}: {note}" for row in rows for note in row.notes))
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<h2>{case}</h2><p class="soft">{escape(CASES[case].title)}; {rate_unit(case)}</p>'
        f'<div class="card">{chart}{_table(rows, case)}'
        + (f'<ol class="notes">{listed}</ol>' if listed else "")
        + _swept(rows)
        + "</div>"
    )


def _chart(rows: Sequence[Row], case: str) -> str:
    """Draw bars of the rates, fastest first, with ranges, the bare loop as a line, and outliers cut."""
    bars = []
    for row in rows:
        rate = shown_rate(row)
        if rate is not None:
            kind = {"aioloader": "ours", "bare_loop": "bare"}.get(row.name, "peer")
            tooltip = f"{row.title}: {rate_text(row)} {rate_unit(case)}"
            figure = format(rate.median, rate_form(case))
            title = row.title.replace("bare_loop", "bare loop")
            median, low, high = rate
            bars.append(Bar(title, kind, median, low, high, figure=figure, tooltip=tooltip, note=_share(row)))
    return draw_bars(bars, f"Rates in the case {case}; the table below has the figures.")


def _share(row: Row) -> str:
    if row.name in ("aioloader", "bare_loop") or row.ahead is None:
        return ""
    with_index = f", with index {row.ahead_indexed.median:.2f}x" if row.ahead_indexed else ""
    return f"aioloader {row.ahead.median:.2f}x{with_index}"


def _table(rows: Sequence[Row], case: str) -> str:
    columns: list[tuple[str, Callable[[Row], str]]] = [
        (rate_unit(case), rate_text),
        ("of bare loop", lambda row: spread_text(row.of_bare, ".2f")),
        ("first batch, s", lambda row: _middle(row.first_batch_s, ".2f")),
        ("CPU, µs a sample", cpu_text),
        ("memory, MB", lambda row: _middle(row.peak_pss, ",.0f", 1e-6)),
        ("data, MB", lambda row: f"{row.stored_nbytes / 1e6:,.0f}" if row.stored_nbytes else ""),
    ]
    if case == "bytes":
        columns.insert(1, ("µs a record", lambda row: f"{1e6 / row.rate.median:.2f}" if row.rate else ""))
    if any(row.lag_p99_ms for row in rows):
        columns.append(("lag p99, ms", lambda row: _middle(row.lag_p99_ms, ".1f")))
    head = "".join(f'<th class="n">{name}</th>' for name, _ in columns)
    lines = [f"<table><tr><th>contender</th>{head}</tr>"]
    for row in rows:
        kind = "ours" if row.name == "aioloader" else row.status
        name = f"<td>{escape(row.title)}<small>{escape(setting_text(row.setting))}</small></td>"
        if not row.measured:
            reason = f"failed, {row.reason}" if row.status == "failed" else "the run ended before its turn"
            lines.append(f'<tr class="failed">{name}<td colspan="{len(columns)}">{escape(reason)}</td></tr>')
            continue
        cells = "".join(f'<td class="n">{escape(show(row))}</td>' for _, show in columns)
        lines.append(f'<tr class="{kind}">{name}{cells}</tr>')
    return "".join([*lines, "</table>"])


def _middle(spread: Spread | None, form: str, scale: float = 1.0) -> str:
    return "" if spread is None else format(spread.median * scale, form)


def _swept(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        outcomes: dict[str, list[str]] = {}
        for setting, outcome in row.swept:
            text = setting_text(setting) + (" (kept)" if setting == row.setting else "")
            shown = outcome if isinstance(outcome, str) else f"{outcome:,.0f}"
            outcomes.setdefault(text, []).append(shown)
        lines += [
            f"<tr><td>{escape(row.title)}</td><td>{escape(text)}</td>"
            f'<td class="n">{escape("; ".join(found))}</td></tr>'
            for text, found in outcomes.items()
        ]
    if not lines:
        return ""
    return (
        "<details><summary>Settings that were tried (short measurements, samples/s; those near the best twice)"
        "</summary><table>" + "".join(lines) + "</table></details>"
    )


def _goal(outcome: Outcome) -> str:
    goal = outcome.goal
    least = ("" if goal.upwards else "at most ") + goal_figure(outcome, goal.least)
    return (
        f"<tr><td>{goal.case}</td><td>{escape(goal.text)}</td><td class='n'>{least}</td>"
        f"<td class='n'>{goal_figure(outcome, goal.aim)}</td><td class='n'>{goal_found(outcome)}</td>"
        f"<td class='{outcome.verdict.split()[0]}'>{goal_verdict(outcome)}</td></tr>"
    )
