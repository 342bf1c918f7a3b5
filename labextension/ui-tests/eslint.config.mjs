// Finds mistakes, such as promises that are never awaited; Prettier decides what the code looks like.
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';

import js from '@eslint/js';
import hooks from 'eslint-plugin-react-hooks';
import { defineConfig } from 'eslint/config';
import typescript from 'typescript';
import ts from 'typescript-eslint';

/** The files of the package that a file imports, by their paths; types count too. */
const imported = new Map();
function importsOf(file) {
  if (!imported.has(file)) {
    const { importedFiles } = typescript.preProcessFile(readFileSync(file, 'utf-8'));
    const paths = importedFiles
      .filter(({ fileName }) => fileName.startsWith('.'))
      .flatMap(({ fileName }) => ['.ts', '.tsx'].map(ending => resolve(dirname(file), fileName + ending)));
    imported.set(file, paths.filter(existsSync));
  }
  return imported.get(file);
}

/** Return the files of the shortest circle of imports through a file, itself left out; null if there is none. */
function circleOf(file) {
  const ways = importsOf(file).map(each => [each]);
  const seen = new Set();
  for (const way of ways) {
    const last = way.at(-1);
    if (last === file) {
      return way.slice(0, -1);
    }
    if (!seen.has(last)) {
      seen.add(last);
      ways.push(...importsOf(last).map(each => [...way, each]));
    }
  }
  return null;
}

/** What import-linter is for Python. */
const noCircles = {
  create: context => ({
    Program(node) {
      const circle = circleOf(context.filename);
      if (circle) {
        const names = [...circle, context.filename].map(each => basename(each)).join(', which imports ');
        context.report({ node, message: `A circle of imports: it imports ${names}.` });
      }
    }
  })
};

export default defineConfig(
  { ignores: ['lib/', 'ui-tests/test-results/'] },
  {
    files: ['**/*.js', '**/*.mjs'],
    extends: [js.configs.recommended],
    // Only configuration files of tools that run in Node.
    languageOptions: { globals: { module: 'writable', process: 'readonly', require: 'readonly' } }
  },
  {
    files: ['**/*.ts', '**/*.tsx'],
    extends: [js.configs.recommended, ts.configs.strictTypeChecked, hooks.configs.flat['recommended-latest']],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: `${import.meta.dirname}/..` } },
    plugins: { house: { rules: { 'no-circles': noCircles } } },
    rules: {
      'house/no-circles': 'error',
      // `() => socket.close()` is the usual form of a callback.
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      // Numbers in texts and SVG paths need no conversion.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }]
    }
  },
  {
    files: ['test/**', 'ui-tests/**'],
    rules: {
      // In a test, `!` fails as well as an assertion does.
      '@typescript-eslint/no-non-null-assertion': 'off'
    }
  },
  {
    files: ['ui-tests/**/*.ts'],
    rules: {
      // These tests reach into the page's globals and widgets, which have no types there.
      '@typescript-eslint/no-explicit-any': 'off',
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-return': 'off'
    }
  }
);
