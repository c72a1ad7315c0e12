"""How the page looks: calm, on any width, light or dark, on screen or paper."""

from actsafe.report.svg import variables

_LIGHT = (
    "--paper:#ffffff;--ground:#f6f7f8;--ink:#1d2227;--soft:#59626c;--line:#dfe3e7;--link:#00598c;"
    "--safe:#00714f;--safe-ground:#e7f5ef;--unsafe:#a83c00;--unsafe-ground:#fdeee5;"
    "--unproven:#7a5200;--unproven-ground:#fdf3d9;--unknown:#59626c;--unknown-ground:#eef0f2;"
)
_DARK = (
    "--paper:#1b1f24;--ground:#13161a;--ink:#e3e6e9;--soft:#a3abb3;--line:#333a42;--link:#7cc7f2;"
    "--safe:#4fd6a8;--safe-ground:#12312a;--unsafe:#ff9d66;--unsafe-ground:#3a2114;"
    "--unproven:#f0b429;--unproven-ground:#332a14;--unknown:#a3abb3;--unknown-ground:#262c32;"
)

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--ground);color:var(--ink);font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;overflow-wrap:break-word}
main,header.top,footer{max-width:66rem;margin:0 auto;padding:0 1.25rem}
header.top{padding-top:2.5rem}
footer{padding:1.5rem 1.25rem 3rem;color:var(--soft);font-size:.85rem}
h1,h2,h3,h4{font-family:"Iowan Old Style","Palatino Linotype",Palatino,"URW Palladio L",Georgia,serif;
font-weight:600;line-height:1.2;text-wrap:balance}
h1{font-size:2.1rem;margin:0 0 .3rem}
h2{font-size:1.55rem;margin:2.6rem 0 .8rem}
h3{font-size:1.2rem;margin:2.2rem 0 .6rem;padding-top:1rem;border-top:1px solid var(--line)}
h4{font-size:1rem;margin:1.4rem 0 .4rem}
p,ul{max-width:46rem;margin:.5rem 0}
li{margin:.2rem 0}
a{color:var(--link)}
.eyebrow{color:var(--soft);margin:0 0 .2rem;font-size:.9rem}
code{font:.86em/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--unknown-ground);
padding:.1em .35em;border-radius:.25em;overflow-wrap:anywhere}
nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.92rem;max-width:none}
.run{background:var(--paper);border:1px solid var(--line);border-radius:.6rem;padding:1.4rem 1.5rem 1.8rem;
margin:1.2rem 0 2rem}
.run>h2{margin-top:0}
.verdict{font-size:1.22rem;line-height:1.4;padding:.9rem 1.1rem .9rem 3rem;border-radius:.5rem;position:relative;
margin:1rem 0;max-width:none}
.verdict::before{position:absolute;left:1.1rem;font-weight:700}
.verdict[data-verdict=safe]{background:var(--safe-ground);color:var(--safe)}
.verdict[data-verdict=safe]::before{content:"✓"}
.verdict[data-verdict=unsafe]{background:var(--unsafe-ground);color:var(--unsafe)}
.verdict[data-verdict=unsafe]::before{content:"✕"}
.verdict[data-verdict=unproven]{background:var(--unproven-ground);color:var(--unproven)}
.verdict[data-verdict=unproven]::before{content:"!"}
.verdict[data-verdict=unknown]{background:var(--unknown-ground);color:var(--unknown)}
.verdict[data-verdict=unknown]::before{content:"?"}
dl.facts{display:flex;flex-wrap:wrap;border:1px solid var(--line);border-width:1px 0 0 1px;margin:1.2rem 0}
dl.facts>div{flex:1 1 30%;padding:.7rem .9rem;border:1px solid var(--line);border-width:0 1px 1px 0;min-width:0}
dl.facts dt{color:var(--soft);font-size:.82rem}
dl.facts dd{margin:.1rem 0 0;font-size:1.08rem;font-variant-numeric:tabular-nums}
dl.facts dd small{display:block;color:var(--soft);font-size:.8rem;line-height:1.35}
.note{border-left:3px solid var(--fig-e69f00);padding:.35rem .8rem;background:var(--unknown-ground);
border-radius:0 .35rem .35rem 0}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(24rem,100%),1fr));gap:1.2rem;margin:1rem 0}
figure{margin:0;min-width:0;max-width:34rem}
figure.broad{max-width:none;margin:1rem 0}
figure svg{display:block;width:100%;height:auto;fill:var(--fig-000000)}
figure svg *{stroke-linejoin:round;stroke-linecap:butt}
figure .wide svg{min-width:34rem}
figcaption{color:var(--soft);font-size:.85rem;line-height:1.45;margin-top:.3rem;max-width:46rem}
.wide{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;margin:.8rem 0;
min-width:min(100%,24rem)}
caption{text-align:left;color:var(--soft);font-size:.85rem;padding-bottom:.3rem}
th,td{text-align:right;padding:.34rem .7rem;border-bottom:1px solid var(--line);vertical-align:top}
thead th{color:var(--soft);font-weight:500;font-size:.82rem;vertical-align:bottom}
tbody th{font-weight:500}
th:first-child,td:first-child{text-align:left;padding-left:0}
table.keys th,table.keys td{text-align:left}
table.keys td{overflow-wrap:anywhere;min-width:6.5rem}
details{margin:.8rem 0}
summary{cursor:pointer;color:var(--link)}
.film{margin:1rem 0;position:relative}
.film .still{position:absolute;opacity:0;width:1px;height:1px}
.film .button{display:inline-block;border:1px solid var(--line);border-radius:2rem;padding:.2rem .9rem;cursor:pointer;
font-size:.88rem;background:var(--ground);user-select:none}
.film .still:focus-visible+.button{outline:3px solid var(--link);outline-offset:2px}
.film .play,.film .still:checked+.button .pause{display:none}
.film .still:checked+.button .play{display:inline}
.film .still:checked~.reel .moving{animation-play-state:paused!important}
.reel{display:flex;flex-wrap:wrap;align-items:center;gap:1rem 2rem;margin-top:.7rem}
.reel .scene{width:min(15rem,100%);height:auto}
.reel .plot{flex:1 1 17rem;max-width:32rem;min-width:0;width:100%;height:auto}
.reel .screen{width:min(16rem,100%);background-repeat:no-repeat;image-rendering:pixelated;border-radius:.4rem}
:target{scroll-margin-top:1rem}
@media (prefers-reduced-motion:reduce){
html{scroll-behavior:auto}
.film .moving{animation-play-state:paused!important}
.film .still:checked~.reel .moving{animation-play-state:running!important}
.film .pause,.film .still:checked+.button .play{display:none}
.film .play,.film .still:checked+.button .pause{display:inline}
}
@media (max-width:36rem){
header.top{padding-top:1.4rem}
main,header.top{padding-left:.8rem;padding-right:.8rem}
.run{padding:1rem .9rem 1.2rem;border-radius:.4rem}
h1{font-size:1.6rem}
h2{font-size:1.35rem}
dl.facts>div{flex-basis:45%;padding:.5rem .6rem}
table.stack,table.stack tbody,table.stack tr,table.stack th,table.stack td,table.stack caption{display:block}
table.stack thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table.stack tbody tr{padding:.5rem 0;border-bottom:1px solid var(--line)}
table.stack th,table.stack td{border:0;padding:.12rem 0;text-align:left}
table.stack td{display:flex;justify-content:space-between;gap:1rem;text-align:right}
table.stack td::before{content:attr(data-label);color:var(--soft);text-align:left;flex:none;max-width:45%}
.verdict{font-size:1.08rem;padding-left:2.4rem}
.verdict::before{left:.8rem}
}
@media print{
body{background:#fff}
nav,.film .button{display:none}
.run{border:0;padding:0}
figure,table,.verdict{break-inside:avoid}
.wide{overflow:visible}
figure .wide svg{min-width:0}
}
"""


def stylesheet() -> str:
    """All rules; paper is always light."""
    light, dark = _LIGHT + variables(is_dark=False), _DARK + variables(is_dark=True)
    scheme = f":root{{color-scheme:light dark;{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return scheme + _RULES
