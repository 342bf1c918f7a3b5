/**
 * Write the texts to be translated to locale/pathways_jupyter.pot: those of the sources, those of the settings, and the
 * server's sentences. Checks the translations that this package ships against them.
 * Usage: node scripts/texts.mjs [--check], which fails if the file is out of date.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

import ts from 'typescript';

const TEMPLATE = 'locale/pathways_jupyter.pot';
const SCHEMA = 'schema/plugin.json';
const SHIPPED = '../pathways_jupyter/locale';
/** Number of texts that each function of a translation bundle takes first. */
const FUNCTIONS = { __: 1, _n: 2 };
const HEADER = `# Texts of the sidebar. Written by "jlpm texts".
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"
`;

/** Entries by their context and text. */
const entries = new Map();

function add(texts, file, context = '') {
  const key = JSON.stringify([context, texts[0]]);
  const entry = entries.get(key) ?? { context, texts, files: new Set() };
  if (texts.length > entry.texts.length) {
    entry.texts = texts;
  }
  entry.files.add(file);
  entries.set(key, entry);
}

function read(file) {
  const source = ts.createSourceFile(file, readFileSync(file, 'utf-8'), ts.ScriptTarget.Latest, true);
  const visit = node => {
    const name =
      ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression) && node.expression.name.text;
    if (name && Object.hasOwn(FUNCTIONS, name)) {
      const texts = node.arguments.slice(0, FUNCTIONS[name]);
      const other = texts.find(each => !ts.isStringLiteralLike(each));
      if (other) {
        const { line } = source.getLineAndCharacterOfPosition(other.getStart());
        throw new Error(`${file}:${line + 1}: ${other.getText()} is not a text, so it cannot be translated`);
      }
      add(
        texts.map(each => each.text),
        file
      );
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}

/** JupyterLab translates titles and descriptions of settings in the context "schema". */
function readSchema() {
  const schema = JSON.parse(readFileSync(SCHEMA, 'utf-8'));
  for (const { title, description } of [schema, ...Object.values(schema.properties)]) {
    add([title], SCHEMA, 'schema');
    add([description], SCHEMA, 'schema');
  }
}

/** The server's sentences are translated in the context "server"; their parameters are in braces. */
function readSentences() {
  const found = execFileSync('python', ['scripts/sentences.py', '..'], { encoding: 'utf-8' });
  for (const [sentence, files] of Object.entries(JSON.parse(found))) {
    files.forEach(file => add([sentence], file, 'server'));
  }
}

function written({ context, texts: [text, plural], files }) {
  const quoted = words => JSON.stringify(words);
  return [
    `#: ${[...files].sort().join(' ')}`,
    ...(context ? [`msgctxt ${quoted(context)}`] : []),
    `msgid ${quoted(text)}`,
    ...(plural ? [`msgid_plural ${quoted(plural)}`, 'msgstr[0] ""', 'msgstr[1] ""'] : ['msgstr ""'])
  ].join('\n');
}

/** Placeholders of a text, in no order. */
function placeholders(text) {
  return [...new Set(text.match(/%\d+|\{[^{}]+\}/g) ?? [])].sort().join(' ');
}

/** Return what is wrong with the translations that are shipped. */
function* faults() {
  for (const locale of readdirSync(SHIPPED)) {
    const file = `${SHIPPED}/${locale}/LC_MESSAGES/pathways_jupyter.json`;
    const { '': header, ...translated } = JSON.parse(readFileSync(file, 'utf-8'));
    const missing = new Set(Object.keys(translated));
    for (const { context, texts } of entries.values()) {
      const key = context ? `${context}\u0004${texts[0]}` : texts[0];
      missing.delete(key);
      const given = translated[key] ?? [];
      if (given.length !== texts.length || !given.every(Boolean)) {
        yield `${file}: ${JSON.stringify(key)} is not translated`;
      }
      const wanted = placeholders(texts.join());
      if (given.length && placeholders(given.join()) !== wanted) {
        yield `${file}: ${JSON.stringify(key)} needs the placeholders ${wanted || '(none)'}`;
      }
    }
    for (const key of missing) {
      yield `${file}: ${JSON.stringify(key)} is no text of the sidebar`;
    }
    if (header.domain !== 'pathways_jupyter') {
      yield `${file}: its domain is not pathways_jupyter`;
    }
  }
}

const sources = readdirSync('src', { recursive: true }).filter(name => /\.tsx?$/.test(name));
sources.sort().forEach(name => read(`src/${name.replaceAll('\\', '/')}`));
readSchema();
readSentences();
const template = [HEADER, ...[...entries.values()].map(each => `${written(each)}\n`)].join('\n');
if (!process.argv.includes('--check')) {
  writeFileSync(TEMPLATE, template);
} else if (readFileSync(TEMPLATE, 'utf-8') !== template) {
  process.stderr.write(`${TEMPLATE} is out of date: run "jlpm texts".\n`);
  process.exitCode = 1;
}
const found = [...faults()];
if (found.length) {
  process.stderr.write(found.join('\n') + '\n');
  process.exitCode = 1;
}
