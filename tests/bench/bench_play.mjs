/* bench_play.mjs: how fast the playground's page is, in headless Chromium: each figure beside its goal.
 *   usage: bench_play.mjs FOLDER CHROMIUM, from the top of the tree */
import fs from 'fs';
import os from 'os';
import zlib from 'zlib';
import {chromium, serve} from '../play/browser.mjs';

const [folder, program] = process.argv.slice(2);
let missed = 0;
const row = (name, value, goal, unit) => {
  const good = value <= goal;
  missed += !good;
  console.log(`${name.padEnd(68)} ${value.toFixed(value < 10 ? 2 : 0).padStart(7)} ${unit.padEnd(3)} goal ${goal}${good ? '' : '  MISSED'}`);
};
const median = list => [...list].sort((a, b) => a - b)[list.length >> 1];
const site = await serve(folder), browser = await chromium(program);
const shown = 'document.documentElement.dataset.shown === String(state.typed)';

console.log(`${os.cpus()[0].model}, ${os.cpus().length} cores, load ${os.loadavg()[0].toFixed(1)}`);
const files = fs.readdirSync(folder).filter(f => !fs.statSync(`${folder}/${f}`).isDirectory());
row('WebAssembly and page, compressed by gzip', files.reduce((n, f) => n + zlib.gzipSync(fs.readFileSync(`${folder}/${f}`), {level: 9}).length, 0) / 1e6, 3, 'MB');

const first = [];
for (let i = 0; i < 5; i++) {
  const page = await browser.open(site.url);
  await page.until('document.documentElement.dataset.shown');
  first.push(Number(await page.of('document.documentElement.dataset.first')));
  await page.close();
}
row('first picture after opening, median of 5', median(first), 1500, 'ms');

const page = await browser.open(site.url), {of, until} = page;
await until(shown);
await of(`editor.focus(); editor.setCursor(editor.posFromIndex(editor.getValue().indexOf('window = 1024') + 13))`);
const keystrokes = async n => {
  const took = [];
  for (let i = 0; i < n; i++) {
    if (i % 2) await page.key('Backspace', 8);
    else await page.tell('Input.insertText', {text: '1'});
    await until(shown);
    took.push(Number(await of('document.documentElement.dataset.took')));
  }
  return took;
};
await keystrokes(40); /* V8 optimises what runs often */
row('a keystroke in examples/lambda.fcp, 8 ranks, to its picture; median', median(await keystrokes(60)), 50, 'ms');

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
row('256 ranks, 8.3 M tokens, fcp: planned, verified, drawn; median', median(long), 1000, 'ms');

await of(`editor.setValue(${JSON.stringify(fs.readFileSync('examples/auto.fcp', 'utf8'))}.replace(/nodes\\s*=\\s*\\d+/, 'nodes = 8').replace(/gpus\\s*=\\s*\\d+/, 'gpus = 8'))`);
let begin = performance.now();
await until(`!get('busy').hidden && / of /.test(get('doing').textContent)`);
row('auto, 64 ranks: until progress is told', performance.now() - begin, 1000, 'ms');
begin = performance.now();
await of(`get('cancel').click()`);
await until(`get('busy').hidden`);
row('until it is cancelled', performance.now() - begin, 100, 'ms');
await of(`editor.setValue(editor.getValue() + '\\n')`);
begin = performance.now();
await until(shown, 120);
console.log(`${'auto, 64 ranks: until its picture'.padEnd(68)} ${((performance.now() - begin) / 1000).toFixed(1).padStart(7)} s`);
await browser.close();
site.close();
process.exitCode = missed ? 1 : 0;
