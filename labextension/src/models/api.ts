/** The server extension's routes. Each failure becomes a {@link Problem}, with what to do next. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { english, ITrans } from './trans';
import { ICapacity, IProblem, IScope } from './wire';

const ROOT = 'pathways-jupyter';

/** A failure that the server reported. */
export class Problem extends Error implements IProblem {
  constructor(
    message: string,
    readonly hint: string,
    /** HTTP status; 0 when there was no answer. */
    readonly status: number
  ) {
    super(message);
  }
}

/** Any failure as a {@link Problem}: what JavaScript throws need not even be an error. */
export function asProblem(error: unknown, trans: ITrans = english): Problem {
  return error instanceof Problem ? error : new Problem(trans.__('It failed: %1', String(error)), '', 0);
}

/** Where a user may connect to. */
export interface IContexts {
  readonly contexts: readonly string[];
  readonly current: string;
  /** Whether the embedded cluster runs. */
  readonly local: boolean;
  readonly profiles: readonly string[];
  readonly problem: IProblem | null;
}

/** What a service offers, for the connect dialog. */
export interface IOffer {
  readonly name: string;
  readonly namespace: string;
  readonly capacity: readonly ICapacity[];
}

/** What a sweep removed, or would remove. */
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

  disconnect(session: string): Promise<unknown> {
    return this._ask(`sessions/${encodeURIComponent(session)}/disconnect`, 'POST');
  }

  reconnect(session: string): Promise<unknown> {
    return this._ask(`sessions/${encodeURIComponent(session)}/reconnect`, 'POST');
  }

  sweep(scope: IScope, dryRun: boolean): Promise<ISwept> {
    return this._ask('sweep', 'POST', { ...scope, dry_run: dryRun });
  }

  quickstart(): Promise<{ path: string }> {
    return this._ask('quickstart', 'POST');
  }

  /** Calls `take` with each piece of a log until it ends, or `signal` says stop. */
  async log(scope: IScope, pod: string, follow: boolean, take: (text: string) => void, signal: AbortSignal): Promise<void> {
    const path = 'logs' + query({ ...scope, pod, follow });
    const response = await this._send(path, { method: 'GET', signal });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) {
      take(piece.value);
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
      throw new Problem(this._trans.__('The Jupyter server does not answer.'), this._trans.__('Check that it runs, then try again.'), 0);
    }
    if (!response.ok) {
      throw await problem(response, this._trans);
    }
    return response;
  }
}

async function problem(response: Response, trans: ITrans): Promise<Problem> {
  try {
    const said = await response.json();
    return new Problem(String(said.message || response.statusText), String(said.hint ?? ''), response.status);
  } catch {
    return new Problem(trans.__('The Jupyter server answered %1.', response.status), '', response.status);
  }
}

function query(values: object): string {
  const given = Object.entries(values).filter(([, value]) => value !== '' && value !== false);
  return URLExt.objectToQueryString(Object.fromEntries(given.map(([name, value]) => [name, String(value)])));
}
