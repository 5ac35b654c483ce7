/* playground.js: the page of the playground. Each change of the program is given to the worker at once; a change that comes
 * while the worker is busy is given next, and ends what has taken long. So what is drawn is never older than the last text
 * but one. */
'use strict';
const get = id => document.getElementById(id);
const SLOW_MS = 400; /* after that a change ends what is being planned for the text before it */
const state = {files: {}, gallery: {programs: [], masks: {}}, end: null, drawn: null, mode: 'this', typed: 0};
const say = words => { get('said').textContent = words; };

/* --- the worker --------------------------------------------------------------------------------------------------------- */

let worker, waiting, numbers = 0;
function begin() {
  waiting = new Map();
  worker = new Worker('worker.js');
  worker.onmessage = ({data}) => {
    if (!data.done) return far(data);
    const answer = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.failed) {
      restart();
      say(`the compiler stopped: ${data.failed}`);
    }
    if (answer) answer(data.failed ? null : data.done);
  };
}
/* Ends the worker with all that it does, and begins another: nothing else can interrupt it. */
function restart() {
  const left = [...waiting.values()];
  worker.terminate();
  begin();
  ask([{write: state.files}]);
  left.forEach(answer => answer(null));
}
/* What the steps gave; null: they were ended. */
const ask = steps => new Promise(resolve => {
  waiting.set(++numbers, resolve);
  worker.postMessage({id: numbers, steps});
});
function far({part, tried, of}) {
  const bar = get('progress'), done = of ? tried / of : part;
  if (done) bar.value = Math.min(1, done);
  else bar.removeAttribute('value');
  get('doing').textContent = of ? `${tried} of ${of} candidates` : part ? `${Math.round(100 * part)} % of the pairs` : 'planning';
}
let shown = null;
function busy(yes) {
  clearTimeout(shown);
  if (!yes) get('busy').hidden = true;
  else shown = setTimeout(() => { get('busy').hidden = false; }, 200);
}

/* --- drawing ------------------------------------------------------------------------------------------------------------ */

/* Sections that are out of sight keep the height that they had, so that nothing jumps. */
function draw(data) {
  const page = get('page'), heights = new Map([...page.children].filter(e => e.id).map(e => [e.id, e.offsetHeight]));
  const parsed = JSON.parse(data);
  if (state.end) state.end();
  state.end = drawPage(parsed, page);
  [state.grid] = parsed.plans[0].grids;
  for (const e of page.children) if (heights.has(e.id)) e.style.containIntrinsicBlockSize = `auto ${heights.get(e.id)}px`;
  page.classList.remove('old');
}
const pairs = pairsView(ask);
get('page').addEventListener('pair', event => pairs.open(event.detail));
get('look').addEventListener('click', () => {
  const g = state.grid;
  if (!g || state.drawn === null) return say('there is no plan with a mask to look at');
  pairs.open({...g, q: g.queries >> 1, k: Math.min(g.keys - 1, g.queries >> 1)});
});
let asking = null;
get('page').addEventListener('ask', async ({detail}) => {
  const idle = asking === null;
  asking = detail;
  while (idle && asking) { /* of several that come meanwhile the last alone */
    const one = asking, [reply] = (await ask([{run: ['explain', 'program.plan', one.q, one.k, '--seq', one.sequence]}])) || [];
    if (asking !== one) continue;
    asking = null;
    if (reply && get('page').matches(':hover')) one.answer((reply.stdout || reply.stderr).split('\n\n')[0]);
  }
});

/* Plans the text and draws the plan. */
let planning = null;
async function plan() {
  const since = performance.now();
  if (planning) {
    planning.again = true;
    if (since - planning.since > SLOW_MS) restart();
    return;
  }
  const text = editor.getValue(), typed = state.typed;
  planning = {since, again: false};
  busy(true);
  const done = await ask([{remove: 'program.'}, {write: {'program.fcp': text}}, {run: ['program.fcp', '-o', 'program.plan']}, {data: 'program.plan'}]);
  const {again} = planning;
  planning = null;
  busy(false);
  if (again) return plan();
  if (!done) return;
  const reply = done[2], data = done[3];
  const lines = reply.stderr.split('\n').filter(l => /^(program\.fcp: \d| {2}(work|traffic|memory|plan) )/.test(l));
  tellProblems(text, reply.diagnostics, reply.status && !reply.diagnostics.length ? reply.stderr : !reply.status && !data ? 'there is no memory to draw this plan' : '');
  get('cost').textContent = lines.join('\n');
  get('page').classList.toggle('old', !data);
  state.drawn = data ? text : null;
  if (data && state.mode === 'this') {
    draw(data);
    pairs.again();
  }
  document.documentElement.dataset.planned = String(typed);
  requestAnimationFrame(() => setTimeout(() => { /* what is drawn is on the screen */
    const root = document.documentElement.dataset;
    if (!root.first) root.first = performance.now().toFixed(0);
    root.took = (performance.now() - state.typedAt).toFixed(1);
    root.shown = String(typed);
    showNumbers(state.gallery.masks);
  }));
}

async function compare() {
  const text = editor.getValue();
  mode('compare');
  busy(true);
  get('doing').textContent = 'planning';
  const done = await ask([{write: {'program.fcp': text}}, {run: ['-q', 'sim', 'program.fcp', '--strategy', 'all', '--html', 'strategies.html']}, {read: 'strategies.html'}]);
  busy(false);
  if (!done) return mode('this');
  if (done[1].status) return tellProblems(text, done[1].diagnostics, done[1].diagnostics.length ? '' : done[1].stderr);
  draw(/<script type="application\/json" id="data">(.*)<\/script>/.exec(new TextDecoder().decode(done[2][0][1]))[1]);
}
function mode(name) {
  state.mode = name;
  get('this').setAttribute('aria-pressed', name === 'this');
  get('compare').setAttribute('aria-pressed', name === 'compare');
  if (name === 'this') plan();
}
get('this').addEventListener('click', () => mode('this'));
get('compare').addEventListener('click', compare);
get('cancel').addEventListener('click', () => { restart(); busy(false); say('cancelled'); });

/* --- programs, files, links --------------------------------------------------------------------------------------------- */

function use(text, files) {
  const same = text === editor.getValue();
  state.files = {...state.files, ...files};
  ask([{write: files}]);
  showFiles();
  editor.setValue(text);
  editor.clearHistory();
  if (same) plan();
}
editor.on('change', () => {
  state.typed++;
  state.typedAt = performance.now();
  if (get('said').textContent) say('');
  if (state.mode === 'this') plan();
  else mode('this');
});
function showFiles() {
  get('files').replaceChildren(...Object.keys(state.files).map(name => element('li', {}, `${name}, ${state.files[name].length} bytes`)));
}
/* A file takes the path that the program has for its name, if it has one. */
async function take(list) {
  const files = {};
  let text = null;
  for (const file of list) {
    const bytes = new Uint8Array(await file.arrayBuffer()), named = [...editor.getValue().matchAll(/"([^"\n]+)"/g)].map(m => m[1]).find(p => p.split('/').pop() === file.name);
    if (file.name.endsWith('.fcp')) text = new TextDecoder().decode(bytes);
    else files[named || file.name] = bytes;
  }
  use(text === null ? editor.getValue() : text, files);
  say(`${list.length} file${list.length === 1 ? '' : 's'} read`);
}
get('add').addEventListener('change', event => take([...event.target.files]));
for (const [name, over] of [['dragover', true], ['dragleave', false], ['drop', false]])
  addEventListener(name, event => {
    event.preventDefault();
    document.body.classList.toggle('dropping', over);
    if (name === 'drop') take([...event.dataTransfer.files]);
  });

/* A link holds the program, and the files that it names, compressed. */
const LINK_MOST = 32768;
const through = async (stream, bytes) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
async function link() {
  const text = editor.getValue(), files = {};
  for (const name of Object.keys(state.files))
    if (text.includes(`"${name}"`)) files[name] = typeof state.files[name] === 'string' ? state.files[name] : [...state.files[name]];
  const packed = await through(new CompressionStream('deflate-raw'), new TextEncoder().encode(JSON.stringify({text, files})));
  const words = btoa(Array.from(packed, b => String.fromCharCode(b)).join('')).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
  if (words.length > LINK_MOST) return say(`no link: program and files are too long for one (${words.length} characters, at most ${LINK_MOST})`);
  history.replaceState(null, '', '#p=' + words);
  try {
    await navigator.clipboard.writeText(location.href);
    say('the link is copied');
  } catch { say('the link is in the address bar'); }
}
/* The address may name a program of the gallery (#e=prelude/window), or hold one of one's own. */
function choose(i) {
  get('gallery').value = i;
  use(state.gallery.programs[i].text, state.gallery.programs[i].files);
}
async function linked() {
  const example = /^#e=(.+)$/.exec(location.hash), at = example ? state.gallery.programs.findIndex(p => p.id === example[1]) : -1;
  if (at >= 0) choose(at);
  else if (example) say(`the gallery has no program ${example[1]}`);
  if (example) return at >= 0;
  const words = /^#p=([\w-]+)$/.exec(location.hash);
  if (!words) return false;
  try {
    const packed = Uint8Array.from(atob(words[1].replace(/-/g, '+').replace(/_/g, '/')), c => c.charCodeAt(0));
    const {text, files} = JSON.parse(new TextDecoder().decode(await through(new DecompressionStream('deflate-raw'), packed)));
    use(String(text), Object.fromEntries(Object.entries(files).map(([n, f]) => [n, typeof f === 'string' ? f : Uint8Array.from(f)])));
  } catch {
    say('this link is damaged: it holds no program');
    return false;
  }
  return true;
}
get('link').addEventListener('click', link);
addEventListener('hashchange', linked);

/* What is downloaded: the command that makes it, and the files that begin with this name. */
const DOWNLOADS = {plan: [null, 'program.', /\.plan$/], svg: [['-q', 'show', 'program.plan', '--svg', 'picture.svg'], 'picture'], html: [['-q', 'show', 'program.plan', '--html', 'page.html'], 'page'],
  trace: [['-q', 'sim', 'program.plan', '--trace', 'trace.json'], 'trace'], cuda: [['-q', 'emit', 'program.plan', '-o', 'kernels.cu'], 'kernels']};
document.querySelectorAll('[data-get]').forEach(button => button.addEventListener('click', async () => {
  const [run, name, pattern] = DOWNLOADS[button.dataset.get];
  if (state.drawn === null) return say('there is no plan: the program has errors');
  const done = await ask([...(run ? [{run}] : []), {read: name}]);
  if (!done) return;
  if (run && done[0].status) return say(done[0].stderr);
  for (const [file, bytes] of done[done.length - 1].filter(f => !pattern || pattern.test(f[0]))) {
    const a = element('a', {download: file, href: URL.createObjectURL(new Blob([bytes]))});
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 10000);
    say(`${file}: ${bytes.length} bytes`);
  }
}));

async function start() {
  begin();
  state.gallery = await (await fetch('gallery.json')).json();
  const list = get('gallery'), groups = new Map();
  state.gallery.programs.forEach((p, i) => {
    if (!groups.has(p.group)) groups.set(p.group, element('optgroup', {label: p.group}));
    groups.get(p.group).append(element('option', {value: i}, p.name));
  });
  list.append(...groups.values());
  list.addEventListener('change', () => { history.replaceState(null, '', location.pathname); choose(Number(list.value)); });
  if (!await linked()) choose(state.gallery.programs.findIndex(p => p.name === 'lambda'));
}
start();
