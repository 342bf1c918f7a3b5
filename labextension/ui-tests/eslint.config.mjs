// Finds mistakes, such as promises that are never awaited; Prettier decides what the code looks like.
import js from '@eslint/js';
import hooks from 'eslint-plugin-react-hooks';
import { defineConfig } from 'eslint/config';
import ts from 'typescript-eslint';

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
    rules: {
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
