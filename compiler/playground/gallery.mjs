/* gallery.mjs: prints, as JSON, the programs that the playground offers: all of examples/, with the files that they read,
 * and one for each mask of the prelude, as grammar/pictures/draw.sh draws it; and the numbers that masks of the prelude
 * take.   usage: gallery.mjs, from the top of the tree */
import {execFileSync} from 'child_process';
import fs from 'fs';
import os from 'os';
import path from 'path';

const read = file => fs.readFileSync(file, 'utf8');
const called = (...args) => execFileSync('grammar/pictures/draw.sh', args, {encoding: 'utf8'}).trim().split('\n');
/* The files that a program names, from its folder; those of numbers in binary are written by a program of one's own. */
const named = (folder, text) => Object.fromEntries([...text.matchAll(/file\("([^"]+)"/g)].map(m => m[1])
  .filter(name => fs.existsSync(path.join(folder, name))).map(name => [name, read(path.join(folder, name))]));

const programs = [];
for (const [group, folder] of [['Examples', 'examples'], ['Examples of masks', 'examples/masks'], ['Examples of scores', 'examples/scores'],
  ['What papers describe', 'examples/seeds']])
  for (const file of fs.readdirSync(folder).filter(f => f.endsWith('.fcp')).sort()) {
    const text = read(path.join(folder, file));
    programs.push({id: `${folder}/${file}`, group, name: file.replace(/\.fcp$/, ''), text, files: named(folder, text)});
  }

const prelude = read('grammar/prelude.fcp'), masks = {};
for (const [, name, list] of prelude.matchAll(/^mask (\w+)(?:\(([^)]*)\))?/gm))
  masks[name] = (list || '').split(',').map(p => p.trim()).filter(Boolean)
    .map(p => p.split(/\s*=\s*/)).map(([n, v]) => [n, v !== undefined && /^\d+$/.test(v) ? Number(v) : null]);

const work = fs.mkdtempSync(path.join(os.tmpdir(), 'fcpc-gallery.'));
const fields = called('--fields', work);
for (const call of called('--list')) {
  const name = call.split('(')[0], own = fields.filter(f => new RegExp(`= *${f.split(' ')[1]}\\b`).test(call));
  const above = (new RegExp(`((?:^#.*\\n)*)^mask ${name}\\b`, 'm').exec(prelude) || ['', ''])[1];
  const text = `${above}model   { heads = 8; kv_heads = 2; head_dim = 128; dtype = bf16 }
cluster { nodes = 2; gpus = 4; gpu = h200 }
batch   { lengths = [4096]${own.map(f => `\n          ${f}`).join('')} }
plan    { mask = ${call}; block = 128 }
`;
  programs.push({id: `prelude/${name}`, group: 'Masks of the prelude', name, text, files: named(work, text)});
}
fs.rmSync(work, {recursive: true});
process.stdout.write(JSON.stringify({programs, masks}) + '\n');
