/* page.mjs: tests the playground's page in headless Chromium. "FAILED: NAME" for each check that does not hold, then
 * "N passed, M failed".   usage: page.mjs FOLDER FCPC CHROMIUM */
import {execFileSync} from 'child_process';
import fs from 'fs';
import {chromium, serve} from './browser.mjs';

const [folder, fcpc, program] = process.argv.slice(2);
let passed = 0, failed = 0;
const holds = (name, good, more = '') => {
  if (good) return passed++;
  failed++;
  console.log(`FAILED: ${name}${more === '' ? '' : ': ' + String(more).slice(0, 300)}`);
};
const site = await serve(folder), browser = await chromium(program), page = await browser.open(site.url), {of, until} = page;
const text = 'editor.getValue()', shown = () => until('document.documentElement.dataset.shown === String(state.typed)');
const change = async (from, to) => { await of(`editor.setValue(${text}.replace(${JSON.stringify(from)}, ${JSON.stringify(to)}))`); return shown(); };
const picture = () => of(`document.querySelector('canvas.grid').toDataURL()`);

try {
  /* a picture, and an edit that changes it */
  holds('a picture appears', await until('document.documentElement.dataset.shown && document.querySelector("canvas.grid")'));
  holds('the program is lambda.fcp', await of(text) === fs.readFileSync('examples/lambda.fcp', 'utf8'));
  const before = await picture();
  holds('the timeline is there', await of('document.querySelectorAll("canvas.timeline").length') === 1);
  holds('five lines of figures', (await of('document.getElementById("cost").textContent')).split('\n').length === 5);
  holds('an edit', await change('window = 1024', 'window = 256'));
  holds('it changes the picture', await picture() !== before);

  /* mistakes */
  await change('causal and', 'cusal and');
  await change('strategy = fcp', 'stratgy = fcp');
  holds('an error is told', await of(`document.querySelectorAll('#problems li.error').length`) >= 1);
  holds('its place is marked', await of(`document.querySelectorAll('.CodeMirror .wrong').length`) >= 1);
  holds('the picture is marked as old', await of(`document.getElementById('page').classList.contains('old')`));
  for (let i = 0; i < 4 && await of(`!!document.querySelector('.fix')`); i++) {
    await of(`document.querySelector('.fix').click()`);
    await shown();
  }
  holds('quick fixes mend the program', await of(`!document.querySelector('#problems li.error')`), await of(text));

  /* the mouse: why a pair is allowed; a click: single pairs */
  await of(`document.querySelector('canvas.grid').scrollIntoView({block: 'center'})`);
  const box = await of(`(b => ({x: b.x + 0.3 * b.width, y: b.y + 0.6 * b.height}))(document.querySelector('canvas.grid').getBoundingClientRect())`);
  await page.tell('Input.dispatchMouseEvent', {type: 'mouseMoved', ...box});
  holds('hovering explains a pair', await until(`/(because|sees|does not see)/.test(document.getElementById('tip').textContent)`, 5), await of(`document.getElementById('tip').textContent`));
  for (const type of ['mousePressed', 'mouseReleased']) await page.tell('Input.dispatchMouseEvent', {type, ...box, button: 'left', clickCount: 1});
  holds('a click shows single pairs', await until(`!document.getElementById('pairs').hidden && /k = \\d+/.test(document.getElementById('why').textContent)`, 5));
  holds('a cell is one pair', await of(`document.getElementById('grain').textContent`) === 'one pair');
  const why = await of(`document.getElementById('why').textContent`);
  await page.key('ArrowRight', 39);
  holds('an arrow moves to the next pair', await until(`document.getElementById('why').textContent !== ${JSON.stringify(why)}`, 5));
  await page.key('-', 189, {text: '-'});
  holds('zooming out shows more', await until(`document.getElementById('grain').textContent !== 'nothing' && document.getElementById('pairs').hidden === false`, 5));
  await page.key('Escape', 27);
  holds('Escape closes it', await until(`document.getElementById('pairs').hidden`, 5));

  await of(`get('look').click()`);
  holds('a button shows single pairs, too', await until(`!get('pairs').hidden && /k = \\d+/.test(get('why').textContent)`, 5));
  await of(`get('close').click()`);

  /* sliders */
  holds('a slider for each number', await of(`[...document.querySelectorAll('#knobs input')].map(i => i.getAttribute('aria-label')).join()`).then(l => /cluster nodes,cluster gpus/.test(l) && /plan block/.test(l)));
  await of(`(i => { i.value = Number(i.value) + 1; i.dispatchEvent(new Event('input')); })([...document.querySelectorAll('#knobs input')].find(i => i.getAttribute('aria-label') === 'cluster nodes'))`);
  await shown();
  holds('a slider changes the program', /nodes\s*=\s*3/.test(await of(text)), await of(text));
  holds('and the plan', /12 ranks/.test(await of(`document.getElementById('cost').textContent`)));
  await of(`editor.setValue(${text}.replace(/^mask lambda.*$/m, ''))`);
  await shown();
  if (await of(`[...document.querySelectorAll('#knobs input')].some(i => i.getAttribute('aria-label') === 'lambda window')`)) {
    await of(`(i => { i.value = 0; i.dispatchEvent(new Event('input')); })([...document.querySelectorAll('#knobs input')].find(i => i.getAttribute('aria-label') === 'lambda window'))`);
    await shown();
    holds('a default of a mask can be changed', /lambda\(window = 1\)/.test(await of(text)), await of(text));
  } else holds('a default of a mask has a slider', false, await of(text));

  /* links, files, downloads */
  const own = '# ein Programm für den Link\n' + fs.readFileSync('examples/masks/document.fcp', 'utf8').replace('fields/doc.txt', 'own.txt');
  await of(`take([new File([${JSON.stringify(fs.readFileSync('examples/masks/fields/doc.txt', 'utf8'))}], 'own.txt')])`);
  await of(`editor.setValue(${JSON.stringify(own)})`);
  await shown();
  holds('a file that was dropped is read', await of(`!document.querySelector('#problems li.error')`), await of(`document.getElementById('problems').textContent`));
  await of('link()');
  const other = await browser.open(await of('location.href'));
  holds('a link restores program and file', await other.until(`window.editor !== 0 && typeof state === 'object' && state.drawn === ${JSON.stringify(own)}`), await other.of(text));
  await other.of(`location.hash = '#e=prelude/window'`);
  holds('a link names a program of the gallery', await other.until(`state.drawn === state.gallery.programs.find(p => p.id === 'prelude/window').text`), await other.of(text));
  await other.of(`location.hash = '#e=prelude/nothing'`);
  holds('a name that is not there is said', await other.until(`get('said').textContent === 'the gallery has no program prelude/nothing'`, 5));
  await other.close();
  await of(`get('gallery').value = state.gallery.programs.findIndex(p => p.name === 'lambda'); get('gallery').dispatchEvent(new Event('change'))`);
  await shown();
  execFileSync(fcpc, ['-q', 'examples/lambda.fcp', '-o', process.env.TMPDIR + '/lambda.plan']);
  await of(`document.querySelector('[data-get=plan]').click()`);
  holds('the plan is downloaded', await until(`get('said').textContent === 'program.plan: ${fs.statSync(process.env.TMPDIR + '/lambda.plan').size} bytes'`, 5), await of(`get('said').textContent`));
  for (const [what, name] of [['svg', 'picture.svg'], ['html', 'page.html'], ['trace', 'trace.json'], ['cuda', 'kernels.cu']]) {
    await of(`document.querySelector('[data-get=${what}]').click()`);
    holds(`${name} is downloaded`, await until(`/^${name}: \\d{4,} bytes/.test(get('said').textContent)`, 10), await of(`get('said').textContent`));
  }

  /* strategies; long plans, progress and cancelling */
  await of(`get('compare').click()`);
  holds('strategies side by side', await until(`document.querySelectorAll('#candidates td:first-child').length >= 12`, 60));
  await of(`get('this').click()`);
  await shown();
  await of(`editor.setValue(${JSON.stringify(fs.readFileSync('examples/auto.fcp', 'utf8'))}.replace(/nodes\\s*=\\s*\\d+/, 'nodes = 8').replace(/gpus\\s*=\\s*\\d+/, 'gpus = 8'))`);
  holds('a long plan shows how far it is', await until(`!get('busy').hidden && / of \\d+ candidates/.test(get('doing').textContent)`, 60), await of(`get('doing').textContent`));
  await of(`get('cancel').click()`);
  holds('it can be cancelled', await until(`get('busy').hidden && get('said').textContent === 'cancelled'`, 5));
  await of(`editor.setValue(${JSON.stringify(fs.readFileSync('examples/lambda.fcp', 'utf8'))})`);
  holds('and the next program is planned', await shown());

  /* the keyboard reaches all that can be used */
  await of('document.activeElement.blur(); window.scrollTo(0, 0)');
  const reached = new Set(), name = `(e => e.id || e.dataset.get || e.dataset.zoom || e.getAttribute('aria-label') || e.textContent.slice(0, 30))(document.activeElement)`;
  for (let i = 0; i < 80; i++) {
    await page.key('Tab', 9);
    reached.add(await of(name));
  }
  const wanted = await of(`[...document.querySelectorAll('button, select, input, summary')].filter(e => e.checkVisibility()).map(e => e.id || e.dataset.get || e.dataset.zoom || e.getAttribute('aria-label') || e.textContent.slice(0, 30))`);
  const missed = wanted.filter(n => !reached.has(n));
  holds('Tab reaches every button, list, slider and switch', !missed.length, missed.join(', '));
  holds('Tab reaches the editor and leaves it', reached.has('the program') && reached.size > 10, [...reached].join(', '));

  /* contrast of every text with what is behind it, by WCAG 2.1: 4.5, and 3 for large text */
  const faint = `(() => {
    const numbers = c => (c.match(/[\\d.]+/g) || []).map(Number), light = c => c.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = e => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0.5) return c; } return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255]; };
    return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('svg, noscript, script, option, optgroup') && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).map(e => {
      const s = getComputedStyle(e), a = light(numbers(s.color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(s.fontSize);
      return ratio < (size >= 24 || size >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5) ? e.tagName + '.' + e.className + ' "' + e.textContent.trim().slice(0, 20) + '" ' + ratio.toFixed(2) : null;
    }).filter(Boolean); })()`;
  await change('causal and', 'cusal and');
  for (const scheme of ['light', 'dark']) {
    await page.tell('Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: scheme}]});
    const bad = await of(faint);
    holds(`contrast in the ${scheme}`, !bad.length, bad.join('; '));
  }
  holds('the dark is dark', await of(`getComputedStyle(document.body).backgroundColor`) === 'rgb(18, 22, 27)');

  /* a phone */
  await page.tell('Emulation.setDeviceMetricsOverride', {width: 360, height: 740, deviceScaleFactor: 2, mobile: true});
  await change('cusal and', 'causal and');
  holds('360 pixels are enough', await of('document.scrollingElement.scrollWidth') <= 360, await of(`document.scrollingElement.scrollWidth + ': ' + [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > 361 && !e.closest('.wide, .scroll, pre, .CodeMirror')).slice(0, 5).map(e => e.tagName + '#' + e.id + '.' + e.className).join(' ')`));
  holds('no error is logged', !page.told.length, page.told.join('; '));
  const foreign = page.asked.filter(u => !u.startsWith(site.url) && !/^(data|blob):/.test(u));
  holds('nothing is asked for elsewhere', !foreign.length, foreign.join(', '));
} catch (error) {
  holds('the test runs to its end', false, error.stack);
}
await browser.close();
site.close();
console.log(`${passed} passed, ${failed} failed`);
