/**
 * The server's sentences in the user's language. The server sends a sentence's template and parameters beside its English
 * text; the translations of the templates are in the context "server" of the catalogue, with the parameters' names in
 * braces.
 */
import { ITrans } from './trans';

/** The template and the parameters of a sentence; the server's part is pathways_jupyter/base/sentences.py. */
export interface IText {
  readonly sentence: string;
  readonly values: { readonly [name: string]: string | number | ISaid | readonly ISaid[] | undefined };
}

/** A sentence of the server: in English, and for translation. */
export interface ISaid {
  readonly message: string;
  /** Missing where the text is no sentence to be translated. */
  readonly text?: IText;
}

/** A failure reported by the server: what failed, and what to do next. */
export interface IProblem extends ISaid {
  readonly hint: string;
  /** The hint for translation. */
  readonly hint_text?: IText;
  /** True when no cluster is configured, which is not a failure: there is nothing to fix. */
  readonly nothing_set_up?: boolean;
  /** True when the scope's embedded cluster does not run. */
  readonly embedded_ended?: boolean;
}

const CONTEXT = 'server';

/** A name, and what follows it for a command: {pod}, {connect:--local}. */
const PLACEHOLDER = /\{(\w+)(?::([^{}]*))?\}/g;
/** Commands outside of the groups, as in pathways_jupyter/base/sentences.py. */
const COMMAND = /^(connect|doctor|logs|reconnect|status)$|^(elastic|job|service)_/;

/** Return what to type for a placeholder without a value: a command, or a field of the connect dialog. */
function typed(trans: ITrans, name: string, words: string): string | undefined {
  if (name === 'wait') {
    return trans.__('“%1”', trans.__('Wait for slices that are taken'));
  }
  return COMMAND.test(name) ? `%pathways ${name.replace('_', ' ')} ${words}`.trimEnd() : undefined;
}

/** Return a sentence of the server; in its English where no translation is known. */
export function sentenceOf(trans: ITrans, { message, text }: ISaid): string {
  const template = text && trans.pgettext(CONTEXT, text.sentence);
  if (!template || template === text.sentence) {
    return message;
  }
  return template.replace(PLACEHOLDER, (whole, name: string, words = '') => {
    const value = text.values[name] ?? typed(trans, name, words as string);
    if (Array.isArray(value)) {
      return (value as readonly ISaid[]).map(each => sentenceOf(trans, each)).join('; ');
    }
    return typeof value === 'object' ? sentenceOf(trans, value as ISaid) : String(value ?? whole);
  });
}

/** Return a problem that the server reports, in the user's language. */
export function problemOf<T extends IProblem>(trans: ITrans, problem: T): T {
  const { message, text, hint, hint_text } = problem;
  return {
    ...problem,
    message: sentenceOf(trans, { message, text }),
    hint: sentenceOf(trans, { message: hint, text: hint_text })
  };
}
