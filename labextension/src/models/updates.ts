/**
 * The page's WebSocket. It reconnects with backoff, and waits while the page is hidden. When the extension is missing or
 * access is denied it stops trying until the user asks for it with "Try again".
 */
import { Api } from './api';
import { Problem } from './problem';
import { IScope, sameScope } from './scope';
import { Model } from './model';
import { Message } from './wire';

const FIRST_PAUSE_MILLISECONDS = 500;
const LONGEST_PAUSE_MILLISECONDS = 30_000;

/** How long a connection may be silent that has beaten before: three beats of the server. */
export const SILENCE_MILLISECONDS = 45_000;
/** How long to wait for the version: over a half-open connection, no answer comes and no error either. */
const VERSION_MILLISECONDS = 10_000;

/** The browser functions used here, so that tests can replace them. */
export interface IBrowser {
  openSocket(url: string): WebSocket;
  hidden(): boolean;
  /** Call `then` once, when the page becomes visible. Returns a function that cancels this. */
  whenShown(then: () => void): () => void;
}

export const browser: IBrowser = {
  openSocket: url => new WebSocket(url),
  hidden: () => document.hidden,
  whenShown: then => {
    const listen = () => {
      if (!document.hidden) {
        document.removeEventListener('visibilitychange', listen);
        then();
      }
    };
    document.addEventListener('visibilitychange', listen);
    return () => document.removeEventListener('visibilitychange', listen);
  }
};

export class Updates {
  constructor(
    private readonly _model: Model,
    private readonly _api: Api,
    private readonly _browser: IBrowser = browser
  ) {}

  /** Open the connection, replacing the present one. */
  start(): void {
    this.stop();
    this._pause = FIRST_PAUSE_MILLISECONDS;
    this._open();
  }

  /** Subscribe to a cluster; null unsubscribes. No-op if the page is subscribed to it already. */
  look(scope: IScope | null): void {
    if (sameScope(scope, this._scope)) {
      return;
    }
    this._scope = scope;
    this._model.setScope(scope);
    this._sendLook();
  }

  /** Close the connection and cancel pending attempts. */
  stop(): void {
    this._attempt++;
    clearTimeout(this._timer);
    clearTimeout(this._silence);
    this._cancelWaiting();
    this._cancelWaiting = () => undefined;
    const socket = this._socket;
    this._socket = null;
    socket?.close();
  }

  private _open(): void {
    const socket = this._browser.openSocket(this._api.updatesUrl);
    this._socket = socket;
    socket.onopen = () => this._sendLook();
    socket.onmessage = event => {
      if (socket === this._socket) {
        this._pause = FIRST_PAUSE_MILLISECONDS;
        const message = parsed(event.data as string);
        if (message.type === 'beat') {
          this._expectBeat(socket);
        } else {
          this._model.apply(message);
        }
      }
    };
    socket.onclose = () => {
      if (socket === this._socket) {
        this._socket = null;
        void this._again();
      }
    };
  }

  /** Give up the connection if it stays silent: it may be half open since the laptop slept or changed its network. */
  private _expectBeat(socket: WebSocket): void {
    clearTimeout(this._silence);
    this._silence = setTimeout(() => {
      if (socket === this._socket) {
        this._socket = null;
        // Its end is not waited for: over a half-open connection, no answer to the closing handshake comes.
        socket.close();
        void this._again();
      }
    }, SILENCE_MILLISECONDS);
  }

  /** A browser does not report why a WebSocket failed; the version route does. */
  private async _again(): Promise<void> {
    const attempt = this._attempt;
    this._model.setLink({ state: 'broken' });
    let failure: unknown = null;
    try {
      await this._version();
    } catch (error) {
      failure = error;
    }
    if (attempt !== this._attempt) {
      // start() or stop() was called during the request; continuing would open a second socket.
      return;
    }
    if (failure) {
      const status = failure instanceof Problem ? failure.status : 0;
      if (status === 404) {
        this._model.setLink({ state: 'missing' });
        return;
      }
      if (status === 401 || status === 403) {
        this._model.setLink({ state: 'refused' });
        return;
      }
    }
    const pause = this._pause * (0.5 + Math.random() / 2);
    this._pause = Math.min(2 * this._pause, LONGEST_PAUSE_MILLISECONDS);
    this._timer = setTimeout(() => {
      if (this._browser.hidden()) {
        this._cancelWaiting = this._browser.whenShown(() => this._open());
      } else {
        this._open();
      }
    }, pause);
  }

  private _version(): Promise<unknown> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const tooLong = new Promise((_, failed) => {
      timer = setTimeout(() => failed(new Error('no answer')), VERSION_MILLISECONDS);
    });
    return Promise.race([this._api.version(), tooLong]).finally(() => clearTimeout(timer));
  }

  private _sendLook(): void {
    if (this._socket?.readyState === 1) {
      this._socket.send(JSON.stringify({ type: 'look', scope: this._scope }));
    }
  }

  private _scope: IScope | null = null;
  private _socket: WebSocket | null = null;
  private _silence: ReturnType<typeof setTimeout> | undefined;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _pause = FIRST_PAUSE_MILLISECONDS;
  private _attempt = 0;
  private _cancelWaiting: () => void = () => undefined;
}

/** A message that is not JSON is not asked for again: it would be as unreadable, and the others are fine. */
function parsed(text: string): Message {
  try {
    return JSON.parse(text) as Message;
  } catch (error) {
    console.error('pathways-jupyter: a message of the server cannot be read', error);
    return { type: 'unreadable' };
  }
}
