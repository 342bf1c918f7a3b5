/** The standard rules, except where JupyterLab's names differ. */
export default {
  extends: 'stylelint-config-standard',
  rules: {
    // Our own classes, and those of JupyterLab, which mixes camel case and dashes.
    'selector-class-pattern': '^(pw-[a-z-]+|jp-[A-Za-z-]+|lm-[A-Za-z-]+)$'
  }
};
