/** Failures of requests, as they are shown. */
import { english, ITrans } from './trans';
import { IProblem } from './wire';

/** A failed request. */
export class Problem extends Error implements IProblem {
  constructor(
    message: string,
    readonly hint = '',
    /** HTTP status; 0 without an answer. */
    readonly status = 0,
    /** The class of a kernel's error. */
    readonly kind = ''
  ) {
    super(message);
  }
}

/** Convert anything that was thrown into a {@link Problem}. */
export function asProblem(error: unknown, trans: ITrans = english): Problem {
  return error instanceof Problem ? error : new Problem(trans.__('Request failed: %1', String(error)));
}
