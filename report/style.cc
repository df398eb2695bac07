// SPDX-License-Identifier: Apache-2.0
#include "report/html.h"

namespace qualm::report {

const char* const kStyle = R"css(
:root{color-scheme:light dark;--fg:#1f2328;--dim:#59636e;--bg:#fff;--card:#f6f8fa;--line:#d1d9e0;
--good:#1a7f37;--good-bg:#dafbe1;--declared:#7d4e00;--declared-bg:#fff4d4;--bad:#b3202c;
--bad-bg:#ffebe9;--link:#0969da;--shade:0%}
@media(prefers-color-scheme:dark){:root{--fg:#f0f6fc;--dim:#9198a1;--bg:#0d1117;--card:#161b22;
--line:#3d444d;--good:#3fb950;--good-bg:#12261e;--declared:#e3b341;--declared-bg:#2a2113;
--bad:#ff7b72;--bad-bg:#311418;--link:#4493f8}}
*{box-sizing:border-box}
html{scroll-padding-top:1rem}
body{margin:0;font:16px/1.55 system-ui,sans-serif;color:var(--fg);background:var(--bg)}
main{max-width:76rem;margin:0 auto;padding:1rem}
h1,h2,h3,h4{line-height:1.25;overflow-wrap:anywhere}
h1{font-size:1.25rem;margin:.2rem 0;color:var(--dim);font-weight:600}
h2{margin:2.5rem 0 .6rem;padding-bottom:.3rem;border-bottom:1px solid var(--line)}
h3{margin:1.6rem 0 .5rem}
h4{margin:1.2rem 0 .3rem;font-size:1rem}
p,ul,li,summary,figcaption{overflow-wrap:anywhere}
td{overflow-wrap:break-word}
p,ul{max-width:48rem}
a{color:var(--link)}
a:focus-visible,summary:focus-visible,button:focus-visible,input:focus-visible,
.scroll:focus-visible,pre:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999rem}
.skip:focus{left:1rem;top:1rem;background:var(--bg);padding:.5rem;z-index:1}
.verdict{font-size:1.5rem;font-weight:650;margin:.2rem 0 1rem;padding:.7rem 1rem;border-radius:.5rem;
border-left:.4rem solid;max-width:none}
.verdict.good{color:var(--good);background:var(--good-bg)}
.verdict.bad{color:var(--bad);background:var(--bad-bg)}
.scroll{position:relative;overflow-x:auto;max-width:100%;margin:.6rem 0 1rem}
table{border-collapse:collapse;font-size:.875rem}
.more{mask-image:linear-gradient(90deg,#000 calc(100% - 2rem),transparent)}
caption{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
.caption{color:var(--dim);margin:.8rem 0 -.3rem;font-size:.875rem;max-width:none}
th{overflow-wrap:normal}
th,td{border:1px solid var(--line);padding:.3rem .55rem;text-align:left;vertical-align:top;
min-width:2.6rem}
td,th{max-width:34rem}
thead th{background:var(--card)}
tbody th{font-weight:600}
.numbers td{text-align:right;font-variant-numeric:tabular-nums}
.matrix td{text-align:center;padding:.3rem .35rem;white-space:nowrap}
.matrix tbody th{position:sticky;left:0;background:var(--bg);white-space:nowrap}
.matrix thead th{vertical-align:bottom;padding:.4rem .2rem}
.matrix thead th:not(:first-child) span{writing-mode:vertical-rl;transform:rotate(180deg);
white-space:nowrap}
.matrix thead th:first-child{position:sticky;left:0}
td.good{color:var(--good);background:var(--good-bg)}
td.declared{color:var(--declared);background:var(--declared-bg)}
td.bad{color:var(--bad);background:var(--bad-bg);font-weight:700}
td.declared a,td.bad a,.matrix th a{color:inherit}
.muted{color:var(--dim)}
td[data-shade]{background:color-mix(in srgb,var(--link) var(--shade),var(--bg))}
.verbatim{position:relative;margin:.6rem 0 1rem;max-width:100%}
pre{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.7rem .8rem;
margin:0;overflow-x:auto;font:.8125rem/1.5 ui-monospace,monospace;max-height:30rem}
code{font:.875em ui-monospace,monospace;background:var(--card);padding:.1em .3em;border-radius:.3em;
overflow-wrap:anywhere}
.copy{position:absolute;right:.4rem;top:.4rem;font:inherit;font-size:.75rem;padding:.15rem .55rem;
border:1px solid var(--line);border-radius:.3rem;background:var(--bg);color:var(--fg);cursor:pointer}
.verbatim:has(.copy) pre{padding-top:2.3rem}
section.item{border:1px solid var(--line);border-left:.35rem solid var(--line);border-radius:.5rem;
padding:.2rem 1rem 1rem;margin:1rem 0}
section.bad{border-left-color:var(--bad)}
section.declared{border-left-color:var(--declared)}
details{margin:.5rem 0}
details>:not(summary){margin-left:.2rem}
summary{cursor:pointer;padding:.3rem 0}
summary strong{color:var(--fg)}
figure{margin:.8rem 1.5rem .8rem 0;max-width:100%;display:inline-block;vertical-align:top}
figure svg{max-width:100%;height:auto}
figcaption{color:var(--dim);font-size:.875rem;max-width:34rem}
nav ol{columns:18rem;padding-left:1.4rem}
input{font:inherit;padding:.25rem .5rem;border:1px solid var(--line);border-radius:.3rem;
background:var(--bg);color:var(--fg);max-width:100%}
[hidden]{display:none}
@media(max-width:40rem){main{padding:.7rem}.verdict{font-size:1.2rem}section.item{padding:.1rem .6rem .6rem}
.matrix tbody th{white-space:normal;min-width:9.6rem;max-width:9.6rem;
overflow-wrap:anywhere}
figure{margin-right:0;overflow-x:auto}figure svg{min-width:26rem}}
@media print{nav,.copy{display:none}}
)css";

}  // namespace qualm::report
