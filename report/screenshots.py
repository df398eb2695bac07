#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at a report in headless Chromium: desktop and phone, light and dark, folded and opened.

Fails where the page is wider than its window, where words of a picture lie over each other or leave
it, where a script or the console complains, or where a link leads nowhere. Leaves screenshots in FOLDER. Exit status 77 where there is no Chromium.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

WIDTHS = {"desktop": 1280, "phone": 390}
SCHEMES = {"light": 1, "dark": 0}  # Chromium's preferredColorScheme

# The page checks itself with this script, and tells the page around it what is wrong.
PROBE = """<script>
const complaints = [];
addEventListener('error', event => complaints.push(String(event.message)));
addEventListener('unhandledrejection', event => complaints.push(String(event.reason)));
addEventListener('load', () => {
  if (%(opened)s) for (const fold of document.querySelectorAll('details')) fold.open = true;
  const root = document.documentElement;
  const wide = [...document.querySelectorAll('main *')].filter(element =>
    element.getBoundingClientRect().right > root.clientWidth + 1 && !element.closest('.scroll, pre, svg'));
  const over = [];
  for (const svg of document.querySelectorAll('svg')) {
    const sheet = svg.getBoundingClientRect();
    if (!sheet.width) continue;
    const words = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
    words.forEach(([text, box], i) => {
      if (box.left < sheet.left - 1 || box.right > sheet.right + 1) over.push(`${text} leaves its picture`);
      for (const [other, at] of words.slice(i + 1)) {
        const wide = Math.min(box.right, at.right) - Math.max(box.left, at.left);
        const high = Math.min(box.bottom, at.bottom) - Math.max(box.top, at.top);
        // The box of a line is higher than its letters.
        if (wide > 1 && high > 0.4 * box.height) over.push(`${text} lies over ${other}`);
      }
    });
  }
  const nowhere = [...document.querySelectorAll('a[href^="#"]')].filter(link =>
    !document.getElementById(link.getAttribute('href').slice(1)));
  parent.postMessage({width: root.clientWidth, scroll: root.scrollWidth,
    wide: wide.slice(0, 5).map(element => element.tagName + '.' + element.className + ': ' + element.textContent.slice(0, 60)),
    over: over.slice(0, 5), nowhere: nowhere.map(link => link.getAttribute('href')), complaints,
    dark: matchMedia('(prefers-color-scheme: dark)').matches}, '*');
});
</script>"""
# A window cannot be as narrow as a phone, but a frame can.
FRAME = """<!doctype html><meta charset="utf-8"><style>body{margin:0}iframe{border:0;height:%(height)dpx}</style>
<iframe width="%(width)d" src="page.html"></iframe><pre id="seen"></pre><script>
addEventListener('message', event => {
  document.getElementById('seen').textContent = '@@' + JSON.stringify(event.data) + '@@';
});
</script>"""


def chromium(program, folder, scheme, more):
    with tempfile.TemporaryDirectory(prefix="qualm-chromium-") as profile:
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   f"--user-data-dir={profile}", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
                   "--enable-logging=stderr", "--virtual-time-budget=4000", *more, f"file://{folder}/frame.html"]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)


def look(program, page, out, device, scheme, opened):
    """What is wrong with the page on this device."""
    width, height = WIDTHS[device], 900
    with tempfile.TemporaryDirectory(prefix="qualm-page-") as folder:
        folder = pathlib.Path(folder)
        probe = PROBE % {"opened": "true" if opened else "false"}
        (folder / "page.html").write_text(page.replace('<meta charset="utf-8">', '<meta charset="utf-8">' + probe, 1))
        (folder / "frame.html").write_text(FRAME % {"width": width, "height": height})
        size = f"--window-size={max(width, 500)},{height}"
        name = f"{device}-{scheme}{'-opened' if opened else ''}"
        chromium(program, folder, scheme, [size, f"--screenshot={out / (name + '.png')}"])
        ran = chromium(program, folder, scheme, [size, "--dump-dom"])
    seen = re.search(r"@@(\{.*\})@@", ran.stdout, re.DOTALL)
    if not seen:
        return [f"{name}: the page told nothing"]
    text = seen[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    seen = json.loads(text)
    wrong = [f"script: {text}" for text in seen["complaints"]]
    wrong += [f"console: {line}" for line in ran.stderr.splitlines() if ":CONSOLE" in line]
    wrong += [f"picture: {text}" for text in seen["over"]]
    wrong += [f"link to {link}, which is nowhere" for link in seen["nowhere"]]
    if seen["width"] != width:
        wrong.append(f"is {seen['width']} pixels wide, not {width}")
    if seen["scroll"] > seen["width"]:
        wrong.append(f"scrolls sideways: {seen['scroll']} pixels in {seen['width']}")
    wrong += [f"reaches out of the page: {text}" for text in seen["wide"]]
    if seen["dark"] != (scheme == "dark"):
        wrong.append(f"is not shown {scheme}")
    return [f"{name}: {text}" for text in wrong]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, help="build folder, with bin/qualm")
    parser.add_argument("--out", required=True, help="folder of the screenshots")
    options = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        print("skipped: there is no chromium (Debian package chromium)")
        return 77
    out = pathlib.Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="qualm-report-") as folder:
        # A run with declared departures and with new faults.
        ran = subprocess.run([f"{options.bin}/bin/qualm", "audit", "--budget", "2s", "--out", folder + "/report",
                              "-s", "native", "-s", "model:fbgemm@avx2", "-s", "model:qnnpack", "-s", "faulty:k-tail",
                              "-s", "faulty:u8-as-s8"], capture_output=True, text=True, check=False)
        if ran.returncode != 1:
            print(f"qualm audit ended with {ran.returncode}, expected 1\n{ran.stderr}")
            return 1
        page = pathlib.Path(folder, "report/index.html").read_text()
    wrong = []
    if "http" in re.sub(r'href="https://[^"]*"|xmlns="[^"]*"', "", page.split("<body>")[0]):
        wrong.append("the head of the page names something on the network")
    if re.search(r'<(script|img|link|iframe)[^>]* (src|href)="(?!data:)', page):
        wrong.append("the page loads something")
    for device in WIDTHS:
        for scheme in SCHEMES:
            for opened in (False, True):
                wrong += look(program, page, out, device, scheme, opened)
    print("\n".join(wrong) or f"fine; screenshots are in {out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
