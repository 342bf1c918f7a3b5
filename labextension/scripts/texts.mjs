/**
 * Write the texts to be translated to locale/pathways_jupyter.pot: those of the sources, and those of the settings.
 * Usage: node scripts/texts.mjs [--check], which fails if the file is out of date.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

import ts from 'typescript';

const TEMPLATE = 'locale/pathways_jupyter.pot';
const SCHEMA = 'schema/plugin.json';
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

function written({ context, texts: [text, plural], files }) {
  const quoted = words => JSON.stringify(words);
  return [
    `#: ${[...files].sort().join(' ')}`,
    ...(context ? [`msgctxt ${quoted(context)}`] : []),
    `msgid ${quoted(text)}`,
    ...(plural ? [`msgid_plural ${quoted(plural)}`, 'msgstr[0] ""', 'msgstr[1] ""'] : ['msgstr ""'])
  ].join('\n');
}

const sources = readdirSync('src', { recursive: true }).filter(name => /\.tsx?$/.test(name));
sources.sort().forEach(name => read(`src/${name.replaceAll('\\', '/')}`));
readSchema();
const template = [HEADER, ...[...entries.values()].map(each => `${written(each)}\n`)].join('\n');
if (!process.argv.includes('--check')) {
  writeFileSync(TEMPLATE, template);
} else if (readFileSync(TEMPLATE, 'utf-8') !== template) {
  process.stderr.write(`${TEMPLATE} is out of date: run "jlpm texts".\n`);
  process.exitCode = 1;
}
