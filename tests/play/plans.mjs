/* plans.mjs: compares the compiler as WebAssembly with the program. "NAME: what differs" for each difference, then
 * "N same".   usage: plans.mjs WASM-FOLDER FCPC, from the top of the tree */
import {execFileSync, spawnSync} from 'child_process';
import crypto from 'crypto';
import fs from 'fs';
import {load} from './module.mjs';

const [folder, fcpc] = process.argv.slice(2);
const {FS, run, data} = await load(folder, '/tree');
const listed = (...paths) => execFileSync('git', ['ls-files', ...paths], {encoding: 'utf8'}).trim().split('\n');
let same = 0;
const check = (name, a, b) => {
  if (a === b) same++;
  else console.log(`${name}:\n  here  ${a}\n  there ${b}`);
};
for (const path of listed('examples')) {
  FS.mkdirTree('/tree/' + path.replace(/\/?[^/]*$/, ''));
  FS.writeFile('/tree/' + path, fs.readFileSync(path));
}
/* tests/plans has proven that these are the digests of the program's plans */
for (const line of fs.readFileSync('tests/golden/plans.sha256', 'utf8').trim().split('\n')) {
  const [digest, path] = line.split(' ');
  if (!path.endsWith('.fcp')) continue;
  const reply = run('-q', path, '-o', 'plan');
  check(path, reply.status ? reply.stderr : crypto.createHash('sha256').update(FS.readFile('plan')).digest('hex'), digest);
  if (!reply.status) FS.unlink('plan');
}
/* what users get wrong, in the same words */
const work = process.env.TMPDIR;
for (const path of listed('tests/golden/diag/*.case')) {
  const program = fs.readFileSync(path, 'utf8').split(/^=+$/m)[0];
  FS.writeFile('/tree/a.fcp', program);
  fs.writeFileSync(work + '/a.fcp', program);
  const there = spawnSync(fcpc, ['-q', 'a.fcp'], {encoding: 'utf8', cwd: work}), here = run('-q', 'a.fcp');
  check(path, `${here.status} ${here.stderr}`, `${there.status} ${there.stderr}`);
}
/* commands: the same output, and the same files */
for (const args of [['show', '--width', '100'], ['sim', '--json'], ['sim', '--html', 'out'], ['show', '--svg', 'out'], ['sim', '--trace', 'out'],
  ['dump'], ['emit'], ['sim', '--strategy', 'all', '--csv', 'out'], ['show', '--rows', '100..164', '--cols', '0..128', '--svg', 'out']]) {
  const file = 'examples/lambda.fcp', [command, ...rest] = args;
  const env = {...process.env, LC_ALL: 'C.UTF-8'};
  const program = spawnSync(fcpc, ['-q', command, file, ...rest.map(x => x === 'out' ? work + '/out' : x)], {encoding: 'utf8', env});
  const reply = run('-q', command, file, ...rest), seconds = s => s.replace(/"seconds": {[^}]*}/g, '');
  check(args.join(' '), `${reply.status} ${seconds(reply.stdout)}`, `${program.status} ${seconds(program.stdout)}`);
  if (args.includes('out')) check(args.join(' ') + ': the file', FS.readFile('out', {encoding: 'utf8'}), fs.readFileSync(work + '/out', 'utf8'));
}
/* the gallery: each program is planned and can be drawn */
FS.mkdirTree('/gallery');
FS.chdir('/gallery');
for (const {name, text, files} of JSON.parse(fs.readFileSync(`${folder}/gallery.json`, 'utf8')).programs) {
  for (const [file, content] of Object.entries(files)) {
    FS.mkdirTree('/gallery/' + file.replace(/\/?[^/]*$/, ''));
    FS.writeFile(file, content);
  }
  FS.writeFile('program.fcp', text);
  const reply = run('-q', 'program.fcp', '-o', 'program.plan'), drawn = reply.status ? null : data('program.plan');
  check(`gallery: ${name}`, reply.status ? reply.stderr : drawn && JSON.parse(drawn).plans.length, 1);
}
console.log(`${same} same`);
