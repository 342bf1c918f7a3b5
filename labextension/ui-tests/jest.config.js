/** The models, and what of the views needs no browser, are tested as plain modules. ts-jest checks their types. */
const esModules = ['@jupyterlab', '@jupyter', '@lumino', 'lib0', 'y-protocols', 'yjs', 'nanoid'].join('|');

module.exports = {
  rootDir: '..',
  roots: ['<rootDir>/src', '<rootDir>/test'],
  testEnvironment: 'node',
  testMatch: ['<rootDir>/test/**/*.spec.ts', '<rootDir>/test/**/*.spec.tsx'],
  transform: {
    '\\.tsx?$': [require.resolve('ts-jest'), { tsconfig: '<rootDir>/test/tsconfig.json' }]
  },
  transformIgnorePatterns: [`/node_modules/(?!(${esModules})/)`]
};
