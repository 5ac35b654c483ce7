/* pairs.js: a part of a sequence's mask, down to single pairs, and why a pair is allowed or not. */
'use strict';
/* ask(steps): what the worker gives for them. Returns open(pair), where a pair is what page.js tells of a click, and again(),
 * which draws the same part of a changed plan. */
function pairsView(ask) {
  const SIDE = 64, box = document.getElementById('pairs'), canvas = document.getElementById('zoom'), why = document.getElementById('why');
  let at = null, view = null, asked = 0;
  const clamp = (v, low, high) => Math.max(low, Math.min(high, v));
  const part = (middle, all) => {
    const size = Math.min(all, at.span), from = clamp(middle - (size >> 1), 0, all - size);
    return [from, from + size];
  };

  async function look() {
    const [row, rowEnd] = part(at.q, at.queries), [col, colEnd] = part(at.k, at.keys), number = ++asked;
    const [reply] = (await ask([{run: ['show', 'program.plan', '--json', '--svg', 'zoom.svg', '--seq', at.sequence, '--rows', `${row}..${rowEnd}`, '--cols', `${col}..${colEnd}`]}])) || [];
    if (number !== asked || !at || !reply) return;
    if (reply.status) return close();
    view = {...JSON.parse(reply.stdout).view, row, rowEnd, col, colEnd};
    document.getElementById('grain').textContent = view.group > 1 ? `${view.group} x ${view.group} pairs` : 'one pair';
    draw();
    explain();
  }
  async function explain() {
    const number = ++asked, [reply] = (await ask([{run: ['explain', 'program.plan', at.q + at.q_first, at.k, '--seq', at.sequence]}])) || [];
    if (number === asked && at && reply) why.textContent = reply.stdout || reply.stderr;
  }
  function draw() {
    if (!view) return;
    const wide = canvas.clientWidth, scale = devicePixelRatio || 1, tall = Math.round(wide * (view.rowEnd - view.row) / (view.colEnd - view.col));
    const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue('--' + name), most = Math.max(1, ...view.grid.flat());
    canvas.style.height = tall + 'px';
    canvas.width = wide * scale;
    canvas.height = tall * scale;
    const g = canvas.getContext('2d'), w = canvas.width / view.grid[0].length, h = canvas.height / view.grid.length;
    view.grid.forEach((line, r) => line.forEach((n, c) => {
      g.fillStyle = colour('share' + (n ? 1 + Math.round(8 * n / most) : 0));
      g.fillRect(Math.floor(c * w), Math.floor(r * h), Math.ceil(w) - (w > 5 ? 1 : 0), Math.ceil(h) - (h > 5 ? 1 : 0));
    }));
    g.strokeStyle = colour('net');
    g.lineWidth = 2 * scale;
    g.strokeRect(Math.floor((at.k - view.col) / view.group) * w, Math.floor((at.q - view.row) / view.group) * h, w, h);
  }
  const close = () => { at = view = null; box.hidden = true; why.textContent = ''; };
  const zoom = factor => { at.span = clamp(Math.round(at.span * factor), 8, Math.max(at.queries, at.keys)); look(); };
  function move(q, k) {
    at.q = clamp(at.q + q, 0, at.queries - 1);
    at.k = clamp(at.k + k, 0, at.keys - 1);
    const inside = at.q >= view.row && at.q < view.rowEnd && at.k >= view.col && at.k < view.colEnd;
    if (!inside) return look();
    draw();
    explain();
  }
  canvas.addEventListener('keydown', event => {
    const by = view ? view.group : 1, moves = {ArrowUp: [-by, 0], ArrowDown: [by, 0], ArrowLeft: [0, -by], ArrowRight: [0, by]}[event.key];
    if (!at || !view) return;
    if (moves) move(...moves);
    else if (event.key === '+' || event.key === '=') zoom(0.5);
    else if (event.key === '-') zoom(2);
    else if (event.key === 'Escape') close();
    else return;
    event.preventDefault();
  });
  canvas.addEventListener('mousemove', event => {
    if (!view) return;
    const b = canvas.getBoundingClientRect(), r = Math.floor((event.clientY - b.top) / b.height * view.grid.length), c = Math.floor((event.clientX - b.left) / b.width * view.grid[0].length);
    move(clamp(view.row + r * view.group, view.row, view.rowEnd - 1) - at.q, clamp(view.col + c * view.group, view.col, view.colEnd - 1) - at.k);
  });
  canvas.addEventListener('wheel', event => { event.preventDefault(); if (at) zoom(event.deltaY < 0 ? 0.5 : 2); }, {passive: false});
  box.querySelectorAll('[data-zoom]').forEach(b => b.addEventListener('click', () => zoom(Number(b.dataset.zoom))));
  document.getElementById('close').addEventListener('click', close);
  addEventListener('resize', draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  return {
    open(pair) { at = {...pair, span: SIDE}; box.hidden = false; canvas.focus({preventScroll: true}); box.scrollIntoView({block: 'nearest'}); look(); },
    again() { if (at) look(); },
  };
}
