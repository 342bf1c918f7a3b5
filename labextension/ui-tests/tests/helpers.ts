/** Shared steps of the sidebar's tests. */
import { execFileSync } from 'child_process';
import * as fs from 'fs';
import * as net from 'net';
import * as path from 'path';

import { JupyterLabPage } from '@jupyterlab/galata/lib/jupyterlabpage';
import { waitForCondition } from '@jupyterlab/galata/lib/utils';
import { expect, galata, IJupyterLabPageFixture, test as base } from '@jupyterlab/galata';
import { Locator, Page } from '@playwright/test';

/** Galata allows JupyterLab 15 s to start; a busy machine needs more. */
JupyterLabPage.prototype.waitForCondition = (condition, timeout = 120_000) => waitForCondition(condition, timeout);

export const LOCAL = { ...galata.DEFAULT_SETTINGS, 'pathways-jupyter:plugin': { local: true } };

/** The settings of a user who prefers the embedded cluster. */
export const test = base.extend({ mockSettings: LOCAL });

/** Return the execution indicator of the notebook in front. */
export function indicator(page: IJupyterLabPageFixture): Locator {
  return page.locator('.jp-NotebookPanel:visible .jp-Notebook-ExecutionIndicator');
}

/** Themes, and their names in pictures. */
export const THEMES = [
  ['JupyterLab Light', 'light'],
  ['JupyterLab Dark', 'dark'],
  ['JupyterLab Dark High Contrast', 'contrast']
] as const;

/** The first of this worker's ports, at which playwright.config.js starts its servers. */
export const PORT = Number(process.env.PATHWAYS_UI_OWN_PORT);
/** The themes in which every state is visited: a picture of each is for people who review them. */
export const VISITED = process.env.PATHWAYS_UI_IMAGES ? THEMES.slice(0, 2) : THEMES.slice(0, 1);
/** Directory of the pictures. */
export const IMAGES = process.env.PATHWAYS_UI_IMAGES || path.join(__dirname, '..', 'test-results');
const AXE = require.resolve('axe-core/axe.min.js');
const kubeconfig = (port: number) => path.join(__dirname, '..', `.kubeconfig${port}`);
const KUBECONFIG = kubeconfig(PORT);
/** The Jupyter server's kubeconfig, whose context is initially unreachable. */
const USER_KUBECONFIG = `${KUBECONFIG}.user`;

export function kubectl(...words: string[]): string {
  return kubectlAt(PORT, ...words);
}

/** Like `kubectl`, on the cluster of the server at another port. */
export function kubectlAt(port: number, ...words: string[]): string {
  return execFileSync('kubectl', ['--kubeconfig', kubeconfig(port), ...words], {
    encoding: 'utf-8',
    maxBuffer: 64 * 1024 * 1024
  });
}

export function kubectlApply(manifest: object, port = PORT): void {
  execFileSync('kubectl', ['--kubeconfig', kubeconfig(port), 'apply', '-f', '-'], { input: JSON.stringify(manifest) });
}

/**
 * Create a service of many slices in a namespace of its own: the embedded cluster's service, whose pods are only
 * reported, without processes. Returns the function that removes it.
 */
export function hollowService(namespace: string, slices: number): () => void {
  const given = kubectl('get', 'jobset', 'pathways-cluster', '-o', 'json');
  // The resource manager is started with their number.
  const { apiVersion, kind, metadata, spec } = JSON.parse(
    given.replace(/--instance_count=\d+/g, `--instance_count=${slices}`)
  );
  for (const { template } of spec.replicatedJobs) {
    const pod = template.spec.template;
    pod.metadata = {
      ...pod.metadata,
      annotations: { ...pod.metadata?.annotations, 'pathways-jupyter/hollow': 'true' }
    };
  }
  // The workers, after the resource manager.
  spec.replicatedJobs.at(-1).replicas = slices;
  kubectlApply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
  kubectlApply({ apiVersion, kind, metadata: { name: metadata.name, namespace, labels: metadata.labels }, spec });
  return () => void kubectl('delete', 'namespace', namespace);
}

/** Make the embedded cluster the server's current context during `during`, as `kubectl config` does. */
export async function withEmbeddedContext(during: () => Promise<void>): Promise<void> {
  const before = fs.readFileSync(USER_KUBECONFIG);
  fs.writeFileSync(USER_KUBECONFIG, fs.readFileSync(KUBECONFIG));
  try {
    await during();
  } finally {
    fs.writeFileSync(USER_KUBECONFIG, before);
  }
}

/** Take a slice down and keep it down during `during`, with all nodes cordoned against its new worker. */
export async function withoutWorker(index: number, during: () => Promise<void>): Promise<void> {
  const nodes = kubectl('get', 'nodes', '-o', 'name').trim().split('\n');
  kubectl('cordon', ...nodes.map(name => name.replace('node/', '')));
  try {
    killWorker(index);
    await during();
  } finally {
    kubectl('uncordon', ...nodes.map(name => name.replace('node/', '')));
  }
}

/** Return the names of the proxies' Jobs. */
export function proxies(): string {
  return kubectl('get', 'jobs', '-l', 'pathways-jupyter/session', '-o', 'name');
}

/** Take a slice down; its JobSet recreates the worker. Jobs have workers, too. */
export function killWorker(index: number): void {
  const pod = kubectl('get', 'pods', '-o', 'name')
    .split('\n')
    .find(name => name.startsWith(`pod/pathways-cluster-worker-${index}-`))!;
  kubectl('delete', pod, '--wait=false');
}

/** Reload the page, and wait until JupyterLab has restored it. */
export async function reload(page: IJupyterLabPageFixture): Promise<void> {
  // Galata's type of a page does not have the options of Galata's reload().
  const options: object = { waitForIsReady: false };
  await page.reload(options);
  await page.locator('#jupyterlab-splash').waitFor({ state: 'detached' });
}

/** Change one of the sidebar's settings, as the settings editor does. */
export async function setSetting(page: IJupyterLabPageFixture, name: string, value: string | boolean): Promise<void> {
  await page.evaluate(
    async ([key, wanted]) => {
      const registry: any = await window.galata.getPlugin('@jupyterlab/apputils-extension:settings');
      await registry.set('pathways-jupyter:plugin', key, wanted);
    },
    [name, value] as const
  );
}

/** Open the panel at JupyterLab's default width. */
export async function openPanel(page: Pick<Page, 'evaluate' | 'locator'>): Promise<Locator> {
  await page.evaluate(() => window.jupyterapp.commands.execute('pathways-jupyter:show-panel'));
  const panel = page.locator('#pathways-jupyter-panel');
  await expect(panel).toBeVisible();
  return panel;
}

/** Unfold a section of the panel. */
export async function unfold(panel: Locator, title: string): Promise<void> {
  const button = panel.getByRole('button', { name: title, exact: true });
  await button.click();
  await expect(button).toHaveAttribute('aria-expanded', 'true');
}

/** A TCP proxy in front of the server, whose connections a test can cut. */
export class Wire {
  constructor(private readonly _port: number) {}

  /** Connections are refused if their first request contains this text; empty allows all. */
  blocked = '';

  async open(): Promise<void> {
    this._server = net.createServer(near => {
      const far = net.connect(PORT, '127.0.0.1');
      this._connections.set(near, '');
      near.once('data', data => {
        const head = data.toString('latin1');
        this._connections.set(near, head.slice(0, head.indexOf('\r\n')));
        if (this.blocked) {
          this.cut(this.blocked);
        }
      });
      for (const [from, to] of [
        [near, far],
        [far, near]
      ]) {
        from.pipe(to);
        // Reset the other end as well.
        from.on('error', () => to.destroy());
        from.on('close', () => to.destroy());
      }
      near.on('close', () => this._connections.delete(near));
    });
    await new Promise<void>(done => this._server!.listen(this._port, '127.0.0.1', done));
  }

  /** Cut the connections whose first request contains `what`, without a closing handshake. */
  cut(what = ''): void {
    for (const [connection, head] of this._connections) {
      if (head.includes(what)) {
        connection.resetAndDestroy();
      }
    }
  }

  async close(): Promise<void> {
    const closed = new Promise(done => this._server!.close(done));
    this.cut();
    await closed;
  }

  private _server: net.Server | null = null;
  private readonly _connections = new Map<net.Socket, string>();
}

/** Take a screenshot for visual review. */
export async function picture(
  page: IJupyterLabPageFixture,
  name: string,
  clip?: { x: number; y: number; width: number; height: number }
): Promise<void> {
  await page.screenshot({ path: path.join(IMAGES, `${name}.png`), clip });
}

/** Drag the sidebar's edge until it has this width. */
export async function widen(page: IJupyterLabPageFixture, panel: Locator, width: number): Promise<void> {
  const box = (await panel.boundingBox())!;
  const edge = page.locator('#jp-main-split-panel > .lm-SplitPanel-handle').first();
  const handle = (await edge.boundingBox())!;
  await page.mouse.move(handle.x + 1, handle.y + 300);
  await page.mouse.down();
  await page.mouse.move(handle.x + 1 + width - box.width, handle.y + 300);
  await page.mouse.up();
}

export function section(panel: Locator, name: string): Locator {
  return panel.locator(`[data-section="${name}"]`);
}

export function slice(panel: Locator, index: number): Locator {
  return panel.locator(`.pw-slice[data-slice$="/${index}"]`);
}

/** Open a new notebook with its own kernel, without the menu and the kernel dialog that Galata's helper uses. */
export async function newNotebook(
  page: IJupyterLabPageFixture,
  name = 'Untitled.ipynb',
  kernel = 'python3'
): Promise<void> {
  const folder = await page.filebrowser.getCurrentDirectory();
  await page.evaluate(
    async ([directory, wanted, spec]) => {
      const { commands, serviceManager } = window.jupyterapp;
      const path = `${directory}/${wanted}`;
      const made = await serviceManager.contents.newUntitled({ path: directory, type: 'notebook' });
      if (made.path !== path) {
        await serviceManager.contents.rename(made.path, path);
      }
      const panel = await commands.execute('docmanager:open', {
        path,
        factory: 'Notebook',
        kernel: { name: spec }
      });
      await panel.context.ready;
      await panel.sessionContext.ready;
      await panel.sessionContext.session.kernel.info;
    },
    [folder, name, kernel] as const
  );
}

/** Connect the notebook in front with the dialog. */
export async function connect(page: IJupyterLabPageFixture, panel: Locator, slices = 2, free = 2): Promise<void> {
  await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Slice type')).toContainText(`${free} of 2 free`);
  await dialog.getByLabel('Number of slices').fill(String(slices));
  await dialog.getByRole('button', { name: 'Connect', exact: true }).click();
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected', { timeout: 60_000 });
  // The proxy is ready; JAX is switched before the cell ends.
  await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
}

/** Disconnect the notebook in front, so that its slices are free for the next test. */
export async function disconnect(
  page: Pick<Page, 'getByRole'>,
  panel: Locator,
  options: { busy?: boolean } = {}
): Promise<void> {
  await panel.getByRole('button', { name: 'Disconnect' }).click();
  const confirm = page.getByRole('dialog').getByRole('button', { name: 'Disconnect' });
  if (options.busy) {
    await expect(confirm).toBeVisible();
  }
  // It asks first if arrays would be lost too.
  await expect(async () => {
    if (await confirm.isVisible()) {
      await confirm.click();
    }
    expect(await panel.locator('.pw-session').count()).toBe(0);
  }).toPass({ timeout: 60_000 });
}

/** Return what axe finds wrong with a part of the page. */
export async function faults(page: IJupyterLabPageFixture, selector: string): Promise<string[]> {
  await page.addScriptTag({ path: AXE });
  return page.evaluate(async where => {
    const result = await (window as any).axe.run(where, { resultTypes: ['violations'] });
    return result.violations.map((each: any) => `${each.id}: ${each.nodes.map((node: any) => node.html).join(' | ')}`);
  }, selector);
}

/** Note every text that the panel shows, also after a reload; `said` returns them and begins anew. */
export async function listen(page: IJupyterLabPageFixture): Promise<() => Promise<string>> {
  const note = () => {
    const texts: string[] = ((window as any).texts ??= []);
    const look = () => {
      const text = document.querySelector('#pathways-jupyter-panel')?.textContent ?? '';
      if (text !== texts.at(-1)) {
        texts.push(text);
      }
    };
    new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
  };
  await page.addInitScript(note);
  await page.evaluate(note);
  return () => page.evaluate(() => (window as any).texts.splice(0).join('\n'));
}

/** Run a new cell without waiting for its end. */
export async function start(page: IJupyterLabPageFixture, code: string): Promise<void> {
  await page.evaluate(async source => {
    const { commands, shell } = window.jupyterapp;
    await commands.execute('notebook:insert-cell-below');
    const notebook = (shell.currentWidget as any).content;
    notebook.activeCell.model.sharedModel.setSource(source);
    void commands.execute('notebook:run-cell');
  }, code);
}

export { expect };
