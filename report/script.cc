// SPDX-License-Identifier: Apache-2.0
#include "report/html.h"

namespace qualm::report {

// Without it the page says the same: it filters, copies, opens what a link leads into, and fades
// what goes on to the right.
const char* const kScript = R"js(
(() => {
  const items = [...document.querySelectorAll('section.item')];
  const folds = [...document.querySelectorAll('details')];
  const filter = document.getElementById('filter');
  const matches = document.getElementById('matches');
  filter.addEventListener('input', () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const item of items) {
      const text = item.textContent.toLowerCase();
      item.hidden = !words.every(word => text.includes(word));
      if (!item.hidden) shown += 1;
    }
    for (const fold of folds) {
      const inside = items.filter(item => fold.contains(item));
      if (!inside.length) continue;
      fold.hidden = inside.every(item => item.hidden);
      if (words.length && !fold.hidden) fold.open = true;
    }
    matches.textContent = words.length ? `${shown} of ${items.length} faults` : '';
  });
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) {
      if (at.tagName === 'DETAILS') at.open = true;
    }
    target.scrollIntoView();
  };
  addEventListener('hashchange', open);
  open();
  for (const box of document.querySelectorAll('.scroll, figure')) {
    const look = () => box.classList.toggle('more', box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    box.addEventListener('scroll', look);
    new ResizeObserver(look).observe(box);
  }
  for (const button of document.querySelectorAll('.copy')) {
    button.addEventListener('click', async () => {
      const text = button.parentElement.querySelector('pre').textContent;
      const words = button.textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = 'copied';
      } catch {
        getSelection().selectAllChildren(button.parentElement.querySelector('pre'));
        button.textContent = 'selected: press Ctrl-C';
      }
      setTimeout(() => { button.textContent = words; }, 2000);
    });
  }
})();
)js";

}  // namespace qualm::report
