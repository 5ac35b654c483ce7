/* bench_play.mjs: how fast the playground's page is, in headless Chromium. Lines are rows for bench_play.c.
 *   usage: bench_play.mjs FOLDER CHROMIUM, from the top of the tree */
import fs from 'fs';
import os from 'os';
import zlib from 'zlib';
import {chromium, serve} from '../play/browser.mjs';

const [folder, program] = process.argv.slice(2);
const row = (name, value, unit, goal, note = '') =>
  console.log([`play ${name}`, value.toFixed(value < 10 ? 2 : 1), unit, goal === null ? '' : `<= ${goal}`, goal === null ? '-' : value <= goal ? 'met' : 'missed', note].join('\t'));
const least = list => `median of ${list.length}, least ${Math.min(...list).toFixed(0)}; load ${os.loadavg()[0].toFixed(1)} on ${os.cpus().length} cores`;
const median = list => [...list].sort((a, b) => a - b)[list.length >> 1];
const site = await serve(folder), browser = await chromium(program);
const shown = 'document.documentElement.dataset.shown === String(state.typed)';
/* waits in the page: asking it again and again would take its time */
const settle = `new Promise(r => { const o = new MutationObserver(c), root = document.documentElement; function c() { if (${shown}) { o.disconnect(); r(true); } } o.observe(root, {attributes: true}); c(); })`;

const files = fs.readdirSync(folder).filter(f => !fs.statSync(`${folder}/${f}`).isDirectory());
row('bytes, compressed by gzip', files.reduce((n, f) => n + zlib.gzipSync(fs.readFileSync(`${folder}/${f}`), {level: 9}).length, 0) / 1e6, 'MB', 3, 'WebAssembly, scripts, styles, gallery');

const first = [];
for (let i = 0; i < 5; i++) {
  const page = await browser.open(site.url);
  await page.until('document.documentElement.dataset.shown');
  first.push(Number(await page.of('document.documentElement.dataset.first')));
  await page.close();
}
row('first picture', median(first), 'ms', 1500, least(first));

const page = await browser.open(site.url), {of, until} = page;
await until(shown);
await of(`editor.focus(); editor.setCursor(editor.posFromIndex(editor.getValue().indexOf('window = 1024') + 13))`);
const keystrokes = async n => {
  const took = [];
  for (let i = 0; i < n; i++) {
    if (i % 2) await page.key('Backspace', 8);
    else await page.tell('Input.insertText', {text: '1'});
    await of(settle);
    took.push(Number(await of('document.documentElement.dataset.took')));
  }
  return took;
};
await keystrokes(40); /* V8 optimises what runs often */
const typed = await keystrokes(60);
row('keystroke to picture, lambda.fcp', median(typed), 'ms', 50, least(typed));

const large = `model   { heads = 64; kv_heads = 8; head_dim = 128; dtype = bf16 }
cluster { nodes = 32; gpus = 8; gpu = h200 }
batch   { lengths = [262144 x 8, 65536 x 40, 16384 x 120, 2048 x 800] }
plan    { mask = causal; block = 8K; strategy = fcp; passes = forward, backward }
`;
const long = [];
for (let i = 0; i < 5; i++) {
  await of(`editor.setValue(${JSON.stringify(large)} + '# ${i}')`);
  await until(shown, 60);
  if (!await of('state.drawn !== null')) throw new Error(await of(`get('problems').textContent`));
  long.push(Number(await of('document.documentElement.dataset.took')));
}
row('256 ranks, 8.3 M tokens, fcp', median(long), 'ms', 1000, 'planned, verified, drawn; ' + least(long));

await of(`editor.setValue(${JSON.stringify(fs.readFileSync('examples/auto.fcp', 'utf8'))}.replace(/nodes\\s*=\\s*\\d+/, 'nodes = 8').replace(/gpus\\s*=\\s*\\d+/, 'gpus = 8'))`);
let begin = performance.now();
await until(`!get('busy').hidden && / of /.test(get('doing').textContent)`);
row('auto, 64 ranks: progress after', performance.now() - begin, 'ms', 1000);
begin = performance.now();
await of(`get('cancel').click()`);
await until(`get('busy').hidden`);
row('auto, 64 ranks: cancelled after', performance.now() - begin, 'ms', 100);
await of(`editor.setValue(editor.getValue() + '\\n')`);
begin = performance.now();
await until(shown, 120);
row('auto, 64 ranks: picture after', performance.now() - begin, 'ms', null);
await browser.close();
site.close();
