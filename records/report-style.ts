/** The report's style sheet: one column, light and dark by the reader's preference, readable when printed. */
export const REPORT_STYLE = `
:root {
  color-scheme: light dark;
  --paper: #ffffff; --panel: #f5f6f8; --ink: #1c2330; --muted: #5b6575; --grid: #dfe3e9; --accent: #0b62c4; --good: #136f3f; --bad: #a52222;
  --series-1: #0b62c4; --series-2: #c2570c; --series-3: #12805c; --series-4: #8b3fb0; --series-5: #a8761b; --series-6: #b3265f; --series-7: #47607a; --series-8: #1c2330;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12161d; --panel: #1b212b; --ink: #e6eaf0; --muted: #a3adbb; --grid: #303947; --accent: #79b4ff; --good: #63d39b; --bad: #ff8f8f;
    --series-1: #6cb0ff; --series-2: #ffa05c; --series-3: #5fd3a5; --series-4: #d69bf5; --series-5: #e8c15a; --series-6: #ff88b4; --series-7: #a9bdd3; --series-8: #e6eaf0;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, 'Segoe UI', sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 2.5rem 1.25rem 5rem; }
h1 { font-size: 1.9rem; margin: 0 0 .25rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--grid); }
h3 { font-size: 1.02rem; margin: 1.75rem 0 .25rem; }
p, ul { max-width: 46rem; }
.lead, .note, figcaption, caption { color: var(--muted); }
.note, figcaption, caption { font-size: .875rem; }
a { color: var(--accent); }
nav { margin: 1rem 0 0; font-size: .925rem; }
nav a { margin-right: 1.1rem; white-space: nowrap; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .75rem; margin: 1.75rem 0 0; padding: 0; }
.tiles > div { background: var(--panel); border-radius: 8px; padding: .8rem 1rem; }
.tiles dt { color: var(--muted); font-size: .825rem; }
.tiles dd { margin: .1rem 0 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles dd small { font-size: .8rem; font-weight: 400; color: var(--muted); display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .9rem 0; font-size: .925rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .4rem; }
th, td { padding: .34rem .8rem .34rem 0; border-bottom: 1px solid var(--grid); text-align: right; vertical-align: top; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
td.text { min-width: 16rem; }
td code { white-space: nowrap; }
thead th { color: var(--muted); font-weight: 600; }
tbody th { font-weight: 500; }
tr.total th, tr.total td { font-weight: 700; border-top: 2px solid var(--grid); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: .5rem 2rem; }
figure { margin: .75rem 0; }
figure svg { width: 100%; height: auto; display: block; }
.published { border-left: 4px solid var(--muted); padding-left: 1rem; }
.badge { display: inline-block; white-space: nowrap; border: 1px solid currentColor; border-radius: 4px; padding: 0 .4rem; font-size: .8rem; font-weight: 600; }
.badge.good { color: var(--good); } .badge.bad { color: var(--bad); } .badge.neutral { color: var(--muted); }
details { margin: .5rem 0; } summary { cursor: pointer; }
pre { background: var(--panel); border-radius: 6px; padding: .7rem .9rem; overflow-x: auto; font: .825rem/1.45 ui-monospace, 'SF Mono', Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0; }
pre .prompt { color: var(--accent); } pre .status { color: var(--bad); }
code { font: .9em ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
@media print { main { max-width: none; } h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
`;
