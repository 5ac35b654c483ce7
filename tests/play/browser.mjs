/* browser.mjs: a server of a folder, and headless Chromium that is told by the DevTools protocol over a pipe. */
import {spawn} from 'child_process';
import fs from 'fs';
import http from 'http';
import os from 'os';
import path from 'path';

const TYPES = {'.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm', '.json': 'application/json'};

/* Serves the folder on a free port of this machine: {url, close()}. */
export async function serve(folder) {
  const server = http.createServer((request, response) => {
    const file = path.join(folder, path.normalize(new URL(request.url, 'http://x').pathname).replace(/\/$/, '/index.html'));
    fs.readFile(file, (error, bytes) => {
      response.writeHead(error ? 404 : 200, {'content-type': TYPES[path.extname(file)] || 'application/octet-stream'});
      response.end(error ? '' : bytes);
    });
  });
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  return {url: `http://127.0.0.1:${server.address().port}/`, close: () => { server.closeAllConnections(); server.close(); }};
}

export async function chromium(program) {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'fcpc-chromium.'));
  const child = spawn(program, ['--headless', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', `--user-data-dir=${profile}`, '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-default-apps', '--disable-sync', '--disable-extensions',
    '--window-size=1400,1000', 'about:blank'], {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
  const waiting = new Map(), watching = [];
  let rest = '', count = 0;
  child.stdio[4].setEncoding('utf8').on('data', chunk => {
    const lines = (rest + chunk).split('\0');
    rest = lines.pop();
    for (const line of lines) {
      const m = JSON.parse(line), answer = waiting.get(m.id);
      if (!answer) watching.forEach(f => f(m));
      else if (m.error) answer.fail(new Error(m.error.message));
      else answer.good(m.result);
      waiting.delete(m.id);
    }
  });
  const send = (method, params, sessionId) => new Promise((good, fail) => {
    waiting.set(++count, {good, fail});
    child.stdio[3].write(JSON.stringify({id: count, method, params, sessionId}) + '\0');
  });
  /* A page: of(expression) is its value; until(expression) waits for it to be true; told: its messages; asked: its requests. */
  async function open(url) {
    const {targetId} = await send('Target.createTarget', {url: 'about:blank'}), {sessionId} = await send('Target.attachToTarget', {targetId, flatten: true});
    const tell = (method, params = {}) => send(method, params, sessionId), told = [], asked = [];
    watching.push(m => {
      if (m.sessionId !== sessionId) return;
      if (m.method === 'Runtime.exceptionThrown') told.push(m.params.exceptionDetails.exception?.description || m.params.exceptionDetails.text);
      if (m.method === 'Log.entryAdded') told.push(m.params.entry.text);
      if (m.method === 'Runtime.consoleAPICalled') told.push(m.params.args.map(a => a.value).join(' '));
      if (m.method === 'Network.requestWillBeSent') asked.push(m.params.request.url);
    });
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await tell(domain + '.enable');
    await tell('Page.navigate', {url});
    const of = async expression => {
      const {result, exceptionDetails} = await tell('Runtime.evaluate', {expression, returnByValue: true, awaitPromise: true});
      if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description || exceptionDetails.text}`);
      return result.value;
    };
    const until = async (expression, seconds = 30) => {
      for (const end = Date.now() + 1000 * seconds; Date.now() < end; await new Promise(r => setTimeout(r, 10)))
        if (await of(expression).catch(() => false)) return true;
      return false;
    };
    const key = async (name, code, more = {}) => {
      for (const type of ['keyDown', 'keyUp']) await tell('Input.dispatchKeyEvent', {type, key: name, code: name, windowsVirtualKeyCode: code, ...more});
    };
    return {tell, of, until, key, told, asked, close: () => send('Target.closeTarget', {targetId})};
  }
  const close = async () => {
    const ended = new Promise(done => child.on('exit', done));
    await send('Browser.close').catch(() => {});
    await ended;
    fs.rmSync(profile, {recursive: true, force: true, maxRetries: 5});
  };
  return {open, close};
}
