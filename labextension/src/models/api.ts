/** Client of the server extension. Each failure becomes a {@link Problem} with a hint. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { english, ITrans } from './trans';
import { JobAction } from './joblist';
import { IField, IPlaces } from './line';
import { LogSource } from './log';
import { Problem } from './problem';
import { IScope } from './scope';
import { IArrays } from './sessionrows';
import { ICapacity, IJobPicture, IProblem } from './wire';

const ROOT = 'pathways-jupyter';

/** What a user can choose in the connect dialog. */
export interface IContexts extends IPlaces {
  readonly profiles: readonly string[];
  readonly problem: IProblem | null;
  /** The further fields of the dialog. */
  readonly more: readonly IField[];
}

/** A service and its capacity, for the connect dialog. */
export interface IOffer {
  readonly name: string;
  readonly namespace: string;
  readonly capacity: readonly ICapacity[];
}

/** The names of what a sweep removed, or would remove. */
export interface ISwept {
  readonly removed: readonly string[];
}

export class Api {
  constructor(
    readonly settings: ServerConnection.ISettings = ServerConnection.makeSettings(),
    private readonly _trans: ITrans = english
  ) {}

  version(): Promise<{ version: string }> {
    return this._ask('version');
  }

  contexts(): Promise<IContexts> {
    return this._ask('contexts');
  }

  services(scope: IScope): Promise<{ services: readonly IOffer[] }> {
    return this._ask('services' + query(scope));
  }

  /** Have a session's kernel suspend it; answers whether that is after a cell that runs. */
  async suspend(session: string): Promise<{ after_cell: boolean }> {
    const { result } = await this._ask<{ result: { after_cell: boolean } }>(
      `sessions/${encodeURIComponent(session)}/suspend`,
      'POST'
    );
    return result;
  }

  /** End a session, get it a new proxy, or count it as used now, so that it is not suspended soon. */
  actOnSession(session: string, action: 'disconnect' | 'reconnect' | 'keep'): Promise<unknown> {
    return this._ask(`sessions/${encodeURIComponent(session)}/${action}`, 'POST');
  }

  /** Ask for the arrays that a session would lose with its proxy; null if that is not known. */
  async arrays(session: string): Promise<IArrays | null> {
    const found = await this._ask<{ arrays: IArrays | null }>(`sessions/${encodeURIComponent(session)}/arrays`);
    return found.arrays;
  }

  /** Trace the chips of a session for some seconds; answers with a picture of what they did, and where the trace is. */
  profile(session: string, seconds: number): Promise<{ html: string; location: string }> {
    return this._ask(`sessions/${encodeURIComponent(session)}/profile`, 'POST', { seconds });
  }

  sweep(scope: IScope, dryRun: boolean): Promise<ISwept> {
    return this._ask('sweep', 'POST', { ...scope, dry_run: dryRun });
  }

  quickstart(): Promise<{ path: string }> {
    return this._ask('quickstart', 'POST');
  }

  /** Start the embedded cluster; answers when its slices are ready. */
  startEmbedded(): Promise<{ slices: { readonly [type: string]: number } }> {
    return this._ask('embedded', 'POST');
  }

  job(scope: IScope, job: string): Promise<IJobPicture> {
    return this._ask(`jobs/${encodeURIComponent(job)}` + query(scope));
  }

  actOnJob(scope: IScope, job: string, action: JobAction): Promise<unknown> {
    return this._ask(`jobs/${encodeURIComponent(job)}/${action}`, 'POST', scope);
  }

  /** Call `take` with each chunk of a log, until the log ends or `signal` is aborted. */
  async log(source: LogSource, follow: boolean, take: (text: string) => void, signal: AbortSignal): Promise<void> {
    const [path, values] =
      'pod' in source
        ? ['logs', { ...source.scope, pod: source.pod }]
        : [`jobs/${encodeURIComponent(source.job)}/logs`, source.scope];
    const response = await this._send(path + query({ ...values, follow }), { method: 'GET', signal });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let chunk = await reader?.read(); chunk && !chunk.done; chunk = await reader?.read()) {
      take(chunk.value);
    }
  }

  /** The address of the WebSocket. */
  get updatesUrl(): string {
    const url = URLExt.join(this.settings.wsUrl, ROOT, 'updates');
    const token = this.settings.token;
    return this.settings.appendToken && token ? `${url}?token=${encodeURIComponent(token)}` : url;
  }

  private async _ask<T>(path: string, method = 'GET', body?: object): Promise<T> {
    const response = await this._send(path, { method, body: body && JSON.stringify(body) });
    return (await response.json()) as T;
  }

  private async _send(path: string, init: RequestInit): Promise<Response> {
    const url = URLExt.join(this.settings.baseUrl, ROOT) + '/' + path;
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, init, this.settings);
    } catch (error) {
      if (init.signal?.aborted) {
        throw error;
      }
      throw new Problem(
        this._trans.__('The Jupyter server does not answer.'),
        this._trans.__('Check that it is running, then try again.')
      );
    }
    if (!response.ok) {
      throw await problem(response, this._trans);
    }
    return response;
  }
}

async function problem(response: Response, trans: ITrans): Promise<Problem> {
  try {
    const { message = response.statusText, hint = '' } = (await response.json()) as Partial<IProblem>;
    return new Problem(message, hint, response.status);
  } catch {
    return new Problem(
      trans.__('The Jupyter server answered with HTTP status %1.', response.status),
      '',
      response.status
    );
  }
}

function query(values: object): string {
  const entries = Object.entries(values).filter(([, value]) => value !== '' && value !== false);
  return URLExt.objectToQueryString(Object.fromEntries(entries.map(([name, value]) => [name, String(value)])));
}
