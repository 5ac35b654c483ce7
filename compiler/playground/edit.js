/* edit.js: the editor of the playground: the program's text, what is wrong with it, and a slider for each number in it. */
'use strict';
const editor = CodeMirror(document.getElementById('editor'), {mode: 'fcp', theme: 'fcp', lineNumbers: true, lineWrapping: true,
  extraKeys: {Tab: false, 'Shift-Tab': false}, screenReaderLabel: 'the program'});

function element(tag, attributes, ...inside) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (typeof v === 'function') e.addEventListener(k, v);
    else e.setAttribute(k, v);
  }
  e.append(...inside);
  return e;
}

/* --- what is wrong ---------------------------------------------------------------------------------------------------- */

/* The compiler counts bytes of UTF-8, the editor UTF-16. */
function positionOf(text, byte) {
  const bytes = new TextEncoder().encode(text);
  return editor.posFromIndex(bytes.length === text.length ? byte : new TextDecoder().decode(bytes.subarray(0, byte)).length);
}
/* What a hint would have in the place of the text that is wrong; null: it does not say. */
function mendedBy(hint) {
  const m = /^did you mean '(.+)'\?$/.exec(hint) || /^did you mean (".+")\?$/.exec(hint) || /^write (\S+) without quotes$/.exec(hint);
  return m && m[1];
}
let marks = [];
function tellProblems(text, diagnostics, otherwise) {
  const list = document.getElementById('problems');
  marks.forEach(m => m.clear());
  marks = [];
  list.replaceChildren();
  for (const d of diagnostics) {
    const here = d.file === 'program.fcp', from = here && positionOf(text, d.begin), to = here && positionOf(text, Math.max(d.end, d.begin + 1));
    if (here) marks.push(editor.markText(from, to, {className: d.severity === 'error' ? 'wrong' : 'doubtful'}));
    const item = element('li', {class: d.severity}, element('b', {}, d.code ? `${d.severity} ${d.code}` : d.severity), ` ${d.message} `);
    if (here) item.append(element('button', {click: () => { editor.setSelection(from, to); editor.focus(); }}, `line ${d.line}`));
    for (const n of d.notes) {
      const mended = here && !n.line && mendedBy(n.message);
      item.append(element('small', {}, n.line ? `${n.message} (${n.file}, line ${n.line})` : n.message));
      if (mended) item.append(element('button', {class: 'fix', click: () => { editor.replaceRange(mended, from, to); editor.focus(); }}, `Change to ${mended}`));
    }
    list.append(item);
  }
  if (otherwise) list.append(element('li', {class: 'error'}, otherwise));
}

/* --- numbers ------------------------------------------------------------------------------------------------------------ */

const UNITS = {'': 1, K: 1024, M: 1048576, G: 1073741824};
const written = v => Number.isInteger(v) && v >= 1024 && v % 1024 === 0 ? v % 1048576 ? v / 1024 + 'K' : v / 1048576 + 'M' : String(v);
/* The numbers of a program that have names: {label, value, begin, end, name}, and those that its mask, of the prelude, takes
 * and the program does not set: these have `insert`, the text before the number. */
function numbersOf(text, masks) {
  const bare = text.replace(/#.*|"(?:[^\\"\n]|\\.)*"/g, s => ' '.repeat(s.length)), found = [];
  const within = at => {
    const all = [...bare.slice(0, at).matchAll(/\b(model|cluster|batch|plan)\s*\{|\b(?:mask|score)\s+(\w+)\s*[(=]/g)];
    return all.length ? all[all.length - 1][1] || all[all.length - 1][2] : '';
  };
  for (const m of bare.matchAll(/\b([A-Za-z_]\w*)\s*=\s*(\d+(?:\.\d+)?)([KMG]?)(?![\w.])/g)) {
    const end = m.index + m[0].length;
    found.push({label: `${within(m.index)} ${m[1]}`, name: m[1], value: Number(m[2]) * UNITS[m[3]], begin: end - m[2].length - m[3].length, end});
  }
  const call = /\bmask\s*=\s*(\w+)(\s*\(([^()]*)\))?/.exec(bare), own = call && new RegExp(`\\bmask\\s+${call[1]}\\b`).test(bare);
  if (call && !own) for (const [name, value] of masks[call[1]] || []) {
    if (value === null || new RegExp(`\\b${name}\\s*=`).test(call[3] || '')) continue;
    const at = call.index + call[0].length - (call[2] ? 1 : 0);
    found.push({label: `${call[1]} ${name}`, name, value, begin: at, end: at, insert: call[2] ? (call[3].trim() ? ', ' : '') + `${name} = ` : `(${name} = `, after: call[2] ? '' : ')'});
  }
  return found.slice(0, 24);
}
/* The values of a slider: 1, 2, 3, 4, 6, 8, 12, ... to 16 times the value, and the value itself; for a fraction, 20 steps. */
function stopsOf(value) {
  const all = new Set([value]);
  if (!Number.isInteger(value)) for (let i = 0; i <= 20; i++) all.add(Number((value * i / 10).toPrecision(3)));
  else for (let v = 1; v <= Math.max(16 * value, 64); v *= 2) { all.add(v); if (v > 1) all.add(v * 3 / 2); }
  return [...all].sort((a, b) => a - b);
}
let sliders = [];
function showNumbers(masks) {
  const box = document.getElementById('knobs'), numbers = numbersOf(editor.getValue(), masks), key = numbers.map(n => n.label).join();
  if (key !== box.dataset.key) {
    box.dataset.key = key;
    sliders = numbers.map((n, i) => ({input: element('input', {type: 'range', min: 0, 'aria-label': n.label, input: () => set(i)}), output: element('output'), stops: []}));
    box.replaceChildren(...numbers.map((n, i) => element('div', {}, element('span', {}, n.label), sliders[i].input, sliders[i].output)));
  }
  numbers.forEach((n, i) => {
    const s = sliders[i];
    if (s.output.textContent === written(n.value)) return;
    if (document.activeElement !== s.input || !s.stops.includes(n.value)) s.stops = stopsOf(n.value);
    s.input.max = s.stops.length - 1;
    s.input.value = s.stops.indexOf(n.value);
    s.input.setAttribute('aria-valuetext', written(n.value));
    s.output.textContent = written(n.value);
  });
  function set(i) {
    const n = numbersOf(editor.getValue(), masks)[i], v = sliders[i].stops[sliders[i].input.value];
    editor.replaceRange((n.insert || '') + written(v) + (n.after || ''), editor.posFromIndex(n.begin), editor.posFromIndex(n.end), '*slider');
  }
}
