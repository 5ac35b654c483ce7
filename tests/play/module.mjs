/* module.mjs: the compiler as WebAssembly in node: run(argument...) does what a command line says, in the folder `at` of
 * its files in memory, and returns the status, the diagnostics and what was printed; data(plan) is what a page draws. */
import fs from 'fs';
import {createRequire} from 'module';

export async function load(folder, at) {
  const make = createRequire(import.meta.url)(`${folder}/fcpc.js`);
  const module = await make({wasmBinary: fs.readFileSync(`${folder}/fcpc.wasm`)}), {FS} = module;
  const text = path => FS.readFile(path, {encoding: 'utf8'});
  FS.mkdirTree(at);
  FS.chdir(at);
  return {FS, data: plan => module.ccall('play_data', 'string', ['string'], [plan]), run: (...args) => {
    const reply = JSON.parse(module.ccall('play', 'string', ['string'], [args.join('\n')]));
    return {...reply, stdout: text('/tmp/stdout'), stderr: text('/tmp/stderr')};
  }};
}
