/**
 * Lint rules. Three things matter beyond the usual: promises are never left floating, workflow code stays deterministic (it is replayed), and
 * data flows one way through the folders (see CONTRIBUTING): method/ imports nothing of ours, workflows/ imports only itself and types.
 */
import js from '@eslint/js';
import temporal from 'eslint-plugin-temporal';
import tseslint from 'typescript-eslint';

const folders = [
  'activities',
  'environment',
  'method',
  'models',
  'policy',
  'records',
  'scripts',
  'suites',
  'tests',
  'workers',
  'workflows',
];
const tests = ['**/*.test.ts', 'tests/**/*.ts'];

/** Forbids imports from our own folders except `allowed`; type-only imports pass where `types` is true. */
function boundary(allowed, message, { types = false } = {}) {
  const forbidden = folders.filter((folder) => !allowed.includes(folder)).map((folder) => `**/${folder}/**`);
  return { '@typescript-eslint/no-restricted-imports': ['error', { patterns: [{ group: forbidden, message, allowTypeImports: types }] }] };
}

/**
 * The plugin's determinism rules. Those that it only recommends are about style (one object per function, a time limit on every wait) and
 * are left out, except the few that find real faults.
 */
const findsFaults = [
  'no-swallow-cancellation',
  'no-nondeterministic-control-flow',
  'no-error-as-payload',
  'no-bigint-in-payload',
  'no-wall-clock-assumptions',
];
const workflowRules = Object.fromEntries([
  ...Object.entries(temporal.configs.recommended.rules).filter(
    ([name, level]) => name.startsWith('temporal/workflow-') && level === 'error',
  ),
  ...findsFaults.map((name) => [`temporal/workflow-${name}`, 'error']),
]);

export default tseslint.config(
  { ignores: ['node_modules/', '.cache/', 'data/', 'suites/built/'] },
  js.configs.recommended,
  {
    files: ['**/*.mjs'],
    languageOptions: {
      globals: {
        process: 'readonly',
        URL: 'readonly',
        console: 'readonly',
        setInterval: 'readonly',
        clearInterval: 'readonly',
        setTimeout: 'readonly',
      },
    },
  },
  {
    files: ['**/*.ts'],
    extends: [...tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-floating-promises': [
        'error',
        { allowForKnownSafeCalls: [{ from: 'package', package: 'node:test', name: ['test', 'it', 'describe', 'suite'] }] },
      ],
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'separate-type-imports', disallowTypeAnnotations: false }],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      // Implementations of an async interface often have nothing to await.
      '@typescript-eslint/require-await': 'off',
      // Error messages show what was found, and that may be undefined.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true, allowNullish: true }],
    },
  },
  {
    files: ['method/**/*.ts'],
    ignores: tests,
    rules: boundary(['method'], 'method/ is pure mathematics and imports nothing of ours.'),
  },
  {
    files: ['workflows/**/*.ts'],
    ignores: tests,
    plugins: { temporal },
    rules: {
      ...workflowRules,
      // Written for search attributes as they were before typed keys.
      'temporal/workflow-search-attributes-upsert-shape': 'off',
      // Takes setHandler for a promise; @typescript-eslint/no-floating-promises knows the types and covers workflows too.
      'temporal/workflow-no-floating-promises': 'off',
      ...boundary(
        ['workflows', 'method'],
        'workflows/ imports only workflows/, method/ (pure) and types: it runs in the deterministic sandbox.',
        { types: true },
      ),
    },
  },
);
