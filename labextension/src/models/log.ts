/** Whose log it is, a log as it grows, and the search in it. */
import { ISignal, Signal } from '@lumino/signaling';

import { asProblem, Problem } from './problem';
import { IScope, scopeKey } from './scope';

/** A pod, or a job with a program. */
export type LogSource =
  { readonly pod: string; readonly scope: IScope } | { readonly job: string; readonly scope: IScope };

/** Return a name for a log's title and file. */
export function logName(source: LogSource): string {
  return 'pod' in source ? source.pod : source.job;
}

/** Return a text that is the same only for the same log. */
export function logKey(source: LogSource): string {
  return 'pod' in source
    ? `${scopeKey(source.scope)}/pod/${source.pod}`
    : `${scopeKey(source.scope)}/job/${source.job}`;
}

/** Number of lines kept; a followed log has no end. */
export const LINES_KEPT = 5000;

export type LogState = 'reading' | 'ended' | 'failed';

/** Call `take` with each chunk of a log, until the log ends or `signal` is aborted. */
export type ReadLog = (follow: boolean, take: (text: string) => void, signal: AbortSignal) => Promise<void>;

export class Log {
  constructor(
    /** As {@link logName} says. */
    readonly name: string,
    private readonly _read: ReadLog
  ) {}

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  lines: readonly string[] = [];
  dropped = 0;
  state: LogState = 'reading';
  problem: Problem | null = null;

  /** Read the log from its beginning. */
  async read(follow: boolean): Promise<void> {
    this.stop();
    const stop = (this._stop = new AbortController());
    this.lines = [];
    this.dropped = 0;
    this._partial = '';
    this._setState('reading');
    try {
      await this._read(follow, text => this._take(text, stop.signal), stop.signal);
    } catch (error) {
      if (!stop.signal.aborted) {
        this.problem = asProblem(error);
        this._setState('failed');
      }
      return;
    }
    if (!stop.signal.aborted) {
      this._take(this._partial ? '\n' : '', stop.signal);
      this._setState('ended');
    }
  }

  stop(): void {
    this._stop?.abort();
  }

  /** The kept lines as the content of a file. */
  get text(): string {
    return this.lines.map(line => line + '\n').join('');
  }

  private _take(text: string, signal: AbortSignal): void {
    if (signal.aborted) {
      // It had arrived when the reading was ended, and is not part of the next one.
      return;
    }
    const parts = (this._partial + text).split('\n');
    this._partial = parts.pop() ?? '';
    const lines = [...this.lines, ...parts];
    this.dropped += Math.max(0, lines.length - LINES_KEPT);
    this.lines = lines.slice(-LINES_KEPT);
    this._changed.emit();
  }

  private _setState(state: LogState): void {
    this.state = state;
    if (state !== 'failed') {
      this.problem = null;
    }
    this._changed.emit();
  }

  private _partial = '';
  private _stop: AbortController | null = null;
  private readonly _changed = new Signal<this, void>(this);
}

/** Return the lines that contain `words`, ignoring case; all lines if `words` is empty. */
export function matching(lines: readonly string[], words: string): readonly string[] {
  const wanted = words.trim().toLowerCase();
  return wanted ? lines.filter(line => line.toLowerCase().includes(wanted)) : lines;
}
