/** JupyterLab's database of states, as far as it is used. */
export class Store {
  constructor(public saved?: unknown) {}

  fetch(): Promise<unknown> {
    return Promise.resolve(this.saved);
  }

  save(_: string, value: unknown): Promise<void> {
    this.saved = value;
    return Promise.resolve();
  }
}

/** Wait for what the database answers. */
export const settled = () => new Promise(done => setImmediate(done));
