/**
 * The server's sentences in the user's language. The server sends a code and parameters beside its English text; the
 * translations of the codes are in the context "server" of the catalogue, with the parameters' names in braces. The
 * codes are listed in pathways_jupyter/sentences.py.
 */
import { ITrans } from './trans';
import { IProblem, ISaid } from './wire';

const CONTEXT = 'server';

/** Return a sentence of the server; in its English where no translation of its code is known. */
export function sentenceOf(trans: ITrans, { message, text }: ISaid): string {
  const template = text && trans.pgettext(CONTEXT, text.code);
  if (!template || template === text.code) {
    return message;
  }
  return template.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = text.values[name];
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
