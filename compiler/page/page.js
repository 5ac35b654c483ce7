/* page.js: draws a page from its data (page.c says what is in it). Plans are drawn on canvases, because they have many cells;
 * curves are SVG. Nothing is loaded, and nothing is kept. */
'use strict';
/* Draws the data into the element `page`, in the place of what it has. Returns a function that ends it: then the window's
 * events do nothing more. What is clicked in a mask is told by the event `pair` of `page`; and if the data explains no pairs,
 * the event `ask` asks to explain the one below the mouse. */
function drawPage(data, page) {
const gone = new AbortController(), {signal} = gone;
const plans = data.plans, names = data.names, RANK_COLOURS = 16, DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const redraw = []; /* the canvases, which are drawn again when the window or the theme changes */

/* --- small things --------------------------------------------------------------------------------------------------- */

function make(tag, attributes, ...inside) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (k === 'on') for (const [event, f] of Object.entries(v)) e.addEventListener(event, f);
    else if (k === 'style') for (const [p, x] of Object.entries(v)) e.style.setProperty(p, x);
    else e.setAttribute(k, v);
  }
  e.append(...inside.filter(x => x !== null && x !== undefined));
  return e;
}
function svg(tag, attributes, ...inside) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...inside);
  return e;
}
let theme = {};
function colour(name) {
  if (!(name in theme)) theme[name] = getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  return theme[name];
}
const rankColour = r => colour('rank' + r % RANK_COLOURS);
const trim = s => s.includes('.') ? s.replace(/0+$/, '').replace(/\.$/, '') : s;
const three = v => trim(v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2));
function units(v, unit) {
  const steps = ['', 'K', 'M', 'G', 'T', 'P', 'E'];
  let i = 0;
  while (v >= 999.5 && i < steps.length - 1) v /= 1000, i++;
  return three(v) + ' ' + steps[i] + unit;
}
const bytes = v => units(v, 'B'), count = v => v.toLocaleString('en-US');
function time(ps) { /* picoseconds */
  if (ps >= 1e12) return three(ps / 1e12) + ' s';
  if (ps >= 1e9) return three(ps / 1e9) + ' ms';
  return ps >= 1e6 ? three(ps / 1e6) + ' us' : three(ps / 1e3) + ' ns';
}
const position = v => v && v % 1024 === 0 ? v / 1024 + 'K' : String(v);
const percent = v => (100 * v).toFixed(v < 0.0995 && v > 0 ? 1 : 0) + ' %';
/* Round numbers from 0 to `most`, about n of them. */
function ticks(low, high, n) {
  const raw = (high - low) / n || 1, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(x => x * power).find(x => x >= raw) || raw;
  const all = [];
  for (let v = Math.ceil(low / step) * step; v <= high * (1 + 1e-9); v += step) all.push(v);
  return all;
}

const tip = make('div', {id: 'tip', role: 'tooltip'});
page.replaceChildren(tip);
function show(event, words) {
  tip.style.visibility = words ? 'visible' : 'hidden';
  if (!words) return;
  tip.textContent = words;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - w - 8)) + 'px';
  tip.style.top = (event.clientY + 18 + h > innerHeight ? Math.max(4, event.clientY - h - 12) : event.clientY + 18) + 'px';
}
const hide = () => show(null, '');

/* A canvas of so many CSS pixels in height, sharp on any screen. draw(c, width, height); hover(x, y, event) gives the words. */
function canvas(attributes, height, draw, hover) {
  const e = make('canvas', Object.assign({role: 'img'}, attributes)), state = {element: e, draw: null};
  state.draw = (width = e.clientWidth) => {
    const tall = typeof height === 'function' ? height(width) : height, scale = devicePixelRatio || 1;
    if (!width) return;
    e.style.height = tall + 'px';
    e.width = Math.round(width * scale);
    e.height = Math.round(tall * scale);
    const c = e.getContext('2d');
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.font = '11px system-ui, "DejaVu Sans", Verdana, sans-serif';
    c.textBaseline = 'middle';
    draw(c, width, tall);
  };
  redraw.push(state);
  if (hover) {
    e.addEventListener('mousemove', event => {
      const box = e.getBoundingClientRect();
      show(event, hover(event.clientX - box.left, event.clientY - box.top, event));
    });
    e.addEventListener('mouseleave', hide);
  }
  return state;
}
const legend = items => make('div', {class: 'legend'}, ...items.map(([c, words]) => make('span', {}, make('i', {style: {background: `var(--${c})`}}), words)));
function section(id, title, note) {
  const s = make('section', {id}, make('h2', {}, title), note ? make('p', {class: 'note'}, note) : null);
  page.append(s);
  return s;
}
const cap = s => s[0].toUpperCase() + s.slice(1);
const label = p => p.name.replace(/^strategy=/, '') || p.strategy;
const longest = pass => Math.max(1, ...plans.map(p => ((p.passes || []).find(x => x.pass === pass) || {makespan: 0}).makespan));
const several = plans.length > 1;
const rounds = r => r < 0 ? '' : ', round ' + r;

/* --- the head ------------------------------------------------------------------------------------------------------- */

const BOUND_WORDS = {mean: 'all compute, spread evenly', compute: 'compute of the busiest rank', net: 'the busiest network port',
  local: 'the busiest port inside a node', uplink: 'the busiest uplink of a node', path: 'the longest chain of waits'};
const REASON_WORDS = {kv: 'keys and values', q: 'queries', return: 'results on their way home', reshuffle: "the caller's layout"};
const largest = p => p.bounds.reduce((best, v, i) => v > p.bounds[best] ? i : best, 0);
const overBound = p => p.makespan / p.bounds[largest(p)] || 1; /* a batch without tokens takes no time, and has no bound */
const exposed = p => p.exposed.reduce((a, b) => a + b, 0);

function head() {
  const p = plans[0];
  if (given) document.title = 'fcpc: ' + p.mask;
  page.append(make('h1', {}, p.mask), make('p', {class: 'sub'}, several
    ? `${plans.length} candidates side by side; predicted with the profile ${p.profile || '(none)'}`
    : `${p.strategy}, ${count(p.ranks_in_all)} rank${p.ranks_in_all === 1 ? '' : 's'}` + (p.profile ? `; predicted with the profile ${p.profile}` : '')));
  for (const q of plans)
    if (q.unpredicted !== null) page.append(make('p', {class: 'note warn'}, `${several ? label(q) + ': ' : ''}no times are predicted: ${q.unpredicted}`));
  if (several) return sideBySide();
  const cards = make('div', {class: 'cards', id: 'cards'});
  for (const x of p.passes || []) {
    const b = largest(x);
    cards.append(make('div', {class: 'card'}, make('span', {}, cap(x.pass) + ' pass'), make('b', {}, time(x.makespan)),
      make('i', {}, `${overBound(x).toFixed(3)} x the largest bound (${names.bounds[b]})`), make('i', {}, `MFU ${percent(x.mfu)}, exposed ${time(exposed(x))}`)));
  }
  const s = p.summary, card = (title, value, below) => cards.append(make('div', {class: 'card'}, make('span', {}, title), make('b', {}, value), make('i', {}, below)));
  card('Balance', s.compute_max_over_mean.toFixed(4), 'busiest rank over the mean');
  card('Traffic', bytes(s.bytes_total), bytes(s.bytes_inter_node) + ' between nodes');
  card('Memory', bytes(s.memory_peak_bytes), 'of the largest rank');
  page.append(cards, facts(p));
}

function facts(p) {
  const side = cost => make('dl', {}, ...p.facts.filter(f => !!f[2] === cost).flatMap(f => [make('dt', {}, f[0]), make('dd', {}, f[1])]));
  return make('div', {class: 'facts'}, side(false), side(true));
}

/* The candidates in a table, the best figure of each column marked. */
function sideBySide() {
  const s = section('candidates', 'Side by side', 'Makespan is when the last rank ends. Exposed is how long the rank that waits longest waits, by what for. ' +
    'The best of each column is green.');
  for (const pass of names.passes) {
    const rows = plans.map(p => [p, (p.passes || []).find(x => x.pass === pass)]).filter(r => r[1]);
    if (!rows.length) continue;
    const most = Math.max(1, ...rows.map(r => r[1].makespan));
    const columns = [['makespan', r => r[1].makespan, time, 1], ['/ bound', r => overBound(r[1]), v => v.toFixed(3), 1],
      ['bound', r => names.bounds[largest(r[1])], v => v, 0], ['max / mean', r => r[1].bounds[1] / (r[1].bounds[0] || 1), v => v.toFixed(4), 1],
      ...names.reasons.map((n, i) => ['exposed ' + n, r => r[1].exposed[i], time, 1]), ['net', r => r[1].bytes[0], bytes, 1], ['local', r => r[1].bytes[1], bytes, 1],
      ['memory', r => r[0].summary.memory_peak_bytes, bytes, 1], ['MFU', r => r[1].mfu, percent, -1]];
    const values = columns.map(c => c[3] ? rows.map(r => c[3] * c[1](r)) : []);
    const best = values.map(v => new Set(v).size > 1 ? Math.min(...v) : null); /* where all are the same there is none */
    s.append(make('div', {class: 'wide'}, make('table', {}, make('tr', {}, make('th', {}, cap(pass)), make('th', {}), ...columns.map(c => make('th', {}, c[0]))),
      ...rows.map(r => make('tr', {}, make('td', {}, label(r[0])), make('td', {class: 'bar'}, make('div', {style: {width: 100 * r[1].makespan / most + '%'}})),
        ...columns.map((c, i) => make('td', best[i] !== null && c[3] * c[1](r) === best[i] ? {class: 'best'} : {}, c[2](c[1](r)))))))));
  }
}

/* --- where the time goes ------------------------------------------------------------------------------------------------ */

function bounds(p, x) {
  const all = [['makespan', x.makespan, 'mark'], ...names.bounds.map((n, i) => [n, x.bounds[i], i === largest(x) ? 'compute' : 'compute-light'])];
  const wide = 560, left = 74, high = 20, e = svg('svg', {viewBox: `0 0 ${wide} ${all.length * high + 4}`, role: 'img', 'aria-label': 'makespan and bounds'});
  all.forEach(([n, v, c], i) => {
    const w = (wide - left - 80) * v / longest(x.pass);
    const bar = svg('rect', {x: left, y: i * high + 4, width: Math.max(w, 1), height: high - 7, rx: 2, fill: `var(--${c})`});
    bar.append(svg('title', {}, document.createTextNode(n === 'makespan' ? 'when the last rank ends' : BOUND_WORDS[n])));
    e.append(svg('text', {x: left - 8, y: i * high + 15, class: 'end'}, document.createTextNode(n)), bar,
      svg('text', {x: left + w + 6, y: i * high + 15}, document.createTextNode(v ? time(v) : 'none')));
  });
  return make('figure', {class: 'chart'}, make('figcaption', {}, make('b', {}, `${several ? label(p) + ', ' : ''}${x.pass}`), several ? ': makespan and bounds' : ': makespan beside what no plan with these tables can beat'), e);
}

/* One column a rank: computing, waiting by reason, and nothing left to do. */
function columns(p, x) {
  const LEFT = 56, BOTTOM = 34, n = x.compute.length, per = p.ranks.per;
  const parts = [['compute', x.compute], ...names.reasons.map((r, i) => ['wait-' + r, x.wait[i]])];
  const at = (px, w) => Math.max(0, Math.min(n - 1, Math.floor((px - LEFT) / (w - LEFT) * n)));
  const c = canvas({'aria-label': `${x.pass} pass: how each rank spends its time`, class: 'columns', 'data-ranks': n}, 200, (g, w, h) => {
    const top = longest(x.pass), y = v => (h - BOTTOM) * (1 - v / top) + 6;
    g.clearRect(0, 0, w, h);
    for (const v of ticks(0, top, 4)) {
      g.fillStyle = colour('grid');
      g.fillRect(LEFT, Math.round(y(v)), w - LEFT, 1);
      g.fillStyle = colour('soft');
      g.textAlign = 'right';
      g.fillText(v ? time(v) : '0', LEFT - 6, y(v));
    }
    for (let i = 0; i < n; i++) {
      const from = LEFT + (w - LEFT) * i / n, to = LEFT + (w - LEFT) * (i + 1) / n, gap = to - from > 4 ? 1 : 0;
      let sum = 0;
      for (const [name, list] of parts) {
        g.fillStyle = colour(name);
        g.fillRect(from, y(sum + list[i]), to - from - gap, y(sum) - y(sum + list[i]));
        sum += list[i];
      }
    }
    g.fillStyle = colour('mark');
    g.fillRect(LEFT, Math.round(y(x.bounds[0])), w - LEFT, 1);
    g.fillStyle = colour('soft');
    g.textAlign = 'center';
    const step = Math.ceil(n / 16);
    for (let i = 0; i < n; i += step) g.fillText(String(i * per), LEFT + (w - LEFT) * (i + 0.5) / n, h - 18);
    g.fillText(per > 1 ? `rank (the mean of ${per} to a column)` : 'rank', LEFT + (w - LEFT) / 2, h - 5);
  }, (px, py) => {
    if (px < LEFT) return '';
    const i = at(px, c.element.clientWidth), rank = per > 1 ? `ranks ${i * per} to ${Math.min(p.ranks_in_all, (i + 1) * per) - 1}, mean` : `rank ${i}, node ${Math.floor(i / p.gpus)}`;
    return [rank, `computes ${time(x.compute[i])} of ${time(x.makespan)}`, ...names.reasons.map((r, k) => `waits ${time(x.wait[k][i])} for ${REASON_WORDS[r] || r}`),
      `ends at ${time(x.end[i])}`, `${count(p.ranks.tokens[i])} tokens, ${units(p.ranks.pairs[i], 'pairs')}`, `sends ${bytes(p.ranks.sent[i])}, receives ${bytes(p.ranks.received[i])} forward`].join('\n');
  });
  return make('figure', {class: n > 32 ? 'full' : 'chart'}, make('figcaption', {}, make('b', {}, `${several ? label(p) + ', ' : ''}${x.pass}`), several ? ': how each rank spends its time' : ': how each rank spends its time; the line is the mean of all compute'), c.element);
}

function spent() {
  if (!plans.some(p => p.passes)) return;
  const s = section('spent', 'Where the time goes');
  const row = make('div', {class: 'row'});
  for (const p of plans) for (const x of p.passes || []) row.append(bounds(p, x));
  s.append(row, legend([['compute', 'computes'], ...names.reasons.map(r => ['wait-' + r, 'waits for ' + (REASON_WORDS[r] || r)])]));
  const below = make('div', {class: 'row'});
  for (const p of plans) for (const x of p.passes || []) below.append(columns(p, x));
  s.append(below);
}

/* --- the timeline ------------------------------------------------------------------------------------------------------ */

const COMPUTE_WIDTH = 6, MOVE_WIDTH = 10, LANES = [[15, 0], [6, 16], [6, 23]], RANK_HIGH = 33, AXIS = 24, LABEL = 64;
/* Copies in and out, what prepares or rounds, and what adds partial results. */
const OP_COLOURS = {attend: 'compute', copy: 'compute-light', delta: 'good', finish: 'good', round: 'good', reduce: 'compute-dark', reduce_q: 'compute-dark', merge: 'compute-dark'};

/* Undoes the differences of a list of begins, and makes picoseconds of ticks. */
function unpack(list, width, tick) {
  for (let i = 0, before = 0; i < list.length; i += width) {
    before = (list[i] = before + list[i] * tick) + (list[i + 1] *= tick);
    if (width === MOVE_WIDTH) list[i + 9] *= tick;
  }
}
for (const p of plans) for (const x of p.passes || []) for (const l of x.lanes) {
  unpack(l.compute, COMPUTE_WIDTH, x.tick);
  unpack(l.net, MOVE_WIDTH, x.tick);
  unpack(l.local, MOVE_WIDTH, x.tick);
}
const intervals = plans.reduce((n, p) => n + (p.passes || []).reduce((m, x) => m + x.lanes.reduce((k, l) => k + l.compute.length / COMPUTE_WIDTH + (l.net.length + l.local.length) / MOVE_WIDTH, 0), 0), 0);

function computeWords(l, i) {
  const c = l.compute, op = names.ops[c[i + 2]], begin = `${time(c[i])} to ${time(c[i] + c[i + 1])} (${time(c[i + 1])})`;
  if (op === 'wait') return `rank ${l.rank}, compute: waits\n${begin}, stage ${c[i + 3]}${rounds(c[i + 4])}\nfor ${REASON_WORDS[names.reasons[c[i + 5]]] || names.reasons[c[i + 5]]}`;
  const more = op === 'attend' ? `${count(c[i + 4])} tile${c[i + 4] === 1 ? '' : 's'}, ${units(c[i + 5], 'pairs')}` : c[i + 4] >= 0 ? `block ${c[i + 4]}` : c[i + 5] ? bytes(c[i + 5]) : '';
  return `rank ${l.rank}, compute: ${op}\n${begin}, stage ${c[i + 3]}` + (more ? '\n' + more : '');
}
function moveWords(l, lane, i) {
  const c = l[lane];
  return `rank ${l.rank}, ${lane}: ${c[i + 2] ? 'receives' : 'sends'} ${names.classes[c[i + 3]]} of block ${c[i + 7]} ${c[i + 2] ? 'from' : 'to'} rank ${c[i + 6]}\n` +
    `${time(c[i])} to ${time(c[i] + c[i + 1])} (${time(c[i + 1])}), stage ${c[i + 4]}, round ${c[i + 5]}\n${bytes(c[i + 8])}, ${units(c[i + 8] / c[i + 1] * 1e12, 'B/s')}` +
    (c[i + 9] ? `\nbefore that it waited ${time(c[i + 9])} for its peer or a port` : '');
}
/* The first interval of a list that ends after `at`; those of a lane begin in order, and end nearly so. */
function search(list, width, at) {
  let low = 0, high = list.length / width;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle * width] + list[middle * width + 1] > at) high = middle;
    else low = middle + 1;
  }
  return Math.max(0, low - 2) * width;
}

function axis(g, w, y, from, to, high) {
  g.textAlign = 'center';
  for (const v of ticks(from, to, Math.max(3, Math.floor(w / 130)))) {
    const x = LABEL + (w - LABEL) * (v - from) / (to - from);
    g.fillStyle = colour('grid');
    g.fillRect(Math.round(x), y, 1, high);
    g.fillStyle = colour('soft');
    const words = v ? time(v) : '0', half = g.measureText(words).width / 2;
    g.fillText(words, Math.min(x, w - half - 1), y - 11);
  }
}

function timeline() {
  if (!plans.some(p => p.passes)) return;
  const s = section('timeline', 'The timeline', 'Each rank has three lanes: what it computes, and what it moves over the network and inside its node. ' +
    'Wheel or + and - zoom, dragging moves, a double click shows all of it again. Hover for the numbers.');
  const passes = names.passes.filter(n => plans.some(p => (p.passes || []).some(x => x.pass === n)));
  const view = {pass: passes[0], from: 0, to: 1, peer: null};
  const of = p => (p.passes || []).find(x => x.pass === view.pass);
  const most = () => Math.max(1, ...plans.map(p => of(p) ? of(p).makespan : 0));
  const drawn = [];
  const all = () => { view.from = 0; view.to = most(); };
  const draw = () => drawn.forEach(f => f());
  const zoom = (factor, at) => {
    const span = Math.max(1e4, Math.min(most(), (view.to - view.from) * factor)), share = (at - view.from) / (view.to - view.from);
    view.from = Math.max(0, Math.min(most() - span, at - span * share));
    view.to = view.from + span;
    draw();
  };
  all();
  const buttons = passes.map(n => make('button', {'aria-pressed': n === view.pass, on: {click: () => {
    view.pass = n;
    buttons.forEach(b => b.setAttribute('aria-pressed', b.textContent.toLowerCase() === n));
    all();
    draw();
  }}}, cap(n)));
  const middle = () => (view.from + view.to) / 2;
  s.append(make('div', {class: 'tools'}, ...buttons, make('button', {title: 'zoom in', on: {click: () => zoom(0.5, middle())}}, '+'),
    make('button', {title: 'zoom out', on: {click: () => zoom(2, middle())}}, '-'), make('button', {on: {click: () => { all(); draw(); }}}, 'All')),
    legend([['compute', 'attend'], ['compute-light', 'copy'], ['good', 'delta, finish, round'], ['compute-dark', 'reduce, merge'], ['net', 'net: sends above, receives below'], ['local', 'local'],
      ...names.reasons.map(r => ['wait-' + r, 'waits for ' + (REASON_WORDS[r] || r)])]));
  for (const p of plans) {
    if (!p.passes) continue;
    const figure = make('figure', {});
    figure.append(make('figcaption', {}, several ? make('b', {}, label(p) + ': ') : null, 'all ranks, from the first to the last: blue where they compute, orange where they only move'));
    drawn.push(heat(p, of, view, figure), lanes(p, of, view, zoom, all, draw, figure));
    s.append(figure);
  }
}

/* All ranks at once: how large a share of each moment they compute, or move. */
function heat(p, of, view, figure) {
  const high = Math.max(24, Math.min(200, Math.max(...p.passes.map(x => x.heat.rows)) * 3)), strips = ['compute', 'net', 'local'];
  const share = (x, lane, row, bin) => DIGITS.indexOf(x.heat[lane][row * x.heat.bins + bin]) / 63;
  const c = canvas({class: 'heat', 'aria-label': 'how busy all ranks are over time'}, AXIS + high, (g, w, h) => {
    const x = of(p);
    g.clearRect(0, 0, w, h);
    if (!x) return;
    const {rows, bins} = x.heat, span = view.to - view.from;
    axis(g, w, AXIS, view.from, view.to, high);
    g.fillStyle = colour('soft');
    g.textAlign = 'right';
    g.fillText('all ranks', LABEL - 8, AXIS + high / 2);
    g.save();
    g.beginPath();
    g.rect(LABEL, AXIS, w - LABEL, high);
    g.clip();
    const to = t => LABEL + (w - LABEL) * (t - view.from) / span;
    for (let row = 0; row < rows; row++) for (let bin = 0; bin < bins; bin++) {
      const from = to(x.makespan * bin / bins), end = to(x.makespan * (bin + 1) / bins), y = AXIS + high * row / rows, tall = high / rows;
      if (end < LABEL || from > w) continue;
      const busy = share(x, 'compute', row, bin), moving = Math.max(share(x, 'net', row, bin), share(x, 'local', row, bin));
      g.fillStyle = colour('idle');
      g.fillRect(from, y, end - from + 0.5, tall + 0.5);
      if (moving > busy) {
        g.globalAlpha = moving * (1 - busy);
        g.fillStyle = colour('net');
        g.fillRect(from, y, end - from + 0.5, tall + 0.5);
      }
      g.globalAlpha = busy;
      g.fillStyle = colour('compute');
      g.fillRect(from, y, end - from + 0.5, tall + 0.5);
      g.globalAlpha = 1;
    }
    g.restore();
  }, (px, py) => {
    const x = of(p), w = c.element.clientWidth;
    if (!x || px < LABEL || py < AXIS) return '';
    const t = view.from + (view.to - view.from) * (px - LABEL) / (w - LABEL), bin = Math.floor(t / (x.makespan || 1) * x.heat.bins), row = Math.min(x.heat.rows - 1, Math.floor((py - AXIS) / high * x.heat.rows));
    if (bin < 0 || bin >= x.heat.bins) return '';
    const first = row * x.heat.per, last = Math.min(p.ranks_in_all, first + x.heat.per) - 1;
    return (last > first ? `ranks ${first} to ${last}` : `rank ${first}`) + `, ${time(x.makespan * bin / x.heat.bins)} to ${time(x.makespan * (bin + 1) / x.heat.bins)}\n` +
      strips.map(l => `${l} ${percent(share(x, l, row, bin))}`).join(', ') + ' of this time';
  });
  figure.append(c.element);
  return c.draw;
}

function lanes(p, of, view, zoom, all, draw, figure) {
  const shown = p.passes[0].lanes.length;
  if (shown < p.ranks_in_all) figure.append(make('figcaption', {}, `${shown} of ${count(p.ranks_in_all)} ranks: ${p.passes[0].lanes.slice(0, 12).map(l => l.rank).join(', ')}${shown > 12 ? ', ...' : ''}`));
  const box = make('div', {class: 'scroll', style: {'max-height': '720px'}});
  let hovered = null;
  const c = canvas({class: 'timeline', 'aria-label': 'the timeline of ' + label(p), 'data-intervals': intervals, 'data-ranks': shown}, AXIS + shown * RANK_HIGH, (g, w, h) => {
    const x = of(p);
    g.clearRect(0, 0, w, h);
    if (!x) return;
    const span = view.to - view.from, to = t => LABEL + (w - LABEL) * (t - view.from) / span, grain = span / (w - LABEL) / 2;
    axis(g, w, AXIS, view.from, view.to, h - AXIS);
    x.lanes.forEach((l, n) => {
      const top = AXIS + n * RANK_HIGH;
      g.fillStyle = colour('line');
      g.fillRect(0, top + RANK_HIGH - 2, w, 0.5);
      g.fillStyle = rankColour(l.rank);
      g.fillRect(2, top + 4, 5, 22);
      g.fillStyle = colour('text');
      g.textAlign = 'left';
      g.fillText('rank ' + l.rank, 12, top + 9);
      g.fillStyle = colour('hint');
      g.fillText('node ' + Math.floor(l.rank / p.gpus), 12, top + 22);
    });
    g.save();
    g.beginPath();
    g.rect(LABEL, AXIS, w - LABEL, h);
    g.clip();
    x.lanes.forEach((l, n) => {
      const top = AXIS + n * RANK_HIGH;
      const bar = (begin, length, y, high, name) => {
        const from = to(begin), wide = Math.max(0.6, to(begin + length) - from);
        g.fillStyle = colour(name);
        g.fillRect(from, top + y, wide > 3 ? wide - 0.5 : wide, high);
      };
      for (let i = search(l.compute, COMPUTE_WIDTH, view.from); i < l.compute.length && l.compute[i] < view.to; i += COMPUTE_WIDTH) {
        const op = names.ops[l.compute[i + 2]];
        if (l.compute[i + 1] < grain && op === 'wait') continue;
        bar(l.compute[i], l.compute[i + 1], op === 'wait' ? 5 : 1, op === 'wait' ? 7 : 14, op === 'wait' ? 'wait-' + names.reasons[l.compute[i + 5]] : OP_COLOURS[op] || 'compute');
      }
      ['net', 'local'].forEach((lane, k) => {
        const list = l[lane], y = LANES[k + 1][1];
        for (let i = search(list, MOVE_WIDTH, view.from); i < list.length && list[i] < view.to; i += MOVE_WIDTH)
          bar(list[i], list[i + 1], y + (list[i + 2] ? 3 : 0), 2.6, lane);
      });
    });
    if (hovered && hovered.lane) { /* the other end of a transfer */
      const other = x.lanes.findIndex(l => l.rank === hovered.peer), y = n => AXIS + n * RANK_HIGH + LANES[hovered.lane === 'net' ? 1 : 2][1] + 3;
      if (other >= 0) {
        const from = hovered.receives ? other : hovered.row, dest = hovered.receives ? hovered.row : other, x0 = to(hovered.begin), x1 = to(hovered.end);
        g.strokeStyle = colour('mark');
        g.lineWidth = 1.3;
        g.beginPath();
        g.moveTo(x0, y(from));
        g.bezierCurveTo((x0 + x1) / 2, y(from), (x0 + x1) / 2, y(dest), x1, y(dest));
        g.lineTo(x1 - 6, y(dest) - 3);
        g.moveTo(x1, y(dest));
        g.lineTo(x1 - 6, y(dest) + 3);
        g.stroke();
      }
    }
    g.restore();
  }, (px, py) => {
    const x = of(p), w = c.element.clientWidth, before = hovered;
    let words = '';
    hovered = null;
    if (x && px >= LABEL && py >= AXIS && !dragging) {
      const row = Math.floor((py - AXIS) / RANK_HIGH), y = (py - AXIS) % RANK_HIGH, l = x.lanes[row];
      const t = view.from + (view.to - view.from) * (px - LABEL) / (w - LABEL), near = 2 * (view.to - view.from) / (w - LABEL);
      if (l && y < 16) {
        for (let i = search(l.compute, COMPUTE_WIDTH, t - near); i < l.compute.length && l.compute[i] <= t + near; i += COMPUTE_WIDTH)
          if (l.compute[i] + l.compute[i + 1] >= t - near) {
            words = computeWords(l, i);
            if (l.compute[i] <= t && l.compute[i] + l.compute[i + 1] >= t) break;
          }
      } else if (l) {
        const lane = y < 23 ? 'net' : 'local', list = l[lane], receives = y - LANES[lane === 'net' ? 1 : 2][1] >= 3;
        for (let i = search(list, MOVE_WIDTH, t - near); i < list.length && list[i] <= t + near; i += MOVE_WIDTH)
          if (list[i] + list[i + 1] >= t - near && !!list[i + 2] === receives) {
            words = moveWords(l, lane, i);
            hovered = {lane, row, peer: list[i + 6], receives, begin: list[i], end: list[i] + list[i + 1]};
            if (list[i] <= t && list[i] + list[i + 1] >= t) break;
          }
      }
    }
    if (before || hovered) c.draw();
    return words;
  });
  let dragging = null;
  const at = event => {
    const b = c.element.getBoundingClientRect();
    return view.from + (view.to - view.from) * Math.max(0, event.clientX - b.left - LABEL) / (b.width - LABEL);
  };
  c.element.addEventListener('wheel', event => {
    if (!event.ctrlKey && Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    if (!event.ctrlKey && !event.altKey && box.scrollHeight > box.clientHeight + 4 && event.shiftKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, at(event));
  }, {passive: false});
  c.element.addEventListener('mousedown', event => { dragging = {x: event.clientX, from: view.from, to: view.to}; });
  addEventListener('mouseup', () => { dragging = null; }, {signal});
  addEventListener('mousemove', event => {
    if (!dragging) return;
    const end = Math.max(...plans.map(q => of(q) ? of(q).makespan : 0)), span = dragging.to - dragging.from;
    const by = (dragging.x - event.clientX) / (c.element.clientWidth - LABEL) * span;
    view.from = Math.max(0, Math.min(end - span, dragging.from + by));
    view.to = view.from + span;
    draw();
  }, {signal});
  c.element.addEventListener('dblclick', () => { all(); draw(); });
  box.append(c.element);
  figure.append(box);
  return c.draw;
}

/* --- mask and placement ---------------------------------------------------------------------------------------------------- */

const STRIP = 12, EDGE = 58;
function owner(list, at) {
  let low = 0, high = list.length / 4;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle * 4] <= at) low = middle;
    else high = middle;
  }
  return low * 4;
}
function cell(cuts, at) {
  let low = 0, high = cuts.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (cuts[middle] <= at) low = middle;
    else high = middle;
  }
  return low;
}
function level(pairs, area) { return !pairs ? 0 : pairs >= area ? 9 : 1 + Math.floor(pairs * 8 / area); }

function maskFigure(p, n, small) {
  const g = p.grids[n], first = p.same ? plans[0] : p, pairs = first.grids[n].pairs, said = first.explained && first.explained[n];
  const length = g.queries === g.keys ? `${count(g.keys)} tokens` : `${count(g.queries)} quer${g.queries === 1 ? 'y' : 'ies'}, ${count(g.keys)} keys`;
  const area = (r, c) => (g.row_cut[r + 1] - g.row_cut[r]) * (g.col_cut[c + 1] - g.col_cut[c]) * g.heads;
  const c = canvas({class: 'grid', 'aria-label': 'mask and placement', 'data-rows': g.rows, 'data-cols': g.cols}, w => Math.round((w - EDGE) * Math.min(1.25, Math.max(0.3, g.queries / g.keys))) + EDGE - 18, (x, w, h) => {
    const wide = w - EDGE, tall = h - EDGE + 18, top = STRIP + 24;
    const at = (v, all, side) => side * v / all;
    x.clearRect(0, 0, w, h);
    for (let r = 0; r < g.rows; r++) for (let k = 0; k < g.cols; k++) {
      const x0 = EDGE + at(g.col_cut[k], g.keys, wide), x1 = EDGE + at(g.col_cut[k + 1], g.keys, wide), y0 = top + at(g.row_cut[r], g.queries, tall), y1 = top + at(g.row_cut[r + 1], g.queries, tall);
      x.fillStyle = colour('share' + level(pairs[r * g.cols + k], area(r, k)));
      x.fillRect(Math.floor(x0), Math.floor(y0), Math.ceil(x1) - Math.floor(x0), Math.ceil(y1) - Math.floor(y0));
      const to = g.moved_to[r * g.cols + k];
      if (!to) continue;
      x.fillStyle = rankColour(to - 1);
      x.fillRect(Math.floor(x0), y0 + (y1 - y0) / 4, Math.ceil(x1) - Math.floor(x0), (y1 - y0) / 2);
    }
    x.strokeStyle = colour('line');
    x.strokeRect(EDGE + 0.5, top + 0.5, wide - 1, tall - 1);
    for (let i = 0; i < g.q_owners.length; i += 4) {
      x.fillStyle = rankColour(g.q_owners[i + 3]);
      const y0 = top + at(g.q_owners[i], g.queries, tall), y1 = top + at(g.q_owners[i] + g.q_owners[i + 1], g.queries, tall);
      x.fillRect(EDGE - STRIP - 3, y0, STRIP, y1 - y0 - (y1 - y0 > 3 ? 0.5 : 0));
      if (y1 - y0 > 10) {
        x.fillStyle = colour('soft');
        x.textAlign = 'right';
        x.fillText(String(g.q_owners[i + 3]), EDGE - STRIP - 6, (y0 + y1) / 2);
      }
    }
    for (let i = 0; i < g.k_owners.length; i += 4) {
      x.fillStyle = rankColour(g.k_owners[i + 3]);
      const x0 = EDGE + at(g.k_owners[i], g.keys, wide), x1 = EDGE + at(g.k_owners[i] + g.k_owners[i + 1], g.keys, wide);
      x.fillRect(x0, top - STRIP - 3, x1 - x0 - (x1 - x0 > 3 ? 0.5 : 0), STRIP);
    }
    x.fillStyle = colour('soft');
    x.textAlign = 'left';
    x.fillText('key 0', EDGE, 6);
    x.textAlign = 'right';
    x.fillText(position(g.keys), w, 6);
    x.textAlign = 'left';
    x.fillText('query', 0, top + 6);
    x.fillText(position(g.queries), 0, top + tall - 6);
  }, (px, py, event) => {
    const w = c.element.clientWidth, h = c.element.clientHeight, top = STRIP + 24, wide = w - EDGE, tall = h - EDGE + 18;
    const q = Math.floor((py - top) / tall * g.queries), k = Math.floor((px - EDGE) / wide * g.keys);
    const inQ = q >= 0 && q < g.queries, inK = k >= 0 && k < g.keys;
    const own = (list, i, what) => `${what} ${count(list[i])} to ${count(list[i] + list[i + 1] - 1)}: block ${list[i + 2]} of rank ${list[i + 3]}, node ${Math.floor(list[i + 3] / p.gpus)}`;
    if (inQ && px < EDGE && px > 10) return own(g.q_owners, owner(g.q_owners, q), 'queries');
    if (inK && py < top) return own(g.k_owners, owner(g.k_owners, k), 'keys');
    if (!inQ || !inK || px < EDGE) return '';
    const r = cell(g.row_cut, q), col = cell(g.col_cut, k), n2 = pairs[r * g.cols + col];
    const words = [`queries ${count(g.q_first + g.row_cut[r])} to ${count(g.q_first + g.row_cut[r + 1] - 1)}, keys ${count(g.col_cut[col])} to ${count(g.col_cut[col + 1] - 1)}`,
      `${percent(n2 / area(r, col))} of the pairs are allowed (${units(n2, 'pairs')})`];
    const qo = owner(g.q_owners, q), ko = owner(g.k_owners, k);
    words.push(`Q in block ${g.q_owners[qo + 2]} of rank ${g.q_owners[qo + 3]}, K and V in block ${g.k_owners[ko + 2]} of rank ${g.k_owners[ko + 3]}`);
    if (g.moved_to[r * g.cols + col]) words.push(`computed by rank ${g.moved_to[r * g.cols + col] - 1}, which does not own the queries`);
    if (!said) {
      page.dispatchEvent(new CustomEvent('ask', {detail: {sequence: g.sequence, q: g.q_first + q, k, answer: why => show(event, [...words, '', why].join('\n'))}}));
      return words.join('\n');
    }
    const e = said.cells[r * g.cols + col], mid = (cuts, i) => cuts[i] + Math.floor((cuts[i + 1] - cuts[i]) / 2);
    if (e) {
      const one = {q: g.q_first + mid(g.row_cut, r), k: mid(g.col_cut, col)};
      one.d = one.q - one.k;
      words.push('', `query ${count(one.q)} ${['does not see', 'sees', 'has no answer for'][e[0]]} key ${count(one.k)}` + (e.length > 1 ? ', because' : ''),
        ...e.slice(1).map(i => '  ' + said.texts[i].replace(/{([qkd])}/g, (_, n) => one[n])));
    } else if (said.error) words.push('', 'not explained: ' + said.error);
    return words.join('\n');
  });
  c.element.addEventListener('click', event => {
    const b = c.element.getBoundingClientRect(), top = STRIP + 24;
    const q = Math.floor((event.clientY - b.top - top) / (b.height - EDGE + 18) * g.queries), k = Math.floor((event.clientX - b.left - EDGE) / (b.width - EDGE) * g.keys);
    if (q >= 0 && q < g.queries && k >= 0 && k < g.keys)
      page.dispatchEvent(new CustomEvent('pair', {detail: {sequence: g.sequence, q, k, queries: g.queries, keys: g.keys, q_first: g.q_first}}));
  });
  return make('figure', {class: small ? 'mask small' : 'mask'}, make('figcaption', {}, make('b', {}, several ? label(p) : `Sequence ${g.sequence}`), `: ${length}` +
    (several ? '' : g.alike > 1 ? `, as ${count(g.alike - 1)} other${g.alike > 2 ? 's' : ''}` : '')), c.element);
}

function masks() {
  if (!plans.some(p => p.grids.length)) return;
  const s = section('mask', 'The mask, and who owns what', 'Rows are queries, columns are keys; the stronger the blue, the more pairs are allowed. The strips show the rank that owns each block. ' +
    (plans.some(p => p.grids.some(g => g.moved_to.length)) ? 'A bar through cells: the rank of that colour computes them, not the one that owns their queries. ' : '') +
    'Hover for the numbers, and for why a pair is allowed or not.');
  const ramp = make('div', {class: 'legend'}, make('span', {}, 'share of allowed pairs: none'), ...Array.from({length: 10}, (_, i) => make('i', {style: {background: `var(--share${i})`, border: '1px solid var(--line)'}})), make('span', {}, 'all'));
  const row = make('div', {class: 'row'});
  s.append(ramp, row);
  for (const p of plans) p.grids.slice(0, several ? 1 : 3).forEach((g, n) => row.append(maskFigure(p, n, several || n > 0)));
}

/* --- sweeps ------------------------------------------------------------------------------------------------------------- */

const numberOf = s => { const m = /^\s*([0-9.]+)\s*([KMG]?)\s*$/.exec(s); return m ? Number(m[1]) * {'': 1, K: 1024, M: 1048576, G: 1073741824}[m[2]] : NaN; };
const SERIES = ['rank0', 'rank1', 'rank2', 'rank3', 'rank5', 'rank8', 'rank7', 'rank12'];
const shortName = n => n.replace(/^(plan|cluster|model|batch)\./, '');
const passOf = (point, pass) => pass === names.passes[0] ? point : point[pass];

/* Axes of a chart; logarithmic where `log` says so. x and y: functions of a value. */
function chart(title, xs, ys, logX, logY, xWords, yWords, xTitle) {
  const W = 570, H = 330, L = 64, R = 18, T = 12, B = 44;
  const reach = (v, log) => { let a = Math.min(...v), b = Math.max(...v); if (!log) a = Math.min(0, a); if (a === b) { a = log ? a / 2 : a - 1; b = log ? b * 2 : b + 1; } return log ? [a / 1.12, b * 1.12] : [a, b * 1.06]; };
  const [x0, x1] = reach(xs, logX), [y0, y1] = reach(ys, logY);
  const scale = (a, b, log, from, to) => v => log ? from + (to - from) * Math.log(v / a) / Math.log(b / a) : from + (to - from) * (v - a) / (b - a);
  const x = scale(x0, x1, logX, L, W - R), y = scale(y0, y1, logY, H - B, T);
  const e = svg('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': title});
  const marks = (a, b, log, n) => { if (!log || b / a < 4) return ticks(a, b, n); const all = []; for (let p = 10 ** Math.floor(Math.log10(a)); p <= b; p *= 10) for (const k of b / a > 300 ? [1] : [1, 2, 5]) if (k * p >= a && k * p <= b) all.push(k * p); return all; };
  for (const v of marks(y0, y1, logY, 5)) e.append(svg('line', {x1: L, x2: W - R, y1: y(v), y2: y(v), class: 'tick'}), svg('text', {x: L - 7, y: y(v) + 4, class: 'end'}, document.createTextNode(yWords(v))));
  const unique = [...new Set(xs)].sort((a, b) => a - b), own = xWords !== null && unique.length <= 10;
  for (const v of own ? unique : marks(x0, x1, logX, 6)) e.append(svg('line', {x1: x(v), x2: x(v), y1: T, y2: H - B, class: 'tick'}), svg('text', {x: x(v), y: H - B + 16, class: 'middle'}, document.createTextNode((xWords || String)(v))));
  e.append(svg('line', {x1: L, x2: W - R, y1: H - B, y2: H - B, class: 'axis'}), svg('line', {x1: L, x2: L, y1: T, y2: H - B, class: 'axis'}), svg('text', {x: (L + W - R) / 2, y: H - 6, class: 'middle'}, document.createTextNode(xTitle)));
  return {e, x, y, figure: make('figure', {class: 'chart'}, make('figcaption', {}, make('b', {}, title)), e)};
}
function dot(c, x, y, fill, words) {
  const d = svg('circle', {cx: c.x(x), cy: c.y(y), r: 4.5, class: 'dot', fill: `var(--${fill})`});
  d.addEventListener('mousemove', event => show(event, words));
  d.addEventListener('mouseleave', hide);
  c.e.append(d);
  return d;
}

function sweeps() {
  const points = (data.points || []).filter(p => p.makespan_s !== undefined || p.backward !== undefined), failed = (data.points || []).filter(p => p.error);
  if (!data.points || data.points.length < 2) return;
  const s = section('sweeps', 'The sweep', `${count(data.points.length)} candidates` + (failed.length ? `, of which ${count(failed.length)} could not be planned` : '') +
    '. Dashed lines are bounds, which no plan of the same tables can beat.');
  const keys = Object.keys(data.points[0].settings), row = make('div', {class: 'row'});
  const text = p => keys.map(k => `${shortName(k)} = ${p.settings[k]}`).join(', ');
  const kind = p => keys.filter(k => isNaN(numberOf(p.settings[k]))).map(k => p.settings[k]).join(', ') || 'all';
  s.append(row);
  for (const pass of names.passes) {
    const has = points.filter(p => (passOf(p, pass) || {}).makespan_s);
    if (has.length < 2) continue;
    for (const key of keys) {
      const numeric = has.filter(p => !isNaN(numberOf(p.settings[key])));
      if (new Set(numeric.map(p => p.settings[key])).size < 2) continue;
      const value = p => numberOf(p.settings[key]), groups = new Map(), spans = Math.max(...numeric.map(value)) / Math.max(1e-9, Math.min(...numeric.map(value))) > 6;
      for (const p of numeric) {
        const g = keys.filter(k => k !== key).map(k => `${shortName(k)} = ${p.settings[k]}`).join(', ');
        if (!groups.has(g)) groups.set(g, []);
        groups.get(g).push(p);
      }
      const written = new Map(numeric.map(p => [value(p), p.settings[key]]));
      const c = chart(`${cap(pass)}: time over ${shortName(key)}`, numeric.map(value), numeric.flatMap(p => [passOf(p, pass).makespan_s, passOf(p, pass).makespan_lower_bound_s]), spans, spans,
        v => written.get(v) || String(v), v => time(v * 1e12), key);
      const items = [];
      [...groups].slice(0, SERIES.length).forEach(([g, list], n) => {
        list.sort((a, b) => value(a) - value(b));
        const path = f => list.map((p, i) => (i ? 'L' : 'M') + c.x(value(p)).toFixed(1) + ' ' + c.y(f(passOf(p, pass))).toFixed(1)).join('');
        c.e.append(svg('path', {d: path(x => x.makespan_lower_bound_s), class: 'curve bound', stroke: `var(--${SERIES[n]})`}), svg('path', {d: path(x => x.makespan_s), class: 'curve', stroke: `var(--${SERIES[n]})`}));
        for (const p of list) dot(c, value(p), passOf(p, pass).makespan_s, SERIES[n], `${text(p)}\n${time(passOf(p, pass).makespan_s * 1e12)}, bound ${time(passOf(p, pass).makespan_lower_bound_s * 1e12)}\nMFU ${percent(passOf(p, pass).mfu)}` +
          (/nodes|gpus/.test(key) ? `\n${(passOf(list[0], pass).makespan_s / passOf(p, pass).makespan_s).toFixed(2)} x as fast as ${list[0].settings[key]}, of ${(value(p) / value(list[0])).toFixed(2)} x as many` : ''));
        items.push([SERIES[n], g || 'makespan']);
      });
      if (/nodes|gpus/.test(key)) { /* as fast as there are more of them */
        const first = [...groups][0][1][0], last = Math.max(...numeric.map(value)), y = v => passOf(first, pass).makespan_s * value(first) / v;
        c.e.append(svg('path', {d: `M${c.x(value(first))} ${c.y(y(value(first)))}L${c.x(last)} ${Math.min(c.y(y(last)), 286)}`, class: 'front'}));
        items.push(['hint', 'dotted: as many times as fast as there are more of them']);
      }
      c.figure.append(legend(items));
      row.append(c.figure);
    }
    for (const [what, of] of [['memory of the largest rank', p => p.memory_peak_bytes_predicted], ['bytes between nodes', p => passOf(p, pass).bytes.net], ['bytes between ranks', p => passOf(p, pass).bytes.net + passOf(p, pass).bytes.local]]) {
      const ys = has.map(of);
      if (ys.some(v => v === undefined) || Math.max(...ys) === Math.min(...ys)) continue;
      const c = chart(`${cap(pass)}: time against ${what}`, has.map(p => passOf(p, pass).makespan_s), ys, false, false, null, bytes, 'makespan');
      c.e.querySelectorAll('text.middle').forEach(t => { const v = Number(t.textContent); if (!isNaN(v)) t.textContent = v ? time(v * 1e12) : '0'; });
      const front = has.filter(p => !has.some(o => o !== p && passOf(o, pass).makespan_s <= passOf(p, pass).makespan_s && of(o) <= of(p) && (passOf(o, pass).makespan_s < passOf(p, pass).makespan_s || of(o) < of(p))))
        .sort((a, b) => passOf(a, pass).makespan_s - passOf(b, pass).makespan_s);
      c.e.append(svg('path', {d: front.map((p, i) => (i ? 'L' : 'M') + c.x(passOf(p, pass).makespan_s).toFixed(1) + ' ' + c.y(of(p)).toFixed(1)).join(''), class: 'front'}));
      const kinds = [...new Set(has.map(kind))], placed = [];
      for (const p of [...has.filter(p => !front.includes(p)), ...front]) {
        const d = dot(c, passOf(p, pass).makespan_s, of(p), SERIES[kinds.indexOf(kind(p)) % SERIES.length], `${text(p)}\n${time(passOf(p, pass).makespan_s * 1e12)}, ${bytes(of(p))}` + (front.includes(p) ? '\nno candidate is better in both' : ''));
        if (!front.includes(p)) d.setAttribute('class', 'dot behind');
      }
      for (const p of [...front, ...has.filter(p => !front.includes(p))]) { /* names, where there is room for them */
        const words = keys.map(k => p.settings[k]).join(', '), x = c.x(passOf(p, pass).makespan_s), y = c.y(of(p)), left = x > 440;
        const box = left ? [x - 12 - 6 * words.length, x] : [x, x + 12 + 6 * words.length];
        if (placed.some(b => Math.abs(b[2] - y) < 13 && b[0] < box[1] && box[0] < b[1])) continue;
        placed.push([...box, y]);
        c.e.append(svg('text', {x: left ? x - 7 : x + 7, y: y - 6, class: left ? 'end' : ''}, document.createTextNode(words)));
      }
      if (kinds.length > 1) c.figure.append(legend(kinds.slice(0, SERIES.length).map((k, i) => [SERIES[i], k])));
      row.append(c.figure);
    }
  }
  if (failed.length) s.append(make('details', {}, make('summary', {}, 'Candidates that could not be planned'), make('pre', {}, failed.map(p => `${text(p)}: ${p.error.code} ${p.error.message}`).join('\n'))));
}

/* --- figures and program ------------------------------------------------------------------------------------------------ */

function figures() {
  const keys = Object.keys(plans[0].summary).filter(k => typeof plans[0].summary[k] === 'number' && !/seconds|_s$/.test(k));
  page.append(make('details', {id: 'figures'}, make('summary', {}, 'All figures'), make('div', {class: 'wide'}, make('table', {},
    several ? make('tr', {}, make('th', {}), ...plans.map(p => make('th', {}, label(p)))) : null,
    ...keys.map(k => make('tr', {}, make('td', {}, k.replaceAll('_', ' ')), ...plans.map(p => make('td', {}, p.summary[k] === undefined ? '' : Number.isInteger(p.summary[k]) ? count(p.summary[k]) : String(p.summary[k])))))))));
  for (const p of plans) {
    if (several) page.append(make('details', {}, make('summary', {}, `The problem and the plan: ${label(p)}`), facts(p), make('pre', {}, p.source)));
    else page.append(make('details', {open: ''}, make('summary', {}, 'The program'), make('pre', {}, p.source)));
  }
  page.append(make('footer', {}, `Made by fcpc ${data.version}. Times are predictions of its simulator. This page loads nothing from elsewhere.`));
}

head();
sweeps();
spent();
timeline();
masks();
figures();
/* All sizes are asked for first: asking after a canvas was drawn would lay the page out again for each of them. Where the
 * browser leaves out what is out of sight (content-visibility), a section is drawn when it comes into sight. */
const sections = new Map();
for (const c of redraw) {
  const s = c.element.closest('section');
  if (!sections.has(s)) sections.set(s, []);
  sections.get(s).push(c);
}
const drawThese = canvases => {
  const widths = canvases.map(c => c.element.clientWidth);
  canvases.forEach((c, i) => c.draw(widths[i]));
};
const late = new Set();
for (const [s, canvases] of sections) s.addEventListener('contentvisibilityautostatechange', event => {
  if (event.skipped || !late.delete(s)) return;
  drawThese(canvases);
});
const drawAll = () => {
  theme = {};
  const seen = [];
  for (const [s, canvases] of sections) {
    const box = s.getBoundingClientRect(), out = getComputedStyle(s).contentVisibility === 'auto' && (box.top > innerHeight || box.bottom < 0);
    if (out) late.add(s);
    else seen.push(...canvases);
  }
  drawThese(seen);
};
drawAll();
let width = innerWidth;
addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } }, {signal});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll, {signal});
document.documentElement.dataset.ready = String(redraw.length);
return () => gone.abort();
}
const given = document.getElementById('data');
if (given) drawPage(JSON.parse(given.textContent), document.getElementById('page'));
