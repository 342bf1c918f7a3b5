/** Models know no browser and no React: they are tested as plain modules. `jlpm test` checks the types of all before. */
const esModules = ['@jupyterlab', '@jupyter', '@lumino', 'lib0', 'y-protocols', 'yjs', 'nanoid'].join('|');

module.exports = {
  testEnvironment: 'node',
  testMatch: ['<rootDir>/test/**/*.spec.ts', '<rootDir>/test/**/*.spec.tsx'],
  transform: {
    '\\.tsx?$': ['ts-jest', { tsconfig: 'tsconfig.test.json' }]
  },
  transformIgnorePatterns: [`/node_modules/(?!(${esModules})/)`]
};
