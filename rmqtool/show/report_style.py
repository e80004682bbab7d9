"""The style sheet of a report: light and dark as the reader's system is, from narrow telephones to print."""

TOPIC_COLORS = 8
"""Topics with a colour of their own; all others share one."""

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --soft: #57606a; --line: #d0d7de; --card: #f6f8fa;
  --good: #2da44e; --bad: #cf222e; --warn: #9a6700; --unreachable: #b08000; --torn: #8250df; --unread: #6e7781;
  --t0: #0969da; --t1: #e36209; --t2: #1a7f37; --t3: #8250df; --t4: #bf3989; --t5: #0e8a8a; --t6: #9a6700;
  --t7: #57606a; --t8: #818b98; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --card: #161b22; --good: #3fb950; --bad: #ff7b72; --warn: #d29922; --unreachable: #d29922; --torn: #bc8cff;
  --unread: #8b949e; --t0: #58a6ff; --t1: #f0883e; --t2: #56d364; --t3: #bc8cff; --t4: #f778ba; --t5: #39c5cf;
  --t6: #e3b341; --t7: #b1bac4; --t8: #6e7681; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 110rem; padding: 1rem clamp(0.75rem, 3vw, 3rem); background: var(--back);
  color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2.25rem 0 0.5rem; }
h3 { font-size: 1rem; margin: 1rem 0 0.2rem; overflow-wrap: anywhere; }
.where { color: var(--soft); overflow-wrap: anywhere; }
p, ul, ol, dl { margin: 0.4rem 0; } li { margin: 0.3rem 0; } .soft, caption, figcaption { color: var(--soft); }
.verdict { margin: 0.75rem 0; padding: 0.75rem 1rem; border-left: 0.4rem solid var(--soft); background: var(--card); }
.verdict.clean { border-color: var(--good); } .verdict.dirty, .verdict.unproven { border-color: var(--unreachable); }
.verdict.corrupt { border-color: var(--bad); } .verdict strong { font-size: 1.1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9rem; }
pre { overflow-x: auto; padding: 0.6rem 0.8rem; background: var(--card); border: 1px solid var(--line);
  margin: 0.4rem 0; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem; } .facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 34rem) { .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin: 0 0 0.4rem; } }
.error { color: var(--bad); } .warning { color: var(--warn); } .lost { color: var(--bad); }
figure { margin: 0.75rem 0; } figcaption { font-size: 0.9rem; margin-top: 0.25rem; }
.picture { display: block; shape-rendering: crispEdges; width: 100%; height: 10rem; background: var(--card);
  border: 1px solid var(--line); }
.picture.strip { height: 2.5rem; } .picture.line { height: 1.2rem; min-width: 12rem; border: 0; }
.axis { display: flex; justify-content: space-between; font-size: 0.85rem; color: var(--soft); gap: 1rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0.2rem 1.1rem; padding: 0; list-style: none; font-size: 0.9rem; }
.legend li { margin: 0; overflow-wrap: anywhere; } .legend svg { width: 0.8rem; height: 0.8rem; margin-right: 0.4rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
caption { text-align: left; padding: 0.3rem 0; } th, td { text-align: left; padding: 0.25rem 0.9rem 0.25rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; } td { min-width: 7rem; overflow-wrap: break-word; }
.number { text-align: right; min-width: 0; font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; padding: 0.3rem 0; } details { margin: 0.3rem 0; }
:focus-visible { outline: 2px solid var(--t0); outline-offset: 2px; }
.t0 { fill: var(--t0); } .t1 { fill: var(--t1); } .t2 { fill: var(--t2); } .t3 { fill: var(--t3); }
.t4 { fill: var(--t4); } .t5 { fill: var(--t5); } .t6 { fill: var(--t6); } .t7 { fill: var(--t7); }
.t8 { fill: var(--t8); } .good, .kept { fill: var(--good); } .bad, .goes { fill: var(--bad); }
.unreachable { fill: var(--unreachable); } .torn { fill: var(--torn); } .unread, .not-reached { fill: var(--unread); }
.now { stroke: var(--text); } .level { stroke: var(--bad); stroke-dasharray: 4 3; } .behind { fill: var(--t0); }
.course { fill: none; stroke: var(--t0); } .course.fast { stroke: var(--t1); stroke-dasharray: 6 3; }
.now, .level, .course { stroke-width: 2px; vector-effect: non-scaling-stroke; }
@media print { details:not([open]) > * { display: revert; } details::details-content { content-visibility: visible; }
  body { max-width: none; padding: 0; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""
