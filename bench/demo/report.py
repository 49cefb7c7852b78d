"""The demo's closing table and its HTML report: one self-contained page, plots as inline SVG."""
import html as escape_module
import math
import platform

from screen import human

COLOURS = {"mapped": "#2563eb", "stream": "#d97706"}


def _rows(replicas):
    for r in replicas:
        f = r.final
        if f is None:
            continue
        nodes = " ".join(f"{n} {100 * share:.0f}%" for n, share in sorted(f["rows_by_node"].items()))
        yield [r.name, r.fabric, r.trace, human(f["rows_per_s"]), human(f["tokens_per_s"]), f"{f['decode_p50_us']:.0f}/{f['decode_p99_us']:.0f}",
               f"{f['prefill_p50_us'] / 1000:.1f}/{f['prefill_p99_us'] / 1000:.1f}", f"{100 * f['duplicate_share']:.0f}%", f"{f['rows_verified']:,}",
               f"{f['rows_failed']:,}", str(f["rows_wrong"]), nodes]


HEAD = ["REPLICA", "FABRIC", "TEXT", "ROWS/S", "TOKENS/S", "DECODE us p50/p99", "PREFILL ms p50/p99", "DUP", "VERIFIED",
        "FAILED", "WRONG", "ROWS BY NODE"]


def print_table(facts, replicas, events):
    table = [HEAD] + list(_rows(replicas))
    widths = [max(len(row[i]) for row in table) for i in range(len(HEAD))]
    print()
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print("\nFAILED rows: no node served them, or they were not there in time. They are poisoned and reported, never zeros or stale bytes. "
          "WRONG counts rows whose bytes differ from the table's.")


def _text(value):
    return escape_module.escape(str(value))


def _plot(title, unit, series, events, begin, end, log=False, band=None):
    """series: [(label, colour, [(t, value)])]; one line plot as SVG, of the time from begin to end, a part of it shaded."""
    width, height, left, top, right, bottom = 860, 250, 100, 34, 16, 34
    series = [(label, colour, [(t, v) for t, v in points if begin <= t <= end]) for label, colour, points in series]
    events = [(t, text) for t, text in events if begin <= t <= end]
    values = [v for _, _, points in series for _, v in points if v > 0]
    if not values:
        return ""

    high, low = max(values) * 1.05, (min(values) if log else 0)
    scale = (lambda v: math.log10(max(v, low))) if log else (lambda v: v)
    span = (scale(high) - scale(low)) or 1

    def x(t):
        return left + (width - left - right) * min(1, (t - begin) / (end - begin))

    def y(v):
        return top + (height - top - bottom) * (1 - (scale(v) - scale(low)) / span)

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{_text(title)}">',
             f'<text x="{left}" y="16" class="title">{_text(title)}</text>']
    ticks = [(v, f"{v:g} ") for v in _decades(low, high)] if log else [(v, human(v)) for v in (high * i / 4 for i in range(5))]
    for v, label in ticks:
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y(v):.1f}" y2="{y(v):.1f}" class="grid"/>'
                     f'<text x="{left - 6}" y="{y(v) + 4:.1f}" class="tick" text-anchor="end">{label}{unit}</text>')
    if band:
        parts.append(f'<rect x="{x(band[0]):.1f}" width="{x(band[1]) - x(band[0]):.1f}" y="{top}" height="{height - top - bottom}" class="band"/>')
    for i in range(math.ceil(begin), int(end) + 1, max(1, int(end - begin) // 8)):
        parts.append(f'<text x="{x(i):.1f}" y="{height - 12}" class="tick" text-anchor="middle">{i} s</text>')
    for t, text in events:
        parts.append(f'<line x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{top}" y2="{height - bottom}" class="event"><title>'
                     f'{t:.1f} s: {_text(text)}</title></line>')
    for i, (label, colour, points) in enumerate(series):
        # A logarithmic plot leaves out intervals without a sample.
        line = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in points if v > 0 or not log)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
                     f'<text x="{width - right - 150 * (len(series) - i)}" y="16" fill="{colour}" class="key">{_text(label)}</text>')
    return "".join(parts) + "</svg>"


def _decades(low, high):
    """1, 2 and 5 of each decade between the two."""
    steps = (m * 10.0 ** d for d in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5))
    return [v for v in steps if low <= v <= high]


def _bars(replicas):
    """Share of rows by node, one bar a replica."""
    colours = ["#0f766e", "#7c3aed", "#be123c", "#4d7c0f"]
    nodes = sorted({n for r in replicas if r.final for n in r.final["rows_by_node"]})
    out = ['<svg viewBox="0 0 860 110" role="img" aria-label="rows by node">']
    for row, r in enumerate(x for x in replicas if x.final):
        at = 150.0
        out.append(f'<text x="0" y="{26 + 40 * row}" class="key">{_text(r.name)} ({r.fabric})</text>')
        for n in nodes:
            share = r.final["rows_by_node"].get(n, 0)
            out.append(f'<rect x="{at:.1f}" y="{10 + 40 * row}" width="{700 * share:.1f}" height="24" fill="{colours[nodes.index(n) % 4]}">'
                       f'</rect><text x="{at + 6:.1f}" y="{26 + 40 * row}" fill="#fff" class="tick" style="fill:#fff">{_text(n)} {100 * share:.0f} %</text>')
            at += 700 * share
    return "".join(out) + "</svg>"


STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1f2937;max-width:1060px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2rem}
.sub{color:#6b7280}.ok{color:#047857;font-weight:600}.bad{color:#b91c1c;font-weight:600}
.cards{display:flex;gap:1rem;flex-wrap:wrap;margin:1rem 0}.card{border:1px solid #e5e7eb;border-radius:8px;padding:.6rem 1rem;min-width:130px}
.card b{display:block;font-size:1.25rem}.card span{color:#6b7280;font-size:.85rem}
table{border-collapse:collapse;width:100%;font-size:.85rem;display:block;overflow-x:auto}td,th{border-bottom:1px solid #e5e7eb;padding:.35rem .5rem;text-align:left;white-space:nowrap}
svg{width:100%;height:auto;margin:.4rem 0}.grid{stroke:#e5e7eb}.event{stroke:#b91c1c;stroke-dasharray:4 3}
.band{fill:#fde68a;opacity:.5}
.tick{font-size:11px;fill:#6b7280}.key{font-size:12px}.title{font-size:13px;font-weight:600}
ol.events{font-family:ui-monospace,monospace;font-size:.8rem}
"""


def _move(facts, replicas, latency):
    """What reading felt while the hottest shard moved."""
    if "move" not in facts:
        return ""
    move = facts["move"]
    failed = 0
    for r in replicas:
        before = [s["rows_failed"] for s in r.samples if s["t"] < move["from"]]
        until = [s["rows_failed"] for s in r.samples if s["t"] <= move["until"] + 0.5]
        failed += max(until, default=0) - max(before, default=0)
    return (f"<h2>The hottest shard moves</h2><p class=sub>Shard {move['shard']} goes to {_text(move['to'])} while both replicas read it; shaded: "
            f"from the command until its old copy was gone. Rows that failed meanwhile, of all shards: {failed:,}.</p>" +
            _plot("decode step, p99 of half a second", "ms", latency, [], max(0, move["from"] - 5), move["until"] + 4, log=True,
                  band=(move["from"], move["until"])))


def html(facts, replicas, events, problems):
    finals = [r.final for r in replicas if r.final]
    verified, wrong = sum(f["rows_verified"] for f in finals), sum(f["rows_wrong"] for f in finals)
    failed = sum(f["rows_failed"] for f in finals)
    seconds = max((s["t"] for r in replicas for s in r.samples), default=1)

    def series(key):
        return [(f"{r.name} ({r.fabric})", COLOURS.get(r.fabric, "#111"), [(s["t"], s[key]) for s in r.samples]) for r in replicas]

    latency = [(label, colour, [(t, us / 1000) for t, us in points]) for label, colour, points in series("decode_p99_us")]
    verdict = ('<p class="ok">Zero wrong rows; the hottest shard moved, one node killed and repaired, while both replicas went on.</p>' if not problems else
               "".join(f'<p class="bad">FAILED: {_text(p)}</p>' for p in problems))
    cards = [(f"{verified:,}", "rows verified, byte for byte"), (wrong, "wrong rows"), (f"{failed:,}", "rows failed, most while a node was down"),
             (f"{facts['checkpoint_bytes'] / 1e9:.2f} GB", f"checkpoint, loaded in {facts['load_s']:.1f} s")]
    body = "".join(f"<div class=card><b>{_text(a)}</b><span>{_text(b)}</span></div>" for a, b in cards)
    table = "<table><tr>" + "".join(f"<th>{_text(h)}</th>" for h in HEAD[:-1]) + "</tr>" + "".join(
        "<tr>" + "".join(f"<td>{_text(c)}</td>" for c in row[:-1]) + "</tr>" for row in _rows(replicas)) + "</table>"  # nodes: the bars
    marks = [(t, e) for t, e in events]
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Engram pool demo</title>
<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style>
<h1>Engram pool: three nodes, two replicas, real text</h1>
<p class="sub">{_text(platform.processor() or platform.machine())}, {_text(platform.system())} {_text(platform.release())}; {_text(facts['pages'])}</p>
{verdict}<div class="cards">{body}</div>
<h2>What each replica saw</h2>{table}
<p class="sub">Failed rows: no node served them, or they were not there in time. They were poisoned and reported, never zeros or stale bytes. Dashed
lines are the events below.</p>
<h2>Over time</h2>
{_plot("rows delivered a second", "rows/s", series("rows_per_s"), marks, 0, seconds)}
{_plot("decode step, p99 of the interval", "ms", latency, marks, 0, seconds, log=True)}
{_plot("rows failed a second", "rows/s", series("failed_per_s"), marks, 0, seconds)}
{_move(facts, replicas, latency)}
<h2>Rows by node</h2>{_bars(replicas)}
<h2>Events</h2><ol class="events">{"".join(f"<li>{t:.1f} s: {_text(e)}</li>" for t, e in events)}</ol>
</html>"""
