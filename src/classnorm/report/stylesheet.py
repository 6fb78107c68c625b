"""The stylesheet of the page, for desktop, phone, dark mode and print."""

STYLE = """
:root { color-scheme: light dark; --right: #007A5A; --wrong: #B84700; --line: #8885; }
@media (prefers-color-scheme: dark) { :root { --right: #2BC79A; --wrong: #FF9352; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3, p, dd, summary { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.3rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { max-width: 46rem; margin: .5rem 0; } .note { font-size: .875rem; opacity: .8; }
.scroll { overflow: auto; max-width: 100%; } .tall { max-height: 26rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child {
  text-align: left; white-space: normal; min-width: 8rem; position: sticky; left: 0; background: Canvas;
}
thead th { position: sticky; top: 0; background: Canvas; } thead th:first-child { z-index: 1; }
th.words, td.words { text-align: left; }
.words th, .words td { text-align: left; vertical-align: top; } .words td:last-child { white-space: normal; }
u { text-underline-offset: .2em; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .45em; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem; }
.plots img { width: 100%; max-width: 34rem; height: auto; background: white; border-radius: 4px; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: 1rem .5rem; }
figure { margin: 0; text-align: center; font-size: .8rem; line-height: 1.25; overflow-wrap: anywhere; }
figure img { width: 6rem; display: block; margin: 0 auto .3rem; background: white; border-radius: 4px; }
.right, .holds { color: var(--right); } .wrong, .fails { color: var(--wrong); } .weak { opacity: .85; }
.claims th:nth-child(-n+2), .claims td:nth-child(-n+2) { white-space: normal; }
nav ul { columns: 18rem; padding-left: 1.1rem; } nav a { color: inherit; }
details { margin: .5rem 0; } summary { cursor: pointer; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1rem; }
footer { margin-top: 2.5rem; font-size: .85rem; opacity: .75; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; } th, td { padding: .3rem .4rem; font-size: .9rem; }
  .words table, .words tbody { display: block; } .words thead { display: none; } .words td { overflow-wrap: anywhere; }
  .words tr { display: block; border-bottom: 1px solid var(--line); padding: .3rem 0; }
  .words td { border: 0; padding: 0 .6rem 0 0; display: inline-block; }
  .words td:last-child { display: block; white-space: normal; }
  .words td:nth-child(1) { font-weight: 600; } .words td:nth-child(3)::after { content: " rows"; }
  .words td:nth-child(4)::after { content: " % right"; } .words td:last-child::before { content: "→ "; }
}
@media print {
  :root { color-scheme: light; }
  body { max-width: none; margin: 0; font-size: 10pt; }
  .scroll, .tall { overflow: visible; max-height: none; }
  .plots { grid-template-columns: 1fr 1fr; } .classes { display: none; }
  th, td { font-size: 8pt; padding: .2rem .3rem; }
  details::details-content { content-visibility: visible; block-size: auto; }
  h2, h3 { break-after: avoid; } tr, img, figure, dt { break-inside: avoid; }
}
"""
