/** What several tests do with the sidebar. */
import { execFileSync } from 'child_process';
import * as path from 'path';

import { JupyterLabPage } from '@jupyterlab/galata/lib/jupyterlabpage';
import { waitForCondition } from '@jupyterlab/galata/lib/utils';
import { expect, galata, IJupyterLabPageFixture, test as base } from '@jupyterlab/galata';
import { Locator } from '@playwright/test';

/** Galata gives JupyterLab 15 s to come up; a machine that is busy needs more. */
JupyterLabPage.prototype.waitForCondition = (condition, timeout = 120_000) => waitForCondition(condition, timeout);

export const LOCAL = { ...galata.DEFAULT_SETTINGS, 'pathways-jupyter:plugin': { local: true } };

/** Looks at the embedded cluster, as a user who has set so would. */
export const test = base.extend({ mockSettings: LOCAL });

/** Themes, and what pictures of them are called. */
export const THEMES = [
  ['JupyterLab Light', 'light'],
  ['JupyterLab Dark', 'dark'],
  ['JupyterLab Dark High Contrast', 'contrast']
] as const;

const PORT = process.env.PATHWAYS_UI_PORT || '8931';

export function kubectl(...words: string[]): string {
  const kubeconfig = path.join(__dirname, '..', `.kubeconfig${PORT}`);
  return execFileSync('kubectl', ['--kubeconfig', kubeconfig, ...words], { encoding: 'utf-8' });
}

/** Names of the proxies' Jobs; nothing may be left of a session that ended. */
export function proxies(): string {
  return kubectl('get', 'jobs', '-l', 'pathways-jupyter/session', '-o', 'name');
}

/** Takes a slice down; its JobSet brings it up again. */
export function killWorker(index: number): void {
  const pod = kubectl('get', 'pods', '-o', 'name').split('\n').find(name => name.includes(`-worker-${index}-`))!;
  kubectl('delete', pod, '--wait=false');
}

/** Writes down every health that a slice is drawn with from now on: it heals within a fraction of a second. */
export async function healthSeen(page: IJupyterLabPageFixture, within: string, index: number): Promise<() => Promise<string[]>> {
  await page.evaluate(
    ([where, slice]) => {
      const seen: string[] = ((window as any).seen = []);
      const map = document.querySelector(where)!;
      const look = () => {
        const health = map.querySelector(`.pw-slice[data-slice$="/${slice}"]`)?.getAttribute('data-health') ?? '';
        if (health !== seen[seen.length - 1]) {
          seen.push(health);
        }
      };
      new MutationObserver(look).observe(map, { subtree: true, childList: true, attributes: true });
      look();
    },
    [within, index] as const
  );
  return () => page.evaluate(() => (window as any).seen);
}

export async function openPanel(page: IJupyterLabPageFixture): Promise<Locator> {
  await page.evaluate(() => window.jupyterapp.commands.execute('pathways-jupyter:show-panel'));
  const panel = page.locator('#pathways-jupyter-panel');
  await expect(panel).toBeVisible();
  await page.sidebar.setWidth(340, 'left').catch(() => undefined);
  return panel;
}

export function section(panel: Locator, name: string): Locator {
  return panel.locator(`[data-section="${name}"]`);
}

export function slice(panel: Locator, index: number): Locator {
  return panel.locator(`.pw-slice[data-slice$="/${index}"]`);
}

/** Connects the notebook in front through the dialog. */
export async function connect(page: IJupyterLabPageFixture, panel: Locator, slices = 2): Promise<void> {
  await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Slice type')).toContainText('2 of 2 free');
  await dialog.getByLabel('Number of slices').fill(String(slices));
  await dialog.getByRole('button', { name: 'Connect', exact: true }).click();
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected', { timeout: 60_000 });
  // The proxy is there; JAX follows before the cell ends.
  await expect(page.locator('.jp-Notebook-ExecutionIndicator')).toHaveAttribute('data-status', 'idle');
}

/** Ends every session, so that the next test finds all slices free. */
export async function disconnectAll(page: IJupyterLabPageFixture, panel: Locator): Promise<void> {
  const button = panel.getByRole('button', { name: 'Disconnect' });
  if (await button.isVisible()) {
    await button.click();
  }
  await expect(panel.locator('.pw-session')).toHaveCount(0, { timeout: 60_000 });
}

/** Runs a new cell without waiting for its end. */
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
