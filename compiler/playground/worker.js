/* worker.js: the compiler in a thread of its own, so that the page stays awake. A message asks for a list of steps:
 *   {id, steps: [{write: {name: text or bytes}}, {remove: name}, {run: [argument, ...]}, {data: plan}, {read: name}]}
 * They are done in turn in the folder /work in memory, up to the first command that fails. The answer has what each step
 * gave: {id, done: [...], ms}. While a command takes long, {id, part, tried, of} tells how far it is. */
'use strict';
importScripts('fcpc.js');
let now = null;
const ready = fcpcModule({tell: (part, tried, of) => postMessage({id: now, part, tried, of})}).then(module => {
  module.FS.mkdirTree('/work');
  module.FS.chdir('/work');
  return module;
});
const text = (module, name) => module.FS.readFile(name, {encoding: 'utf8'});

function step(module, {write, remove, run, data, read}) {
  const {FS} = module;
  for (const [name, content] of Object.entries(write || {})) {
    FS.mkdirTree('/work/' + name.replace(/\/?[^/]*$/, ''));
    FS.writeFile('/work/' + name, content);
  }
  if (remove) for (const name of FS.readdir('/work')) if (name.startsWith(remove)) FS.unlink(name);
  if (run) {
    const reply = JSON.parse(module.ccall('play', 'string', ['string'], [run.join('\n')]));
    return {...reply, stdout: text(module, '/tmp/stdout'), stderr: text(module, '/tmp/stderr')};
  }
  if (data) return module.ccall('play_data', 'string', ['string'], [data]);
  if (read) return FS.readdir('/work').filter(name => name.startsWith(read)).map(name => [name, FS.readFile(name)]);
  return null;
}

onmessage = async ({data: {id, steps}}) => {
  const done = [];
  try {
    const module = await ready, begin = performance.now();
    now = id;
    for (const one of steps) {
      done.push(step(module, one));
      if (one.run && done[done.length - 1].status) break;
    }
    postMessage({id, done, ms: performance.now() - begin});
  } catch (error) { /* a bug, or no memory: the page begins a new worker */
    postMessage({id, done, failed: String(error)});
  }
};
